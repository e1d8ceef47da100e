"""Start a DataLoader when `/dev/shm` has no space for a semaphore.

An earlier job left its files in this program's own `/dev/shm` of one MiB. Each queue and event
needs a small file there, so the loader fails before it loads a sample.
"""

import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended, tiny_shm

LEFT_OVER = "/dev/shm/cache-of-an-earlier-job"


def fill_what_is_left():
    with open(LEFT_OVER, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def main():
    seconds = begin(__doc__)
    tiny_shm(1)
    until_s = time.monotonic() + seconds
    data = TensorDataset(torch.arange(100.0))
    fill_what_is_left()
    if mended():
        os.unlink(LEFT_OVER)
    print("ready", flush=True)
    while time.monotonic() < until_s:
        try:
            for _batch in DataLoader(data, num_workers=1):
                time.sleep(0.1)
        except OSError as error:
            print(f"cannot start the loader, trying again: {error}", flush=True)
        time.sleep(2)


if __name__ == "__main__":
    main()
