"""A producer and two consumers; buffers are sent back when they have been read."""

import time
from typing import Any

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin

BUFFERS = 4


def consume(full: Any, empty: Any) -> None:
    while True:
        buffer = full.get()
        if buffer is None:
            return
        buffer.mean()
        time.sleep(0.02)
        empty.put(buffer)


def main() -> None:
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    full, empty = mp.Queue(), mp.Queue()
    consumers = [mp.Process(target=consume, args=(full, empty)) for _ in range(2)]
    for consumer in consumers:
        consumer.start()
    buffers = [torch.zeros(1 << 18).share_memory_() for _ in range(BUFFERS)]
    for buffer in buffers:
        empty.put(buffer)
    step = 0
    while time.monotonic() < until_s:
        full.put(empty.get().fill_(step))
        step += 1
        if step == 30:
            print("ready", flush=True)
    for _ in range(BUFFERS):
        empty.get()  # all are returned before their senders exit
    for _ in consumers:
        full.put(None)
    for consumer in consumers:
        consumer.join()


if __name__ == "__main__":
    main()
