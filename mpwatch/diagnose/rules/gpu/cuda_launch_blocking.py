"""CUDA kernels are launched one after the other, because of a debugging setting."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, counted
from mpwatch.model.findings import Finding, Severity

RULE = "cuda-launch-blocking"
VARIABLE = "CUDA_LAUNCH_BLOCKING"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding if processes on a GPU were started with the setting."""
    blocking = [
        process
        for process in index.snapshot.living()
        if process.gpus and process.sample.environment.get(VARIABLE, "0") not in ("", "0")
    ]
    if not blocking:
        return
    value = blocking[0].sample.environment[VARIABLE]
    yield Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=blocking[0].process,
        summary=(
            f"{VARIABLE}={value} makes every CUDA call of "
            f"{counted(len(blocking), 'process', 'processes')} wait"
        ),
        evidence=(
            f"{VARIABLE}={value} in the environment of {all_called(blocking)}",
            "on "
            + ", ".join(sorted({f"gpu{use.index}" for each in blocking for use in each.gpus})),
        ),
        cause=(
            "With this setting the CPU waits for the end of each kernel before it launches the "
            "next one, so that errors are raised at the call that caused them. CPU and GPU no "
            "longer work at the same time. It often remains set after a debugging session."
        ),
        advice=(
            f"Unset {VARIABLE} and start the job again. CUDA errors are then reported at a later "
            "call than the one that caused them."
        ),
    )
