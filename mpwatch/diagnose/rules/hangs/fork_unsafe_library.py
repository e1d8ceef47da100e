"""A forked child waits in a native library whose threads exist only in the parent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.waits.deadlocks import forked_alone
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.units import seconds_text

RULE = "fork-unsafe-library"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each forked child blocked in such a library."""
    for stuck in forked_alone(index, "library"):
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=stuck.process.process,
            tid=stuck.thread.tid,
            summary=(
                f"{called(stuck.process)} has waited {seconds_text(stuck.quiet_s)} inside native "
                f"code that does not survive a fork ({stuck.library})"
            ),
            evidence=(*stuck.evidence, f"it has mapped {stuck.library}"),
            cause=(
                "OpenCV, gRPC, HDF5, BLAS and Java clients run threads and pools of their own. "
                "After a fork the child has a copy of their state but not their threads."
            ),
            advice=(
                "cv2.setNumThreads(0) before forking; make clients and open files inside the "
                "worker (worker_init_fn), import such libraries there; or start workers with "
                "forkserver, which pickles everything."
            ),
        )
