"""How often Python looks for circles of garbage while a command runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

START = 200_000
"""Objects made and not let go of that begin a search, in place of Python's 700 (2,000 from 3.13):
more than a start or a single look makes."""
RUNNING = 50_000
"""The same for a dashboard: such a search takes 20 ms.

A reading of a job makes thousands of small values and lets go of those of the reading before, by
their reference counts. Looked for every 700 objects, circles that are hardly ever there took a
tenth of all the cpu time of a dashboard (64 workers, Python 3.11), and as much of a start."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Search rarely within; afterwards as before, for whoever calls commands as functions."""
    before = gc.get_threshold()
    gc.set_threshold(START, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def set_aside_what_is_loaded() -> None:
    """Never search again what is there now: modules, classes and styles, which stay to the end.

    For commands that run for long, once all is imported.
    """
    gc.freeze()
    gc.set_threshold(RUNNING, *gc.get_threshold()[1:])
