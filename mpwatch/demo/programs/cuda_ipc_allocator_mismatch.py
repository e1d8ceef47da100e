"""Share CUDA tensors whose allocator has memory that other processes cannot open.

CUDA's asynchronous allocator (`backend:cudaMallocAsync`) takes memory from a pool that is not
exported.
"""

import os
import sys
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


def consume(queue):
    while (batch := queue.get()) is not None:
        batch.sum()
        del batch


def main():
    if not mended() and VARIABLE not in os.environ:
        os.environ[VARIABLE] = "backend:cudaMallocAsync"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    until_s = time.monotonic() + begin(__doc__)
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    consumer = context.Process(target=consume, args=(queue,), daemon=True)
    consumer.start()
    print("ready", flush=True)
    time.sleep(3)  # in place of making the first batch
    while time.monotonic() < until_s:
        try:
            queue.put(torch.ones(1000, device="cuda"))
        except RuntimeError as error:
            print(f"cannot send: {str(error).splitlines()[0]}", flush=True)
        time.sleep(0.5)
    queue.put(None)
    consumer.join()


if __name__ == "__main__":
    main()
