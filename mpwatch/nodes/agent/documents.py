"""The documents of a node: its jobs as JSON, put together from those of its job roots.

A dump and a diagnosis have the keys of those of one machine (`mpwatch.report.json`), but for
`root`, in place of which there is a list `roots`: a node may run several processes of the job that
have no common parent.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.agent.rights import stackless_words
from mpwatch.report.json import diagnose_json, snapshot_json
from mpwatch.report.prometheus import Labels, Metric, metrics_of

Document: TypeAlias = dict[str, Any]

_EMPTY: Document = {
    "roots": [],
    "host": None,
    "processes": [],
    "findings": [],
    "waits": {"chains": [], "edges": []},
    "problems": [],
    "unread": None,
}
EMPTY_DUMP: Document = {
    **_EMPTY,
    "segments": [],
    "gpus": [],
    "flows": [],
    "loaders": [],
    "mode": None,
}
"""The dump of a node of which nothing is known."""
EMPTY_DIAGNOSIS: Document = {
    **_EMPTY,
    "ended": [],
    "last_words": [],
    "together": [],
    "account": None,
    "progress": None,
}
"""The diagnosis of a node of which nothing is known."""

IDENTITIES: Mapping[str, str] = {"processes": "pid", "segments": "id", "gpus": "index"}
"""Lists of which two jobs of one node may have the same entry, with the key that identifies it."""
LISTS_INSIDE: Mapping[str, tuple[str, ...]] = {
    "waits": ("chains", "edges"),
    "account": ("processes",),
    "progress": ("totals", "sources"),
}
"""Objects of which the lists are joined."""
_OF_HOST = ("mpwatch_shm_", "mpwatch_cgroup_", "mpwatch_host_")
"""Beginnings of the names of metrics of which the jobs of a node have the same."""
_LEAST = "mpwatch_finding_seconds_left"


def node_dump(snapshots: Sequence[Snapshot], *, with_stacks: bool, unread: str = "") -> Document:
    """All jobs of a node; see `mpwatch.report.json.snapshot_json`.

    Args:
        snapshots: The newest snapshot of each job.
        with_stacks: Whether to include stacks.
        unread: Which processes could not be found, in one sentence.
    """
    documents = [snapshot_json(each, with_stacks=with_stacks) for each in snapshots]
    return {
        **EMPTY_DUMP,
        **_merged(documents),
        "unread": unread or stackless_words(snapshots) or None,
    }


def node_diagnosis(snapshots: Sequence[Snapshot], *, unread: str = "") -> Document:
    """The findings of a node; see `mpwatch.report.json.diagnose_json` and `node_dump`."""
    merged = _merged([diagnose_json(each) for each in snapshots])
    return {**EMPTY_DIAGNOSIS, **merged, "unread": unread or stackless_words(snapshots) or None}


def _merged(documents: Sequence[Document]) -> Document:
    """One document of several: lists joined, of other values the first."""
    merged: Document = {"roots": [each["root"] for each in documents]}
    for document in documents:
        for key, value in document.items():
            if key in ("schema", "at", "root"):
                continue
            merged[key] = _joined(key, merged[key], value) if key in merged else value
    return merged


def _joined(key: str, one: Any, other: Any) -> Any:
    if key in LISTS_INSIDE:
        return {**one, **{inner: [*one[inner], *other[inner]] for inner in LISTS_INSIDE[key]}}
    if not isinstance(one, list):
        return one
    identity = IDENTITIES.get(key)
    known: set[Hashable] = {each[identity] for each in one} if identity else set()
    return [*one, *(each for each in other if not identity or each[identity] not in known)]


def node_metrics(snapshots: Sequence[Snapshot]) -> Document:
    """The metrics of all jobs of a node as a document; what has equal labels is one series."""
    merged: dict[str, tuple[Metric, dict[Labels, float | None]]] = {}
    for snapshot in snapshots:
        for metric in metrics_of(snapshot):
            series = merged.setdefault(metric.name, (metric, {}))[1]
            for labels, value in metric.samples:
                before = series.get(labels)
                series[labels] = value if before is None else _sum(metric.name, before, value)
    metrics = [
        {
            "name": name,
            "help": metric.help,
            "kind": metric.kind,
            "samples": [[list(map(list, labels)), value] for labels, value in series.items()],
        }
        for name, (metric, series) in merged.items()
    ]
    return {"metrics": metrics}


def _sum(name: str, before: float, value: float | None) -> float:
    """One value of two jobs of a node."""
    if value is None or name.startswith(_OF_HOST):
        return before
    return min(before, value) if name == _LEAST else before + value
