"""A process for which others wait, and whose loop goes round without anything to do.

It has taken what they asked for, or never got it. Its source shows what keeps a round from work.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.diagnose.analysis.idle_time import (
    last_transfer_s,
    mean_cpu_percent,
    quiet_s,
    woken_per_s,
)
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, at_line
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.source.lines import line_at
from mpwatch.diagnose.analysis.source.origins import origins_at
from mpwatch.diagnose.analysis.stack_patterns import main_thread, own_threads
from mpwatch.diagnose.analysis.throughput.shares import doing_words, has_come_back, shares
from mpwatch.diagnose.analysis.waits.blockages import (
    USUAL_FACTOR,
    Blockage,
    at_one_line_s,
    blockages,
    usual_pause_s,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import IdleRound, OriginKind, OriginStep, SourceLine, Statement

TOLD_S = 20.0
"""For so long none has been answered, and the loop has slept at one line."""
UNSURE_S = 30.0
"""The same, where nothing shows that a request is held back."""
LOOPS_PERCENT = 25.0
"""CPU use of a loop that sleeps for a millisecond in each round, on a slow core."""
WORKS_PERCENT = 5.0
OFTEN = 4.0
"""Rounds in the time in which none was answered, at least: one long sleep is no loop."""
_ELSEWHERE: frozenset[OriginKind] = frozenset(("clock", "file"))
"""What a loop waits for that no process of the job makes."""


class IdleServer(Struct, frozen=True):
    """A process whose loop finds nothing to do, and those that wait for it."""

    process: Process
    waiters: tuple[Process, ...]
    for_s: float
    """For how long none of them has got anything."""
    lasted: str
    """The same in words."""
    line: SourceLine
    """At which it sleeps."""
    idle: IdleRound
    is_likely: bool
    """Whether its source shows what keeps requests back, and nothing that may come from outside."""
    does: str
    """What its main thread does, as shares of its time."""
    woken_per_s: float | None
    quiet: str
    """For how long it has neither sent nor read anything, in words; empty where it has."""

    @property
    def place(self) -> str:
        """`engine.py:113 step`."""
        return f"{_base(self.line.file)}:{self.line.statement.line} {self.line.function}"

    @property
    def summary(self) -> str:
        """What is seen."""
        has = "has" if len(self.waiters) == 1 else "have"
        return (
            f"{called(self.process)} has answered none of {all_called(self.waiters, NAMED)}, which "
            f"{has} waited {self.lasted} for it: its loop goes round, finds nothing to do and "
            f"sleeps at {self.place}"
        )

    @property
    def evidence(self) -> Iterator[str]:
        """What each does, and how the loop comes to have nothing to do."""
        idle, unless = self.idle, self._at(self.idle.unless)
        often = "" if self.woken_per_s is None else f"; it wakes up {self.woken_per_s:.0f} times/s"
        if self.does:
            yield f"{called(self.process)}: {self.does}{often}"
        if self.quiet:
            yield f"{called(self.process)} has neither sent nor read anything for {self.quiet}"
        for each in self.waiters[:NAMED]:
            yield f"{called(each)} waits{at_line(main_thread(each))}"
        own = _base(self.line.file)
        yield (
            f"it sleeps under `{idle.condition.text}` ({own}:{idle.condition.line}), after "
            f"`{idle.given.text}` ({own}:{idle.given.line}): {idle.function}() adds to that by "
            f"{self._at(idle.adds)}, and {unless} leaves before"
        )
        if idle.first is not None and idle.container and not idle.first.text.startswith("for "):
            yield (
                f"{self._at(idle.first)} looks at the first of {idle.container} in each round, and "
                "leaves it there until that condition is over"
            )
        if idle.because is not None:
            yield f"that condition holds by {_step(idle.because)} in {idle.because.function}()"

    @property
    def cause(self) -> str:
        """Why it answers none."""
        idle, unless = self.idle, self._at(self.idle.unless)
        because = f" (by {_step(idle.because)})" if idle.because is not None else ""
        if not idle.container:
            return (
                f"Each round of its loop sleeps because {idle.function}() has given nothing. It "
                f"may be that {unless}{because} leaves in every round before {self._at(idle.adds)}"
                ", that the requests have not reached it, or that there is nothing to do yet."
            )
        sure = "Most likely" if self.is_likely else "It may be that"
        return (
            f"{sure} the first of {idle.container} is never let through: {unless}{because} leaves "
            f"each round before {self._at(idle.adds)}. Those behind it wait as well, however "
            "little they need. Either it needs more than there is in all, or it waits for what "
            "nothing gives back: no other process of the job is at work that could. Otherwise the "
            f"requests have not reached {idle.container}."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        look = f"mpwatch dump --locals {self.process.pid} shows the values"
        if not self.idle.container:
            return (
                f"See which condition of {self.idle.function}() holds ({look}), and log it in the "
                "loop when nothing was chosen for long. Nothing is wrong if there is nothing to do "
                "yet."
            )
        return (
            f"Compare what the first of {self.idle.container} needs with all that there is "
            f"({look}). Refuse with an error what can never pass {self._at(self.idle.unless)}, "
            f"where it comes in and there too, or go on with the next of {self.idle.container} in "
            "place of leaving. Longer time limits of those that wait, or to start them anew, do "
            "not help."
        )

    def _at(self, statement: Statement) -> str:
        return f"`{statement.text}` ({_base(self.idle.file)}:{statement.line})"


def _base(file: str) -> str:
    return file.rpartition("/")[2]


def _step(step: OriginStep) -> str:
    return f"`{step.statement.text}` ({_base(step.file)}:{step.statement.line})"


@derived
def idle_servers(index: Index) -> tuple[IdleServer, ...]:
    """The processes at the end of waits whose loops find nothing to do, while no other one works.

    A job that works may bring about what such a loop waits for, and one that has paused for as
    long before may have a pace.
    """
    if not any(line.idle is not None for line in index.snapshot.source):
        return ()
    found = (_idle_server(index, each) for each in blockages(index))
    return tuple(each for each in found if each is not None)


def _idle_server(index: Index, blockage: Blockage) -> IdleServer | None:
    process, waiters, for_s = blockage.process, blockage.waiters, blockage.waited_s
    if blockage.reason not in ("computes", "polls") or not waiters or for_s < TOLD_S:
        return None
    line = _idle_line(index, process)
    if line is None or line.idle is None or not _goes_round(index, process, for_s):
        return None
    if has_come_back(index, process) or for_s < USUAL_FACTOR * usual_pause_s(index, waiters[0]):
        return None
    if _others_work(index, process, waiters):
        return None
    origins = origins_at(index, line.file, line.idle.condition.line)
    is_elsewhere = any(each.kind in _ELSEWHERE for each in origins) or _has_outside(index, process)
    is_likely = bool(line.idle.container) and not is_elsewhere
    if not is_likely and (for_s < UNSURE_S or (is_elsewhere and not line.idle.container)):
        return None
    quiet = index.snapshot.at_s - last_transfer_s(index, process)
    return IdleServer(
        process,
        waiters,
        for_s,
        index.lasting(for_s),
        line,
        line.idle,
        is_likely,
        doing_words(index, process) or "",
        woken_per_s(index, process),
        index.lasting(min(quiet, for_s)) if TOLD_S <= quiet < float("inf") else "",
    )


def _idle_line(index: Index, process: Process) -> SourceLine | None:
    """The line at which a process sleeps most for want of work; `None` if it is no such."""
    asleep = [each for each in shares(index, process) if each.activity.kind == "sleeping"]
    asleep.sort(key=lambda each: -each.share)
    lines = (line_at(index, each.activity.place) for each in asleep if each.activity.place)
    # A stack that is older than its sleep is at another line.
    return next((e for e in lines if e is not None and "sleep(" in e.statement.text), None)


def _goes_round(index: Index, process: Process, for_s: float) -> bool:
    """Whether its main thread has only slept again and again at that line, and no other one runs.

    A thread beside it may work for it, as one that waits for a device does.
    """
    if at_one_line_s(index, process.process) < TOLD_S:
        return False
    cpu_percent, woken = mean_cpu_percent(process, index.history), woken_per_s(index, process)
    if cpu_percent is None or cpu_percent > LOOPS_PERCENT:
        return False
    if woken is None or woken * for_s < OFTEN:
        return False
    others = [each for each in own_threads(index, process) if each is not main_thread(process)]
    return all((each.still_s or 0.0) >= TOLD_S for each in others)


def _others_work(index: Index, process: Process, waiters: tuple[Process, ...]) -> bool:
    """Whether another process is at work, which may be for that one."""
    known: set[ProcessId] = {process.process, *(each.process for each in waiters)}
    return any(
        (quiet_s(each, index) or 0.0) < TOLD_S
        or (mean_cpu_percent(each, index.history) or 0.0) > WORKS_PERCENT
        for each in index.snapshot.living()
        if each.process not in known and each.role not in SERVICE_ROLES and each.sample.state != "Z"
    )


def _has_outside(index: Index, process: Process) -> bool:
    """Whether it has a connection by TCP to what is not known to be of this job."""
    held = {link.channel for each in index.snapshot.living() for link in each.sample.links}
    return any(
        (link.address or "").startswith("tcp ")
        and " > " in (link.address or "")
        and (link.other_end is None or link.other_end not in held)
        for link in process.sample.links
    )
