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
    """As large as a module, so that each module has a page to itself and a look at all shows."""

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
    gc.collect(1)  # so much is new since the last collection of all that another one is due
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
