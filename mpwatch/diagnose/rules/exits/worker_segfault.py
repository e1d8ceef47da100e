"""A process crashed in native code: segmentation fault, abort, illegal instruction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from signal import Signals

from mpwatch.diagnose.analysis.distributed.rank_exits import aborted_in_collective
from mpwatch.diagnose.analysis.exits import (
    CRASH_SIGNALS,
    ended_python,
    last_seen,
    parent_waiting,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, family_head
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process

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
        found = _finding(*crashes[0], [called(process) for process, _ in crashes[1:]])
        waits = parent_waiting(index, crashes[0][0])
        yield replace(found, evidence=(*found.evidence, *waits))


def _finding(process: Process, ended: Ended, others: Sequence[str]) -> Finding:
    """Describe the first crash of processes of the same parent and role."""
    evidence = [f"{called(process)} ended by {ended.words}"]
    if others:
        evidence.append(f"so did {len(others)} more: {', '.join(others[:4])}")
    more = f" and {len(others)} more" if others else ""
    libraries = process.sample.maps.libraries if process.sample.maps is not None else ()
    if libraries:
        evidence.append(f"native libraries it had loaded: {', '.join(libraries[:8])}")
    evidence += last_seen(process)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)}{more} crashed: {ended.words}",
        evidence=tuple(evidence),
        cause=_cause(process, ended, libraries),
        advice=(_ADVICE_LOADER if process.role == "loader-worker" else _ADVICE)
        + (_ADVICE_ABORT if ended.signal == Signals.SIGABRT else _ADVICE_LOG),
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
