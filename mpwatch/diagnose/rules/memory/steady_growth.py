"""A resource of a process rises steadily, and no specific rule names the reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.describe.processes import full_name_of
from mpwatch.describe.waits import FULL_QUEUE
from mpwatch.diagnose.analysis.growth.forecast import memory_headroom
from mpwatch.diagnose.analysis.growth.growing import (
    FileKind,
    Growing,
    GrowingFiles,
    GrowingSegments,
    Headroom,
    Resource,
    gpu_of,
    growing,
    growing_files,
    growing_segments,
    headroom,
    urgency,
)
from mpwatch.diagnose.analysis.growth.holders import (
    EXCEPTION_AT_END,
    KEEPS_FRAMES,
    adds_words,
    held,
    kept_by,
    kept_in,
)
from mpwatch.diagnose.analysis.growth.unclosed import Unclosed, unclosed_by
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.newest import (
    NewestAccepted,
    are_logs,
    blocked_feeder,
    descriptor_words,
    has_zombies,
    newest_accepted,
    newest_children_words,
    newest_kind,
    newest_pairs,
    newest_threads,
    own_lines,
    own_place,
)
from mpwatch.diagnose.analysis.process_queries import (
    WORK_ROLES,
    all_called,
    called,
    children_started_by,
    counted,
    is_manager,
)
from mpwatch.diagnose.analysis.resources import CudaLent, cuda_lent, cuda_receivers
from mpwatch.diagnose.analysis.shares import (
    PROXY_WRITES,
    asked,
    doing_words,
    idle_share,
    is_computing,
    shares,
    unreturned,
    waiting_share,
    work_place,
    working_share,
)
from mpwatch.diagnose.analysis.source_code import (
    Kept,
    cache_miss,
    capital,
    kept_by_cycle,
    kept_graphs,
    loop_around,
    mark_place,
    mark_words,
    marks,
    source_of,
    uncollected,
)
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, own_threads, user_frame
from mpwatch.diagnose.analysis.values import Grown, at_rest, grown
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import rise
from mpwatch.model.host import NewFiles
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdKind, Frame, inode_of
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import UNDOES, AddedTo, Mark, MarkKind, Statement
from mpwatch.model.units import bytes_text, count_text, rate_text, seconds_text

RULE = "steady-growth"
KEPT = (0.4, 1.3)
"""Private memory that is gained for each byte that is read, where what is received is kept."""
SHOWN = 3
"""Processes whose lines are shown."""
AHEAD_SHARE = 0.65
"""A process that works this part of the time uses results more slowly than its Pool makes them; the
workers of the Pool are idle for less than the rest."""

NOUNS: Mapping[Resource, str] = {
    "child processes": "child processes",
    "threads": "threads",
    "queue": "items in its queues",
    "descriptors": "open descriptors",
    "mappings": "memory mappings",
    "memory": "private memory",
    "GPU memory": "GPU memory",
}


class _Explanation(NamedTuple):
    """What is known beyond the numbers."""

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
    is_guess: bool = False
    """Whether what keeps it is a guess, so that a container that was measured to grow is told."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each resource that rises steadily in a process or a set of workers."""
    every = [each for each in growing(index) if not _may_end_at_bound(index, each)]
    # Items in the memory of their producers, whose feeder threads wait for room in a full pipe.
    is_outrun = any(each.resource == "memory" and _consumers(index, each) for each in every)
    for found in every:
        if found.resource != "queue" or not is_outrun:
            yield _finding(index, found)
    piles = list(growing_files(index))
    for files in piles:
        yield _finding_of_files(index, files)
    segments = growing_segments(index)
    if segments is None or _are_descriptors_reported(index):
        return
    is_psm = all(segment.kind == "psm" for segment in segments.newest)
    if not (is_psm and any(files.kind == "shared-memory files" for files in piles)):
        yield _finding_of_segments(index, segments)


def _finding(index: Index, found: Growing) -> Finding:
    """Describe one growth."""
    explained = _EXPLAINED_BY[found.resource](index, found)
    near = headroom(index, found)
    severity = Severity.INFO if near is None else near.severity
    names = all_called(found.processes)
    is_several = len(found.processes) > 1
    title = (
        explained.title or f"{names} {'have' if is_several else 'has'} ever more {explained.noun}"
    )
    summary = (
        f"{title}: {_pace(found.resource, found.per_s)}{' together' if is_several else ''} "
        f"for {seconds_text(found.growth.span_s)}"
    )
    if near is not None and near.eta_s is not None and near.severity > Severity.INFO:
        summary += f"; {near.what} is used up in {seconds_text(near.eta_s)}"
    return Finding(
        rule=RULE,
        severity=severity,
        is_doubtful=severity is Severity.INFO and not explained.is_shown,
        process=found.processes[0].process,
        others=tuple(each.process for each in found.processes[1:]),
        subject=explained.subject or found.resource,
        summary=summary,
        evidence=(*_numbers(found, explained), *explained.evidence, _limit_words(near)),
        cause=explained.cause,
        advice=explained.advice,
        eta_s=None if near is None else near.eta_s,
    )


def _are_descriptors_reported(index: Index) -> bool:
    """Whether a growth of descriptors on shared tensors is reported, which is the same growth."""
    return any(
        found.resource == "descriptors"
        and newest_kind(found.process, found.growth.gained) in ("torch", "shm")
        for found in growing(index)
    )


def _finding_of_segments(index: Index, found: GrowingSegments) -> Finding:
    """Describe shared memory that rises: which processes make it and hold it, and at which line."""
    snapshot, growth, newest = index.snapshot, found.growth, found.newest
    makers = Counter(segment.creator for segment in newest if segment.creator is not None)
    holders = Counter(p for segment in newest for p in (*segment.mappers, *segment.holders))
    sites = Counter(segment.call_site for segment in newest if segment.call_site)
    span = seconds_text(growth.span_s)
    maker = next((full_name_of(p, snapshot) for p, _ in makers.most_common(1)), "")
    made = (
        f", most of it made by {maker}" if 2 * max(makers.values(), default=0) > len(newest) else ""
    )
    evidence = [f"{bytes_text(growth.gained)} more in the last {span}, without a plateau or a fall"]
    for words, counts in (("made by", makers), ("mapped or open in", holders)):
        named = [f"{full_name_of(p, snapshot)} ({n})" for p, n in counts.most_common(3)]
        if named:
            evidence.append(f"the {len(newest)} newest segments are {words} {', '.join(named)}")
    evidence += [f"{n} of them were allocated at {site}" for site, n in sites.most_common(1)]
    site = sites.most_common(1)[0][0] if sites else ""
    owner = index.snapshot.get(makers.most_common(1)[0][0]) if makers else None
    held = _kept_to_end(index, owner, site) if site else None
    evidence += [held.evidence] if held is not None else []
    space = found.file_system
    if space is not None:
        left = f"{bytes_text(space.free_bytes)} of {bytes_text(space.total_bytes)}"
        when = "more than a day" if found.eta_s is None else seconds_text(found.eta_s)
        evidence.append(f"{space.path}: {left} left, used up in {when} at this rate")
    return Finding(
        rule=RULE,
        severity=urgency(found.eta_s, growth.span_s),
        process=holders.most_common(1)[0][0] if holders else snapshot.root,
        subject="shared memory",
        summary=(
            f"shared memory of this job grows steadily: {rate_text(growth.per_s, 'B')} for {span}"
            f"{made}"
        ),
        evidence=tuple(evidence),
        cause=(
            held.cause
            if held is not None
            else "Tensors or blocks in shared memory are made faster than they are released. Each "
            "stays as long as any process maps it or has it open."
        ),
        advice=(
            held.advice
            if held is not None
            else "Drop what was received after its use, or keep a copy (.clone()) in private "
            "memory; bound the queue through which it is sent."
        ),
        eta_s=found.eta_s,
    )


