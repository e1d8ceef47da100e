"""Thread and process loaders of MONAI; `failing`: a worker is killed each epoch."""

import os
import signal
import sys
import tempfile
import time

import torch
from monai.data import PersistentDataset, ThreadDataLoader


def decode(number):
    time.sleep(0.02)
    if "failing" in sys.argv and number == 70:
        print("fault", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is short
    return torch.full((4, 4), float(number))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = PersistentDataset(list(range(100)), decode, cache_dir=folder)
        total = 0.0
        for _ in range(10 if "failing" in sys.argv else 4):
            for batch in ThreadDataLoader(data, batch_size=2, num_workers=2):
                total += batch.sum().item()
                time.sleep(0.05)
    print("result", total, flush=True)
