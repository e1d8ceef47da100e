"""What rules read in the account of time: shares of processes, and the lines of their work.

Also the lines at which they ask a server, such as a Manager, and how often.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TypeAlias

from msgspec import Struct

from mpwatch.describe.account import LEAST_STACKS, inside_words, sentence
from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.describe.processes import unique_names
from mpwatch.describe.waits import ROOM
from mpwatch.diagnose.analysis.idle_time import last_transfer_s, quiet_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.model.account import (
    DESCRIPTORS,
    IMPORTS,
    LAST_MINUTE_S,
    NO_CORE,
    RUNNING_KINDS,
    SEEKING,
    TRANSFERS,
    Activity,
    ProcessAccount,
    Share,
    Tally,
    Target,
    ThreadAccount,
    together,
)
from mpwatch.model.history import first_at
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import INNER, SourceLine

READINGS = 6
LOSS_READINGS = 12
"""With fewer readings of a thread, it is not said that it loses time."""
LOSS_SHOWN_SHARE = 0.05
"""Threads that lose at least this part of their time are named."""
OVER_S = 20.0
"""What a process uses is averaged over the last so many seconds."""
WATCHED_S = 10.0
"""With counts over less time, no rate is told."""
OBSERVED_S = 8.0
"""With less observed time, or fewer readings, a share means nothing."""
LEAST_BUCKETS = 2
ONE_WAIT = 0.8
"""The share of the readings that find a blocked thread at its wait: in the others its stack is
older than the wait, or a tracer stops it."""
LATELY = 6
"""Buckets: half a minute."""
CAME_BACK = 0.02
"""The share of the last half a minute that such waits have at least; one reading in fifty."""
MOST_SHARE = 0.98
SHORT_OF_CORES = 0.25
"""Processes that wait for a free core this part of the time leave none for further ones."""
COMPUTES = 0.9
"""The share of its time in which a main thread computes, or waits for a core to, and no other."""
LIBRARY_SHARE = 0.2
"""More stacks in installed packages are those of numbers that are computed, as in a training."""
QUIET_S = 5.0
"""The others have waited for so long: a pause between two rounds is shorter."""
MAIN_PART = 0.5
UNRETURNED_STACKS = 3
KNOWN = 0.2
"""Lines are named where they are known of this part of the work."""


def shares(index: Index, process: Process) -> Sequence[Share]:
    """The shares of a process' main thread in the last minute; empty where too little was seen."""
    return _shares(index, process.process)


@derived
def main_account(index: Index, identity: ProcessId) -> ThreadAccount | None:
    """The account of a main thread up to now; `None` where it has none.

    Half a dozen rules read it of every process, and its tallies are made anew each time.
    """
    account = index.snapshot.account.processes.get(identity)
    return account.main if account is not None and account.uncounted else None


def unreturned(index: Index, process: Process) -> tuple[Frame, ...]:
    """The calls that no stack of a main thread has left for a while, innermost first.

    Lines may be 0: see `Callers`. Empty with too few stacks, which would only show a moment.
    """
    account = main_account(index, process.process)
    found = account.inside() if account is not None else None
    return found.frames[::-1] if found is not None and found.stacks >= UNRETURNED_STACKS else ()


@derived
def _shares(index: Index, identity: ProcessId) -> Sequence[Share]:
    account = main_account(index, identity)
    if account is None:
        return ()
    tally = account.last_minute()
    if tally.readings < READINGS or tally.observed_s < OBSERVED_S:
        return ()
    return tally.shares()


def shares_of_all_threads(index: Index, process: Process) -> Sequence[Share]:
    """What all threads of a process did in the last minute, each as shares of its own time.

    A main thread that waits or sleeps tells nothing about where others compute.
    """
    return [share for each in shares_of_threads(index, process) for share in each]


def shares_of_threads(
    index: Index, process: Process, tids: Collection[int] | None = None
) -> Sequence[Sequence[Share]]:
    """What each of some threads of a process did in the last minute, but for those seldom seen.

    Args:
        index: The snapshot.
        process: Their process.
        tids: Which they are; all by default.
    """
    account = index.snapshot.account.processes.get(process.process)
    if account is None:
        return []
    tallies = [
        account.thread(number).last_minute()
        for number, each in enumerate(account.uncounted)
        if tids is None or each.tid in tids
    ]
    return [
        each.shares()
        for each in tallies
        if each.readings >= READINGS and each.observed_s >= OBSERVED_S
    ]


