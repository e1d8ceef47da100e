"""Which resources of which processes rise steadily, and when each reaches its limit."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from mpwatch.diagnose.analysis.growth.forecast import (
    CRITICAL_WITHIN_S,
    MAX_HORIZON_S,
    MOST_AHEAD,
    WARNING_WITHIN_S,
    Growth,
    Steadiness,
    memory_headroom,
    steady_growth,
)
from mpwatch.diagnose.analysis.growth.newest import are_of_groups, feeder_tids, own_place
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import (
    WORK_ROLES,
    YOUNG_S,
    age_s,
    all_called,
    called,
    children_started_by,
    counted,
    generations,
    label_stem,
)
from mpwatch.diagnose.analysis.resources import fd_limit, map_limit
from mpwatch.diagnose.analysis.source.lines import line_at, mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.diagnose.analysis.throughput.shares import (
    core_share,
    exchanges,
    imported_until_s,
    shares,
    unreturned,
)
from mpwatch.model.account import NO_CORE
from mpwatch.model.findings import Severity
from mpwatch.model.history import (
    NO_POINTS,
    History,
    Point,
    ProcessMetric,
    Series,
    columns,
    first_at,
    rise,
    values_of,
)
from mpwatch.model.host import FileSystemSample, NewFiles
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.snapshot import Process, Segment
from mpwatch.model.source_code import Mark, SourceLine
from mpwatch.model.units import bytes_text

MIB = 1 << 20
READ_PART = 0.4
"""Of what a process gains at its start, so much is read where it reads a data set."""
SHOWN = 3
"""Processes, lines or containers that are named."""
START_S = 15.0
"""What has risen since a process was this young may be its start: reading a data set, say."""

Resource: TypeAlias = Literal[
    "child processes", "threads", "queue", "descriptors", "mappings", "memory", "GPU memory"
]
"""The subject of a finding."""
FileKind: TypeAlias = Literal[
    "shared-memory files", "semaphores", "files in memory", "temporary files", "files"
]
"""The subject of a finding about files that are made and not removed."""


BATCHES = 4
"""A DataLoader worker that grows does so over this many batches."""
KEPT_THREADS = 6
KEPT_SPAN_S = 10.0
"""So many threads at one line, of which the last was started this long after the first one."""


MOST_LIMITED = 0.8
"""So many of the threads at one line have a time limit, as a part of them."""
ALIKE = 0.1
"""How much the longest of several waits may differ, as a part of it, to have one time limit."""


KEPT_GENERATIONS = 5
"""So many times children were started and stayed."""
KEPT_CHILDREN_SPAN_S = 30.0


class _Watched(NamedTuple):
    """A number of a process that may rise, and what makes the rise steady."""

    resource: Resource
    metric: ProcessMetric
    required: Steadiness
    share: float
    """Least gain as a part of the last value."""


# Causes come before their effects: a thread costs mappings, a child descriptors.
CHILDREN = _Watched("child processes", "children", Steadiness(30, 8, 2), 0.1)
THREADS = _Watched("threads", "threads", Steadiness(20, 6, 1), 0.1)
QUEUE = _Watched("queue", "queue_backlog", Steadiness(20, 100, 20), 0.1)
DESCRIPTORS = _Watched("descriptors", "fds", Steadiness(20, 12, 2), 0.05)
MAPPINGS = _Watched("mappings", "maps", Steadiness(20, 256, 16), 0.05)
MEMORY = _Watched("memory", "anon_bytes", Steadiness(24, 32 * MIB, 2 * MIB), 0.02)
GPU_MEMORY = _Watched("GPU memory", "gpu_bytes", Steadiness(24, 64 * MIB, 24 * MIB), 0.05)
"""torch takes memory of the driver in blocks of 2 and 20 MiB, and larger ones as they are."""
STEPS = 5
"""Memory of a GPU rises in steps, of which so many show a growth."""
START_SHARE = 0.25
"""A step this large, as a part of what was there, belongs to the start of a process on a GPU: its
context, its model, the optimizer's state, the workspaces of libraries."""
EVEN_MEMORY = Steadiness(32, 7 * MIB, MIB // 4)
EVEN = 0.45
"""A growth of memory that is less than `MEMORY` counts where each sixth of the time gains as much
as the others, up to this part of their mean: few other causes are so even."""
BACKLOG = Steadiness(24, MIB // 4, MIB // 64)
"""Of memory of a process that goes on putting items into a queue whose pipe is full: these stay in
its memory, and a thousand small ones take less than a megabyte."""
PIPE_FULL_SHARE = 0.9
TAKES_SHARE = 0.2
SEGMENTS = Steadiness(24, 64 * MIB, 4 * MIB)
SEGMENTS_SHARE = 0.1
FILES = Steadiness(30, 12, 2)
"""Folders are listed every four seconds at most."""
TEMPORARY = frozenset(("tmp", "temp", ".tmp", "cache", ".cache", "__cache__"))
"""Folders of files that are made to be removed."""
LEAST_WRITTEN, MOST_WRITTEN = 0.88, 1.15
"""A process that has written so many times what new files occupy makes them, likely. Both numbers
are read every few seconds; of four programs that wrote nothing else the quotient was 0.97 to 1.03.
Of two jobs that write as much, one may be taken for the other."""
LEAST_ENDED = 2
"""So many processes have ended whose pids names hold: one number may be there by chance."""
LEAST_WRITTEN_OUT = 3
"""Letters of a name, without its ending, that are written out in the statement that makes it."""
SIMILAR = 0.1
"""A line made these files if what it made differs from their mean size by this part at most."""
SHM = "/dev/shm"
MESSAGE_BYTES = 20
"""`REGISTER:/psm_5f3a01c2:shared_memory` and `REGISTER:/mp-x1y2z3ab:semaphore` are longer."""

_PIDS = re.compile(r"(?<![0-9])[1-9][0-9]{2,9}(?![0-9*])")

CARRIES: Mapping[Resource, frozenset[Resource]] = {
    "child processes": frozenset(("threads", "descriptors", "mappings", "memory")),
    "threads": frozenset(("mappings", "memory")),
    "memory": frozenset(("queue",)),
    "descriptors": frozenset(("mappings",)),
}
"""What rises together with a resource in the same process, or in one that does the same work; one
finding states both. A thread that does not end keeps what it refers to."""
START_RISES: frozenset[Resource] = frozenset(("descriptors", "mappings", "memory"))
"""What rises while a process imports modules."""


class Explanation(NamedTuple):
    """Why a resource rises and what to change, beyond the numbers."""

    noun: str
    """What is added: `pipe ends`, `threads`."""
    evidence: tuple[str, ...]
    cause: str
    advice: str
    title: str | None = None
    """What happens, in place of `has ever more NOUN`."""
    subject: str = ""
    """What it is, where that is more exact than the resource."""
    is_shown: bool = True
    """Whether something shows what keeps it, beyond the numbers: a line, a queue, a kind."""
    is_bounded: bool = False
    """Whether it ends by itself, at a size that was decided before."""
    is_guess: bool = False
    """Whether what keeps it is a guess, so that a container that was measured to grow is told."""


class Growing(Struct, frozen=True):
    """One resource that rises in one process, or in several that do the same work."""

    resource: Resource
    processes: tuple[Process, ...]
    growths: tuple[Growth, ...]
    """One for each process."""
    carried: tuple[tuple[Resource, Growth], ...]
    """Of the first process: what rises with it."""

    @property
    def process(self) -> Process:
        """The process in which it rises fastest."""
        return self.processes[self.growths.index(self.growth)]

    @property
    def growth(self) -> Growth:
        """The fastest growth."""
        return max(self.growths, key=lambda growth: growth.per_s)

    @property
    def per_s(self) -> float:
        """The rate of all processes together."""
        return sum(growth.per_s for growth in self.growths)


class Headroom(Struct, frozen=True):
    """How far a growing resource is from its limit."""

    what: str
    """`the descriptor limit of worker 1`, `the machine's memory`."""
    limit: float
    free: float
    eta_s: float | None
    """Seconds until nothing is free at the present rate; `None` beyond a day."""
    severity: Severity
    is_bytes: bool = False


@derived
def growing(index: Index) -> Sequence[Growing]:
    """Everything that rises steadily in the living processes, without effects of each other.

    With 64 workers of which none grows this takes 0.15 ms on an idle machine, as only numbers that
    are higher than they were are examined; with 64 that grow it takes 3 ms.
    """
    parents = frozenset(process.parent for process in index.snapshot.processes)
    found: list[Growing] = []
    for process in index.snapshot.living():
        is_parent = process.process in parents
        candidates = _candidates(index.history, process, is_parent)
        if candidates or is_parent:
            found.extend(_of_process(index, process, candidates, is_parent=is_parent))
    queues = [each for each in found if each.resource == "queue"]
    if any("queue" in (other for other, _ in each.carried) for each in found):
        # Every process that uses a queue counts its items; they are in the memory of one of them.
        found = [each for each in found if each.resource != "queue"]
    elif len(queues) > 1:
        found = [each for each in found if each.resource != "queue" or each is queues[0]]
    groups: dict[tuple[Resource, ProcessId | None, Role], list[Growing]] = {}
    for each in found:
        groups.setdefault((each.resource, *_siblings(each.processes[0])), []).append(each)
    return [
        _together(group)
        for (resource, *siblings), group in groups.items()
        if not any((cause, *siblings) in groups for cause in _causes_of(resource))
    ]


def _siblings(process: Process) -> tuple[ProcessId | None, Role]:
    """What processes that do the same work have in common."""
    alone = process.process if process.role not in WORK_ROLES else process.parent
    return alone, process.role


def _causes_of(resource: Resource) -> Iterator[Resource]:
    """What a resource rises with."""
    return (cause for cause, effects in CARRIES.items() if resource in effects)


def _of_process(
    index: Index,
    process: Process,
    candidates: Sequence[_Watched],
    *,
    is_parent: bool,
) -> Iterator[Growing]:
    """The growing resources of one process."""
    rising: dict[Resource, Growth] = {}
    started_s = imported_until_s(index, process) if candidates else None
    for resource, metric, required, share in candidates:
        series = index.history.of(process.process, metric)
        if started_s is not None and resource in START_RISES:
            series = series[first_at(series, started_s) :]
            if not series:
                continue
        if resource == "GPU memory":
            series = _without_plateaus(series)
            if not series or _is_loading(index, process):
                continue
        growth = steady_growth(series, required)
        if growth is None and resource == "memory":
            growth = _even_growth(index, process, series)
        is_backlog = growth is None and resource == "memory" and puts_into_full_pipe(index, process)
        if is_backlog:
            growth = steady_growth(series, BACKLOG)
        is_batch = resource == "memory" and growth is not None and _is_of_a_batch(process, growth)
        least = 0.0 if is_backlog else share * series[-1].value
        if growth is None or growth.gained < least or is_batch:
            continue
        if resource in ("memory", "GPU memory") and is_compiling(index, process):
            continue
        if resource in START_RISES and _is_of_slow_start(
            index, process, growth, required.span_s, started_s
        ):
            continue
        if resource == "threads" and _end_by_a_limit(index, process.process):
            continue
        rising[resource] = growth
    if not rising and not is_parent:
        return
    if "memory" in rising and "threads" not in rising:
        kept = _threads_by_start(index, process)
        if kept is not None:
            rising = {"threads": kept, **rising}
    carries = dict(CARRIES)
    if "threads" in rising and are_of_groups(process, rising["threads"].gained):
        carries["threads"] |= {"descriptors"}  # each group has connections to its ranks
    carried = {effect for cause in rising for effect in carries.get(cause, ())}
    if _is_starting(index, process):
        rising.pop("child processes", None)  # not reported, and neither is what comes with them
    kept_children = _children_by_start(index, process) if is_parent else None
    if kept_children is not None:
        rising = {"child processes": kept_children, **rising}
        carried |= CARRIES["child processes"]
    for resource, growth in rising.items():
        if resource not in carried:
            with_it = carries.get(resource, frozenset())
            effects = tuple((other, rising[other]) for other in rising if other in with_it)
            yield Growing(resource, (process,), (growth,), effects)


def _is_of_slow_start(
    index: Index, process: Process, growth: Growth, least_s: float, imported_s: float | None
) -> bool:
    """Whether a growth since the start of a process is that of a start for lack of a free core.

    Its first rounds, in which it takes the memory that all later ones use again, last longer then.
    So the time in which it waits for a core does not count.

    Args:
        index: The snapshot.
        process: The process.
        growth: What it gains.
        least_s: The shortest time of a growth.
        imported_s: When it was last found in an import, monotonic.
    """
    age, at_s = age_s(index.snapshot, process), index.snapshot.at_s
    if age is None:
        return False
    own = 1 - core_share(index, process)
    begun_s = max(at_s - age, imported_s or 0.0)
    is_start = (at_s - growth.span_s - begun_s) * own < START_S
    return is_start and growth.span_s * own < least_s


def _even_growth(index: Index, process: Process, series: Series) -> Growth | None:
    """A growth of memory that is small and even, of a process that is past its start."""
    growth = steady_growth(series, EVEN_MEMORY)
    age = age_s(index.snapshot, process)
    if growth is None or (age is not None and age - growth.span_s < START_S / 2):
        return None
    moments, values = columns(series)
    at_s = moments[-1] - growth.span_s
    marks = [
        values[min(len(values) - 1, first_at(series, at_s + n * growth.span_s / 6))]
        for n in range(7)
    ]
    steps = [after - before for before, after in pairwise(marks)]
    mean = sum(steps) / len(steps)
    return growth if all(abs(step - mean) <= EVEN * mean for step in steps) else None


def _without_plateaus(series: Series) -> Series:
    """The memory of a process on a GPU after its start, straight between the moments of its steps.

    A staircase with few steps rises steadily where each step comes in about the time of the others.

    Returns:
        A point for about each second; none where the last step is long ago, compared with the time
        between others, or where there are fewer than `STEPS`.
    """
    moments, values = columns(series)
    steps = [n for n in range(1, len(values)) if values[n] != values[n - 1]]
    first = max(
        (n for n in steps if values[n] - values[n - 1] > START_SHARE * max(values[n - 1], 1)),
        default=0,
    )
    knots = [first, *(n for n in steps if n > first)]
    if len(knots) <= STEPS:
        return NO_POINTS
    gaps_s = [moments[after] - moments[before] for before, after in pairwise(knots)]
    if moments[-1] - moments[knots[-1]] > 2 * max(gaps_s):
        return NO_POINTS
    found: list[Point] = []
    for (before, after), gap_s in zip(pairwise(knots), gaps_s, strict=True):
        parts = max(1, round(gap_s))
        gained = values[after] - values[before]
        found += (
            Point(moments[before] + n * gap_s / parts, values[before] + n * gained / parts)
            for n in range(parts)
        )
    return [*found, Point(moments[knots[-1]], values[knots[-1]])]


COMPILERS = ("/torch/_dynamo/", "/torch/_inductor/", "/triton/")
COMPILER_NAMES = frozenset(("ptxas", "nvcc", "cicc", "gcc", "g++", "cc1plus"))
LOADERS = ("/safetensors/", "/torch/serialization.py")
LOADS = frozenset(("load_state_dict", "from_pretrained", "load_weights", "load_model"))


def is_compiling(index: Index, process: Process) -> bool:
    """Whether a process compiles a model with torch.compile or triton.

    What that keeps, once for each shape, is not used up again with each step. A stack inside of the
    compiler shows it, or a compiler of the system that the process has started.
    """
    frames = [frame for each in process.threads for frame in each.stack]
    return any(part in frame.file for frame in frames for part in COMPILERS) or any(
        child.label.partition(" ")[0] in COMPILER_NAMES
        for child in index.snapshot.processes
        if child.parent == process.process
    )


def _is_loading(index: Index, process: Process) -> bool:
    """Whether a process loads a model, whose memory rises by one tensor after the other."""
    stacks = [*(each.stack for each in process.threads), unreturned(index, process)]
    return any(
        frame.function.rpartition(".")[2] in LOADS or any(part in frame.file for part in LOADERS)
        for stack in stacks
        for frame in stack
    )


def puts_into_full_pipe(index: Index, process: Process) -> bool:
    """Whether a process goes on putting items into a queue whose pipe is full all the time.

    One that has put all its tasks at once, and now takes the results, is in another loop.
    """
    # What costs least and rules out most comes first: each worker of a loader has a feeder thread.
    puts = [each for each in marks(index, "put", process) if not _ENDS.search(each.statement.text)]
    account = index.snapshot.account.processes.get(process.process)
    tids = feeder_tids(process) if puts else frozenset()
    if not tids:
        return False
    feeders = [
        account.thread(number).last_minute().shares()
        for number, each in enumerate(account.uncounted if account is not None else ())
        if account is not None and each.tid in tids
    ]
    full = [sum(x.share for x in found if x.activity.target == "pipe") for found in feeders]
    doing = shares(index, process)
    waits = sum(x.share for x in doing if x.activity.kind == "waiting" and x.activity != NO_CORE)
    if max(full, default=0.0) < PIPE_FULL_SHARE or not doing or waits >= TAKES_SHARE:
        return False
    main = main_thread(process)
    lines = [line_at(index, each.activity.place) for each in doing if each.activity.place]
    lines += [source_of(index, frame) for frame in main.stack] if main is not None else []
    return any(line is not None and _is_in_loop_with(line, put) for line in lines for put in puts)


_ENDS = re.compile(r"\.put(?:_nowait)?\(\s*None\b")
"""What tells a reader that nothing comes any more."""


def _is_in_loop_with(line: SourceLine, put: Mark) -> bool:
    """Whether a line and a put are in the same loop, as far as the headers around the line show."""
    headers = (*line.within, line.statement)  # it may be in what the loop iterates over
    loops = [each for each in headers if each.text.startswith(("while ", "for "))]
    is_same = (line.file, line.function) == (put.file, put.function)
    return is_same and bool(loops) and put.statement.line >= loops[-1].line


def _children_by_start(index: Index, process: Process) -> Growth | None:
    """The growth of children that were started time after time and have not ended.

    Their starts show it in one snapshot. Workers of a pool that replaces them are young as well,
    but are not more than before: none may have ended while the parent was watched, and some must
    have been started.
    """
    counts = values_of(index.history.of(process.process, "children"))
    if len(counts) < 2 or counts[-1] - counts[0] < 2:
        return None
    if any(after < before for before, after in pairwise(counts)):
        return None
    kept = [
        child
        for child in children_started_by(index, process)
        if not child.is_gone and child.role in ("spawned", "other") and child.sample.state != "Z"
    ]
    stem, count = Counter(map(label_stem, kept)).most_common(1)[0] if kept else ("", 0)
    if count < KEPT_GENERATIONS:
        return None
    ticks_per_s = index.snapshot.ticks_per_s
    alike = [child for child in kept if label_stem(child) == stem]
    starts_s = [group[0].process.start_ticks / ticks_per_s for group in generations(alike)]
    if len(starts_s) < KEPT_GENERATIONS:
        return None
    span_s = starts_s[-1] - starts_s[0]
    gaps_s = [later - earlier for earlier, later in pairwise(starts_s)]
    youngest = age_s(index.snapshot, max(alike, key=lambda child: child.process.start_ticks))
    goes_on = youngest is not None and youngest <= 2 * max(gaps_s)
    if span_s < KEPT_CHILDREN_SPAN_S or max(gaps_s) > span_s / 2 or not goes_on:
        return None
    return Growth((len(alike) - 1) / span_s, len(alike), span_s)


def _is_of_a_batch(process: Process, growth: Growth) -> bool:
    """Whether a growth may be the samples of the batch that a DataLoader worker is fetching.

    They are freed with it: a sawtooth of one tooth for each batch, of which few were seen.
    """
    load = process.loader
    if load is None:
        return False
    fetch_s = max(load.fetch_p50_s or 0.0, load.task_since_s or 0.0)
    return growth.span_s < BATCHES * fetch_s


def _threads_by_start(index: Index, process: Process) -> Growth | None:
    """The growth of threads that were started one after the other at one line and have not ended.

    One snapshot shows it, as the kernel keeps the start of each thread. The threads that a process
    starts in its first seconds, and at once, are pools.
    """
    snapshot, started = index.snapshot, process.process.start_ticks
    stays = {each.tid: place for each in process.threads if (place := own_place(each))}
    place, count = Counter(stays.values()).most_common(1)[0] if stays else ("", 0)
    if count < KEPT_THREADS:
        return None
    after_s = sorted(
        (each.start_ticks - started) / snapshot.ticks_per_s
        for each in process.sample.threads or ()
        if each.start_ticks is not None and stays.get(each.tid) == place and each.tid != process.pid
    )
    age = age_s(snapshot, process)
    if len(after_s) < KEPT_THREADS or age is None:
        return None
    span_s = after_s[-1] - after_s[0]
    gaps_s = [later - earlier for earlier, later in pairwise(after_s)]
    goes_on = age - after_s[-1] <= 2 * max(gaps_s)
    if span_s < KEPT_SPAN_S or max(gaps_s) > span_s / 2 or not goes_on:
        return None
    if _end_by_a_limit(index, process.process):
        return None
    return Growth((len(after_s) - 1) / span_s, len(after_s), span_s)


@derived
def _end_by_a_limit(index: Index, identity: ProcessId) -> bool:
    """Whether most threads at one line wait there since their start, up to one time limit.

    Their number rises only until the first of them ends. A thread that waits again and again, each
    time with a limit, has the less of its life before it, the older it is.
    """
    snapshot, process = index.snapshot, index.snapshot.get(identity)
    own_age_s = age_s(snapshot, process) if process is not None else None
    if process is None or own_age_s is None:
        return False
    started = {each.tid: each.start_ticks for each in process.sample.threads or ()}
    places: defaultdict[str, list[float | None]] = defaultdict(list)
    for each in process.threads:
        place, ticks, wait = own_place(each), started.get(each.tid), each.waits_on
        if place is None or ticks is None or each.tid == process.pid:
            continue
        lives_s = own_age_s - (ticks - process.process.start_ticks) / snapshot.ticks_per_s
        limit_s = wait.timeout_s if wait is not None else None
        places[place].append(None if limit_s is None else lives_s + limit_s)
    whole_s = max(places.values(), key=len, default=[])
    known_s = sorted(each for each in whole_s if each is not None)
    if len(whole_s) < KEPT_THREADS or len(known_s) < MOST_LIMITED * len(whole_s):
        return False
    return known_s[-1] - known_s[0] <= ALIKE * known_s[-1]


def _is_starting(index: Index, process: Process) -> bool:
    """Whether a process is so young that it may still start its workers one after the other."""
    age = age_s(index.snapshot, process)
    return age is not None and age < YOUNG_S


def _candidates(history: History, process: Process, is_parent: bool) -> list[_Watched]:
    """The numbers of a process that have risen by enough since the first reading, causes first.

    One process takes 2 us: what its snapshot shows spares the lookup of most series.
    """
    identity, trends = process.process, process.trends
    asked = [MEMORY]
    if _may_rise(trends.maps):
        asked.append(MAPPINGS)
    if _may_rise(trends.fds):
        asked.append(DESCRIPTORS)
    if process.gauges and "queues" in process.gauges:
        asked.append(QUEUE)
    if (process.sample.thread_count or 0) > THREADS.required.gain:
        asked.append(THREADS)
    if is_parent:
        asked.append(CHILDREN)
    if process.gpus:
        asked.append(GPU_MEMORY)
    least_memory = BACKLOG if feeder_tids(process) else EVEN_MEMORY
    series = history.processes
    return [
        watched
        for watched in reversed(asked)
        if rise(series.get((identity, watched.metric), NO_POINTS))
        >= (least_memory if watched is MEMORY else watched.required).gain
    ]


def _may_rise(recent: Sequence[float | None]) -> bool:
    """Whether the last value of a trend is above its first one, or the trend is not known."""
    if len(recent) < 2:
        return True
    first, last = recent[0], recent[-1]
    return first is None or last is None or first < last


def _together(group: Sequence[Growing]) -> Growing:
    """The same resource of processes that do the same work, as one."""
    return Growing(
        group[0].resource,
        tuple(process for each in group for process in each.processes),
        tuple(growth for each in group for growth in each.growths),
        next((each.carried for each in group if each.carried), ()),
    )


def headroom(index: Index, found: Growing) -> Headroom | None:
    """The nearest limit of a resource; `None` if it has none that is known."""
    snapshot, process = index.snapshot, found.process
    host = snapshot.host
    match found.resource:
        case "queue":
            return None
        case "memory":
            memory = memory_headroom(snapshot)
            if memory is None:
                return None
            total, free = memory.total_bytes, memory.free_bytes
            return _headroom(index, found, memory.what, total, free, found.per_s)
        case "GPU memory":
            return _gpu_headroom(index, found)
        case "descriptors":
            limit, fds = fd_limit(process), process.sample.fds
            if not limit or fds is None:
                return None
            what = f"the descriptor limit of {process.label}"
            return _headroom(index, found, what, limit, limit - fds.used, found.growth.per_s)
        case "mappings":
            limit, maps = map_limit(snapshot, process), process.sample.maps
            if not limit or maps is None:
                return None
            free = limit - maps.used
            return _headroom(index, found, "vm.max_map_count", limit, free, found.growth.per_s)
    cgroup = host.cgroup
    if cgroup is None or not cgroup.pids_limit or cgroup.pids_current is None:
        per_s, memory = _carried_memory_per_s(found), memory_headroom(snapshot)
        if per_s <= 0 or memory is None:
            return None
        return _headroom(index, found, memory.what, memory.total_bytes, memory.free_bytes, per_s)
    free = cgroup.pids_limit - cgroup.pids_current
    what = "the process and thread limit of the control group"
    return _headroom(index, found, what, cgroup.pids_limit, free, found.per_s)


def gpu_of(process: Process) -> int | None:
    """The GPU on which a process has most memory; `None` if it has none."""
    uses = [each for each in process.gpus if each.memory_bytes]
    return max(uses, key=lambda each: each.memory_bytes or 0).index if uses else None


def _gpu_headroom(index: Index, found: Growing) -> Headroom | None:
    """The GPU whose memory these processes use up first, at the rate of all that grow on it."""
    per_s: defaultdict[int | None, float] = defaultdict(float)
    for process, growth in zip(found.processes, found.growths, strict=True):
        per_s[gpu_of(process)] += growth.per_s
    near = None
    for gpu in index.snapshot.gpus or ():
        total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
        if gpu.index not in per_s or total is None or used is None:
            continue
        what = f"GPU {gpu.index}'s memory"
        each = _headroom(index, found, what, total, total - used, per_s[gpu.index])
        if near is None or (each.eta_s or MAX_HORIZON_S) < (near.eta_s or MAX_HORIZON_S):
            near = each
    return near


def _carried_memory_per_s(found: Growing) -> float:
    return sum(growth.per_s for resource, growth in found.carried if resource == "memory")


def _headroom(
    index: Index, found: Growing, what: str, limit: float, free: float, per_s: float
) -> Headroom:
    free = max(0.0, free)
    eta_s = free / per_s if per_s > 0 else None
    if eta_s is not None and eta_s > MAX_HORIZON_S:
        eta_s = None
    is_bytes = what.endswith("memory")
    return Headroom(what, limit, free, eta_s, _severity(index, found, eta_s), is_bytes)


def _severity(index: Index, found: Growing, eta_s: float | None) -> Severity:
    """How urgent the limit is; a short past says little of a distant future.

    What a process has gained since its start may be what it reads for its work, which ends.
    """
    span_s = found.growth.span_s
    age = age_s(index.snapshot, found.process)
    is_start = age is not None and age - span_s < START_S and not _is_in_rounds(index, found)
    if is_start and eta_s is not None and eta_s > span_s:
        return Severity.INFO
    return urgency(eta_s, span_s)


def _is_in_rounds(index: Index, found: Growing) -> bool:
    """Whether a process that grows exchanges items with others, and reads far less than it keeps.

    One that reads a data set at its start does not do that yet. It has a thread that puts items
    into a queue, does tasks of a pool or a loader, or has waited for items, batches or ranks.
    """
    process, growth = found.process, found.growth
    read = rise(index.history.of(process.process, "read_bytes"), within_s=growth.span_s)
    if found.resource != "memory" or read > READ_PART * growth.gained:
        return False
    if process.role in ("loader-worker", "pool-worker"):
        return True
    return bool(feeder_tids(process)) or exchanges(index, process)


def urgency(eta_s: float | None, span_s: float) -> Severity:
    """The severity of a limit ahead of a growth that has been observed for so long."""
    if eta_s is None or eta_s > WARNING_WITHIN_S or eta_s > MOST_AHEAD * span_s:
        return Severity.INFO
    return Severity.CRITICAL if eta_s <= CRITICAL_WITHIN_S else Severity.WARNING


class GrowingSegments(Struct, frozen=True):
    """Shared memory of the job that rises steadily."""

    growth: Growth
    """In bytes."""
    newest: tuple[Segment, ...]
    """The segments made last, which together are about as large as what was gained."""
    file_system: FileSystemSample | None

    @property
    def eta_s(self) -> float | None:
        """Seconds until the file system is full; `None` beyond a day."""
        eta_s = MAX_HORIZON_S + 1
        if self.file_system is not None:
            eta_s = self.file_system.free_bytes / self.growth.per_s
        return eta_s if eta_s <= MAX_HORIZON_S else None


def growing_segments(index: Index) -> GrowingSegments | None:
    """The segments that processes of the job hold, if they take up ever more memory."""
    series = index.history.of_host("segment_bytes")
    growth = steady_growth(series, SEGMENTS)
    if growth is None or growth.gained < SEGMENTS_SHARE * series[-1].value:
        return None
    kept = [segment for segment in index.snapshot.segments if segment.kind != "semaphore"]
    kept.sort(key=lambda segment: -(segment.changed_wall_s or 0.0))
    newest: list[Segment] = []
    left = growth.gained
    for segment in kept:
        if left <= 0:
            break
        newest.append(segment)
        left -= segment.size_bytes or 0
    return GrowingSegments(growth, tuple(newest), index.snapshot.host.shm)


class GrowingFiles(NamedTuple):
    """Files with similar names that a job makes and no process removes."""

    kind: FileKind
    files: NewFiles
    growth: Growth
    """In files."""
    makers: tuple[Process, ...]
    """The processes that make them, as far as that is known."""
    proof: str
    """How it is known that they are of this job, as a sentence of evidence."""
    is_use: bool
    """Whether `makers` are only known to use them: one makes them, and others may read them."""
    eta_s: float | None
    """Seconds until the file system or the memory is used up; `None` beyond a day."""

    @property
    def bytes_per_s(self) -> float:
        """The rate in bytes: files of the mean size."""
        return self.growth.per_s * self.files.size_bytes / max(1, self.files.total)


def growing_files(index: Index) -> Iterator[GrowingFiles]:
    """The files whose number rises steadily: of each kind those that occupy most.

    Other jobs of the same user may make files as well. Only those are reported that a process of
    this job had open, whose names hold its pid, that occupy what it has written in the same time,
    whose name a statement of the program writes out, or, of blocks and semaphores, for which its
    resource tracker has read enough messages: that is how they are registered, also under a name
    of the program (multiprocessing/resource_tracker.py, CPython 3.10 to 3.14). What a program
    writes permanently is reported only if it fills its file
    system within a day.
    """
    found: dict[FileKind, GrowingFiles] = {}
    for files in index.snapshot.host.new_files or ():
        growth = steady_growth(index.history.files.get(files.key, NO_POINTS), FILES)
        if growth is None:
            continue
        traced = _traced(index, files, growth)
        if traced is None:
            continue
        kind, eta_s = _file_kind(index, files, growth), _files_eta_s(index, files, growth)
        each = GrowingFiles(kind, files, growth, *traced, eta_s)
        if kind == "files" and eta_s is None:
            continue
        if kind not in found or each.bytes_per_s > found[kind].bytes_per_s:
            found[kind] = each
    yield from found.values()


def _file_kind(index: Index, files: NewFiles, growth: Growth) -> FileKind:
    """The subject of a finding about these files."""
    if files.kind == "semaphore":
        return "semaphores"
    if _may_be_blocks(files) and (
        files.kind == "psm" or _noted_by_hooks(index, files) or _registered(index, growth)
    ):
        return "shared-memory files"
    if files.is_memory:
        return "files in memory"
    is_temporary = (
        files.is_shared
        or _is_below_tmpdir(index, files)
        or files.key.group.startswith("tmp*")
        or any(name in TEMPORARY for name in files.key.folder.split("/"))
    )
    return "temporary files" if is_temporary else "files"


def _files_eta_s(index: Index, files: NewFiles, growth: Growth) -> float | None:
    """Seconds until no bytes, inodes or memory are left, `None` beyond a day."""
    if not files.total:
        return None
    bytes_per_s = growth.per_s * files.size_bytes / files.total
    ends = []
    if files.file_system is not None:
        if bytes_per_s > 0:
            ends.append(files.file_system.free_bytes / bytes_per_s)
        if files.file_system.free_inodes is not None:
            ends.append(files.file_system.free_inodes / growth.per_s)
    memory = memory_headroom(index.snapshot) if files.is_memory else None
    if memory is not None and bytes_per_s > 0:
        ends.append(memory.free_bytes / bytes_per_s)
    eta_s = min(ends, default=MAX_HORIZON_S + 1)
    return eta_s if eta_s <= MAX_HORIZON_S else None


class _Traced(NamedTuple):
    """The processes that make some files, and how that is known; the fields of `GrowingFiles`."""

    makers: tuple[Process, ...]
    proof: str
    is_use: bool = False


def _may_be_blocks(files: NewFiles) -> bool:
    """Whether files may be blocks of `multiprocessing.shared_memory`, with a name of their own."""
    return files.kind != "semaphore" and files.key.folder == SHM


def _traced(index: Index, files: NewFiles, growth: Growth) -> _Traced | None:
    """The processes that make some files, and how that is known; `None` if nothing shows it."""
    living = {process.pid: process for process in index.snapshot.living()}
    is_block = _may_be_blocks(files)
    if is_block and (noted := _noted_by_hooks(index, files)):
        words = " and ".join(f"{called(each)} makes them at {place}" for each, place in noted[:3])
        return _Traced(tuple(process for process, _ in noted[:3]), f"{words}, as its hook has seen")
    named = _named(files, living) or _named_after_ended(index, files)
    if named is not None:
        return named
    seen = [(living[pid], count) for pid, count in files.makers if pid in living]
    if seen:
        words = " and ".join(
            f"{called(process)} had one of them open in {counted(count, 'reading')}"
            for process, count in seen[:3]
        )
        # A block is opened for writing by its readers as well.
        return _Traced(tuple(process for process, _ in seen[:3]), words, is_block)
    registered = _registered(index, growth) if is_block or files.kind != "file" else None
    if registered is not None or files.kind != "file":
        return registered
    gained_bytes = growth.gained * files.size_bytes / max(1, files.total)
    for process in living.values():
        written = _written_bytes(index.history, process, growth.span_s)
        if gained_bytes and LEAST_WRITTEN <= written / gained_bytes <= MOST_WRITTEN:
            words = (
                f"{called(process)} has written {bytes_text(written)} in that time, about what "
                f"they occupy: that it makes them is likely, and not certain"
            )
            return _Traced((process,), words)
    made = made_by(index, files)
    if made is not None and made.is_sure:
        words = (
            f"their name is the one that {mark_words(made.mark)} gives, {made.pattern}; another "
            "run of the same program would count as well"
        )
        return _Traced((), words)
    if _is_below_tmpdir(index, files):
        words = "they are in the TMPDIR of this job; other jobs of the user with the same one count"
        return _Traced((), words)
    return None


def _named(files: NewFiles, living: Mapping[int, Process]) -> _Traced | None:
    """The processes whose pids the names of some files hold."""
    if files.kind != "file":
        return None
    numbers = (*map(int, _PIDS.findall(files.pattern)), *files.numbers)
    named = [living[pid] for pid in dict.fromkeys(numbers) if pid in living][:3]
    if not named:
        return None
    pids = "pid" if len(named) == 1 else "pids"
    return _Traced(tuple(named), f"their names hold the {pids} of {all_called(named)}")


def _named_after_ended(index: Index, files: NewFiles) -> _Traced | None:
    """That the names of some files hold the pids of processes of the job which have ended."""
    if files.kind != "file":
        return None
    ended = {each.pid: each for each in index.snapshot.processes if each.is_gone}
    numbers = dict.fromkeys((*map(int, _PIDS.findall(files.pattern)), *files.numbers))
    named = [ended[each] for each in numbers if each in ended]
    if len(named) < LEAST_ENDED:
        return None
    words = (
        f"their names hold the pids of {len(named)} processes of this job that "
        f"have ended, such as {called(named[0])}"
    )
    return _Traced((), words)


class MadeFiles(NamedTuple):
    """The one statement that gives files the names which they have."""

    mark: Mark
    pattern: str
    removal: str
    """As `MarkKind` says of "makes-file"."""
    is_sure: bool
    """Whether the name is written out, and not `tmp*`, as the standard library gives it."""


def made_by(index: Index, files: NewFiles) -> MadeFiles | None:
    """The statement of the program that makes some files, if the name fits that of one alone."""
    name = files.example.rpartition("/")[2]
    found = []
    for mark in marks(index, "makes-file"):
        pattern, _, removal = mark.about.partition("; ")
        written = pattern.removeprefix("tmp*").replace("*", "").removesuffix(_ending(pattern))
        is_sure = sum(map(str.isalpha, written)) >= LEAST_WRITTEN_OUT
        fits = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
        if fits and (is_sure or pattern.startswith("tmp*")):
            found.append(MadeFiles(mark, pattern, removal, is_sure))
    sure = [each for each in found if each.is_sure] or found
    return sure[0] if len({(e.mark.file, e.mark.statement) for e in sure}) == 1 else None


def _ending(pattern: str) -> str:
    """`.npy` of `ocr_*.npy`, which other files have, too."""
    _, dot, ending = pattern.rpartition(".")
    return f"{dot}{ending}" if dot else ""


def _is_below_tmpdir(index: Index, files: NewFiles) -> bool:
    """Whether files are in the TMPDIR of the job, and that is none that all jobs use."""
    root = index.snapshot.get(index.snapshot.root)
    tmp = root.sample.environment.get("TMPDIR") if root is not None else None
    folder = f"{files.key.folder}/"
    return tmp is not None and not files.is_shared and folder.startswith(f"{tmp.rstrip('/')}/")


def _noted_by_hooks(index: Index, files: NewFiles) -> list[tuple[Process, str]]:
    """The processes whose hooks have seen them make blocks of this size, and at which line."""
    mean_bytes = files.size_bytes / max(1, files.total)
    found: dict[ProcessId, tuple[Process, str]] = {}
    for line in index.snapshot.file_lines:
        process = index.snapshot.get(line.process)
        if line.size_bytes is None or process is None or process.is_gone:
            continue
        if abs(line.size_bytes - mean_bytes) <= SIMILAR * mean_bytes:
            found.setdefault(line.process, (process, line.place))
    return list(found.values())


def _registered(index: Index, growth: Growth) -> _Traced | None:
    """The processes whose resource trackers have registered so many blocks or semaphores."""
    snapshot = index.snapshot
    read = [
        (process, rise(index.history.of(process.process, "read_bytes")))
        for process in snapshot.living()
        if process.role == "resource-tracker"
    ]
    if sum(size for _, size in read) < MESSAGE_BYTES * growth.gained:
        return None
    trackers = [tracker for tracker, size in read if size >= MESSAGE_BYTES * growth.gained / 2]
    users = [user for each in trackers if (user := snapshot.get(each.parent)) is not None]
    if len(users) > 1:
        words = (
            f"{all_called(users)} use them: each has a resource tracker, which has read enough "
            "messages to have registered them"
        )
        return _Traced(tuple(users), words, is_use=True)
    # Children use the resource tracker of the process that started them.
    words = "the resource tracker of this job has read enough messages to have registered them"
    return _Traced((), words, is_use=True)


def _written_bytes(history: History, process: Process, span_s: float) -> float:
    """What a process has written by system calls in the last seconds, pipes included."""
    series = history.of(process.process, "written_bytes")
    if len(series) < 2:
        return 0.0
    from_s = series[-1].at_s - span_s
    return series[-1].value - series[max(0, first_at(series, from_s + 1.0) - 1)].value
