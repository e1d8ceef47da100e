"""Processes spend their time pickling, copying and unpickling what they send each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median

from msgspec import Struct

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.growth.newest import own_lines
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.source.lines import line_at, mark_place, mark_words, marks
from mpwatch.diagnose.analysis.source.same_again import rounds_words, sent_again
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.diagnose.analysis.throughput.messages import (
    LARGE_BYTES,
    bytes_per_s,
    receives,
    sends,
    under_way,
)
from mpwatch.diagnose.analysis.throughput.shares import (
    LOSS_READINGS,
    LOSS_SHOWN_SHARE,
    Loss,
    Speedup,
    core_share,
    doing_words,
    is_work,
    losses,
    lost_of_all,
    shares,
    speedup_without,
    switches_per_s,
    times_faster,
)
from mpwatch.model.account import COPYING, NO_CORE, PICKLING, UNPICKLING, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Again, Mark
from mpwatch.model.units import bytes_text

RULE = "pickling-cost"
IS_OF_SHARES = True
LOST_SHARE = 0.3
"""Of the time of one thread: as much as `FASTER` takes of the one that sets the pace."""
FASTER = 1.4
"""A job that would not become this many times as fast has its time elsewhere."""
SURE_SHARE, SURE_FASTER, SURE_READINGS = 0.6, 2.0, 40
PART_OF_ALL, SUM_SHARE, LEAST_SHARE = 0.5, 0.6, 0.15
"""Processes that wait for each other by turns lose less of the time of each: then this counts of
all computing of the job, of the shares of all threads together, and of the one that loses most."""
RECEIVERS = 2
OWN_SHARE = 0.3
"""Workers that are in the program's own code for less spend most of their time on tasks as such."""
SHOWN = 4
TASKS_PER_S = 200
"""Waits of a worker each second from which its tasks take less than 5 ms."""
TINY_BYTES_PER_S = 10e6
"""Messages of some 100 bytes; larger ones are passed on faster, whatever is in them."""
SLOW_BYTES_PER_S, FAST_BYTES_PER_S = 60e6, 250e6
"""Bytes for a second of cpu time. To pickle and unpickle numbers in lists takes 0.1 s for some
2 MB, arrays of numpy are copied at more than 500 MB/s (CPython 3.11)."""
_WORDS: Mapping[str, str] = {PICKLING: "pickling", UNPICKLING: "unpickling", COPYING: "copying"}


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where a thread does little but pass objects on, and the job needs it."""
    found = losses(index, _is_transfer)
    is_much = bool(found) and found[0].readings >= LOSS_READINGS
    is_much = is_much and (found[0].share >= LOST_SHARE or _is_most_of_all(index, found))
    faster = speedup_without(index, _is_transfer) if is_much else None
    if faster is not None and faster.sure >= FASTER:
        yield _finding(index, [each for each in found if each.share >= LOSS_SHOWN_SHARE], faster)
        return
    parents = {each.parent for each in index.snapshot.living() if each.role == "pool-worker"}
    for owner in index.snapshot.living():
        single = _single_tasks(index, owner) if owner.process in parents else None
        if single is not None and single.waits_per_s >= TASKS_PER_S:
            yield _finding_of_single_tasks(owner, single)


def _is_most_of_all(index: Index, found: Sequence[Loss]) -> bool:
    """Whether the job computes little else, though no thread does so for most of its time."""
    if found[0].share < LEAST_SHARE or sum(each.share for each in found) < SUM_SHARE:
        return False
    return lost_of_all(index, _is_transfer) >= PART_OF_ALL


def _is_transfer(activity: Activity) -> bool:
    return activity.what in _WORDS and activity.kind == "computing"


def _finding(index: Index, found: Sequence[Loss], faster: Speedup) -> Finding:
    """Describe the thread that loses most, and the others."""
    is_sure = (
        found[0].share >= SURE_SHARE
        and faster.sure >= SURE_FASTER
        and found[0].readings >= SURE_READINGS
    )
    sent = _sent_to_each(index, found)
    if sent is not None:
        found = [sent.sender, *(each for each in found if each is not sent.sender)]
    most = found[0]
    again = sent or _same_for_each(index, most)
    thread = _thread(most)
    line = most.place or own_lines(most.process)
    at = f" at {line}" if line else ""
    sends = _sends(index, most)
    by = "" if most.thread.tid == most.process.pid else f" in its thread {most.thread.name}"
    density = _bytes_per_cpu_s(index, found)
    others = {each.process.process for each in found} - {most.process.process}
    is_tiny = density is not None and density <= TINY_BYTES_PER_S
    single = _single_tasks(index, _owner(index, most.process)) if is_tiny else None
    tasks = single.evidence if single is not None else _tasks(index)
    ratio = times_faster(1 - 1 / faster.most)
    of_all = lost_of_all(index, _is_transfer)
    cause = f"{single.cause} {_cause(density)}" if single else _cause(density)
    is_large = density >= FAST_BYTES_PER_S if density else _large_message(index) is not None
    advice = single.advice if single else _advice(most.process, thread, density, is_large)
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if is_sure else Severity.INFO,
        process=most.process.process,
        others=tuple(sorted(others)),
        summary=(
            f"{called(most.process)} spends {most.share:.0%} of the time{by} {_kinds(most)} what "
            f"it {'sends' if sends else 'receives'}{at}{again.words if again else ''}"
        ),
        evidence=(
            *(_words(each) for each in found[:SHOWN]),
            *(
                [f"{of_all:.0%} of all computing of the job whose kind is known passes objects on"]
                if most.share < LOST_SHARE
                else []
            ),
            *_volumes(index, found),
            *tasks,
            # Of single tasks the wake-ups of the threads that pass them on cost as much again.
            *(() if single else (f"without it the job would be at most {ratio} as fast",)),
        ),
        cause=f"{again.cause} {cause}" if again else cause,
        advice=f"{_SEND_ONCE if sent else _GIVE_ONCE} {advice}" if again else advice,
    )


class _SentToEach(Struct, frozen=True):
    """A loop that sends to several processes, and pickles for each of them."""

    sender: Loss
    mark: Mark
    receivers: Sequence[Process]

    @property
    def words(self) -> str:
        """The end of the summary."""
        return ", anew for each of its receivers"

    @property
    def cause(self) -> str:
        """Why that takes long."""
        kind, _, value = self.mark.about.partition(", ")
        same = (
            f"{value} is the same for all of them, so that all but the first do the same work again"
            if kind == "same"
            else "where several of them get the same object, that is the same work again"
        )
        return (
            f"{mark_words(self.mark)} is in a loop over connections: each send() pickles its "
            f"object anew, one after the other, and {all_called(self.receivers, SHOWN)} unpickle "
            f"what they get; {same}."
        )


_SEND_ONCE = (
    "Where several receivers get the same object, pickle it once before the loop: data = "
    "multiprocessing.reduction.ForkingPickler.dumps(value), then connection.send_bytes(data) for "
    "each; recv() reads that as before. (Tensors of torch in it are to be numpy arrays or bytes "
    "then: their shared memory is handed over once for each pickle.) Leave out what a receiver "
    "does not use. More receivers make it slower; more threads or a smaller model do not help."
)


def _sent_to_each(index: Index, found: Sequence[Loss]) -> _SentToEach | None:
    """The thread that pickles in a loop over connections, while several others unpickle."""
    for sender in found:
        line = line_at(index, sender.place) if _sends(index, sender) else None
        parent = sender.process.process
        receivers = [
            e.process for e in found if e.process.parent == parent and not _sends(index, e)
        ]
        if line is None or len(receivers) < RECEIVERS:
            continue
        for mark in marks(index, "sends-each"):
            if (mark.file, mark.function) == (line.file, line.function) and (
                mark_place(mark) == sender.place or mark.statement == line.statement
            ):
                return _SentToEach(sender, mark, receivers)
    return None


class _SameForEach(Struct, frozen=True):
    """A loop that sends something that no round of it changes."""

    again: Again
    is_sure: bool
    """Whether the thread was seen at the statement; else it is the only one that may be it."""

    @property
    def names(self) -> str:
        """What is the same: `frame and table`."""
        found = [each.name for each in self.again.fixed[:SHOWN]]
        return " and ".join(filter(None, (", ".join(found[:-1]), found[-1])))

    @property
    def words(self) -> str:
        """The end of the summary."""
        likely = "" if self.is_sure else "most likely "
        return f", {likely}with {self.names} in each, which no round changes"

    @property
    def cause(self) -> str:
        """Why that takes long."""
        again, file = self.again, self.again.file.rpartition("/")[2]
        place = f"{file}:{again.statement.line} {again.function}"
        likely = "" if self.is_sure else "Most likely: "
        return (
            f"{likely}`{again.text}` at {place} sends {self.names} again in {rounds_words(again)}, "
            "which does not change it: it is pickled anew each time, and unpickled by each that "
            "receives it."
        )


_GIVE_ONCE = (
    "Give what is the same for all to each worker once, and send only what differs: by "
    "initializer= and initargs= of a Pool or an executor, as a global that forked workers inherit, "
    "by ref = ray.put(value) before the loop (pass ref), or by client.scatter(value, "
    "broadcast=True) of dask. Large arrays can lie in shared memory, and messages name them."
)
_BY_THREAD: Mapping[str, tuple[str, ...]] = {
    "pool.py:_handle_tasks": ("apply_async", "submit"),
    "concurrent/futures/process.py:run": ("submit",),
    "queues.py:_feed": ("put", "submit", "apply_async"),
}
"""The functions of threads that pickle what a call of another thread has given them."""


def _same_for_each(index: Index, most: Loss) -> _SameForEach | None:
    """What the thread that loses most sends again, though it is the same."""
    if not _sends(index, most):
        return None
    if most.place:
        again = sent_again(index, most.place)
        return None if again is None else _SameForEach(again, is_sure=True)
    thread = _thread(most)
    stack = () if thread is None else thread.stack
    methods = {m for each, of in _BY_THREAD.items() if calls(stack, each) for m in of}
    main = main_thread(most.process)
    files = {each.file for each in own_frames(main.stack)} if main is not None else set()
    found = [
        each
        for each in index.snapshot.again
        if each.kind == "sends" and each.file in files
        if each.text.partition("(")[0].rpartition(".")[2] in methods
    ]
    is_one = len({(each.file, each.statement) for each in found}) == 1
    return _SameForEach(found[0], is_sure=False) if is_one else None


class _SingleTasks(Struct, frozen=True):
    """Items of a Pool or an executor that are tasks of their own, and take hardly any time."""

    where: str
    """The statement that hands them out, in words."""
    own_share: float
    """The share of the time for which a worker had a core in which it was in the program's code."""
    waits_per_s: float
    """How often a worker has waited."""
    evidence: tuple[str, ...]
    cause: str
    advice: str


