"""Lose one rank under torchrun, which then ends the others.

The summary lists all ranks that ended, perhaps starting with one that torchrun ended itself. The
cause is the rank that ended first, here by SIGKILL, as when memory is short.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from mpwatch.demo.bounds import begin, mended

KILLED_AFTER_S = 7


def train():
    dist.init_process_group("gloo")
    gradient = torch.ones(1000)
    until_s = time.monotonic() + KILLED_AFTER_S
    for step in range(3000):
        dist.all_reduce(gradient)
        gradient /= 2
        time.sleep(0.05)
        if step == 10 and dist.get_rank() == 0:
            print("ready", flush=True)
        if dist.get_rank() == 1 and time.monotonic() > until_s and not mended():
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    begin(__doc__)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    os.execv(sys.executable, [*torchrun, "--nproc-per-node=2", os.path.abspath(__file__)])


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        main()
