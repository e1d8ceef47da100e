"""How long each rank usually waits for the others, by what readings find its main thread doing.

A collective of gloo waits for a condition of the own process, for which no other counter tells how
long that is usual: where one rank needs half a minute for each step, the others wait as long in
each, and nothing is wrong. The engine keeps the habits from one snapshot to the next; rules, the
rows of a node and the findings across nodes judge by them. No stack is needed; where stacks are
taken, they tell such a wait from one for another thread.

A collective of NCCL returns at once, and its rank polls for the GPU later, also for its own
kernels: it is not seen as waiting here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.ranks import (
    BACKWARD,
    has_group,
    in_collective,
    waits_in_backward,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.collectives import HABIT, HABIT_KEPT_S, Length, RankHabit, WaitReading
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot, Thread

LONG_S = 5.0
"""A wait this short is no standstill, and its length is not kept."""
LONG_KEPT = 8
"""So many of the longest waits, and of the times between waits, are kept."""
MOVED_READINGS, MOVED_S = 3, 2.5
"""A rank that was found outside of collectives so many times, for so long, between two waits has
gone on. Less may be one that a signal, a tracer or a tick of the cpu has woken up in one wait."""
MOVED_CPU_S = 0.1
"""So much cpu time between two readings is work, too, and no tick of a wait."""
MOVES_S = 10.0
"""A rank that has begun or ended a wait so recently does not stand still, whatever was usual."""
READINGS_KEPT = 16
"""Within so many a stack that was taken has arrived."""
_ROLES = frozenset(("rank", "spawned", "main", "ray-worker"))


def with_habits(
    before: Mapping[ProcessId, RankHabit], snapshot: Snapshot
) -> Mapping[ProcessId, RankHabit]:
    """The habits after one more reading, without those of processes that have ended.

    Args:
        before: The habits so far.
        snapshot: Of a reading that is newer; nothing changes with one that is not.
    """
    found = {}
    for process in snapshot.processes:
        if process.is_gone or process.role not in _ROLES or not has_group(process):
            continue
        known = before.get(process.process) or RankHabit(process.process)
        found[process.process] = _advanced(known, process, snapshot)
    return found


def _advanced(known: RankHabit, process: Process, snapshot: Snapshot) -> RankHabit:
    thread = main_thread(process)
    if thread is None or (process.role == "ray-worker" and thread.tid == process.pid):
        return known  # the thread that trains is another one, and no stack has shown it yet
    reading = _reading(process, thread, snapshot.at_s)
    last_s = known.readings[-1].at_s if known.readings else float("-inf")
    if reading is not None and snapshot.at_s > last_s:
        known = with_reading(known, reading, snapshot.ticks_per_s)
    return _with_stack(known, process, thread)


def _reading(process: Process, thread: Thread, at_s: float) -> WaitReading | None:
    """What the reading has found; `None` where the thread is stopped or nothing could be read."""
    sampled = (each for each in process.sample.threads or () if each.tid == thread.tid)
    ticks = next((each.cpu_ticks for each in sampled), None)
    if ticks is None or thread.state in ("T", "t", "Z", "X"):
        return None
    wait = thread.waits_on
    if wait is None or thread.state != "S":
        # Without the right to see the system call, where the kernel lets it sleep is read.
        is_hidden = thread.state == "S" and "futex" in (thread.wchan or "")
        return WaitReading(at_s, is_hidden, ticks)
    return WaitReading(at_s, wait.kind == "futex" and wait.timeout_s is None, ticks)


def with_reading(known: RankHabit, reading: WaitReading, ticks_per_s: int) -> RankHabit:
    """The habit of a rank after one more reading.

    Args:
        known: As far as it was known.
        reading: What the reading has found.
        ticks_per_s: Of the cpu times of readings.
    """
    last = known.readings[-1] if known.readings else reading
    known = replace(known, readings=(*known.readings, reading)[-READINGS_KEPT:])
    has_computed = reading.ticks - last.ticks >= MOVED_CPU_S * ticks_per_s
    is_inside = reading.waits and not known.waits_elsewhere
    if has_computed or not is_inside:
        known = _with_work(known, reading, has_computed=has_computed)
    return _with_wait(known, reading, last) if is_inside else known


def _with_work(known: RankHabit, reading: WaitReading, *, has_computed: bool) -> RankHabit:
    """After a reading that has found a rank at work since the wait before, if there was one."""
    since_s, count = known.worked or (reading.at_s, 0)
    known = replace(known, worked=(since_s, count + 1))
    wait_s, until_s = known.wait or (since_s, since_s)
    is_long = count + 1 >= MOVED_READINGS and reading.at_s - until_s >= MOVED_S
    if known.has_worked or not (has_computed or is_long):
        return known
    known = replace(known, has_worked=True)
    if known.wait is None:
        return known
    long_waits = _with_long(known.long_waits, until_s - wait_s, until_s)
    return replace(known, moved_s=until_s, long_waits=long_waits, work_since_s=until_s)


def _with_wait(known: RankHabit, reading: WaitReading, last: WaitReading) -> RankHabit:
    """After a reading that has found a rank in a wait: one that goes on, or the next one."""
    at_s, wait = reading.at_s, known.wait
    if known.has_worked:
        long_work = known.long_work
        if known.work_since_s is not None:
            long_work = _with_long(long_work, at_s - known.work_since_s, at_s)
        known = replace(known, moved_s=at_s, long_work=long_work)
    elif wait is not None and known.worked is None and reading.ticks == last.ticks:
        return replace(known, wait=(wait[0], at_s))
    elif wait is not None:
        # It was awake for a moment: in the middle of one wait, or between two that follow closely.
        long_waits = _with_long(known.long_waits, wait[1] - wait[0], wait[1])
        known = replace(known, long_waits=long_waits)
    return replace(known, wait=(at_s, at_s), worked=None, has_worked=False)


def _with_long(known: tuple[Length, ...], seconds: float, until_s: float) -> tuple[Length, ...]:
    """The longest ones with one more."""
    if seconds < LONG_S:
        return known
    recent = (each for each in known if until_s - each.until_s < HABIT_KEPT_S)
    return tuple(sorted((*recent, Length(seconds, until_s))))[-LONG_KEPT:]


def _with_stack(known: RankHabit, process: Process, thread: Thread) -> RankHabit:
    """After a new stack: in another collective, or of a wait for something else than one."""
    stack_s = thread.stack_at_s
    if not thread.stack or stack_s is None or stack_s == known.stack_s:
        return known
    place = in_collective(process) or (BACKWARD if waits_in_backward(thread.stack) else "")
    if known.place and not place and known.wait is not None:
        # It has left a collective, which readings show only some seconds later.
        left_s = min(stack_s, known.wait[1])
        known = replace(known, moved_s=max(left_s, known.moved_s or left_s))
    known = replace(known, place=place)
    if place:
        return replace(known, stack_s=stack_s, waits_elsewhere=False)
    before = [each for each in known.readings if each.at_s <= stack_s][-1:]
    after = [each for each in known.readings if each.at_s > stack_s][:1]
    if not after:
        return known  # the next reading tells
    both = [each._replace(at_s=0.0) for each in (*before, *after)]
    is_one_wait = len(both) == 2 and both[0].waits and both[0] == both[1]
    if not is_one_wait:
        return replace(known, stack_s=stack_s)
    return replace(known, stack_s=stack_s, waits_elsewhere=True)


# --- what rules ask -------------------------------------------------------------------------------


def is_at_usual_pace(index: Index, process: ProcessId | None) -> bool:
    """Whether a rank has moved no longer ago than two of its waits, or parts of its work, take."""
    snapshot = index.snapshot
    known = snapshot.habits.get(process) if process is not None else None
    if known is None or known.moved_s is None:
        return False
    return snapshot.at_s - known.moved_s < max(MOVES_S, HABIT * known.usual_s(snapshot.at_s))


def usual_wait_s(index: Index, ranks: Iterable[Process]) -> float:
    """How long most of some ranks have waited twice; 0 where nothing is known, or for less."""
    snapshot = index.snapshot
    known = (snapshot.habits.get(each.process) for each in ranks)
    return most_s(0.0 if each is None else each.usual_wait_s(snapshot.at_s) for each in known)


def most_s(lengths: Iterable[float]) -> float:
    """The length that most of some ranks, or nodes, have reached; 0 of none."""
    found = sorted(lengths)
    return found[len(found) // 2] if found else 0.0
