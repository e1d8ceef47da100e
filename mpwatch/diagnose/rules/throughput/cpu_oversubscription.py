"""Far more threads compute than there are cpus, or processes poll without a pause on these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.growth.forecast import median, slope
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    WORK_ROLES,
    all_called,
    called,
    counted,
    is_sibling,
)
from mpwatch.diagnose.analysis.source.lines import line_at
from mpwatch.diagnose.analysis.source.loops import polls_for_item
from mpwatch.diagnose.analysis.stack_patterns import HOOK_THREAD, calls, main_thread
from mpwatch.diagnose.analysis.throughput.shares import (
    KNOWN,
    SHORT_OF_CORES,
    core_share,
    doing_words,
    shares,
    shares_of_all_threads,
    shares_of_threads,
    work_place,
)
from mpwatch.model.account import NO_CORE, RUNNING_KINDS, TRANSFERS, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import SourceLine
from mpwatch.model.units import rate_text

RULE = "cpu-oversubscription"
IS_OF_SHARES = True
BUSY_PERCENT = 4.0
"""A thread that gets this much of a core wants more of it."""
CROWDED_PERCENT = 2.0
"""As much as one of a hundred threads on two cores gets."""
RUNNABLE_PER_CPU = 1.5
THREADS_PER_CPU = 2.5
LIBRARIES = 2
"""Pools that one operation may use, torch's and a BLAS library's, of one thread for each core."""
POOL = 3
"""Computing threads of one worker, main included."""
SMALL_POOL = 2
"""As many as a library starts on a machine of two cores."""
SMALL_POOL_WORKS = 0.5
"""A process with a small pool counts if its main thread computes, or waits for a core to, for this
part of the time."""
SUSTAINED_S = 5.0
READY = 0.5
"""A thread that computes, or waits for a core to, for less of its time mostly waits."""
AT_ONCE = 1.5
"""Cores that threads use together only if they compute at the same time: those that take turns with
the GIL use one, and a little for taking it."""
POLLS_SHARE = 0.85
"""Of its time, in which a process that only polls has a core or waits for one."""
POLLS_CPU = 0.05
"""Of a core, all that poll at one line together: with less they take nothing from others."""
POLLS_PART = 0.9
"""Of the computing whose line is known, so much is at the polls."""
POLLS_MOST = 0.5
"""Of the cpu time of the job's main threads."""
SHOWN = 4
_TRANSPORT_NAMES = ("QueueFeeder", "gloo_", "pt_gloo", "pt_nccl", "pt_elastic", "grpc", HOOK_THREAD)
"""Beginnings of names of threads that send and receive (CPython 3.14, torch 2.13, gRPC)."""
_TRANSPORT_FUNCTIONS = ("_feed", "_serve", "_pin_memory_loop")
_TRANSPORT_FILES = ("queues.py", "resource_sharer.py", "pin_memory.py")
_TARGET = slice(-5, -3)
"""The frames of a thread's target: `threading` has three frames below it, a wrapper may add one."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where threads or polls take the cpus that others need."""
    yield from _polls(index)
    crowds = [*_crowds(index)]
    yield from crowds or _own_crowds(index)


def _crowds(index: Index) -> Iterator[Finding]:
    """Workers that run several computing threads each, more than cpus in all.

    One busy thread in each of many workers is just many workers, and other jobs may load the
    machine. Threads that send and receive do not count: on a loaded machine they are often runnable
    although they hardly compute.
    """
    cpus, runnable = _cpus(index), _runnable(index)
    if runnable is None:
        return
    counts = [
        (process, count)
        for process in index.snapshot.living()
        if process.role in WORK_ROLES
        and (count := _busy_threads(process)) >= SMALL_POOL
        and (count >= POOL or _has_small_pool(index, process, cpus, runnable))
    ]
    threads = sum(count for _, count in counts)
    if len(counts) < 2 or threads < _many(cpus):
        return
    yield _finding(index, counts, threads, cpus, runnable)


def _cpus(index: Index) -> int:
    return index.snapshot.host.usable_cpus or index.snapshot.host.cpu_count or 0


