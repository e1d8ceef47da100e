import logging
import os
import time
from pathlib import Path

from filelock import FileLock

log = logging.getLogger("webcache")


class WebCache:
    def __init__(self, root, bandwidth=80_000):
        self.root = Path(root)
        self.bandwidth = bandwidth

    def _retrieve(self, url, target, size):
        tmp = target.with_suffix(".part")
        with open(tmp, "wb") as fh:
            done = 0
            while done < size:
                n = min(40_000, size - done)
                fh.write(os.urandom(n))
                done += n
                time.sleep(n / self.bandwidth)
        tmp.rename(target)

    def get(self, url, size=3_000_000):
        target = self.root / url.replace("/", "_")
        with FileLock(str(target) + ".lock"):
            if not target.exists():
                log.info("pid %d retrieves %s", os.getpid(), url)
                self._retrieve(url, target, size)
        return target
