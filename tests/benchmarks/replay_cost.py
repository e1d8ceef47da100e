"""How long a recording takes to read, per thousand events: linear means the same in every row.

    python -m tests.benchmarks.replay_cost [RECORDING] [--hours 1.0] [--profile]

Records a DataLoader job with the hook for ten seconds, or takes the recording given, and writes
longer ones from it through the recording writer: its inputs again and again, moved in time and
numbered on. Of one with ten thousand events (records and notes of hooks), of two and four times as
many, and of one that lasts an hour, at a quarter, half and the whole of it, it prints the cpu time
of what `diagnose FILE`, `report FILE` and `trace FILE` do. An hour has one reading
and fewer events a second: the ten seconds are stretched, and of each slice few records are kept.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

from mpwatch.model.events import HookHello, HookNote, HookSlice, HookStatus, Input
from mpwatch.model.samples import Ended, TreeSample
from mpwatch.observe.recording.codec import moment_of
from mpwatch.observe.recording.file import Recording, RecordingWriter
from mpwatch.observe.sources.replay import replay_course
from mpwatch.report.html import report_html
from mpwatch.report.trace import write_trace

PROGRAM = Path(__file__).parents[1] / "programs" / "loader.py"
SECONDS = 10.0
EVENTS = 10_000
RECORDS_KEPT = 2
"""Records kept of each slice in the recording of an hour."""
PROCESSES_MISSING = 0.5
"""Readings with a smaller share of the processes belong to the start or the end."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recording", nargs="?")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--profile", action="store_true", help="what the time is spent on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = settled(list(inputs_of(arguments.recording or recorded(f"{folder}/real.mpw"))))
        per_round = sum(map(events_of, base))
        rounds = max(1, -(-EVENTS // per_round))
        print(f"one round: {len(base)} inputs, {per_round} events, {span_s(base):.1f} s")
        print(f"{'':<26}{'inputs':>9}{'events':>9}  diagnose    report     trace  ms / 1000 events")
        for times in (1, 2, 4):
            path = written(f"{folder}/{times}.mpw", base, rounds * times, stretch=1.0)
            row(f"{times} x {rounds * per_round} events", path, arguments.profile and times == 4)
        readings = sum(isinstance(each, TreeSample) for each in base)
        stretch = readings / span_s(base)
        base = [thinned(each) for each in base]
        for part in (0.25, 0.5, 1.0):
            seconds = 3600 * arguments.hours * part
            rounds = max(1, round(seconds / readings))
            path = written(f"{folder}/{part}h.mpw", base, rounds, stretch=stretch)
            row(f"{seconds / 60:.0f} minutes", path, arguments.profile and part == 1.0)


def recorded(path: str) -> str:
    """A real recording of a DataLoader job with the hook."""
    command = [sys.executable, "-m", "mpwatch", "run", "--headless", "--record", path]
    with subprocess.Popen(
        [*command, str(PROGRAM), "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        time.sleep(SECONDS + 6.0)  # torch takes some seconds to be imported
        job.terminate()
    return path


def inputs_of(path: str) -> Iterator[Input]:
    with Recording(path) as recording:
        yield from recording.inputs()


def settled(inputs: Sequence[Input]) -> list[Input]:
    """Inputs that were recorded while all processes ran, without their start and end."""
    counts = [len(each.processes) if isinstance(each, TreeSample) else 0 for each in inputs]
    whole = [place for place, count in enumerate(counts) if count > PROCESSES_MISSING * max(counts)]
    middle = inputs[whole[0] : whole[-1]]
    once = [e for e in inputs[: whole[0]] if isinstance(e, HookHello | HookStatus)]
    return [*middle[:1], *once, *(e for e in middle[1:] if not isinstance(e, Ended))]


def thinned(each: Input) -> Input:
    return replace(each, events=each.events[:RECORDS_KEPT]) if isinstance(each, HookSlice) else each


def span_s(inputs: Sequence[Input]) -> float:
    return moment_of(inputs[-1]) - moment_of(inputs[0]) + 0.1


def events_of(each: Input) -> int:
    return len(each.events) if isinstance(each, HookSlice) else isinstance(each, HookNote)


def written(path: str, base: Sequence[Input], rounds: int, *, stretch: float) -> str:
    """A recording of so many rounds of the same inputs, each later than the one before."""
    began_s = now_s = moment_of(base[0])
    lasts_s = span_s(base)
    writer = RecordingWriter(path, None, clock=lambda: now_s, wall_clock=lambda: 1.8e9)
    for number in range(rounds):
        by_s = number * lasts_s
        for each in base:
            moved = numbered_on(moved_by(each, by_s, began_s, stretch), number)
            now_s = max(now_s, moment_of(moved))
            writer.write(moved)
    writer.close()
    assert writer.problem is None, writer.problem
    return path


def moved_by(value: Any, by_s: float, began_s: float, stretch: float) -> Any:
    """A value with every time in it later, and the time since the beginning stretched."""

    def at(moment_s: float) -> float:
        return began_s + (moment_s + by_s - began_s) * stretch

    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(moved_by(one, by_s, began_s, stretch) for one in value)
    if hasattr(value, "_replace"):
        if not hasattr(value, "at_ns"):
            return value
        return value._replace(at_ns=int(at(value.at_ns / 1e9) * 1e9))
    if not isinstance(value, Struct):
        return value
    changes: dict[str, Any] = {}
    for field in fields(value):
        inner = getattr(value, field.name)
        if field.name.endswith("at_s") and isinstance(inner, float):
            changes[field.name] = at(inner)
        elif field.name == "at_ns":
            changes[field.name] = int(at(inner / 1e9) * 1e9)
        elif isinstance(inner, Struct) or (isinstance(inner, tuple) and inner):
            changes[field.name] = moved_by(inner, by_s, began_s, stretch)
    return replace(value, **changes)


def numbered_on(each: Input, number: int) -> Input:
    """Notes and records of a later round have later numbers, as a hook would give them."""
    if isinstance(each, HookSlice):
        events = tuple(e._replace(sequence=e.sequence + number * 1_000_000) for e in each.events)
        return replace(each, events=events)
    if isinstance(each, HookNote) and each.number is not None:
        return replace(each, number=each.number + number * 1000)
    return each


def row(name: str, path: str, is_profiled: bool) -> None:
    inputs, events = 0, 0
    with Recording(path) as recording:
        for each in recording.inputs():
            inputs += 1
            events += events_of(each)

    def trace() -> None:
        with Recording(path) as recording:
            write_trace(recording.inputs(), recording.header.at_s, io.StringIO())

    takes: Iterable[Callable[[], object]] = (
        lambda: replay_course(path),
        lambda: report_html(*replay_course(path)),
        trace,
    )
    profile = cProfile.Profile()
    costs_s = []
    for take in takes:
        began_s = time.thread_time()
        take()
        costs_s.append(time.thread_time() - began_s)
    shown = "".join(f"{cost_s:>8.2f} s" for cost_s in costs_s)
    each_ms = [f"{1000 * cost_s / (events / 1000):.0f}" for cost_s in costs_s]
    print(f"{name:<26}{inputs:>9}{events:>9}{shown}  {' / '.join(each_ms)}", flush=True)
    if is_profiled:
        profile.runcall(replay_course, path)
        pstats.Stats(profile).sort_stats("cumtime").print_stats(40)


if __name__ == "__main__":
    main()
