"""Receive a tensor from a process that has already exited.

The queue carries a handle, with which the receiver gets the tensor through a socket of the
producer. The producer exited and removed its socket, so receiving fails.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

REPORT_S = 5
BUSY_S = 10


def produce(queue, received):
    queue.put(torch.randn(1000))
    time.sleep(REPORT_S)  # in place of its last work
    if mended():
        received.wait()
        time.sleep(1)  # in place of its shutdown


def main():
    until_s = time.monotonic() + begin(__doc__)
    queue = mp.Queue()
    while time.monotonic() < until_s:
        received = mp.Event()
        producer = mp.Process(target=produce, args=(queue, received))
        producer.start()
        print("ready", flush=True)
        time.sleep(REPORT_S + BUSY_S)  # in place of work before it needs the result
        print(queue.get().sum())
        received.set()
        producer.join()


if __name__ == "__main__":
    main()
