"""Processes that end by exceptions, of which nothing is left but tracebacks on standard error.

`written_errors.py MODE`, with standard output and error in a file. `died`: a child fails and stays
a zombie, and main waits for its item. `reaped`: main has collected its exit status, too. `thread`:
a callback of a Pool raises. `main`: main fails, and its child waits for it. `handled`: all is well,
but each worker logs exceptions that it handles.
"""

from __future__ import annotations

import logging
import multiprocessing as mp
import os
import sys
import time
from typing import Any


def load(number: int) -> int:
    """An item, which number 3 does not have."""
    if number == 3:
        raise KeyError(f"no shard {number}")
    return number


def indexer(items: Any) -> None:
    """Put items until one fails."""
    for number in range(10):
        items.put(load(number))
        time.sleep(0.05)


def reader(items: Any) -> None:
    """Take items until there is a None."""
    while items.get() is not None:
        pass


def patient(items: Any) -> None:
    """Put items without an end, and log those that fail."""
    logging.basicConfig(level=logging.INFO, format="%(process)d %(levelname)s %(message)s")
    while True:
        for number in range(4):
            try:
                items.put(load(number))
            except KeyError:
                logging.getLogger("patient").exception("skipped in %s", os.getpid())
            time.sleep(0.1)


def add(value: int) -> None:
    """A callback that one result does not suit."""
    if value == 2:
        raise ValueError("nothing is to be added for 2")


def main() -> None:
    """Run one mode."""
    mode = sys.argv[1]
    context = mp.get_context("fork")
    items = context.Queue()
    if mode in ("died", "reaped"):
        child = context.Process(target=indexer, args=(items,), name="indexer-7", daemon=True)
        child.start()
        for _ in range(3):
            items.get()
        if mode == "reaped":
            child.join()
        print("ready", flush=True)
        items.get()
    elif mode == "main":
        context.Process(target=reader, args=(items,)).start()
        print("ready", flush=True)
        time.sleep(0.5)
        for number in range(10):
            items.put(load(number))
    elif mode == "thread":
        with context.Pool(2) as pool:
            results = [pool.apply_async(load, (each,), callback=add) for each in (1, 2, 4)]
            print("ready", flush=True)
            for each in results:
                each.get()
    elif mode == "handled":
        for _ in range(2):
            context.Process(target=patient, args=(items,), daemon=True).start()
        print("ready", flush=True)
        while True:
            items.get()


if __name__ == "__main__":
    main()
