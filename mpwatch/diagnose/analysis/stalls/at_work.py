"""What a process does for which others wait, and which is not known to stand still.

It computes, sleeps, polls or receives, or was stopped by a signal.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from signal import Signals

from mpwatch.diagnose.analysis.idle_time import last_transfer_s, quiet_s, woken_per_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import at_line
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, called, counted
from mpwatch.diagnose.analysis.source.costs import Costly, slow_pattern
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.source.loops import spin, why_endless
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.diagnose.analysis.throughput.shares import core_share, mostly_sleeps
from mpwatch.diagnose.analysis.waits.blockages import GOES_ON, Blockage, Reason
from mpwatch.diagnose.analysis.waits.verdicts import where
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark
from mpwatch.model.units import seconds_text

REPORTED_S = 10.0
"""A process that has made progress since is taken to go on."""
NO_CORE_SHARE = 0.5
"""A process that waits for a free core this part of the time has not computed for long."""
FIRST_PART = 0.25
"""Of a wait: what was read and written so early may be the task itself."""
_STOPS = (Signals.SIGSTOP, Signals.SIGTSTP, Signals.SIGTTIN)


def is_stopped_meanwhile(index: Index, blockage: Blockage) -> bool:
    """Whether a process is stopped while another one works and those that wait poll now and then.

    A program that stops a process to let another one run waits for that one, with a time limit.
    """
    edge = blockage.edge
    waiter = index.snapshot.get(edge.waiter) if edge is not None else None
    thread = main_thread(waiter) if waiter is not None else None
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.timeout_s is None:
        return False
    still = {blockage.process.process, *(each.process for each in blockage.waiters)}
    others = [each for each in index.snapshot.living() if each.process not in still]
    return any(
        (quiet := quiet_s(each, index)) is not None and quiet < REPORTED_S
        for each in others
        if each.role not in SERVICE_ROLES
    )


def _stopper(index: Index, stopped: Process) -> str:
    """Which process of the job has sent the signal, and where, as its hook reports."""
    for entry in reversed(index.entries("kill")):
        sender = index.snapshot.get(entry.process)
        is_it = entry.details.get("pid") == stopped.pid
        if sender is None or not is_it or entry.details.get("signal") not in _STOPS:
            continue
        site = entry.details.get("site")
        return f" {called(sender)} has sent it{f' at {site}' if site else ''}."
    return ""


def goes_from_task_to_task(index: Index, blockage: Blockage) -> bool:
    """Whether a process that computes has done more than one computation since the others wait.

    It was found at work between two sleeps, is a worker started since, or has read a task or
    written a result.
    """
    process, since_s = blockage.process, index.snapshot.at_s - blockage.waited_s
    born_s = process.sample.born_wall_s
    if born_s is not None and born_s - index.snapshot.wall_s + index.snapshot.at_s > since_s:
        return True
    exchanged_s = last_transfer_s(index, process)
    is_recent = exchanged_s > since_s + blockage.waited_s * FIRST_PART
    return mostly_sleeps(index, process) or (isfinite(exchanged_s) and is_recent)


AT_WORK = GOES_ON | {"sleeps"}
"""A process at the end of waits that is so far not known to stand still."""


def does(blockage: Blockage) -> str:
    """What the process at the end does, without its line."""
    thread = blockage.thread
    words = _DOES.get(blockage.reason)
    if words is not None:
        return words
    last = blockage.chain.links[-1].words
    place = where(blockage.process)
    if blockage.reason == "disk" and thread is not None and thread.wchan:
        return f"is in an uninterruptible wait in the kernel ({thread.wchan})"
    return last.removesuffix(place) if place else last


def place_of(blockage: Blockage) -> str:
    """`sleeps again and again at data.py:48 wait`."""
    return f"{does(blockage)}{at_line(main_thread(blockage.process))}"


def pattern_at_its_line(index: Index, blockage: Blockage) -> Costly | None:
    """The regular expression that may take long, at the line of a process that computes."""
    thread = blockage.thread
    if thread is None or blockage.reason != "computes":
        return None
    found = slow_pattern(index, thread.stack)
    return None if found is None else found.stuck


def waits_for_a_core(index: Index, blockage: Blockage) -> float:
    """The share of the time in which the last process could run and got no core; 0 if that is low.

    One that hardly gets a core has not computed for long.
    """
    waited = core_share(index, blockage.process)
    return waited if waited >= NO_CORE_SHARE else 0.0


def cause_of_receiving(index: Index, blockage: Blockage) -> str:
    """Why a process that goes on receiving may not have sent what another one waits for."""
    woken = woken_per_s(index, blockage.process)
    often = f"about {counted(woken, 'time')} a second" if woken is not None else "again and again"
    cause = (
        f"{called(blockage.process)} is alive: its main thread is woken up {often} where it waits "
        "to receive, so most likely it gets requests there. What the process that waits has sent "
        "was answered to another one, put aside, dropped, or has not arrived."
    )
    renewed = marks(index, "renews-deadline", blockage.process)
    return f"{cause}{_put_off(renewed[0])}" if renewed else cause


def _put_off(mark: Mark) -> str:
    return (
        f" Most likely it is put aside until a deadline: {mark_words(mark)} sets it to a time from "
        "now each time that it is reached, whatever was set before. If each of the requests that "
        "go on coming reaches it, it is put off for ever and never due: set it only where none is "
        "set."
    )


def cause_of_computation(index: Index, blockage: Blockage) -> str:
    """What a process computes that others wait for, as far as it shows."""
    end = called(blockage.process)
    if (found := spin(index, blockage.process)) is not None:
        time = index.lasting(index.snapshot.at_s - found.since_s)
        return (
            f"{end} has gone round in {found.words} for {time}. {why_endless(found.loop, end)}. "
            f"{others_continue(blockage)}"
        ).strip()
    if (pattern := pattern_at_its_line(index, blockage)) is not None:
        return (
            f"{end} computes, and has answered none of those that wait for it for "
            f"{index.lasting(blockage.waited_s)}. At its line, {pattern.words}{pattern.cause} "
            f"{others_continue(blockage)}"
        ).strip()
    if waited := waits_for_a_core(index, blockage):
        return (
            f"{end} has answered none of those that wait for it for "
            f"{index.lasting(blockage.waited_s)}. It could compute all that time, and waited for a "
            f"free core {waited:.0%} of it: it may only be slow. {others_continue(blockage)}"
        )
    return (
        f"{end} computes, and has answered none of those that wait for it for "
        f"{index.lasting(blockage.waited_s)}: it is in a long computation, or in a loop that "
        f"does not end. {others_continue(blockage)}"
    )


def cause_of_stop(index: Index, blockage: Blockage) -> str:
    """What has stopped the last process, and whether that may be on purpose."""
    words = (
        f"A signal (SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU) has stopped {called(blockage.process)}; "
        f"only SIGCONT continues it.{_stopper(index, blockage.process)}"
    )
    if is_stopped_meanwhile(index, blockage):
        words += (
            " A program may stop a process on purpose while another one runs, and continue it "
            "later: another process of this job works on, and the one that waits does so with "
            "a time limit."
        )
    return words


def others_continue(blockage: Blockage) -> str:
    """That the processes that wait depend on this one; empty where none does."""
    if not blockage.waiters:
        return ""
    those = "The process that waits goes" if len(blockage.waiters) == 1 else "The others go"
    return f"{those} on when it has done its part."


def rest_of_sleep(thread: Thread | None) -> str:
    """How much of a sleep is left, where the system call shows it."""
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.timeout_s is None or wait.call != "clock_nanosleep":
        return ""
    return f" and will wake up by itself in {seconds_text(wait.timeout_s)}"


_DOES: Mapping[Reason, str] = {
    "sleeps": "sleeps",
    "polls": "sleeps again and again",
    "computes": "computes",
    "receives": "goes on receiving",
    "stopped": "is stopped by a signal",
    "signal": "waits for a signal",
}
ADVICE_NO_CORE = (
    "See what uses the cores: other programs, or more processes and threads of this job than cores "
    "(torch.set_num_threads(1) in each process). A time limit of those that wait has to be longer "
    "than this part."
)
