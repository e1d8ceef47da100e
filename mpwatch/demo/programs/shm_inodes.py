"""Use up the number of files of `/dev/shm` with many small tensors, while bytes are free.

Under the file_system strategy every shared tensor is a named file. The program has a `/dev/shm`
that may hold 1200 files, as mount options of a container can set it.
"""

import time
from collections import deque

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended, tiny_shm

SHM_MIB = 64
FILES = 1200
MOST = 200


def main():
    seconds = begin(__doc__)
    tiny_shm(SHM_MIB, files=FILES)
    mp.set_sharing_strategy("file_system")
    until_s = time.monotonic() + seconds
    labels: deque[torch.Tensor] = deque(maxlen=MOST if mended() else None)
    step = 0
    while time.monotonic() < until_s:
        labels.extend(torch.tensor([float(step)]).share_memory_() for _ in range(4))
        step += 1
        if step == 30:
            print("ready", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
