"""One stage of a job works all the time while the others wait for it.

For example actors that cannot keep up with a learner, or a main process that cannot feed its
workers. DataLoaders, Pools, ranks and servers have rules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.newest import own_lines
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    is_sibling,
)
from mpwatch.diagnose.analysis.shares import (
    SHORT_OF_CORES,
    core_share,
    doing_words,
    shares,
    times_faster,
    uses_queue,
    waiting_share,
    work_place,
    working_share,
)
from mpwatch.diagnose.analysis.stack_patterns import writes_output
from mpwatch.diagnose.analysis.waits.blockages import without_progress_s
from mpwatch.diagnose.analysis.waits.chains import ends_of_waits, wait_graph
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "pipeline-bottleneck"
IS_OF_SHARES = True
SLOWS_DOWN = True
WORKS_SHARE = 0.8
WAITS_SHARE = 0.7
FEEDS_SHARE = 0.9
STARVES_SHARE = 0.85
"""A parent that works, and children that wait for it, are usual: the parent has to work all the
time, and the children hardly at all."""
LASTS_S = 10.0
"""A wait that has lasted this long may be the beginning of a hang."""
SHOWN = 3


class _Stages(NamedTuple):
    """The processes of a job by what they do most of the time."""

    working: Sequence[Process]
    waiting: Sequence[Process]
    """For the ones that work."""
    waits: float
    """The mean share of the time that they wait, 0 to 1."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where each process works nearly all the time or waits for one that does.

    Processes in between would mean that the stages keep up with each other.
    """
    stages = _stages(index)
    if stages is not None:
        yield _finding(index, stages)
    else:
        yield from _sleeps_while_full(index)


def _stages(index: Index) -> _Stages | None:
    """The two groups; `None` if there is a process that is in neither, or a wait not understood."""
    working: list[Process] = []
    waiting: list[tuple[Process, float]] = []
    for process in index.snapshot.living():
        if process.role in SERVICE_ROLES:
            continue
        if process.role not in ("main", "spawned", "pool-worker") or not shares(index, process):
            return None
        if _share_of(index, process, "child") + _sleeping_main(index, process) >= WAITS_SHARE:
            continue  # it only supervises
        if working_share(index, process) >= WORKS_SHARE:
            working.append(process)
        elif (share := _waits(index, process)) >= WAITS_SHARE:
            waiting.append((process, share))
        else:
            return None
    if not working or not waiting or _is_one_of_equals(index, working, [p for p, _ in waiting]):
        return None
    if not _is_pool_of(working, [p for p, _ in waiting]) and not _waits_are_for(
        index, [p for p, _ in waiting], working
    ):
        return None
    mean = sum(share for _, share in waiting) / len(waiting)
    feeds = [each for each in working if any(p.parent == each.process for p, _ in waiting)]
    if feeds and (
        any(working_share(index, each) < FEEDS_SHARE for each in feeds) or mean < STARVES_SHARE
    ):
        return None
    return _Stages(working, [process for process, _ in waiting], mean)


def _waits(index: Index, process: Process) -> float:
    """The share of the time in which a process waited for others; a pool's worker, for tasks."""
    share = waiting_share(index, process)
    if process.role != "pool-worker":
        return share
    found = shares(index, process)
    # Without a stack, the lock of the pool's queue of tasks is a lock of unknown purpose.
    is_counted = uses_queue(found)  # its locks of unknown purpose are in `share`
    return share + sum(
        each.share
        for each in found
        if each.activity.kind == "idle"
        or (not is_counted and each.activity.target == "lock" and not each.activity.place)
    )


def _is_pool_of(working: Sequence[Process], waiting: Sequence[Process]) -> bool:
    """Whether the workers of a pool wait for tasks of the one process that works."""
    return len(working) == 1 and all(
        each.role == "pool-worker" and each.parent == working[0].process for each in waiting
    )


def _sleeps_while_full(index: Index) -> Iterator[Finding]:
    """A finding about a process that sleeps while others wait for room in what it reads."""
    for process in index.snapshot.living():
        if process.role not in ("main", "spawned"):
            continue
        slept = [each for each in shares(index, process) if each.activity.kind == "sleeping"]
        share = sum(each.share for each in slept)
        if share < FEEDS_SHARE:
            continue
        ahead = [
            other
            for other in index.snapshot.living()
            if other is not process
            and not writes_output(other)
            and process.process in ends_of_waits(index).get(other.process, ())
            and _share_of_room(index, other) >= WORKS_SHARE
        ]
        if not ahead:
            continue
        place = max(slept, key=lambda each: each.share).activity.place
        at = f" at {place}" if place else ""
        names, name = all_called(ahead, SHOWN), called(process)
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            process=process.process,
            others=tuple(each.process for each in ahead),
            summary=(
                f"{name} sleeps {share:.0%} of the time{at}, while {names} "
                f"{'waits' if len(ahead) == 1 else 'wait'} for room in a full queue"
            ),
            evidence=tuple(
                f"{called(each)}: {words}"
                for each in (process, *ahead[:SHOWN])
                if (words := doing_words(index, each))
            ),
            cause=(
                f"Items are there all the time, and {name} takes one only now and then: the whole "
                "job runs at the pace of that sleep. A loop that sleeps and then looks whether "
                "there is an item wastes the time until the next look."
            ),
            advice=(
                "Wait for the next item with get() in place of sleep() and empty(); or take all "
                "that are there before the next sleep. Nothing is wrong if the sleep is the work "
                "(a device, a rate limit)."
            ),
        )


