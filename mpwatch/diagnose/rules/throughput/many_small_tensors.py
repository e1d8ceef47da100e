"""Many small tensors are sent one by one, each by a shared-memory file of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mpwatch.diagnose.analysis.growth.forecast import median
from mpwatch.diagnose.analysis.growth.newest import own_lines
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.throughput.shares import (
    LOSS_READINGS,
    LOSS_SHOWN_SHARE,
    Loss,
    Speedup,
    losses,
    speedup_without,
    times_faster,
)
from mpwatch.model.account import DESCRIPTORS, RECEIVING, SHARING, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.units import bytes_text

RULE = "many-small-tensors"
IS_OF_SHARES = True
LOST_SHARE = 0.3
"""Of the time of one thread."""
FASTER = 1.25
SMALL_BYTES = 64 << 10
"""To share and to receive a tensor takes some 0.1 ms, whatever its size; in that time 0.5 MB are
copied."""
MOST_S = 0.02
"""For one tensor: with more, it is no matter of how many there are. On a loaded machine it takes
some ms."""
SEGMENTS = 64
SHOWN = 3


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where a thread spends its time on opening or sharing small tensors."""
    found = [each for each in losses(index, _is_sharing) if not _waits_for_sender(index, each)]
    if not found or found[0].share < LOST_SHARE or found[0].readings < LOSS_READINGS:
        return
    sizes = tuple(_sizes(index))
    faster = speedup_without(index, _is_sharing)
    if sizes and faster.sure >= FASTER:
        yield _finding([each for each in found if each.share >= LOSS_SHOWN_SHARE], sizes, faster)


def _waits_for_sender(index: Index, loss: Loss) -> bool:
    """Whether so few tensors arrive that it is not their number which takes the time.

    A sender that computes under the GIL hands out a descriptor late, however few there are.
    """
    process = loss.process.process
    rates = [
        flow.tensors_per_s
        for flow in index.snapshot.flows
        if flow.tensors_per_s and process in (flow.sender, flow.receiver)
    ]
    return bool(rates) and loss.share / sum(rates) > MOST_S


def _is_sharing(activity: Activity) -> bool:
    return activity.what in (SHARING, RECEIVING, DESCRIPTORS)


def _sizes(index: Index) -> Iterator[str]:
    """How small the tensors are, in words; empty where that is unknown, or they are large."""
    for flow in index.snapshot.flows:
        if flow.tensors_per_s and flow.bytes_per_s is not None:
            mean = flow.bytes_per_s / flow.tensors_per_s
            if flow.tensors_per_s < 1 or mean > SMALL_BYTES:
                continue
            sender, receiver = map(index.snapshot.get, (flow.sender, flow.receiver))
            if sender is not None and receiver is not None:
                yield (
                    f"{called(sender)} sends {flow.tensors_per_s:.0f} tensors each second to "
                    f"{called(receiver)}, of {bytes_text(mean)} on average"
                )
    found = [
        each.size_bytes
        for each in index.snapshot.segments
        if each.kind == "torch" and each.size_bytes is not None
    ]
    if len(found) >= SEGMENTS and (middle := median(found)) <= SMALL_BYTES:
        yield (
            f"{len(found)} shared tensors exist at this moment, half of them of at most "
            f"{bytes_text(middle)}"
        )


def _finding(found: Sequence[Loss], sizes: Sequence[str], faster: Speedup) -> Finding:
    """Describe the thread that loses most, and the tensors."""
    most = found[0]
    line = most.place or own_lines(most.process)
    at = f" at {line}" if line else ""
    others = {each.process.process for each in found} - {most.process.process}
    work = SHARING if most.kinds.get(SHARING, 0.0) > most.share / 2 else RECEIVING
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=most.process.process,
        others=tuple(sorted(others)),
        summary=(
            f"{called(most.process)} spends {most.share:.0%} of the time on {work}{at}: they are "
            "many and small"
        ),
        evidence=(
            *(_words(each) for each in found[:SHOWN]),
            *sizes[:SHOWN],
            f"without it the job would be at most {times_faster(1 - 1 / faster.most)} as fast",
        ),
        cause=(
            "Each tensor that goes to another process gets a shared-memory file of its own"
            f"{_BY_STRATEGY.get(most.process.sharing_strategy, '')}. For a small tensor that takes "
            "far longer than to copy its data."
        ),
        advice=(
            "Send few large tensors: concatenate the small ones before they are sent (for a "
            "DataLoader in collate_fn), and send their lengths as one more tensor. Numbers and "
            "labels can be one tensor instead of a list of tensors of one element each."
        ),
    )


def _words(loss: Loss) -> str:
    """One thread: `main (12): 45% opening shared tensors at train.py:39 main`."""
    ranked = sorted(loss.kinds.items(), key=lambda item: -item[1])
    kinds = ", ".join(
        f"{share:.0%} {'waiting for ' if what == DESCRIPTORS else ''}{what}"
        for what, share in ranked
        if share >= 0.01
    )
    thread = "" if loss.thread.tid == loss.process.pid else f", thread {loss.thread.name}"
    return f"{called(loss.process)}{thread}: {kinds}{f' at {loss.place}' if loss.place else ''}"


_OF_DESCRIPTORS = ", and a connection to the sender that fetches its descriptor"
_BY_STRATEGY: Mapping[str | None, str] = {
    None: f"{_OF_DESCRIPTORS} (under the strategy file_descriptor, the usual one)",
    "file_descriptor": _OF_DESCRIPTORS,
}
"""What torch's sharing strategy adds; `None` where it is not known."""
