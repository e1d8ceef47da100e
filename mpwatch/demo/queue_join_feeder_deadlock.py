"""Join a process before reading what it has put on a queue.

The process cannot end before its queue has been written out, more than a pipe holds; the parent
does not read before the process has ended.
"""

import numpy as np
import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin


def evaluate(queue):
    queue.put(np.asarray(torch.rand(256, 1024)))


def main():
    begin(__doc__)
    queue = mp.Queue()
    worker = mp.Process(target=evaluate, args=(queue,))
    worker.start()
    print("ready", flush=True)
    worker.join()
    print(queue.get().mean())


if __name__ == "__main__":
    main()
