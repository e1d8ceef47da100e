"""Wraps what the hook has wrapped, as tracing libraries do; or has a thread with its name."""

import functools
import multiprocessing
import multiprocessing.queues as queues
import os
import queue
import sys
import threading
import time
from typing import Any

wrapped_put: list[Any] = []
ORIGINAL_GET = queues.Queue.get


def wrap() -> None:
    """Replace `Queue.put` by a wrapper around the present function."""
    under = queues.Queue.put

    @functools.wraps(under)
    def traced(self, *arguments, **keywords):
        return under(self, *arguments, **keywords)

    wrapped_put.append(under)
    setattr(queues.Queue, "put", traced)  # noqa: B010 - as a tracing library does


def tell() -> None:
    """Print what is left under the wrapper."""
    (under,) = wrapped_put
    one: multiprocessing.Queue[int] = multiprocessing.Queue(1)
    one.put(5, timeout=5)
    try:
        one.put(6, block=False)
        raised = "nothing"
    except queue.Full:
        raised = "Full"
    used = sorted({*under.__code__.co_names, *under.__code__.co_freevars} & used_names(under))
    restored = queues.Queue.get is ORIGINAL_GET
    print(f"calls {used}, put {one.get()}, {raised} raised, get restored {restored}", flush=True)


def used_names(function) -> set[str]:
    """Names that the code of a function really loads."""
    import dis

    loads = ("LOAD_DEREF", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "LOAD_FROM_DICT_OR_DEREF")
    return {i.argval for i in dis.get_instructions(function) if i.opname in loads}


def stay(tid: list[int]) -> None:
    tid.append(threading.get_native_id())
    with open(f"/proc/self/task/{tid[0]}/comm", "wb") as file:
        file.write(b"mpwatch-hook")
    time.sleep(3600)


if sys.argv[1] == "named":
    found: list[int] = []
    threading.Thread(target=stay, args=(found,), daemon=True).start()
    while not found:
        time.sleep(0.01)
    time.sleep(0.05)
    print("ready", flush=True)
    print(found[0], flush=True)
    while True:
        time.sleep(0.005)
print("ready", flush=True)
os.set_blocking(0, False)
while True:
    time.sleep(0.005)
    try:
        asked = os.read(0, 64)
    except BlockingIOError:
        continue
    if asked == b"wrap\n":
        wrap()
        print("wrapped", flush=True)
    elif asked == b"tell\n":
        tell()
