"""A process crashed in native code: segmentation fault, abort, illegal instruction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from signal import Signals

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import program_frames
from mpwatch.diagnose.analysis.distributed.rank_exits import aborted_in_collective
from mpwatch.diagnose.analysis.exits.kinds import (
    CRASH_SIGNALS,
    ended_python,
    last_seen,
    likely_task,
    parent_waiting,
    started_beside,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, family_head
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

RULE = "worker-segfault"
# SIGBUS comes from missing memory behind a mapping and has a rule of its own.
_SIGNALS = CRASH_SIGNALS - {Signals.SIGBUS}


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for Python processes that ended by a crash signal, one for those alike."""
    alike: defaultdict[tuple[ProcessId | None, str, str], list[tuple[Process, Ended]]]
    alike = defaultdict(list)
    for process, ended in ended_python(index.snapshot):
        # Gloo and NCCL abort a rank on purpose: `collective-mismatch` reports it.
        if ended.signal in _SIGNALS and not aborted_in_collective(index, process):
            head = family_head(index, process)
            parent = None if head is None else head.process
            alike[parent, process.role, ended.words].append((process, ended))
    for crashes in alike.values():
        crashes.sort(key=lambda crash: crash[1].at_s)
        found = _finding(index, *crashes[0], [called(process) for process, _ in crashes[1:]])
        waits = parent_waiting(index, crashes[0][0])
        yield replace(found, evidence=(*found.evidence, *waits))


def _finding(index: Index, process: Process, ended: Ended, others: Sequence[str]) -> Finding:
    """Describe the first crash of processes of the same parent and role."""
    evidence = [f"{called(process)} ended by {ended.words}"]
    if others:
        evidence.append(f"so did {len(others)} more: {', '.join(others[:4])}")
    more = f" and {len(others)} more" if others else ""
    libraries = process.sample.maps.libraries if process.sample.maps is not None else ()
    if libraries:
        evidence.append(f"native libraries it had loaded: {', '.join(libraries[:8])}")
    seen = last_seen(process)
    evidence += seen or likely_task(index, process)
    view = _unchecked_view(index, process) if ended.signal == Signals.SIGSEGV else None
    cause = _cause(process, ended, libraries)
    reaped = _status_taken(index)
    if view is not None:
        evidence.append(f"{mark_words(view.mark)} checks no bounds")
        cause = f"{_of_view(view, seen)} Otherwise: {cause}"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)}{more} crashed: {ended.words}",
        evidence=tuple(evidence),
        cause=f"{cause}{reaped}",
        advice=(_view_advice(view) if view is not None else "")
        + (_ADVICE_LOADER if process.role == "loader-worker" else _ADVICE)
        + (_ADVICE_ABORT if ended.signal == Signals.SIGABRT else _ADVICE_LOG),
    )


def _status_taken(index: Index) -> str:
    """That another part of the program may take the exit status of any child, as a sentence."""
    found = marks(index, "reap")
    if len(found) != 1:
        return ""
    return (
        f" {mark_words(found[0])} takes the exit status of any child that has ended. If it is "
        "first, is_alive(), exitcode and join() of multiprocessing do not learn that this process "
        "has ended, and what is to start it again does not: wait there for the pids of its own "
        "children only."
    )


class _View(Struct, frozen=True):
    """A statement that makes a view, or reads at an address, and checks nothing."""

    mark: Mark
    is_on_stack: bool
    """Whether the last stack of the process has a line of the same file."""


def _unchecked_view(index: Index, process: Process) -> _View | None:
    """What most likely made the memory that a process has read, where it is only one.

    In a file of its last stack, or, of a process that crashed before one was taken, of those that
    run the same. One elsewhere in the program is only possible.
    """
    found = marks(index, "unchecked-view")
    own = _own_files(process)
    files = own.union(*map(_own_files, started_beside(index, process)))
    near = [each for each in found if each.file in files]
    folders = {each.rpartition("/")[0] for each in files}
    beside = [each for each in found if each.file.rpartition("/")[0] in folders]
    if len(near) == 1:
        return _View(near[0], near[0].file in own)
    return _View(beside[0], False) if not near and len(beside) == 1 else None


