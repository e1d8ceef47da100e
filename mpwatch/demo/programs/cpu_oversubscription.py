"""Let every worker use a thread pool of its own.

torch limits itself to one thread in each worker, but other libraries do not: here each of three
workers multiplies matrices with four threads, however few cores there are.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

THREADS = 4


class Features(Dataset):
    """Whitens samples with numpy, which releases the GIL, in a thread pool."""

    def __init__(self):
        self.matrix = np.random.default_rng(0).random((400, 400), dtype=np.float32)
        self.pool = None

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        self.pool = self.pool or ThreadPoolExecutor(1 if mended() else THREADS)
        parts = self.pool.map(self.whiten, range(index, index + THREADS))
        return torch.tensor(float(sum(parts)))

    def whiten(self, seed):
        return sum((self.matrix @ self.matrix)[0, 0] for _ in range(5)) + seed


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    for step, _batch in enumerate(DataLoader(Features(), batch_size=2, num_workers=3)):
        if step == 6:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        if mended():
            time.sleep(0.5)  # the trainer limits the speed


if __name__ == "__main__":
    main()
