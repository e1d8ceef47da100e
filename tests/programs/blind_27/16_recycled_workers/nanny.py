import logging
import queue
import random

import torch.multiprocessing as mp

from worker import run_worker

log = logging.getLogger("nanny")


class Nanny:
    """Starts the workers and replaces each one which has retired."""

    def __init__(self, count, tasks, results, lifetime, stagger):
        self.count = count
        self.tasks = tasks
        self.results = results
        self.lifetime = lifetime
        self.stagger = stagger
        self.rng = random.Random(5)
        self.workers = {}
        self.replaced = 0
        self.stopping = mp.Event()

    def _spawn(self, slot):
        lifetime = self.lifetime + self.rng.uniform(-self.stagger, self.stagger)
        proc = mp.Process(target=run_worker, args=(slot, self.tasks, self.results, self.stopping, lifetime),
                          name=f"embedder-{slot}", daemon=True)
        proc.start()
        self.workers[slot] = proc

    def start(self):
        for slot in range(self.count):
            self._spawn(slot)

    def tend(self):
        for slot, proc in list(self.workers.items()):
            if proc.is_alive():
                continue
            if proc.exitcode != 0:
                raise RuntimeError(f"{proc.name} failed with exit code {proc.exitcode}")
            proc.close()
            self.replaced += 1
            self._spawn(slot)

    def next_result(self, timeout):
        try:
            return self.results.get(timeout=timeout)
        except queue.Empty:
            return None, 0.0

    def stop(self):
        self.stopping.set()
        for proc in self.workers.values():
            proc.join()