def _owner(index: Index, process: Process) -> Process:
    """The process that hands out tasks: a worker's parent."""
    parent = index.snapshot.get(process.parent) if process.parent is not None else None
    return process if parent is None or process.role != "pool-worker" else parent


def _single_tasks(index: Index, owner: Process) -> _SingleTasks | None:
    """Tasks of one item each, where the workers take so many that each is done at once."""
    found = marks(index, "one-by-one", owner)
    workers = [
        each
        for each in index.snapshot.living()
        if each.parent == owner.process and each.role == "pool-worker"
    ]
    if len(found) != 1 or not workers:
        return None
    waits_per_s = median(switches_per_s(index, each) or 0.0 for each in workers)
    own_share, worker = max(((_own_share(index, w), w) for w in workers), key=itemgetter(0))
    if own_share > OWN_SHARE:
        return None
    method = found[0].about
    doing = doing_words(index, worker)
    return _SingleTasks(
        mark_words(found[0]),
        own_share,
        waits_per_s,
        (
            f"{called(worker)} is in the code of the program for {own_share:.0%} of the time for "
            "which it has a core, the other workers for less",
            *([f"{called(worker)}: {doing}"] if doing else []),
            *([f"a worker waits {waits_per_s:.0f} times a second"] if waits_per_s >= 1 else []),
        ),
        f"Each item of {mark_words(found[0])} is a task of its own, as the chunksize of {method} "
        "is 1: one message to a worker, one back, and each wakes the threads and the worker that "
        "pass it on. Tasks that are done at once cost more to hand over than to do.",
        f"Pass a chunksize to {method}, such as 100 or more: then so many items go in one "
        "message, and their results in one. Or let one task do a range of items. More workers do "
        "not help; a plain loop without workers may be faster than this.",
    )


