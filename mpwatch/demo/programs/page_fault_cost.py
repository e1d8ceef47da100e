"""Allocate a large work buffer anew for each sample.

The buffer is returned to the system when it is freed, and the pages of the next one are found,
cleared and mapped one by one, at the first use of each.
"""

import mmap
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

BYTES = 64 << 20


def buffer():
    pages = mmap.mmap(-1, BYTES)
    if hasattr(pages, "madvise") and hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)


def extract(seconds):
    torch.set_num_threads(1)
    until_s = time.monotonic() + seconds
    work = buffer()
    total = 0
    while time.monotonic() < until_s:
        if not mended():
            work = buffer()
        work[:: mmap.PAGESIZE] = 1
        total += int(work[: 1 << 12].sum())


def main():
    seconds = begin(__doc__)
    runs = [mp.Process(target=extract, args=(seconds,), name=f"extract-{n}") for n in range(2)]
    for run in runs:
        run.start()
    print("ready", flush=True)
    for run in runs:
        run.join()


if __name__ == "__main__":
    main()
