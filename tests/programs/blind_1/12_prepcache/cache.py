"""Prepared data sets are cached on disk, one lock file per data set."""
import fcntl
import logging
import multiprocessing as mp
import os
import time

import torch

log = logging.getLogger("cache")


class FileLock:
    def __init__(self, path, poll=0.25):
        self.path, self.poll, self.fd = path, poll, None

    def acquire(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT)
        n = 0
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                n += 1
                if n % 20 == 0:
                    log.info("lock not acquired on %s, waiting %.2f seconds ...", self.path, self.poll)
                time.sleep(self.poll)

    def release(self):
        os.close(self.fd)
        self.fd = None

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *exc):
        self.release()


class Heartbeat:
    """Separate process that keeps the dashboard informed (it outlives the preparation)."""

    def __init__(self, status_file):
        self.status_file = status_file
        self.proc = mp.get_context("fork").Process(target=self._loop, name="heartbeat", daemon=True)

    def start(self):
        self.proc.start()

    def _loop(self):
        while True:
            with open(self.status_file, "w") as f:
                f.write(f"alive {time.time():.0f}\n")
            time.sleep(1.0)


def prepare(cache_dir, name, rank, n=40):
    """Return the prepared shard list; whoever comes first builds the cache."""
    out = os.path.join(cache_dir, name + ".pt")
    with FileLock(out + ".lock"):
        if not os.path.exists(out):
            log.info("rank %d builds %s", rank, out)
            Heartbeat(out + ".status").start()
            rows = []
            for i in range(n):
                rows.append(torch.full((64,), float(i)))
                time.sleep(0.1)
            torch.save(torch.stack(rows), out)
    return torch.load(out)
