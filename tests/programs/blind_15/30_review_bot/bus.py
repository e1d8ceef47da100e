"""Message bus of the bot: named queues between its processes and its event loop."""
import asyncio
import logging
import multiprocessing
import queue as queue_module

log = logging.getLogger("bus")


class MessageBus:
    def __init__(self):
        self.queues = {}

    def add_queue(self, name, mp=False, maxsize=-1):
        assert name not in self.queues, f"Queue {name} already setup"
        assert isinstance(maxsize, int)
        self.queues[name] = multiprocessing.Queue(maxsize=maxsize) if mp else asyncio.Queue(maxsize=maxsize)

    async def send(self, name, payload):
        queue = self.queues[name]
        if isinstance(queue, asyncio.Queue):
            await queue.put(payload)
        else:
            await asyncio.get_running_loop().run_in_executor(None, queue.put, payload)

    async def receive(self, name):
        queue = self.queues[name]
        if isinstance(queue, asyncio.Queue):
            return await queue.get()
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(None, queue.get, True, 5)
            except queue_module.Empty:
                continue
