"""Keep the whole history of a training in the main process, until the kernel kills it for memory.

The program puts itself into a cgroup with little memory left, as in a container. It gets no chance
to print anything: exit status 137 and no traceback.
"""

import time
from collections import deque

import torch

from mpwatch.demo.bounds import begin, mended, small_cgroup

LIMIT_MIB = 160
STEP_MIB = 3
MOST = 8


def main():
    seconds = begin(__doc__)
    small_cgroup("memory", LIMIT_MIB << 20)
    until_s = time.monotonic() + seconds
    history: deque[torch.Tensor] = deque(maxlen=MOST if mended() else None)
    step = 0
    while time.monotonic() < until_s:
        history.append(torch.full((STEP_MIB << 18,), float(step)))
        step += 1
        if step == 4:
            print("ready", flush=True)
        time.sleep(0.4)


if __name__ == "__main__":
    main()
