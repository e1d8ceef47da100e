"""A DataLoader that pins memory on a simulated accelerator; threads and queues are torch's own."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, simulate_accelerator


def main() -> None:
    seconds = begin(__doc__)
    simulate_accelerator()
    until_s = time.monotonic() + seconds
    data = TensorDataset(torch.arange(100_000.0))
    for step, _batch in enumerate(DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)):
        if step == 10:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.03)


if __name__ == "__main__":
    main()
