"""Share a dataset tensor by tensor, until the process has no memory mapping left.

Each shared tensor is one mapping, and the kernel allows 65,530 of them. The dataset itself takes a
few MiB. The program has a `/dev/shm` of its own.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended, tiny_shm

A_SECOND = 2000
READY_AT = 20_000


def main():
    seconds = begin(__doc__)
    tiny_shm(2048)
    mp.set_sharing_strategy("file_system")
    until_s = time.monotonic() + seconds
    samples = []
    shared = 0
    while time.monotonic() < until_s:
        second_ends_s = time.monotonic() + 1
        if mended():
            samples.append(torch.zeros(A_SECOND, 4).share_memory_())
        else:
            samples += [torch.zeros(4).share_memory_() for _ in range(A_SECOND)]
        shared += A_SECOND
        if shared == READY_AT:
            print("ready", flush=True)
        time.sleep(max(0.0, second_ends_s - time.monotonic()))


if __name__ == "__main__":
    main()