def _finding_of_files(index: Index, found: GrowingFiles) -> Finding:
    """Describe files that pile up, and the processes that make them where these are known."""
    growth, files, kind = found.growth, found.files, found.kind
    cause, advice = _FILES[kind]
    span, where = seconds_text(growth.span_s), f"{files.key.folder}/{files.pattern}"
    pace = _pace("threads", growth.per_s)
    if found.bytes_per_s >= 1:
        pace += f", {rate_text(found.bytes_per_s, 'B')}"
    title = f"{kind} {where} pile up and are not removed"
    if found.makers:
        is_one = len(found.makers) == 1
        verb = f"{'uses' if found.is_use else 'makes'} and does not remove"
        verb = verb if is_one else verb.replace("uses", "use").replace("makes", "make")
        verb = verb if is_one else verb.replace("does", "do")
        title = f"{all_called(found.makers)} {verb} {kind}, {where}"
    evidence = [
        f"{files.total} of these files ({bytes_text(files.size_bytes)}) were made since the job "
        f"began, {growth.gained:.0f} of them in the last {span}; for example {files.example}",
        found.proof,
        *_making_words(index, found),
        f"mapped or open in processes of this job: {_in_use(index, files)} of them",
        *_space_words(index, found),
    ]
    return Finding(
        rule=RULE,
        severity=urgency(found.eta_s, growth.span_s),
        # Files that fill no limit within a day may be what the program is to make.
        is_doubtful=found.eta_s is None,
        process=found.makers[0].process if found.makers else index.snapshot.root,
        others=tuple(each.process for each in found.makers[1:]),
        subject=kind,
        summary=f"{title}: {pace} for {span}",
        evidence=tuple(evidence),
        cause=cause,
        advice=advice,
        eta_s=found.eta_s,
    )


def _making_words(index: Index, found: GrowingFiles) -> Iterator[str]:
    """The lines at which stacks found the makers at work, one of each process."""
    # A stack does not distinguish a block that is made from one that is opened: both are in
    # __init__.
    is_block = found.kind == "shared-memory files"
    verb = "made or opened a block" if is_block else "made a file"
    reported: set[ProcessId] = set()
    for line in index.snapshot.file_lines:
        maker = next((each for each in found.makers if each.process == line.process), None)
        if maker is None or line.process in reported or line.size_bytes is not None:
            continue
        reported.add(line.process)
        count = counted(line.times, "stack")
        yield f"{count} of {called(maker)} taken while it {verb}: {line.place}"


def _in_use(index: Index, files: NewFiles) -> int:
    """How many files of this folder and kind are mapped or open in the job."""
    folder, lead = files.key.folder, files.pattern.partition("*")[0]
    start = f"{folder}/{lead}"
    mapped = {each.path for each in index.snapshot.segments if each.path.startswith(start)}
    links = (
        link.target
        for process in index.snapshot.living()
        for link in process.sample.links
        if link.kind in ("file", "shm") and link.target.startswith(start)
    )
    return len(mapped.union(links))


def _space_words(index: Index, found: GrowingFiles) -> Iterator[str]:
    """How much is left of the file system, and of the memory where files are memory."""
    space, is_memory = found.files.file_system, found.files.is_memory
    memory = memory_headroom(index.snapshot) if is_memory else None
    when = "more than a day" if found.eta_s is None else seconds_text(found.eta_s)
    parts = []
    if space is not None:
        parts.append(
            f"{space.path}: {bytes_text(space.free_bytes)} of {bytes_text(space.total_bytes)} left"
        )
    if memory is not None:
        parts.append(f"{memory.what}: {bytes_text(memory.free_bytes)} left")
    if parts:
        yield (
            f"{', '.join(parts)}; at this rate the first of these lasts for {when}"
            if len(parts) > 1
            else f"{parts[0]}, used up in {when} at this rate"
        )


def _numbers(found: Growing, explained: _Explanation) -> Iterator[str]:
    """The growth of the fastest process, and what rises with it."""
    growth, process = found.growth, found.process
    gained = _amount(found.resource, growth.gained)
    yield (
        f"{called(process)}: {gained} more {explained.noun} in the last "
        f"{seconds_text(growth.span_s)}, without a plateau or a fall"
    )
    for other, carried in found.carried:
        yield f"together with it: {NOUNS[other]} {_pace(other, carried.per_s)}"


def _amount(resource: Resource, count: float) -> str:
    return bytes_text(count) if resource.endswith("memory") else count_text(count)


def _pace(resource: Resource, per_s: float) -> str:
    """A rate that is not rounded to zero: `+5.2M/s`, `+3.2/s`, `+12 a minute`."""
    if resource.endswith("memory"):
        return rate_text(per_s, "B")
    if per_s >= 9.95:
        return rate_text(per_s)
    return f"+{per_s:.1f}/s" if per_s >= 1 else f"+{60 * per_s:.0f} a minute"


def _limit_words(near: Headroom | None) -> str:
    """How far the nearest limit is."""
    if near is None:
        return "no limit is known"
    text = bytes_text if near.is_bytes else count_text
    left = f"{near.what}: {text(near.free)} of {text(near.limit)} left"
    if near.eta_s is None:
        return f"{left}, more than a day at this rate"
    return f"{left}, used up in {seconds_text(near.eta_s)} at this rate"


# --- words for each resource -------------------------------------------------------------------


def _of_children(index: Index, found: Growing) -> _Explanation:
    return _Explanation(
        "child processes",
        newest_children_words(index, found.process, found.growth.gained),
        "It starts processes and does not join them: those that have exited stay as zombies."
        if has_zombies(index, found.process)
        else "It starts processes faster than they end.",
        "Join each process, or reuse a fixed number of them: a Pool, a ProcessPoolExecutor, "
        "persistent DataLoader workers.",
    )


def _of_threads(index: Index, found: Growing) -> _Explanation:
    newest = newest_threads(found.process, found.growth.gained)
    if newest.fills_queue:
        return _Explanation(
            "threads",
            newest.words,
            "It starts threads that put items into a queue, and leaves them waiting for room in "
            "it. Such a thread ends only once its items are taken; until then the thread, its "
            "queue and all that both refer to (a loader, its data) stay in memory. A loop that "
            "leaves a prefetching iterator before its end does this.",
            "Where the loop leaves the iterator early, stop its thread: set a flag that the thread "
            "checks (put with a time limit), take what is left in the queue, and join the thread. "
            "Or make the iterator end by itself after as many items as are used.",
        )
    return _Explanation(
        "threads",
        newest.words,
        "It starts threads that do not end. Each has a stack, and counts against the number of "
        "processes and threads that the system allows.",
        "End each thread where its work ends (an Event that its loop checks) and join it, or use "
        "one ThreadPoolExecutor with max_workers for the whole run.",
    )


def _of_queue(index: Index, found: Growing) -> _Explanation:
    slow = _consumers(index, found)
    return _Explanation(
        "items in its queues",
        () if slow is None else slow.evidence,
        "Items are put into a queue faster than they are taken out, and the queue has no maxsize.",
        _BOUND_THE_QUEUE,
        None if slow is None else slow.title,
        is_shown=slow is not None,
    )


def _of_memory(index: Index, found: Growing) -> _Explanation:
    """What keeps memory: what was measured to grow, where nothing surer is known."""
    explained = _memory_by_source(index, found)
    hits = grown(index, found.process.process)
    if not hits:
        return explained
    measured = tuple(each.words for each in hits[:SHOWN])
    named = [e for e in hits if f":{e.added.statement.line} " in explained.cause]
    if (explained.is_shown and not explained.is_guess) or named:
        cause = explained.cause
        if named:  # it was measured
            cause = capital(cause.removeprefix("Most likely "))
        if named and named[0].per_s:
            each_bytes = found.growth.per_s / named[0].per_s
            cause += f" The memory that is gained is {bytes_text(each_bytes)} for each entry."
        evidence = (*explained.evidence, *measured)
        return explained._replace(evidence=evidence, cause=cause, is_shown=True)
    return _of_grown(index, found, hits, explained)


