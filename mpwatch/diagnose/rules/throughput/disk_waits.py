"""Processes spend their time waiting for a disk: to write, to read, to page memory in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.diagnose.analysis.growth.forecast import slope
from mpwatch.diagnose.analysis.growth.newest import own_lines
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.source.lines import line_at, source_of
from mpwatch.diagnose.analysis.source.loops import loop_around
from mpwatch.diagnose.analysis.throughput.shares import (
    LOSS_READINGS,
    Loss,
    Speedup,
    core_share,
    doing_words,
    losses,
    shares,
    speedup_without,
    times_faster,
)
from mpwatch.model.account import IMPORTS, SYNC_CALLS, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Statement
from mpwatch.model.units import bytes_text

RULE = "disk-waits"
IS_OF_SHARES = True
WAIT_SHARE = 0.35
"""Of the time in which the thread did not wait for a free core."""
FASTER = 1.25
MOSTLY = 0.6
SHOWN = 2


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for the processes whose threads wait for a disk much of the time.

    What a process reads while it imports is its start. Not all waits of a start are known to be for
    that, so a process that is found at imports more than at other waits for a disk counts as
    starting.
    """
    found = [
        each
        for each in losses(index, _is_disk)
        if each.share >= WAIT_SHARE * (1 - core_share(index, each.process))
        and each.readings >= LOSS_READINGS
        and each.process.role not in SERVICE_ROLES
        and each.share > _imports_share(index, each.process)
    ]
    if not found:
        return
    faster = speedup_without(index, _is_disk)
    if faster.sure >= FASTER:
        yield _finding(index, found, faster)


def _imports_share(index: Index, process: Process) -> float:
    """The share of the time in which the main thread was seen in imports."""
    return sum(each.share for each in shares(index, process) if each.activity.what == IMPORTS)


def _is_disk(activity: Activity) -> bool:
    if activity.what == IMPORTS:
        return False
    if activity.kind != "waiting" or activity.target not in ("file", "page-faults"):
        return False
    # A driver, such as that of a GPU, is no disk.
    head, _, channel = activity.what.partition("a disk or driver")
    return bool(head) or channel.removeprefix(" in the kernel's ").startswith(_IO_CHANNELS)


_IO_CHANNELS = (
    "folio_", "__folio_", "wait_on_", "io_schedule", "blk_", "jbd2_", "ext4_", "xfs_", "btrfs_",
    "nfs", "rpc_", "fuse_", "__fuse", "ceph_", "cifs", "request_wait", "submit_bio",
)  # fmt: skip
"""How kernel functions begin in which a thread waits for a disk or a file server (Linux 6)."""


def _is_sync(what: str) -> bool:
    return what.split(" ", 1)[0] in SYNC_CALLS


def _finding(index: Index, found: Sequence[Loss], faster: Speedup) -> Finding:
    """Describe the waits of all these processes, in the words of the most frequent kind."""
    most = found[0]
    what = max(most.kinds, key=lambda each: most.kinds[each])
    syncs = sum(share for each, share in most.kinds.items() if _is_sync(each))
    pages = sum(share for each, share in most.kinds.items() if "page" in each)
    place = most.place
    at = f" at {place}" if place else ""
    processes = list({each.process.process: each.process for each in found}.values())
    is_sync, is_paging = syncs >= MOSTLY * most.share, pages >= MOSTLY * most.share
    spent = tuple(_evidence(index, processes))
    commits = _of_commits(index, most) if is_sync else ""
    is_reported = any(what in each for each in spent)
    for_what = (
        f"in {what.split(' ', 1)[0]} until its data is on the disk"
        if is_sync
        else "for pages that are not in memory"
        if is_paging
        else f"for {what}"
    )
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=most.process.process,
        others=tuple(each.process for each in processes[1:]),
        summary=f"{called(most.process)} waits {most.share:.0%} of the time {for_what}{at}"
        f"{', a commit in each round of a loop' if commits else ''}",
        evidence=(
            *spent,
            *(() if is_reported else (f"most often it waits for {what}",)),
            *(_lines(most.process) if not place else ()),
            *(_paging(index.history, most.process) if is_paging else ()),
            "without these waits the job would be at most "
            f"{times_faster(1 - 1 / faster.sure)} as fast",
        ),
        cause=(commits or _CAUSE_SYNC) if is_sync else _CAUSE_PAGES if is_paging else _CAUSE,
        advice=(_ADVICE_COMMITS if commits else _ADVICE_SYNC)
        if is_sync
        else _advice_of_pages(most.process)
        if is_paging
        else _ADVICE,
    )


def _evidence(index: Index, processes: Sequence[Process]) -> Iterator[str]:
    """What each process did with its time."""
    for each in processes[:SHOWN]:
        if (words := doing_words(index, each)) is not None:
            yield f"{called(each)}: {words}"
    if len(processes) > SHOWN:
        yield f"{all_called(processes[SHOWN:])}: each waits for a disk as well"