def shares_apart(thread: ThreadAccount) -> Sequence[Share]:
    """The shares of a thread in the last minute, bucket by bucket; empty where too little was seen.

    Of a minute only few activities are kept apart, and a socket, pipe or child that is another one
    each time is another activity: those sums would hide what the thread does most.
    """
    observed_s = sum(bucket.tally.observed_s for bucket in thread.buckets)
    readings = sum(bucket.tally.readings for bucket in thread.buckets)
    if readings < READINGS or observed_s < OBSERVED_S:
        return ()
    found: defaultdict[Activity, float] = defaultdict(float)
    for bucket in thread.buckets:
        for each in bucket.tally.shares():
            found[each.activity] += each.share * bucket.tally.observed_s / observed_s
    return tuple(Share(activity, share) for activity, share in found.items())


def doing_words(index: Index, process: Process) -> str | None:
    """What the main thread did, `55% waiting for a free core, 43% computing at data.py:25 f`."""
    found = shares(index, process)
    return sentence(found, _names(index)) if found else None


@derived
def _names(index: Index) -> dict[ProcessId, str]:
    return unique_names(index.snapshot)


def _lately(account: ThreadAccount | None) -> Tally | None:
    """What a main thread did in the last half a minute; `None` where too little was seen."""
    if account is None:
        return None
    tally = together(bucket.tally for bucket in account.buckets[-LATELY:])
    return tally if tally.readings >= READINGS else None


def is_at_one_wait(index: Index, process: Process, for_s: float) -> bool:
    """Whether a main thread was found at one kind of wait for about as long as it was quiet.

    A short step of the program between two long waits takes next to no cpu time, and shows in what
    the readings found. True where too little was seen.
    """
    account = main_account(index, process.process)
    count = int(for_s / BUCKET_S)
    if account is None or count < LEAST_BUCKETS:
        return True
    seen: defaultdict[tuple[str, Target], float] = defaultdict(float)
    for bucket in account.buckets[-count:]:
        for each, weight in bucket.tally.seen.items():
            seen[each.kind, each.target] += weight
    return max(seen.values(), default=0.0) >= ONE_WAIT * sum(seen.values())


def mostly_sleeps(index: Index, process: Process) -> bool:
    """Whether a main thread slept for most of the last half a minute, whatever it does now."""
    tally = _lately(main_account(index, process.process))
    found = tally.shares() if tally is not None else ()
    return sum(each.share for each in found if each.activity.kind == "sleeping") > 0.5


def has_come_back(index: Index, process: Process) -> bool:
    """Whether a main thread came back in the last seconds from a wait for other processes.

    It got an item, an answer or a task, or all ranks of a collective: that is progress, whatever it
    does now. False where too little was seen.
    """
    account = main_account(index, process.process)
    tally = _lately(account)
    if account is None or tally is None:
        return False
    is_now = account.now
    return any(
        (each.kind == "idle" or (each.kind == "waiting" and each.target in _ANSWERS))
        and (each.kind, each.target) != (is_now.kind, is_now.target)
        and weight >= CAME_BACK * tally.observed_s
        for each, weight in tally.seen.items()
    )


def exchanges(index: Index, process: Process) -> bool:
    """Whether a main thread waited for items, tasks, batches or ranks in the last minute."""
    return any(
        each.share >= CAME_BACK
        and (each.activity.kind == "idle" or each.activity.target in _ANSWERS)
        for each in shares(index, process)
    )


_ANSWERS: frozenset[Target] = frozenset(
    ("barrier", "batch", "collective", "event", "pipe", "queue", "socket")
)


def can_end_alone(index: Index, process: Process, providers: Collection[ProcessId]) -> bool:
    """Whether a process alone can end a wait, of all that have the other end of what it is for.

    The others have that end by inheritance, and do nothing with it: each waits for the end of a
    process or of a thread. One that does anything else may be the one that uses it.

    Args:
        index: The snapshot.
        process: The process.
        providers: Those that may end the wait, as in `Activity.providers`.
    """
    if process.process not in providers:
        return False
    others = (each for each in providers if each != process.process)
    return all(_is_at_rest(index, each) for each in others)


