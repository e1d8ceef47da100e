"""A lock that lets many searches or one index update at a time, over processes."""
from contextlib import contextmanager


class ReadWriteLock:
    def __init__(self, ctx):
        self._ready = ctx.Condition(ctx.Lock())
        self._readers = ctx.Value("i", 0, lock=False)

    def acquire_read(self):
        with self._ready:
            self._readers.value += 1

    def release_read(self):
        with self._ready:
            self._readers.value -= 1
            if self._readers.value == 0:
                self._ready.notify_all()

    def acquire_write(self):
        self._ready.acquire()
        while self._readers.value > 0:
            self._ready.wait()

    def release_write(self):
        self._ready.release()

    @contextmanager
    def reading(self):
        self.acquire_read()
        try:
            yield
        finally:
            self.release_read()

    @contextmanager
    def writing(self):
        self.acquire_write()
        try:
            yield
        finally:
            self.release_write()
