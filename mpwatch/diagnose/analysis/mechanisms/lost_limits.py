"""A wait without an end, at a statement of the program that gives it a time limit.

The kernel shows the limit of poll(2) and epoll_wait(2), and that of a lock: where it shows none,
the number that the statement gives is below zero, or there is none. The source tells how it is
computed, by the calls that the stack shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import Case, Mechanism
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.source.origins import origins_at
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.model.findings import Finding
from mpwatch.model.samples import READS, Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Origin, OriginStep
from mpwatch.model.waits import WaitChain

_ZMQ = "/zmq/"
"""In the path of the library that passes its limit on to poll() as it is (pyzmq 27)."""
SHOWN = 2
"""Lines of evidence about a chain."""
_CALLS: Mapping[str, str] = {"poll": "poll()", "futex": "acquire()", "semaphore": "acquire()"}


class LostLimit(Struct, frozen=True):
    """A thread in a wait without an end, and the limit that its line gives."""

    process: Process
    place: str
    """`message_queue.py:26 dequeue`."""
    call: str
    origin: Origin

    @property
    def is_below_zero(self) -> bool:
        """Whether the source shows nothing but a time that was over."""
        return self.origin.kind == "time-left" and self.origin.is_certain

    @property
    def evidence(self) -> tuple[str, ...]:
        """What the line gives and the kernel shows, and how that is computed."""
        limit = self.origin.names[0]
        below = "-1 or None" if self.call == "acquire()" else "below zero or None"
        what = "below zero" if self.is_below_zero else below
        words = (
            f"{called(self.process)} gives {self.call} the limit {limit} at {self.place}, and the "
            f"kernel shows none for that wait: so it is {what}"
        )
        steps = self.origin.steps
        passing = [_step_words(each) for each in steps[:-1]]
        by = f", passed on by {' and '.join(passing)}" if passing else ""
        computed = f"{limit} comes from {_step_words(steps[-1])}{by}" if steps else ""
        return (words, computed) if computed and self.origin.kind == "time-left" else (words,)

    @property
    def computed_at(self) -> str:
        """The line that computes it: `executor.py:65 get_response`."""
        steps = self.origin.steps
        return _place(steps[-1]) if steps else self.place

    @property
    def cause(self) -> str:
        """Why it waits for ever."""
        name, left = called(self.process), self.origin.about
        return (
            f"{self.call} takes a limit below zero for none. Most likely the time was over before "
            f"{name} came to this wait, because it had to wait for something earlier that took "
            f"longer than the limit: `{left}` ({self.computed_at}) is below zero then, and nothing "
            "on the way to the call makes it 0. So the time limit, which was to end this wait "
            f"with an error, made it one without an end: {name} waits for what was lost, or was "
            "dropped because its time was over."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        return (
            f"Let it not fall below zero: max(0, {self.origin.about}) at {self.computed_at}, so "
            f"that {self.call} returns at once and the caller gets its error. Where requests wait "
            "for one another, measure the deadline of each from when its own wait begins (or the "
            "one before it is done), not from when it was sent. A longer limit only makes this "
            "rarer, and to start the other processes anew does not help."
        )


def _step_words(step: OriginStep) -> str:
    return f"`{step.statement.text}` at {_place(step)}"


def _place(step: OriginStep) -> str:
    return f"{step.file.rpartition('/')[2]}:{step.statement.line} {step.function}"


def lost_limit(index: Index, process: Process, thread: Thread | None) -> LostLimit | None:
    """The limit that the line of a thread gives to its wait, where the kernel shows none.

    `None` also where the source shows that the callers give none.
    """
    wait = thread.waits_on if thread is not None else None
    call = _CALLS.get(wait.kind) if wait is not None and wait.timeout_s is None else None
    if thread is None or call is None:
        return None
    frames, frame = own_frames(thread.stack), user_frame(thread.stack)
    if frame is None or not (frames[0] == frame or _ZMQ in frames[0].file):
        return None  # in a library, which may wait in rounds, or without a limit by itself
    line = source_of(index, frame)
    if line is None or f".{call[:-1]}" not in line.statement.text:
        return None
    callers = frames[frames.index(frame) + 1 :] if frame in frames else ()
    found = [
        each
        for each in origins_at(index, frame.file, line.statement.line)
        if each.names and each.kind in ("time-left", "") and _is_on(index, each, callers)
    ]
    found.sort(key=lambda each: (each.kind != "time-left", not each.is_certain))
    return LostLimit(process, frame_words(frame), call, found[0]) if found else None


def _is_on(index: Index, origin: Origin, callers: Sequence[Frame]) -> bool:
    """Whether a stack is in the calls by which a limit was passed on."""
    lines = [
        (each.file, each.function, line.statement.line if line is not None else each.line)
        for each in callers
        for line in (source_of(index, each),)
    ]
    calls = [each for each in origin.steps if each.is_call]
    return all((each.file, each.function, each.statement.line) in lines for each in calls)


def below_zero(case: Case) -> Mechanism | None:
    """A process of a chain whose limit was over before it began to wait.

    Of a dead end only the last one: the others wait for that.
    """
    waiters = case.waiters if case.chain.verdict == "cycle" else case.waiters[-1:]
    found = (lost_limit(case.index, each.process, each.thread) for each in waiters)
    lost = next((each for each in found if each is not None and each.is_below_zero), None)
    if lost is None:
        return None
    others = [each for each in case.waiters if each.process is not lost.process]
    cause = lost.cause
    if others and all(each.edge.kind in READS for each in others):
        verb = "waits" if len(others) == 1 else "wait"
        cause += (
            f" {all_called(each.process for each in others)} only {verb} for what it would send "
            "next."
        )
    return Mechanism(
        cause=cause,
        advice=lost.advice,
        evidence=lost.evidence,
        headline=(
            f"{called(lost.process)} waits for ever at {lost.place}, where it gives a time limit: "
            "most likely that was below zero, which means none."
        ),
    )


def limits_of(index: Index, chain: WaitChain) -> tuple[str, ...]:
    """What the threads of a chain give as limits and the kernel does not show, as evidence."""
    found: list[str] = []
    for link in chain.links[chain.cycle_at :]:
        process = index.snapshot.get(link.process)
        threads = process.threads if process is not None else ()
        thread = next((each for each in threads if each.tid == link.tid), None)
        lost = lost_limit(index, process, thread) if process is not None else None
        found += lost.evidence if lost is not None else ()
    return tuple(dict.fromkeys(found))[:SHOWN]


def with_lost_limit(index: Index, finding: Finding, process: Process) -> Finding:
    """A finding about a process that waits, with the limit that it gives and the kernel does not.

    Of its main thread.
    """
    lost = lost_limit(index, process, main_thread(process))
    if lost is None:
        return finding
    finding = replace(finding, evidence=(*finding.evidence, *lost.evidence))
    if not lost.is_below_zero:
        return finding
    return replace(
        finding,
        cause=f"{lost.cause} Otherwise: {finding.cause[:1].lower()}{finding.cause[1:]}",
        advice=f"{lost.advice} Otherwise: {finding.advice[:1].lower()}{finding.advice[1:]}",
    )
