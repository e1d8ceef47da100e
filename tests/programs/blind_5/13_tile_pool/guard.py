import logging
import os
import signal
import threading
import time

log = logging.getLogger("guard")
PAGE = os.sysconf("SC_PAGE_SIZE")


def private_mib(pid):
    with open(f"/proc/{pid}/statm") as f:
        _, resident, shared, *_ = f.read().split()
    return (int(resident) - int(shared)) * PAGE / 2**20


class MemoryGuard(threading.Thread):
    """Keeps the job below the node's memory allocation."""

    def __init__(self, limit_mib, pids):
        super().__init__(daemon=True, name="memory-guard")
        self.limit_mib, self.pids = limit_mib, pids

    def run(self):
        while True:
            for pid in self.pids():
                try:
                    if private_mib(pid) > self.limit_mib:
                        os.kill(pid, signal.SIGKILL)
                        log.debug("pid %d was above %d MiB", pid, self.limit_mib)
                except (FileNotFoundError, ProcessLookupError):
                    pass
            time.sleep(0.1)
