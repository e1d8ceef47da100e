"""A process comes near `vm.max_map_count`: every shared storage is a mapping of its own."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.forecast import Approach, approach
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.resources import (
    burden_words,
    creators_in_words,
    map_limit,
    maps_over_time,
    torch_maps,
)
from mpwatch.diagnose.known_errors import reported, tagged
from mpwatch.model.findings import Finding
from mpwatch.model.snapshot import Process
from mpwatch.model.units import count_text, rate_text

RULE = "max-map-count"
NEAR_LIMIT = 0.8
WORTH_FORECASTING = 0.15
"""A torch process begins with about a thousand mappings; below this share a rise is a start."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that has used up, or soon will, its mappings."""
    yield from reported(
        index.snapshot,
        RULE,
        summary="could not map a shared tensor: it has used up vm.max_map_count",
        cause=_CAUSE_TORCH,
        advice=_ADVICE,
    )
    failed = {entry.process for entry in tagged(index.snapshot, RULE)}
    for process in index.snapshot.living():
        if process.process in failed:
            continue
        counted, limit = maps_over_time(index, process), map_limit(index.snapshot, process)
        if counted is None or not limit:
            continue
        used, series = counted
        near = approach(used, limit, series, near=NEAR_LIMIT, worth_forecasting=WORTH_FORECASTING)
        if near is not None:
            yield _finding(index, process, near)


def _finding(index: Index, process: Process, near: Approach) -> Finding:
    used, limit, of_torch = int(near.used), int(near.limit), torch_maps(process) or 0
    evidence = [f"{used} of {limit} mappings in use, {of_torch} of torch segments"]
    makers = creators_in_words(index.snapshot, process) if of_torch else None
    if makers is not None:
        evidence.append(f"segments made: {makers}")
    evidence += near.trend_words("mappings")
    evidence += burden_words(index, process)
    summary = f"{called(process)} uses {count_text(used)} of {count_text(limit)} memory mappings"
    if near.ahead is not None:
        summary = (
            f"{called(process)} meets vm.max_map_count = {limit} in {near.eta_words}: "
            f"{rate_text(near.ahead.per_s)} mappings"
        )
    return Finding(
        rule=RULE,
        severity=near.severity,
        process=process.process,
        summary=summary,
        evidence=tuple(evidence),
        cause=_CAUSE_TORCH if of_torch >= 0.5 * used else _CAUSE_OTHER,
        advice=_ADVICE
        + (
            ""
            if process.hook.state == "ready"
            else " Attach the hook to see which attribute or line holds so many tensors."
        ),
        eta_s=near.eta_s,
    )


_CAUSE_TORCH = (
    "Every shared tensor storage is mapped by itself, whatever its size, and the kernel refuses "
    "past vm.max_map_count: 65,530 tensors of one page are 250 MB. The error is 'unable to mmap "
    "... Cannot allocate memory (12)' with memory still free."
)
_CAUSE_OTHER = (
    "The kernel refuses new mappings past vm.max_map_count. Most of these are not torch's shared "
    "tensors: memory-mapped files, threads' stacks or an allocator's arenas."
)
_ADVICE = (
    "Pack many small tensors into one (a tensor and offsets) or keep them as numpy arrays. "
    "Starting workers by fork avoids sharing the dataset at all, with fork's own risks for "
    "threads. Raising vm.max_map_count needs root, holds for the whole host and only "
    "postpones the error. Changing the sharing strategy does not help."
)
