"""A thread that waits for a lock inside of a signal handler, which has interrupted its holder.

Handlers of Python run in the main thread, between any two instructions of what it was doing. From
Python 3.11 on a stack shows which functions native code has called; a handler is one of those. So
are properties and callbacks, so that a handler is told only of a process that handles signals.
"""

from __future__ import annotations

import re
import signal
from itertools import pairwise
from typing import NamedTuple

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.stack_patterns import user_frame
from mpwatch.diagnose.analysis.waits.lock_holders import waits_for_lock
from mpwatch.diagnose.analysis.waits.threads import HANDLED
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread

SHOWN = 8
_HANDLER = re.compile(r"(^|_)(on|handle|handler|sig\w*)(_|$)")
"""In the name of a handler, where the stack does not show what native code has called."""


class Interruption(NamedTuple):
    """Where the handler of a signal runs."""

    handler: Frame
    inside: Frame
    """The line that it has interrupted."""
    signals: str
    """Those that the process handles: `SIGUSR1 or SIGTERM`."""


def interruption(process: Process, thread: Thread) -> Interruption | None:
    """The outermost function of a stack that the handler of a signal has interrupted, if any."""
    caught = (process.sample.signals_caught or 0) & HANDLED
    if not caught or thread.tid != process.pid:
        return None
    own = own_frames(thread.stack)
    shows_native = any(frame.from_native for frame in own)
    found = None
    for above, below in pairwise(own):
        if is_library(above) or is_library(below) or above.function.startswith(("_" * 2, "<")):
            continue
        is_named = _HANDLER.search(above.function.lower()) is not None
        if above.from_native if shows_native else is_named:
            found = above, below
    if found is None:
        return None
    names = [each.name for each in signal.Signals if caught >> (each - 1) & 1]
    return Interruption(*found, " or ".join(names))


def waits_for_an_interrupted_holder(process: Process, thread: Thread) -> Mechanism | None:
    """Why a thread waits for a lock that it has taken itself, below the handler of a signal."""
    found, place = interruption(process, thread), user_frame(thread.stack)
    if found is None or place is None or not waits_for_lock(thread):
        return None
    name, handler = called(process), frame_words(found.handler)
    mine = (frame for frame in own_frames(thread.stack) if not is_library(frame))
    stack = list(dict.fromkeys(map(frame_words, mine)))  # a handler may interrupt itself
    return Mechanism(
        cause=(
            f"{found.handler.function}() runs in the middle of {frame_words(found.inside)}, as "
            f"the handler of a signal does; {name} handles {found.signals}. It waits at "
            f"{frame_words(place)} to take a lock that {found.inside.function}() most likely "
            "holds: that one goes on, and can release the lock, only when the handler returns. A "
            "Lock cannot be taken twice, not even by its holder."
        ),
        advice=(
            f"Let the handler ({handler}) only set a flag, and do its work between two calls of "
            f"{found.inside.function}(), where the lock is not held. An RLock would let the "
            "handler see the half-done change that the lock protects."
        ),
        evidence=(f"its stack, innermost first: {' <- '.join(stack[:SHOWN])}",),
        headline=(
            f"{name} waits at {frame_words(place)} for a lock that it most likely holds itself: a "
            f"signal handler ({handler}) has interrupted {found.inside.function}()."
        ),
    )
