"""Does what the hook observes while an audit hook refuses some events by an exception of a class.

Usage: `hook_audit_refuses.py bare|hook EVENT CLASS HOW [torch]`. EVENT is the beginning of names,
CLASS is `own`, `base` (derived from BaseException), `needing` (see there), or a
built-in one. HOW is `function`, `passing`
for a function that passes the arguments of the event on to another one, or the path of a library in
C: see `tests/integration/hook/test_audit_hooks.py`. What each step has led to is printed: with the
hook the same as without it. With `torch` the program also uses torch, whose own events are not
refused, only those of functions that the hook itself calls.
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


class Needing(Exception):
    """Its `__init__` in Python needs an argument."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


with_hook, prefix, name, how, *more = sys.argv[1:]
KINDS: dict[str, type[BaseException]] = {
    "own": Refused,
    "base": Stopped,
    "needing": Needing,
    "RuntimeError": RuntimeError,
    "PermissionError": PermissionError,
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
}
kind = KINDS[name]
is_on = False
asking = threading.local()
refusals = mmap.mmap(-1, mmap.PAGESIZE)  # of children, too


def refuse(event: str, _arguments: object) -> None:
    if is_on and event.startswith(prefix) and (not more or is_of_the_hook()):
        refusals[0] = 1
        if kind is KeyboardInterrupt:
            raise kind  # as Ctrl-C: without a message
        raise kind(event)


def is_of_the_hook() -> bool:
    """Whether code of the hook has called what raises the event; that question is one, too."""
    if getattr(asking, "is_on", False):
        return False
    asking.is_on = True
    try:
        caller = sys._getframe(2)
        return "/mpwatch/hook/" in caller.f_code.co_filename
    finally:
        asking.is_on = False


def refuse_after_a_look(event: str, arguments: tuple[object, ...]) -> None:
    if is_on and event.startswith(prefix):
        look(event, *arguments)


def look(event: str, *_arguments: object) -> None:
    """Refuse; for some events one of the arguments is a frame, as for a trace function."""
    refuse(event, ())


def switch(is_now_on: bool) -> None:
    global is_on
    is_on = is_now_on
    if library is not None:
        library.refuse_now(int(is_now_on))


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
library: Any = None
if how == "function":
    sys.addaudithook(refuse)
elif how == "passing":
    sys.addaudithook(refuse_after_a_look)
else:
    import ctypes

    library = ctypes.PyDLL(how)
    first = ctypes.byref(ctypes.c_char.from_buffer(refusals))
    assert library.refuse(ctypes.py_object(kind), prefix.encode(), first) == 0
if more:
    import torch.multiprocessing
    import torch.utils.data
if with_hook == "hook":
    import mpwatch

    assert mpwatch.instrument()
    time.sleep(0.3)  # until it waits for observers
switch(True)
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
if more:
    tensors = torch.multiprocessing.get_context("fork").Queue()
    step("put tensors", lambda: [tensors.put(torch.zeros(9)) for _ in range(40)].clear())
    step("get tensors", lambda: sum(len(tensors.get()) for _ in range(40)))
    dataset = torch.utils.data.TensorDataset(torch.zeros(8))
    loader = torch.utils.data.DataLoader(dataset, num_workers=1)
    step("load", lambda: len(list(loader)))
switch(False)
if with_hook == "hook":
    assert refusals[0], "nothing that the hook does was refused"
switch(True)
