import logging
import multiprocessing as mp
import os
import signal
import subprocess
import time

from shards import fit_shard

log = logging.getLogger("supervisor")


class DiskWatch:
    """Runs du in the background now and then; nobody waits for it."""

    def __init__(self, path, every):
        self.path = path
        self.every = every
        self.next_run = 0.0
        self.exit_codes = {}
        signal.signal(signal.SIGCHLD, self._collect)

    def _collect(self, signum, frame):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.exit_codes[pid] = status

    def tick(self):
        now = time.monotonic()
        if now >= self.next_run:
            self.next_run = now + self.every
            subprocess.Popen(["du", "-s", self.path], stdout=subprocess.DEVNULL)


class Supervisor:
    def __init__(self, out_dir, shards, steps):
        self.workers = [mp.Process(target=fit_shard, args=(n, out_dir, steps * (n + 2)), name=f"shard-{n}")
                        for n in range(shards)]
        self.disk = DiskWatch(out_dir, every=5.0)

    def run(self):
        for worker in self.workers:
            worker.start()
        last = None
        while True:
            alive = [w.name for w in self.workers if w.is_alive()]
            if alive != last:
                log.info("running: %s", ", ".join(alive) or "none")
                last = alive
            if not alive:
                return
            self.disk.tick()
            time.sleep(0.5)
