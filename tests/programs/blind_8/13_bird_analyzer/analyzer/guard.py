import logging
import os
import threading
import time

log = logging.getLogger("birds")
PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryGuard(threading.Thread):
    def __init__(self, workers, limit_mb, interval=0.02):
        super().__init__(daemon=True)
        self.workers = workers
        self.limit = limit_mb * 2**20
        self.interval = interval

    def rss(self, pid):
        with open(f"/proc/{pid}/statm") as f:
            return int(f.read().split()[1]) * PAGE

    def run(self):
        while True:
            for w in self.workers:
                if w.is_alive() and self.rss(w.pid) > self.limit:
                    log.warning("%s is above the memory limit, killing it", w.name)
                    w.kill()
                    w.join()
            time.sleep(self.interval)
