"""So many CUDA tensors are in flight that each send waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.processes import is_on_gpu
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted
from mpwatch.diagnose.analysis.resources import cuda_lent, is_counter_file
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "cuda-ipc-counter-files-and-events"
EVENTS_LIMIT = 1000
"""Interprocess events, beyond which a send synchronises the stream (CudaIPCTypes.h, torch 2.13)."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each sender with several counter files or too many sends in flight."""
    for process in index.snapshot.living():
        lent = cuda_lent(process)
        if lent is not None and lent.synchronised and lent.unreleased >= EVENTS_LIMIT:
            yield _finding(
                process,
                f"{lent.synchronised:.0f} of {lent.sent:.0f} sends waited for the GPU",
                f"{lent.unreleased:.0f} tensors sent and not released",
            )
            continue
        if not is_on_gpu(process):
            continue
        files = [
            s
            for s in index.snapshot.segments
            if s.creator == process.process and is_counter_file(s)
        ]
        in_flight = sum(
            flow.in_flight or 0 for flow in index.snapshot.flows if flow.sender == process.process
        )
        if len(files) < 3 and not (files and in_flight >= EVENTS_LIMIT):
            continue
        yield _finding(
            process,
            f"{counted(len(files), 'file')} of 10,000 reference counters each",
            f"{in_flight} tensors sent and not received, by the hooks' count",
        )


def _finding(process: Process, *evidence: str) -> Finding:
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=process.process,
        summary=f"{called(process)} has sent very many CUDA tensors that are not released yet",
        evidence=evidence,
        cause=(
            "Each CUDA tensor sent uses a reference counter until its receiver deletes it, and a "
            "file of counters is freed only when all of them are free. Beyond 1000 unreleased "
            "tensors each further send waits for the GPU (it synchronises the stream)."
        ),
        advice=(
            "Send fewer and larger tensors, bound the queue (the producer then waits for its "
            "consumers), and delete received tensors early."
        ),
    )
