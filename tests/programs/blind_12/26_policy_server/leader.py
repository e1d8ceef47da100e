"""Leader election among the server's workers with an exclusive lock on a file."""
import fcntl
import logging
import os
import threading

log = logging.getLogger("leader")


class LeaderElection:
    def __init__(self, path, on_elected):
        self.path = path
        self.on_elected = on_elected
        self.thread = threading.Thread(target=self._campaign, name="leader-election", daemon=True)

    def start(self):
        self.thread.start()

    def _campaign(self):
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
        log.info("elected leader")
        self.on_elected()
