"""Replay table with a SampleToInsertRatio limiter, served to actors and learner over a manager."""
import random
import threading
import time
from multiprocessing.managers import BaseManager


class SampleToInsertRatio:
    """Keeps samples / inserts near `ratio`; either side waits when it gets too far ahead."""

    def __init__(self, ratio, min_size, error_buffer):
        self.ratio = ratio
        self.min_size = min_size
        self.low = min_size * ratio - error_buffer
        self.high = min_size * ratio + error_buffer
        self.inserts = 0
        self.samples = 0

    def can_insert(self):
        if self.inserts < self.min_size:
            return True
        return (self.inserts + 1) * self.ratio - self.samples <= self.high

    def can_sample(self, n):
        if self.inserts < self.min_size:
            return False
        return self.inserts * self.ratio - (self.samples + n) >= self.low


class Table:
    def __init__(self, max_size, limiter):
        self.items = [None] * max_size
        self.max_size = max_size
        self.limiter = limiter
        self.cond = threading.Condition()
        self.closed = False
        self.insert_wait = 0.0
        self.sample_wait = 0.0

    def insert(self, item):
        start = time.time()
        with self.cond:
            self.cond.wait_for(lambda: self.closed or self.limiter.can_insert())
            self.items[self.limiter.inserts % self.max_size] = item
            self.limiter.inserts += 1
            self.insert_wait += time.time() - start
            self.cond.notify_all()

    def sample(self, n):
        start = time.time()
        with self.cond:
            self.cond.wait_for(lambda: self.closed or self.limiter.can_sample(n))
            size = min(self.limiter.inserts, self.max_size)
            batch = [self.items[random.randrange(size)] for _ in range(n)]
            self.limiter.samples += n
            self.sample_wait += time.time() - start
            self.cond.notify_all()
        return batch

    def close(self):
        with self.cond:
            self.closed = True
            self.cond.notify_all()

    def info(self):
        with self.cond:
            return {"inserts": self.limiter.inserts, "samples": self.limiter.samples,
                    "insert_wait": round(self.insert_wait, 1), "sample_wait": round(self.sample_wait, 1)}


class ReplayManager(BaseManager):
    pass


_table = None


def make_table(max_size, ratio, min_size, error_buffer):
    global _table
    if _table is None:
        _table = Table(max_size, SampleToInsertRatio(ratio, min_size, error_buffer))
    return _table


ReplayManager.register("table", make_table, exposed=("insert", "sample", "info", "close"))
