"""Items that wait in memory, because what uses them is slower than what makes them.

They wait in a queue without a bound, in front of a full pipe, in a pool or an executor, or between
two threads of one process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.describe.waits import FULL_QUEUE
from mpwatch.diagnose.analysis.growth.growing import SHOWN, Explanation, Growing
from mpwatch.diagnose.analysis.growth.holders import adds_itself, container_in_source
from mpwatch.diagnose.analysis.growth.newest import blocked_feeder, own_lines, own_place
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    WORK_ROLES,
    all_called,
    called,
    children_started_by,
)
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    functions_of,
    main_thread,
    own_threads,
    user_frame,
)
from mpwatch.diagnose.analysis.throughput.shares import (
    at_place,
    doing_words,
    idle_share,
    shares,
    unreturned,
    waiting_share,
    work_place,
    working_share,
)
from mpwatch.model.history import rise
from mpwatch.model.samples import Channel, Frame, channel_of
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark
from mpwatch.model.units import bytes_text, seconds_text

KEPT = (0.4, 1.3)
"""Private memory that is gained for each byte that is read, where what is received is kept."""
AHEAD_SHARE = 0.65
"""A process that works this part of the time uses results more slowly than its Pool makes them; the
workers of the Pool are idle for less than the rest."""


def backlog(index: Index, found: Growing, seen: Sequence[str]) -> Explanation | None:
    """Tasks or items that wait for processes which are slower than the one that makes them.

    Args:
        index: The snapshot.
        found: The memory that rises.
        seen: Where the process was seen to compute, as evidence.
    """
    process = found.process
    submits = _submitted_at_once(index, process, seen) or _tasks_of_executor(index, process, seen)
    if submits is not None:
        return submits
    slow = slow_consumers(index, found)
    if slow is None and any(other == "queue" for other, _ in found.carried):
        names, is_one = all_called(found.processes), len(found.processes) == 1
        return Explanation(
            "private memory",
            tuple(seen),
            "Items are put into a queue faster than they are taken out, and the queue has no "
            "maxsize. They wait in the memory of the process that puts them.",
            BOUND_THE_QUEUE,
            f"{names} {'fills' if is_one else 'fill'} a queue faster than it is read",
            "queue",
        )
    if slow is not None:
        return Explanation(
            "private memory",
            (*slow.evidence, *seen),
            "Items are put into a queue faster than they are taken out. Its pipe is full, and the "
            "other items wait in the memory of the process that puts them.",
            BOUND_THE_QUEUE,
            slow.title,
            "queue",
        )
    return None


def managed_queue(index: Index, manager: Process) -> Explanation | None:
    """A queue without a bound in a Manager, and who fills it faster than it is emptied.

    The process that takes items out does something else for most of the time. One that waits for
    the next item has emptied the queue.
    """
    queues = marks(index, "managed-queue")
    found = _slow_taker(index, manager, queues[0]) if len(queues) == 1 else None
    if found is None:
        return None
    made, taker = queues[0], found.taker
    by, names = called(taker), all_called(found.putters)
    verb = "puts" if len(found.putters) == 1 else "put"
    where = f" at {found.place}" if found.place else ""
    limit = f", each time for up to {seconds_text(found.limit_s)}" if found.limit_s else ""
    likely = "" if found.is_named else "Most likely items of a queue: "
    return Explanation(
        "private memory",
        (
            f"that queue has no maxsize: {mark_words(made)}",
            f"{names} {verb} items: {mark_words(found.put)}",
            f"{by} takes items: {mark_words(found.take)}",
            *((f"{by}: {words}",) if (words := doing_words(index, taker)) else ()),
        ),
        f"{likely}{mark_words(made)} makes a queue without maxsize in the process of the Manager, "
        f"and that keeps all items which are not taken yet. {names} {verb} items there, and "
        f"nothing makes {'it' if len(found.putters) == 1 else 'them'} wait; {by} takes them more "
        f"slowly: for each one it is busy or waits{where}{limit}.",
        f"Give the queue a bound, {_with_maxsize(made)}, so that put() waits, or let it drop "
        "or merge items where the queue is full (put_nowait, except queue.Full). Let "
        f"{by} spend less time{where} for each item: many items at once, a shorter time limit, or "
        "no further attempt for a while after one has failed. gc.collect() or more memory do not "
        "help: all of it is referred to.",
        f"{names} {'fills' if len(found.putters) == 1 else 'fill'} a queue in {called(manager)} "
        f"faster than {by} takes items out",
        "queue",
    )


def _with_maxsize(made: Mark) -> str:
    found = re.search(r"[\w.]+\.(?:Joinable)?Queue(?=\()", made.statement.text)
    return f"{found[0] if found is not None else 'Queue'}(maxsize=...)"


class _SlowTaker(Struct, frozen=True):
    """A process that takes items out of a queue more slowly than others put them in."""

    taker: Process
    take: Mark
    putters: Sequence[Process]
    put: Mark
    place: str
    """Where the taker spends most of its time."""
    limit_s: float | None
    """The time limit of its wait there."""
    is_named: bool
    """Whether they all call the queue by one name, as far as the source shows."""


def _slow_taker(index: Index, manager: Process, made: Mark) -> _SlowTaker | None:
    """The one process that takes items out of a queue, if it does something else most of the time.

    A queue is given to functions, in which it may have another name: that is the same where they
    put and where they take.
    """
    others = [each for each in index.snapshot.living() if each.process != manager.process]
    own = _last_part(made.about)
    taking = _in_marks(others, marks(index, "takes"))
    putting = _in_marks(others, marks(index, "put"))
    names = {_last_part(mark.about) for mark, _ in taking}
    names &= {_last_part(mark.about) for mark, _ in putting}
    name = own if own in names else names.pop() if len(names) == 1 else ""
    takers = [each for each in taking if _last_part(each[0].about) == name]
    if not name or len({process.process for _, process in takers}) != 1:
        return None
    take, taker = takers[0]
    puts = [each for each in putting if _last_part(each[0].about) == name and each[1] != taker]
    mean = [each for each in shares(index, taker) if each.activity.place != mark_place(take)]
    if not puts or sum(each.share for each in mean) < AHEAD_SHARE:
        return None
    if idle_share(index, taker) > 1 - AHEAD_SHARE:
        return None
    place = next((each.activity.place for each in mean if each.activity.place), "")
    main = main_thread(taker)
    wait = main.waits_on if main is not None else None
    return _SlowTaker(
        taker,
        take,
        list({process.process: process for _, process in puts}.values()),
        puts[0][0],
        place,
        wait.timeout_s if wait is not None else None,
        name == own,
    )


def _in_marks(processes: Sequence[Process], found: Sequence[Mark]) -> list[tuple[Mark, Process]]:
    """The processes whose main thread is in a function with one of these marks, with that."""
    inside = {
        each.process: functions_of(own_frames(thread.stack))
        for each in processes
        if (thread := main_thread(each)) is not None
    }
    return [
        (mark, each)
        for mark in found
        for each in processes
        if (mark.file, mark.function) in inside.get(each.process, ())
    ]


def _submitted_at_once(index: Index, process: Process, seen: Sequence[str]) -> Explanation | None:
    """A process inside of a `map` that takes all of its items before the first result is used.

    Its last stack shows it, or what all stacks of its last seconds have in common. Checked against
    CPython 3.10 to 3.14: `Executor.map` submits a call for each item first (before 3.14 there is no
    `buffersize`), and `Pool.map` makes a list of the items.
    """
    main = main_thread(process)
    stack = own_frames(main.stack) if main is not None else ()
    found = _mapping(stack) or _mapping(own_frames(unreturned(index, process)))
    if found is None:
        return None
    name, line = found.name, found.line
    made = f" (made at {found.items})" if found.items else ""
    return Explanation(
        "private memory",
        tuple(seen),
        f"It is still inside of {name} at {line}, which takes every item of its iterable{made} "
        "before it returns. Until the last one is there no result is used: the items "
        "that wait for a worker and the results that are ready all stay in this process.",
        f"Keep a bounded number of tasks in flight at {line}: submit() some, and for each result "
        "that is used one more (itertools.islice, wait(return_when=FIRST_COMPLETED)); or, from "
        "Python 3.14 on, Executor.map(buffersize=...). Pool.imap takes items one by one, and needs "
        "a semaphore to bound them.",
        f"{called(process)} gathers all items of {name} at {line} before it uses a result",
    )


class _Mapping(Struct, frozen=True):
    """A call of a `map` that has not returned."""

    name: str
    line: str
    """Where it is called."""
    items: str
    """Where its items are made; empty if that is not one line."""


def _mapping(frames: Sequence[Frame]) -> _Mapping | None:
    """The call of a `map` in a stack, innermost frame first."""
    for number, frame in enumerate(frames):
        name = next((name for name, each in _MAPS if calls((frame,), each)), None)
        caller = next((each for each in frames[number + 1 :] if not is_library(each)), None)
        if name is not None and caller is not None:
            items = next((each for each in frames[:number] if not is_library(each)), None)
            made = frame_words(items) if items is not None and items.line else ""
            return _Mapping(name, frame_words(caller), made)
    return None


def _tasks_of_executor(index: Index, process: Process, seen: Sequence[str]) -> Explanation | None:
    """Tasks that wait in a ProcessPoolExecutor, whose own queue to its workers is full.

    That queue has a bound; what waits for room in it is in a dict without one
    (`_pending_work_items` of concurrent/futures/process.py, CPython 3.10 to 3.14).
    """
    blocked = blocked_feeder(index, process)
    if blocked is None or not any(
        calls(own_frames(each.stack), "concurrent/futures/process.py:run")
        for each in process.threads
    ):
        return None
    workers = [each for each in blocked.readers(index) if each.role == "pool-worker"]
    if not workers:
        return None
    names, is_one = all_called(workers), len(workers) == 1
    return Explanation(
        "private memory",
        (f"the queue of its executor to {names} is full", *seen),
        "Tasks are submitted faster than the workers of its ProcessPoolExecutor do them. submit() "
        "and map() take any number of tasks: they and their arguments wait in this process.",
        "Keep a bounded number of tasks in flight: submit() some, and for each result that is used "
        "one more (wait(return_when=FIRST_COMPLETED)), or let a threading.Semaphore(n) be acquired "
        "before each submit() and released by add_done_callback().",
        f"{called(process)} submits tasks faster than {names} {'does' if is_one else 'do'} them",
        "queue",
    )


_MAPS = (
    ("Executor.map", "concurrent/futures/_base.py:map"),
    ("Executor.map", "concurrent/futures/process.py:map"),
    ("Pool.map", "multiprocessing/pool.py:_map_async"),
)


def unused_results(index: Index, process: Process, seen: tuple[str, ...]) -> Explanation | None:
    """Results of a Pool that its workers make faster than the process uses them."""
    workers = [
        child
        for child in children_started_by(index, process)
        if any(calls(own_frames(each.stack), "pool.py:worker") for each in child.threads)
    ]
    has_pool = any(
        calls(own_frames(each.stack), "pool.py:_handle_results") for each in process.threads
    )
    if not has_pool or not workers or working_share(index, process) < AHEAD_SHARE:
        return None
    if any(_share_without_task(index, each) > 1 - AHEAD_SHARE for each in workers):
        return None
    place = work_place(index, [process])
    at = at_place(place)
    names = all_called(workers)
    return Explanation(
        "private memory",
        (*seen, f"its Pool: {names} {'is' if len(workers) == 1 else 'are'} hardly ever idle"),
        f"Results of its Pool pile up in it: {names} "
        f"{'makes' if len(workers) == 1 else 'make'} them faster than {called(process)} uses them, "
        f"which works all the time{at}. A Pool has no back-pressure: one of its threads takes each "
        "result as soon as it is there, and imap, imap_unordered and apply_async keep it in this "
        "process until it is asked for.",
        "Limit the tasks in flight: let the iterator of tasks acquire a threading.Semaphore(n) for "
        "each, and release it once the result is used; or submit a bounded number of tasks and use "
        f"their results before the next. Or do what is done{at} in the workers.",
    )


def _share_without_task(index: Index, worker: Process) -> float:
    """The share of the time in which a worker of a Pool has no task, also at the lock of these."""
    at_lock = sum(
        each.share
        for each in shares(index, worker)
        if each.activity.target == "lock" and not each.activity.place
    )
    return waiting_share(index, worker) + idle_share(index, worker) + at_lock


def kept_messages(index: Index, found: Growing) -> Explanation | None:
    """A process that keeps about as much as it receives from others through pipes.

    A thread that receives and hands on empties the queue between the processes, whose bound then
    holds nothing back.
    """
    process, growth = found.process, found.growth
    own = own_threads(index, process)
    receiver = next((each for each in own if _receives(each) and own_place(each)), None)
    read = rise(index.history.of(process.process, "read_bytes"), within_s=growth.span_s)
    if receiver is None or not KEPT[0] * read <= growth.gained <= KEPT[1] * read:
        return None
    if (handed := _handed_to_main(index, process, receiver, read, growth.gained)) is not None:
        return handed
    at = f"at {own_place(receiver)}"
    reader = "its main thread" if receiver.tid == process.pid else f"its thread {receiver.name}"
    capital = f"{reader[0].upper()}{reader[1:]}"
    users = [
        (each, place)
        for each in own
        if each not in (receiver, own[0])
        and (place := own_place(each)) is not None
        and not calls(own_frames(each.stack), "queue.py:get")
    ]
    passes = receiver.tid != process.pid and bool(users)
    passes = passes and not adds_itself(index, process, receiver)
    title = f"{called(process)} keeps what {reader} receives {at}"
    has_read = f"it has read {bytes_text(read)} in that time, and keeps "
    has_read += bytes_text(growth.gained)
    if not passes and (holding := container_in_source(index, process, (has_read,))) is not None:
        return holding._replace(title=title, is_shown=True, is_guess=True)
    used = f"its thread {users[0][0].name}, which is at {users[0][1]}," if users else ""
    return Explanation(
        "private memory",
        (
            has_read,
            *(f"its thread {each.name} is at {place}" for each, place in users[:SHOWN]),
        ),
        (
            f"{capital} receives items from other processes {at} and hands them on "
            f"faster than {used} uses them. What lies between the two, a queue.Queue without "
            "maxsize or a list, keeps the rest. A bound of the queue between the processes does "
            "not help, because that is emptied at once."
            if passes
            else f"{capital} receives items from other processes {at}, and about "
            "as much as it receives is kept: in a list, dict, or buffer that is only ever added "
            "to, or in a queue.Queue without maxsize. An array of a fixed size (a replay memory) "
            "looks the same until all of it has been written once and is in memory."
        ),
        (
            f"Bound what {reader} fills {at}, queue.Queue(maxsize=...): it then waits, and the "
            "full queue between the processes holds back those that send. Or drop old items "
            "(collections.deque(maxlen=...))."
            if passes
            else f"Keep of each item {at} only what is needed later, and bound the rest "
            "(collections.deque(maxlen=...), queue.Queue(maxsize=...))."
        ),
        title,
        is_guess=True,
    )


def _handed_to_main(
    index: Index, process: Process, receiver: Thread, read: float, gained: float
) -> Explanation | None:
    """A thread that puts what it receives into a queue without a bound, which main empties.

    The source shows the queue, and main has hardly ever to wait for an item of it.
    """
    main, reader = main_thread(process), user_frame(receiver.stack)
    if main is None or reader is None or main.tid == receiver.tid:
        return None
    found = _queue_between(index, main, reader)
    if found is None:
        return None
    put, take, made, source = found
    at_take = sum(
        each.share
        for each in shares(index, process)
        if each.activity.kind == "waiting" and each.activity.place == mark_place(take)
    )
    works = working_share(index, process) - at_take
    if works < AHEAD_SHARE:
        return None
    place = work_place(index, [process])
    at = f", mostly at {place.words}" if place is not None else ""
    by = f"its thread {receiver.name}"
    from_others = (
        f" Nor has the queue between the processes ({mark_words(source)}): nothing holds back "
        "those that send."
        if source is not None
        else ""
    )
    bound = put.about if source is None else f"both queues, {put.about} and {source.about},"
    return Explanation(
        "private memory",
        (
            f"it has read {bytes_text(read)} in that time, and keeps {bytes_text(gained)}",
            f"{by} puts what it receives at {frame_words(reader)} into a queue: {mark_words(put)}",
            f"that queue has no bound: {mark_words(made)}",
            f"its main thread takes items out: {mark_words(take)}, and works or sleeps "
            f"{works:.0%} of the time{at}",
            *((f"its main thread: {words}",) if (words := doing_words(index, process)) else ()),
        ),
        f"{by[0].upper()}{by[1:]} receives items from other processes and puts them into "
        f"{put.about} faster than the main thread takes them out, which has something to do for "
        f"each{at}. That queue has no maxsize, so it grows.{from_others}",
        f"Bound {bound} with maxsize=..., so that those that send wait, and send only what is "
        "needed of each item. Less to do for each item in the main thread (one commit or request "
        "for many) makes the queue shorter; gc.collect() does not help, as all of it is referred "
        "to.",
        f"{called(process)} takes items out of a queue more slowly than {by} fills it at "
        f"{frame_words(reader)}",
    )


class _QueueBetween(NamedTuple):
    """A queue without a bound between two threads, as the source shows it."""

    put: Mark
    take: Mark
    made: Mark
    source: Mark | None
    """The queue that the first thread takes items out of, if that has no bound either."""


def _queue_between(index: Index, main: Thread, reader: Frame) -> _QueueBetween | None:
    """The queue into which a function puts items and out of which the main thread takes them."""
    inside = functions_of(own_frames(main.stack))
    takes = [each for each in marks(index, "takes") if (each.file, each.function) in inside]
    puts = [
        each
        for each in marks(index, "put")
        if (each.file, each.function) == (reader.file, reader.function)
    ]
    unbounded = {_last_part(each.about): each for each in marks(index, "unbounded")}
    taken = {_last_part(each.about): each for each in takes}
    put = next((each for each in puts if _last_part(each.about) in taken.keys() & unbounded), None)
    if put is None:
        return None
    name = _last_part(put.about)
    source = unbounded.get(_received_from(index, reader))
    return _QueueBetween(put, taken[name], unbounded[name], source)


def _received_from(index: Index, frame: Frame) -> str:
    """The last name of the queue that a function takes items out of; empty if not one."""
    found = {
        _last_part(each.about)
        for each in marks(index, "takes")
        if (each.file, each.function) == (frame.file, frame.function)
    }
    return found.pop() if len(found) == 1 else ""


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _receives(thread: Thread) -> bool:
    """Whether a thread takes an item of a queue of multiprocessing, or reads a connection."""
    frames = own_frames(thread.stack)
    return any(calls(frames, each) for each in _RECEIVING)


_RECEIVING = ("multiprocessing/queues.py:get", "multiprocessing/connection.py:recv")


class _Consumers(Struct, frozen=True):
    """A queue that is read more slowly than it is filled."""

    title: str
    evidence: tuple[str, ...]


def slow_consumers(index: Index, found: Growing) -> _Consumers | None:
    """The full pipe in which a queue's feeder thread waits, and the processes that read from it.

    Of several producers of one queue, one writes and the others wait for their turn. Producers hold
    the reading end as well, but do not read.
    """
    blocked = next(filter(None, (blocked_feeder(index, each) for each in found.processes)), None)
    if blocked is None or any(_waits_for_room(index, each) for each in found.processes):
        return None
    producers = {each.process for each in found.processes}
    work = {(each.parent, each.role, _task(each)) for each in found.processes}
    holders = [each for each in blocked.readers(index) if each.process not in producers]
    readers = [each for each in holders if _has_read(index, each, blocked.pipe)]
    if not readers:
        others = [
            each
            for each in holders
            if (each.parent, each.role, _task(each)) not in work and not _only_joins(each)
        ]
        readers = [each for each in others if not _reads_elsewhere(each, blocked.pipe)] or holders
    subject, is_one = all_called(found.processes), len(found.processes) == 1
    waits = f"{'its' if is_one else 'a'} queue feeder thread waits for room in {blocked.target}"
    fills = f"{subject} {'fills' if is_one else 'fill'} a queue faster than"
    if not readers:
        return _Consumers(f"{fills} it is read", (waits,))
    puts = marks(index, "put", found.process)
    at = [f"{called(found.process)} puts items: {mark_words(each)}" for each in puts[:SHOWN]]
    for each in readers[:SHOWN]:
        if (words := doing_words(index, each)) is not None:
            at.append(f"{called(each)}: {words}")
        elif lines := own_lines(each):
            at.append(f"{called(each)} is at {lines}")
    return _Consumers(
        f"{fills} {all_called(readers)} {'reads' if len(readers) == 1 else 'read'} it",
        (f"{waits}, read by {all_called(readers)}", *at),
    )


def _only_joins(process: Process) -> bool:
    """Whether a process waits for the exit of a child, and holds the ends of pipes for others."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    return wait is not None and wait.kind == "child" and len(process.threads) == 1