def _own_share(index: Index, worker: Process) -> float:
    """See `_SingleTasks.own_share`; 1 where too little was seen."""
    found = shares(index, worker)
    own = sum(
        each.share
        for each in found
        if each.activity.place and each.activity != NO_CORE and is_work(each.activity)
        if each.activity.what not in _WORDS
    )
    return own / max(0.1, 1 - core_share(index, worker)) if found else 1.0


def _finding_of_single_tasks(owner: Process, found: _SingleTasks) -> Finding:
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        summary=(
            f"{called(owner)} hands tasks of one item each to its workers, which are in the code "
            f"of the program for {found.own_share:.0%} of their time at most: {found.where}"
        ),
        evidence=found.evidence,
        cause=found.cause,
        advice=found.advice,
    )


def _thread(loss: Loss) -> Thread | None:
    return next((each for each in loss.process.threads if each.tid == loss.thread.tid), None)


def _sends(index: Index, loss: Loss) -> bool:
    """Whether a thread sends rather than receives; of bytes that it copies its calls tell."""
    pickles, unpickles = loss.kinds.get(PICKLING, 0.0), loss.kinds.get(UNPICKLING, 0.0)
    if pickles != unpickles:
        return pickles > unpickles
    thread = _thread(loss)
    if receives(thread) != sends(thread):
        return sends(thread)
    written = bytes_per_s(index, loss.process, is_written=True) or 0.0
    return written >= (bytes_per_s(index, loss.process, is_written=False) or 0.0)


