"""A short training that ends normally while it is observed."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin

LASTS_S = 8.0


def main() -> None:
    seconds = min(LASTS_S, begin(__doc__))
    loader = DataLoader(TensorDataset(torch.arange(10_000.0)), batch_size=10, num_workers=2)
    until_s = time.monotonic() + seconds
    for step, _batch in enumerate(loader):
        if step == 10:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.02)
    print("done", flush=True)


if __name__ == "__main__":
    main()
