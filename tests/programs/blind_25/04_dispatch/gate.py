"""Limits how many requests may be under way at once."""
import threading
import time


class ConcurrencyGate:
    def __init__(self, max_concurrent):
        self.max_concurrent = max_concurrent
        self._slots = threading.BoundedSemaphore(max_concurrent)
        self.waited = 0.0

    def pre_check(self):
        start = time.monotonic()
        self._slots.acquire()
        self.waited += time.monotonic() - start

    def post_check(self):
        self._slots.release()


class Governed:
    """Wraps an executor so that every call passes the gate first."""

    def __init__(self, executor, gate):
        self.executor, self.gate = executor, gate

    def submit(self, fn, item, on_result, on_error):
        self.gate.pre_check()
        future = self.executor.submit(fn, item)

        def done(f):
            try:
                on_result(item, f.result())
                self.gate.post_check()
            except Exception as err:
                on_error(item, err)

        future.add_done_callback(done)
        return future
