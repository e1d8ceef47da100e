"""Write to shared memory for which there is no space.

`multiprocessing.shared_memory` only sets a size; pages are allocated when they are first used. Here
a worker fills a cache of 24 MiB on a `/dev/shm` of 16 MiB, and the kernel sends SIGBUS.
"""

import time
from multiprocessing import shared_memory

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended, tiny_shm

MIB = 1 << 20


class Cached(Dataset):
    """Caches samples in shared memory, one MiB each."""

    def __init__(self, cache):
        self.cache = cache

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(1)  # in place of reading the sample
        at = index * MIB % self.cache.size
        self.cache.buf[at : at + MIB] = bytes([index % 256]) * MIB
        return torch.tensor(index)


def main():
    seconds = begin(__doc__)
    tiny_shm(16)
    until_s = time.monotonic() + seconds
    cache = shared_memory.SharedMemory(create=True, size=(12 if mended() else 24) * MIB)
    try:
        for step, _batch in enumerate(DataLoader(Cached(cache), batch_size=1, num_workers=1)):
            if step == 4:
                print("ready", flush=True)
            if time.monotonic() > until_s:
                break
    finally:
        cache.close()
        cache.unlink()


if __name__ == "__main__":
    main()