def _kinds(loss: Loss) -> str:
    """The kinds of work, the most frequent first: `pickling and copying`."""
    ranked = sorted(loss.kinds.items(), key=lambda item: -item[1])
    words = [_WORDS[what] for what, share in ranked if share >= loss.share / 10]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _words(loss: Loss) -> str:
    """One thread: `acquire (12), thread QueueFeederThread: 62% pickling`."""
    ranked = sorted(loss.kinds.items(), key=lambda item: -item[1])
    kinds = ", ".join(f"{share:.0%} {_WORDS[what]}" for what, share in ranked if share >= 0.01)
    thread, at = "", f" at {loss.place}" if loss.place else ""
    if loss.thread.tid != loss.process.pid:
        thread = f", thread {loss.thread.name}"
        if not at and (lines := own_lines(loss.process)):
            at = f"; its main thread is at {lines}"
    return f"{called(loss.process)}{thread}: {kinds}{at}"


def _volumes(index: Index, found: Sequence[Loss]) -> Iterator[str]:
    """What the processes read and write, and the size of a message that is under way."""
    reported = set()
    for loss in found[:SHOWN]:
        process, is_sender = loss.process, _sends(index, loss)
        per_s = bytes_per_s(index, process, is_sender)
        if per_s is not None and (process.process, is_sender) not in reported:
            reported.add((process.process, is_sender))
            verb = "writes" if is_sender else "reads"
            yield f"{called(process)} {verb} {bytes_text(per_s)}/s in files, pipes and sockets"
    if (message := _large_message(index)) is not None:
        yield f"a message of at least {bytes_text(message)} is being sent at this moment"