def _is_at_rest(index: Index, identity: ProcessId) -> bool:
    """Whether a main thread does nothing before another process or a thread has ended."""
    account = main_account(index, identity)
    return account is not None and account.now.target in ("child", "thread")


def core_share(index: Index, process: Process) -> float:
    """The share of the time in which the main thread could run and got no core, 0 to 1."""
    return sum(each.share for each in shares(index, process) if each.activity == NO_CORE)


def idle_share(index: Index, process: Process) -> float:
    """The share of the time in which it waited for work by design, 0 to 1."""
    return sum(each.share for each in shares(index, process) if each.activity.kind == "idle")


def with_a_core(index: Index, process: Process, share: float, least: float) -> float:
    """A share of the time without waits for a free core, 0 to 1; 0 with less than `least` left.

    On a loaded machine all processes wait for a core most of the time, whatever they do next.
    """
    rest = 1 - core_share(index, process)
    return 0.0 if rest < least else min(1.0, share / rest)


def working_share(index: Index, process: Process) -> float:
    """The share of the time in which it computed, could have computed, slept, or used a file."""
    return sum(each.share for each in shares(index, process) if is_work(each.activity))


def is_computing(activity: Activity) -> bool:
    """Whether an activity is computing that may allocate, past the imports of the start."""
    return activity.kind in RUNNING_KINDS and activity.what != IMPORTS


def is_work(activity: Activity) -> bool:
    """Whether an activity is the program's own work, and no wait for another process."""
    return (
        activity.kind in RUNNING_KINDS
        or activity.kind == "sleeping"
        or activity.target in ("core", "file", "page-faults")
    )


def uses_queue(found: Iterable[Share]) -> bool:
    """Whether a stack shows that the process takes items from a queue."""
    return any(each.activity.what == "an item of a queue" for each in found)


def waiting_share(index: Index, process: Process) -> float:
    """The share of the time in which its main thread waited for what other processes have to send.

    Waits for an item, for data or for an event, and not for room or a reader: a process that waits
    for room is ahead of the others. A semaphore of which no stack shows the purpose
    counts where stacks of the same process show a queue: it is the lock of the queue's readers.
    """
    found = shares(index, process)
    return sum(
        each.share
        for each in found
        if each.activity.kind == "waiting"
        and (
            (each.activity.target in _OF_OTHERS and not each.activity.what.startswith(_AHEAD))
            or (uses_queue(found) and each.activity.target == "lock" and not each.activity.place)
        )
    )


_AHEAD = (ROOM, "the other end of")
_OF_OTHERS: frozenset[Target] = frozenset(("queue", "pipe", "socket", "event"))


def times_faster(share: float) -> str:
    """How much faster a loop is without a share of its time: `2.5 times`; never over 50 times.

    A share is known to some percentage points, so a larger number would mean nothing.
    """
    return "50 times" if share >= MOST_SHARE else f"{1 / (1 - share):.1f} times"


class Place(Struct, frozen=True):
    """The function of the program in which processes work, with its most frequent line."""

    words: str
    """`data.py:25 _load_set`."""
    part: float
    """Of the work whose line is known, 0 to 1."""

    @property
    def is_main(self) -> bool:
        """Whether it is named in a title: most of the work is there."""
        return self.part >= MAIN_PART


def at_place(place: Place | None) -> str:
    """` at data.py:30 main`; empty for none."""
    return "" if place is None else f" at {place.words}"


class Loss(Struct, frozen=True):
    """The time that one thread spent on something that the job could do without."""

    process: Process
    thread: ThreadAccount
    share: float
    """Of the thread's time, 0 to 1. Waits for a free core are divided as its cpu time is."""
    cpu_share: float
    """Of the thread's time, without waits for a core."""
    kinds: Mapping[str, float]
    """The same share by `Activity.what`."""
    place: str
    """The line of the program at which most of it was; empty where no stack showed one."""
    readings: float


Test: TypeAlias = Callable[[Activity], bool]


