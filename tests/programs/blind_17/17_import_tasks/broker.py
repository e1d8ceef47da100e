"""A small in-process task framework: messages, actors and async workers."""
import asyncio
import itertools
import logging
import random
import threading
import time
from dataclasses import dataclass, field

log = logging.getLogger("tasks")
_ids = itertools.count(1)


@dataclass
class Message:
    actor: str
    args: tuple
    retries: int = 0
    message_id: int = field(default_factory=lambda: next(_ids))


class EventLoopThread(threading.Thread):
    """Runs coroutines of async actors on a loop of its own."""

    def __init__(self):
        super().__init__(name="event-loop", daemon=True)
        self.loop = asyncio.new_event_loop()

    def run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, coro):
        return asyncio.run_coroutine_threadsafe(coro, self.loop)


class Results:
    """Outcome of each message, asked for by the dashboard."""

    def __init__(self):
        self.outcomes = {}
        self.succeeded = 0

    def success(self, message):
        self.succeeded += 1
        self.outcomes.pop(message.message_id, None)

    def failure(self, message, exc):
        self.outcomes[message.message_id] = exc

    def summary(self):
        kinds = {}
        for exc in self.outcomes.values():
            kinds[type(exc).__name__] = kinds.get(type(exc).__name__, 0) + 1
        return kinds


class Worker:
    def __init__(self, queue, actors, max_retries=2):
        self.queue, self.actors, self.max_retries = queue, actors, max_retries
        self.results = Results()
        self.loop = EventLoopThread()
        self.retry = []

    def next_message(self):
        if self.retry and random.random() < 0.3:
            return self.retry.pop(0)
        return self.queue.get()

    def process(self, message):
        future = self.loop.call(self.actors[message.actor](*message.args))
        try:
            future.result(timeout=60)
            self.results.success(message)
        except Exception as exc:
            self.results.failure(message, exc)
            if message.retries < self.max_retries:
                message.retries += 1
                self.retry.append(message)
            else:
                log.debug("message %d dropped: %s", message.message_id, exc)

    def run(self, stop_at):
        self.loop.start()
        last = time.monotonic()
        while time.monotonic() < stop_at:
            message = self.next_message()
            if message is None:
                break
            self.process(message)
            if time.monotonic() - last > 5:
                last = time.monotonic()
                log.info("ok %d, failed so far %s, waiting for retry %d", self.results.succeeded,
                         self.results.summary(), len(self.retry))
