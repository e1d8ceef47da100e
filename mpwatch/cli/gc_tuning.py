"""Thresholds of the cyclic garbage collector while a command runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

START = 200_000
"""Net allocations that start a collection, in place of Python's 700 (2,000 from 3.13): more than
the start of a command or one sample needs."""
RUNNING = 50_000
"""The same for a dashboard: such a collection takes 20 ms.

Each sample of a job allocates thousands of small values, and reference counts free those of the
sample before; cycles are rare. With a collection every 700 objects, the collector took a tenth of
all the cpu time of a dashboard (64 workers, Python 3.11), and as much of a start."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect rarely inside the context; restores the thresholds, for callers of `main`."""
    before = gc.get_threshold()
    gc.set_threshold(START, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def set_aside_what_is_loaded() -> None:
    """Exclude all existing objects (modules, classes, styles) from later collections.

    For long-running commands, once everything is imported.
    """
    gc.freeze()
    gc.set_threshold(RUNNING, *gc.get_threshold()[1:])
