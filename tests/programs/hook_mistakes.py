"""Mistakes that only the hook can name: `hook_mistakes.py MISTAKE...`.

One is made in the program itself. Each of several is made in a forked process of its own, in which
the hook is attached: so torch is loaded once.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import sys
import threading
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

import mpwatch


class Transform:
    def __init__(self) -> None:
        self.scale = 2
        self.function = lambda value: value


class Set(Dataset[torch.Tensor]):
    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.rng = random.Random(5)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return self.rng.random()


class Unsendable:
    def __reduce__(self) -> Any:
        raise ValueError("cannot be sent")


class Lost(Set):
    def __getitem__(self, index: int) -> Any:
        return Unsendable() if index == 3 else index


def keep(batch: Any) -> Any:
    return batch


def ignore(*_: Any) -> None:
    return None


def unpicklable() -> None:
    loader = DataLoader(Set(1, Transform()), num_workers=1, multiprocessing_context="spawn")
    try:
        next(iter(loader))
    except (AttributeError, pickle.PicklingError) as error:  # the second from Python 3.14 on
        print("error", error)


def generators() -> None:
    loader = DataLoader(
        Set(), num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    print("sum", sum(float(batch) for batch in loader) > 0)
    wait()
    del loader


def lost() -> None:
    loader = DataLoader(
        Lost(), num_workers=1, multiprocessing_context="fork", collate_fn=keep, timeout=3
    )
    batches = iter(loader)
    try:
        for _ in batches:
            continue
    except RuntimeError as error:
        print("error", error)
    wait()
    del batches


def written() -> None:
    queue = torch.multiprocessing.get_context("fork").Queue()
    buffer = torch.zeros(4)
    for _ in range(17):
        queue.put(buffer)
        queue.get()
        buffer += 1


def threads() -> None:
    door = threading.Event()
    threading.Thread(target=door.wait, name="prefetcher").start()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    door.set()


def foreign() -> None:
    """Fork in the middle of an epoch, and drop the iterator in the child."""
    loader = DataLoader(Set(), num_workers=1, multiprocessing_context="fork")
    batches = iter(loader)
    next(batches)
    pid = os.fork()
    if pid == 0:
        try:
            batches._shutdown_workers()
        except AssertionError:
            show()
        os._exit(0)
    os.waitpid(pid, 0)
    os._exit(0)


def died() -> None:
    threading.excepthook = ignore
    mpwatch.uninstrument()
    mpwatch.instrument()

    def fail() -> None:
        raise LookupError("gone")

    thread = threading.Thread(target=fail, name="pt_data_pin")
    thread.start()
    thread.join()


def wait() -> None:
    print("ready", flush=True)
    signal.pause()


def make(mistake: str) -> None:
    mpwatch.instrument()
    globals()[mistake]()
    show()


def make_in_a_child(mistake: str) -> int:
    """Make one mistake in a process of its own, and return its exit code."""
    print("mistake", mistake, flush=True)
    pid = os.fork()
    if pid == 0:
        make(mistake)
        sys.exit()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    mistakes = sys.argv[1:]
    if len(mistakes) == 1:
        make(mistakes[0])
        return
    gc.freeze()  # a collection in a forked process would copy the pages of all objects of torch
    for mistake in mistakes:
        if make_in_a_child(mistake) != 0:
            sys.exit(f"{mistake} failed")


def show() -> None:
    from mpwatch.hook import current

    session = current()
    assert session is not None
    for _, note in session.notes.since(0):
        # In one piece, for processes and threads that fail write their tracebacks meanwhile.
        sys.stdout.write(f"note {note.decode()}\n")
    print("gauges", session.answer({"ask": "gauges", "id": 1}))
    print("missing", session.patcher.missing, session.problems, flush=True)


if __name__ == "__main__":
    main()
