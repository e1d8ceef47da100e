"""Metrics of a job on several machines: those of each node with a label `node`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.head.view import NodeView
from mpwatch.report.prometheus import Labels, Metric, metrics_of

SERIES_LIMIT = 20_000
"""Most series of one node that are served."""
_OF_HOST = ("mpwatch_shm_", "mpwatch_cgroup_", "mpwatch_host_")
"""Beginnings of the names of metrics of which the jobs of a node have the same."""
_LEAST = "mpwatch_finding_seconds_left"
_NAME = re.compile(r"mpwatch_[a-z_]{1,80}")
_LABEL = re.compile(r"[a-z_]{1,40}")


class _Sent(msgspec.Struct):
    """The answer of a node."""

    metrics: list[Metric]


def node_metrics(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """The metrics of all jobs of a node as a document; what has equal labels is one series."""
    merged: dict[str, tuple[Metric, dict[Labels, float | None]]] = {}
    for snapshot in snapshots:
        for metric in metrics_of(snapshot):
            series = merged.setdefault(metric.name, (metric, {}))[1]
            for labels, value in metric.samples:
                before = series.get(labels)
                series[labels] = value if before is None else _joined(metric.name, before, value)
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


def _joined(name: str, before: float, value: float | None) -> float:
    """One value of two jobs of a node."""
    if value is None or name.startswith(_OF_HOST):
        return before
    return min(before, value) if name == _LEAST else before + value


def job_metrics(views: Sequence[NodeView], documents: Mapping[str, dict[str, Any]]) -> list[Metric]:
    """The metrics of all nodes.

    Args:
        views: All nodes.
        documents: What each node has answered, by name; it is not trusted.
    """
    found = list(_own_metrics(views))
    merged: dict[str, Metric] = {}
    for name, document in documents.items():
        for metric in _received(document):
            samples = tuple(((("node", name), *labels), value) for labels, value in metric.samples)
            known = merged.get(metric.name, metric)
            before = known.samples if metric.name in merged else ()
            merged[metric.name] = Metric(metric.name, known.help, (*before, *samples), known.kind)
    return [*found, *merged.values()]


def _received(document: dict[str, Any]) -> Iterator[Metric]:
    """The metrics of a node; none if the answer is not understood."""
    try:
        metrics = msgspec.convert(document, _Sent).metrics
    except msgspec.ValidationError:
        return
    series = 0
    for metric in metrics:
        series += len(metric.samples)
        labels = {name for labels, _ in metric.samples for name, _ in labels}
        is_plain = _NAME.fullmatch(metric.name) and all(map(_LABEL.fullmatch, labels))
        if is_plain and "node" not in labels and series <= SERIES_LIMIT:
            yield metric


def _own_metrics(views: Sequence[NodeView]) -> Iterator[Metric]:
    """What only the head knows."""
    yield Metric(
        "mpwatch_node_up",
        "1 if the node answers, else 0.",
        tuple(((("node", view.name),), float(view.state == "live")) for view in views),
    )
    yield Metric(
        "mpwatch_node_last_seen_seconds",
        "Seconds since something was received from the node.",
        tuple(((("node", view.name),), view.last_seen_s) for view in views),
    )
    found = job_findings(views)
    yield Metric(
        "mpwatch_job_findings",
        "Findings about the job as a whole.",
        tuple(
            ((("severity", each.word),), float(sum(f.severity is each for f in found)))
            for each in Severity
        ),
    )
