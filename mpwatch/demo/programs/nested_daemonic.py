"""Use a DataLoader with workers inside a worker of a Pool.

Pool workers are daemonic, and daemonic processes may not have children.
"""

import time

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended


def evaluate(fold):
    data = TensorDataset(torch.full((100,), float(fold)))
    return sum(
        batch.sum().item() for (batch,) in DataLoader(data, num_workers=0 if mended() else 2)
    )


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    ready = False
    with mp.Pool(2) as pool:
        while time.monotonic() < until_s:
            try:
                pool.map(evaluate, range(2))
            except AssertionError as error:
                print(f"cannot evaluate: {error}", flush=True)
            if not ready:
                print("ready", flush=True)
                ready = True
            time.sleep(2)


if __name__ == "__main__":
    main()
