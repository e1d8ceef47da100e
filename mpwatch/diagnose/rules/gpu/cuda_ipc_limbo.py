"""CUDA memory that a process sent is not released by its receivers."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.growth.forecast import Forecast, forecast
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.resources import CudaLent, cuda_lent
from mpwatch.diagnose.known_errors import reported
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process
from mpwatch.model.units import bytes_text, seconds_text

RULE = "cuda-ipc-limbo"
BLOCKS_LIMIT = 1000
"""Freed blocks still held by receivers, beyond which freeing slows down (CudaIPCTypes.h)."""
REPORTED_FROM = 100
OLD_S = 30.0
"""A receiver that is only a little behind has released what was sent this long ago."""
_CAUSE = (
    "A block that the producer has freed stays reserved until its receiver releases it. It is not "
    "released while the message has not been unpickled, while the tensor or a view of it is "
    "referenced, or if the receiver crashed."
)
_ADVICE = (
    "Delete received tensors as soon as possible, unpickle each message exactly once, and call "
    "torch.cuda.ipc_collect() in the producer now and then (it waits for the GPU)."
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that torch warned, or whose unreleased tensors increase."""
    reports = list(
        reported(
            index.snapshot,
            RULE,
            summary="holds more than 1000 freed CUDA blocks that consumers have not released",
            cause=_CAUSE,
            advice=_ADVICE,
            severity=Severity.WARNING,
        )
    )
    yield from reports
    for process in index.snapshot.living():
        if all(finding.process != process.process for finding in reports):
            yield from _growing(process, index.history)


def _growing(process: Process, history: History) -> Iterator[Finding]:
    """The finding for a process whose sent and unreleased tensors increase."""
    lent = cuda_lent(process)
    if lent is None or lent.unreleased < REPORTED_FROM or (lent.oldest_s or 0.0) < OLD_S:
        return
    # Beyond the limit a rising number still shows that it continues. Tensors shared once and for
    # all, such as a model's parameters, stay unreleased as long as the job runs.
    limit = max(BLOCKS_LIMIT, 2 * lent.unreleased)
    line = forecast(history.of(process.process, "cuda_unreleased"), limit)
    if line is None:
        return
    eta_s = line.eta_s if lent.unreleased < BLOCKS_LIMIT else None
    yield Finding(
        rule=RULE,
        severity=(line.severity or Severity.INFO) if eta_s is not None else Severity.WARNING,
        process=process.process,
        summary=f"{called(process)} sends CUDA tensors that are not released",
        evidence=_evidence(lent, line),
        cause=_CAUSE,
        advice=_ADVICE,
        eta_s=eta_s,
    )


def _evidence(lent: CudaLent, line: Forecast) -> tuple[str, ...]:
    held = f"{lent.unreleased:.0f} of {lent.sent:.0f} tensors sent are held or were not received"
    if lent.bytes_held is not None:
        held += f", {bytes_text(int(lent.bytes_held))}"
    evidence = [held]
    if lent.oldest_s is not None:
        evidence.append(f"the oldest was sent {seconds_text(lent.oldest_s)} ago")
    evidence.append(f"{line.per_s:.2g} more a second over the last {seconds_text(line.span_s)}")
    return tuple(evidence)
