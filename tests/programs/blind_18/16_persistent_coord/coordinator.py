"""Hands work requests to persistent workers and watches their deadlines."""
import asyncio
import json
import logging
import os
import struct
import sys
import time

log = logging.getLogger("coordinator")


class RequestCtx:
    """All there is to know of one work request."""

    def __init__(self, request_id, arguments, inputs):
        self.request_id = request_id
        self.arguments = arguments
        self.inputs = inputs
        self.outputs = None
        self.response = None
        self.started = time.monotonic()
        self.finished = None

    @property
    def done(self):
        return self.finished is not None


class PersistentWorker:
    def __init__(self, index):
        self.index = index
        self.proc = None
        self.served = 0

    async def start(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
        self.proc = await asyncio.create_subprocess_exec(
            sys.executable, script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)

    async def work(self, ctx):
        header = json.dumps({"id": ctx.request_id, "arguments": ctx.arguments}).encode()
        body = b"".join(ctx.inputs.values())
        self.proc.stdin.write(struct.pack("!II", len(header), len(body)) + header + body)
        await self.proc.stdin.drain()
        rlen, olen = struct.unpack("!II", await self.proc.stdout.readexactly(8))
        ctx.response = json.loads(await self.proc.stdout.readexactly(rlen))
        ctx.outputs = await self.proc.stdout.readexactly(olen)
        ctx.finished = time.monotonic()
        self.served += 1

    def stop(self):
        if self.proc is not None and self.proc.returncode is None:
            self.proc.kill()


class ProtoCoordinator:
    def __init__(self, num_workers, request_timeout):
        self.request_timeout = request_timeout
        self.idle = asyncio.Queue()
        self.workers = [PersistentWorker(i) for i in range(num_workers)]
        self.pending = {}
        self.completed = 0

    async def start(self):
        for w in self.workers:
            await w.start()
            self.idle.put_nowait(w)

    def _on_timeout(self, ctx):
        if not ctx.done:
            log.error("request %d timed out after %.0f s: %s", ctx.request_id,
                      self.request_timeout, " ".join(ctx.arguments))
            self.pending.pop(ctx.request_id, None)

    def _start_timeout_timer(self, ctx):
        loop = asyncio.get_running_loop()
        loop.call_later(self.request_timeout, self._on_timeout, ctx)

    async def run_request(self, ctx):
        self.pending[ctx.request_id] = ctx
        self._start_timeout_timer(ctx)
        worker = await self.idle.get()
        try:
            await worker.work(ctx)
        finally:
            self.idle.put_nowait(worker)
            self.pending.pop(ctx.request_id, None)
        self.completed += 1
        return ctx.response

    def stop(self):
        for w in self.workers:
            w.stop()
