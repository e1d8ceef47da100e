"""Extraction pool on plain queues."""
import logging
import multiprocessing as mp
import queue

from features import summarize

log = logging.getLogger("pipeline")


class ExtractionWorker(mp.Process):
    def __init__(self, tasks, results, index):
        super().__init__(name=f"extract-{index}")
        self.tasks = tasks
        self.results = results

    def run(self):
        while True:
            try:
                path = self.tasks.get()
            except (ValueError, OSError):
                break
            self.results.put((path, summarize(path)))


class ExtractionPool:
    def __init__(self, workers):
        self.tasks = mp.Queue()
        self.results = mp.Queue(maxsize=64)
        self.workers = [ExtractionWorker(self.tasks, self.results, i) for i in range(workers)]
        for w in self.workers:
            w.start()

    def map(self, paths):
        for path in paths:
            self.tasks.put(path)
        for _ in range(len(paths)):
            yield self.results.get()

    def shutdown(self):
        self.tasks.close()
        self.tasks.join_thread()
        for w in self.workers:
            w.join()
            log.info("%s finished", w.name)