def _many(cpus: int) -> float:
    """So many computing threads are far more than there are cpus."""
    return max(THREADS_PER_CPU * cpus, cpus + 4)


def _runnable(index: Index) -> float | None:
    """How many threads of the machine can run at a time; `None` where the cpus are enough."""
    cpus, runnable = _cpus(index), index.history.of_host("runnable")
    if not cpus or len(runnable) < 2 or runnable[-1].at_s - runnable[0].at_s < SUSTAINED_S:
        return None
    found = median([point.value for point in runnable if point.at_s >= runnable[-1].at_s - 15])
    return found if found >= RUNNABLE_PER_CPU * cpus else None


class _AtOnce(Struct, frozen=True):
    """Threads that a program has started itself, and that compute at the same time."""

    process: Process
    threads: tuple[Thread, ...]
    cores: float
    """What they use together."""
    for_core: float
    """The part of their time in which they wait for one, on average, 0 to 1."""


def _own_crowds(index: Index) -> Iterator[Finding]:
    """Processes whose own threads compute at the same time, far more than cpus in all.

    No setting of a library limits these.
    """
    cpus, runnable = _cpus(index), _runnable(index)
    if runnable is None:
        return
    found = [
        each
        for process in index.snapshot.living()
        if process.role not in SERVICE_ROLES and (each := _at_once(index, process)) is not None
    ]
    if sum(len(each.threads) for each in found) >= _many(cpus):
        yield _finding_of_own(index, found, cpus, runnable)


def _at_once(index: Index, process: Process) -> _AtOnce | None:
    """The own threads of a process that compute at once; `None` where nothing proves that.

    Threads that take turns with the GIL use one core together, also where each of them is ready to
    run all the time. Those that mostly wait for something else than a core do not count.
    """
    own = {t.tid: t for t in process.threads if t.stack and not _is_transport(t)}
    account = index.snapshot.account.processes.get(process.process)
    if account is None or len(own) < POOL:
        return None
    threads: list[Thread] = []
    cpu, waits = 0.0, 0.0
    for number, each in enumerate(account.uncounted):
        thread = own.get(each.tid)
        tally = account.thread(number).last_minute() if thread is not None else None
        if thread is None or tally is None or tally.observed_s < SUSTAINED_S:
            continue
        found = tally.shares()
        no_core = sum(share for activity, share in found if activity == NO_CORE)
        if _ready(found) >= READY:
            threads.append(thread)
            cpu += tally.cpu_s / tally.observed_s
            waits += no_core
    if not threads or cpu < AT_ONCE or waits < SHORT_OF_CORES * len(threads):
        return None
    of_library = sum(not each.stack and _is_busy(each) for each in process.threads)
    if of_library >= len(threads):
        return None
    return _AtOnce(process, tuple(threads), cpu, waits / len(threads))


def _finding_of_own(index: Index, found: Sequence[_AtOnce], cpus: int, runnable: float) -> Finding:
    """Describe threads of the program that compete for cpus."""
    processes = [each.process for each in found]
    count, names = sum(len(each.threads) for each in found), all_called(processes)
    place = work_place(index, processes, _computes, shares_of_all_threads)
    at = f", mostly at {place.words}" if place is not None and place.is_main else ""
    pools = {_executor(thread) for each in found for thread in each.threads} - {""}
    started = f"threads of {' and '.join(sorted(pools))}" if pools else "threads of the program"
    limit = " and ".join(f"{_LIMITS[each]}={cpus}" for each in sorted(pools))
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=processes[0].process,
        others=tuple(each.process for each in processes[1:]),
        subject="own threads",
        is_doubtful=True,
        summary=(
            f"{count} threads that {names} {'has' if len(found) == 1 else 'have'} started compute "
            f"at the same time and compete for {counted(cpus, 'cpu')}{at}"
        ),
        evidence=(
            *(
                f"{called(each.process)}: {len(each.threads)} {started} use {each.cores:.1f} cores "
                f"together, and each waits for a free one {each.for_core:.0%} of the time"
                for each in found[:SHOWN]
            ),
            f"{runnable:.0f} threads of the machine are runnable at a time",
        ),
        cause=(
            "These are the program's own threads, and no pool of a library: they use more than one "
            "core together, so they do not only take turns with the GIL. With more of them than "
            "cpus nothing is computed sooner: each waits until it had a turn on a cpu, and keeps "
            "what it works on in memory and in the caches meanwhile."
        ),
        advice=(
            f"Start no more of these threads than usable cpus, in all processes together: "
            f"{limit or f'{cpus} threads that take their work from a queue'} "
            "(len(os.sched_getaffinity(0)) tells how many there are). OMP_NUM_THREADS and its like "
            "do not limit them. Nothing is wrong where they wait for files or answers for most of "
            "the time at other times."
        ),
    )


