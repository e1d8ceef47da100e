"""Hold thousands of tensors at once, then delete them.

Their descriptors and mappings are released; their entries in torch's table stay until torch next
removes expired entries. This is harmless, and shows how many tensors were held at the same time.
"""

import time

import torch
import torch.multiprocessing as mp
from torch.multiprocessing import reductions

from mpwatch.demo.bounds import begin, mended

TENSORS = 2000


def produce(queue, done):
    queue.put([torch.tensor([float(index)]) for index in range(TENSORS)])
    done.wait()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    mp.set_sharing_strategy("file_system")
    queue, done = mp.Queue(), mp.Event()
    producer = mp.Process(target=produce, args=(queue, done))
    producer.start()
    received = queue.get()
    total = sum(received).item()
    del received
    if mended():
        reductions.shared_cache.free_dead_references()
    print(f"sum {total}", flush=True)
    print("ready", flush=True)
    done.set()
    producer.join()
    time.sleep(max(0.0, until_s - time.monotonic()))


if __name__ == "__main__":
    main()
