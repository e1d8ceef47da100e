"""Keep a numpy view of a tensor, then move the tensor to shared memory.

Sharing gives the tensor a new buffer and frees the old one. The view still points to the old one:
what it shows from then on is whatever lies there.
"""

import time

import torch

from mpwatch.demo.bounds import begin


class Replay:
    """Keeps the same numbers as a tensor for training and as an array for statistics."""

    def __init__(self):
        self.tensor = torch.ones(2_000_000)
        self.array = self.tensor.numpy()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    ready = False
    while time.monotonic() < until_s:
        replay = Replay()
        before = replay.tensor.data_ptr()
        replay.tensor.share_memory_()
        moved = replay.tensor.data_ptr() != before
        print(f"tensor moved: {moved}, its view still at {replay.array.ctypes.data:#x}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(2)


if __name__ == "__main__":
    main()
