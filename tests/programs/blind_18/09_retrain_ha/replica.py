import fcntl
import logging
import os
import signal
import time
from contextlib import contextmanager

log = logging.getLogger("replica")


@contextmanager
def leadership(path):
    """Hold the leader lock; replicas that are not the leader wait here."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


class Replica:
    def __init__(self, name, lock_path, jobs, next_job, term, period):
        self.name = name
        self.lock_path = lock_path
        self.jobs = jobs
        self.next_job = next_job
        self.term = term
        self.period = period

    def lead(self):
        end = time.monotonic() + self.term
        due = time.monotonic()
        while due < end:
            number = self.next_job.value
            self.next_job.value = number + 1
            self.jobs.put({"job": number, "model": f"segment-{number % 6}", "by": self.name})
            due += self.period
            time.sleep(max(0.0, due - time.monotonic()))

    def run(self, walltime):
        signal.alarm(walltime)
        while True:
            log.info("%s (pid %d) stands by", self.name, os.getpid())
            with leadership(self.lock_path):
                log.info("%s (pid %d) is the leader for %.0f s", self.name, os.getpid(), self.term)
                self.lead()
            time.sleep(0.5)
