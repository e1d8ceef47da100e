"""Produce tensors faster than they are received, until the producer has no descriptor left.

Every tensor in the queue keeps a descriptor of the producer open until it is received. The queue
has no bound and the trainer is slow, so the producer's descriptor table fills up.
"""

import resource
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

OPEN_FILES = 160


def produce(queue):
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    while True:
        queue.put(torch.randn(64))
        time.sleep(0.15)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    queue = mp.Queue(maxsize=4 if mended() else 0)
    producer = mp.Process(target=produce, args=(queue,), daemon=True)
    producer.start()
    queue.get()
    print("ready", flush=True)
    while time.monotonic() < until_s:
        time.sleep(2)  # in place of a training step, slower than the producer
        queue.get()


if __name__ == "__main__":
    main()
