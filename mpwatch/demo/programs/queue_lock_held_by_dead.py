"""Kill a consumer that waits for work.

A consumer holds the queue's read lock while it waits. Killed at that moment, it never releases the
lock: the other consumers wait for it while items queue up.
"""

import os
import signal
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

STOP = None


def consume(queue, started):
    started.set()
    while queue.get() != STOP:
        pass


def start_consumer(queue):
    started = mp.Event()
    consumer = mp.Process(target=consume, args=(queue, started), daemon=True)
    consumer.start()
    started.wait()
    time.sleep(0.3)  # by now it is in `get`
    return consumer


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    queue = mp.Queue()
    first, *_others = [start_consumer(queue) for _ in range(3)]
    if mended():
        queue.put(STOP)  # whichever consumer gets it
    else:
        os.kill(first.pid, signal.SIGKILL)
    for index in range(20):
        queue.put((index, torch.zeros(4).tolist()))
    print("ready", flush=True)
    time.sleep(max(0.0, until_s - time.monotonic()))


if __name__ == "__main__":
    main()
