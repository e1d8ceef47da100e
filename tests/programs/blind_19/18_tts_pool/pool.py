import asyncio
import itertools
import logging
import multiprocessing as mp
import threading

from engine import worker_main

log = logging.getLogger("pool")


class AsyncTTSServer:
    """One model replica in a subprocess; requests are futures resolved by a reader thread."""

    def __init__(self, worker_id, args):
        ctx = mp.get_context("spawn")
        self.worker_id = worker_id
        self.queue_in, self.queue_out = ctx.Queue(), ctx.Queue()
        self.process = ctx.Process(target=worker_main, name=f"tts-{worker_id}", daemon=True,
                                   args=(worker_id, self.queue_in, self.queue_out, args.worker_mb, args.lifetime))
        self.futures = {}
        self.ready = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def start(self):
        self.process.start()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            kind, key, value = self.queue_out.get()
            if kind == "ready":
                self.loop.call_soon_threadsafe(self.ready.set)
            else:
                self.loop.call_soon_threadsafe(self._resolve, key, value)

    def _resolve(self, seq_id, mel):
        fut = self.futures.pop(seq_id, None)
        if fut is not None and not fut.done():
            fut.set_result(mel)

    async def generate(self, seq_id, text, frames):
        fut = self.loop.create_future()
        self.futures[seq_id] = fut
        self.queue_in.put((seq_id, text, frames))
        return await fut


class AsyncTTSServerPool:
    def __init__(self, args):
        self.servers = [AsyncTTSServer(i, args) for i in range(args.workers)]
        self.ids = itertools.count()

    async def start(self):
        for s in self.servers:
            s.start()
        await asyncio.gather(*(s.ready.wait() for s in self.servers))
        log.info("%d replicas ready", len(self.servers))

    async def generate(self, text, frames):
        server = min(self.servers, key=lambda s: len(s.futures))
        return await server.generate(next(self.ids), text, frames)

    def inflight(self):
        return [len(s.futures) for s in self.servers]
