"""A target that does one thing for ever: busy, idle, blocked or threads.

It exits when standard input is closed, or is killed.
"""

import gc
import hashlib
import os
import sys
import threading
import time

BLOCK = 200_000


def busy() -> None:
    """Compute and print a digest of each block: it changes if anything goes wrong."""
    digest = hashlib.sha256()
    for number in range(10**9):
        digest.update(b"%d" % number)
        if number % BLOCK == BLOCK - 1:
            gc.collect()  # a loop of integers would never start a garbage collection by itself
            print(number, digest.hexdigest(), flush=True)
            digest = hashlib.sha256()


def spin() -> None:
    """Compute without any call."""
    number = 0
    while True:
        number += 1


def idle() -> None:
    while True:
        time.sleep(0.02)


def blocked() -> None:
    """Block for ever in a read from an empty pipe."""
    reader, _writer = os.pipe()
    os.read(reader, 1)


def threads() -> None:
    """Several busy threads besides a busy main thread."""

    def count(box: list[int]) -> None:
        while True:
            box[0] += 1

    boxes = [[0] for _ in range(4)]
    for box in boxes:
        threading.Thread(target=count, args=(box,), daemon=True).start()
    while True:
        before = [box[0] for box in boxes]
        time.sleep(0.05)
        print("moved", all(b[0] > a for a, b in zip(before, boxes, strict=False)), flush=True)


if __name__ == "__main__":
    print("ready", flush=True)
    {f.__name__: f for f in (busy, spin, idle, blocked, threads)}[sys.argv[1]]()
