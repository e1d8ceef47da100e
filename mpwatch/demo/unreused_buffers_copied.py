"""Send a fresh tensor each time, where a few buffers sent back and forth would do.

Each one costs a new segment, its pages, a copy and a descriptor through a socket: the producer
spends its time in page faults.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin


def consume(queue):
    while True:
        queue.get().mean()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    queue = mp.Queue(maxsize=2)
    mp.Process(target=consume, args=(queue,), daemon=True).start()
    step = 0
    while time.monotonic() < until_s:
        queue.put(torch.full((2 << 20,), float(step)))
        step += 1
        if step == 30:
            print("ready", flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