def _executor(thread: Thread) -> str:
    """The executor or pool whose thread it is; empty for others."""
    frames = own_frames(thread.stack)
    return next((name for name, start in _EXECUTORS.items() if calls(frames, start)), "")


_EXECUTORS: Mapping[str, str] = {
    "a ThreadPoolExecutor": "concurrent/futures/thread.py:_worker",
    "a ThreadPool": "multiprocessing/pool.py:worker",
}
"""Where their threads run calls (CPython 3.10 to 3.14)."""
_LIMITS: Mapping[str, str] = {
    "a ThreadPoolExecutor": "max_workers",
    "a ThreadPool": "processes",
}


class _Poller(Struct, frozen=True):
    """A process that asks again and again whether there is something, without a pause."""

    process: Process
    line: SourceLine
    cpu: float
    """The cores that its main thread takes for that, 0 to 1."""
    for_core: float
    """The share of its time in which it waits for a core."""


_RETURNS_AT_ONCE = re.compile(
    r"([\w.\[\]]+)\.(?:get_nowait\(\)|get\((?:False|block=False|(?:True, |block=True, )?"
    r"(?:timeout=)?0(?:\.0*)?)\)|poll\((?:0(?:\.0*)?)?\)|empty\(\)|is_set\(\)|is_alive\(\))"
)
"""Calls of queues, connections, events and processes that do not wait, as a program writes them."""


_GOES_ON = ("continue", "pass")
"""What a loop does where a poll has returned nothing."""


def _polls(index: Index) -> Iterator[Finding]:
    """Processes whose polls return nothing nearly always, while others wait for a core.

    Several on few cores get a part of one each: what they do with the time with a core counts.
    """
    pollers = [each for p in index.snapshot.living() if (each := _poller(index, p)) is not None]
    found = {each.process.process for each in pollers}
    others = [
        (process, core_share(index, process))
        for process in index.snapshot.living()
        if process.process not in found
        and process.role not in SERVICE_ROLES
        and not any(is_sibling(index, each.process, process) for each in pollers)
    ]
    held_up = [(process, share) for process, share in others if share >= SHORT_OF_CORES]
    by_line: dict[SourceLine, list[_Poller]] = {}
    for each in pollers if held_up else ():
        by_line.setdefault(each.line, []).append(each)
    for line, group in by_line.items():
        if sum(each.cpu for each in group) >= POLLS_CPU:
            yield _finding_of_polls(index, line, group, held_up)


def _poller(index: Index, process: Process) -> _Poller | None:
    """What a main thread polls; `None` if it does anything else for a tenth of its time.

    Stacks at the line alone could be of a loop that takes one item after another. What looks like
    unpickling there is most often a call of get() that returns (its frame is the same), but must
    not be the larger part.
    """
    if process.role in SERVICE_ROLES:
        return None
    found, waits = shares(index, process), core_share(index, process)
    running = [each for each in found if each.activity.kind in RUNNING_KINDS]
    cpu = sum(each.share for each in running)
    if cpu + waits < POLLS_SHARE:
        return None
    at_lines: dict[SourceLine, float] = {}
    other = taken = in_vain = 0.0
    for each in running:
        line = line_at(index, each.activity.place) if each.activity.place else None
        if line is not None and polls_for_item(line) and line.statement.text in _GOES_ON:
            in_vain += each.share
        elif line is None or not _asks_in_loop(line):
            other += each.share if each.activity.place else 0.0
        elif each.activity.what in TRANSFERS:
            taken += each.share
        else:
            at_lines[line] = at_lines.get(line, 0.0) + each.share
    polls = sum(at_lines.values()) + in_vain
    if not at_lines or polls < max(KNOWN * cpu, taken) or polls < POLLS_PART * (polls + other):
        return None
    part = polls / (polls + other + taken)
    return _Poller(process, max(at_lines, key=at_lines.__getitem__), cpu * part, waits)


