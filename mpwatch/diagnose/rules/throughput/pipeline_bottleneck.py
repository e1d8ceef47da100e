"""One stage of a job works all the time while the others wait for it.

For example actors that cannot keep up with a learner, or a learner that cannot keep up with them, a
main process that cannot feed its workers, or consumers that sleep between two checks of their
queue. Or one that sleeps for much of the time because a call of it fails. DataLoaders, Pools, ranks
and servers have rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from mpwatch.describe.processes import wait_verb
from mpwatch.describe.waits import FULL_QUEUE, ROOM, semaphore_words
from mpwatch.diagnose.analysis.growth.newest import own_lines
from mpwatch.diagnose.analysis.idle_time import last_transfer_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    counted,
    is_sibling,
)
from mpwatch.diagnose.analysis.source.lines import line_at, mark_words, marks
from mpwatch.diagnose.analysis.source.loops import polls_for_item
from mpwatch.diagnose.analysis.stack_patterns import main_thread, writes_output
from mpwatch.diagnose.analysis.stalls.idle_servers import idle_servers
from mpwatch.diagnose.analysis.stalls.polling import polls_in_vain
from mpwatch.diagnose.analysis.throughput.retries import Retrying, retrying
from mpwatch.diagnose.analysis.throughput.shares import (
    OVER_S,
    SHORT_OF_CORES,
    at_place,
    core_share,
    doing_words,
    main_account,
    shares,
    starting_part,
    times_faster,
    uses_queue,
    waiting_share,
    with_a_core,
    work_place,
    working_share,
)
from mpwatch.diagnose.analysis.waits.blockages import without_progress_s
from mpwatch.diagnose.analysis.waits.chains import ends_of_waits, wait_graph
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s
from mpwatch.diagnose.analysis.waits.providers import semaphore_uses
from mpwatch.model.account import IMPORTS, LAST_MINUTE_S
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark
from mpwatch.model.units import seconds_text

RULE = "pipeline-bottleneck"
IS_OF_SHARES = True
SLOWS_DOWN = True
WORKS_SHARE = 0.8
WAITS_SHARE = 0.7
LEAST_WAITS = 0.4
"""Of the time, waits for a free core included."""
FEEDS_SHARE = 0.9
SLEEPS_SHARE = 0.8
"""Of the time in which processes that others wait for had a core and imported nothing: it is their
sleep that the others wait for."""
PAUSES_SHARE = 0.1
"""A process that sleeps for this part of the time does not work without a pause."""
LONGER = 1.5
"""Single sleeps are called longer from this ratio of the last ones to the first ones on."""
SLEEPS = 6
"""Sleeps of which something is known in each part of the time that is compared."""
SLEEPS_OF_A_ROUND = 20.0
"""An item that takes more than so many of the longest sleeps does not come at their pace."""
STARVES_SHARE = 0.85
"""A parent that works, and children that wait for its items, are usual: the parent has to work all
the time, and the children hardly at all."""
LONG_S = 2.0
"""A pause that grows is told from this length on."""
RESTS_SHARE = 0.3
"""A process that computes less than this works no more than others leave it to do."""
LASTS_S = 10.0
"""A wait that has lasted this long may be the beginning of a hang."""
LEAST_TIME = 0.05
"""With less time that was not a wait for a core, a share of it means nothing: a tenth of sixty
readings are six."""
LEAST_KNOWN_S = 1.0
"""Of what they do, known of all processes together: a start shows in its first stacks."""
ONE_WAIT = 0.9
"""Of the time in which a process was found waiting, it has waited so much without an item now."""
STARTS_PART = 0.5
"""Processes whose time has gone into imports for this part are starting, and no stage yet."""
SHOWN = 3


class _Stages(Struct, frozen=True):
    """The processes of a job by what they do most of the time."""

    working: Sequence[Process]
    waiting: Sequence[Process]
    """For items of the ones that work."""
    ahead: Sequence[Process]
    """For room in queues that the ones that work read."""
    waits: float
    """The mean share of the time that those of the last two groups wait, 0 to 1."""
    waits_with_core: float
    """The same, of the time in which they did not wait for a free core."""

    @property
    def others(self) -> Sequence[Process]:
        """All that wait."""
        return (*self.waiting, *self.ahead)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where each process works nearly all the time or waits for one that does.

    Processes in between would mean that the stages keep up with each other.
    """
    asleep = [*map(_of_retries, retrying(index))] or list(_sleeps_while_full(index))
    stages = None if asleep else _stages(index)
    if stages is not None:
        sleep = _sleep_of(index, stages.working)
        if sleep is None:
            yield _finding(index, stages)
        elif polls_in_vain(index) is not None or _are_idle(index, stages.working):
            return  # nothing moves at all, which is told as that
        elif _is_pace(sleep) or not all(map(_is_in_one_sleep, stages.working)):
            yield _of_sleep(index, stages, sleep)
    elif not asleep:
        yield from _sleeps_ever_longer(index)
    yield from asleep


