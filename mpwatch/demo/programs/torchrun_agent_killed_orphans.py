"""Kill torchrun, whose ranks then continue without it.

This is the script of a job: it starts torchrun and cleans up with SIGKILL. The ranks have sessions
of their own and do not notice that their agent was killed; they continue, with their memory and
ports.
"""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from mpwatch.demo.bounds import begin, mended

KILLED_AFTER_S = 6


def train():
    dist.init_process_group("gloo")
    gradient = torch.ones(1000)
    for step in range(3000):
        dist.all_reduce(gradient)
        gradient /= 2
        time.sleep(0.05)
        if step == 10 and dist.get_rank() == 0:
            print("ready", flush=True)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with subprocess.Popen(
        [*command, os.path.abspath(__file__)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as agent:
        assert agent.stdout is not None
        print(agent.stdout.readline(), end="", flush=True)
        time.sleep(KILLED_AFTER_S)
        os.kill(agent.pid, signal.SIGTERM if mended() else signal.SIGKILL)
        agent.wait()
        time.sleep(max(0.0, until_s - time.monotonic()))


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        main()