def losses(index: Index, is_lost: Test) -> list[Loss]:
    """The time that threads of running processes lost in some activities, the largest share first.

    Only threads that had such an activity in the last seconds are looked at.

    Args:
        index: The snapshot.
        is_lost: Whether an activity is one of those; of passing objects on, or waits for files.
    """
    found = []
    for process, account, number in _possible_losses(index):
        thread = account.uncounted[number]
        if not _had(thread, is_lost):
            continue
        tally = account.thread(number).last_minute()
        if tally.readings < READINGS or tally.observed_s < OBSERVED_S:
            continue
        loss = _loss(process, thread, tally, is_lost)
        if loss is not None:
            found.append(loss)
    return sorted(found, key=lambda loss: -loss.share)


@derived
def _possible_losses(index: Index) -> Sequence[tuple[Process, ProcessAccount, int]]:
    """The threads that did anything lately that any rule may ask `losses` for.

    Most threads did not: to find that once for all rules takes 0.05 ms for 64 workers.
    """
    found = []
    accounts = index.snapshot.account.processes
    for process in index.snapshot.living():
        account = accounts.get(process.process)
        if account is not None:
            found += [
                (process, account, number)
                for number, thread in enumerate(account.uncounted)
                if _had(thread, _may_be_lost)
            ]
    return found


_LOST = TRANSFERS | {DESCRIPTORS, SEEKING}


def _may_be_lost(activity: Activity) -> bool:
    return activity.what in _LOST or activity.target in ("file", "page-faults")


def _had(thread: ThreadAccount, is_lost: Test) -> bool:
    """Whether a thread did one of some activities in the last seconds."""
    if is_lost(thread.now):
        return True
    return bool(thread.buckets) and any(map(is_lost, thread.buckets[-1].tally.seen))


def _loss(process: Process, thread: ThreadAccount, tally: Tally, is_lost: Test) -> Loss | None:
    """What a thread lost; `None` where too little is known of what it computes."""
    found = tally.shares()
    part = _lost_part(found, is_lost)
    lost = [each for each in found if is_lost(each.activity)]
    if part is None:
        if any(each.activity.kind in RUNNING_KINDS for each in lost):
            return None
        part = 0.0
    known = sum(map(_known, lost))
    factor = part * _ready(found) / known if known else 0.0
    kinds: defaultdict[str, float] = defaultdict(float)
    places: defaultdict[str, float] = defaultdict(float)
    for each in lost:
        share = each.share * (factor if each.activity.kind in RUNNING_KINDS else 1.0)
        kinds[each.activity.what] += share
        places[each.activity.place] += share
    places.pop("", None)
    place = max(places.items(), key=itemgetter(1))[0] if places else ""
    total = sum(kinds.values())
    return Loss(process, thread, total, part * _busy(found), kinds, place, tally.readings)


def _lost_part(found: Sequence[Share], is_lost: Test) -> float | None:
    """The part of the computing that is lost, 0 to 1; `None` where little of it is known."""
    known, busy = sum(map(_known, found)), _busy(found)
    if known < KNOWN * busy:
        return None
    lost = sum(_known(each) for each in found if is_lost(each.activity))
    return lost / known if lost else 0.0


def _known(share: Share) -> float:
    """A share of computing of which a stack shows what it was."""
    activity = share.activity
    is_shown = activity.place or activity.what
    return share.share if activity.kind in RUNNING_KINDS and is_shown else 0.0


def _busy(found: Sequence[Share]) -> float:
    return sum(each.share for each in found if each.activity.kind in RUNNING_KINDS)


def _ready(found: Sequence[Share]) -> float:
    """The share in which a thread computed or waited for a core."""
    return _busy(found) + sum(each.share for each in found if each.activity == NO_CORE)


class Speedup(Struct, frozen=True):
    """How many times as fast a job would be at most without something, `FASTER_LIMIT` if more."""

    sure: float
    """If all computing of which no stack is known is needed."""
    most: float
    """If none of that is."""


