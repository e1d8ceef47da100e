"""New processes are started again and again by spawn or forkserver, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.describe.frames import is_library, own_frames
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.growth.newest import iterated_at, own_lines
from mpwatch.diagnose.analysis.idle_time import watched_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    called,
    children_started_by,
    counted,
    generations,
    started_workers,
)
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.diagnose.analysis.throughput.shares import doing_words, shares, starting_part
from mpwatch.model.account import STARTING, Target
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import Mark, Statement
from mpwatch.model.units import seconds_text

RULE = "spawn-startup-cost"
STARTS = 3
SHOWN_STARTS = 2
"""Sets, where the source shows that a loop starts them."""
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
        yield from _of_rounds(index, process)
    for process, workers in started_workers(index):
        spawned = [child for child in workers if _is_costly(index.snapshot, child)]
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


def _of_rounds(index: Index, process: Process) -> Iterator[Finding]:
    """A process that starts a set of processes or a Pool for each round, and waits for them.

    Most of what is known of the time of those that have ended has to be imports.
    """
    spawned = [
        child
        for child in children_started_by(index, process)
        if child.role in ("spawned", "pool-worker") and _is_costly(index.snapshot, child)
    ]
    ended = [child for child in spawned if child.is_gone]
    if not ended:
        return
    sets = generations(spawned)
    waits = _waits_for_children(index, process)
    shown = _started_in_rounds(index, process)
    if len(sets) < (STARTS if shown is None else SHOWN_STARTS) or waits < MOST:
        return
    if any(child.ended is not None and death_of(child.ended) == "failed" for child in ended):
        return  # another rule tells why they fail: their start is not what takes the time
    lives = [_lived_s(index.snapshot, group) for group in sets[:-1]]
    mean_s = sum(lives) / len(lives)
    part = starting_part(index, ended)
    if part is None or part < MOST:
        return
    at = f": {mark_words(shown.starts)}" if shown is not None else ""
    rounds = f"`{shown.loop.text}` of line {shown.loop.line}" if shown is not None else "its work"
    name, method = called(process), spawned[0].sample.start_method
    born = [s for child in spawned if (s := child.sample.born_wall_s) is not None]
    since_s = index.snapshot.wall_s - min(born)
    yield Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=process.process,
        subject="rounds",
        summary=(
            f"{name} starts new processes by {method} for each round and waits for them "
            f"{waits:.0%} of the time; {part:.0%} of their time is their start{at}"
        ),
        evidence=(
            f"{counted(len(spawned), 'process', 'processes')} in {len(sets)} sets within "
            f"{seconds_text(since_s)}; a set lived {seconds_text(mean_s)} on average",
            f"{part:.0%} of what stacks of the {len(ended)} ended ones show is imports",
            *((f"{name}: {words}",) if (words := doing_words(index, process)) else ()),
            *((f"{name} is at {lines}",) if (lines := own_lines(process)) else ()),
        ),
        cause=(
            f"A process started by {method} begins with a new interpreter and imports torch and "
            f"the program again, which takes seconds of cpu time. {name} starts them anew in each "
            f"round of {rounds}, and they end after it: the job mostly imports."
        ),
        advice=(
            "Start the processes once, before that loop, and keep them: a Pool or "
            "ProcessPoolExecutor for the whole run, or workers that take the input of each round "
            "(state, seeds) from a queue. More processes would import as well, and less work for "
            'each round does not help. With forkserver, set_forkserver_preload(["torch"]) makes '
            "starts nearly as quick as with fork."
        ),
    )


class _Rounds(Struct, frozen=True):
    """What a source file shows of starts in rounds."""

    starts: Mark
    loop: Statement
    """The header of the loop around both that statement and the line at which main is later."""


def _started_in_rounds(index: Index, process: Process) -> _Rounds | None:
    """The statement that starts processes in a loop that the main thread has not left since."""
    thread = main_thread(process)
    for frame in own_frames(thread.stack) if thread is not None else ():
        line = source_of(index, frame) if not is_library(frame) else None
        for starts in marks(index, "starts") if line is not None else ():
            if line is None or (frame.file, frame.function) != (starts.file, starts.function):
                continue
            around = [
                each
                for each in line.within
                if each.text.startswith(("for ", "while ")) and each.line < starts.statement.line
            ]
            if around and frame.line > starts.statement.line:
                return _Rounds(starts, around[-1])
    return None


def _waits_for_children(index: Index, process: Process) -> float:
    """The share of the time in which a process waits for what children send, or for their exit."""
    return sum(
        each.share
        for each in shares(index, process)
        if each.activity.kind == "waiting"
        and (each.activity.target in _OF_CHILDREN or each.activity.what == STARTING)
    )


_OF_CHILDREN: frozenset[Target] = frozenset(("child", "event", "pipe", "queue", "socket"))


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
