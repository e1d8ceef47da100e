"""Runs a function over many inputs in a few processes."""
import logging
import multiprocessing as mp

log = logging.getLogger("parallel")


class Parallel:
    def __init__(self, fn, jobs):
        self.fn = fn
        ctx = mp.get_context("fork")
        self.q = ctx.JoinableQueue()
        self.out = ctx.Manager().list()
        self.failed = ctx.Value("i", 0)
        self.workers = [ctx.Process(target=self._worker, name=f"worker-{i}", daemon=True) for i in range(jobs)]
        for w in self.workers:
            w.start()

    def put(self, task):
        self.q.put(task)

    def _worker(self):
        handled = 0
        while True:
            task = self.q.get()
            if task is None:
                self.q.task_done()
                break
            try:
                result = self.fn(task)
            except Exception as e:
                log.error("%s: %s", task, e)
                with self.failed.get_lock():
                    self.failed.value += 1
                continue
            self.out.append(result)
            self.q.task_done()
            handled += 1
            if handled % 5 == 0:
                log.info("%d shards checked", handled)

    def done(self):
        """Waits for all tasks, then stops the workers."""
        self.q.join()
        for _ in self.workers:
            self.q.put(None)
        for w in self.workers:
            w.join()
        if self.failed.value:
            log.warning("%d tasks failed", self.failed.value)

    def results(self):
        return list(self.out)
