"""Decode ever larger samples in workers until the kernel kills one for memory.

The program puts itself into a cgroup with little memory left, as in a container. `/dev/shm`, caches
and all workers count towards the limit; which process is killed is chance.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended, small_cgroup

LIMIT_MIB = 200
MOST = 10


class Growing(Dataset):
    """Keeps all decoded samples, one MiB each.

    Mended, it reuses a few buffers. Dropping the oldest sample instead would bound the samples, but
    not the memory: the heap was measured to grow to seven times the size of the samples.
    """

    def __init__(self):
        self.decoded = [torch.empty(1 << 18) for _ in range(MOST if mended() else 0)]

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep(0.3)
        if not mended():
            self.decoded.append(torch.empty(1 << 18))
        return self.decoded[index % MOST if mended() else -1].fill_(float(index))[0]


def main():
    seconds = begin(__doc__)
    small_cgroup("memory", LIMIT_MIB << 20)
    until_s = time.monotonic() + seconds
    # Workers that import torch themselves, as by default of Python 3.14, pass the limit at once.
    loader = DataLoader(Growing(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for step, _batch in enumerate(loader):
        if step == 2:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break


if __name__ == "__main__":
    main()