def _of_retries(found: Retrying) -> Finding:
    """The finding about a process that sleeps because a call has failed."""
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if found.is_most else Severity.INFO,
        process=found.process.process,
        subject="retries",
        summary=found.summary,
        evidence=tuple(found.evidence),
        cause=found.cause,
        advice=found.advice,
        is_doubtful=not found.is_most,
    )


def _are_idle(index: Index, working: Sequence[Process]) -> bool:
    """Whether one of those that sleep answers none of the others, for want of anything to do."""
    idle = {each.process.process for each in idle_servers(index)}
    return any(each.process in idle for each in working)


def _stages(index: Index) -> _Stages | None:
    """The groups; `None` if there is a process that is in none, or a wait not understood."""
    working: list[Process] = []
    waiting: dict[ProcessId, float] = {}
    ahead: dict[ProcessId, float] = {}
    for process in index.snapshot.living():
        if process.role in SERVICE_ROLES:
            continue
        if process.role not in ("main", "spawned", "pool-worker") or not shares(index, process):
            return None
        if _joining_share(index, process) + _sleeping_main(index, process) >= WAITS_SHARE:
            continue  # it only supervises
        if _is_most(index, process, share := _waits(index, process)):
            waiting[process.process] = share
        elif _is_most(index, process, share := _share_of_room(index, process)):
            if writes_output(process):
                return None  # which nobody reads
            ahead[process.process] = share
        elif working_share(index, process) >= WORKS_SHARE:
            working.append(process)
        else:
            return None
    if not working or not (waiting or ahead):
        return None
    living, waits = index.snapshot.living(), {**waiting, **ahead}
    working = _without_sleepers(index, working, [*waits])
    with_core = [
        with_a_core(index, p, waits[p.process], LEAST_TIME) for p in living if p.process in waits
    ]
    found = _Stages(
        working,
        [each for each in living if each.process in waiting],
        [each for each in living if each.process in ahead],
        sum(waits.values()) / len(waits),
        sum(with_core) / len(with_core),
    )
    return found if _is_understood(index, found) else None


def _without_sleepers(
    index: Index, working: list[Process], waiting: Sequence[ProcessId]
) -> list[Process]:
    """Those that compute, if the others only sleep and no wait ends at one of these now."""
    busy = [p for p in working if _sleep_of_free_time(index, p) < SLEEPS_SHARE]
    asleep = {each.process for each in working} - {each.process for each in busy}
    ends = [ends_of_waits(index).get(each, frozenset()) for each in waiting]
    ids = {each.process for each in busy}
    is_known = any(not ids.isdisjoint(each) for each in ends)
    return busy if is_known and all(asleep.isdisjoint(each) for each in ends) else working


