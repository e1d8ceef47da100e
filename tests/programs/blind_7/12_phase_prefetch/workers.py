"""Batch producers, one process each, feeding a bounded queue."""
import logging
import multiprocessing as mp
import os

import numpy as np

log = logging.getLogger(__name__)


def produce(queue, seed, size, batch):
    rng = np.random.default_rng(seed)
    log.debug("producer %d up", os.getpid())
    while True:
        x = rng.standard_normal((batch, size), dtype=np.float32)
        x[:, 1:] = 0.8 * x[:, :-1] + 0.2 * x[:, 1:]
        queue.put((x, (x.mean(1) > 0).astype(np.int64)))


class Producers:
    """The producers of one phase; a new phase has another input size."""

    def __init__(self, count, size, batch, depth=8):
        self.queue = mp.Queue(maxsize=depth)
        self.procs = [
            mp.Process(target=produce, args=(self.queue, 31 * size + i, size, batch), name=f"producer-{i}", daemon=True)
            for i in range(count)
        ]
        for proc in self.procs:
            proc.start()

    def get(self):
        return self.queue.get()

    def stop(self):
        for proc in self.procs:
            proc.terminate()
        for proc in self.procs:
            proc.join()
        self.queue.close()