_COMMITS = re.compile(r"(?P<by>[\w.]*\.commit\(\))|[\w.]*\.execute\(")
"""In a statement that ends a transaction: execute() does where none was begun."""


def _of_commits(index: Index, loss: Loss) -> str:
    """Why a transaction is committed in each round of a loop; empty where that is not seen.

    The thread has to be at the statement now, in a loop of its function or of one that calls it.
    Where its syncs were too short for a stack, they have to be those of a database of SQLite, and
    the statement commit(): the rows of an open transaction are given to execute() without a sync.
    Under a condition it may be a commit for many rounds.
    """
    thread = next((e for e in loss.process.threads if e.tid == loss.thread.tid), None)
    frames = program_frames(thread.stack) if thread is not None else []
    place = frame_words(frames[0]) if frames else ""
    line = line_at(index, place) if place else None
    commits = _COMMITS.search(line.statement.text) if line is not None else None
    if commits is None:
        return ""
    is_of_database = bool(commits["by"]) and any(e.endswith(_JOURNALS) for e in loss.kinds)
    if not (loss.place == place if loss.place else is_of_database):
        return ""
    loop = loop_around(index, frames)
    if loop is None or _is_under_condition(index, frames, loop):
        return ""
    file, header = loop[0].file.rpartition("/")[2], loop[1]
    by_itself = "" if commits["by"] else f"{_BY_ITSELF} "
    return (
        f"{place} is reached in each round of `{header.text}` ({file}:{header.line} "
        f"{loop[0].function}), and each time a transaction is committed. {by_itself}A commit "
        "returns when its rows are on the disk: some milliseconds each time, however few rows it "
        "has, and longer while others use the disk."
    )


def _is_under_condition(
    index: Index, frames: Sequence[Frame], loop: tuple[Frame, Statement]
) -> bool:
    """Whether a condition in a loop decides which of its rounds come to the innermost frame."""
    for frame in frames:
        line = source_of(index, frame)
        for header in reversed(line.within if line is not None else ()):
            if frame is loop[0] and header == loop[1]:
                return False
            if header.text.startswith(("if ", "else of if ", "except", "case ")):
                return True
        if frame is loop[0]:
            break
    return False


_JOURNALS = ("-journal", "-wal")
"""How the names of the files end that SQLite syncs in a commit, beside the database itself."""
_BY_ITSELF = "execute() commits by itself where no transaction is open."
_ADVICE_COMMITS = (
    "Make one transaction of many rounds: begin it before the loop and commit after it, or once "
    "for some hundred rows or each second, and give many rows to one executemany(). With SQLite, "
    "PRAGMA journal_mode=WAL with synchronous=NORMAL leaves out the wait of each commit. What is "
    "not committed yet is lost if the process ends: nothing is wrong where each row has to be safe "
    "before the next."
)


def _lines(process: Process) -> tuple[str, ...]:
    lines = own_lines(process)
    return (f"{called(process)} was last seen at {lines}",) if lines else ()


def _paging(history: History, process: Process) -> Iterator[str]:
    """How many pages are read, and whether the process is swapped out."""
    per_s = slope(history.of(process.process, "major_faults"), window_s=20)
    if per_s:
        yield f"{called(process)} reads {per_s:.0f} pages in each second (major page faults)"
    swapped = process.sample.memory.swap_bytes if process.sample.memory is not None else None
    if swapped:
        yield f"{bytes_text(swapped)} of its memory is swapped out"


_CAUSE_SYNC = (
    "fsync and its like return when the disk has written the data: some milliseconds each time, "
    "however little it is, and longer while others use the disk."
)
_ADVICE_SYNC = (
    "Call it once for many records, for example every few seconds and at the end, or not at all: "
    "without it the kernel writes the data within half a minute, and only a crash of the machine "
    "loses what was written since. A thread of its own can do it beside the work."
)
_CAUSE_PAGES = (
    "The process uses memory whose content is on a disk: of a mapped file that the page cache does "
    "not hold, or swapped out. Each such page is read when it is first used."
)
_CAUSE = (
    "The process reads or writes files faster than their disk or file server answers; what the "
    "page cache holds takes no such wait."
)
_ADVICE = (
    "Read and write in larger pieces and in order, keep what is used again in memory or on a local "
    "disk, or let more workers wait at the same time. An open file with O_SYNC or O_DIRECT waits "
    "for the disk in each write."
)


def _advice_of_pages(process: Process) -> str:
    """What helps against reading pages: less memory in use, or reading in order."""
    if process.sample.memory is not None and process.sample.memory.swap_bytes:
        return (
            "Use less memory: fewer workers, smaller batches, or less prefetching; swapped memory "
            "is a thousand times slower."
        )
    return (
        "Read the mapped file in order and in large pieces, or load it into memory once where it "
        "fits; random access to a file on a disk reads a page each time."
    )
