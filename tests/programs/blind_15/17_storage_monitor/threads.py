"""One re-entrant lock guards the whole device model."""
import functools
import threading

blivet_lock = threading.RLock()


def exclusive(func):
    @functools.wraps(func)
    def run_with_lock(*args, **kwargs):
        with blivet_lock:
            return func(*args, **kwargs)
    return run_with_lock


class SynchronizedMeta(type):
    """Wraps every method of the class so that the model is only used under the lock."""

    def __new__(mcs, name, bases, namespace):
        for key, value in list(namespace.items()):
            if callable(value) and key not in ("__init__", "__new__"):
                namespace[key] = exclusive(value)
        return super().__new__(mcs, name, bases, namespace)