def _is_understood(index: Index, found: _Stages) -> bool:
    """Whether those that wait do so for the ones that work, and not just for a usual while."""
    working = found.working
    if (starting_part(index, working, LEAST_KNOWN_S) or 0.0) >= STARTS_PART:
        return False  # they make no items yet: `spawn-startup-cost` names starts in each round
    if found.waiting and all(_is_in_first_wait(index, each) for each in found.waiting):
        return False  # no item has come so far: those that work may still build what they need
    if _is_one_of_equals(index, working, found.others):
        return False
    if _is_pool_of(working, found.others):
        if _mean(_sleep_share, index, working) >= PAUSES_SHARE:
            return False  # it rests between its tasks, so that its workers are idle by design
    elif not _waits_are_for(index, found):
        return False
    # Children that wait for room are ahead of their parent, which is never usual.
    feeds = [each for each in working if any(p.parent == each.process for p in found.waiting)]
    is_starving = found.waits_with_core >= STARVES_SHARE
    return not feeds or (is_starving and all(working_share(index, p) >= FEEDS_SHARE for p in feeds))


def _is_in_first_wait(index: Index, process: Process) -> bool:
    """Whether the present wait of a process is all the time that it was found to wait."""
    account = main_account(index, process.process)
    waited_s = _waits(index, process) * account.last_minute().observed_s if account else 0.0
    return (without_progress_s(process, index) or 0.0) >= ONE_WAIT * waited_s > 0


def _is_most(index: Index, process: Process, share: float) -> bool:
    """Whether a wait is most of what a process does."""
    return share >= LEAST_WAITS and with_a_core(index, process, share, LEAST_TIME) >= WAITS_SHARE


def _waits(index: Index, process: Process) -> float:
    """The share of the time in which a process waited for others; a pool's worker, for tasks."""
    share = waiting_share(index, process)
    if process.role != "pool-worker":
        return share
    found = shares(index, process)
    # Without a stack, the lock of the pool's queue of tasks is a lock of unknown purpose.
    is_counted = uses_queue(found)  # its locks of unknown purpose are in `share`
    share += sum(
        each.share
        for each in found
        if each.activity.kind == "idle"
        or (not is_counted and each.activity.target == "lock" and not each.activity.place)
    )
    return share


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
        if share < FEEDS_SHARE or _is_in_one_sleep(process):
            continue
        ahead = [
            other
            for other in index.snapshot.living()
            if other is not process
            and not writes_output(other)
            and process.process in ends_of_waits(index).get(other.process, ())
            and with_a_core(index, other, _share_of_room(index, other), LEAST_TIME) >= WORKS_SHARE
        ]
        if not ahead:
            continue
        place = max(slept, key=lambda each: each.share).activity.place
        at = f" at {place}" if place else ""
        line = line_at(index, place)
        is_poll = line is not None and polls_for_item(line)
        names, name = all_called(ahead, SHOWN), called(process)
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            is_doubtful=not is_poll,
            process=process.process,
            others=tuple(each.process for each in ahead),
            summary=(
                f"{name} sleeps {share:.0%} of the time{at}, while {names} "
                f"{wait_verb(ahead)} for room in a full queue"
            ),
            evidence=tuple(
                f"{called(each)}: {words}"
                for each in (process, *ahead[:SHOWN])
                if (words := doing_words(index, each))
            ),
            cause=(
                f"Items are always available, and {name} takes one only now and then: the whole "
                f"job runs at the pace of that sleep.{_WASTES if is_poll or line is None else ''}"
            ),
            advice=_TAKE if is_poll else f"{_MEANT} {_TAKE if line is None else _SHORTEN}",
        )


