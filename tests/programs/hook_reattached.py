"""Hooks that are attached and detached while `gc` is off: `hook_reattached.py
uninstrument|detach|torch`."""

from __future__ import annotations

import gc
import json
import multiprocessing
import multiprocessing.pool
import multiprocessing.queues
import socket
import struct
import sys
import time
import weakref

import mpwatch
from mpwatch import hook

VISITS = 25
SESSIONS: list[weakref.ref[object]] = []


def work() -> None:
    """Calls that the wrappers record."""
    queue: multiprocessing.SimpleQueue[int] = multiprocessing.SimpleQueue()
    queue.put(1)
    assert queue.get() == 1
    queue.close()
    if sys.argv[1] == "torch":
        import torch.utils.data

        dataset = torch.utils.data.TensorDataset(torch.arange(4))
        loader = torch.utils.data.DataLoader(dataset, num_workers=1, multiprocessing_context="fork")
        assert len(list(loader)) == 4


def detach(path: str) -> None:
    """Detach as an observer does, and wait for the goodbye."""
    with socket.socket(socket.AF_UNIX) as observer:
        observer.connect(path)
        request = json.dumps({"ask": "detach", "id": 1}).encode()
        observer.sendall(struct.pack("<IB", len(request), 64) + request)
        while observer.recv(65536):
            continue


def visit() -> None:
    assert mpwatch.instrument()
    session = hook.current()
    assert session is not None
    SESSIONS.append(weakref.ref(session))
    path = str(session.server.path)
    del session
    work()
    if sys.argv[1] == "detach":
        detach(path)
    else:
        assert mpwatch.uninstrument()
    end_s = time.monotonic() + 10
    while SESSIONS[-1]() is not None and time.monotonic() < end_s:
        time.sleep(0.001)  # the thread that had to detach is exiting
    if SESSIONS[-1]() is not None:
        sys.exit("the session that left is still there")


def maps() -> int:
    with open("/proc/self/maps", encoding="ascii", errors="replace") as file:
        return len(file.readlines())


def main() -> None:
    for _ in range(3):
        visit()
    gc.collect()
    gc.disable()
    before, blocks = maps(), sys.getallocatedblocks()
    for _ in range(VISITS):
        visit()
    print("maps", maps() - before < VISITS // 2, "blocks", sys.getallocatedblocks() - blocks < 2500)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    ours = [each for each in gc.garbage if type(each).__module__.startswith("mpwatch")]
    print("cycles", sorted({type(each).__name__ for each in ours}), flush=True)


if __name__ == "__main__":
    main()
