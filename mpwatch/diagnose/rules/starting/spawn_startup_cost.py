"""New workers are started again and again by spawn or forkserver, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.idle_time import watched_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.newest import iterated_at, own_lines
from mpwatch.diagnose.analysis.process_queries import called, children_started_by, generations
from mpwatch.diagnose.analysis.shares import shares
from mpwatch.model.account import STARTING
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

RULE = "spawn-startup-cost"
STARTS = 3
RECENT_S = 300.0
SHORT_S = 30.0
"""Where sets live no longer than this on average, waits for batches are mostly waits for starts."""
MOST = 0.5
"""A process that waits for the starts of workers this part of the time does little else."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that recently started several sets of spawned workers."""
    watched = min(RECENT_S, watched_s(index))
    for process in index.snapshot.living():
        if process.role == "loader-worker":
            continue
        spawned = [
            child
            for child in children_started_by(index, process)
            if child.role == "loader-worker" and _is_costly(index.snapshot, child)
        ]
        sets = generations(spawned)
        # The first set has to be started; starting the others again is the waste.
        if len(sets) < STARTS or not any(child.is_gone for child in spawned):
            continue
        lives = [_lived_s(index.snapshot, group) for group in sets[:-1]]
        mean_s = sum(lives) / len(lives)
        starts, batches = _waits(index, process)
        is_most = mean_s <= SHORT_S and starts + batches >= MOST
        yield Finding(
            rule=RULE,
            severity=Severity.WARNING if is_most else Severity.INFO,
            process=process.process,
            summary=(
                f"{called(process)} started {len(spawned)} workers in {len(sets)} sets "
                f"within {seconds_text(watched)}, each by {spawned[0].sample.start_method}"
                f"{iterated_at(process)}"
            ),
            evidence=(
                f"{len(spawned)} workers started by {spawned[0].sample.start_method}",
                f"a set lived {seconds_text(mean_s)} on average",
                *(
                    (
                        f"{called(process)} waits {starts:.0%} of the time until a worker has "
                        f"started, and {batches:.0%} for batches",
                    )
                    if starts + batches
                    else ()
                ),
                *((f"{called(process)} is at {lines}",) if (lines := own_lines(process)) else ()),
            ),
            cause=(
                "Each worker started by spawn or forkserver imports torch and the program again: "
                "about 2 s and 150 MiB, instead of 0.1 s and 14 MiB with fork. Here new workers "
                "were started for each iteration over the loader."
            ),
            advice=(
                "Make each DataLoader once, before the loop over the epochs, with "
                "persistent_workers=True: that keeps the workers over epochs, and their memory "
                "with them; a new DataLoader starts new ones all the same. num_workers=0 is "
                "quicker for data whose pass takes less than such a start. With forkserver, "
                'set_forkserver_preload(["torch"]) makes starts nearly as quick as with fork.'
            ),
        )


def _waits(index: Index, process: Process) -> tuple[float, float]:
    """The shares of the time in which a process waits for starts of children, and for batches."""
    waits = [each for each in shares(index, process) if each.activity.kind == "waiting"]
    starts = sum(each.share for each in waits if each.activity.what == STARTING)
    return starts, sum(each.share for each in waits if each.activity.target == "batch")


def _is_costly(snapshot: Snapshot, child: Process) -> bool:
    """Whether a worker was recently started by spawn or forkserver."""
    if child.sample.start_method not in ("spawn", "forkserver"):
        return False
    started_s = child.sample.born_wall_s
    return started_s is not None and snapshot.wall_s - started_s <= RECENT_S


def _lived_s(snapshot: Snapshot, group: tuple[Process, ...]) -> float:
    """Seconds that the first worker of a set lived, until now if it still runs."""
    started_s, ended = group[0].sample.born_wall_s, group[0].ended
    at_s = snapshot.at_s if ended is None else ended.at_s
    end_wall_s = snapshot.wall_s - snapshot.at_s + at_s
    return 0.0 if started_s is None else max(0.0, end_wall_s - started_s)