def _sleeps_ever_longer(index: Index) -> Iterator[Finding]:
    """A finding where nothing works, and some sleep by a pause that is never made short again."""
    if not marks(index, "backoff"):
        return
    own = [each for each in index.snapshot.living() if each.role not in SERVICE_ROLES]
    found = [each for each in own if (_growing_sleep(index, each) or 0.0) >= LONG_S]
    rest = [each for each in own if each not in found]
    sleep = _sleep_of(index, found) if found else None
    if sleep is None or sleep.growth is None:
        return
    if any(_computing_share(index, each) >= RESTS_SHARE for each in rest):
        return
    names, mark = all_called(found, SHOWN), sleep.growth
    is_one = len(found) == 1
    yield Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,  # there may be no work at all
        process=found[0].process,
        others=tuple(each.process for each in found[1:]),
        summary=(
            f"{names} {'sleeps' if is_one else 'sleep'} {sleep.share:.0%} of the time at "
            f"{sleep.place}, in pauses that are never made short again, and nothing else in the "
            "job works"
        ),
        evidence=(
            *_lengths(sleep),
            *(
                f"{called(each)}: {words}"
                for each in (*found[:SHOWN], *rest[:SHOWN])
                if (words := doing_words(index, each))
            ),
        ),
        cause=(
            f"{mark_words(mark)} makes each pause longer than the one before, and nothing in that "
            f"file sets {mark.about} back once there was something to do. So after a while each "
            "look that finds nothing, however short that lasts, costs one of the longest pauses."
        ),
        advice=(
            f"Set {mark.about} back to where it began as soon as something was found, and bound "
            "the pause; or wait for what wakes the process up (get() of a queue). More processes, "
            f"or faster ones, hardly help. Nothing is wrong if there is no work for {names}."
        ),
    )


def _growing_sleep(index: Index, process: Process) -> float | None:
    """How long the longest single sleep was; `None` unless the next one is made longer."""
    sleep = _sleep_of(index, [process])
    return sleep.longest_s if sleep is not None and sleep.growth is not None else None


def _computing_share(index: Index, process: Process) -> float:
    found = shares(index, process)
    return sum(each.share for each in found if each.activity.kind == "computing")


