import logging
import os
import queue
import signal
import time

from worker import STATUS_COMPLETED, STATUS_IDLE, STATUS_RUNNING, ExtractionWorker

log = logging.getLogger("engine")

PAGE = os.sysconf("SC_PAGE_SIZE")


def used_memory(pid):
    try:
        with open(f"/proc/{pid}/statm") as fh:
            return int(fh.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


class ProcessStatus:
    def __init__(self, identifier, pid):
        self.identifier, self.pid = identifier, pid
        self.status, self.hive, self.events, self.memory = STATUS_RUNNING, None, 0, 0


class ProcessingStatus:
    """What the status view shows, one entry a worker."""

    def __init__(self):
        self.workers = {}

    def update(self, identifier, pid, status, hive, produced):
        entry = self.workers.setdefault(identifier, ProcessStatus(identifier, pid))
        entry.status, entry.hive = status, hive
        entry.events += produced

    @property
    def workers_running(self):
        return any(w.status not in (STATUS_IDLE, STATUS_COMPLETED) for w in self.workers.values())


class ExtractionEngine:
    def __init__(self, context, number_of_workers, memory_limit):
        self.task_queue, self.event_queue, self.status_queue = context.Queue(), context.Queue(), context.Queue()
        self.number_of_workers, self.memory_limit = number_of_workers, memory_limit
        self.processes = {}
        self.status = ProcessingStatus()
        self.last_worker = -1
        self.results = {}

    def start_worker(self):
        self.last_worker += 1
        process = ExtractionWorker(f"Worker_{self.last_worker:02d}", self.task_queue, self.event_queue,
                                   self.status_queue)
        process.start()
        self.processes[process.pid] = process
        self.status.update(process.name, process.pid, STATUS_IDLE, None, 0)
        return process

    def terminate_by_pid(self, pid):
        os.kill(pid, signal.SIGKILL)
        process = self.processes.pop(pid)
        process.join(timeout=2)

    def check_workers(self):
        for pid, process in list(self.processes.items()):
            entry = self.status.workers[process.name]
            entry.memory = used_memory(pid)
            if entry.memory > self.memory_limit:
                log.warning("Process: %s (PID: %d) killed because it exceeded the memory limit: %d.",
                            process.name, pid, self.memory_limit)
                self.terminate_by_pid(pid)
                entry.status, entry.memory = "killed", 0
                log.info("Starting replacement worker process for %s", process.name)
                self.start_worker()

    def drain(self):
        try:
            while True:
                self.status.update(*self.status_queue.get_nowait())
        except queue.Empty:
            pass
        try:
            while True:
                hive, count, digest = self.event_queue.get_nowait()
                self.results[hive] = (count, digest)
        except queue.Empty:
            pass

    def show(self, total):
        log.info("Tasks: %d of %d processed, %d queued", len(self.results), total, self.task_queue.qsize())
        for w in self.status.workers.values():
            log.info("  %-10s %7d  %-9s %7.1f MiB  events %7d  %s", w.identifier, w.pid, w.status,
                     w.memory / 2**20, w.events, w.hive or "")

    def process_sources(self, hives):
        for hive in hives:
            self.task_queue.put(hive)
        for _ in range(self.number_of_workers):
            self.start_worker()
        last_shown = time.time()
        while not self.task_queue.empty() or self.status.workers_running:
            self.drain()
            self.check_workers()
            if time.time() - last_shown > 5:
                last_shown = time.time()
                self.show(len(hives))
            time.sleep(0.25)
        for _ in self.processes:
            self.task_queue.put(None)
        for process in self.processes.values():
            process.join()
        self.drain()
        return self.results
