"""Jobs at rest in which a wait for a condition most likely has missed its notification.

Such a wait with a limit begins again and again: its process uses a little cpu, asks a manager, and
seems to go on.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, at_line
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    is_manager,
)
from mpwatch.diagnose.analysis.source.unchecked_waits import (
    UncheckedWait,
    missed_among,
    unchecked_wait,
)
from mpwatch.diagnose.analysis.stack_patterns import main_thread, own_threads, user_frame
from mpwatch.diagnose.analysis.waits.blockages import MOSTLY, POLLS_PERCENT
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.edges import is_busy
from mpwatch.model.account import RUNNING_KINDS, Target, ThreadAccount
from mpwatch.model.snapshot import Process, Thread

RESTS_S = 20.0
"""Until then, a job of which every process only waits is not reported."""
_OUTSIDE: frozenset[Target] = frozenset(("collective", "core", "file", "gpu", "page-faults"))
"""What takes its time, or has reasons of its own."""
_FROM_OUTSIDE = ("accept", "pipe-read", "poll", "signal", "socket-read", "unknown")
"""Waits that end by something outside of the job where no process of it can end them."""


class LostWakeup(Struct, frozen=True):
    """Processes that wait without having looked, in a job of which nothing else is at work."""

    waiting: tuple[tuple[Process, Thread], ...]
    """The root's first."""
    wait: UncheckedWait
    """That of the first one."""
    others: tuple[tuple[Process, Thread], ...]
    """What rests elsewhere."""
    lasted: str

    @property
    def processes(self) -> tuple[Process, ...]:
        """Those that wait, each once."""
        return tuple({process.process: process for process, _ in self.waiting}.values())

    @property
    def headline(self) -> str:
        """What is seen."""
        names, is_one = all_called(self.processes, NAMED), len(self.processes) == 1
        return (
            f"{names} {'has' if is_one else 'have'} only waited at {frame_words(self.wait.frame)} "
            f"for {self.lasted}, for a notification, without looking first whether what "
            f"{'it waits' if is_one else 'they wait'} for is there: likely one came before the "
            "wait, and is lost"
        )

    @property
    def evidence(self) -> Iterator[str]:
        """Where all of them are."""
        for process, thread in (*self.waiting[:NAMED], *self.others[:NAMED]):
            yield f"{called(process)} waits{at_line(thread)}"
        yield f"no process of the job has done anything else for {self.lasted}"

    @property
    def cause(self) -> str:
        """Why it does not end."""
        all_wait = "" if self.others or len(self.waiting) < 2 else " Each of them waits like this."
        last = (
            " Most likely the one that came last to its wait has missed something: the others "
            "waited already."
        )
        return f"{self.wait.cause}{all_wait}{last if len(self.waiting) > 1 else ''}"

    @property
    def advice(self) -> str:
        """What to change."""
        return self.wait.advice


def lost_wakeup(index: Index) -> LostWakeup | None:
    """The wait of this kind for which a job is at rest; `None` where any of it may go on.

    A thread that works, sleeps or waits for something outside of the job may notify later. Of waits
    that are known never to end another rule tells.
    """
    if index.snapshot.part_of is not None:
        return None
    waiting: list[tuple[Process, Thread]] = []
    others: list[tuple[Process, Thread]] = []
    found: list[UncheckedWait] = []
    lasted: list[float] = []
    working = [
        each
        for each in index.snapshot.living()
        if each.role not in SERVICE_ROLES and each.sample.state != "Z" and not is_manager(each)
    ]
    mains = [thread for each in working if (thread := main_thread(each)) is not None]
    if not any(unchecked_wait(index, each) for each in mains):
        return None
    for process in working:
        for thread in _python_threads(index, process):
            for_s = _rests_s(index, process, thread)
            if for_s < RESTS_S or _is_from_outside(index, process, thread):
                return None
            wait = unchecked_wait(index, thread)
            lasted.append(for_s)
            if wait is None:
                others.append((process, thread))
            else:
                waiting.append((process, thread))
                found.append(wait)
    if not waiting or len(waiting) + len(others) < 2 or _is_hopeless(index):
        return None
    if missed_among(index, [thread for _, thread in (*waiting, *others)]) is None:
        return None
    return LostWakeup(tuple(waiting), found[0], tuple(others), index.lasting(min(lasted)))


def _python_threads(index: Index, process: Process) -> list[Thread]:
    """The threads that could notify: the main thread, and those that are in code of the program.

    One of a library that is at work counts as well.
    """
    main = main_thread(process)
    own = own_threads(index, process)
    others = [e for e in own if e is not main and (user_frame(e.stack) is not None or is_busy(e))]
    return others if main is None else [main, *others]


def _rests_s(index: Index, process: Process, thread: Thread) -> float:
    """Seconds for which a thread has only waited in one function of the program."""
    if thread.state not in ("S", "R"):
        return 0.0
    still_s = thread.still_s or 0.0
    if thread is main_thread(process):
        still_s = quiet_s(process, index) or 0.0
    wait = thread.waits_on
    if wait is not None and wait.kind == "timer":
        return 0.0
    if not own_frames(thread.stack):
        return still_s
    account = _account(index, process, thread)
    return max(still_s, _at_one_place_s(account)) if account is not None else still_s


def _account(index: Index, process: Process, thread: Thread) -> ThreadAccount | None:
    known = index.snapshot.account.processes.get(process.process)
    of_threads = known.threads if known is not None else ()
    return next((each for each in of_threads if each.tid == thread.tid), None)


def _at_one_place_s(account: ThreadAccount) -> float:
    """Seconds of the last minute, up to now, in which a thread waited in one function only."""
    functions: set[str] = set()
    seconds = 0.0
    for bucket in reversed(account.buckets):
        tally = bucket.tally
        if tally.cpu_s > POLLS_PERCENT / 100 * tally.observed_s:
            break
        weights: dict[str, float] = {}
        other = 0.0
        for each, weight in tally.seen.items():
            if each.kind in ("sleeping", "stopped") or each.target in _OUTSIDE:
                other += weight
            elif each.place:
                place = each.place.partition(" ")[2]
                weights[place] = weights.get(place, 0.0) + weight
            elif each.kind not in RUNNING_KINDS and each.kind != "waiting":
                other += weight
        most = max(weights, key=weights.__getitem__, default="")
        other += sum(weight for place, weight in weights.items() if place != most)
        functions |= {most} - {""}
        if len(functions) > 1 or other > (1 - MOSTLY) * sum(tally.seen.values()):
            break
        seconds += tally.observed_s
    return seconds


def _is_from_outside(index: Index, process: Process, thread: Thread) -> bool:
    """Whether something outside of the job may end a wait."""
    wait = thread.waits_on
    if wait is None or wait.kind not in _FROM_OUTSIDE:
        return False
    if wait.kind in ("accept", "signal"):
        return True
    if unchecked_wait(index, thread) is not None:
        # A proxy asks its manager, which may be one of another machine.
        return not any(map(is_manager, index.snapshot.living()))
    return not any(_providers(index).get((process.process, thread.tid), ()))


@derived
def _providers(index: Index) -> dict[tuple[object, int], tuple[object, ...]]:
    return {(each.waiter, each.tid): each.providers for each in wait_graph(index).edges}


def _is_hopeless(index: Index) -> bool:
    return any(each.verdict in ("cycle", "dead-end") for each in wait_graph(index).chains)
