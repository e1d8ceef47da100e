"""Compute the statistics of images in four processes, each while it holds the lock of the result.

The lock is there for one addition to a shared tensor, but it is taken before the computation. So
the processes compute one after the other, and four of them are as slow as one.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

WORKERS = 4
SIDE = 384


def measure(images, seed):
    """Some tens of milliseconds of work on one core."""
    generator = torch.Generator().manual_seed(seed)
    picture = torch.randn(SIDE, SIDE, generator=generator)
    for _ in range(images):
        picture = torch.tanh(picture @ picture.T / SIDE**0.5)
    return picture.mean()


def collect(total, lock, seed):
    torch.set_num_threads(1)
    while True:
        if mended():
            mean = measure(8, seed)
            with lock:
                total += mean
        else:
            with lock:
                total += measure(8, seed)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    total = torch.zeros(1).share_memory_()
    lock = mp.Lock()
    for seed in range(WORKERS):
        mp.Process(target=collect, args=(total, lock, seed), daemon=True).start()
    while not total:
        time.sleep(0.1)
    print("ready", flush=True)
    time.sleep(max(0.0, until_s - time.monotonic()))


if __name__ == "__main__":
    main()
