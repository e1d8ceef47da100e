"""Send a new tensor each time, where a few reused buffers would do.

Each one needs a new segment, new pages, a copy, and a descriptor sent through a socket; most of the
producer's time goes into page faults.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def consume(queue, free):
    while True:
        buffer = queue.get()
        buffer.mean()
        if mended():
            free.put(buffer)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    queue, free = mp.Queue(maxsize=2), mp.Queue()
    mp.Process(target=consume, args=(queue, free), daemon=True).start()
    ring = [torch.empty(2 << 20).share_memory_() for _ in range(4 if mended() else 0)]
    for buffer in ring:  # kept, or each returned buffer would be mapped again
        free.put(buffer)
    step = 0
    while time.monotonic() < until_s:
        buffer = free.get() if mended() else torch.empty(2 << 20)
        queue.put(buffer.fill_(step))
        step += 1
        if step == 30:
            print("ready", flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
