"""Lose a Pool worker in the middle of a task.

The Pool starts a new worker, but does not run the lost task again, and `map` waits for its result.
"""

import os
import signal
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def evaluate(fold):
    time.sleep(0.5)
    if fold == 3 and not mended():
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is short
    return torch.full((10,), float(fold)).sum().item()


def main():
    until_s = time.monotonic() + begin(__doc__)
    with mp.Pool(2) as pool:
        print("ready", flush=True)
        while time.monotonic() < until_s:
            print(pool.map(evaluate, range(6), chunksize=1))


if __name__ == "__main__":
    main()
