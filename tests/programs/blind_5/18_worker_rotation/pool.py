import logging
import multiprocessing as mp
import queue
import signal
import time

import torch
from torch import nn

log = logging.getLogger("rotation")


def simulate(name, tasks, results):
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    torch.set_num_threads(1)
    net = nn.Linear(12, 3)
    while not stop:
        try:
            seed = tasks.get(timeout=0.2)
        except queue.Empty:
            continue
        gen = torch.Generator().manual_seed(seed)
        total = 0.0
        for _ in range(10):
            with torch.no_grad():
                total += net(torch.randn(16, 12, generator=gen)).sum().item()
            time.sleep(0.01)
        results.put((name, seed, total))


class RotatingPool:
    """Workers are replaced after a while so that simulator memory stays small."""

    def __init__(self, size, tasks, results, lifetime):
        self.tasks, self.results, self.lifetime = tasks, results, lifetime
        self.generation = 0
        self.workers = [self._start() for _ in range(size)]

    def _start(self):
        self.generation += 1
        name = f"sim-{self.generation}"
        proc = mp.Process(target=simulate, args=(name, self.tasks, self.results), name=name)
        proc.start()
        return proc, time.monotonic() + self.lifetime * (1 + 0.3 * (self.generation % 3))

    def rotate(self):
        for i, (proc, until) in enumerate(self.workers):
            if time.monotonic() > until:
                proc.terminate()
                proc.join()
                log.info("%s retired with exit code %s", proc.name, proc.exitcode)
                self.workers[i] = self._start()

    def close(self):
        for proc, _ in self.workers:
            proc.terminate()
        for proc, _ in self.workers:
            proc.join()
