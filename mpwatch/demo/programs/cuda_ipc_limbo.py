"""Receive CUDA tensors and never release them.

A consumer keeps what it receives in a list. The producer has freed each tensor, but its memory can
be reused only once the consumer has freed it as well.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

PAUSE_S = 0.04


def consume(queue):
    kept = []
    while (batch := queue.get()) is not None:
        kept.append(float(batch.sum()) if mended() else batch)
        del batch


def main():
    until_s = time.monotonic() + begin(__doc__)
    context = mp.get_context("spawn")
    queue = context.Queue(maxsize=8)
    consumer = context.Process(target=consume, args=(queue,))
    consumer.start()
    queue.put(torch.ones(1000, device="cuda"))
    print("ready", flush=True)
    while time.monotonic() < until_s:
        queue.put(torch.ones(1000, device="cuda"))
        time.sleep(PAUSE_S)
    queue.put(None)
    consumer.join()


if __name__ == "__main__":
    main()
