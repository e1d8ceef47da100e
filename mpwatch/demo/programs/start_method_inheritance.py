"""Use a DataLoader inside a spawned process.

The same lines start forked workers in the main process. This process was spawned, has taken over
its parent's start method as its own default, and spawns its workers too.
"""

import time

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended


def train(until_s):
    data = TensorDataset(torch.arange(1000.0))
    loader = DataLoader(
        data,
        batch_size=10,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork" if mended() else None,
    )
    ready = False
    while time.monotonic() < until_s:
        for _batch in loader:
            if not ready:
                print("ready", flush=True)
                ready = True
            if time.monotonic() > until_s:
                break
            time.sleep(0.1)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    trainer = mp.get_context("spawn").Process(target=train, args=(until_s,))
    trainer.start()
    trainer.join()


if __name__ == "__main__":
    main()
