import logging
import multiprocessing as mp
import os
import signal
import threading
import time
from multiprocessing.connection import wait

from callbacks import REGISTRY

log = logging.getLogger("pool")


def exit_with_parent(every=2.0):
    """Ends this process soon after its parent is gone."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def worker_loop(conn, store):
    exit_with_parent()
    while True:
        job = conn.recv()
        if job is None:
            return
        name, repo = job
        conn.send(REGISTRY[name](store, repo))


class Worker:
    def __init__(self, number, store):
        self.name = "ForkPoolWorker-%d" % number
        self.conn, child = mp.Pipe()
        self.process = mp.Process(target=worker_loop, args=(child, store), name=self.name, daemon=True)
        self.process.start()
        child.close()
        self.job, self.since = None, None


class TaskPool:
    """Hands jobs to idle workers and enforces the hard time limit."""

    def __init__(self, store, size, time_limit):
        self.workers = [Worker(i + 1, store) for i in range(size)]
        self.time_limit = time_limit
        self.done, self.failed = 0, []

    def idle(self):
        return [w for w in self.workers if w.job is None]

    def dispatch(self, job):
        w = self.idle()[0]
        w.job, w.since = job, time.monotonic()
        w.conn.send(job)

    def poll(self, timeout):
        ready = wait([w.conn for w in self.workers], timeout)
        results = []
        for w in [w for w in self.workers if w.conn in ready]:
            try:
                results.append(w.conn.recv())
                self.done += 1
                w.job = None
            except EOFError:
                self.on_worker_lost(w)
        for w in list(self.workers):
            if w.job is not None and time.monotonic() - w.since > self.time_limit:
                self.on_hard_timeout(w)
        return results

    def on_hard_timeout(self, w):
        os.kill(w.process.pid, signal.SIGKILL)

    def on_worker_lost(self, w):
        w.process.join()
        self.workers.remove(w)
        self.failed.append(w.job)
        log.warning("%s pid:%d is gone, %d workers left", w.name, w.process.pid, len(self.workers))