def speedup_without(index: Index, is_lost: Test) -> Speedup:
    """How many times as fast the job would be at most without some activities.

    Each thread still needs the time of its other work, and all of them together the cores. Waits
    for other processes are not work.
    """
    longest, cpu = [1 / FASTER_LIMIT] * 2, [0.0] * 2
    for process in index.snapshot.living():
        account = index.snapshot.account.processes.get(process.process)
        if account is None or process.role in SERVICE_ROLES:
            continue
        for thread in account.threads:
            found = thread.last_minute().shares()
            part = _lost_part(found, is_lost)
            other = sum(each.share for each in found if _is_other_work(each.activity, is_lost))
            for number, unknown in enumerate((0.0, 1.0)):
                needed = 1 - (unknown if part is None else part)
                longest[number] = max(longest[number], needed * _ready(found) + other)
                cpu[number] += needed * _busy(found)
    cores = index.snapshot.host.usable_cpus or 1
    return Speedup(*(1 / max(each, cpu[n] / cores) for n, each in enumerate(longest)))


def lost_of_all(index: Index, is_lost: Test) -> float:
    """The part of all known computing of the job that goes into some activities, 0 to 1."""
    known, lost = 0.0, 0.0
    for process in index.snapshot.living():
        account = index.snapshot.account.processes.get(process.process)
        for thread in account.threads if account is not None else ():
            for each in thread.last_minute().shares():
                known += _known(each)
                lost += _known(each) if is_lost(each.activity) else 0.0
    return lost / known if known else 0.0


def _is_other_work(activity: Activity, is_lost: Test) -> bool:
    """Whether an activity takes time without a core that the job may need."""
    if activity.kind in RUNNING_KINDS or activity == NO_CORE or is_lost(activity):
        return False
    if activity.kind in ("sleeping", "stopped"):
        return True
    is_inside = bool(activity.providers) or activity.is_of_many
    is_outside = activity.target in ("socket", "") and not is_inside
    return activity.target in ("file", "page-faults") or (activity.kind == "waiting" and is_outside)


FASTER_LIMIT = 50.0
"""As `MOST_SHARE`."""


def shares_lately(index: Index, process: Process) -> Sequence[Share]:
    """As `shares`, of the last half a minute: without what a job did while it started."""
    tally = _lately(main_account(index, process.process))
    return () if tally is None else tally.shares()


def work_place(
    index: Index,
    processes: Iterable[Process],
    is_counted: Test = is_work,
    shares_of: Callable[[Index, Process], Sequence[Share]] = shares,
) -> Place | None:
    """Where some processes did most of their work; `None` where lines are hardly known.

    Time in which they waited for a free core has no line.

    Args:
        index: The snapshot.
        processes: The processes.
        is_counted: Which activities count.
        shares_of: Of which time.
    """
    lines: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    work = 0.0
    for process in processes:
        for each in shares_of(index, process):
            if not is_counted(each.activity) or each.activity == NO_CORE:
                continue
            work += each.share
            if each.activity.place:
                where, _, function = each.activity.place.partition(" ")
                file, _, line = where.rpartition(":")
                lines[file, function, line] += each.share
    known = sum(lines.values())
    if not work or known < KNOWN * work:
        return None
    around = {(file, line): name for file, name, line in lines if name not in INNER}
    for file, name, line in [each for each in lines if each[1] in INNER]:
        if (file, line) in around:  # a comprehension, and the function that it is written in
            lines[file, around[file, line], line] += lines.pop((file, name, line))
    functions: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (file, function, _), share in lines.items():
        functions[file, function] += share
    (file, function), most = max(functions.items(), key=itemgetter(1))
    in_it = ((share, line) for (*of, line), share in lines.items() if of == [file, function])
    _, line = max(in_it)
    return Place(f"{file}:{line} {function}", most / known)


def callers(index: Index, processes: Sequence[Process], line: SourceLine) -> list[Frame]:
    """The program's own calls that lead to a function, innermost first.

    Of a stack that is in the function now; else those which all stacks of the last seconds have
    in common.
    """
    for process in processes:
        thread = main_thread(process)
        frames = program_frames(thread.stack) if thread is not None else []
        for number, frame in enumerate(frames):
            if (frame.file, frame.function) == (line.file, line.function):
                return [each for each in frames[number + 1 :] if each.function not in INNER]
    for process in processes:
        account = main_account(index, process.process)
        inside = account.inside() if account is not None else None
        if inside is not None:
            frames = program_frames(own_frames(inside.frames[::-1]))
            return [each for each in frames if each.line and each.function != line.function]
    return []


