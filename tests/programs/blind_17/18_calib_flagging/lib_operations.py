"""Helpers shared by the operations."""
import logging
import multiprocessing as mp

log = logging.getLogger("operations")


class MultiprocManager:
    """Runs one function over many argument tuples in a set of processes."""

    def __init__(self, procs, funct):
        self.funct = funct
        self.ctx = mp.get_context("spawn")
        self.in_queue = self.ctx.JoinableQueue()
        self.out_queue = self.ctx.Queue()
        self.queued = 0
        self.workers = [self.ctx.Process(target=self.work, args=(funct, self.in_queue, self.out_queue),
                                         name=f"operation-{i}", daemon=True) for i in range(procs)]
        for w in self.workers:
            w.start()

    @staticmethod
    def work(funct, in_queue, out_queue):
        while True:
            params = in_queue.get()
            if params is None:
                in_queue.task_done()
                break
            out_queue.put(funct(*params))
            in_queue.task_done()

    def put(self, params):
        self.queued += 1
        self.in_queue.put(params)

    def wait(self):
        for _ in self.workers:
            self.in_queue.put(None)
        self.in_queue.join()

    def get(self):
        for _ in range(self.queued):
            yield self.out_queue.get()
