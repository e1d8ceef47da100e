import json
import logging
import multiprocessing as mp
import os
import time

log = logging.getLogger("fpindex.status")


class StatusReporter:
    """Separate process that keeps a status file for the web page of the group."""

    def __init__(self, total, path, every=5.0):
        self.total = total
        self.path = path
        self.every = every
        self.count = mp.Value("q", 0)
        self.over = mp.Event()
        self.process = mp.Process(target=self._run, args=(os.getpid(),), name="status", daemon=True)

    def start(self):
        self.process.start()

    def finish(self):
        self.over.set()
        self.process.join()

    def _run(self, parent):
        while os.getppid() == parent:
            done = self.count.value
            if self.path.parent.exists():
                self.path.write_text(json.dumps({"done": done, "total": self.total, "time": time.time()}))
            log.info("%d of %d rows", done, self.total)
            if self.over.wait(self.every):
                break
