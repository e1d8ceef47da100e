"""Does what the hook observes while an audit hook refuses some events by an exception of a class.

Usage: `hook_audit_refuses.py bare|hook EVENT CLASS`. EVENT is the beginning of names, CLASS is
`own`, `base` (derived from BaseException), `RuntimeError`, `PermissionError` or `SystemExit`. What
each step has led to is printed: with the hook the same as without it.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


class Refused(Exception):
    pass


class Stopped(BaseException):
    pass


with_hook, prefix, name = sys.argv[1:]
KINDS: dict[str, type[BaseException]] = {
    "own": Refused,
    "base": Stopped,
    "RuntimeError": RuntimeError,
    "PermissionError": PermissionError,
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
}
kind = KINDS[name]
is_on = False
refusals = mmap.mmap(-1, mmap.PAGESIZE)  # of children, too


def refuse(event: str, _arguments: object) -> None:
    if is_on and event.startswith(prefix):
        refusals[0] = 1
        raise kind(event)


def step(what: str, call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - the output of this program
        result = repr(error)
    os.write(1, f"{what}: {result}\n".encode())


def forked() -> int:
    """The exit code of a child that uses a queue."""
    pid = os.fork()
    if pid == 0:
        step("put in a child", lambda: queue.put(1))
        step("get in a child", queue.get)
        step("threads of a child", threading.active_count)
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def threads_at_a_fork() -> int:
    """Threads for the kernel when a child is forked."""
    found: list[int] = []
    observed.append(lambda: found.append(os.stat("/proc/self/task").st_nlink - 2))
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    observed.clear()
    return found[0]


def started() -> Any:
    process = context.Process(target=queue.put, args=(2,))
    process.start()
    process.join()
    return process.exitcode


observed: list[Callable[[], None]] = []
# Registered before the hook is loaded, so that it runs after the steps of the hook.
os.register_at_fork(before=lambda: [each() for each in observed])
context = multiprocessing.get_context("fork")
queue = context.SimpleQueue()
sys.addaudithook(refuse)
if with_hook == "hook":
    import mpwatch

    assert mpwatch.instrument()
    time.sleep(0.3)  # until it waits for observers
is_on = True
step("put", lambda: queue.put(0))
step("get", queue.get)
step("threads at a fork", threads_at_a_fork)
step("fork", forked)
step("process", started)
idle = threading.Event()
thread = threading.Thread(target=idle.wait)
step("thread", thread.start)
step("fork of several threads", forked)
idle.set()
thread.join()
is_on = False
if with_hook == "hook":
    assert refusals[0], "nothing that the hook does was refused"
is_on = True