def _asks_in_loop(line: SourceLine) -> bool:
    """Whether a statement polls, as the condition of a `while` loop or inside of one."""
    return _RETURNS_AT_ONCE.search(line.statement.text) is not None and any(
        each.text.startswith("while ") for each in (line.statement, *line.within)
    )


def _finding_of_polls(
    index: Index,
    line: SourceLine,
    pollers: list[_Poller],
    held_up: list[tuple[Process, float]],
) -> Finding:
    processes = [each.process for each in pollers]
    names, is_one = all_called(processes), len(pollers) == 1
    at = f"{line.file.rpartition('/')[2]}:{line.line} {line.function}"
    called_on = _RETURNS_AT_ONCE.search(line.statement.text)
    what = called_on[1] if called_on is not None else ""
    cpu = sum(each.cpu for each in pollers)
    part = _part_of_job(index, cpu)
    cores = counted(index.snapshot.host.usable_cpus or 1, "usable core")
    waiting = [process for process, _ in held_up]
    most = max(share for _, share in held_up)
    verb = "waits" if len(waiting) == 1 else "wait"
    evidence = [
        f"{called(each.process)}: {each.cpu:.0%} of a core for polls at {at}, and "
        f"{each.for_core:.0%} of the time waiting for one"
        for each in pollers[:SHOWN]
    ]
    evidence.append(
        f"these polls take {cpu:.1f} of {cores}, {part:.0%} of the cpu time of the main threads of "
        "this job"
    )
    evidence += [
        f"{called(process)}: {words}"
        for process in waiting[:SHOWN]
        if (words := doing_words(index, process))
    ]
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if part >= POLLS_MOST else Severity.INFO,
        process=processes[0].process,
        others=tuple(each.process for each in processes[1:]),
        subject="polls",
        summary=(
            f"{names} {'polls' if is_one else 'poll'} {what} without a pause at {at}, while "
            f"{all_called(waiting)} {verb} up to {most:.0%} of the time for a free core"
        ),
        evidence=tuple(evidence),
        cause=(
            f"`{line.statement.text}` returns at once, also where there is nothing, and the loop "
            f"asks again: {'it uses' if is_one else 'each of them uses'} as much of a core as it "
            "gets, and has nothing to do. That cpu time is lost to those that compute, whatever "
            "other programs use besides."
        ),
        advice=(
            f"Wait at {at} without using a core: get() that blocks, with a sentinel that ends the "
            "loop, or with a timeout of a second where the loop has to check something else, too "
            "(poll(timeout), Event.wait(timeout), Process.join(timeout) in the same way). More "
            "processes of that kind make it worse."
        ),
    )


def _part_of_job(index: Index, cpu: float) -> float:
    """The part of the cpu time of the job's main threads that so many cores are."""
    total = sum(
        each.share
        for process in index.snapshot.living()
        for each in shares(index, process)
        if each.activity.kind in RUNNING_KINDS
    )
    return cpu / total if total else 0.0


def _has_small_pool(index: Index, process: Process, cpus: int, runnable: float) -> bool:
    """Whether a process that computes has a thread for each of two cores, and none of Python's.

    Its main thread wants a core most of the time. Or a thread of the library does, which other
    threads of the program call: that counts only where no other program keeps it from a core.
    """
    main = main_thread(process)
    if cpus > SMALL_POOL or main is None or not main.stack:
        return False
    of_library = {
        e.tid for e in process.threads if e.tid != main.tid and _is_busy(e) and not e.stack
    }
    if not of_library:
        return False
    found = [shares(index, process)]
    if not _of_others(index, runnable):
        found += shares_of_threads(index, process, of_library)
    return any(_ready(each) >= SMALL_POOL_WORKS for each in found)


