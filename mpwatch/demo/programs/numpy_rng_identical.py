"""Draw augmentations from one generator that every worker has a copy of.

The loader seeds numpy's global generator in each worker. The fork copies any other generator: all
workers draw the same numbers, and again in each epoch.
"""

import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from mpwatch.demo.bounds import begin, mended


class Noisy(Dataset):
    def __init__(self):
        self.generator = np.random.default_rng(7)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.tensor(self.generator.standard_normal())


def seed_generator(_worker):
    worker = get_worker_info()
    worker.dataset.generator = np.random.default_rng(worker.seed)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    seeding = seed_generator if mended() else None
    loader = DataLoader(Noisy(), batch_size=8, num_workers=2, worker_init_fn=seeding)
    epoch = 0
    while time.monotonic() < until_s:
        batches = []
        for batch in loader:
            batches.append(batch.clone())
            time.sleep(0.1)
        values = torch.cat(batches)
        epoch += 1
        distinct = len(values.unique())
        print(f"epoch {epoch}: {distinct} different of {len(values)} numbers", flush=True)
        if epoch == 1:
            print("ready", flush=True)
        time.sleep(0.5)


if __name__ == "__main__":
    main()
