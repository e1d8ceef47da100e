"""A small asyncio task worker: executions come in over a pipe, run concurrently, results go back."""
import asyncio
import dataclasses
import logging
import time

log = logging.getLogger("docket")


@dataclasses.dataclass
class Execution:
    key: str
    function: str
    payload: bytes
    enqueued: float = dataclasses.field(default_factory=time.time)


@dataclasses.dataclass
class Running:
    execution: Execution
    task: asyncio.Task
    started: float


class Worker:
    def __init__(self, name, conn, registry, concurrency=8):
        self.name, self.conn, self.registry = name, conn, registry
        self.slots = asyncio.Semaphore(concurrency)
        self._running_by_key = {}
        self.finished = 0

    async def _run(self, execution):
        func = self.registry[execution.function]
        result = await func(execution.payload)
        self.conn.send({"key": execution.key, "ok": True, "result": result})

    def _on_done(self, task):
        self.slots.release()
        self.finished += 1
        self._running_by_key.pop(task.get_name(), None)
        if task.exception() is not None:
            log.warning("%s failed: %r", task.get_name(), task.exception())

    def cancel(self, key):
        running = self._running_by_key.get(key)
        if running is not None:
            running.task.cancel()

    async def _next(self):
        loop = asyncio.get_running_loop()
        while not self.conn.poll():
            await asyncio.sleep(0.002)
        try:
            return await loop.run_in_executor(None, self.conn.recv)
        except EOFError:
            return None

    async def loop(self):
        while True:
            await self.slots.acquire()
            execution = await self._next()
            if execution is None:
                return
            if execution.key in self._running_by_key:
                self.slots.release()
                continue
            task = asyncio.create_task(self._run(execution), name=f"{self.name} - task:{execution.key}")
            self._running_by_key[execution.key] = Running(execution, task, time.time())
            task.add_done_callback(self._on_done)
            if self.finished and self.finished % 250 == 0:
                log.info("%d executions finished", self.finished)
