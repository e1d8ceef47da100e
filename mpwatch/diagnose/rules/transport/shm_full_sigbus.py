"""SIGBUS ended a process: it used a mapped page for which no memory or file was available."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from signal import Signals
from typing import NamedTuple

from mpwatch.diagnose.analysis.exits.kinds import ended_python
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import at_line
from mpwatch.diagnose.analysis.process_queries import called, counted
from mpwatch.diagnose.analysis.resources import sparse_bytes
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import FileSystemSample
from mpwatch.model.snapshot import Process, Segment, Snapshot
from mpwatch.model.source_code import Mark
from mpwatch.model.units import bytes_text

RULE = "shm-full-sigbus"
FULL_SHARE = 0.01
"""Part of /dev/shm; with less than this free it counts as full."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each exit by SIGBUS, and one where shared memory is over-committed.

    torch allocates a segment's pages when it makes the segment since late 2025. Other users of
    /dev/shm only set the size, so the pages are allocated on first use, which may fail.
    """
    for process, ended in ended_python(index.snapshot):
        if ended.signal == Signals.SIGBUS:
            yield _exit(index, process)
    yield from _overcommitted(index.snapshot)


def _exit(index: Index, process: Process) -> Finding:
    """The finding for a process that SIGBUS ended."""
    snapshot = index.snapshot
    evidence = [f"{called(process)} ended by signal 7 (SIGBUS)"]
    shm = snapshot.host.shm
    if shm is not None:
        free, total = bytes_text(shm.free_bytes), bytes_text(shm.total_bytes)
        evidence.append(f"{shm.path} has {free} of {total} free")
    missing = sparse_bytes(_sparse(snapshot))
    if missing:
        evidence.append(f"{bytes_text(missing)} of segments are not yet allocated")
    is_short = shm is not None and (missing > shm.free_bytes or _is_full(shm))
    truncation = None if is_short else _truncation(index, process)
    if truncation is not None:
        return _truncated(process, truncation, evidence)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)} was ended by a bus error (SIGBUS)",
        evidence=tuple(evidence),
        cause=_CAUSE_FULL if is_short else _CAUSE_UNKNOWN,
        advice=_ADVICE_FULL if is_short else _ADVICE_UNKNOWN,
    )


class _Truncation(NamedTuple):
    """A statement that empties a file which a dead process had mapped, and others still map."""

    mark: Mark
    path: str
    others: tuple[Process, ...]
    is_seen: bool
    """Whether it was read that the dead one had it mapped: mappings are read now and then."""


def _truncation(index: Index, dead: Process) -> _Truncation | None:
    """The statement that has most likely truncated a mapped file; `None` where none is known.

    It is in a loop: a file that is made once is filled by storage, which may be full as well.
    """
    living = index.snapshot.living()
    beside = [each for each in living if each.parent == dead.parent and each.role == dead.role]
    own = _mapped(dead)
    for mark in marks(index, "truncates"):
        name, _, loop = mark.about.rsplit(", ", 2)
        for path in (*own, *(path for each in beside for path in _mapped(each))):
            others = tuple(each for each in living if path in _mapped(each))
            is_told = path in own or any(_is_in(each, mark) for each in others)
            if not name or loop == "0" or name not in path.rpartition("/")[2]:
                continue
            if others and is_told:
                return _Truncation(mark, path, others, path in own)
    return None


def _is_in(process: Process, mark: Mark) -> bool:
    """Whether the main thread of a process is in the function of a mark."""
    thread = main_thread(process)
    places = [(each.file, each.function) for each in thread.stack] if thread is not None else []
    return (mark.file, mark.function) in places


def _mapped(process: Process) -> tuple[str, ...]:
    maps = process.sample.maps
    return maps.files if maps is not None else ()


def _truncated(process: Process, found: _Truncation, evidence: Sequence[str]) -> Finding:
    """The finding for a process whose mapped file another one has made anew."""
    mark, path, others, is_seen = found
    name, line = mark.file.rpartition("/")[2], mark.statement.line
    _, under, loop = mark.about.rsplit(", ", 2)
    where = f" under the condition of line {under}" if under != "0" else ""
    had = "had" if is_seen else "most likely had"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=(
            f"{called(process)} was ended by a bus error (SIGBUS): likely {name}:{line} "
            f"{mark.function} has truncated {path}, which it {had} mapped"
        ),
        evidence=(
            *evidence,
            f"{called(process)} {had} {path} mapped",
            *(
                f"{called(each)} has it mapped, and is{at}"
                for each in others
                if (at := at_line(main_thread(each)))
            ),
            f"{name}:{line} is `{mark.statement.text}`",
        ),
        cause=(
            f"{mark_words(mark)},{where} in the loop of line {loop}, opens a file of that name "
            "anew in each round, which sets its size to 0 first. Pages of an older map that are "
            "beyond the new end are gone: a process that still uses that map, as a slower one "
            "does, is ended by its next access. No except clause can catch that, and it is no "
            "shortage of memory or of /dev/shm."
        ),
        advice=(
            "Give each round, or each process, a file of its own; or write the new file under "
            "another name and rename it, which leaves older maps as they are. Or let all processes "
            "wait for each other after the last use of the old map, before one of them makes the "
            "file anew. Check the exit codes of the children, so that one such end ends the job."
        ),
    )


def _is_full(shm: FileSystemSample) -> bool:
    """Whether the file system has too little space for one more tensor of any size."""
    return shm.free_bytes < FULL_SHARE * shm.total_bytes


def _overcommitted(snapshot: Snapshot) -> Iterator[Finding]:
    """A finding where the unallocated parts of the segments exceed the free space."""
    shm, sparse = snapshot.host.shm, _sparse(snapshot)
    missing = sparse_bytes(sparse)
    if shm is None or not snapshot.living() or missing <= shm.free_bytes or not missing:
        return
    largest = max(sparse, key=lambda s: (s.size_bytes or 0) - (s.allocated_bytes or 0))
    yield Finding(
        rule=RULE,
        severity=Severity.WARNING,
        subject="promise",
        summary=(
            f"{bytes_text(missing)} of shared memory are not yet allocated and only "
            f"{bytes_text(shm.free_bytes)} are free: using the rest ends in SIGBUS"
        ),
        evidence=(
            f"{counted(len(sparse), 'segment')} in {shm.path} only partly allocated",
            f"the largest: {largest.path}, {bytes_text(largest.allocated_bytes)} of "
            f"{bytes_text(largest.size_bytes)} allocated",
            f"{bytes_text(shm.free_bytes)} of {bytes_text(shm.total_bytes)} free",
        ),
        cause=_CAUSE_SPARSE,
        advice=_ADVICE_FULL,
    )


def _sparse(snapshot: Snapshot) -> list[Segment]:
    """Mapped segments with less memory than their size, by more than a page or two.

    Segments without a mapping do not count: torch leaves an empty file when a share fails.
    """
    return [
        segment
        for segment in snapshot.segments
        if segment.mappers and segment.kind != "semaphore" and sparse_bytes((segment,)) > 16_384
    ]


_CAUSE_SPARSE = (
    "Some programs (multiprocessing.shared_memory, NCCL, numpy memory maps, torch before late "
    "2025) set only the size of a file in /dev/shm; each page is allocated on first use. If there "
    "is no space then, the kernel sends SIGBUS."
)
_CAUSE_FULL = f"/dev/shm has no space for the segments mapped here. {_CAUSE_SPARSE}"
_CAUSE_UNKNOWN = (
    "The process used a mapped page that the kernel could not provide. The mapped file was "
    "truncated or replaced, its storage failed, or /dev/shm was full at that moment; /dev/shm "
    "is not known to be full now."
)
_ADVICE_FULL = (
    "Give /dev/shm more space (docker --shm-size, --ipc=host), or allocate the pages early: fill "
    "multiprocessing.shared_memory once after making it, or call posix_fallocate, so that it "
    "raises an exception instead; both take the memory at once."
)
_ADVICE_UNKNOWN = (
    "Find the file behind the address in a core dump or with faulthandler. Replace data files by "
    "writing a new one and renaming it, never in place while they are mapped. If the job fills "
    "/dev/shm at its peak, give it more space (docker --shm-size, --ipc=host)."
)
