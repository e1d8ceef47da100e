"""Fork after a parallel operator, and run another one in the child.

The parent started the OpenMP threads. The child has a copy of their pool's state, and waits at a
barrier for threads that it does not have.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def evaluate(weights):
    if mended():
        torch.set_num_threads(1)
    while True:
        print((weights * 2).sum().item(), flush=True)
        time.sleep(0.5)


def main():
    begin(__doc__)
    torch.set_num_threads(2)
    weights = torch.ones(4_000_000)
    print((weights * 2).sum().item(), flush=True)
    child = mp.get_context("fork").Process(target=evaluate, args=(weights,), daemon=True)
    child.start()
    print("ready", flush=True)
    child.join()


if __name__ == "__main__":
    main()
