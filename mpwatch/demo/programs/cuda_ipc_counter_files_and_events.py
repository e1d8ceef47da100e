"""Keep more received CUDA tensors than there are events.

A replay buffer keeps two thousand of them. Each tensor sent needs an event until it is released:
when a thousand of them are in use, each further send waits for the GPU instead.
"""

import collections
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

KEPT = 2000


def learn(queue):
    buffer: collections.deque[torch.Tensor] = collections.deque(maxlen=KEPT)
    while (sample := queue.get()) is not None:
        buffer.append(sample.clone() if mended() else sample)
        del sample


def main():
    until_s = time.monotonic() + begin(__doc__)
    context = mp.get_context("spawn")
    queue = context.Queue(maxsize=8)
    learner = context.Process(target=learn, args=(queue,), daemon=True)
    learner.start()
    queue.put(torch.ones(1000, device="cuda"))
    print("ready", flush=True)
    while time.monotonic() < until_s:
        queue.put(torch.ones(1000, device="cuda"))
        time.sleep(0.002)
    queue.put(None)
    learner.join()


if __name__ == "__main__":
    main()