def _large_message(index: Index) -> int | None:
    """The bytes of a large message that is under way; `None` for none."""
    message = under_way(index)
    return message.n_bytes if message is not None and message.n_bytes >= LARGE_BYTES else None


def _tasks(index: Index) -> Iterator[str]:
    """The functions that workers of a Pool run, where their hooks report them."""
    names = set()
    for process in index.snapshot.living():
        job = process.gauges.get("job")
        if isinstance(job, Mapping) and isinstance(name := job.get("function"), str):
            names.add(name)
    if names:
        yield f"tasks that the workers run: {', '.join(sorted(names)[:SHOWN])}"


def _bytes_per_cpu_s(index: Index, found: Sequence[Loss]) -> float | None:
    """How many bytes a second of cpu time passes on; `None` where no bytes were counted.

    `None` also where that is few, but a large message is under way, which is not counted yet.
    """
    amounts = [
        (per_s, loss.cpu_share)
        for loss in found
        if loss.cpu_share and (per_s := bytes_per_s(index, loss.process, _sends(index, loss)))
    ]
    cpu = sum(share for _, share in amounts)
    density = sum(per_s for per_s, _ in amounts) / cpu if cpu else None
    if density is not None and density < FAST_BYTES_PER_S and _large_message(index) is not None:
        return None
    return density


def _cause(density: float | None) -> str:
    """Why it takes long, by how many bytes a second of cpu time passes on."""
    cause = (
        "An object that goes through a queue, a pipe, a Pool or a Manager is pickled, written to a "
        "pipe or socket, read, and rebuilt in the other process, every time."
    )
    if density is None:
        return cause
    amount = f"{bytes_text(density)} for each second of cpu time"
    if _is_small(density):
        return f"{cause} Here that is {amount}: many small Python objects, not large arrays."
    if density >= FAST_BYTES_PER_S:
        return f"{cause} Here that is {amount}: large blocks of data, such as arrays."
    return f"{cause} Here that is {amount}."


_SMALL = (
    "Send one array, tensor or bytes object in place of lists, tuples, dicts or objects that hold "
    "numbers: it is copied as one block."
)
_LARGE = (
    "Keep large arrays in shared memory (multiprocessing.shared_memory, or torch tensors through "
    "torch.multiprocessing) and send an index."
)
_TASKS = (
    "Each task carries its function and its arguments: a bound method or a functools.partial "
    "carries its whole object along. Give the workers once what all tasks have in common, by "
    "initializer= or as a global of the module that a forked worker inherits, and let tasks carry "
    "only what differs."
)
_MANAGER = (
    "Each call of a Manager's proxy sends its arguments and its result: ask for less in each call, "
    "or keep the data in the process that uses it."
)
_LOADER = "Let collate_fn return few tensors: their data goes through shared memory."
_LESS = "Send only what the receiver uses, and do not send on what another process has already."


def _is_small(density: float | None) -> bool:
    return density is not None and density <= SLOW_BYTES_PER_S


def _advice(process: Process, thread: Thread | None, density: float | None, is_large: bool) -> str:
    """What fits the channel and the data that were observed."""
    stack = () if thread is None else thread.stack
    is_small = _is_small(density)
    data = _SMALL if is_small else _LARGE if is_large else f"{_SMALL} {_LARGE}"
    if process.role == "loader-worker":
        return f"{_LOADER} {_LESS}"
    if process.role == "pool-worker" or _is_of_pool(thread):
        return f"{_TASKS} {data}"
    if any(calls(stack, each) for each in ("managers.py:serve_client", "managers.py:_callmethod")):
        return f"{_MANAGER} {data}"
    return f"{data} {_LESS}"


def _is_of_pool(thread: Thread | None) -> bool:
    """Whether a thread sends or receives for a Pool or an executor."""
    if thread is None:
        return False
    names = ("_handle_tasks", "_handle_results", "_run_task", "run")
    return any(
        calls(thread.stack, f"{file}:{name}")
        for file in ("pool.py", "concurrent/futures/process.py")
        for name in names
    )
