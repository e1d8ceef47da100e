"""A forked child waits in a native library whose threads exist only in its parent."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.waits.threads import ForkedAlone, forked_alone
from mpwatch.model.findings import Finding, Severity

RULE = "fork-unsafe-library"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each forked child blocked in native code of such a library."""
    for stuck in forked_alone(index, "library"):
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=stuck.process.process,
            tid=stuck.thread.tid,
            summary=(
                f"{called(stuck.process)} has waited {stuck.lasted} in native code, "
                f"most likely of {stuck.library}, since it was forked"
            ),
            evidence=(*stuck.evidence, f"it uses the library {stuck.library}"),
            cause=(
                "The library runs threads of its own, and its locks cannot be used after a fork: "
                "the child has a copy of their state, but not the threads."
            ),
            advice=_advice(stuck),
        )


def _advice(stuck: ForkedAlone) -> str:
    """How to use this library after a fork."""
    is_loader = stuck.process.role == "loader-worker"
    place = " (in worker_init_fn, or at first use in the dataset)" if is_loader else ""
    use = f"Import and open what belongs to {stuck.library} only in the child{place}"
    if any(name in stuck.library for name in ("cv2", "opencv")):
        use = "Call cv2.setNumThreads(0) before the fork (OpenCV then uses one core)"
    return (
        f"{use}. Or start the processes by forkserver or spawn, which pickles their arguments and "
        "takes seconds each. This child can only be killed."
    )