def _of_grown(
    index: Index, found: Growing, hits: Sequence[Grown], explained: _Explanation
) -> _Explanation:
    """Memory that a container keeps which was measured to grow, or a carried graph."""
    first = hits[0]
    name, added = first.added.name, first.added
    file = added.file.rpartition("/")[2]
    place = f"`{added.statement.text}` at {file}:{added.statement.line} {added.function}"
    evidence = (*explained.evidence, *(each.words for each in hits[:SHOWN]))
    if added.is_carried:
        return _Explanation(
            "private memory",
            evidence,
            f"{first.words}. {place} computes it from its own value before, with the graph of "
            "that: so the graph of every round since the start stays, with all that was kept for a "
            "backward pass.",
            f"Cut {name} off from its graph in each round ({name}.detach(), of each tensor of a "
            "tuple), or compute it under torch.no_grad() where nothing is trained by it. eval(), "
            "gc.collect() or smaller batches do not help: the graph is referred to.",
        )
    each_bytes = found.growth.per_s / first.per_s
    if (bounded := _bound_of(index, added)) is not None:
        return _of_bounded(first, place, each_bytes, bounded, evidence)
    removes = _removes(added)
    others = [f"`{each.added.name}`" for each in hits[1:SHOWN]]
    more = f" {' and '.join(others)} {'grows' if len(others) == 1 else 'grow'} as well." * bool(
        others
    )
    graph = " That graph keeps all activations of its batch." * bool(first.value.has_graph)
    caught = [
        mark
        for mark in marks(index, "keeps-exception")
        if (mark.file, mark.statement.line) == (added.file, added.statement.line)
    ]
    graph += (
        _EXCEPTION_KEEPS
        if caught
        else KEEPS_FRAMES * bool(EXCEPTION_AT_END.search(added.statement.text))
    )
    bound = " With a maxlen, that ends when it is full." * (first.value.type == "deque")
    return _Explanation(
        "private memory",
        evidence,
        f"{first.words}: {place} adds to it, and {removes}.{graph}{bound} The memory that is "
        f"gained is {bytes_text(each_bytes)} for each of these entries.{more}",
        (
            f"Add .detach() or .item() of it at {file}:{added.statement.line}, or compute it under "
            f"torch.no_grad(), and remove from {name} what is not needed any more. "
            if first.value.has_graph
            else f"{_exception_advice(caught[0])} Or remove each entry from {name} once it was "
            "used. "
            if caught
            else _remove_advice(added)
        )
        + f"gc.collect() or new workers do not help: {name} refers to all of it.",
    )


def _bound_of(index: Index, added: AddedTo) -> Mark | None:
    """Where a container is emptied under a comparison of sizes or numbers, in the same file."""
    name = added.name.rpartition(".")[2]
    found = [each for each in marks(index, "bounded") if each.file == added.file]
    return next((each for each in found if each.about.rpartition(".")[2] == name), None)


def _of_bounded(
    first: Grown, place: str, each_bytes: float, bound: Mark, evidence: tuple[str, ...]
) -> _Explanation:
    """Memory of a container that is filled up to a bound."""
    name = first.added.name
    return _Explanation(
        "private memory",
        evidence,
        f"{first.words}: {place} adds to it. It has a bound: {mark_words(bound)} is where entries "
        "are removed. Until that is reached it fills, as a replay memory or a cache does, and "
        f"then the growth ends. The memory that is gained is {bytes_text(each_bytes)} for each of "
        "these entries.",
        f"Nothing, if as many entries as the bound of {name} allows fit into memory at this size; "
        "otherwise lower the bound, or keep less of each entry (a smaller dtype, compressed).",
        is_shown=False,
    )


def _removes(added: AddedTo) -> str:
    """What removes entries of a container, as a clause."""
    file, by = added.file.rpartition("/")[2], added.removed_by
    if by is not None:
        return (
            f"only `{by.text}` at {file}:{by.line} {added.removed_in} removes one. An entry stays "
            "for which that is not reached: nobody asks for it, or who did has given up before (an "
            "exception, a time limit, a client that has left)"
        )
    if added.is_emptied:
        return f"what its class removes from {added.name} is less than that"
    return "nothing there removes any"


def _remove_advice(added: AddedTo) -> str:
    if added.removed_by is not None:
        return (
            "Remove the entry also where its owner gives up (a `finally` clause, an abort that "
            f"deletes it and drops what comes later), or bound {added.name} by number or age. "
        )
    return (
        f"Remove each entry from {added.name} once it was used, or what is large in it (a result "
        "that was fetched, tensors of a batch, of which numbers suffice); or bound it "
        "(collections.deque(maxlen=...), a cache with a limit). "
    )


def _memory_by_source(index: Index, found: Growing) -> _Explanation:
    process = found.process
    seen = _allocating(index, found)
    submits = _of_submission(index, process, tuple(seen)) or _of_executor(index, process, seen)
    if submits is not None:
        return submits
    slow = _consumers(index, found)
    if slow is None and any(other == "queue" for other, _ in found.carried):
        names, is_one = all_called(found.processes), len(found.processes) == 1
        return _Explanation(
            "private memory",
            tuple(seen),
            "Items are put into a queue faster than they are taken out, and the queue has no "
            "maxsize. They wait in the memory of the process that puts them.",
            _BOUND_THE_QUEUE,
            f"{names} {'fills' if is_one else 'fill'} a queue faster than it is read",
            "queue",
        )
    if slow is not None:
        return _Explanation(
            "private memory",
            (*slow.evidence, *seen),
            "Items are put into a queue faster than they are taken out. Its pipe is full, and the "
            "other items wait in the memory of the process that puts them.",
            _BOUND_THE_QUEUE,
            slow.title,
            "queue",
        )
    if is_manager(process):
        if (managed := _of_managed_queue(index, process)) is not None:
            return managed
        return _Explanation(
            "private memory",
            tuple(_askers(index, process)),
            "It is the server process of a multiprocessing Manager, and holds the objects that "
            "other processes use through proxies. Lists, dicts and queues in it keep what is added "
            "to them and not removed. An object whose proxy was stored in another managed object, "
            "such as a manager.list() in a manager.dict(), stays in the server also after it was "
            "removed there (id_to_local_proxy_obj of multiprocessing/managers.py).",
            "Store plain values in managed objects and no proxies, and remove what was read. "
            "Send results through a queue. A manager that is shut down frees everything.",
        )
    return (
        _of_results(index, process, tuple(seen))
        or _kept_messages(index, found)
        or _of_kept(index, process, seen)
    )


def _of_managed_queue(index: Index, manager: Process) -> _Explanation | None:
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
    return _Explanation(
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


class _SlowTaker(NamedTuple):
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
        each.process: {(f.file, f.function) for f in own_frames(thread.stack)}
        for each in processes
        if (thread := main_thread(each)) is not None
    }
    return [
        (mark, each)
        for mark in found
        for each in processes
        if (mark.file, mark.function) in inside.get(each.process, ())
    ]


def _may_end_at_bound(index: Index, found: Growing) -> bool:
    """Whether the memory of a GPU may rise until a container of the program is full.

    A cache of prefixes, or a memory of transitions, rises for minutes as steadily as what has no
    bound. Only what shows another reason counts then.
    """
    if found.resource != "GPU memory" or not marks(index, "bounded"):
        return False
    return not _of_gpu_memory(index, found).is_shown


def _of_gpu_memory(index: Index, found: Growing) -> _Explanation:
    """What keeps memory on a GPU: a receiver of tensors, or what keeps memory of a process."""
    process = found.process
    gpus = {gpu for each in found.processes if (gpu := gpu_of(each)) is not None}
    noun = f"memory on GPU {' and '.join(map(str, sorted(gpus)))}" if gpus else "GPU memory"
    seen = _allocating(index, found)
    use = next((each for each in process.gpus if each.reserved_bytes is not None), None)
    if use is not None:
        seen.append(
            f"torch held {bytes_text(use.reserved_bytes)} of it when asked, "
            f"{bytes_text(use.allocated_bytes)} of that in tensors"
        )
    if (lent := _of_receiver(index, found, noun, seen)) is not None:
        return lent
    if (by_source := _of_source(index, process, seen)) is not None:
        return by_source._replace(noun=noun)
    added = [*marks(index, "kept", process), *marks(index, "stored", process)][:SHOWN]
    seen += [f"nothing in its file removes what {mark_words(each)} adds" for each in added]
    return _Explanation(
        noun,
        tuple(seen),
        "It keeps tensors on the GPU: losses, outputs or states with their autograd graph, a list "
        "or dict of tensors that is only ever added to, an unbounded cache. Memory that torch has "
        "taken from the driver and uses again does not rise like this; a cache that is still "
        "filling does, and so do batches that become larger: their growth ends.",
        f"Bound or clear what is collected, and keep .cpu() copies of small parts.{_NO_GRAPHS} "
        "torch.cuda.empty_cache() does not help while tensors are referred to. To see the lines "
        "that allocate: torch.cuda.memory._record_memory_history() and _dump_snapshot().",
        is_shown=False,
    )


