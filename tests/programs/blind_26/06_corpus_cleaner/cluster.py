"""A scheduler and its local workers; workers report that they are alive."""
import logging
import multiprocessing as mp
import signal
import threading
import time
from multiprocessing.connection import wait

import torch

from cleaning import QualityModel, normalize

log = logging.getLogger("scheduler")


def worker_main(name, conn, heartbeat_interval):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    model = QualityModel()
    sending = threading.Lock()

    def send(*message):
        with sending:
            conn.send(message)

    def heartbeat():
        while True:
            send("heartbeat", time.time())
            time.sleep(heartbeat_interval)

    threading.Thread(target=heartbeat, name="heartbeat", daemon=True).start()
    while True:
        task, text = conn.recv()
        try:
            clean = normalize(text)
            send("done", task, len(text), len(clean), model.score(clean))
        except Exception as err:
            send("erred", task, repr(err))


class WorkerState:
    def __init__(self, name, process, conn):
        self.name = name
        self.process = process
        self.conn = conn
        self.last_seen = time.time()
        self.task = None


class Scheduler:
    def __init__(self, workers, heartbeat_interval, worker_ttl, allowed_failures):
        self.worker_ttl = worker_ttl
        self.allowed_failures = allowed_failures
        self.suspicious = {}
        self.requeued = []
        self.workers = {}
        self.results = {"pages": 0, "chars": 0, "kept": 0, "good": 0, "erred": 0}
        ctx = mp.get_context("fork")
        for i in range(workers):
            ours, theirs = ctx.Pipe()
            process = ctx.Process(target=worker_main, args=(f"worker-{i}", theirs, heartbeat_interval), name=f"worker-{i}",
                                  daemon=True)
            process.start()
            theirs.close()
            self.workers[ours] = WorkerState(f"worker-{i}", process, ours)
            log.info("worker-%d has pid %d", i, process.pid)

    def run(self, tasks, load):
        tasks = iter(tasks)
        reported = time.time()
        while self.workers:
            for state in list(self.workers.values()):
                if state.task is None:
                    task = self.requeued.pop() if self.requeued else next(tasks, None)
                    if task is None:
                        continue
                    state.task = task
                    state.conn.send((task, load(task)))
            if all(s.task is None for s in self.workers.values()):
                break
            for conn in wait(list(self.workers), timeout=0.5):
                try:
                    self.handle(self.workers[conn], conn.recv())
                except (EOFError, OSError):
                    self.remove(self.workers[conn], "connection lost")
            self.check_worker_ttl()
            if time.time() - reported > 5:
                reported = time.time()
                log.info("%d pages by %d workers, %.1f MB in, %.1f MB kept, %d good, %d erred", self.results["pages"],
                         len(self.workers), self.results["chars"] / 1e6, self.results["kept"] / 1e6, self.results["good"],
                         self.results["erred"])
        log.info("end: %s", self.results)

    def handle(self, state, message):
        state.last_seen = time.time()
        kind, *rest = message
        if kind == "done":
            _, before, after, score = rest
            self.results["pages"] += 1
            self.results["chars"] += before
            self.results["kept"] += after
            self.results["good"] += score > 0.5
            state.task = None
        elif kind == "erred":
            self.results["erred"] += 1
            state.task = None

    def check_worker_ttl(self):
        now = time.time()
        for state in list(self.workers.values()):
            if now - state.last_seen > self.worker_ttl:
                self.remove(state, f"no heartbeat for {now - state.last_seen:.1f} s")

    def remove(self, state, reason):
        log.warning("removing %s (pid %d): %s", state.name, state.process.pid, reason)
        state.process.kill()
        state.process.join()
        state.conn.close()
        del self.workers[state.conn]
        if state.task is not None:
            failures = self.suspicious[state.task] = self.suspicious.get(state.task, 0) + 1
            if failures > self.allowed_failures:
                self.results["erred"] += 1
            else:
                self.requeued.append(state.task)
