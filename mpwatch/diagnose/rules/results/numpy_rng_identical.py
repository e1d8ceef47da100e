"""Workers draw the same random numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, family_head
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process

RULE = "numpy-rng-identical"
IS_OF_RESULTS = True
KIND = "generators"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each generator that has the same state in several workers of a loader.

    The hook notes hashes of all generators when a worker's first batch begins, so equal states are
    copies of one state. One worker number may be seeded equally in two epochs on purpose.
    """
    same: defaultdict[tuple[ProcessId | None, str, str], dict[object, Process]]
    same = defaultdict(dict)
    for entry in index.entries(KIND):
        hashes = entry.details.get("hashes")
        worker = index.snapshot.get(entry.process)
        if worker is None or not isinstance(hashes, Mapping):
            continue
        head = family_head(index, worker)
        for path, state in hashes.items():
            workers = same[None if head is None else head.process, f"{path}", f"{state}"]
            workers.setdefault(entry.details.get("worker_id"), worker)
    for (head_id, path, state), by_number in same.items():
        if len(by_number) > 1:
            yield _finding(head_id, path, state, list(by_number.values()))


def _finding(head: ProcessId | None, path: str, state: str, workers: list[Process]) -> Finding:
    """Describe the equal generators."""
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=head,
        subject=path,
        summary=f"{len(workers)} workers draw the same random numbers from {path}",
        evidence=(
            f"{path} had the same state, hash {state}, in {all_called(workers)}",
            "at the beginning of the first batch of each",
        ),
        cause=(
            "Each worker gets a copy of the dataset with its generators. The DataLoader seeds "
            "random, torch and numpy's global generator in each worker, but not generator objects "
            "(numpy.random.default_rng(), random.Random, torch.Generator) kept by the dataset."
        ),
        advice=(
            "Create the generator in worker_init_fn, from torch.initial_seed() or the worker's id. "
            "Results stay reproducible, but differ from those of earlier runs."
        ),
    )
