"""Processes that end in all kinds of ways: `hook_ends.py WAY`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from typing import Any

import mpwatch


class Unloadable:
    """Pickles well, and raises where it is unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def nothing(*_: Any) -> None:
    return None


def leave_with_code() -> None:
    sys.exit(3)


def leave_at_once() -> None:
    os._exit(4)


def leave_when_asked() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    while True:  # a signal may be taken by a thread that has just been created
        time.sleep(0.1)


def raise_and_exit() -> None:
    try:
        raise LookupError("the real reason")
    except LookupError:
        sys.exit(1)


class Actor(multiprocessing.Process):
    """Replaces `run`, as many programs do; its parent handles an exception of its own."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails

    def run(self) -> None:
        if self.fails:
            raise LookupError("the real reason")


def run_derived(fails: bool) -> None:
    child = Actor(fails)
    try:
        raise OSError("of the parent")
    except OSError:
        child.start()
    child.join()
    print("code", child.exitcode, flush=True)


def run(target: Any, *arguments: Any, method: str = "fork") -> None:
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=target, args=arguments)
    child.start()
    child.join()
    print("code", child.exitcode, flush=True)


def die_in_main() -> None:
    door = threading.Event()
    threading.Thread(target=door.wait, name="lingering").start()
    raise LookupError("main is over")


def method_taken() -> None:
    multiprocessing.Queue()
    try:
        multiprocessing.set_start_method("spawn")
    except RuntimeError as error:
        print("error", error)
    try:
        multiprocessing.set_start_method("fork")
    except RuntimeError as error:
        print("error", error)
    show()


def sharer_fails() -> None:
    """Request a handle that the resource sharer never created."""
    from multiprocessing import resource_sharer

    read, write = os.pipe()
    handle: Any = resource_sharer.DupFd(read)
    handle._id = (handle._id[0], 99)
    try:
        handle.detach()
    except EOFError as error:
        print("error", type(error).__name__)
    resource_sharer.stop()
    os.close(write)
    show()


def dead_producer() -> None:
    """Fetch a descriptor of a process that has ended; another is still to be fetched."""
    from multiprocessing import resource_sharer

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=offer, args=(queue,))
    process.start()
    process.join()
    try:
        queue.get().detach()
    except OSError as error:
        print("error", isinstance(error, (FileNotFoundError, ConnectionRefusedError)))
    handle = resource_sharer.DupFd(1)
    show()
    handle.detach()
    resource_sharer.stop()


def offer(queue: Any) -> None:
    from multiprocessing import resource_sharer

    queue.put(resource_sharer.DupFd(1))


def with_pipes() -> None:
    """Start a child of each method that gets three descriptors."""
    for method in ("fork", "spawn", "forkserver"):
        context: Any = multiprocessing.get_context(method)
        pipes = [context.Pipe()[0] for _ in range(3)]
        process = context.Process(target=nothing, args=(pipes,))
        process.start()
        process.join()
    show()


def show() -> None:
    from mpwatch.hook import current

    session = current()
    assert session is not None
    for _, note in session.notes.since(0):
        # In one piece, for processes and threads that fail write their tracebacks meanwhile.
        sys.stdout.write(f"note {note.decode()}\n")
    print("sharer", session.gauges["sharer"]() if "sharer" in session.gauges else None)


def main() -> None:
    mpwatch.instrument()
    ways = {
        "code": lambda: run(leave_with_code),
        "at_once": lambda: run(leave_at_once),
        "asked": lambda: run(leave_when_asked),
        "hidden": lambda: run(raise_and_exit),
        "derived": lambda: run_derived(True),
        "derived_well": lambda: run_derived(False),
        "spawn": lambda: run(nothing, Unloadable(), method="spawn"),
        "forkserver": lambda: run(nothing, Unloadable(), method="forkserver"),
        "main": die_in_main,
        "method_taken": method_taken,
        "sharer": sharer_fails,
        "dead_producer": dead_producer,
        "with_pipes": with_pipes,
    }
    ways[sys.argv[1]]()


if __name__ == "__main__":
    main()
