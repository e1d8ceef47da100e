"""Waits for a condition that a notification sent before them does not end, as the source shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, user_frame
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Thread
from mpwatch.model.source_code import Mark


class UncheckedWait(NamedTuple):
    """A thread that waits without having looked whether what it waits for is there."""

    frame: Frame
    """The line of the program that waits."""
    mark: Mark
    wakes: Mark | None
    """The statement that notifies, where it was read."""

    @property
    def cause(self) -> str:
        """Why the wait may not end."""
        condition, data, changed_in, function, line = self._parts
        notifies = f"`{self.wakes.statement.text}`" if self.wakes is not None else condition
        return (
            f"{mark_words(self.mark)} waits before anything in {self.mark.function} has looked at "
            f"{data}. {function} changes {data} in line {changed_in} and notifies in line {line} "
            f"({notifies}); that wakes up only what waits at that moment. Where it came while the "
            "one that waits now did something else, it is lost: what was sent lies there, and only "
            "one more notification would end the wait. A limit after which the same wait begins "
            "again changes nothing."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        condition, data, *_ = self._parts
        return (
            f"Look at {data} before waiting, in the same block that takes {condition}: "
            f"{condition}.wait_for(lambda: ...) with what shows that something is there (or that "
            "it was closed), or `while` nothing is there: wait(). A longer or shorter limit, "
            "notify_all() or faster processes do not help."
        )

    @property
    def _parts(self) -> tuple[str, str, str, str, str]:
        condition, data, changed_in, function, line = self.mark.about.rsplit(", ", 4)
        return condition, data, changed_in, function, line


def unchecked_wait(index: Index, thread: Thread) -> UncheckedWait | None:
    """The wait of this kind that a thread is in; `None` for another one."""
    found = marks(index, "unchecked-wait")
    frame = user_frame(thread.stack) if found else None
    if frame is None:
        return None
    line = source_of(index, frame)
    number = line.statement.line if line is not None else frame.line
    at = (frame.file, frame.function, number)
    for mark in found:
        if (mark.file, mark.function, mark.statement.line) != at or mark.about.count(", ") < 4:
            continue
        _, _, _, function, notified_in = mark.about.rsplit(", ", 4)
        wakes = (
            each
            for each in marks(index, "wakes")
            if (each.file, each.function) == (mark.file, function)
            and str(each.statement.line) == notified_in
        )
        return UncheckedWait(frame, mark, next(wakes, None))
    return None


def missed_among(index: Index, threads: Sequence[Thread]) -> tuple[Thread, UncheckedWait] | None:
    """The first of some threads at rest that most likely has missed a notification.

    Returns:
        `None` where one of them joins others, and all of these wait for a notification: consumers
        that nothing has told to end wait like that as well.
    """
    found = [(each, wait) for each in threads if (wait := unchecked_wait(index, each)) is not None]
    joining = [each for each in threads if _joins(each)]
    if joining and len(found) + len(joining) == len(threads):
        return None
    return found[0] if found else None


def _joins(thread: Thread) -> bool:
    """Whether a thread waits for the end of a process or of another thread."""
    wait, own = thread.waits_on, own_frames(thread.stack)
    is_child = wait is not None and wait.kind == "child"
    return (
        is_child or calls(own, "threading.py:join") or calls(own, "multiprocessing/process.py:join")
    )
