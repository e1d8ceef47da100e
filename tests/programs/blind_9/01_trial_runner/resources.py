"""CPU accounting for everything that runs on one node."""
import contextlib
import logging
import multiprocessing as mp

log = logging.getLogger("resources")


class CpuSlots:
    def __init__(self, total, ctx=None):
        ctx = ctx or mp.get_context("fork")
        self.total = total
        self._sem = ctx.BoundedSemaphore(total)

    @contextlib.contextmanager
    def claim(self, who):
        self._sem.acquire()
        log.debug("%s got a slot", who)
        try:
            yield
        finally:
            self._sem.release()

    def available(self):
        return self._sem.get_value()
