"""Iterate over a stream in several workers, of which each reads all of it.

A loader cannot divide an iterable dataset; each worker has to select its part with
`get_worker_info`. This dataset does not.
"""

import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from mpwatch.demo.bounds import begin, mended


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if mended() else (0, 1)
        for sample in range(first, 100, workers):
            time.sleep(0.03)
            yield torch.tensor(sample)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(Stream(), batch_size=10, num_workers=2)
    epoch = 0
    while time.monotonic() < until_s:
        samples = torch.cat(list(loader))
        epoch += 1
        print(f"epoch {epoch}: {len(samples)} samples of 100", flush=True)
        if epoch == 1:
            print("ready", flush=True)


if __name__ == "__main__":
    main()
