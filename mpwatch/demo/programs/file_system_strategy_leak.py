"""Train where an earlier job was killed and left its shared memory behind.

Under the file_system strategy segments have names. When a container or a scheduler kills a whole
process tree, torch_shm_manager is killed as well, and the files stay in `/dev/shm` until they are
removed by hand.
"""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

SEGMENTS = 12


def earlier_job():
    """Share some tensors, then sleep until it is killed."""
    mp.set_sharing_strategy("file_system")
    kept = [torch.zeros(256, 1024).share_memory_() for _ in range(SEGMENTS)]
    print(len(kept), flush=True)
    time.sleep(60)


def run_and_kill_earlier_job():
    """Kill it with torch_shm_manager, as a cgroup kill does; mended, without it."""
    with subprocess.Popen(
        [sys.executable, __file__, "earlier"], stdout=subprocess.PIPE, env=os.environ
    ) as job:
        assert job.stdout is not None
        job.stdout.readline()
        with open(f"/proc/{job.pid}/task/{job.pid}/children") as listing:
            cleaners = [int(pid) for pid in listing.read().split()]
        for pid in [job.pid] if mended() else [*cleaners, job.pid]:
            os.kill(pid, signal.SIGKILL)


def main():
    seconds = begin(__doc__)
    run_and_kill_earlier_job()
    until_s = time.monotonic() + seconds
    mp.set_sharing_strategy("file_system")
    weights = torch.zeros(1000).share_memory_()
    print("ready", flush=True)
    while time.monotonic() < until_s:
        weights += 1
        time.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[1:] == ["earlier"]:
        earlier_job()
    else:
        main()