def _of_others(index: Index, runnable: float) -> int:
    """How many of the runnable threads of the machine are of other programs, about."""
    of_job = sum(_is_busy(each) for p in index.snapshot.living() for each in p.threads)
    return max(0, round(runnable) - of_job)


def _ready(found: Iterable[tuple[Activity, float]]) -> float:
    """The share of the time in which a thread computes, or would if it got a core."""
    return sum(share for doing, share in found if doing.kind == "computing" or doing == NO_CORE)


def _busy_threads(process: Process) -> int:
    """The number of threads that compute, or would if they got a cpu.

    All threads of the program together count as one, beside those that a library has started for
    them: how many it starts itself is its own choice, which no setting of a library changes.
    Without any stack nothing shows which these are.
    """
    busy = [each for each in process.threads if _is_busy(each)]
    of_library = sum(not each.stack for each in busy)
    return of_library + (of_library < len(busy))


def _is_busy(thread: Thread) -> bool:
    least = CROWDED_PERCENT if thread.state == "R" else BUSY_PERCENT
    return (thread.cpu_percent or 0.0) >= least and not _is_transport(thread)


def _is_transport(thread: Thread) -> bool:
    """Whether a thread only sends and receives: by its name, or by its stack where one was taken.

    Before Python 3.14 the kernel does not know the names that Python gives to threads.
    """
    if thread.name.startswith(_TRANSPORT_NAMES):
        return True
    return any(
        frame.function.endswith(_TRANSPORT_FUNCTIONS) and frame.file.endswith(_TRANSPORT_FILES)
        for frame in thread.stack[_TARGET]
    )


