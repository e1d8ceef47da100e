"""A small RPC channel over asyncio streams: calls in both directions, matched by id."""
import asyncio
import itertools
import pickle
import struct


class RpcChannelClosed(Exception):
    pass


class RpcPromise:
    def __init__(self, call_id: int):
        self.call_id = call_id
        self._event = asyncio.Event()
        self.result = None

    def set(self, result):
        self.result = result
        self._event.set()

    async def wait(self):
        await self._event.wait()
        return self


class RpcChannel:
    def __init__(self, reader, writer, methods):
        self.reader, self.writer, self.methods = reader, writer, methods
        self.requests: dict[int, RpcPromise] = {}
        self.calls = 0
        self._ids = itertools.count()
        self._closed = asyncio.Event()

    async def _send(self, message):
        data = pickle.dumps(message)
        self.writer.write(struct.pack("!I", len(data)) + data)
        await self.writer.drain()

    async def serve(self):
        try:
            while True:
                size = struct.unpack("!I", await self.reader.readexactly(4))[0]
                kind, call_id, payload = pickle.loads(await self.reader.readexactly(size))
                if kind == "request":
                    method, arguments = payload
                    await self._send(("response", call_id, await self.methods[method](*arguments)))
                else:
                    self.requests.pop(call_id).set(payload)
        except asyncio.IncompleteReadError:
            self._closed.set()

    async def on_closed(self):
        await self._closed.wait()

    async def wait_for_response(self, promise: RpcPromise, timeout=None):
        for done in asyncio.as_completed([promise.wait(), self.on_closed()], timeout=timeout):
            if await done is promise:
                return promise.result
            raise RpcChannelClosed(f"channel closed before the response to call {promise.call_id}")

    async def call(self, method: str, *arguments, timeout=None):
        promise = RpcPromise(next(self._ids))
        self.requests[promise.call_id] = promise
        await self._send(("request", promise.call_id, (method, arguments)))
        self.calls += 1
        return await self.wait_for_response(promise, timeout)
