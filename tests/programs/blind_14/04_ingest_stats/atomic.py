"""Integers shared by processes."""
import multiprocessing as mp


class AtomicInteger:
    def __init__(self, initial=0, ctx=None):
        ctx = ctx or mp.get_context()
        self._value = ctx.Value("q", initial, lock=False)
        self._lock = ctx.Lock()

    def increment_and_get(self, by=1):
        with self._lock:
            self._value.value += by
            return self._value.value

    def get_and_set(self, value):
        with self._lock:
            old = self.value
            self._value.value = value
            return old

    @property
    def value(self):
        with self._lock:
            return self._value.value

    @value.setter
    def value(self, value):
        with self._lock:
            self._value.value = value