def _is_in_one_sleep(process: Process) -> bool:
    """Whether a process was not seen to wake up for so long, or will not, that it has no pace."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None:
        return False
    is_long = wait.kind == "timer" and (wait.timeout_s or 0.0) >= LAST_MINUTE_S
    return is_long or (blocked_for_s(thread) or 0.0) >= LASTS_S


_WASTES = (
    " A loop that sleeps and then checks whether there is an item wastes the time until the next "
    "check."
)
_TAKE = (
    "Wait for the next item with get() in place of sleep() and empty(); or take all that are there "
    "before the next sleep."
)
_MEANT = "Nothing is wrong if the sleep is the work (a device, a rate limit)."
_SHORTEN = "Otherwise shorten it, or take more items for each sleep."


def _share_of_room(index: Index, process: Process) -> float:
    """The share of the time in which a process waited for room in a queue or pipe.

    Where a stack shows a full queue now, all waits for its semaphore were for room in it.
    """
    bounds = _bounds(index)
    return sum(
        each.share
        for each in shares(index, process)
        if each.activity.what.startswith(ROOM) or each.activity.what in bounds
    )


@derived
def _bounds(index: Index) -> frozenset[str]:
    """The semaphores that count the room in queues, as the account of time calls them."""
    return frozenset(
        semaphore_words(use.segment)
        for use in semaphore_uses(index).values()
        if use.what == FULL_QUEUE and use.segment is not None
    )


def _joining_share(index: Index, process: Process) -> float:
    """The share of the time in which its main thread waited for the exit of a child."""
    found = shares(index, process)
    return sum(each.share for each in found if each.activity.target == "child")


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


def _waits_are_for(index: Index, found: _Stages) -> bool:
    """Whether the waits, as far as they last at this moment, end at those that work."""
    working, waiting = found.working, found.waiting
    ids = {each.process for each in working}
    ends = {each.process: _ends(index, each) for each in found.others}
    lasting = {
        edge.waiter
        for edge in wait_graph(index).edges
        # A feeder thread with nothing to send, or a thread beside the main one, may wait for long.
        if not edge.is_ordinary and edge.tid == edge.waiter.pid and (edge.since_s or 0.0) >= LASTS_S
    }
    lasting |= {p.process for p in waiting if (without_progress_s(p, index) or 0.0) >= LASTS_S}
    # Of many that wait for room, each waits for long where the one that reads is slow.
    if found.ahead and all(_has_exchanged(index, each) for each in working):
        lasting -= {each.process for each in found.ahead}
    now = [each for each in found.others if ends[each.process]]
    sleep = _sleep_of(index, working)
    if sleep is not None and _is_pace(sleep) and not _outlast(index, waiting, sleep):
        lasting = set()  # a long sleep is no hang: it ends by itself
    return bool(now) and all(
        each.process not in lasting and not ids.isdisjoint(ends[each.process]) for each in now
    )


def _outlast(index: Index, waiting: Sequence[Process], sleep: _Sleep) -> bool:
    """Whether all that wait have got nothing for many of the sleeps: that is no pace of theirs."""
    if not waiting or sleep.longest_s is None:
        return False
    waited_s = min(without_progress_s(each, index) or 0.0 for each in waiting)
    return waited_s >= max(LASTS_S, SLEEPS_OF_A_ROUND * sleep.longest_s)


def _ends(index: Index, process: Process) -> frozenset[ProcessId]:
    """At which processes the wait of a main thread ends now; empty if it does not wait.

    Where no chain of waits has an end, because the parent holds copies of all pipes, those that can
    write what it waits for.
    """
    if ends := ends_of_waits(index).get(process.process):
        return ends
    edges = wait_graph(index).edges
    of_main = [e for e in edges if e.waiter == process.process and e.tid == process.process.pid]
    return frozenset(provider for edge in of_main for provider in edge.providers)


def _has_exchanged(index: Index, process: Process) -> bool:
    """Whether a process has read or written something lately: it takes items, one by one."""
    return index.snapshot.at_s - last_transfer_s(index, process) < OVER_S


class _Sleep(Struct, frozen=True):
    """What is known of processes that sleep for most of the time."""

    share: float
    """Of all their time, 0 to 1."""
    for_core: float
    """The share of their time in which they waited for a free core."""
    place: str
    """`consumer.py:25 next`; empty where it is not known."""
    is_poll: bool
    """Whether they sleep where a check for an item has found none."""
    longest_s: float | None
    """Of the single sleeps of the last minute, at least."""
    longer: tuple[float, float] | None
    """The longest sleep at first and lately, where they get longer."""
    growth: Mark | None
    """What makes the next sleep longer, and is never set back."""


def _is_pace(sleep: _Sleep) -> bool:
    """Whether a long sleep is one of many, after which the next item is polled for."""
    return sleep.is_poll or sleep.longer is not None


def _sleep_of(index: Index, working: Sequence[Process]) -> _Sleep | None:
    """How processes sleep; `None` if one of them does something else for much of the time."""
    if min(_sleep_of_free_time(index, each) for each in working) < SLEEPS_SHARE:
        return None
    place = work_place(index, working, lambda activity: activity.kind == "sleeping")
    words = place.words if place is not None else ""
    line = line_at(index, words)
    growth = [
        each
        for each in marks(index, "backoff")
        if line is not None and (each.file, each.function) == (line.file, line.function)
    ]
    since_s = index.snapshot.at_s - LAST_MINUTE_S
    lengths = [
        point.value
        for each in working
        for point in index.history.of(each.process, "sleep_left_s")
        if point.at_s >= since_s
    ]
    return _Sleep(
        _mean(_sleep_share, index, working),
        _mean(core_share, index, working),
        words,
        line is not None and polls_for_item(line),
        max(lengths, default=None),
        _longer(index, working),
        growth[0] if growth else None,
    )


def _sleep_share(index: Index, process: Process) -> float:
    found = shares(index, process)
    return sum(each.share for each in found if each.activity.kind == "sleeping")


def _sleep_of_free_time(index: Index, process: Process) -> float:
    """The share of sleep, without the time in which it waited for a core or imported modules.

    After each sleep a process waits for a core on a loaded machine, and the imports of its start
    are a large part of the time of a job that has just begun.
    """
    found = shares(index, process)
    imports = sum(each.share for each in found if each.activity.what == IMPORTS)
    rest = 1 - core_share(index, process) - imports
    return 0.0 if rest < LEAST_TIME else min(1.0, _sleep_share(index, process) / rest)


def _mean(
    share_of: Callable[[Index, Process], float], index: Index, working: Sequence[Process]
) -> float:
    return sum(share_of(index, each) for each in working) / len(working)


def _longer(index: Index, working: Sequence[Process]) -> tuple[float, float] | None:
    """The longest sleep of the first third and of the last third of the time, if it is longer."""
    found = [index.history.of(each.process, "sleep_left_s") for each in working]
    points = sorted(point for series in found for point in series)
    parts: list[list[float]] = [[], [], []]
    for at_s, left_s in points:
        part = 3 * (at_s - points[0].at_s) / (points[-1].at_s - points[0].at_s or 1.0)
        parts[min(2, int(part))].append(left_s)
    if min(map(len, parts)) < SLEEPS:
        return None
    first, middle, last = map(max, parts)
    return (first, last) if first < middle < last and last >= LONGER * first else None


def _finding(index: Index, stages: _Stages) -> Finding:
    """Describe the groups, and what would make the job faster."""
    working, others = stages.working, stages.others
    slow = all_called(working, SHOWN)
    place = work_place(index, working)
    at = at_place(place)
    evidence = [
        f"{called(each)}: {words}"
        for each in (*working[:SHOWN], *others[:SHOWN])
        if (words := doing_words(index, each))
    ]
    if place is not None and place.is_main:
        its = "its" if len(working) == 1 else "their"
        function = place.words.rpartition(" ")[2]
        evidence.append(f"{place.part:.0%} of {its} work whose line is known is in {function}()")
    if (lines := own_lines(others[0])) is not None:
        evidence.append(f"{called(others[0])} waits at {lines}")
    if stages.waiting:
        names = all_called(stages.waiting, SHOWN)
        evidence.append(
            f"without waiting {names} would be at most {times_faster(stages.waits)} as fast"
        )
    evidence += _cores_words(index, working)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=_mean(_sleep_share, index, working) >= PAUSES_SHARE,  # a pause may be meant
        process=working[0].process,
        others=tuple(each.process for each in working[1:]),
        summary=f"{_waiting_words(stages)} {slow}, {_working_words(index, working)}{at}",
        evidence=tuple(evidence),
        cause=_cause(index, stages),
        advice=_advice(index, stages, at),
    )


def _waiting_words(stages: _Stages) -> str:
    """Which processes wait, how long and for what: `main (100) waits 98% of the time for`."""
    words = []
    for group, what in ((stages.waiting, ""), (stages.ahead, " for room in a full queue")):
        if group:
            names = all_called(group, SHOWN)
            words.append(f"{names} {wait_verb(group)} {stages.waits:.0%} of the time{what}")
    if stages.ahead:
        return f"{', and '.join(words)}, for"
    return f"{words[0]} for"


def _is_short_of_cores(index: Index, working: Sequence[Process]) -> bool:
    """Whether those that work wait for a free core for much of the time."""
    return _mean(core_share, index, working) >= SHORT_OF_CORES


def _working_words(index: Index, working: Sequence[Process]) -> str:
    is_one = len(working) == 1
    words = ["works" if is_one else "work"]
    if (slept := _mean(_sleep_share, index, working)) >= PAUSES_SHARE:
        words.append(f"{'sleeps' if is_one else 'sleep'} ({slept:.0%})")
    if _is_short_of_cores(index, working):
        waits = _mean(core_share, index, working)
        words.append(f"{'waits' if is_one else 'wait'} for a free core ({waits:.0%})")
    return f"which {_either(words)} all the time"


def _either(words: Sequence[str]) -> str:
    """`works, sleeps (20%) or waits for a free core (30%)`."""
    return f"{', '.join(words[:-1])}{' or ' if words[1:] else ''}{words[-1]}"


def _cores_words(index: Index, working: Sequence[Process]) -> Iterator[str]:
    """How many threads want to run, where those that work have to wait for a core."""
    host = index.snapshot.host
    if _is_short_of_cores(index, working) and host.runnable is not None and host.usable_cpus:
        yield (
            f"{counted(host.runnable, 'thread')} of the machine can run now, on "
            f"{counted(host.usable_cpus, 'core')}"
        )


def _cause(index: Index, stages: _Stages) -> str:
    """Why the whole job is as slow as those that work."""
    is_one = len(stages.working) == 1
    this, it, its = (
        ("This process", "it", "its") if is_one else ("These processes", "they", "their")
    )
    does = ["works" if is_one else "work"]
    if _mean(_sleep_share, index, stages.working) >= PAUSES_SHARE:
        does.append(f"{'sleeps' if is_one else 'sleep'} by {its} own code")
    is_short = _is_short_of_cores(index, stages.working)
    if is_short:
        does.append(f"{'waits' if is_one else 'wait'} for a free core")
    all_the_time = " without a pause" if len(does) == 1 else " all the time"
    works = f"{this} {_either(does)}{all_the_time}"
    parts = []
    if stages.waiting:
        parts.append(f"the others need items faster than {it} make{'s' if is_one else ''} them")
    if stages.ahead:
        parts.append(
            f"take{'s' if is_one else ''} items more slowly than {all_called(stages.ahead, SHOWN)} "
            f"make{'s' if len(stages.ahead) == 1 else ''} them, so that the queue is always full"
        )
    cause = f"{works}, and {', and '.join(parts)}: the whole job runs at {its} speed."
    if is_short:
        cause += " The machine has more to run than cores."
    return cause


def _of_sleep(index: Index, stages: _Stages, sleep: _Sleep) -> Finding:
    """Describe processes that sleep while others wait for them."""
    working, waiting = stages.working, stages.others
    slow = all_called(working, SHOWN)
    at = f" at {sleep.place}" if sleep.place else ""
    is_one = len(working) == 1
    for_core = (
        f" and {'waits' if is_one else 'wait'} for a free core {sleep.for_core:.0%}"
        if sleep.for_core >= PAUSES_SHARE
        else ""
    )
    evidence = [
        f"{called(each)}: {words}"
        for each in (*working[:SHOWN], *waiting[:SHOWN])
        if (words := doing_words(index, each))
    ]
    evidence += _lengths(sleep)
    if (backlog := _backlog(index)) is not None:
        verb = "waits" if round(backlog) == 1 else "wait"
        evidence.append(f"{counted(backlog, 'item')} {verb} in queues of the job meanwhile")
    if (lines := own_lines(waiting[0])) is not None:
        evidence.append(f"{called(waiting[0])} waits at {lines}")
    is_sure = sleep.is_poll and sleep.growth is not None and sleep.longer is not None
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if is_sure else Severity.INFO,
        is_doubtful=not sleep.is_poll,
        process=working[0].process,
        others=tuple(each.process for each in working[1:]),
        summary=(
            f"{_waiting_words(stages)} {slow}, which {'sleeps' if is_one else 'sleep'} "
            f"{sleep.share:.0%} of the time{at}{for_core}"
        ),
        evidence=tuple(evidence),
        cause=_why_asleep(sleep, is_one=is_one),
        advice=_sleep_advice(sleep, at),
    )


def _lengths(sleep: _Sleep) -> Iterator[str]:
    if sleep.longer is not None:
        first, last = sleep.longer
        yield (
            f"single sleeps get longer: up to {seconds_text(first)} at first, up to "
            f"{seconds_text(last)} lately"
        )
    elif sleep.longest_s is not None:
        yield f"single sleeps last up to {seconds_text(sleep.longest_s)}, as far as seen"


def _backlog(index: Index) -> float | None:
    """Items in queues without a bound, as hooks count them; `None` if there are none."""
    found = [
        series[-1].value
        for each in index.snapshot.living()
        if (series := index.history.of(each.process, "queue_backlog"))
    ]
    return max(found, default=0.0) or None


def _why_asleep(sleep: _Sleep, *, is_one: bool) -> str:
    """What the sleep is for, as far as its line shows."""
    subject = "It checks" if is_one else "Each checks"
    if not sleep.is_poll:
        longer = (
            f" {mark_words(sleep.growth)} makes each sleep longer than the one before, and nothing "
            "in that file sets it back."
            if sleep.growth is not None
            else ""
        )
        return (
            f"The job runs at the pace of {'its' if is_one else 'these'} sleep"
            f"{'' if is_one else 's'}, which need{'s' if is_one else ''} no core: a timer, a rate "
            f"limit, or a sleep in place of a device or an answer from outside of the job.{longer}"
        )
    cause = (
        f"{subject} for an item, sleeps when there is none, and checks again: an item that arrives "
        "meanwhile waits until that sleep ends."
    )
    if sleep.growth is not None:
        cause += (
            f" {mark_words(sleep.growth)} makes each sleep longer than the one before, and nothing "
            "in that file sets it back once an item was found: so the sleeps stay long although "
            "there is work."
        )
    return cause


def _sleep_advice(sleep: _Sleep, at: str) -> str:
    """What to do about it; more processes would sleep as well."""
    if sleep.is_poll:
        back = ""
        if sleep.growth is not None:
            back = f" Or set {sleep.growth.about} back to its first value when an item was found."
        return (
            "Wait for the next item with a get() that blocks (with a time limit where the loop has "
            f"to check something else too), in place of the sleep{at}.{back} No core is missing: "
            "more processes would sleep as well."
        )
    return (
        "Nothing is wrong if that pace is meant (a rate limit, an interval between two rounds, a "
        f"device). Otherwise shorten the sleep{at}, or let other work be done during it."
    )


def _advice(index: Index, stages: _Stages, at: str) -> str:
    """What to do, by which stage is slow and whether there are cores for more processes."""
    working, others = stages.working, stages.others
    is_short = _is_short_of_cores(index, working)
    if any(each.parent == working[0].process for each in others):
        first = (
            f"Move work of {called(working[0])}{at} into the processes that wait, or give them "
            "larger pieces of work at a time."
            if stages.waiting
            else f"Do less for each item{at}, take several items for one step, or move work of "
            f"{called(working[0])} into the processes that wait. Faster or more producers change "
            "nothing."
        )
        return f"{first} {_FREE_CORES}" if is_short else first
    collects = ""
    if stages.waiting:
        has = "has" if len(stages.waiting) == 1 else "have"
        collects = (
            f" If {all_called(stages.waiting, SHOWN)} {has} nothing to do but collect results, "
            "nothing is wrong."
        )
    if is_short:
        return (
            f"Do less for each item{at}: more processes of that kind would not help, as there are "
            f"no cores for them.{collects} {_FREE_CORES}"
        )
    more = f"Start more processes of that kind than {len(working)}"
    return f"{more}, or do less for each item{at}.{collects}"


_FREE_CORES = (
    "As more threads of this machine can run than it has cores, it also helps to end what else "
    "runs on it, or to give each process fewer threads."
)
