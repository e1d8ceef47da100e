"""Table of hard negatives, refreshed while training runs."""
import threading
import time

import torch

_lock = threading.Lock()
_table = torch.randint(0, 5000, (5000, 4))


def lookup(item):
    with _lock:
        return _table[item]


class NegativeMiner(threading.Thread):
    """Re-mines the table from the current item embeddings."""

    def __init__(self, embedding, period=1.1, rows=1500):
        super().__init__(daemon=True, name="negative-miner")
        self.embedding, self.period, self.rows = embedding, period, rows

    def run(self):
        global _table
        while True:
            time.sleep(self.period)
            w = self.embedding.weight.detach().clone()
            with _lock:
                for lo in range(0, self.rows, 100):
                    sims = w[lo:lo + 100] @ w.t()
                    _table[lo:lo + 100] = sims.topk(4, dim=1).indices
                    time.sleep(0.06)
