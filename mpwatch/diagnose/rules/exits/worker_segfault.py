"""A process crashed in native code: segmentation fault, abort, illegal instruction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from signal import Signals

from mpwatch.diagnose.analysis.distributed.rank_exits import aborted_in_collective
from mpwatch.diagnose.analysis.exits import CRASH_SIGNALS, ended_python, last_seen
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process

RULE = "worker-segfault"
# SIGBUS comes from missing memory behind a mapping and has a rule of its own.
_SIGNALS = CRASH_SIGNALS - {Signals.SIGBUS}


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each Python process that ended by a crash signal."""
    for process, ended in ended_python(index.snapshot):
        # Gloo and NCCL abort a rank on purpose: that is told of the collective.
        if ended.signal in _SIGNALS and not aborted_in_collective(index, process):
            yield _finding(process, ended)


def _finding(process: Process, ended: Ended) -> Finding:
    """Describe the crash."""
    evidence = [f"{called(process)} ended by {ended.words}"]
    libraries = process.sample.maps.libraries if process.sample.maps is not None else ()
    if libraries:
        evidence.append(f"native libraries it had loaded: {', '.join(libraries[:8])}")
    evidence += last_seen(process)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process,
        summary=f"{called(process)} crashed: {ended.words}",
        evidence=tuple(evidence),
        cause=_cause(process, ended, libraries),
        advice=_ADVICE_LOADER if process.role == "loader-worker" else _ADVICE,
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
    "Native code crashed: a bug in an extension, or libraries of versions that do not fit "
    "together. Python code alone does not crash this way."
)
_CAUSES: Mapping[int, str] = {
    Signals.SIGABRT: (
        "Native code called abort(): a failed check, a C++ exception that nothing caught, or an "
        "allocator that found its heap damaged. It prints the reason on standard error first."
    ),
    Signals.SIGILL: (
        "Native code executed an instruction that this CPU does not have: usually a library that "
        "was built for another CPU."
    ),
}
_ADVICE = (
    "Set PYTHONFAULTHANDLER=1 to get the Python line on standard error. The kernel log (dmesg) "
    "names the library that crashed."
)
_ADVICE_LOADER = (
    "To get the Python line, call faulthandler.enable() in worker_init_fn (torch's own handler "
    "replaces one installed earlier), or run once with num_workers=0, which is slow. The kernel "
    "log (dmesg) names the library that crashed; the line in main's traceback is unrelated."
)
