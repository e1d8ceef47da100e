"""Join a process before reading what it has put on a queue.

The process cannot exit before its queue has been written to the pipe, which holds less than that;
the parent does not read before the process has exited.
"""

import time

import numpy as np
import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def evaluate(queue):
    queue.put(np.asarray(torch.rand(256, 1024)))


def main():
    until_s = time.monotonic() + begin(__doc__)
    queue = mp.Queue()
    while time.monotonic() < until_s:
        worker = mp.Process(target=evaluate, args=(queue,))
        worker.start()
        print("ready", flush=True)
        if mended():
            print(queue.get().mean())
        worker.join()
        time.sleep(1)


if __name__ == "__main__":
    main()
