"""Lose a batch in a worker's feeder thread, and wait for it for ever.

A thread of the worker pickles the batches. It reports an object that cannot be pickled on standard
error and drops the batch; the worker continues, and the main process waits for that batch without a
timeout.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

BAD_SAMPLE = 100


class Documents(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.01)
        words = (word for word in ("a", "document"))
        is_bad = index == BAD_SAMPLE and not mended()
        return {"ids": torch.arange(8), "words": words if is_bad else list(words)}


def keep_as_list(samples):
    return samples


def main():
    begin(__doc__)
    loader = DataLoader(Documents(), batch_size=8, num_workers=2, collate_fn=keep_as_list)
    for step, _batch in enumerate(loader):
        if step == BAD_SAMPLE // 8 - 1:
            print("ready", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
