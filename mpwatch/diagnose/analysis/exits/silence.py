"""Processes that were ended for their silence while they were at work.

What ends them looks at the time since they have shown that they are alive. Where that is done by
the thread that works, or by a coroutine of its event loop, it is not done before the work returns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    functions_of,
    main_thread,
    runs_event_loop,
    user_frame,
)
from mpwatch.diagnose.analysis.throughput.shares import main_account
from mpwatch.model.account import NO_CORE, RUNNING_KINDS, Activity, ThreadAccount
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark
from mpwatch.model.units import seconds_text

By: TypeAlias = Literal["thread", "loop", "alone"]
"""`thread`: the thread at work notes the time itself. `loop`: a coroutine of its event loop does.
`alone`: the process has no other thread with Python code."""
LEAST_S = 4.0
"""Of the time at one line: one bucket of the account, or nearly."""
_HERE = 0.9
"""The share of a bucket in which it was at one line, as the readings of others are few."""
_WORKS_FOR = ("file", "gpu")
"""What a wait of a process at work is for. Others are for processes or threads of the job: a
process that waits for those may never go on, which is the cause then. One that waits for a socket
may be idle."""
_RUNS = "asyncio/base_events.py:_run_once"
_LINE = re.compile(r" in line (\d+)$")


class AtWork(Struct, frozen=True):
    """A process that was at one line, or in one function, for long when it was ended.

    What has ended it has compared times first.
    """

    process: Process
    place: str
    """`at cleaning.py:18 normalize`, or `in normalize() of cleaning.py`."""
    spent_s: float
    """How long it was there by then, at least."""
    doing: Activity
    by: By
    judged: Mark
    """The condition that compares the time."""
    beat: Mark | None
    """What notes the time in the process; `None` where that does not show."""

    @property
    def condition(self) -> str:
        """The condition as words that end a sentence about the kill."""
        statement = self.judged.statement
        return f", under `{statement.text}` in line {statement.line}"

    @property
    def brief(self) -> str:
        """For the summary, after the way it ended."""
        was = "waited" if self.doing.target == "socket" else "was at work"
        was = "slept" if self.doing.kind == "sleeping" else was
        return f", while it {was} {self.place}"

    @property
    def cause(self) -> str:
        """What it did, and why it did not show that it is alive."""
        name, spent = called(self.process), seconds_text(self.spent_s)
        noted, _, limit = self.judged.about.split(", ", 2)
        doing = {"computing": "it computed", "spinning": "it computed", "sleeping": "it slept"}.get(
            self.doing.kind, f"it waited for {self.doing.what or 'a call to return'}"
        )
        if self.doing == NO_CORE:
            doing = "it waited for a free core"
        return (
            f"{name} had been {self.place} for at least {spent} by then, where {doing}. "
            f"{self._silence} The condition compares the time since `{noted}` was noted with "
            f"{limit}, which does not tell a process at work from one that is stuck."
        )

    @property
    def _silence(self) -> str:
        if self.by == "alone" or self.beat is None:
            return (
                "It had no other thread with Python code: whatever was to show that it is alive "
                "had to come from this one, after that."
            )
        beat = mark_words(self.beat)
        if self.by == "loop":
            return (
                f"What shows that it is alive, {beat}, is done by a coroutine of the event loop "
                "that this blocks: no coroutine gets its turn before it has returned."
            )
        return (
            f"What shows that it is alive, {beat}, is done by the same thread, before and after "
            "that only."
        )

    @property
    def advice(self) -> str:
        """How to show that it is alive while it works."""
        noted = self.judged.about.partition(", ")[0]
        longer = (
            " A longer limit helps only where it is longer than the longest such call; more "
            "frequent signs of life from the same thread do not."
        )
        if self.by == "loop":
            return (
                f"Run what takes so long {self.place} outside of the event loop: await "
                "asyncio.to_thread(...), loop.run_in_executor(), or an asynchronous client. Code "
                f"that holds the GIL for long needs a process of its own.{longer}"
            )
        shows = (
            "et a thread of its own show that the process is alive: it gets its turn every few "
            "milliseconds while Python code runs or a call waits. Where a call of native code "
            "keeps the GIL for long, that needs a process of its own. Or do it between the parts "
            f"of the work.{longer}"
        )
        if self.beat is not None:
            return f"L{shows}"
        return (
            f"If `{noted}` is when it was last heard of, l{shows} If `{noted}` is when the work "
            "began, the limit is one for the work: make it longer than the longest work, or the "
            "work shorter."
        )


def silent_at_work(
    index: Index, process: Process, sender: str | None, kill: Mark | None
) -> AtWork | None:
    """What a process was at when it was ended after a comparison of times.

    Args:
        index: The snapshot.
        process: One that a signal has ended.
        sender: As `sender_of` says it, `main (12) at guard.py:25`.
        kill: The statement that has most likely sent the signal, without a sender.

    Returns:
        `None` where it was in several functions, or for a shorter time than the limit where that is
        a number, or where another thread may have shown that it is alive.
    """
    judged = _judged(index, sender, kill)
    thread, account = main_thread(process), main_account(index, process.process)
    frame = user_frame(thread.stack) if thread is not None else None
    if judged is None or thread is None or frame is None or account is None:
        return None
    found = _beat_of(index, process, judged, frame)
    limit_s = _number(judged.about.split(", ", 2)[2])
    if found is None or not _is_at_work(account.now):
        return None
    by, beat = found
    if by == "alone" and (account.now.target == "socket" or account.now.kind == "sleeping"):
        return None  # it may be idle
    is_noted_here = beat is not None and (beat.file, beat.function) == (frame.file, frame.function)
    places = _places(frame)[: 1 if is_noted_here else None]
    spent = [(_spent_s(account, place), words) for place, words in places]
    spent_s, words = max(spent, key=lambda each: each[0])  # the line, where both are as long
    if spent_s < LEAST_S or spent_s + BUCKET_S < limit_s:
        return None
    return AtWork(process, words, spent_s, account.now, by, judged, beat)


def _places(frame: Frame) -> tuple[tuple[re.Pattern[str], str], ...]:
    """A line and its function, as patterns of `Activity.place`, and as words."""
    file = frame.file.rpartition("/")[2]
    return (
        (re.compile(re.escape(frame_words(frame))), f"at {frame_words(frame)}"),
        (
            re.compile(rf"{re.escape(file)}:\d+ {re.escape(frame.function)}"),
            f"in {frame.function}() of {file}",
        ),
    )


def _judged(index: Index, sender: str | None, kill: Mark | None) -> Mark | None:
    """The comparison of times under which a signal was sent, if it is only one."""
    places: set[tuple[str, int]] = set()
    conditions: set[tuple[str, int]] = set()
    if sender is not None:
        site = sender.rpartition(" at ")[2]
        file, _, line = site.rpartition(":")
        if line.isdecimal():
            places.add((file, int(line)))
    kills = [kill] if kill is not None else marks(index, "kills")
    for each in kills:
        name = each.file.rpartition("/")[2]
        line_of = _LINE.search(each.about)
        if line_of and (kill is not None or (name, each.statement.line) in places):
            conditions.add((name, int(line_of[1])))
    found = [
        each
        for each in marks(index, "judges-silence")
        if (name := each.file.rpartition("/")[2])
        and (
            (name, each.statement.line) in conditions
            or any(
                name == file and each.statement.line < at <= int(each.about.split(", ", 2)[1])
                for file, at in places
            )
        )
    ]
    return found[0] if len(found) == 1 else None


def _is_at_work(now: Activity) -> bool:
    """Whether it ran, or waited for what no process of the job does."""
    return (
        now.kind in (*RUNNING_KINDS, "sleeping")
        or now == NO_CORE
        or (now.kind == "waiting" and now.target in (*_WORKS_FOR, "socket") and not now.providers)
    )


def _spent_s(account: ThreadAccount, place: re.Pattern[str]) -> float:
    """How long a thread was last at one place, without the bucket in which it came there."""
    spent_s = 0.0
    for bucket in reversed(account.buckets):
        seen = bucket.tally.seen
        here = sum(s for each, s in seen.items() if each == NO_CORE or place.fullmatch(each.place))
        if here < _HERE * sum(seen.values()):
            break
        spent_s += here
    return spent_s


def _number(limit: str) -> float:
    """A limit that is written as a number; 0 for any other."""
    try:
        return float(limit)
    except ValueError:
        return 0.0


def _beat_of(
    index: Index, process: Process, judged: Mark, frame: Frame
) -> tuple[By, Mark | None] | None:
    """Who notes the time in a process, and where; `None` where another thread may."""
    thread = main_thread(process)
    if thread is None:
        return None
    noted = judged.about.partition(", ")[0]
    beats = [e for e in marks(index, "notes-time") if e.about.partition(", ")[0] == noted]
    others = [each for each in process.threads if each.stack and each.tid != thread.tid]
    elsewhere = {one for each in others for one in functions_of(own_frames(each.stack))}
    if any((each.file, each.function) in elsewhere for each in beats):
        return None
    frames = own_frames(thread.stack)
    own = functions_of(frames)
    if runs_event_loop(thread) and not _is_in_the_loop(frames, frame):
        return None
    again = [each for each in beats if each.about.endswith("again")]
    at = (frame.file, frame.line)
    same = [each for each in again if (each.file, each.function) in own]
    if same and all((each.file, each.statement.line) != at for each in same):
        return "thread", same[0]
    in_loop = [each for each in again if each.about.endswith(", async again")]
    if in_loop and runs_event_loop(thread):
        return "loop", in_loop[0]
    return None if others else ("alone", None)


def _is_in_the_loop(frames: Sequence[Frame], frame: Frame) -> bool:
    """Whether an event loop has called a line, and is not idle below it."""
    outside = next((n for n, each in enumerate(frames) if calls([each], _RUNS)), len(frames))
    return frame in frames[:outside] and not calls(frames[:1], "selectors.py:select")
