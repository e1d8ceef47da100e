"""Nodes of torchdata with processes; `failing`: one of the processes is killed."""

import os
import signal
import sys
import time

import torchdata.nodes as nodes


def decode(number):
    time.sleep(0.05)
    if "failing" in sys.argv and number == 60:
        print("fault", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is short
    return number * 2


if __name__ == "__main__":
    source = nodes.IterableWrapper(range(300))
    mapped = nodes.ParallelMapper(source, decode, num_workers=2, method="process")
    total = 0
    for number in nodes.Loader(nodes.Batcher(mapped, 4)):
        total += sum(number)
    print("result", total, flush=True)
