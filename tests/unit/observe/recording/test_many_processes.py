"""A recording of very many processes is read to its end."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.codec import SCHEMA, Header, LineEncoder
from mpwatch.observe.recording.file import Recording, pack
from mpwatch.observe.recording.timeline import Course, Timeline
from mpwatch.observe.state.fold import ENDED_KEPT
from tests.builders.samples import MAIN, START_S, sample, small_job
from tests.builders.short_lived import AT_ONCE, peak_bytes, short_lived
from tests.builders.snapshots import NOW_S, exited, process, snapshot_of
from tests.unit.observe.recording.conftest import Recorded

COUNT = 3000
SAMPLES = 2
WITHIN_S = 600.0
"""It takes a second; where each process is compared with each other one, hours."""
MEMORY_BYTES_LIMIT = 1 << 29
READER = """
import sys
from mpwatch.observe.sources.replay import replay_to_end
snapshot = replay_to_end(sys.argv[1])
with open("/proc/self/status") as file:
    peak = next(line.split()[1] for line in file if line.startswith("VmHWM"))
print(len(snapshot.processes), int(peak) * 1024)
"""
PARENTS: dict[str, tuple[Role, Callable[[int], int]]] = {
    "children of one": ("loader-worker", lambda pid: MAIN.pid),
    "each a child of the one before": ("spawned", lambda pid: pid - 1),
    "without a parent": ("other", lambda pid: 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", PARENTS)
def test_a_recording_of_very_many_processes_is_read_to_its_end(family: str, tmp_path: Path) -> None:
    role, parent = PARENTS[family]
    path = tmp_path / "many.mpw"
    header = LineEncoder().header(Header(SCHEMA, "1.0", "box", MAIN, START_S, 1.8e9))
    members = [pack(header, START_S, START_S, is_key=False)]
    for at_s in (START_S + number for number in range(SAMPLES)):
        first = 1000 + int(at_s - START_S) * COUNT
        children = (
            sample(ProcessId(pid, pid), at_s, parent=parent(pid), role=role)
            for pid in range(first, first + COUNT)
        )
        processes = (sample(MAIN, at_s, role="main"), *children)
        line = LineEncoder().line(replace(small_job(at_s), processes=processes))
        members.append(pack(line, at_s, at_s, is_key=True))
    path.write_bytes(b"".join(members))

    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)], capture_output=True, text=True, timeout=WITHIN_S
    )

    assert done.returncode == 0, done.stderr
    count, memory_bytes = map(int, done.stdout.split())
    assert count > COUNT
    assert memory_bytes < MEMORY_BYTES_LIMIT


FEW, MANY = 300, 1200
"""Short-lived processes; with the fewer ones all limits are reached."""
KEPT_OF_EACH_BYTES = 60
"""Less than anything that is kept of each takes: its identity alone takes more."""


@pytest.mark.slow
def test_reading_four_times_the_short_lived_processes_takes_no_more_memory(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpwatch.observe.state.fold.ENDED_KEPT", 32)
    monkeypatch.setattr("mpwatch.observe.recording.timeline.ENDED_KEPT", 4)
    monkeypatch.setattr("mpwatch.observe.state.event_log.KEPT", 256)
    path = recorded(list(short_lived(MANY)))

    def read(count: int) -> None:
        course = Course()

        def take(snapshot: Snapshot) -> None:
            course.take(snapshot)
            gc.collect()

        with Recording(path) as recording:
            timeline = Timeline(recording, keeps=False, on_reading=take)
            timeline.advance(count / AT_ONCE)
        course.findings(timeline.conclusion())

    read(FEW)  # what is made once
    few, many = (peak_bytes(partial(read, count)) for count in (FEW, MANY))

    assert many - few < KEPT_OF_EACH_BYTES * (MANY - FEW)


def about(number: int, severity: Severity = Severity.WARNING) -> Finding:
    process = ProcessId(1000 + number, 1000 + number)
    return Finding("odd", severity, "odd", ("seen",), "why", "do", process)


def test_of_processes_that_are_no_longer_kept_the_most_severe_findings_are_kept() -> None:
    course, main = Course(), process(100, "main")
    kept = process(999, state="S")
    of_kept = replace(about(0), process=kept.process)
    for number in range(3 * ENDED_KEPT):
        severity = Severity.CRITICAL if number == 5 else Severity.WARNING
        present = [about(number, severity), *([of_kept] if number == 0 else [])]
        course.take(snapshot_of(main, kept, at_s=float(number), findings=tuple(present)))

    found = course.findings(snapshot_of(main, kept, at_s=4.0 * ENDED_KEPT))

    assert len(found) == ENDED_KEPT + 1
    assert of_kept.key in [each.key for each in found]
    assert about(5).key in [each.key for each in found]
    assert about(3 * ENDED_KEPT - 1).key in [each.key for each in found]
    assert course.left_out == 2 * ENDED_KEPT


def test_curves_are_kept_of_the_processes_that_are_kept() -> None:
    course, main = Course(), process(100, "main")
    for number in range(10):
        course.take(snapshot_of(main, process(200 + number), at_s=float(number)))

    assert {key.pid for key, _ in course.processes} == {100, 209}


def test_a_cause_stays_before_its_more_severe_effect() -> None:
    course, main = Course(), process(100, "main")
    gone = process(1003, ended=exited(1003))
    cause = replace(about(1, Severity.WARNING), rule="why")
    effect = replace(about(2, Severity.CRITICAL), effect_of="why")
    minor = replace(about(4, Severity.INFO), rule="aside")
    held = replace(about(3, Severity.WARNING), process=gone.process)
    course.take(snapshot_of(main, gone, at_s=NOW_S, findings=(held,)))

    end = snapshot_of(main, gone, at_s=NOW_S, findings=(cause, effect, minor))

    assert [each.process for each in course.findings(end)] == [
        each.process for each in (cause, effect, held, minor)
    ]
