"""Fork the validation loader's workers while the training loader's pin thread runs.

A lock that the thread holds at that moment, in torch, the allocator or the driver, stays locked in
the new workers. It fails rarely and at random. The program needs no accelerator: it replaces the
accelerator's memory functions, and uses torch's own threads and forks.
"""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended, simulate_accelerator


def main():
    seconds = begin(__doc__)
    simulate_accelerator()
    until_s = time.monotonic() + seconds
    data = TensorDataset(torch.arange(10_000.0))
    validation = DataLoader(data, batch_size=1000, num_workers=1, persistent_workers=mended())
    if mended():
        sum(1 for _ in validation)  # its workers are forked before any other thread is started
    training = iter(DataLoader(data, batch_size=4, num_workers=1, pin_memory=True))
    step = 0
    while time.monotonic() < until_s:
        next(training)
        time.sleep(0.1)
        step += 1
        if step % 20 == 0:
            sum(1 for _ in validation)
        if step == 20:
            print("ready", flush=True)


if __name__ == "__main__":
    main()
