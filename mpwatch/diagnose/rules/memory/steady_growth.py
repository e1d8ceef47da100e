"""A resource of a process rises steadily, and no specific rule names the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from mpwatch.describe.processes import full_name_of
from mpwatch.diagnose.analysis.growth.backlogs import BOUND_THE_QUEUE, slow_consumers
from mpwatch.diagnose.analysis.growth.descriptors import explain_descriptors
from mpwatch.diagnose.analysis.growth.forecast import memory_headroom
from mpwatch.diagnose.analysis.growth.growing import (
    Explanation,
    FileKind,
    Growing,
    GrowingFiles,
    GrowingSegments,
    Headroom,
    MadeFiles,
    Resource,
    growing,
    growing_files,
    growing_segments,
    headroom,
    made_by,
    urgency,
)
from mpwatch.diagnose.analysis.growth.holders import kept_to_end
from mpwatch.diagnose.analysis.growth.memory import (
    explain_gpu_memory,
    explain_memory,
    may_end_at_bound,
)
from mpwatch.diagnose.analysis.growth.never_closed import left_children, left_threads
from mpwatch.diagnose.analysis.growth.newest import (
    are_of_groups,
    has_zombies,
    newest_children_words,
    newest_kind,
    newest_threads,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, counted
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.consequences import OUTPUT
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import NewFiles
from mpwatch.model.ids import ProcessId
from mpwatch.model.units import bytes_text, count_text, rate_text, seconds_text

RULE = "steady-growth"

NOUNS: Mapping[Resource, str] = {
    "child processes": "child processes",
    "threads": "threads",
    "queue": "items in its queues",
    "descriptors": "open descriptors",
    "mappings": "memory mappings",
    "memory": "private memory",
    "GPU memory": "GPU memory",
}


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each resource that rises steadily in a process or a set of workers."""
    every = [each for each in growing(index) if not may_end_at_bound(index, each)]
    # Items in the memory of their producers, whose feeder threads wait for room in a full pipe.
    is_outrun = any(each.resource == "memory" and slow_consumers(index, each) for each in every)
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
    ends = explained.is_bounded and severity is Severity.INFO
    eta_s = None if near is None or ends else near.eta_s
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
        evidence=(
            *_numbers(found, explained),
            *explained.evidence,
            _limit_words(near, is_reached=not ends),
        ),
        cause=explained.cause,
        advice=explained.advice,
        eta_s=eta_s,
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
    held = kept_to_end(index, owner, site) if site else None
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
    if kind in _BY_NAME and (made := made_by(index, files)) is not None:
        cause = f"{_made_words(made)} {cause}"
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
    severity = urgency(found.eta_s, growth.span_s)
    return Finding(
        rule=RULE,
        severity=severity,
        # Files that fill no limit within a day may be what the program is to make; and so may those
        # of a program whose limit is hours away, but for blocks and semaphores.
        is_doubtful=found.eta_s is None or (severity is Severity.INFO and kind in OUTPUT),
        process=found.makers[0].process if found.makers else index.snapshot.root,
        others=tuple(each.process for each in found.makers[1:]),
        subject=kind,
        summary=f"{title}: {pace} for {span}",
        evidence=tuple(evidence),
        cause=cause,
        advice=advice,
        eta_s=found.eta_s,
    )


_BY_NAME = ("files in memory", "temporary files", "files")
"""Kinds of files whose names the program gives."""


def _made_words(made: MadeFiles) -> str:
    """Which statement makes files, and what removes them, as far as that is sure."""
    likely = "" if made.is_sure else "Most likely "
    file = made.mark.file.rpartition("/")[2]
    removal = ""
    if made.removal:
        header, _, line = made.removal.rpartition(" in line ")
        removal = f", and removes it only under `{header}` in line {line}"
    if made.removal == "none":
        removal = f", and nothing in {file} removes a file"
    words = f"{mark_words(made.mark)} makes them: its name is {made.pattern}, as theirs are"
    return f"{likely}{words}{removal}."


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


def _numbers(found: Growing, explained: Explanation) -> Iterator[str]:
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