def _share_of_room(index: Index, process: Process) -> float:
    """The share of the time in which a process waited for room in a queue or pipe."""
    found = shares(index, process)
    return sum(each.share for each in found if each.activity.what.startswith("room in"))


def _share_of(index: Index, process: Process, target: str) -> float:
    """The share of the time in which its main thread waited for one kind of thing."""
    found = shares(index, process)
    return sum(each.share for each in found if each.activity.target == target)


def _sleeping_main(index: Index, process: Process) -> float:
    """The share of the time in which a main process slept that no process of the job waits for."""
    if process.role != "main" or any(
        process.process in ends for ends in ends_of_waits(index).values()
    ):
        return 0.0
    found = shares(index, process)
    return sum(each.share for each in found if each.activity.kind == "sleeping")


def _is_one_of_equals(index: Index, working: Sequence[Process], waiting: Sequence[Process]) -> bool:
    """Whether one process works while a sibling that runs the same waits: it is a straggler."""
    return any(is_sibling(index, one, other) for one in working for other in waiting)


def _waits_are_for(index: Index, waiting: Sequence[Process], working: Sequence[Process]) -> bool:
    """Whether the waits, as far as they last at this moment, end at those that work."""
    ends = ends_of_waits(index)
    ids = {each.process for each in working}
    lasting = {edge.waiter for edge in wait_graph(index).edges if (edge.since_s or 0.0) >= LASTS_S}
    lasting |= {p.process for p in waiting if (without_progress_s(p, index) or 0.0) >= LASTS_S}
    now = [each for each in waiting if each.process in ends]
    return bool(now) and all(
        each.process not in lasting and not ids.isdisjoint(ends[each.process]) for each in now
    )


def _finding(index: Index, stages: _Stages) -> Finding:
    """Describe both groups, and what would make the job faster."""
    working, waiting = stages.working, stages.waiting
    slow, others = all_called(working, SHOWN), all_called(waiting, SHOWN)
    place = work_place(index, working)
    at = f" at {place.words}" if place is not None else ""
    evidence = [
        f"{called(each)}: {words}"
        for each in (*working[:SHOWN], *waiting[:SHOWN])
        if (words := doing_words(index, each))
    ]
    if (lines := own_lines(waiting[0])) is not None:
        evidence.append(f"{called(waiting[0])} waits at {lines}")
    evidence.append(
        f"without waiting {others} would be at most {times_faster(stages.waits)} as fast"
    )
    is_one = len(working) == 1
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=working[0].process,
        others=tuple(each.process for each in working[1:]),
        summary=(
            f"{others} {'waits' if len(waiting) == 1 else 'wait'} {stages.waits:.0%} of the time "
            f"for {slow}, which {'works' if is_one else 'work'} all the time{at}"
        ),
        evidence=tuple(evidence),
        cause=(
            f"{'This process works' if is_one else 'These processes work'} without a pause, and "
            f"the others need items faster than {'it makes' if is_one else 'they make'} them: the "
            f"whole job runs at {'its' if is_one else 'their'} speed.{_slept(index, working)}"
        ),
        advice=_advice(index, stages, at),
    )


def _slept(index: Index, working: Sequence[Process]) -> str:
    """That most of the work is sleep, if so: a core would not make it faster."""
    slept = sum(
        each.share
        for process in working
        for each in shares(index, process)
        if each.activity.kind == "sleeping"
    ) / len(working)
    if slept < WORKS_SHARE / 2:
        return ""
    return (
        f" {slept:.0%} of that time is sleep, which needs no core: a timer, or a call that waits "
        "for a device or for an answer from outside of the job."
    )


def _advice(index: Index, stages: _Stages, at: str) -> str:
    """What to do, by which stage is slow and whether there are cores for more processes."""
    working, waiting = stages.working, stages.waiting
    if any(each.parent == working[0].process for each in waiting):
        return (
            f"Move work of {called(working[0])}{at} into the processes that wait, or give them "
            "larger pieces of work at a time."
        )
    for_core = sum(core_share(index, each) for each in working) / len(working)
    more = f"Start more processes of that kind than {len(working)}, or do"
    if for_core >= SHORT_OF_CORES:
        more = f"They wait for a free core {for_core:.0%} of the time, so more would not help: do"
    return (
        f"{more} less for each item{at}. If {all_called(waiting, SHOWN)} "
        f"{'has' if len(waiting) == 1 else 'have'} nothing to do but collect results, nothing is "
        "wrong."
    )
