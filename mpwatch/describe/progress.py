"""The progress of a job in words: how many a second, since when, and how many before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import Pace, ProgressKind, paces
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import DASH, count_text, seconds_text

KIND_NAMES: Mapping[ProgressKind, str] = {
    "batches": "batches",
    "collectives": "collectives",
    "puts": "queue puts",
    "gets": "queue gets",
    "tensors": "tensors received",
}
MENTIONED_S = 3.0
"""A shorter time without progress is not mentioned."""
UNKNOWN = "Progress is unknown without the hook."
NONE_YET = "The hook has seen no batch, collective, queue call or received tensor yet."
SENTENCE_KINDS = 2
"""Kinds of progress named in a sentence."""
_HOOKED = frozenset(("ready", "silent", "gone"))


def has_hook(snapshot: Snapshot) -> bool:
    """Whether the hook of a process counts progress, or has counted it."""
    return any(process.hook.state in _HOOKED for process in snapshot.processes)


def moment_of(snapshot: Snapshot) -> float:
    """The time up to which there can be progress: that of the last exit in a job that has ended."""
    exits = [process.ended.at_s for process in snapshot.processes if process.ended is not None]
    return snapshot.at_s if snapshot.living() or not exits else max(exits)


def progress_of(snapshot: Snapshot, process: ProcessId | None = None) -> list[Pace]:
    """The rates of the whole job, or of one process; nothing that was never seen to progress."""
    sources = snapshot.progress
    if process is not None:
        sources = tuple(source for source in sources if source.process == process)
    return paces(sources, moment_of(snapshot))


def rate_words(per_s: float | None) -> str:
    """A rate: `12/s`, `3.0/s`, `2.4/min`, `1.5/h`."""
    if per_s is None:
        return DASH
    value, unit = per_s, "s"
    for factor, longer in ((60, "min"), (3600, "h")):
        if 0 < value < 0.095:
            value, unit = per_s * factor, longer
    text = count_text(value) if value >= 9.95 or value == 0 else f"{value:.1f}"
    return f"{text}/{unit}"


def pace_words(pace: Pace) -> str:
    """The present rate, and that of the whole time: `12/s now, 11/s over 6 min`.

    Where it has changed, both rates: `3.0/s for 60 s, 12/s before that, 9.1/s over 5 min`; where it
    is zero, for how long: `0/s for 41 s, 12/s before that`.
    """
    if pace.now_per_s is None:
        return f"{count_text(pace.total)} so far"
    before = f", {rate_words(pace.before_per_s)} before that" if pace.before_per_s else ""
    if pace.now_per_s == 0:
        return f"0/s for {seconds_text(pace.idle_s)}{before}"
    whole = f", {rate_words(pace.whole_per_s)} over {seconds_text(pace.span_s)}"
    if pace.change is None:
        return f"{rate_words(pace.now_per_s)} now{whole}"
    change = pace.change
    return (
        f"{rate_words(change.since_per_s)} for {seconds_text(change.ago_s)},"
        f" {rate_words(change.before_per_s)} before that{whole}"
    )


def pace_name(pace: Pace, names: Mapping[ProcessId, str], root: ProcessId) -> str:
    """What is counted, and of which processes unless it is the root: `queue puts of 4 processes`.

    Args:
        pace: The rates.
        names: From `mpwatch.describe.processes.unique_names`.
        root: The root process of the job.
    """
    name = KIND_NAMES[pace.kind]
    if len(pace.processes) > 1:
        return f"{name} of {len(pace.processes)} processes"
    if not pace.processes or pace.processes[0] == root:
        return name
    return f"{name} of {names.get(pace.processes[0], str(pace.processes[0].pid))}"


def progress_sentence(snapshot: Snapshot, names: Mapping[ProcessId, str]) -> str:
    """The progress of the job in a sentence, or why there is none.

    Args:
        snapshot: The job.
        names: From `mpwatch.describe.processes.unique_names`.
    """
    found = progress_of(snapshot)
    if not found:
        return NONE_YET if has_hook(snapshot) else UNKNOWN
    words = [
        f"{pace_name(pace, names, snapshot.root)} {pace_words(pace)}"
        for pace in found[:SENTENCE_KINDS]
    ]
    return f"Progress: {'; '.join(words)}."


def resampled(values: Sequence[float], width: int) -> list[float]:
    """At most `width` means of successive values, the newest ones of equally many."""
    if width <= 0:
        return []
    size = max(1, -(-len(values) // width))
    ends = range(len(values), 0, -size)
    parts = [values[max(0, end - size) : end] for end in ends]
    return [sum(part) / len(part) for part in reversed(parts)]
