import logging
import multiprocessing as mp
import os
import queue
import threading
import time

log = logging.getLogger("worker")
_ctx = mp.get_context("fork")


class KeepAliveThread(threading.Thread):
    """Tells the scheduler regularly that this worker is alive."""

    def __init__(self, scheduler, worker_id, interval):
        super().__init__(name="keepalive", daemon=True)
        self.scheduler, self.worker_id, self.interval = scheduler, worker_id, interval

    def run(self):
        while True:
            time.sleep(self.interval)
            try:
                self.scheduler.ping(worker=self.worker_id)
            except OSError:
                log.warning("failed pinging scheduler")


class TaskProcess(_ctx.Process):
    def __init__(self, task, scheduler, results):
        super().__init__(name=task.task_id)
        self.task, self.scheduler, self.results = task, scheduler, results

    def run(self):
        self.scheduler.update(self.task.task_id, "RUNNING")
        value = self.task.run()
        self.scheduler.update(self.task.task_id, "DONE")
        self.results.put((self.task.task_id, value))


class Worker:
    def __init__(self, scheduler, n_workers, ping_interval):
        self.scheduler = scheduler
        self.n_workers = n_workers
        self.id = f"Worker(host=localhost, pid={os.getpid()})"
        self.pending, self.running = [], {}
        self.results = _ctx.Queue()
        self._keepalive = KeepAliveThread(scheduler, self.id, ping_interval)

    def start_keepalive(self):
        self._keepalive.start()

    def add(self, task):
        self.scheduler.add_task(task.task_id, task.params)
        time.sleep(0.04)  # complete(): looks for the output target
        self.pending.append(task)

    def _fill(self):
        while self.pending and len(self.running) < self.n_workers:
            task = self.pending.pop(0)
            process = TaskProcess(task, self.scheduler, self.results)
            process.start()
            self.running[task.task_id] = process

    def run(self):
        log.info("%s: %d tasks scheduled", self.id, len(self.pending))
        done, last = 0, time.monotonic()
        while self.pending or self.running:
            self._fill()
            try:
                task_id, value = self.results.get(timeout=0.5)
            except queue.Empty:
                if time.monotonic() - last > 10:
                    last = time.monotonic()
                    log.info("%s, running: %s", self.scheduler.counts(), sorted(self.running))
                continue
            self.running.pop(task_id).join()
            done += 1
            log.info("%s done (%d), top artist %d", task_id, done, value)