def _finding(
    index: Index,
    counts: list[tuple[Process, int]],
    threads: int,
    cpus: int,
    runnable: float,
) -> Finding:
    crowded = [process for process, _ in counts]
    others = _of_others(index, runnable)
    most, most_threads = max(counts, key=lambda each: each[1])
    evidence = [
        f"{threads} computing threads in {all_called(crowded)}, {cpus} usable cpus",
        f"{runnable:.0f} threads of the machine are runnable at a time"
        + (f", about {others} of them of other programs" if others else ""),
        f"{called(most)} alone has {most_threads} of them",
    ]
    switches = slope(index.history.of(most.process, "involuntary_switches"), window_s=15)
    if switches:
        evidence.append(f"{called(most)} is interrupted {rate_text(switches)}")
    environment = most.sample.environment
    settings = environment.get("OMP_NUM_THREADS")
    evidence.append(f"OMP_NUM_THREADS={settings}" if settings else "OMP_NUM_THREADS is not set")
    cgroup = index.snapshot.host.cgroup
    quota_cpus = None if cgroup is None else cgroup.cpu_quota_cpus
    if quota_cpus:
        evidence.append(f"the control group's quota is {quota_cpus:g} cpus")
    place = work_place(index, crowded, _computes, shares_of_all_threads)
    at = ""
    if place is not None:
        evidence.append(f"{place.part:.0%} of their work whose line is known: {place.words}")
        at = f", mostly at {place.words}" if place.is_main else ""
    waited = [core_share(index, each) for each in crowded]
    if any(waited):
        evidence.append(
            f"their main threads wait for a free core {sum(waited) / len(waited):.0%} of the time"
        )
    own_limit = _limit_beyond(index, most, most_threads)
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        summary=(
            f"{threads} computing threads of {_counted(crowded)} compete for "
            f"{counted(cpus, 'cpu')}{at}"
        ),
        evidence=tuple(evidence),
        cause=(_cause(crowded, quota_cpus) if own_limit is None else own_limit)
        + (_OTHERS.format(threads=threads, cpus=counted(cpus, "cpu")) if others >= cpus else ""),
        advice=(
            _advice(crowded, environment)
            if own_limit is None
            else _advice_of_limit(max(1, cpus // len(crowded)), most)
        ),
    )


def _computes(activity: Activity) -> bool:
    """Whether a thread computes; a library's own threads do so for the one that has called it."""
    return activity.kind in RUNNING_KINDS


_OTHERS = (
    " Other programs use the cpus as well. Without them the job would be faster, and its {threads} "
    "threads would still compete for {cpus}."
)


def _counted(crowded: list[Process]) -> str:
    """`4 workers`, `2 ranks`, `3 processes`."""
    roles = {process.role for process in crowded}
    if roles == {"rank"}:
        return counted(len(crowded), "rank")
    is_worker = roles <= {"loader-worker", "pool-worker"}
    return counted(len(crowded), *(("worker",) if is_worker else ("process", "processes")))


def _limit_beyond(index: Index, process: Process, threads: int) -> str | None:
    """The cause where a process has more computing threads than any library starts by itself."""
    cores = index.snapshot.host.cpu_count
    if not cores or threads <= LIBRARIES * cores + 1:
        return None
    return (
        f"{called(process)} computes with {threads} threads, and the machine has "
        f"{counted(cores, 'core')}: a library starts at most one thread for each core by "
        "itself, so the program or its environment has asked for more. Threads that meet at a "
        "barrier at the end of each operation wait until each of them had a turn on a core."
    )


def _advice_of_limit(threads: int, process: Process) -> str:
    """Where the number of threads is set, without settings that the program overrides."""
    is_torch = process.sample.torch_loaded
    call = f"torch.set_num_threads({threads})" if is_torch else "the library's own call"
    return (
        f"Set the number of threads to the cores divided by the processes, here {threads}, where "
        f"it is set: {call} in each process, or OMP_NUM_THREADS={threads} in the environment "
        "where no call sets it (a call in the program overrides the variable)."
    )


def _cause(crowded: list[Process], quota_cpus: float | None) -> str:
    """Which libraries start such threads: those that are loaded, else those that usually do."""
    loaded = _loaded(crowded)
    pools = [words for part, words in _POOLS.items() if any(part in name for name in loaded)]
    starts = (
        f"Loaded libraries that start a thread for every core they see: {', '.join(pools)}."
        if pools
        else "The libraries that started them are not known. numpy's BLAS, OpenMP, OpenCV, numexpr "
        "and polars start a thread for every core they see, in every process."
    )
    quota = " They do not see the quota of the control group." if quota_cpus else ""
    waits = " Threads that meet at a barrier then wait until each of them had a turn on a cpu."
    loader = (
        " The DataLoader limits torch itself to one thread in each worker."
        if all(process.role == "loader-worker" for process in crowded)
        else ""
    )
    return starts + quota + waits + loader


def _loaded(crowded: list[Process]) -> frozenset[str]:
    """The libraries with pools of threads that any of the processes has loaded."""
    return frozenset(
        name for each in crowded if each.sample.maps for name in each.sample.maps.libraries or ()
    )


def _advice(crowded: list[Process], environment: Mapping[str, str]) -> str:
    """Settings that limit the threads, without those that are made already."""
    made = [name for name in _SETTINGS if environment.get(name) == "1"]
    unset = [f"{name}=1" for name in _SETTINGS if name not in made]
    has_workers = any(process.role == "loader-worker" for process in crowded)
    place = " in worker_init_fn" if has_workers else " in each process"
    loaded = _loaded(crowded)
    own = [call for part, call in _CALLS.items() if any(part in name for name in loaded)]
    own += ["torch.set_num_threads(1)"] * any(each.sample.torch_loaded for each in crowded)
    calls = f"call {' or '.join((*own, 'threadpoolctl.threadpool_limits(1)'))}{place}"
    limits = f"{made[0]}=1 does not limit these threads: " if made else ""
    if unset:
        limits += f"set {', '.join(unset)} before anything is imported, or {calls}"
    else:
        limits += calls
    return (
        f"{limits[0].upper()}{limits[1:]}. Start no more workers than usable cpus. A single large "
        "operation in a worker then takes longer."
    )


_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CALLS: Mapping[str, str] = {"cv2": "cv2.setNumThreads(0)"}
"""Part of a library's file name, and its own call that limits its threads."""
_POOLS: Mapping[str, str] = {
    "gomp": "GNU OpenMP",
    "iomp5": "Intel OpenMP",
    "openblas": "OpenBLAS",
    "mkl_rt": "MKL",
    "cv2": "OpenCV",
    "tbb": "TBB",
    "arrow": "Arrow",
}
"""Part of a library's file name, and its name."""
