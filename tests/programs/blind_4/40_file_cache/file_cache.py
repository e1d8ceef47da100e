import contextlib
import fcntl
import os
import time


class FileCache:
    """Local copy of files from the slow network share, common to all processes of the host."""

    def __init__(self, root, chunk=65536, share_delay=0.02):
        self.root, self.chunk, self.share_delay = root, chunk, share_delay

    @contextlib.contextmanager
    def locked(self):
        with open(os.path.join(self.root, ".lock"), "w") as fh:
            fcntl.flock(fh, fcntl.LOCK_EX)
            yield

    def get(self, remote):
        local = os.path.join(self.root, os.path.basename(remote))
        with self.locked():
            if not os.path.exists(local):
                self.copy(remote, local)
        return local

    def copy(self, remote, local):
        with open(remote, "rb") as src, open(local, "wb") as dst:
            while block := src.read(self.chunk):
                time.sleep(self.share_delay)
                dst.write(block)
