"""A DataLoader whose workers wait for a slow training: back-pressure, not a hang."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin


def main() -> None:
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(TensorDataset(torch.arange(1000.0)), batch_size=2, num_workers=2)
    for step, _batch in enumerate(loader):
        if step == 1:
            print("ready", flush=True)
        step_until_s = min(until_s, time.monotonic() + 5)
        while time.monotonic() < step_until_s:
            torch.rand(200, 200).sum()  # a long step, in the main process
            time.sleep(0.01)
        if time.monotonic() > until_s:
            break


if __name__ == "__main__":
    main()
