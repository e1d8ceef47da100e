import itertools
import logging
import multiprocessing as mp
import os
import signal
import sys

log = logging.getLogger("pool")

EX_RECYCLE = 0x9B


def worker_main(job, tasks, results, max_tasks):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for done in itertools.count(1):
        results.put(job(tasks.get()))
        if max_tasks and done >= max_tasks:
            results.close()
            results.join_thread()
            sys.exit(EX_RECYCLE)


class PreforkPool:
    """A pool whose workers are replaced after a number of tasks, to give back what they hold."""

    def __init__(self, job, concurrency, max_tasks_per_child):
        self.context = mp.get_context("fork")
        self.job = job
        self.concurrency = concurrency
        self.max_tasks_per_child = max_tasks_per_child
        self.tasks = self.context.SimpleQueue()
        self.results = self.context.Queue()
        self.workers = []
        self.numbers = itertools.count(1)

    def start(self):
        for slot in range(self.concurrency):
            first = self.max_tasks_per_child - slot * 2
            self.workers.append(self._spawn(first))

    def _spawn(self, max_tasks):
        process = self.context.Process(
            target=worker_main, args=(self.job, self.tasks, self.results, max_tasks),
            name=f"PoolWorker-{next(self.numbers)}", daemon=True)
        process.start()
        return process

    def submit(self, task):
        self.tasks.put(task)

    def maintain(self):
        """Replaces the workers that are gone."""
        for i, process in enumerate(self.workers):
            if process.is_alive():
                continue
            process.join()
            log.error("Process '%s' pid:%d exited with exitcode %d", process.name, process.pid, process.exitcode)
            self.workers[i] = self._spawn(self.max_tasks_per_child)

    def pids(self):
        return [p.pid for p in self.workers]

    def terminate(self):
        for process in self.workers:
            if process.is_alive():
                os.kill(process.pid, signal.SIGTERM)
        for process in self.workers:
            process.join(timeout=3)
