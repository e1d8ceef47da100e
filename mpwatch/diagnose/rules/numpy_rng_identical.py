"""Workers draw the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import said, told
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

RULE = "numpy-rng-identical"
_SAID = (said(kind="identical-generators"),)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process whose hook heard it."""
    del history
    yield from told(
        snapshot,
        RULE,
        _SAID,
        summary=("gave every worker a copy of one random generator: they draw the same numbers"),
        cause=(
            "A fork copies generators. The DataLoader seeds random, torch and numpy's "
            "global generator in each worker, but it cannot know "
            "numpy.random.default_rng(), random.Random or torch.Generator objects kept "
            "by the dataset: they are the same in all workers, and again in every "
            "epoch."
        ),
        advice=(
            "Make generators in worker_init_fn from torch.initial_seed() or the "
            "worker's id. Results stay reproducible and differ from those of earlier "
            "runs."
        ),
        severity=Severity.WARNING,
    )
