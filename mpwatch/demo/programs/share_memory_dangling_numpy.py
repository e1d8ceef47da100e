"""Keep a numpy view of a tensor, then move the tensor to shared memory.

Sharing gives the tensor a new buffer and frees the old one. The view still points to the old
buffer, and from then on shows arbitrary memory.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


class Replay:
    """Keeps the same data as a tensor for training and as an array for statistics."""

    def __init__(self):
        self.tensor = torch.ones(2_000_000)
        if mended():
            self.tensor.share_memory_()
        self.array = self.tensor.numpy()


def learn(replay, done):
    torch.set_num_threads(1)
    print(f"mean of the tensor {replay.tensor[:1000].mean():.1f}", flush=True)
    done.wait()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    replay, done = Replay(), mp.Event()
    before = replay.tensor.data_ptr()
    replay.tensor.share_memory_()
    learner = mp.Process(target=learn, args=(replay, done))
    learner.start()
    print("ready", flush=True)
    while time.monotonic() < until_s:
        moved = replay.tensor.data_ptr() != before
        print(f"tensor moved: {moved}, its view still at {replay.array.ctypes.data:#x}", flush=True)
        time.sleep(2)
    done.set()
    learner.join()


if __name__ == "__main__":
    main()