def _of_receiver(
    index: Index, found: Growing, noun: str, seen: Sequence[str]
) -> _Explanation | None:
    """Memory of CUDA tensors that processes have sent, and that their receiver keeps.

    Where their hooks count what receivers have not released, that has to be a part of the growth.
    """
    holders = cuda_receivers(index, found.processes)
    lent = [(each, of) for each in found.processes if (of := cuda_lent(each)) is not None]
    if not holders or not (lent or all(_puts(index, each) for each in found.processes)):
        return None
    if any(not _lends_more(index, found, *each) for each in lent):
        return None
    names, is_one = all_called(holders), len(holders) == 1
    keeps = "keeps" if is_one else "keep"
    stored = [
        mark
        for kind in ("kept", "stored")
        for mark in marks(index, kind)
        if any(_is_beside(mark, holder) for holder in holders)
    ]
    where = f", most likely by {mark_words(stored[0])}" if len(stored) == 1 else ""
    subject, verb = all_called(found.processes), "sends" if len(found.processes) == 1 else "send"
    likely = "" if lent else "Most likely "
    takes = marks(index, "takes", holders[0])
    return _Explanation(
        noun,
        (
            *(
                f"{called(each)} has sent {of.sent:.0f} CUDA tensors, of which its receivers have "
                f"not released {of.unreleased:.0f}"
                for each, of in lent
            ),
            f"{names} {'has' if is_one else 'have'} CUDA memory of {subject} open",
            *(f"{called(holders[0])} takes items: {mark_words(each)}" for each in takes[:1]),
            *(f"nothing in its file removes what {mark_words(e)} keeps" for e in stored[:SHOWN]),
            *seen,
        ),
        f"{likely}{subject} {verb} CUDA tensors to {names}, which {keeps} them{where}. The memory "
        "of a CUDA tensor that is sent belongs to its sender, which cannot use it again as long as "
        "the receiver refers to the tensor, or to a view of it.",
        f"In {names}, keep only what is needed later, as a copy (.clone(), or .cpu()), and drop "
        "what was received before the next item is taken; or send CPU tensors. empty_cache() and "
        "ipc_collect() free nothing that the receiver refers to.",
        f"{names} {keeps} CUDA tensors of {subject}, "
        f"which {'has' if verb == 'sends' else 'have'} ever more {noun}"
        if lent
        else None,
        "sent GPU memory",
    )


def _lends_more(index: Index, found: Growing, sender: Process, lent: CudaLent) -> bool:
    """Whether what receivers have not released rises, and is a part of what was gained."""
    series = index.history.of(sender.process, "cuda_unreleased")
    growth = found.growths[found.processes.index(sender)]
    is_more = rise(series, within_s=growth.span_s) > 0
    return is_more and (lent.bytes_held is None or lent.bytes_held >= growth.gained / 4)


def _puts(index: Index, process: Process) -> bool:
    """Whether a function that the main thread of a process is in puts items into a queue."""
    thread = main_thread(process)
    running = {(f.file, f.function) for f in own_frames(thread.stack)} if thread else set()
    return any((each.file, each.function) in running for each in marks(index, "put", process))


def _is_beside(mark: Mark, process: Process) -> bool:
    """Whether a mark is in a file beside those of the program that a main thread is in."""
    thread = main_thread(process)
    own = program_frames(thread.stack) if thread else []
    return mark.file.rpartition("/")[0] in {each.file.rpartition("/")[0] for each in own}


def _allocating(index: Index, found: Growing) -> list[str]:
    """Where the processes compute: memory does not rise while they sleep or wait.

    The last stack of the main thread counts too, unless it is one of a sleep or a wait.
    """
    main = main_thread(found.process)
    wait = main.waits_on if main is not None else None
    lines = own_lines(found.process) if wait is None else None
    seen = [f"its main thread when last seen: {lines}"] if lines else []
    place = work_place(index, found.processes, is_computing)
    if place is not None and not (lines or "").startswith(place.words):
        seen.append(f"{place.part:.0%} of its computing whose line is known: {place.words}")
    has_loop = main is not None and loop_around(index, main.stack) is not None
    if not seen and not has_loop and (lines := own_lines(found.process)):
        seen.append(f"its main thread when last seen, while it waited: {lines}")
    return seen


def _of_submission(index: Index, process: Process, seen: tuple[str, ...]) -> _Explanation | None:
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
    return _Explanation(
        "private memory",
        seen,
        f"It is still inside of {name} at {line}, which takes every item of its iterable{made} "
        "before it returns. Until the last one is there no result is used: the items "
        "that wait for a worker and the results that are ready all stay in this process.",
        f"Keep a bounded number of tasks in flight at {line}: submit() some, and for each result "
        "that is used one more (itertools.islice, wait(return_when=FIRST_COMPLETED)); or, from "
        "Python 3.14 on, Executor.map(buffersize=...). Pool.imap takes items one by one, and needs "
        "a semaphore to bound them.",
        f"{called(process)} gathers all items of {name} at {line} before it uses a result",
    )


class _Mapping(NamedTuple):
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