def _limit_words(near: Headroom | None, *, is_reached: bool) -> str:
    """How far the nearest limit is, and when that is reached, unless the growth ends before."""
    if near is None:
        return "no limit is known"
    text = bytes_text if near.is_bytes else count_text
    left = f"{near.what}: {text(near.free)} of {text(near.limit)} left"
    if not is_reached:
        return left
    if near.eta_s is None:
        return f"{left}, more than a day at this rate"
    return f"{left}, used up in {seconds_text(near.eta_s)} at this rate"


# --- words for each resource -------------------------------------------------------------------


def _of_children(index: Index, found: Growing) -> Explanation:
    words = newest_children_words(index, found.process, found.growth.gained)
    return left_children(index, found, words) or Explanation(
        "child processes",
        words,
        "It starts processes and does not join them: those that have exited stay as zombies."
        if has_zombies(index, found.process)
        else "It starts processes faster than they end.",
        "Join each process, or reuse a fixed number of them: a Pool, a ProcessPoolExecutor, "
        "persistent DataLoader workers.",
    )


def _of_threads(index: Index, found: Growing) -> Explanation:
    newest = newest_threads(found.process, found.growth.gained)
    if newest.fills_queue:
        return Explanation(
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
    if are_of_groups(found.process, found.growth.gained):
        return _of_groups(index, newest.words)
    return left_threads(index, found, newest.words) or Explanation(
        "threads",
        newest.words,
        "It starts threads that do not end. Each has a stack, and counts against the number of "
        "processes and threads that the system allows.",
        "End each thread where its work ends (an Event that its loop checks) and join it, or use "
        "one ThreadPoolExecutor with max_workers for the whole run.",
    )


def _of_groups(index: Index, words: tuple[str, ...]) -> Explanation:
    """Process groups that are made again and again, and the statement that makes them."""
    made = {(each.file, each.statement): each for each in marks(index, "makes-group")}
    by = " and ".join(map(mark_words, made.values()))
    where = f": most likely by {by}" if len(made) in (1, 2) else ""
    return Explanation(
        "threads",
        words,
        f"These are threads of process groups of torch.distributed: it makes ever more groups"
        f"{where}. torch keeps each group, with its threads and its connections to the other "
        "ranks, until destroy_process_group(group), also where the program has no reference to it "
        "any more.",
        "Make each group once, before the loop, and keep it by its ranks (a dict); or end it after "
        "its use with torch.distributed.destroy_process_group(group), on all of its ranks. Neither "
        "del nor gc.collect() ends one.",
        is_shown=bool(where),
    )


def _of_queue(index: Index, found: Growing) -> Explanation:
    slow = slow_consumers(index, found)
    return Explanation(
        "items in its queues",
        () if slow is None else slow.evidence,
        "Items are put into a queue faster than they are taken out, and the queue has no maxsize.",
        BOUND_THE_QUEUE,
        None if slow is None else slow.title,
        is_shown=slow is not None,
    )


def _of_mappings(index: Index, found: Growing) -> Explanation:
    return Explanation(
        "memory mappings",
        (),
        "It maps memory again and again and keeps the mappings: memory-mapped files that stay "
        "referenced, or shared tensors that it keeps.",
        "Open each mapped file once and drop what is no longer used.",
    )


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
        "cache that is still being filled looks the same, and its growth ends; so does the output "
        "of a job that writes it to a folder for temporary files.",
        "Nothing is wrong if these files are what the job is to write, and all of them have room "
        "there. Otherwise remove each file after its use: NamedTemporaryFile without delete=False, "
        "or TemporaryDirectory, in a with-statement for each step and not for the whole run. "
        "mkstemp() leaves it to the caller.",
    ),
    "files": (
        "The job writes ever more files. If these are its results, the file system is too small "
        "for them at this rate; if they are intermediate, nothing removes them.",
        "Keep only the newest few, write less often, or write to a larger file system.",
    ),
}

_EXPLAINED_BY: Mapping[Resource, Callable[[Index, Growing], Explanation]] = {
    "child processes": _of_children,
    "threads": _of_threads,
    "queue": _of_queue,
    "descriptors": explain_descriptors,
    "mappings": _of_mappings,
    "memory": explain_memory,
    "GPU memory": explain_gpu_memory,
}
