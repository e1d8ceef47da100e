"""A process crashed in native code: segmentation fault, abort, illegal instruction."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from mpwatch.diagnose.analysis.exits import CRASH_SIGNALS, ended_python, last_seen
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.rank_exits import aborted_in_collective
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
        cause=(
            "Native code crashed: a library used across a fork (LMDB, HDF5, OpenCV, gRPC), mixed "
            "library versions, or a bug in an extension. Python code alone does not crash this "
            "way, and the line in main's traceback is unrelated."
        ),
        advice=(
            "To get the Python line, call faulthandler.enable() in worker_init_fn (torch's own "
            "handler replaces one installed earlier), or run once with num_workers=0, which is "
            "slow. The kernel log (dmesg) names the faulting library. Open files and databases in "
            "each worker, not before the fork."
        ),
    )
