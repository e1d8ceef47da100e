"""Receive a tensor from a process that has already ended.

What travels through the queue is a ticket, redeemed at a socket of the producer. The producer has
finished and taken its socket along, so the ticket is void by the time somebody asks.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin

BUSY_S = 15


def produce(queue):
    queue.put(torch.randn(1000))
    time.sleep(0.5)  # the queue's thread has sent the ticket by the time this process ends


def main():
    seconds = begin(__doc__)
    queue = mp.Queue()
    producer = mp.Process(target=produce, args=(queue,))
    producer.start()
    producer.join()
    print("ready", flush=True)
    time.sleep(min(BUSY_S, seconds))  # stands for other work before the result is wanted
    print(queue.get().sum())


if __name__ == "__main__":
    main()
