"""One slow worker holds back the others: of a DataLoader, or of processes that work in rounds."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.describe.processes import is_on_gpu, wait_verb
from mpwatch.diagnose.analysis.distributed.ranks import (
    collective_share,
    ranks_of,
)
from mpwatch.diagnose.analysis.distributed.unfinished_loops import unfinished_loop
from mpwatch.diagnose.analysis.growth.forecast import median
from mpwatch.diagnose.analysis.growth.newest import own_place
from mpwatch.diagnose.analysis.idle_time import (
    is_stalled,
    mean_cpu_percent,
    quiet_s,
    wait_share,
    waiting_s,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    all_called,
    called,
    counted,
    family_head,
    label_stem,
    workers_of_loaders,
)
from mpwatch.diagnose.analysis.source.lines import line_at, mark_place, marks, source_of
from mpwatch.diagnose.analysis.source.loops import (
    draw_loop,
    end_of_loop,
    endless_loop,
    spin,
    why_endless,
)
from mpwatch.diagnose.analysis.stack_patterns import SETUP, main_thread, shape_in, user_frame
from mpwatch.diagnose.analysis.throughput.shares import (
    Place,
    at_place,
    core_share,
    doing_words,
    idle_share,
    imported_until_s,
    is_work,
    main_account,
    shares,
    times_faster,
    waiting_share,
    with_a_core,
    work_place,
    working_share,
)
from mpwatch.diagnose.analysis.waits.blockages import USUAL_FACTOR, usual_pause_s
from mpwatch.diagnose.analysis.waits.futures import awaited_result, has_unanswered_call
from mpwatch.model.account import FUTURE_RESULT, NO_CORE, POOL_RESULTS, Share, together
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import columns
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.snapshot import Loader, Process
from mpwatch.model.source_code import Mark
from mpwatch.model.units import bytes_text, seconds_text

RULE = "straggler-worker"
IS_OF_SHARES = True
FACTOR = 3.0
WORTH_S = 0.02
FETCHES = 10
"""The first batches of a worker pay for its start."""
FIRST_TASK_S = 5.0
WAITING = 0.55
WORKING = 0.3
"""Shares of the samples in which a process waits: often, or hardly ever."""
SLOW_SHARE = 0.75
"""A process that works this part of the time hardly waits for its siblings."""
OWNER_WAITS = 0.5
RANKS_WAIT, LEAST_RANK_WAITS = 0.45, 0.3
"""The share of the time in which ranks wait in collectives, in the mean and at least: now and then
another one than the slow one has the longest sample."""
RANKS_FACTOR = 2.0
"""So many times as much as any other the slow rank computes."""
LOOP_S = 15.0
"""So long for one batch, in a loop without an end: a batch takes that long in few programs."""
ONE_WAIT_S = 10.0
ALL_WAITS = 0.85
"""The share of the time in which a main process waits for a Pool, if it does nothing else."""
FEEDS_PERCENT = 20.0
"""A main process that uses more cpu may be what its workers wait for: it makes the tasks."""
UNEVEN = 0.35
"""The share of the time in which the workers of a Pool have no task, in the mean."""
UNEVEN_SHOWN = 4
HAS_NO_TASK = 0.9
"""The share of the time in which a worker of a Pool has waited for a task, if it is out of work."""
TURN_SHARE = 0.005
"""A sibling that works less has done nothing: perhaps it has no task at all."""
HELD = 0.2
"""The least part of the time in which what holds a process up counts."""
LEAST_TIME = 0.3
"""With less time with a core, a share of it means nothing."""
LACK = 0.3
"""The share of the time for which each rank waits for a core, where the machine has too few."""
MORE_WORK = 1.5
"""How much more than any other a rank has to compute there."""
STRETCH_S, STRETCHES = 5.0, 4
FELL = 2.0
"""A process that reads so many times less than before has become slower. What it reads are the
requests for its part of each round."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each worker much slower than its siblings, while main waits for it.

    With the hook, the times of fetching show it; without, one worker is busy in all samples while
    its siblings and main wait.
    """
    for owner, loader, workers in workers_of_loaders(index):
        if len(workers) < 2:
            continue
        timed = [w for w in workers if _usual_s(w) is not None]
        if len(timed) >= 2:
            yield from _by_times(index, owner, timed, loader)
        elif not timed:
            yield from _by_samples(index, owner, workers)
    yield from _among_siblings(index)
    yield from _behind_its_pace(index)
    yield from _in_pools(index)
    yield from _among_ranks(index) or _among_gpu_ranks(index)


def _in_pools(index: Index) -> Iterator[Finding]:
    """The one worker of a Pool that works while the others have had no task for long.

    The last task of a call may be long by design, so that this is information.
    """
    families: defaultdict[ProcessId, list[Process]] = defaultdict(list)
    for process in index.snapshot.living():
        if process.role == "pool-worker" and process.parent is not None:
            families[process.parent].append(process)
    for parent, workers in families.items():
        owner = index.snapshot.get(parent)
        works = [each for each in workers if working_share(index, each) >= SLOW_SHARE]
        idle = [each for each in workers if idle_share(index, each) >= HAS_NO_TASK]
        if owner is None or has_unanswered_call(index, parent):
            continue  # a call is lost, whose wait is no slow task
        if (one := _one_at_a_time(index, owner, workers)) is not None:
            yield one
        elif len(works) != 1 or len(idle) < 2 or len(idle) + 1 != len(workers):
            yield from _uneven_pool(index, owner, workers)
        elif any(shape_in(index, thread.stack) == "pool-result" for thread in owner.threads):
            yield _finding_of_pool(index, owner, works[0], idle)


def _uneven_pool(index: Index, owner: Process, workers: Sequence[Process]) -> Iterator[Finding]:
    """The workers of a Pool that have no task for much of the time, each in turn.

    Main does nothing but wait for their results meanwhile, so that always one of them is at work.
    """
    waited = _results(index, owner)
    waits = sum(each.share for each in waited)
    load = mean_cpu_percent(owner, index.history)
    if waits < ALL_WAITS or len(workers) < 2 or load is None or load > FEEDS_PERCENT:
        return
    idle = [idle_share(index, each) for each in workers]
    mean = sum(idle) / len(idle)
    if mean < UNEVEN or max(idle) >= HAS_NO_TASK or min(idle) <= UNEVEN / 2:
        return
    place = work_place(index, workers)
    at = at_place(place)
    works = len(workers) * (1 - mean)
    is_executor = all(each.activity.what == FUTURE_RESULT for each in waited)
    pool = f"the {'executor' if is_executor else 'Pool'} of {called(owner)}"
    yield Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,
        process=owner.process,
        others=tuple(each.process for each in workers),
        subject="uneven",
        summary=(
            f"the {len(workers)} workers of {pool} have no task {mean:.0%} of the time, while it "
            f"waits {waits:.0%} of the time for their results: {works:.1f} of them work at a "
            f"time{at}"
        ),
        evidence=tuple(
            f"{called(each)}: {words}"
            for each in workers[:UNEVEN_SHOWN]
            if (words := doing_words(index, each)) is not None
        ),
        cause=_FEW_TASKS.format(name=called(owner))
        if is_executor
        else (
            "The tasks of a call are not divided evenly: at its end some workers have none left, "
            f"and {called(owner)} waits for the last one before it goes on. {_CHUNKS}"
        ),
        advice=_MORE_TASKS
        if is_executor
        else (
            "Pass chunksize=1 to that call, so that each worker takes the next item when it is "
            "free, and begin with the longest items, or shuffle them. Where one item is long by "
            "itself, divide it; or let the next round begin before the last result has come "
            "(imap_unordered, apply_async)."
        ),
    )


_FEW_TASKS = (
    "{name} waits for results while it has fewer tasks under way than there are workers: it starts "
    "few of them at a time, or waits for the last ones of a round before it starts the next round, "
    "while some workers have none left. More workers do not help."
)
_MORE_TASKS = (
    "Start all tasks first and take the results as they complete (as_completed), or keep more of "
    "them under way than there are workers (wait(..., return_when=FIRST_COMPLETED), then submit "
    "the next one). Begin with the longest, and divide one that is long by itself."
)


def _results(index: Index, owner: Process) -> Sequence[Share]:
    """The shares of the time in which a main thread waited for results of a pool."""
    results = (POOL_RESULTS, FUTURE_RESULT)
    return [each for each in shares(index, owner) if each.activity.what in results]


def _one_at_a_time(index: Index, owner: Process, workers: Sequence[Process]) -> Finding | None:
    """Workers of a pool of which one works at a time, as each result is awaited at once.

    Its source shows that the task for which a main thread waits was started right before.
    """
    waited = _results(index, owner)
    waits = sum(each.share for each in waited)
    idle = [idle_share(index, each) for each in workers]
    if len(workers) < 2 or waits < OWNER_WAITS or sum(idle) < UNEVEN * len(workers):
        return None
    if any(awaited_result(own_frames(each.stack)) for each in owner.threads[1:]):
        return None  # its threads have a task under way each
    place = max(waited, key=lambda each: each.share).activity.place
    found = _awaited_at_once(index, place)
    if found is None:
        return None
    line, _, method = found.about.partition(", ")
    is_apply = method == "apply"
    name = called(owner)
    at = work_place(index, workers)
    cores = index.snapshot.host.usable_cpus
    start = "" if is_apply else f" right after {method}() in line {line}"
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        others=tuple(each.process for each in workers),
        subject="one at a time",
        summary=(
            f"{name} awaits the result of each task at {place}{start}, before it starts the next "
            f"one: only one of its {len(workers)} workers works at a time"
            f"{f', at {at.words}' if at is not None and at.is_main else ''}"
        ),
        evidence=(
            f"{name} waits {waits:.0%} of the time for results, and its workers have no task "
            f"{sum(idle) / len(idle):.0%} of the time",
            *(
                f"{called(each)}: {words}"
                for each in (owner, *workers[:2])
                if (words := doing_words(index, each)) is not None
            ),
            f"with tasks for all of them it would be at most {len(workers)} times as fast, as far "
            "as there are cores for what they compute" + (f" ({cores} here)" if cores else ""),
        ),
        cause=(
            f"`{found.statement.text}` waits until the task is done that was started right before, "
            "and only then does the loop come to the next one. So one task is under way at a time, "
            "and it makes no difference how many workers the pool has."
        ),
        advice=_APPLY_ASYNC
        if is_apply
        else (
            "Start all tasks first and collect their results afterwards: keep what "
            f"{method}() returns in a list and take the results in a second loop "
            f"({'as_completed' if method == 'submit' else 'or imap_unordered'}), or use map(). "
            "Where there are too many at once, keep twice as many under way as there are workers. "
            "More workers, faster cores for them and smaller tasks do not help while one is out "
            "at a time."
        ),
    )


_APPLY_ASYNC = (
    "apply() returns when its task is done: use map(), imap_unordered() or starmap(), or call "
    "apply_async() for all tasks first and get() the results afterwards. More workers, faster "
    "cores for them and smaller tasks do not help while one is out at a time."
)


def _awaited_at_once(index: Index, place: str) -> Mark | None:
    """The wait at a place for a task that was started right before; `None` for another wait."""
    line = line_at(index, place)
    for mark in marks(index, "awaits-task"):
        if mark_place(mark) == place:
            return mark
        if line is None or (mark.file, mark.function) != (line.file, line.function):
            continue
        if line.statement.line <= mark.statement.line <= line.line:
            return mark
    return None


_CHUNKS = (
    "map, starmap and map_async hand out neighbouring items in chunks, four for each worker: where "
    "the larger items are next to each other, as in a sorted list, one worker gets them all. More "
    "workers do not help."
)


def _finding_of_pool(
    index: Index, owner: Process, worker: Process, idle: Sequence[Process]
) -> Finding:
    """Describe the worker that has all of the work that is left."""
    place = work_place(index, [worker])
    at = at_place(place)
    words = ((each, doing_words(index, each)) for each in (worker, idle[0]))
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,
        process=worker.process,
        others=tuple(each.process for each in idle),
        subject="pool",
        summary=(
            f"{called(owner)} waits for results of a Pool of which {called(worker)} alone works"
            f"{at}: its other {counted(len(idle), 'worker has', 'workers have')} had no task for "
            "most of the time observed"
        ),
        evidence=tuple(f"{called(each)}: {what}" for each, what in words if what is not None),
        cause=(f"What is left of the call is with that worker. {_CHUNKS}"),
        advice=(
            "Nothing is wrong if the last task is meant to take so long. Otherwise pass "
            "chunksize=1, or use imap_unordered, so that each worker takes the next item when it "
            "is free; and begin with the largest items, or shuffle them."
        ),
    )


def _among_siblings(index: Index) -> Iterator[Finding]:
    """The one of several equal children that works while the others and their parent wait.

    The others have worked a little: they do their part of each round, and wait for its end.
    """
    families: defaultdict[tuple[ProcessId, str], list[Process]] = defaultdict(list)
    for process in index.snapshot.living():
        head = family_head(index, process) if process.role == "spawned" else None
        if head is not None and not head.is_gone:
            families[head.process, label_stem(process)].append(process)
    for (parent, _), siblings in families.items():
        owner = index.snapshot.get(parent)
        slow = [each for each in siblings if working_share(index, each) >= SLOW_SHARE]
        others = [each for each in siblings if each not in slow]
        if owner is None or len(slow) != 1 or not others:
            continue
        waited = _waited_for(index, owner, slow[0])
        works = [working_share(index, each) for each in others]
        waits = [waiting_share(index, each) for each in others]
        if waited < OWNER_WAITS or min(waits) < WAITING or max(works) > SLOW_SHARE / FACTOR:
            continue
        if max(works) >= TURN_SHARE:
            yield _finding_of_rounds(index, owner, slow[0], others, waited)


def _behind_its_pace(index: Index) -> Iterator[Finding]:
    """The one of several equal children that never sleeps in a loop in which the others do.

    A loop that sleeps until its next round is due, as a game or a control loop does, has a pace,
    and nobody waits for a process that cannot keep it.
    """
    paced: defaultdict[tuple[ProcessId, str, str], list[Process]] = defaultdict(list)
    busy: list[tuple[ProcessId, Process]] = []
    for process in index.snapshot.living():
        head = family_head(index, process) if process.role == "spawned" else None
        if head is None:
            continue
        slept = [each for each in shares(index, process) if each.activity.kind == "sleeping"]
        most = max(slept, key=lambda each: each.share, default=None)
        if most is not None and most.share >= WAITING and most.activity.place:
            where, _, function = most.activity.place.partition(" ")
            paced[head.process, where.rpartition(":")[0], function].append(process)
        elif sum(e.share for e in slept) < HARDLY and working_share(index, process) >= ALL_TIME:
            busy.append((head.process, process))
    for parent, process in busy:
        thread = main_thread(process)
        frames = own_frames(thread.stack) if thread is not None else ()
        inside = {(each.file.rpartition("/")[2], each.function) for each in frames}
        for (head_id, file, function), others in paced.items():
            if head_id == parent and (file.rpartition("/")[2], function) in inside:
                yield _finding_of_pace(index, process, others, function)
                break


ALL_TIME, HARDLY = 0.9, 0.05
"""The least share of the time in which a process works, and the largest in which it sleeps, if it
is behind the pace of its loop."""


def _finding_of_pace(
    index: Index, slow: Process, others: Sequence[Process], function: str
) -> Finding:
    """Describe a process that comes too late in each round of its loop."""
    place = work_place(index, [slow])
    at = at_place(place)
    sleeps = work_place(index, others, lambda activity: activity.kind == "sleeping")
    pause = f" at {sleeps.words}" if sleeps is not None else ""
    is_one = len(others) == 1
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=slow.process,
        others=tuple(each.process for each in others),
        subject="pace",
        summary=(
            f"{called(slow)} works all the time{at}, in the loop of {function}() in which "
            f"{all_called(others, 3)} {'sleeps' if is_one else 'sleep'} most of the time{pause}"
        ),
        evidence=tuple(
            f"{called(each)}: {words}"
            for each in (slow, *others[:3])
            if (words := doing_words(index, each)) is not None
        ),
        cause=(
            f"That loop sleeps until its next round is due. {called(slow)} never comes to that "
            "sleep: each of its rounds takes longer than the pause, so that its rounds are late "
            "and fewer. Nobody waits for it, so that nothing else shows it."
        ),
        advice=(
            f"Look at what is different in {called(slow)}{at}: its data, its folder or its "
            "configuration. Do less in each round there, or do it only now and then."
        ),
    )


def _among_ranks(index: Index) -> list[Finding]:
    """The one rank that works while all others spend most of their time in collectives."""
    ranks = ranks_of(index)
    waits = {each.process: collective_share(index, each, LEAST_TIME) for each in ranks}
    slow = [each for each in ranks if working_share(index, each) >= SLOW_SHARE]
    others = [each for each in ranks if each not in slow]
    waited = [waits[each.process] for each in others]
    if len(slow) != 1 or not others or min(waited) < LEAST_RANK_WAITS:
        return []
    if sum(waited) < RANKS_WAIT * len(others):
        return []
    works = [_works_with_core(index, each) for each in others]
    if all(_is_in_one_wait(index, each) for each in others) or spin(index, slow[0]) is not None:
        return []
    if unfinished_loop(index, slow[0], others[0]) is not None:
        return []  # it is not late in each step
    if draw_loop(index, slow[0]) and all(is_stalled(each, index, ONE_WAIT_S) for each in others):
        return []  # a draw that takes so long does not end
    if _only_lacks_cores(index, slow[0], others):
        return []
    place = work_place(index, (slow[0],))
    if place is not None and place.words.endswith((" __init__", " <module>")):
        return []  # it sets up what the others have: that is no part of a step
    if TURN_SHARE <= max(works) <= working_share(index, slow[0]) / RANKS_FACTOR:
        return [_finding_of_ranks(index, slow[0], others, sum(waited) / len(others))]
    return []


def _only_lacks_cores(index: Index, slow: Process, others: Sequence[Process]) -> bool:
    """Whether a rank computes no more than the others, on a machine where all lack cores."""
    works = {each.process: working_share(index, each) - core_share(index, each) for each in others}
    own = working_share(index, slow) - core_share(index, slow)
    lacks = min(core_share(index, each) for each in (slow, *others))
    return lacks >= LACK and own < MORE_WORK * max(works.values())


def _works_with_core(index: Index, rank: Process) -> float:
    """The share of work in the time that a rank had a core."""
    works = working_share(index, rank) - core_share(index, rank)
    return with_a_core(index, rank, works, LEAST_TIME)


class _Steps(Struct, frozen=True):
    """What a rank on a GPU did since the start of all ranks, as parts of its time with a core."""

    rank: Process
    on_gpu: float
    """Its waits for the GPU."""
    works: float
    """Its own work in Python or on files."""
    functions: Mapping[str, float]
    """Of that, the functions, `main.py step`."""
    line: str
    """The line of most of it; empty for none."""


def _among_gpu_ranks(index: Index) -> list[Finding]:
    """The one rank that computes on the cpu while all others wait for their GPUs.

    A collective of NCCL is a kernel, which runs until the slowest rank has launched its own: the
    others then wait for the GPU at any line that reads a result. Where each rank waits for its own
    kernels, all of them do. Only of a training, whose ranks meet in each step.
    """
    ranks = [each for each in ranks_of(index) if each.has_nccl and is_on_gpu(each)]
    if len(ranks) < 2 or not marks(index, "backward"):
        return []
    started_s = max(_set_up_until_s(index, each) for each in ranks)
    steps = [each for rank in ranks if (each := _steps(index, rank, started_s)) is not None]
    slow = [each for each in steps if each.on_gpu <= LEAST_ON_GPU and each.works >= SLOW_SHARE]
    others = [each for each in steps if each not in slow]
    if len(steps) < len(ranks) or len(slow) != 1 or not others:
        return []
    waits, most = min(e.on_gpu for e in others), max(e.works for e in others)
    if waits < OWNER_WAITS or not TURN_SHARE <= most <= slow[0].works / 2:
        return []
    if spin(index, slow[0].rank) is not None or any(_is_in_one_wait(index, e.rank) for e in others):
        return []
    mine = max(slow[0].functions, key=lambda each: slow[0].functions[each], default="")
    has_more = bool(mine) and all(
        slow[0].functions[mine] >= FACTOR * each.functions.get(mine, 0.0) > 0 for each in others
    )
    at = f" at {slow[0].line}" if slow[0].line else ""
    return [
        _finding_of_ranks(
            index,
            slow[0].rank,
            [each.rank for each in others],
            sum(each.on_gpu for each in others) / len(others),
            _OnGpu(at, has_more),
        )
    ]


LEAST_ON_GPU = 0.15
"""A rank that waits for the GPU for more of its time has kernels, or other ranks, to wait for."""


class _OnGpu(NamedTuple):
    """What is known of the slow one of ranks that wait for the GPU."""

    at: str
    has_more: bool


def _set_up_until_s(index: Index, rank: Process) -> float:
    """When a rank was last found in an import or in the set-up of its model, monotonic."""
    account = main_account(index, rank.process)
    until_s = imported_until_s(index, rank) or 0.0
    for bucket in account.buckets if account is not None else ():
        if any(each.what == SETUP for each in bucket.tally.seen):
            until_s = max(until_s, (bucket.number + 1) * BUCKET_S)
    return until_s


def _steps(index: Index, rank: Process, from_s: float) -> _Steps | None:
    """What a rank did from then on; `None` where too little was seen."""
    account = main_account(index, rank.process)
    buckets = account.buckets if account is not None else ()
    tally = together(each.tally for each in buckets if each.number * BUCKET_S >= from_s)
    if tally.observed_s < STEPS_S:
        return None
    found = tally.shares()
    rest = 1 - sum(each.share for each in found if each.activity == NO_CORE)
    if rest < LEAST_TIME:
        return None
    work = [e for e in found if is_work(e.activity) and e.activity.target not in ("gpu", "core")]
    functions: defaultdict[str, float] = defaultdict(float)
    for each in work:
        if each.activity.place:
            functions[_function_of(each.activity.place)] += each.share / rest
    most = max(functions, key=lambda each: functions[each], default="")
    lines = [e for e in work if _function_of(e.activity.place) == most]
    return _Steps(
        rank,
        sum(each.share for each in found if each.activity.target == "gpu") / rest,
        sum(each.share for each in work) / rest,
        functions,
        max(lines, key=lambda each: each.share).activity.place if most else "",
    )


STEPS_S = 15.0
"""Of steps that were seen for less, shares say little."""


def _function_of(place: str) -> str:
    """`main.py step` of `main.py:31 step`."""
    file, _, rest = place.partition(":")
    return f"{file} {rest.partition(' ')[2]}"


def _is_in_one_wait(index: Index, rank: Process) -> bool:
    """Whether a rank has waited for longer than it usually does: a stall, and no slow step."""
    quiet = quiet_s(rank, index) or 0.0
    return quiet >= ONE_WAIT_S and quiet > USUAL_FACTOR * usual_pause_s(index, rank)


def _finding_of_ranks(
    index: Index,
    slow: Process,
    others: Sequence[Process],
    waited: float,
    on_gpu: _OnGpu | None = None,
) -> Finding:
    """Describe the rank for which the others wait in each step."""
    place = work_place(index, [slow])
    at = at_place(place)
    has_more = place is not None and _has_more_of_the_same(index, slow, others, place)
    if on_gpu is not None:
        at, has_more = on_gpu
    evidence = [
        f"{called(each)}: {words}"
        for each in (slow, *others[:3])
        if (words := doing_words(index, each)) is not None
    ]
    evidence.append(
        "if all ranks were as fast as the others, a step would take at least "
        f"{1 - waited:.0%} of its present time"
    )
    waits = wait_verb(others)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=slow.process,
        others=tuple(each.process for each in others),
        costs=waited,
        subject="ranks",
        summary=(
            f"{all_called(others, 3)} {waits} {waited:.0%} of the time "
            f"{'in collectives' if on_gpu is None else 'for the GPU, most likely in NCCL,'} for "
            f"{called(slow)}, which {'has more to compute' if has_more else 'works'}{at}"
        ),
        evidence=tuple(evidence),
        cause=(
            f"{_ENDS if on_gpu is None else _ENDS_ON_GPU} {called(slow)} does more work "
            "in each step before that than the others; the ranks that wait are not the cause."
            f"{_MORE_OF_THE_SAME if has_more else ''}"
        ),
        advice=_EVEN_SHARES.format(slow=called(slow))
        if has_more
        else (
            f"Look at what {called(slow)} does{at} that the others do not, or do faster: metrics, "
            "logging or checkpoints of one rank only, more or longer samples, a busy core. Do it "
            "less often, share it between the ranks, or do it in another process."
        ),
    )


_ENDS = "A collective ends when all ranks have entered it."
_ENDS_ON_GPU = (
    "A collective of NCCL is a kernel on each GPU, which ends when all ranks have launched theirs: "
    "until then the others wait for the GPU, however fast it is."
)
_MORE_OF_THE_SAME = (
    " All of them run the same code there, and it computes several times as long as any other: its "
    "part of the data is larger, with more or longer samples."
)
_EVEN_SHARES = (
    "Give every rank as much to compute in each step, at the line that divides the data (the "
    "sampler, or what splits a batch): deal out samples sorted by length in turn, or pack "
    "them by their total length, instead of one contiguous part for each rank. Look what {slow} "
    "gets: log the shape of its batch beside that of another rank."
)


def _has_more_of_the_same(
    index: Index, slow: Process, others: Sequence[Process], place: Place
) -> bool:
    """Whether the other ranks are seen at the line of the slow one, and compute far less.

    A rank on a slow core computes as much as the others, and one that writes a checkpoint is where
    the others are not.
    """
    for each in others:
        main = main_thread(each)
        seen: set[str | None] = {share.activity.place for share in shares(index, each)}
        # Few stacks are taken of one that waits: the last one counts as well.
        seen.add(own_place(main) if main is not None else None)
        if place.words not in seen:
            return False
    most = max(_computing_share(index, each) for each in others)
    return _computing_share(index, slow) >= FACTOR * max(most, TURN_SHARE)


def _computing_share(index: Index, process: Process) -> float:
    """The share of the time in which the main thread ran on a core."""
    found = shares(index, process)
    return sum(each.share for each in found if each.activity.kind == "computing")


def _waited_for(index: Index, owner: Process, slow: Process) -> float:
    """The share of the time in which a process waits for another, as far as its waits are known.

    Waits for an item of a queue do not say which process has to put it.
    """
    return sum(
        each.share
        for each in shares(index, owner)
        if each.activity.kind == "waiting"
        and each.activity.target in ("pipe", "socket", "queue", "event")
        and (not each.activity.providers or slow.process in each.activity.providers)
    )


def _finding_of_rounds(
    index: Index, owner: Process, slow: Process, others: Sequence[Process], waited: float
) -> Finding:
    """Describe the process for whose part of each round all others wait.

    Unequal parts may be meant: a warning needs a sign that it has become slower, or is held up.
    """
    sign = _held_up(index, slow, others) or _slowed(index, slow)
    place = work_place(index, [slow])
    at = at_place(place)
    idle = sum(waiting_share(index, each) for each in others) / len(others)
    evidence = [
        f"{called(each)}: {words}"
        for each in (slow, owner, *others[:2])
        if (words := doing_words(index, each)) is not None
    ]
    if sign is not None:
        evidence.append(sign)
    evidence.append(
        f"without that wait {called(owner)} would be at most {times_faster(waited)} as fast"
    )
    return Finding(
        rule=RULE,
        severity=Severity.INFO if sign is None else Severity.WARNING,
        is_doubtful=sign is None,
        process=slow.process,
        others=tuple(each.process for each in others),
        costs=waited,
        subject="rounds",
        summary=(
            f"{called(owner)} waits {waited:.0%} of the time for {called(slow)}{at}, and "
            f"{counted(len(others), 'process', 'processes')} that do the same work wait with it"
        ),
        evidence=tuple(evidence),
        cause=(
            f"They work in rounds, and a round ends when the last of them has done its part. "
            f"{called(slow)} takes far longer for its part than the others, which wait "
            f"{idle:.0%} of the time. More processes do not help."
            f"{_NO_SIGN if sign is None else ''}"
        ),
        advice=(
            f"{_IF_MEANT if sign is None else ''}"
            f"Look at what is different in {called(slow)}{at}: its data or its "
            "configuration. Share the work more evenly, or let the parent take results as they "
            "come, without waiting for all in each round."
        ),
    )


_NO_SIGN = (
    " Nothing shows that it has become slower, or that a core, a file or a stop holds it up: its "
    "part may be larger by design."
)
_IF_MEANT = (
    "Nothing is wrong if its part is meant to be larger. The time of its part shows which: it "
    "stays the same if that is so, and rises if something slows it down. "
)


def _held_up(index: Index, slow: Process, others: Sequence[Process]) -> str | None:
    """What keeps it from its part, in words; `None` if its part is larger than that explains."""
    held: defaultdict[str, float] = defaultdict(float)
    for each in shares(index, slow):
        if each.activity.kind == "stopped" or each.activity.target in _HOLDS:
            held[_HOLDS.get(each.activity.target, "stopped")] += each.share
    part = working_share(index, slow) - sum(share for what, share in held.items() if what in _WAITS)
    most = max(working_share(index, each) - core_share(index, each) for each in others)
    if sum(held.values()) < HELD or part >= FACTOR * max(most, TURN_SHARE):
        return None
    words = " and ".join(f"{share:.0%} {what}" for what, share in held.items())
    return f"{called(slow)} is held up: {words}"


_HOLDS: Mapping[str, str] = {
    "core": "waiting for a free core",
    "file": "waiting for files",
    "page-faults": "waiting for pages of memory",
}
_WAITS = frozenset(_HOLDS.values())
"""Of these `working_share` counts each as work."""


def _slowed(index: Index, slow: Process) -> str | None:
    """How much less it reads than before, in words; `None` if it does not, or is not known.

    The median of stretches of time: what it reads while it starts is not of a round.
    """
    moments, counts = columns(index.history.of(slow.process, "main_read_bytes"))
    if not moments:
        return None
    rates = []
    for number in range(int((index.snapshot.at_s - moments[0]) // STRETCH_S), 0, -1):
        from_s = index.snapshot.at_s - number * STRETCH_S
        begin, end = (bisect_right(moments, each) - 1 for each in (from_s, from_s + STRETCH_S))
        rates.append((counts[end] - counts[begin]) / STRETCH_S)
    if len(rates) < 2 * STRETCHES:
        return None
    before, now = median(rates[:-STRETCHES]), median(rates[-STRETCHES:])
    if before <= 0 or before < FELL * now:
        return None
    return (
        f"{called(slow)} has become slower: its main thread read {bytes_text(before)} a second "
        f"before, and {bytes_text(now)} in the last {seconds_text(STRETCHES * STRETCH_S)}"
    )


def _usual_s(worker: Process) -> float | None:
    """Seconds a fetch usually takes, or has taken so far if it is an early and very long one.

    The last fetches count where these are known: a worker gets slow in the middle of its data.
    """
    load = worker.loader
    if load is None or load.fetch_p50_s is None:
        return None
    if len(load.recent_s) >= FETCHES:
        return median(load.recent_s[-FETCHES:])
    if load.fetched >= FETCHES:
        return load.fetch_p50_s
    is_telling = load.task_since_s is not None and load.task_since_s >= FIRST_TASK_S
    return load.task_since_s if is_telling else None


def _by_times(
    index: Index, owner: Process, workers: Sequence[Process], loader: Loader | None
) -> Iterator[Finding]:
    """The worker whose fetches take several times as long, if others wait behind it."""
    slowest = max(workers, key=lambda w: _usual_s(w) or 0.0)
    slow = _usual_s(slowest) or 0.0
    others = median(_usual_s(w) or 0.0 for w in workers if w is not slowest)
    parked = 0 if loader is None or loader.parked is None else loader.parked
    waits = loader is not None and (loader.wait_share or 0.0) >= 0.2
    if slow < max(WORTH_S, FACTOR * others) or not (parked or waits):
        return
    evidence = [
        f"{called(slowest)} takes {seconds_text(slow)} a batch{_mostly(index, slowest)}, the "
        f"others {seconds_text(others)}"
    ]
    if parked:
        evidence.append(f"{parked} finished batches wait behind it")
    if loader is not None and loader.wait_share is not None:
        evidence.append(f"main waited for its batches {loader.wait_share:.0%} of the last minute")
    behind = f"; {parked} finished batches wait behind it" if parked else ""
    yield _in_loop(index, owner, slowest) or _finding(
        index, slowest, f"{evidence[0]}{behind}", evidence
    )


def _by_samples(index: Index, owner: Process, workers: Sequence[Process]) -> Iterator[Finding]:
    """The only worker that is busy, while the others and main wait."""
    history = index.history
    main = wait_share(owner, history)
    if main is None or main < WAITING:
        return
    busy: list[Process] = []
    idle: list[float] = []
    for worker in workers:
        share = wait_share(worker, history)
        if share is not None and share <= WORKING:
            busy.append(worker)
        elif share is not None and share >= WAITING:
            idle.append(share)
        if share is None or len(busy) > 1 or WORKING < share < WAITING:
            return
    if len(busy) != 1 or _is_blocked(index, busy[0]):
        return
    others = counted(len(idle), "other worker")
    words = (
        f"main and {others} wait for {called(busy[0])}, the only busy worker"
        f"{_mostly(index, busy[0])}"
    )
    at_work = 1 - (wait_share(busy[0], history) or 0.0)
    evidence = [
        f"{called(busy[0])} was busy in {at_work:.0%} of the samples",
        f"main was waiting for a batch in {main:.0%}, the other workers for work in "
        f"{'all' if min(idle) >= 1 else f'{min(idle):.0%} or more'}",
    ]
    yield _in_loop(index, owner, busy[0]) or _finding(index, busy[0], words, evidence)


def _is_blocked(index: Index, worker: Process) -> bool:
    """Whether a worker has waited for long for another thread or process: it is not at work."""
    thread = main_thread(worker)
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.kind not in ("futex", "semaphore", "pipe-read", "child"):
        return False
    return (quiet_s(worker, index) or 0.0) >= ONE_WAIT_S


def _in_loop(index: Index, owner: Process, worker: Process) -> Finding | None:
    """The finding about a worker that runs in a loop without an end and makes no sample.

    `None` if no such loop is around the line it is at, or main has not waited for long.
    """
    thread = main_thread(worker)
    found = endless_loop(index, thread.stack) if thread is not None else None
    since_s = worker.loader.task_since_s if worker.loader is not None else None
    waited_s = waiting_s(owner, index.history)
    for_s = waited_s if since_s is None else min(waited_s, since_s)
    if found is None or for_s < LOOP_S:
        return None
    frame, header = found
    name, at, time = called(worker), frame_words(frame), seconds_text(for_s)
    line = f"`{header.text}` in line {header.line}"
    source = source_of(index, frame)
    loop = source.endless if source is not None else None
    gives = loop is None or loop.gives is not None
    why = _NOTHING_GIVEN if loop is None else f"{why_endless(loop, name)}."
    what = "sample" if gives else "end"
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=worker.process,
        summary=(
            f"{name} has made no batch for {time}: it runs in a loop without an end at {at}, and "
            "main waits for it"
        ),
        evidence=(
            f"{name} is at {at}, inside {line}",
            f"{called(owner)} has waited {time} for one batch",
        ),
        cause=(
            f"The loop {line} has reached no {what} for {time}. {why} The DataLoader takes batches "
            "from the workers in turn, so it waits for this one."
        ),
        advice=(
            f"{end_of_loop(loop, worker)} DataLoader(timeout=...) makes the main process raise."
            if loop is not None and not gives
            else f"Let {frame.function}() return when this worker has nothing to read, before "
            f"{line}. Use no more workers than there are shards, or split by sample instead of by "
            "shard."
        ),
    )


_NOTHING_GIVEN = (
    "It ends only from within, and nothing in its body yields or returns, for example because what "
    "it iterates over is empty in this worker (fewer shards or files than workers), or everything "
    "is filtered out."
)


def _mostly(index: Index, worker: Process) -> str:
    """The line of most of its work: `, mostly at data.py:31 decode`; empty if there is none."""
    place = work_place(index, [worker])
    return f", mostly at {place.words}" if place and place.is_main else ""


def _finding(index: Index, worker: Process, summary: str, evidence: list[str]) -> Finding:
    """Describe the slow worker."""
    thread = main_thread(worker)
    frame = user_frame(thread.stack) if thread is not None else None
    at = () if frame is None else (f"it is at {frame_words(frame)}",)
    place = work_place(index, [worker])
    line = place.words if place is not None else frame_words(frame) if frame is not None else ""
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=worker.process,
        summary=summary,
        evidence=(*evidence, *at),
        cause=(
            "The DataLoader assigns batches in turn and returns them in order. While one worker is "
            "slow, finished batches of the others stay in shared memory, and then these workers "
            "wait too. More workers do not help."
        ),
        advice=(
            "Make its samples as cheap as those of the others"
            f"{f': look at {line}, and split' if line else ', and split'} shards evenly. From "
            "torch 2.6 on, DataLoader(in_order=False) returns batches as they finish; their order "
            "is then not reproducible."
        ),
    )
