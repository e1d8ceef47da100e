"""Every worker delivers the whole iterable dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head
from mpwatch.diagnose.known_errors import reported
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import LogEntry, Process, Snapshot

RULE = "iterable-duplicates"
IS_OF_RESULTS = True
KIND = "first-samples"
ENOUGH = 8
"""So many values, all different, identify a sample; fewer may be equal by chance."""
MANY = 64


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each loader whose workers began equally, else for torch's own warning."""
    equal = list(_equal(index))
    yield from equal
    if not equal:
        yield from reported(
            index.snapshot,
            RULE,
            summary=(
                "delivers more samples than the length of its iterable dataset: most likely each "
                "worker iterates over all of it"
            ),
            cause=f"{_CAUSE} Otherwise __len__ of the dataset returns too small a number.",
            advice=_ADVICE,
            severity=Severity.WARNING,
        )


def _equal(index: Index) -> Iterator[Finding]:
    """Findings for loaders of which several workers delivered the same samples first."""
    loaders: defaultdict[tuple[ProcessId, object], dict[object, LogEntry]] = defaultdict(dict)
    for entry in index.entries(KIND):
        worker = index.snapshot.get(entry.process)
        head = None if worker is None else family_head(index, worker)
        loader = entry.details.get("loader")
        if head is not None and loader:
            loaders[head.process, loader][entry.details.get("worker_id")] = entry
    seen: set[ProcessId] = set()
    for (head_id, _), entries in loaders.items():
        groups: defaultdict[tuple[str, str], list[LogEntry]] = defaultdict(list)
        for entry in entries.values():
            for part in (*_identifying(entry), *_whole(entry)):
                groups[part].append(entry)
        (path, _), same = max(groups.items(), key=lambda item: len(item[1]), default=(("", ""), []))
        if len(same) > 1 and head_id not in seen:
            seen.add(head_id)
            yield _finding(index.snapshot, head_id, path, same)


def _identifying(entry: LogEntry) -> Iterator[tuple[str, str]]:
    """Path and hash of the parts of first batches that identify a sample.

    A class label soon repeats, and an image may begin with black. What differs in every sample (a
    name, a number, noise) is not equal in two workers by chance.
    """
    parts = entry.details.get("parts")
    for path, summary in parts.items() if isinstance(parts, Mapping) else ():
        if isinstance(summary, (list, tuple)) and len(summary) == 3:
            hashed, values, different = summary
            if isinstance(different, int) and values == different >= ENOUGH:
                yield f"{path}", f"{hashed}"


def _whole(entry: LogEntry) -> Iterator[tuple[str, str]]:
    """The first batches as a whole, where they vary enough to identify them.

    Tokens of a text repeat, and yet no two texts are equal in all of them.
    """
    parts = entry.details.get("parts")
    if not isinstance(parts, Mapping):
        return
    if any(_varies(summary) for summary in parts.values()):
        yield "", repr(sorted((f"{path}", repr(summary)) for path, summary in parts.items()))


def _varies(summary: object) -> bool:
    """Whether a part has many values and many different ones among them."""
    if not isinstance(summary, (list, tuple)) or len(summary) != 3:
        return False
    _, values, different = summary
    return (
        isinstance(values, int)
        and isinstance(different, int)
        and values >= MANY
        and different >= 2 * ENOUGH
    )


def _finding(snapshot: Snapshot, head_id: ProcessId, path: str, same: list[LogEntry]) -> Finding:
    """Describe the duplicates."""
    head = snapshot.get(head_id)
    workers = [w for w in (snapshot.get(entry.process) for entry in same) if w is not None]
    dataset = same[0].details.get("dataset")
    name = _name(head)
    where = f"in part {path}" if path else "as a whole"
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=head_id,
        summary=f"{len(same)} workers of {name} deliver the same samples of {dataset}",
        evidence=(
            f"the first two batches of {all_called(workers)} are the same {where}",
            "the hook compared the batches in the workers",
        ),
        cause=_CAUSE,
        advice=_ADVICE,
    )


def _name(head: Process | None) -> str:
    """The name of the loader's process."""
    return "main" if head is None else called(head)


_CAUSE = (
    "A DataLoader gives each worker a full copy of an IterableDataset. Unless __iter__ asks "
    "get_worker_info() and selects a part, every sample is delivered once per worker."
)
_ADVICE = (
    "In __iter__, select a part of the samples by torch.utils.data.get_worker_info() (and by rank, "
    "in distributed training). num_workers=1 also avoids duplicates, and loads with one process."
)
