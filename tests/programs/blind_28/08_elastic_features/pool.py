import logging
import time
from collections import deque
from multiprocessing.connection import wait

import torch.multiprocessing as mp

log = logging.getLogger("pool")


def _worker_loop(conn, func):
    while True:
        task = conn.recv()
        if task is None:
            return
        index, args = task
        conn.send((index, func(*args)))


class _Worker:
    def __init__(self, ctx, number, func):
        self.conn, there = ctx.Pipe()
        self.proc = ctx.Process(target=_worker_loop, args=(there, func), name=f"feature-{number}", daemon=True)
        self.proc.start()
        there.close()
        self.task = None
        self.idle_since = time.monotonic()

    def assign(self, index, args):
        self.task = (index, args)
        self.conn.send(self.task)

    def retire(self):
        self.conn.send(None)
        self.conn.close()
        self.proc.join()


class ElasticPool:
    """Grows with the work up to max_workers, retires workers which were idle for keepalive seconds."""

    def __init__(self, func, min_workers=1, max_workers=3, keepalive=4.0):
        self.func = func
        self.min_workers, self.max_workers, self.keepalive = min_workers, max_workers, keepalive
        self.ctx = mp.get_context("fork")
        self.workers = []
        self.spawned = 0
        while len(self.workers) < min_workers:
            self._grow()

    def _grow(self):
        self.workers.append(_Worker(self.ctx, self.spawned, self.func))
        self.spawned += 1

    def map(self, items):
        todo = deque(enumerate(items))
        results = [None] * len(todo)
        missing = len(todo)
        while missing:
            for worker in self.workers:
                if worker.task is None and todo:
                    worker.assign(*todo.popleft())
            if todo and len(self.workers) < self.max_workers:
                self._grow()
                continue
            busy = {w.conn: w for w in self.workers if w.task is not None}
            for conn in wait(list(busy)):
                index, value = conn.recv()
                results[index] = value
                busy[conn].task = None
                busy[conn].idle_since = time.monotonic()
                missing -= 1
        return results

    def scale_down(self):
        now = time.monotonic()
        for worker in sorted(self.workers, key=lambda w: w.idle_since):
            if len(self.workers) <= self.min_workers:
                break
            if worker.task is None and now - worker.idle_since > self.keepalive:
                worker.retire()
                self.workers.remove(worker)
                log.info("%s retired, %d left", worker.proc.name, len(self.workers))

    def close(self):
        for worker in self.workers:
            worker.retire()
        self.workers = []