def _waits_for_room(index: Index, process: Process) -> bool:
    """Whether the queue that a process fills has a bound: it was seen to wait for room in it."""
    found = (each.activity.what for each in shares(index, process))
    return any(what.startswith(FULL_QUEUE) for what in found)


def _task(process: Process) -> str:
    """What a child runs, without its number; processes that run the same have the same role."""
    return process.label.rstrip("0123456789 ") if process.role in WORK_ROLES else ""


def _has_read(index: Index, process: Process, pipe: Channel) -> bool:
    """Whether a process was seen waiting for data on a pipe, now or within the last minute."""
    if any(_reads_from(thread) == pipe for thread in process.threads):
        return True
    data = re.compile(rf"^data on .*\bpipe {pipe.inode}\b")
    return any(data.match(each.activity.what) for each in shares(index, process))


def _reads_elsewhere(process: Process, pipe: Channel) -> bool:
    """Whether the main thread of a process waits for data on another pipe."""
    source = _reads_from(process.threads[0]) if process.threads else None
    return source is not None and source != pipe


def _reads_from(thread: Thread) -> Channel | None:
    """The pipe from which a thread waits for data."""
    wait = thread.waits_on
    if wait is None or wait.kind != "pipe-read" or not wait.targets:
        return None
    return channel_of(wait.targets[0])


BOUND_THE_QUEUE = (
    "Bound the queue, Queue(maxsize=...): the producer then waits for its consumers and runs at "
    "their speed. Or speed up the consumers."
)