def _own_files(process: Process) -> frozenset[str]:
    """The program's own files that the main thread of a process is in, or was in at its end."""
    thread = main_thread(process)
    frames = program_frames(thread.stack) if thread is not None else ()
    return frozenset(frame.file for frame in frames)


def _of_view(view: _View, seen: Sequence[str]) -> str:
    """The view as a cause."""
    mark = view.mark
    array, _, names = mark.about.partition("; ")
    sure = "Most likely it" if view.is_on_stack else "Possible: it"
    where = f" ({seen[0]})" if seen and view.is_on_stack else ""
    if not names:
        return (
            f"{sure} read at an address that is not its own: {mark_words(mark)} takes {array} as "
            "it is. What was there may be freed or unmapped by then, or the address is not one of "
            f"this process; the line that first reads it crashes{where}."
        )
    return (
        f"{sure} read beyond an array: {mark_words(mark)} makes a view whose shape is computed "
        f"from {names}, and nothing in {mark.function}() compares that with the length of {array}; "
        f"as_strided does not check it. Where {array} is shorter (a record that ends early, a "
        "header that does not fit its data), the view reaches into memory that is not there, and "
        f"the line that first reads it crashes{where}."
    )


def _view_advice(view: _View) -> str:
    return _ADVICE_VIEW if view.mark.about.partition("; ")[2] else _ADVICE_ADDRESS


_ADVICE_VIEW = (
    "Compute the shape from the array itself (len(x), x.shape), or use "
    "numpy.lib.stride_tricks.sliding_window_view(x, width)[::step], which checks its bounds; "
    "refuse input that is shorter than its header says. Let the parent look at the exitcode or the "
    "sentinel of its processes where it waits for them. More memory, fewer processes, another "
    "start method or a new start of the process do not help: it crashes at the same input. "
)
_ADVICE_ADDRESS = (
    "Keep what owns that memory alive and open for as long as the address is used, give each "
    "process an address of its own, and compare the length that is read with the length that is "
    "there. "
)


def _cause(process: Process, ended: Ended, libraries: tuple[str, ...]) -> str:
    """What such a signal means, and what a fork may have to do with it."""
    cause = _CAUSES.get(ended.signal or 0, _CRASHED)
    unsafe = [name for name in libraries if any(each in name for each in _FORK_UNSAFE)]
    if process.sample.start_method == "fork" and unsafe:
        cause += (
            f" The process was forked and uses {', '.join(unsafe[:4])}: open its "
            "files and handles in each process, because they cannot be used after a fork."
        )
    return cause


_FORK_UNSAFE = ("cv2", "lmdb", "hdf5", "decord", "cuda")
_CRASHED = (
    "Native code read or wrote memory that is not its own: a bug in an extension, a wrong address "
    "passed to ctypes, damaged input that native code does not check, or libraries of versions "
    "that do not fit together. Python code alone does so only where its stack overflows: deep "
    "recursion with a raised recursion limit, also in pickle, copy and repr of nested objects. "
    "Or another process sent the signal (kill -SEGV)."
)
_CAUSES: Mapping[int, str] = {
    Signals.SIGABRT: (
        "It called abort(): a failed check in native code, a C++ exception that nothing caught, an "
        "allocator that found its heap damaged, a fatal error of Python. Most of these print the "
        "reason on standard error first; abort() itself prints nothing. Or another process sent "
        "the signal, as systemd's watchdog does."
    ),
    Signals.SIGILL: (
        "Native code executed an illegal instruction: one that this CPU does not have, usually of "
        "a library that was built for another CPU; or one that a compiler or a failed check puts "
        "where code must not come (ud2, __builtin_trap)."
    ),
    Signals.SIGFPE: (
        "Native code divided an integer by zero, or the least integer by -1. Division of floating-"
        "point numbers raises this signal only where the program has asked for it (feenableexcept)."
    ),
}
_ADVICE = "Set PYTHONFAULTHANDLER=1 to get the Python line on standard error."
_ADVICE_LOG = " The kernel log (dmesg) names the library that crashed."
_ADVICE_ABORT = " A core dump (ulimit -c unlimited) has the native stack that called abort()."
_ADVICE_LOADER = (
    "To get the Python line, call faulthandler.enable() in worker_init_fn (torch's own handler "
    "replaces one installed earlier), or run once with num_workers=0, which is slow. The line in "
    "main's traceback is unrelated."
)
