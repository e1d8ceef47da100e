"""A child that shares a large heap with its parent and is about to collect its garbage.

It prints its pid, and ends with its parent, when standard input is closed.
"""

import gc
import os
import signal
import sys
import time
from types import ModuleType

MODULES = 1_500
"""As many as torch brings along."""
PAGE_OBJECTS = 51
"""Objects as large as a module that fill a page."""


class Filler:
    """As large as a module, so that each module lies in a page of its own and a walk over all
    modules shows in the page faults."""

    __slots__ = tuple("abcde")


if __name__ == "__main__":
    heap: list[object] = []
    for number in range(MODULES):
        name = f"part{number}"
        sys.modules[name] = ModuleType(name)
        heap += [Filler() for _ in range(PAGE_OBJECTS)]
    heap += [[number] for number in range(200_000)]
    gc.collect()
    gc.disable()
    heap += [[number] for number in range(200_000)]
    gc.collect(1)  # so many objects are new since the last full collection that another one is due
    gc.set_threshold(700, 5, 1)
    gc.enable()
    child = os.fork()
    if child == 0:
        while os.getppid() != 1:
            time.sleep(0.02)
    print("ready", flush=True)
    print(child, flush=True)
    sys.stdin.read()
    os.kill(child, signal.SIGKILL)
