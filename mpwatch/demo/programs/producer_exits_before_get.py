"""Receive a tensor from a process that has already ended.

What travels through the queue is a ticket, redeemed at a socket of the producer. The producer has
finished and taken its socket along, so the ticket is void by the time somebody asks.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

REPORT_S = 5
BUSY_S = 10


def produce(queue, received):
    queue.put(torch.randn(1000))
    time.sleep(REPORT_S)  # stands for its own last work
    if mended():
        received.wait()
        time.sleep(1)  # stands for saying goodbye


def main():
    until_s = time.monotonic() + begin(__doc__)
    queue = mp.Queue()
    while time.monotonic() < until_s:
        received = mp.Event()
        producer = mp.Process(target=produce, args=(queue, received))
        producer.start()
        print("ready", flush=True)
        time.sleep(REPORT_S + BUSY_S)  # stands for other work before the result is wanted
        print(queue.get().sum())
        received.set()
        producer.join()


if __name__ == "__main__":
    main()
