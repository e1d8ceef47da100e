import fcntl
import json
import os
import time


class Manifest:
    """One JSON manifest for all writers; the update is slow (remote store), so it is serialised."""

    def __init__(self, path):
        self.path = path

    def append(self, entry, seconds=1.5):
        fd = os.open(self.path + ".lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            rows = []
            if os.path.exists(self.path):
                with open(self.path) as f:
                    rows = json.load(f)
            rows.append(entry)
            time.sleep(seconds)
            with open(self.path + ".tmp", "w") as f:
                json.dump(rows, f)
            os.rename(self.path + ".tmp", self.path)
            fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)
        return len(rows)
