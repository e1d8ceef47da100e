"""Sent CUDA memory never comes back to its producer."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.forecast import Forecast, forecast
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
WORTH_TELLING = 100
OLD_S = 30.0
"""A receiver that is a little behind has let go of what was sent so long ago."""
_CAUSE = (
    "A block freed by the producer stays reserved until the consumer's counter is zero. Messages "
    "never unpickled, slow or crashed consumers and views that live on keep it."
)
_ADVICE = (
    "Delete received tensors at once, consume each message exactly once, and call "
    "torch.cuda.ipc_collect() now and then; it synchronises."
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each that said so, or gets back ever fewer of the tensors it sends."""
    heard = list(
        reported(
            index.snapshot,
            RULE,
            summary="holds more than 1000 freed CUDA blocks that consumers have not released",
            cause=_CAUSE,
            advice=_ADVICE,
            severity=Severity.WARNING,
        )
    )
    yield from heard
    for process in index.snapshot.living():
        if all(finding.process != process.process for finding in heard):
            yield from _growing(process, index.history)


def _growing(process: Process, history: History) -> Iterator[Finding]:
    """More and more of what one process sent is not released."""
    lent = cuda_lent(process)
    if lent is None or lent.unreleased < WORTH_TELLING or (lent.oldest_s or 0.0) < OLD_S:
        return
    # Beyond the limit the number still tells whether it goes on: what is shared once and for all,
    # as a model's parameters, is out as long as the job runs.
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
        evidence.append(f"the oldest has been out for {seconds_text(lent.oldest_s)}")
    evidence.append(f"{line.per_s:.2g} more a second over the last {seconds_text(line.span_s)}")
    return tuple(evidence)
