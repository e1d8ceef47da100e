"""Fork in the middle of an epoch, and drop the inherited iterator in the child.

The iterator's `__del__` runs in the child and tells the parent's workers to exit, before it checks
whose workers they are.
"""

import time

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended


class Trainer:
    def __init__(self):
        data = TensorDataset(torch.arange(10_000.0))
        self.batches = iter(DataLoader(data, batch_size=4, num_workers=2))

    def validate(self):
        """Runs in a separate process, so that the training need not wait."""
        if not mended():
            self.batches = None
        time.sleep(0.5)


def main():
    begin(__doc__)
    trainer = Trainer()
    for step in range(1000):
        next(trainer.batches)
        time.sleep(0.1)
        if step == 5:
            print("ready", flush=True)
        if step == 40:
            mp.Process(target=trainer.validate).start()


if __name__ == "__main__":
    main()