def starting_part(
    index: Index, processes: Iterable[Process], least_s: float = OBSERVED_S
) -> float | None:
    """The part of the time of main threads that went into imports, 0 to 1.

    Of the time of which it is known what they did: waits for a core, and computing without a
    stack, count on neither side. Also of processes that have ended, up to their exit.

    Returns:
        The part, `None` where less than `least_s` is known of all of them together.
    """
    imports = known = 0.0
    for process in processes:
        account = main_account(index, process.process)
        for each, weight in account.last_minute().seen.items() if account is not None else ():
            if each.kind in ("unknown", "stopped") or each == NO_CORE:
                continue
            if each.kind in RUNNING_KINDS and not each.place and not each.what:
                continue
            known += weight
            if each.what == IMPORTS or each.place.endswith(" <module>"):
                imports += weight
    return imports / known if known >= least_s else None


def imported_until_s(index: Index, process: Process) -> float | None:
    """When the main thread was last found in an import, monotonic; `None` if it never was.

    It is known to `BUCKET_S`. Memory, mappings and descriptors rise steadily until then.
    """
    account = index.snapshot.account.processes.get(process.process)
    if account is None or not account.uncounted:
        return None
    if account.uncounted[0].now.what == IMPORTS:
        return account.at_s
    for bucket in reversed(account.uncounted[0].buckets):
        for activity in bucket.tally.seen:
            if activity.what == IMPORTS:
                return (bucket.number + 1) * BUCKET_S
    older = account.uncounted[0].imported_in
    return None if older is None else (older + 1) * BUCKET_S


class Computation(Struct, frozen=True):
    """A main thread that computes in one function of the program and does nothing else."""

    process: Process
    function: str
    """`fit (a.py), called at b.py:9 main`."""
    for_s: float
    stacks: int


def lonely_computations(index: Index, at_least_s: float) -> Iterator[Computation]:
    """Processes that compute in Python alone, read and write nothing, while no other one works.

    A single stack shows one line of a loop. The calls in which many stacks of a minute agree show
    the loop itself, or the long computation: the innermost of them is what does not return.

    Whether such a computation ends cannot be seen from outside of it.
    """
    found = [
        one
        for process in index.snapshot.living()
        if process.role not in SERVICE_ROLES
        and (one := _computation(index, process, at_least_s)) is not None
    ]
    known = {one.process.process for one in found}
    for process in index.snapshot.living() if found else ():
        if process.process not in known and process.role not in SERVICE_ROLES:
            quiet = quiet_s(process, index)
            if quiet is None or quiet < QUIET_S:
                return
    yield from found


def _computation(index: Index, process: Process, at_least_s: float) -> Computation | None:
    """What the main thread of a process has computed, without any progress, for some seconds."""
    account = index.snapshot.account.processes.get(process.process)
    if account is None or not account.uncounted or not account.uncounted[0].callers:
        return None
    inside = account.main.inside()
    if inside is None or inside.stacks < LEAST_STACKS:
        return None
    at_s = index.snapshot.at_s
    for_s = at_s - max(inside.since_s, last_transfer_s(index, process))
    shares = account.main.last_minute().shares()
    # On a loaded machine it waits for a free core as well.
    busy = sum(share for doing, share in shares if doing.kind == "computing" or doing == NO_CORE)
    is_recent = at_s - inside.taken_s < at_least_s / 2
    is_own = inside.installed <= LIBRARY_SHARE * inside.stacks
    if for_s < at_least_s or not (is_recent and is_own):
        return None
    if busy < COMPUTES:
        return None
    words = inside_words(inside)
    return Computation(process, words, for_s, inside.stacks) if words else None


# --- requests to a server -------------------------------------------------------------------------

ASKED_SHARE = 0.15
"""A line is named if asking there takes this part of a process' time."""
ASKED_SHOWN = 3
SWITCHES_PER_SAMPLE = 8
"""Switches that taking a stack by py-spy causes, 5 to 10."""
PROXY_READS = frozenset(
    ("__getitem__", "__len__", "__contains__", "__iter__", "get", "keys", "values", "items")
) | {"__getattr__", "index", "count"}
PROXY_WRITES = frozenset(
    ("__setitem__", "__setattr__", "append", "setdefault", "add", "insert", "put")
)
"""Methods of proxies for `list`, `dict`, `Namespace` and `Queue` (multiprocessing.managers)."""


