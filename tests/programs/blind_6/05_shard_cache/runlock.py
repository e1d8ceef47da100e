"""Advisory lock on a cache directory."""
import fcntl
import os


class CacheLock:
    def __init__(self, directory):
        self.path = os.path.join(directory, ".cache.lock")
        self._fp = None

    def acquire(self):
        fp = open(self.path, "a+")
        fcntl.flock(fp.fileno(), fcntl.LOCK_EX)
        self._fp = fp
        return self

    def close(self):
        fp, self._fp = self._fp, None
        if fp is not None:
            fp.close()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *exc):
        self.close()
