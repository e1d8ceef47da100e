"""A process has used up `vm.max_map_count`, or soon will: each shared storage is one mapping."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from mpwatch.diagnose.analysis.growth.forecast import Approach, approach
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
FAR_BELOW = 0.5
"""Part of the limit; with fewer mappings than this another limit was reached."""
WORTH_FORECASTING = 0.15
"""A torch process begins with about a thousand mappings; below this share a rise is ordinary."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that has used up its mappings, or soon will."""
    yield from _refused(index)
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


def _refused(index: Index) -> Iterator[Finding]:
    """The finding for mappings that the kernel refused.

    The same error is reported where the limit of address space or of committed memory is reached:
    a count far below the limit says that it was one of those.
    """
    entry = next(tagged(index.snapshot, RULE), None)
    if entry is None:
        return
    process = index.snapshot.get(entry.process)
    counted = None if process is None else maps_over_time(index, process)
    limit = None if process is None else map_limit(index.snapshot, process)
    numbers: tuple[str, ...] = ()
    is_other_limit = False
    if counted is not None and limit:
        numbers = (f"{counted[0]} of {limit} mappings in use when last counted",)
        is_other_limit = counted[0] < FAR_BELOW * limit
    for finding in reported(
        index.snapshot,
        RULE,
        summary=(
            "could not map a shared tensor: the kernel refused the mapping"
            if is_other_limit
            else "could not map a shared tensor: it has used up vm.max_map_count"
        ),
        cause=_CAUSE_OTHER_LIMIT if is_other_limit else _CAUSE_TORCH,
        advice=_ADVICE_OTHER_LIMIT if is_other_limit else _ADVICE,
    ):
        yield replace(finding, evidence=(*finding.evidence, *numbers))


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
            f"{called(process)} reaches vm.max_map_count = {limit} in {near.eta_words}: "
            f"{rate_text(near.ahead.per_s)} mappings"
        )
    return Finding(
        rule=RULE,
        severity=near.severity,
        process=process.process,
        summary=summary,
        evidence=tuple(evidence),
        cause=_CAUSE_TORCH if of_torch >= 0.5 * used else _CAUSE_OTHER,
        advice=_advice(process) if of_torch >= 0.5 * used else _ADVICE_OTHER,
        eta_s=near.eta_s,
    )


def _advice(process: Process) -> str:
    is_ready = process.hook.state == "ready"
    return _ADVICE + ("" if is_ready else f" {_HOOK}")


_HOOK = "Attach the hook to see which attribute or line holds so many tensors."
_ADVICE_OTHER = (
    "See what is mapped (/proc/PID/maps), and map fewer files or start fewer threads. Raising "
    "vm.max_map_count needs root, holds for the whole host and only postpones the error."
)
_CAUSE_TORCH = (
    "Each shared tensor storage is one memory mapping, whatever its size, and the kernel refuses "
    "more than vm.max_map_count: 65,530 tensors of one page are only 250 MB. The error is 'unable "
    "to mmap ... Cannot allocate memory (12)' although memory is free."
)
_CAUSE_OTHER = (
    "The kernel refuses more mappings than vm.max_map_count. Most of these are not torch's shared "
    "tensors, but memory-mapped files, threads' stacks or an allocator's arenas."
)
_CAUSE_OTHER_LIMIT = (
    "The kernel refuses a mapping where a process reaches vm.max_map_count, its limit of address "
    "space (RLIMIT_AS), or the host's limit of committed memory. When its mappings were last "
    "counted, this process had far fewer than vm.max_map_count."
)
_ADVICE_OTHER_LIMIT = (
    "Check ulimit -v in the job, and CommitLimit and Committed_AS in /proc/meminfo where "
    "vm.overcommit_memory is 2. If the count of mappings rises quickly, pack many small tensors "
    "into one."
)
_ADVICE = (
    "Pack many small tensors into one (a tensor and offsets), or keep them as numpy arrays. "
    "Raising vm.max_map_count needs root, holds for the whole host and only postpones the error. "
    "Changing the sharing strategy does not help."
)
