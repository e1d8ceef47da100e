"""Share a tensor under the file_system strategy where torch_shm_manager cannot start.

The first shared tensor starts `torch_shm_manager`, which needs a directory for its socket. The
job's TMPDIR is on a scratch disk that is not mounted here.
"""

import os
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    if not mended():
        os.environ["TMPDIR"] = "/scratch/not-mounted-here"
    mp.set_sharing_strategy("file_system")
    ready = False
    while time.monotonic() < until_s:
        try:
            torch.zeros(10).share_memory_()
        except RuntimeError as error:
            print(f"cannot share: {error}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(2)


if __name__ == "__main__":
    main()
