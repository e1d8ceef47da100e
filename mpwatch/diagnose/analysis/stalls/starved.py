"""A writer that waits until nobody reads, while readers go on to come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism, at_line
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called, counted
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words
from mpwatch.diagnose.analysis.stack_patterns import main_thread, own_threads
from mpwatch.diagnose.analysis.waits.chains import wait_graph, waiting_behind
from mpwatch.diagnose.analysis.waits.counts import Admission, Entering, awaited_counts, entering
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s, is_busy
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread

STARVED_S = 10.0
"""Readers of a lock that is free now and then let a writer in before."""
OVERLAPPING = 2
"""Threads that have to go on: one alone leaves the count at 0 between its rounds."""
RECENT_PART = 0.3
"""Of the time of the wait: a reader that has not run for longer may keep the count above 0."""
SHOWN = 3


class Starved(Struct, frozen=True):
    """A thread that waits until a count is 0, and those that go on to add to it."""

    process: Process
    thread: Thread
    frame: Frame
    admission: Admission
    going_on: tuple[Entering, ...]
    for_s: float
    behind: tuple[Process, ...]
    """Processes that wait for the first one, as far as chains of waits show."""

    @property
    def who(self) -> str:
        """The process, or one of its threads besides the main one."""
        name = called(self.process)
        is_main = self.thread.tid == self.process.pid
        return name if is_main else f"thread {self.thread.name} of {name}"

    @property
    def others(self) -> tuple[Process, ...]:
        """The processes of those that go on, each once."""
        return tuple({each.process.process: each.process for each in self.going_on}.values())

    @property
    def adding(self) -> str:
        """Those that go on: the processes, or the other threads of the same one."""
        if self.others == (self.process,):
            return f"{counted(len(self.going_on), 'other thread')} of it"
        return all_called(self.others, SHOWN)


@derived
def starved(index: Index) -> tuple[Starved, ...]:
    """The threads that wait for a count which others keep above 0 by turns.

    None where a process has ended, which may have left it above 0, or where one of those that add
    to it is at rest where it may have done so: then that one is waited for.
    """
    gone = [each for each in index.snapshot.processes if each.ended is not None]
    if any(each.role not in SERVICE_ROLES for each in gone):
        return ()
    found = []
    for process in index.snapshot.living():
        for thread in own_threads(index, process):
            for_s = blocked_for_s(thread)
            counts = awaited_counts(index, thread)
            if not counts or for_s is None or for_s < STARVED_S:
                continue
            inside = [(admission, entering(index, admission)) for admission, _ in counts]
            if _may_have_stopped([each for _, those in inside for each in those], for_s):
                continue
            by_loop = [
                (a, tuple(e for e in those if _goes_on(e.thread, for_s))) for a, those in inside
            ]
            admission, going_on = max(by_loop, key=lambda each: len(each[1]))
            if len(going_on) >= OVERLAPPING:
                waiters, (_, frame) = waiting_behind(index, process), counts[0]
                one = Starved(process, thread, frame, admission, going_on, for_s, waiters)
                found.append(one)
    return tuple(found)


def _may_have_stopped(inside: Sequence[Entering], for_s: float) -> bool:
    """Whether a thread is at rest where it has added to a count, or may have done so."""
    at_rest = [each for each in inside if not _goes_on(each.thread, for_s)]
    has_blocks = any(each.block is not None for each in inside)
    return any(each.block is not None or not has_blocks for each in at_rest)


def _goes_on(thread: Thread, for_s: float) -> bool:
    """Whether a thread has run again and again while another one waited for so long."""
    return is_busy(thread) or (thread.still_s is not None and thread.still_s < for_s * RECENT_PART)


def starved_processes(index: Index) -> frozenset[ProcessId]:
    """The processes of which a thread is starved."""
    return frozenset(each.process.process for each in starved(index))


def starving(index: Index, found: Starved) -> Mechanism:
    """Why a thread is starved, and what to change."""
    is_one = len(found.others) == 1 and found.others != (found.process,)
    return Mechanism(
        headline=(
            f"{found.who} has waited {index.lasting(found.for_s)} at {frame_words(found.frame)} "
            f"for {found.admission.counter} to become 0, while {found.adding} "
            f"{'goes' if is_one else 'go'} on to add to it"
        ),
        evidence=tuple(_evidence(index, found)),
        cause=_cause(found),
        advice=_advice(found),
    )


def _evidence(index: Index, found: Starved) -> Iterator[str]:
    """The statement that adds, those that reach it, and what waits behind."""
    admission = found.admission
    loop = f"{admission.loop_file}:{admission.loop_lines[0]} {admission.loop}"
    blocks = [each.block for each in found.going_on if each.block is not None]
    now = (
        f", {len(blocks)} of them now in `{blocks[0].text}` of line {blocks[0].line}"
        if blocks
        else ""
    )
    edges = wait_graph(index).edges
    waits = {edge.waiter: edge.what for edge in edges if edge.tid == edge.waiter.pid}
    yield f"{mark_words(admission.mark)} is reached in each round of the loop at {loop}"
    yield f"nothing before it asks whether somebody waits in {admission.waiter}()"
    yield (
        f"{counted(len(found.going_on), 'thread')} of {all_called(found.others, SHOWN)} are in "
        f"that loop, and go on{now}"
    )
    for each in found.behind[:SHOWN]:
        what = waits.get(each.process, found.who)
        yield (
            f"an effect: {called(each)} waits for {what}{at_line(main_thread(each))}, until "
            f"{found.who} gets on"
        )


def _cause(found: Starved) -> str:
    """Why the wait does not end."""
    admission = found.admission
    wait, behind = ("waits" if len(found.behind) == 1 else "wait"), found.behind
    effect = f" {all_called(behind, SHOWN)} only {wait} behind it." if behind else ""
    return (
        f"Most likely it starves, as the writer of a read-write lock does: {admission.waiter}() "
        f"continues only at a moment at which {admission.counter} is 0, and "
        f"{mark_place(admission.mark)} adds to it also while somebody waits for that. Where those "
        "that take it overlap, the next one has come before the last has gone, and it never is 0. "
        f"That is no deadlock: each of them gives it back.{effect}"
    )


def _advice(found: Starved) -> str:
    """What to change, and what does not help."""
    admission = found.admission
    return (
        f"Let new ones wait while {admission.waiter}() waits: count those that wait in it (+= 1 "
        f"before its loop, -= 1 after), and test that count before {mark_place(admission.mark)} "
        "(`while self.waiting > 0: condition.wait()`); it has to be shared as this one is. Or keep "
        "it only around what needs it, and not over slow calls or sleeps, which makes a moment "
        "without any likelier but not sure. "
        "More readers, notify_all() in place of notify(), a larger queue or a longer time limit do "
        f"not help. If {admission.counter} stays above 0 also while none of them is at work, look "
        "for a way past the line that takes from it (an exception without finally) instead."
    )
