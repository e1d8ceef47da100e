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
KIND = "first-samples"
ENOUGH = 8
"""So many values, all different, tell samples apart; fewer may be alike by chance."""
MANY = 64


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each loader whose workers began alike, else for torch's own warning."""
    alike = list(_alike(index))
    yield from alike
    if not alike:
        yield from reported(
            index.snapshot,
            RULE,
            summary=(
                "delivers more samples than its iterable dataset has: each worker iterates "
                "over all of it"
            ),
            cause=_CAUSE,
            advice=_ADVICE,
            severity=Severity.WARNING,
        )


def _alike(index: Index) -> Iterator[Finding]:
    """Loaders of which several workers delivered the same samples first."""
    loaders: defaultdict[tuple[ProcessId, object], dict[object, LogEntry]] = defaultdict(dict)
    for entry in index.entries(KIND):
        worker = index.snapshot.get(entry.process)
        head = None if worker is None else family_head(index, worker)
        loader = entry.details.get("loader")
        if head is not None and loader:
            loaders[head.process, loader][entry.details.get("worker_id")] = entry
    told_of: set[ProcessId] = set()
    for (head_id, _), entries in loaders.items():
        groups: defaultdict[tuple[str, str], list[LogEntry]] = defaultdict(list)
        for entry in entries.values():
            for part in (*_identifying(entry), *_whole(entry)):
                groups[part].append(entry)
        (path, _), same = max(groups.items(), key=lambda item: len(item[1]), default=(("", ""), []))
        if len(same) > 1 and head_id not in told_of:
            told_of.add(head_id)
            yield _finding(index.snapshot, head_id, path, same)


def _identifying(entry: LogEntry) -> Iterator[tuple[str, str]]:
    """The parts of first batches that tell samples apart: path and hash of each.

    A class label soon comes again, and an image may begin with black: what is different in every
    sample is a name, a number, or noise, and no two workers come to the same by chance.
    """
    parts = entry.details.get("parts")
    for path, summary in parts.items() if isinstance(parts, Mapping) else ():
        if isinstance(summary, (list, tuple)) and len(summary) == 3:
            hashed, values, different = summary
            if isinstance(different, int) and values == different >= ENOUGH:
                yield f"{path}", f"{hashed}"


def _whole(entry: LogEntry) -> Iterator[tuple[str, str]]:
    """All of the first batches as one, where they vary enough to tell it from another.

    Tokens of a text repeat, and yet no two texts are the same in every one of them.
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
    """Put it into words."""
    head = snapshot.get(head_id)
    workers = [w for w in (snapshot.get(entry.process) for entry in same) if w is not None]
    dataset = same[0].details.get("dataset")
    who = _who(head)
    where = f"part {path} of the batch" if path else "the batch"
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=head_id,
        summary=f"{len(same)} workers of {who} deliver the same samples of {dataset}",
        evidence=(
            f"the first two batches of {all_called(workers)} are the same, by {where}",
            "the hook saw them in the workers themselves",
        ),
        cause=_CAUSE,
        advice=_ADVICE,
    )


def _who(head: Process | None) -> str:
    """How the loader's process is called."""
    return "main" if head is None else called(head)


_CAUSE = (
    "A DataLoader gives each worker a full copy of an IterableDataset. Unless __iter__ asks "
    "get_worker_info() and selects a part, every sample is delivered once per worker."
)
_ADVICE = (
    "Shard by get_worker_info() in __iter__ (and by rank in distributed training), or use "
    "num_workers=1."
)