def _of_executor(index: Index, process: Process, seen: list[str]) -> _Explanation | None:
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
    return _Explanation(
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


def _of_results(index: Index, process: Process, seen: tuple[str, ...]) -> _Explanation | None:
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
    at = f" at {place.words}" if place is not None else ""
    names = all_called(workers)
    return _Explanation(
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


def _of_kept(index: Index, process: Process, seen: list[str]) -> _Explanation:
    """Memory of which nothing shows what keeps it."""
    threads = _other_threads(index, process)
    seen += [f"its thread {name} is at {place}" for name, place in threads[:SHOWN]]
    is_queue = (
        ", a queue.Queue without maxsize that one of its threads fills faster than another one "
        "reads it"
        if threads
        else ""
    )
    main = main_thread(process)
    found = cache_miss(index, main.stack) if main is not None else None
    if found is not None:
        return _of_cache(*found, seen)
    if (by_source := _of_source(index, process, seen)) is not None:
        return by_source
    added = _only_added_to(index, process)
    seen += [f"nothing in its file removes what {mark_words(each)} adds" for each in added]
    large = [each for each in added if _LARGE.search(each.statement.text)]
    large.sort(key=lambda each: _REDUCED.search(each.statement.text) is not None)
    loop = _lasting_loop(index, process, main) if main is not None else None
    rounds = f" over the rounds of {_loop_words(*loop)}" if loop else ""
    slices = _SLICES if process.sample.torch_loaded else ""
    trains = _trains(index, process)
    # No DataLoader worker trains: its tensors have no graph.
    is_torch = process.sample.torch_loaded and process.role != "loader-worker"
    is_torch = is_torch and (trains or _may_have_graphs(index, process))
    if len({_container(each) for each in large}) == 1:
        return _of_container(large, seen, rounds, slices, has_graphs=bool(is_torch and trains))
    example = f" (as {mark_words(added[0])})" if len(added) == 1 else ""
    unsure = held(index, process)[:1] if not added else []
    example = f" (as where {adds_words(unsure[0])})" if unsure else example
    lists = f"a list or dict that is only ever added to{example}, an unbounded cache{is_queue}"
    kept = f"It keeps what it allocates{rounds}: {lists}{_OR_GRAPHS if is_torch else ''}"
    if is_torch and trains:
        kept = f"It keeps what it allocates{rounds}. {_GRAPHS}; or {lists}"
    return _Explanation(
        "private memory",
        tuple(seen),
        f"{kept}. A cache that is still filling looks the same; its growth slows down and ends.",
        f"Bound or clear what is collected.{_NO_GRAPHS if is_torch else ''}{slices} To see the "
        "lines that allocate, run it under tracemalloc or memray.",
        is_shown=False,
    )


def _only_added_to(index: Index, process: Process) -> list[Mark]:
    """The statements that add to containers which nothing in their file empties, if they are few.

    Without those whose containers were measured and do not grow.
    """
    still = at_rest(index, process.process)
    added = [
        each
        for each in marks(index, "kept", process)
        if (each.file, each.statement.line) not in still
    ]
    return added if len(added) <= SHOWN else []


def _container(mark: Mark) -> str:
    """The variable to which a statement adds: `rows` of `rows[0]`."""
    return mark.about.partition("[")[0]


def _of_container(
    large: Sequence[Mark], seen: Sequence[str], rounds: str, slices: str, *, has_graphs: bool
) -> _Explanation:
    """Memory that the only container keeps to which arrays or tensors are added."""
    name, count = _container(large[0]), len(large) - 1
    more = f" and {counted(count, 'more line')}" if count else ""
    graphs = f" If it is not that: {_GRAPHS[:1].lower()}{_GRAPHS[1:]}." if has_graphs else ""
    return _Explanation(
        "private memory",
        tuple(seen),
        f"Most likely it keeps in {name} what {mark_words(large[0])}{more} "
        f"{'add' if more else 'adds'}{rounds}: nothing in that file takes anything out of it."
        f"{graphs}",
        f"Empty {name} at the end of each round, keep only numbers or the last items in it "
        f"(collections.deque(maxlen=...)), or write them to a file."
        f"{_NO_GRAPHS if graphs else ''}{slices}",
        is_shown=False,
    )


def _of_cache(frame: Frame, lookup: Statement, seen: Sequence[str]) -> _Explanation:
    """A cache that is filled at a line below a lookup that finds nothing."""
    return _Explanation(
        "private memory",
        tuple(seen),
        f"It fills a cache: {frame_words(frame)} makes what `{lookup.text}` in line "
        f"{lookup.line} does not find. With a bound the growth ends when the cache is full; "
        "without one it goes on for as long as there are new keys.",
        "Look whether entries are dropped from that cache, and after how many bytes: each "
        "process has one of its own. If none are, give it a bound "
        "(functools.lru_cache(maxsize=...), or drop the oldest).",
        is_shown=False,
    )


_LARGE = re.compile(r"\.(?:numpy|cpu|clone|detach|copy|tolist|to|tobytes)\(|\b(?:np|numpy|torch)\.")
"""In a statement that adds an array, a tensor or a copy of one."""
_REDUCED = re.compile(r"\.(?:mean|sum|max|min|norm|std|median)\(")


def _lasting_loop(index: Index, process: Process, main: Thread) -> tuple[Frame, Statement] | None:
    """The loop in which memory rises: of a function that the main thread has not left for a while.

    A function that is called anew in each round may have loops of its own, which end.
    """
    inside = {(each.file, each.function) for each in unreturned(index, process)}
    lasting = [each for each in main.stack if (each.file, each.function) in inside]
    return loop_around(index, lasting or main.stack)


def _of_source(index: Index, process: Process, seen: list[str]) -> _Explanation | None:
    """What the source of the files that the main thread is in shows to keep memory."""
    if (cycles := uncollected(index, process)) is not None:
        return _Explanation("private memory", (*seen, cycles.evidence), cycles.cause, cycles.advice)
    # No DataLoader worker trains: its tensors have no graph.
    if process.sample.torch_loaded and process.role != "loader-worker":
        graphs = kept_graphs(index, process, unreturned(index, process))
        if graphs is not None:
            return _Explanation(
                "private memory", (*seen, graphs.evidence), graphs.cause, graphs.advice
            )
    if (view := _of_view(index, process, seen)) is not None:
        return view
    if (cycled := kept_by_cycle(index)) is not None:
        return _Explanation("private memory", (*seen, cycled.evidence), cycled.cause, cycled.advice)
    futures = marks(index, "futures", process)
    inside = {(f.file, f.function) for each in process.threads[:1] for f in each.stack}
    if len(futures) == 1 and (futures[0].file, futures[0].function) in inside:
        name = futures[0].about
        return _Explanation(
            "private memory",
            (*seen, f"{mark_words(futures[0])}: nothing in that file takes one out of {name}"),
            f"Each call that has been submitted is one future, and a future that is done keeps its "
            f"result. {name} refers to all of them, at {mark_words(futures[0])}: results stay in "
            "this process from the moment that a worker has sent them, before and after they are "
            "used.",
            f"Take each future out of {name} when its result was used (futures.pop(future), "
            "futures.remove(future)), and submit a bounded number ahead: wait(futures, "
            "return_when=FIRST_COMPLETED), use what is done, then submit as many. "
            "max_tasks_per_child and gc.collect() do not help.",
        )
    if (held := _kept_to_end(index, process)) is not None:
        return _Explanation(
            "private memory", (*seen, held.evidence), held.cause, held.advice, is_shown=False
        )
    if (hooks := _of_hooks(index, process, seen)) is not None:
        return hooks
    if (unsent := _of_unsent(index, process, seen)) is not None:
        return unsent
    if (kept := _of_exceptions(index, process, seen)) is not None:
        return kept
    if (registered := _of_registered(index, process, seen)) is not None:
        return registered
    if (holding := _of_holders(index, process, seen)) is not None:
        return holding
    caches = marks(index, "cache", process) or marks(index, "cache")
    if len(caches) == 1:
        return _Explanation(
            "private memory",
            (*seen, f"{mark_words(caches[0])} fills {caches[0].about}"),
            f"It fills a cache without a bound: {mark_words(caches[0])} adds an entry for each new "
            "key, and nothing in that file drops one. The growth ends only when no new keys come.",
            "Give that cache a bound (functools.lru_cache(maxsize=...), or drop the oldest), or "
            "keep less of each entry. Each process has a cache of its own.",
            is_shown=False,
        )
    return None


_MADE = re.compile(r"(line \d+|[\w.]+\.py:\d+): (.+)")


def _of_view(index: Index, process: Process, seen: list[str]) -> _Explanation | None:
    """A slice that is kept, with all of the array that it is a part of."""
    if not process.sample.torch_loaded:
        return None
    views = [(each, each.about) for each in marks(index, "view", process)]
    views = views or list(_passed_views(index, process))
    if len({view.statement for view, _ in views}) != 1:
        return None
    view, about = views[0]
    found = _MADE.fullmatch(about)
    part, made = (found[2], f", made in {found[1]}") if found is not None else (about, "")
    whole = part.partition("[")[0]
    return _Explanation(
        "private memory",
        (*seen, f"{mark_words(view)} keeps {part}{made}"),
        f"{mark_words(view)} keeps {part}{made}. If {whole} is a tensor or array, that is a "
        f"view: as long as it is kept, all of {whole} stays in memory, too.",
        f"Keep a copy of the part: {part}.clone() of a tensor, .copy() of an array, "
        ".item() of one number. If it is neither, bound the container.",
    )


def _passed_views(index: Index, process: Process) -> Iterator[tuple[Mark, str]]:
    """Slices that are given to the one method of the program which keeps that argument."""
    for mark in marks(index, "view-passed", process):
        method, place, made = mark.about.split(", ", 2)
        kept = [each for each in marks(index, "argument-kept") if each.function == method]
        of = [each for each in kept if each.about.startswith(f"{place}, ")]
        if len({each.file for each in kept}) == 1 and len(of) == 1:
            yield of[0], made


def _of_unsent(index: Index, process: Process, seen: list[str]) -> _Explanation | None:
    """What a coroutine writes to a stream in a loop, and never waits until it was sent."""
    found = marks(index, "undrained-write", process)
    if len(found) != 1:
        return None
    mark, drains = found[0], f"await {found[0].about}.drain()"
    return _Explanation(
        "private memory",
        (*seen, f"{mark.function}() writes at {mark_words(mark)} in a loop, without {drains}"),
        f"Most likely what was not sent yet: write() of a stream of asyncio never waits. What the "
        "other end does not read as fast as it is written stays in the buffer of the transport, "
        f"which has no bound, and {mark_words(mark)} goes on without {drains}.",
        f"Put {drains} after each write: it waits while the buffer is above its limit, so that the "
        "writer takes no more than the reader does. Or drop or merge messages for a slow reader. A "
        "larger socket buffer or gc.collect() does not help.",
        is_shown=False,
    )


def _of_holders(index: Index, process: Process, seen: Sequence[str]) -> _Explanation | None:
    """Containers of the program that outlive the loop which adds to them."""
    found = held(index, process)
    kept = kept_by(found)
    if kept is None:
        return None
    evidence = (*seen, kept.evidence) if kept.evidence else tuple(seen)
    cause, advice = kept.cause, kept.advice
    text = found[0].first.statement.text
    is_torch = process.sample.torch_loaded and process.role != "loader-worker"
    if is_torch and _may_be_graph(text) and _may_have_graphs(index, process):
        cause += (
            " If that is a tensor that a model has computed, it also keeps the autograd graph of "
            "its batch with all activations: no detach() or item() is in that statement."
        )
        advice += _NO_GRAPHS
    return _Explanation("private memory", evidence, cause, advice, is_shown=False)


_COMPUTED = re.compile(
    r"(?<![A-Za-z])(?:loss|logits?|pred\w*|outputs?|scores?|log_?probs?|hidden|actions?)\b"
)
_CUT_OFF = re.compile(r"\.(?:detach|item|numpy|tolist|data)\b|\bfloat\(")


def _may_be_graph(text: str) -> bool:
    """Whether a statement adds what has the name of a result of a model, with its graph."""
    return _COMPUTED.search(text) is not None and _CUT_OFF.search(text) is None


def _adds_itself(index: Index, process: Process, thread: Thread) -> bool:
    """Whether a thread is in a loop that adds to a container which nothing empties."""
    functions = {(frame.file, frame.function) for frame in thread.stack}
    return any(
        each.is_sure
        and each.round is not None
        and (each.first.file, each.round.function) in functions
        for each in held(index, process)
    )


def _of_hooks(index: Index, process: Process, seen: list[str]) -> _Explanation | None:
    """Hooks of torch that a function on the way to the present line registers in each of its calls.

    Of other threads and files nothing shows that they run again and again.
    """
    if not process.sample.torch_loaded:
        return None
    inside = {(f.file, f.function) for each in process.threads[:1] for f in each.stack}
    found = [e for e in marks(index, "registers-hook") if (e.file, e.function) in inside]
    if len(found) != 1:
        return None
    mark = found[0]
    return _Explanation(
        "private memory",
        (*seen, f"{mark_words(mark)} registers a hook in each call of {mark.function}()"),
        f"Most likely hooks accumulate: {mark_words(mark)} registers one in each call of "
        f"{mark.function}(), and it stays until remove() of its own handle is called. Each of them "
        "keeps what its function refers to, and each later pass calls all of them, so that passes "
        "become slower as well.",
        f"Register it once, before the loop; or keep every handle that {mark.function}() gets "
        "(append, not assign: a handle that is overwritten can never be removed) and remove all of "
        "them in a finally block after each use. gc.collect(), no_grad() or smaller batches do not "
        "help.",
        is_shown=False,
    )


_REPEATED = re.compile(
    r"(?P<what>[^;]+); (?:(?P<file>\S+):(?P<first>\d+)-(?P<last>\d+) "
    r"(?P<is_async>async )?(?P<function>\S+)|(?P<calls>each call of .+))"
)
"""What `Mark.about` says of a statement that a loop repeats."""


class _Repeated(NamedTuple):
    """A statement that keeps something more in each round of a loop that a process is in."""

    mark: Mark
    what: str
    """The beginning of `Mark.about`."""
    where: str
    """`each round of the loop at main.py:51 bench_worker`."""


def _repeated(index: Index, process: Process, kind: MarkKind) -> list[_Repeated]:
    found: dict[tuple[str, Statement], _Repeated] = {}
    for mark in marks(index, kind):
        about = _REPEATED.fullmatch(mark.about)
        if about is not None and _repeats(process, mark, about):
            where = about["calls"] or (
                f"each round of the loop at {about['file']}:{about['first']} {about['function']}"
            )
            found.setdefault((mark.file, mark.statement), _Repeated(mark, about["what"], where))
    return list(found.values())


def _of_registered(index: Index, process: Process, seen: Sequence[str]) -> _Explanation | None:
    """Something that keeps objects is registered in each round of a loop that the process is in."""
    found = _repeated(index, process, "registers")
    if len(found) != 1:
        return None
    mark, undo, where = found[0]
    keeper, advice = _KEEPERS[undo]
    words = mark_words(mark)
    none = f"; {mark.file.rpartition('/')[2]} has no {undo}" if undo in _CALLED else ""
    return _Explanation(
        "private memory",
        (*seen, f"{words} is reached in {where}{none}"),
        f"Most likely what {words} registers stays: that is reached in {where}, and {keeper}",
        f"{advice} gc.collect() does not help, as all of it is referred to.",
        is_shown=False,
    )


def _of_exceptions(index: Index, process: Process, seen: Sequence[str]) -> _Explanation | None:
    """Exceptions that are kept in each round of a loop that the process is in."""
    found = _repeated(index, process, "keeps-exception")
    if len(found) != 1:
        return None
    mark, container, where = found[0]
    return _Explanation(
        "private memory",
        (*seen, f"nothing in its file removes what {mark_words(mark)} adds, in {where}"),
        f"Most likely exceptions are kept: {mark_words(mark)} adds to {container} in {where}, and "
        f"nothing in that file removes any.{_EXCEPTION_KEEPS}",
        f"{_exception_advice(mark)} gc.collect() does not help.",
        is_shown=False,
    )


_EXCEPTION_KEEPS = (
    " What it adds is the exception that was caught there, or refers to it. An exception keeps its "
    "traceback, and with that every function that it came through and all their local variables "
    "(the item at work, tables, arrays, tensors)."
)


def _exception_advice(mark: Mark) -> str:
    place = mark_place(mark).rpartition(" ")[0]
    return (
        f"Keep the text in place of the exception at {place}: str(error), repr(error) or "
        "traceback.format_exc(); or error.with_traceback(None), of which error.__context__ and "
        "error.__cause__ may still have theirs."
    )


def _repeats(process: Process, mark: Mark, about: re.Match[str]) -> bool:
    """Whether a process is in the loop that repeats a registration, or gets such calls."""
    stacks = [each.stack for each in process.threads]
    if about["is_async"]:  # a coroutine that waits is on no stack
        files = {each.file for stack in stacks for each in stack if "/asyncio/" in each.file}
        return bool(files)
    if about["calls"]:
        return any(each.file == mark.file for stack in stacks for each in stack)
    lines = range(int(about["first"]), int(about["last"]) + 1)
    return any(
        each.line in lines
        and each.function == about["function"]
        and each.file.rpartition("/")[2] == about["file"]
        for stack in stacks
        for each in stack
    )


_BOUND = (
    "with the object that it is a method of, or what it is to be given, and all that these refer "
    "to, also after that was closed"
)
_LISTENERS = (
    f"what it is registered with refers to each of them, {_BOUND}.",
    "Take it back where its use ends (in close() or a finally block), or register a function that "
    "refers to it weakly (weakref.WeakMethod).",
)
_CALLED = ("atexit.unregister()", "cancel() of its handle", "removeHandler()")
_KEEPERS: Mapping[str, tuple[str, str]] = {
    "atexit.unregister()": (
        f"atexit keeps each function until the process ends, {_BOUND}.",
        "Call atexit.unregister() with the same function where its use ends (in close()), or "
        "weakref.finalize() with a function that does not refer to the object; or register one "
        "function for all, once, that goes through a weakref.WeakSet.",
    ),
    "cancel() of its handle": (
        "nothing cancels that timer: until its time comes it is kept with its function and what "
        "that is to be given, also where that is done long before. Memory rises for as long as one "
        "such delay lasts.",
        "Keep the handle, and cancel() it in a finally block as soon as what it is for is done; or "
        "use asyncio.timeout() or asyncio.wait_for(), which do so. Or give it only a number, by "
        "which it looks up what is still at work. A shorter delay only bounds it.",
    ),
    "a function that does not refer to the object": (
        "what weakref.finalize() is given refers to the object itself, so that nothing ever lets "
        "the object go, and the function is not called before the process ends.",
        "Give it a function (a staticmethod) and only what is to be closed, not self, none of its "
        "methods and no lambda with it.",
    ),
    "nothing": (
        f"what os.register_at_fork() is given stays until the process ends, {_BOUND}.",
        "Register one function for all, once, that goes through a weakref.WeakSet.",
    ),
    "remove() of its handle": (
        "a module or tensor of torch keeps each hook until remove() of its own handle is called, "
        "with all that the function of the hook refers to, and each later pass calls all of them, "
        "so that passes become slower as well.",
        "Register it once, before the loop; or keep every handle that is returned (append, not "
        "assign: one that is overwritten can never be removed) and remove all of them in a "
        "`finally` clause after each use.",
    ),
    "removeHandler()": (
        "a logger keeps every handler that is added, with what the handler refers to, and writes "
        "each later record once for every one of them, so that logging becomes slower as well.",
        "Add the handler once, where logging is set up; or call logger.removeHandler(handler) and "
        "handler.close() where its use ends.",
    ),
    **{f"{undo}()": _LISTENERS for undo in UNDOES},
}


def _kept_to_end(index: Index, process: Process | None, site: str = "") -> Kept | None:
    """A container that only the end of its object empties, as the source shows.

    Args:
        index: The snapshot.
        process: Whose growth it is.
        site: The line that allocates, `parallel.py:30`, where that is known; what is kept is kept
            by its file then.

    Returns:
        `None` where there is none, or several.
    """
    found = marks(index, "kept-to-end")
    if site:
        file = site.partition(":")[0]
        found = [each for each in found if each.file.rpartition("/")[2] == file]
    if len(found) != 1:
        return None
    mark = found[0]
    container, _, empties = mark.about.partition(", ")
    opened = _opened_around(index, process) if process is not None else ""
    until = f", which {opened} comes to only after its loop" if opened else ""
    likely = "" if site else "Most likely "
    cause = (
        f"{mark_words(mark)} stores in {container} what it is given or has made, and "
        f"that is emptied only in {empties}{until}. Until then each entry keeps all that it "
        "refers to."
    )
    return Kept(
        f"{container} is emptied only in {empties}",
        f"{likely}{cause}",
        f"Take the entry out of {container} as soon as it was used: at the end of each call or "
        "round, or let it go by itself (weakref.WeakValueDictionary). Or end and make the object "
        "anew every few rounds. Restarting workers or gc.collect() does not help: the container "
        "refers to all of it.",
    )


def _opened_around(index: Index, process: Process) -> str:
    """The `with` statement around the loop that the main thread is in; empty for none."""
    thread = main_thread(process)
    found = loop_around(index, thread.stack) if thread is not None else None
    if thread is None or found is None:
        return ""
    line = source_of(index, found[0])
    before = line.within[: line.within.index(found[1])] if line is not None else ()
    opens = [each for each in before if each.text.startswith("with ")]
    return f"`{opens[-1].text}` of line {opens[-1].line}" if opens else ""


def _may_have_graphs(index: Index, process: Process) -> bool:
    """Whether the source that is known does not speak against autograd graphs that are kept."""
    return bool(marks(index, "backward")) or not marks(index, "no-grad", process)


def _loop_words(frame: Frame, loop: Statement) -> str:
    """A loop and where it is: `for step in steps:` at train.py:39 epoch."""
    return f"`{loop.text}` at {frame_words(frame._replace(line=loop.line))}"


def _trains(index: Index, process: Process) -> bool:
    """Whether a process is a rank, or was seen in a backward pass or in a collective."""
    if process.role == "rank" or process.label.startswith("rank "):
        return True
    if any(calls(own_frames(each.stack), ":_engine_run_backward") for each in process.threads):
        return True
    return any(each.activity.target == "collective" for each in shares(index, process))


_OR_GRAPHS = ", losses or outputs kept as tensors with their autograd graph"
_GRAPHS = (
    "In training that is most often a loss, a metric or an output that is summed up or "
    "stored as a tensor: with it stays the autograd graph of its step"
)


_NO_GRAPHS = (
    " Of losses and outputs keep .item() or .detach(), and evaluate under torch.no_grad(): a "
    "tensor that is kept with its graph keeps all activations of its batch."
)


_SLICES = (
    " A slice or view that is kept keeps the whole tensor or array that it was made of: keep a "
    "clone() or copy() of it."
)


def _kept_messages(index: Index, found: Growing) -> _Explanation | None:
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
    passes = passes and not _adds_itself(index, process, receiver)
    title = f"{called(process)} keeps what {reader} receives {at}"
    has_read = f"it has read {bytes_text(read)} in that time, and keeps "
    has_read += bytes_text(growth.gained)
    if not passes and (holding := _of_holders(index, process, (has_read,))) is not None:
        return holding._replace(title=title, is_shown=True, is_guess=True)
    used = f"its thread {users[0][0].name}, which is at {users[0][1]}," if users else ""
    return _Explanation(
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
            "looks the same until all of it has been written once: only then it is in memory."
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
) -> _Explanation | None:
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
    return _Explanation(
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
    inside = {(each.file, each.function) for each in own_frames(main.stack)}
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


def _other_threads(index: Index, process: Process) -> list[tuple[str, str]]:
    """The names and lines of the threads of the program besides the main one."""
    return [
        (each.name, place)
        for each in own_threads(index, process)
        if each.tid != process.pid and (place := own_place(each)) is not None
    ]


def _askers(index: Index, manager: Process) -> Iterator[str]:
    """The lines at which other processes ask a manager; those that add to its objects first."""
    found = asked(index, manager, index.snapshot.living())
    for each in sorted(found, key=lambda line: line.method not in PROXY_WRITES):
        calling = f", calling {each.method} of a proxy" if each.method else ""
        verb = "asks" if len(each.processes) == 1 else "ask"
        yield f"{all_called(each.processes)} {verb} it at {each.place}{calling}"


class _Consumers(NamedTuple):
    """A queue that is read more slowly than it is filled."""

    title: str
    evidence: tuple[str, ...]


def _consumers(index: Index, found: Growing) -> _Consumers | None:
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
    readers = [each for each in holders if _has_read(index, each, blocked.inode)]
    if not readers:
        others = [
            each
            for each in holders
            if (each.parent, each.role, _task(each)) not in work and not _only_joins(each)
        ]
        readers = [each for each in others if not _reads_elsewhere(each, blocked.inode)] or holders
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


def _has_read(index: Index, process: Process, inode: int) -> bool:
    """Whether a process was seen waiting for data on a pipe, now or within the last minute."""
    if any(_reads_from(thread) == inode for thread in process.threads):
        return True
    pipe = re.compile(rf"^data on .*\bpipe {inode}\b")
    return any(pipe.match(each.activity.what) for each in shares(index, process))


def _reads_elsewhere(process: Process, inode: int) -> bool:
    """Whether the main thread of a process waits for data on another pipe."""
    source = _reads_from(process.threads[0]) if process.threads else None
    return source is not None and source != inode


def _reads_from(thread: Thread) -> int | None:
    """The inode of the pipe from which a thread waits for data."""
    wait = thread.waits_on
    if wait is None or wait.kind != "pipe-read" or not wait.targets:
        return None
    return inode_of(wait.targets[0])


_BOUND_THE_QUEUE = (
    "Bound the queue, Queue(maxsize=...): the producer then waits for its consumers and runs at "
    "their speed. Or speed up the consumers."
)


def _of_mappings(index: Index, found: Growing) -> _Explanation:
    return _Explanation(
        "memory mappings",
        (),
        "It maps memory again and again and keeps the mappings: memory-mapped files that stay "
        "referenced, or shared tensors that it keeps.",
        "Open each mapped file once and drop what is no longer used.",
    )


def _of_descriptors(index: Index, found: Growing) -> _Explanation:
    process, gained = found.process, found.growth.gained
    kind = newest_kind(process, gained)
    noun, cause, advice = _DESCRIPTORS.get(kind, _DESCRIPTORS[None])
    if kind == "file" and _maps_as_much(found):
        noun, cause, advice = _MAPPED_FILES
    elif kind == "file" and are_logs(process, gained):
        noun, cause, advice = _LOG_FILES
    if kind == "socket":
        loops, pairs = newest_pairs(process, gained)
        noun, cause, advice = _LOOPS if loops else _PAIRS if pairs else (noun, cause, advice)
        if (accepted := newest_accepted(process, gained)) is not None:
            return _of_server(descriptor_words(index, process, gained), process, accepted)
    words = descriptor_words(index, process, gained)
    if (left := unclosed_by(index, process, gained)) is not None:
        return _of_unclosed(found, left, noun, words)
    at_end = _kept_to_end(index, process) if kind in ("torch", "shm") else None
    if at_end is not None:
        return _Explanation(noun, (*words, at_end.evidence), at_end.cause, at_end.advice)
    if kind not in ("event", "epoll", "gpu") and noun != _LOG_FILES[0]:
        kept = kept_in(index, process, None if kind == "torch" else "opens")
        if kept is not None:
            return _Explanation(noun, words, f"{cause} {kept.cause}", f"{advice} {kept.advice}")
    return _Explanation(noun, words, cause, advice)


def _of_unclosed(found: Growing, left: Unclosed, noun: str, words: tuple[str, ...]) -> _Explanation:
    """Descriptors that are plain numbers, which one statement opens and nothing closes."""
    mark, place = left.mark, mark_place(left.mark)
    is_temporary = "mkstemp" in mark.statement.text
    matched = (f"{left.matching} of them have a name as it gives: {left.pattern}",)
    names, verb = all_called(found.processes), "have" if len(found.processes) > 1 else "has"
    likely = "" if left.matching else "Most likely "
    return _Explanation(
        noun,
        (*words, *(matched if left.matching else ())),
        f"{likely}{mark_words(mark)} opens one in {left.where}, and {mark.function}() neither "
        "closes it nor gives it away. "
        + (
            "mkstemp() returns an open descriptor beside the path. To open the path again, to "
            "close that, or to remove the file does not close the first one, and a file that was "
            "removed occupies its space until then."
            if is_temporary
            else "It is a plain number: unlike a file object or a socket, nothing closes it when "
            "it is not used any more."
        ),
        (
            f"Close or use the descriptor that {place} gets: os.close(...) of it, or with "
            "os.fdopen(..., 'wb') as out: in place of a second open(); or use "
            "tempfile.NamedTemporaryFile in a with-statement."
            if is_temporary
            else f"Call os.close() of what {place} opens in a `finally` clause, or open it in a "
            "with-statement (open(), os.fdopen())."
        )
        + " A higher limit (ulimit -n) or new workers only delay the end; gc.collect() closes none "
        "of them.",
        f"{names} {verb} ever more {noun}, opened at {place} and never closed",
    )


def _of_server(words: tuple[str, ...], process: Process, accepted: NewestAccepted) -> _Explanation:
    """A server that accepts connections and keeps them."""
    lines = own_lines(process)
    ended = (
        (f"the clients of {accepted.ended} of them have closed their end",)
        if accepted.ended
        else ()
    )
    return _Explanation(
        "open sockets",
        (
            *words,
            f"{accepted.connections} of them are connections accepted at {accepted.port}",
            *ended,
            *((f"its main thread when last seen: {lines}",) if lines else ()),
        ),
        "It accepts connections and does not close them. "
        + (
            "Each stays open after its client has closed it: an end of file (recv() gives b'') or "
            "an end of its registration with a selector closes nothing."
            if accepted.ended
            else "Its clients keep their ends open as well."
        ),
        "Call close() on the connection where recv() returns b'' or the request is answered, and "
        "drop it from every list or dict that keeps it. Let clients use one connection for many "
        "requests.",
    )


def _maps_as_much(found: Growing) -> bool:
    """Whether mappings rise about as fast as descriptors."""
    return any(
        other == "mappings" and rise.per_s >= found.growth.per_s / 2
        for other, rise in found.carried
    )


_MAPPED_FILES = (
    "open files",
    "It maps files (mmap, numpy.load with mmap_mode, memory-mapped data sets) and keeps the "
    "mappings: each has its file open until it is closed, also where the file itself was.",
    "Map each file once for each worker and keep that; or close each mapping (mmap.close(), with "
    "mmap.mmap(...) as mapped:) after its use.",
)
_LOG_FILES = (
    "open log files",
    "It opens log files and does not close them. A handler of logging (FileHandler) has its file "
    "open until it is closed: one that is added to the same logger for each task stays, and writes "
    "every later line into all earlier files, too.",
    "Where the handler is added, remove and close it at the end of the task "
    "(logger.removeHandler(handler), handler.close()), or set up logging once in each process. "
    "Close what writes events the same way (SummaryWriter.close()).",
)
_PAIRS = (
    "open sockets",
    "It makes connected pairs (multiprocessing.Pipe, socket.socketpair) and does not close them.",
    "Close both ends where their use ends: Connection.close(), or with connection:. Make one pipe "
    "for each worker and use it for all requests.",
)
_LOOPS = (
    "open sockets and epoll instances",
    "It makes event loops (asyncio.new_event_loop) and does not close them: each has an epoll "
    "instance and a pair of sockets.",
    "Use one event loop for the whole run, or asyncio.run() for each call, which closes its loop.",
)
_DESCRIPTORS: Mapping[FdKind | None, tuple[str, str, str]] = {
    None: (
        "open descriptors",
        "It opens descriptors and does not close them.",
        "Close what is opened where its use ends: with-statements do.",
    ),
    "pipe": (
        "open pipe ends",
        "It makes pipes (os.pipe, multiprocessing.Pipe or Queue, subprocess with PIPE) and does "
        "not close them.",
        "Close both ends where their use ends. Queue.close(), Connection.close() and Popen used "
        "in a with-statement do so. Make queues once and not for each step.",
    ),
    "socket": (
        "open sockets",
        "It opens connections and does not close them.",
        "Use one session or client for the whole run, and close each response: in with-statements.",
    ),
    "file": (
        "open files",
        "It opens files and does not close them.",
        "Open each file in a with-statement, or once for each worker and keep it.",
    ),
    "torch": (
        "open shared tensors",
        "Each shared tensor costs a descriptor for as long as it lives, in its sender until it is "
        "received, and in its receiver. The process keeps them.",
        "Keep .clone(), .item() or .numpy().copy() of what is received, and bound the queue "
        "through which tensors are sent.",
    ),
    "shm": (
        "open shared-memory files",
        "It opens shared memory (memfd, multiprocessing.shared_memory) and does not close it.",
        "Call close() where its use ends, and unlink() once for each block.",
    ),
    "event": (
        "open eventfds",
        "It makes eventfds and does not close them: event loops and CUDA libraries use them.",
        "Make one event loop for the whole run and close it at the end.",
    ),
    "epoll": (
        "open epoll instances",
        "It makes event loops or selectors and does not close them.",
        "Make one event loop for the whole run, or close each (loop.close(), selector.close()).",
    ),
    "gpu": (
        "open GPU device files",
        "It opens GPU devices again and again and does not close them.",
        "Initialise the library that opens them once for each process.",
    ),
}

_FILES: Mapping[FileKind, tuple[str, str]] = {
    "shared-memory files": (
        "Blocks of multiprocessing.shared_memory are made and never unlinked. close() only unmaps "
        "a block; its memory stays in use until unlink() removes the file, also after the "
        "processes have exited.",
        "Call unlink() once for each block, in the process that needs it last: the reader, once it "
        "has copied the data. Or reuse a few blocks in turn, or use a SharedMemoryManager, which "
        "unlinks its blocks at the end.",
    ),
    "semaphores": (
        "Locks, queues and events of multiprocessing are made again and again and kept: each has "
        "named semaphores, which are removed when the object is freed.",
        "Make them once, before the loop, and pass them on; drop those that are not needed.",
    ),
    "files in memory": (
        "Files are made in a tmpfs, whose files are memory, and nothing removes them. They keep "
        "their memory until they are removed, also after the job has ended. A cache that is still "
        "being filled looks the same; its growth ends.",
        "Remove each file once it was read, in the process that reads it last, or keep only the "
        "newest few; remove the folder at the end of the job.",
    ),
    "temporary files": (
        "Temporary files are made again and again, and nothing removes them while the job runs. A "
        "cache that is still being filled looks the same; its growth ends.",
        "Remove each file after its use: NamedTemporaryFile without delete=False, or "
        "TemporaryDirectory, in a with-statement for each step and not for the whole run. "
        "mkstemp() leaves it to the caller.",
    ),
    "files": (
        "The job writes ever more files. If these are its results, the file system is too small "
        "for them at this rate; if they are intermediate, nothing removes them.",
        "Keep only the newest few, write less often, or write to a larger file system.",
    ),
}

_EXPLAINED_BY: Mapping[Resource, Callable[[Index, Growing], _Explanation]] = {
    "child processes": _of_children,
    "threads": _of_threads,
    "queue": _of_queue,
    "descriptors": _of_descriptors,
    "mappings": _of_mappings,
    "memory": _of_memory,
    "GPU memory": _of_gpu_memory,
}
