import logging
import queue
import time

import torch
from torch import nn

log = logging.getLogger("consumer")


class Poller:
    """Takes tasks from a queue; waits a little longer after every empty poll."""

    def __init__(self, tasks, initial_delay=0.05, backoff=1.25, max_delay=12.0):
        self.tasks = tasks
        self.delay = initial_delay
        self.backoff = backoff
        self.max_delay = max_delay

    def next(self):
        while True:
            try:
                return self.tasks.get_nowait()
            except queue.Empty:
                time.sleep(self.delay)
                self.delay = min(self.delay * self.backoff, self.max_delay)


class Embedder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.table = nn.EmbeddingBag(vocab, dim)
        self.proj = nn.Linear(dim, dim)

    @torch.no_grad()
    def forward(self, ids):
        return nn.functional.normalize(self.proj(self.table(ids)), dim=1)


def run_consumer(index, tasks, results):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Embedder(2000, 64)
    poller = Poller(tasks)
    done = 0
    while True:
        job, ids = poller.next()
        results.put((job, model(torch.from_numpy(ids)).numpy()))
        done += 1
        if done % 25 == 0:
            log.info("consumer %d: %d jobs", index, done)