class Asked(Struct, frozen=True):
    """A line at which processes ask a server, and how much time that takes."""

    place: str
    """`replay.py:26 sample`."""
    processes: tuple[Process, ...]
    share: float
    """Of the time of the one that spends most on it, 0 to 1."""
    per_s: float | None
    """How often these processes waited, for anything, each second; `None` if that is not known."""
    method: str
    """What is called there of a proxy, `__getitem__`; empty where no stack shows it."""


def asked(index: Index, server: Process, clients: Iterable[Process]) -> Sequence[Asked]:
    """The lines at which a server is asked, those with most requests first.

    A process that waits for each answer for long asks rarely; one that asks often keeps a server
    busy. A process gives up its core for each answer that it waits for. To pack and copy messages
    is part of asking where the line waits for the server as well.
    """
    known = {client.process: client for client in clients}
    found: defaultdict[str, dict[ProcessId, float]] = defaultdict(dict)
    waits: set[str] = set()
    for client in known.values():
        for each in shares(index, client):
            activity = each.activity
            asks = activity.kind == "waiting" and server.process in activity.providers
            if activity.place and (asks or activity.what in TRANSFERS):
                at_place = found[activity.place]
                at_place[client.process] = at_place.get(client.process, 0.0) + each.share
                waits.update((activity.place,) if asks else ())
    rates = {each: switches_per_s(index, client) for each, client in known.items()}
    lines = []
    for place, of_each in found.items():
        if max(of_each.values()) < ASKED_SHARE or place not in waits:
            continue
        counts = [rates[each] for each in of_each]
        per_s = None if None in counts else sum(each or 0.0 for each in counts)
        processes = tuple(known[each] for each in of_each)
        method = _proxy_method(processes, place)
        lines.append(Asked(place, processes, max(of_each.values()), per_s, method))
    return sorted(lines, key=lambda each: (-(each.per_s or 0.0), -each.share))[:ASKED_SHOWN]


def switches_per_s(index: Index, process: Process) -> float | None:
    """How often it gave up its core by itself in the last seconds, each second."""
    counts = index.history.of(process.process, "voluntary_switches")
    if len(counts) < 2 or counts[-1].at_s - counts[0].at_s < WATCHED_S:
        return None
    last_s = counts[-1].at_s
    since_s = max(counts[0].at_s, last_s - LAST_MINUTE_S)
    return max(0.0, switches_between(index, process, since_s, last_s) / (last_s - since_s))


def _proxy_method(processes: Sequence[Process], place: str) -> str:
    """The method of a Manager's proxy that is called at a line; empty where no stack shows it.

    multiprocessing makes these methods by exec (`MakeProxyType`, CPython 3.10 to 3.14).
    """
    for process in processes:
        stack = process.threads[0].stack if process.threads else ()
        if not calls(stack, "managers.py:_callmethod"):
            continue
        for above, frame in pairwise(stack):
            if above.file == "<string>" and not is_library(frame) and frame_words(frame) == place:
                return above.function
    return ""


def switches_between(index: Index, process: Process, begin_s: float, end_s: float) -> float:
    """How often a process gave up its core by itself in a stretch of time."""
    counts = index.history.of(process.process, "voluntary_switches")
    begin, end = first_at(counts, begin_s), first_at(counts, end_s)
    if end - begin < 2:
        return 0.0
    elapsed_s = counts[end - 1].at_s - counts[begin].at_s
    stack_stops = index.history.of(process.process, "stack_stops")
    stops = first_at(stack_stops, counts[end - 1].at_s) - first_at(stack_stops, counts[begin].at_s)
    # Those of other observers, and as far as they were counted one by one, of this one.
    wakes = index.history.of(process.process, "tracer_wakes")
    from_tracers: float = stops * SWITCHES_PER_SAMPLE
    if len(wakes) >= 2:
        first, last = first_at(wakes, counts[begin].at_s), first_at(wakes, counts[end - 1].at_s)
        last = min(last, len(wakes) - 1)
        from_tracers = max(from_tracers, wakes[last].value - wakes[min(first, last)].value)
    more = counts[end - 1].value - counts[begin].value - from_tracers
    return more * (end_s - begin_s) / elapsed_s if elapsed_s > 0 else 0.0
