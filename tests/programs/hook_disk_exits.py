"""A job whose processes exit in every way once a line arrives: `hook_disk_exits.py hook|bare`.

Until then each of them puts and gets, so that the hook has records to write.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import sys
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Any

PAUSE_S = 0.02
FORKED = ("return", "sys.exit", "os._exit", "raise", "terminated")
SPAWNED = ("return", "os._exit")


def record_until(is_over: Callable[[], bool], queue: SimpleQueue[int]) -> None:
    """Put and get until it is over."""
    while not is_over():
        queue.put(1)
        queue.get()
        time.sleep(PAUSE_S)


def work(end: str, started: SimpleQueue[str], own: SimpleQueue[int], go: Event) -> None:
    """Run as a child: exit in this way once the event is set."""
    own.put(1)
    own.get()
    started.put(end)
    record_until(go.is_set if end != "terminated" else lambda: False, own)
    if end == "sys.exit":
        sys.exit(3)
    if end == "os._exit":
        os._exit(4)
    if end == "raise":
        raise ValueError("the worker's own")


def main() -> None:
    if sys.argv[1] == "hook":
        import mpwatch

        assert mpwatch.instrument()
    contexts: list[Any] = [*map(multiprocessing.get_context, ("fork", "spawn"))]
    fork, spawn = contexts
    started, go = spawn.SimpleQueue(), spawn.Event()
    children, queues = [], []
    for context, ends in ((fork, (*FORKED, "terminated")), (spawn, SPAWNED)):
        for end in ends:
            queues.append(context.SimpleQueue())  # a spawned child opens its lock later, by name
            args = (end, started, queues[-1], go)
            children.append(context.Process(target=work, args=args, daemon=True))
            children[-1].start()
    for _ in children:
        started.get()
    print("ready", flush=True)
    record_until(lambda: bool(select.select([sys.stdin], [], [], 0)[0]), fork.SimpleQueue())
    go.set()
    children[FORKED.index("terminated")].terminate()
    for child in children:
        if child is not children[len(FORKED)]:  # it is left for the exit of this process
            child.join()
            print(child.name, child.exitcode, flush=True)
    sys.exit(5)


if __name__ == "__main__":
    main()
