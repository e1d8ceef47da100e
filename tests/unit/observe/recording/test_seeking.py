"""A snapshot of a recording depends on the position alone, and not on the positions before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mpwatch.diagnose.analysis.throughput.account import MANY
from mpwatch.diagnose.engine import Engine
from mpwatch.model.events import HookNote, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, Frame, StackSample, StacksTaken, TreeSample
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.codec import moment_of
from mpwatch.observe.recording.file import Recording, RecordingWriter
from mpwatch.observe.recording.timeline import Timeline
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, START_S, WORKER_0, job_process, shared_batches, small_job

pytestmark = pytest.mark.slow

LENGTH_S = 120
CROWD = tuple(ProcessId(200 + number, 9) for number in range(MANY))
"""With so many processes the engine does not run all rules at each reading."""


def eventful() -> list[Input]:
    """Two minutes in which findings begin, end and come back; half of it without a hook."""
    inputs: list[Input] = []
    for second in range(LENGTH_S):
        at_s = START_S + second
        crowd = CROWD if 30 <= second < 90 else ()
        living = (MAIN, WORKER_0) if second < 100 else (MAIN,)
        reading = small_job(at_s, cpu_ticks=7 * second, processes=(*living, *crowd))
        if 20 <= second % 50 < 30:
            stopped = replace(job_process(MAIN, at_s), state="T")
            reading = replace(reading, processes=(stopped, *reading.processes[1:]))
        inputs.append(reading)
        if second % 7 == 3:
            stack = StackSample(
                MAIN, MAIN.pid, "", (Frame("step", "/t.py", second),), "py-spy", at_s
            )
            inputs.append(StacksTaken(MAIN, at_s + 0.2, "py-spy", (stack,)))
        if 40 <= second < 80:
            inputs.append(shared_batches(at_s + 0.3))
        if second in (45, 70):
            text = {"text": "ValueError: too many fds"}
            inputs.append(HookNote(WORKER_0, int((at_s + 0.4) * 1e9), "exception", text))
        if second == 99:
            inputs.append(Ended(WORKER_0, at_s + 0.5, exit_code=1))
    return inputs


DATA = Path(__file__).parents[3] / "data"
OLD = tuple(sorted(str(path) for path in DATA.glob("recording-*.mpw")))
"""A recording of each dialect that was ever written."""
MADE = "made here"


@pytest.fixture(scope="module", params=[MADE, *OLD], ids=lambda path: Path(path).stem)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    recorded: str = request.param
    if recorded != MADE:
        return recorded
    file: Path = tmp_path_factory.mktemp("recording") / "job.mpw"
    now_s = START_S
    writer = RecordingWriter(str(file), MAIN, clock=lambda: now_s, wall_clock=lambda: 1.8e9)
    for each in eventful():
        now_s = moment_of(each)
        writer.write(each)
    writer.close()
    return str(file)


PARTS = 2 * LENGTH_S
"""Moments of a recording that are compared: every half second of the one made here."""


def moment_in(recording: Recording, part: int) -> float:
    """Seconds from the beginning of a recording, for one of its parts."""
    return recording.length_s * part / PARTS


@pytest.fixture(scope="module")
def played(path: str) -> dict[int, Snapshot]:
    """The snapshots of playing from the beginning, at every part of the recording."""
    shown = {}
    with Recording(path) as recording:
        timeline = Timeline(recording, keeps=False)
        for part in range(PARTS + 1):
            timeline.advance(moment_in(recording, part))
            shown[part] = timeline.snapshot()
    return shown


@pytest.fixture(scope="module")
def wandering(path: str) -> Iterator[Timeline]:
    """One timeline for all examples, so that they begin at the position of the one before."""
    with Recording(path) as recording:
        yield Timeline(recording)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(parts=st.lists(st.integers(0, PARTS), max_size=4))
def test_seeking_anywhere_in_any_order_shows_what_playing_shows(
    path: str, wandering: Timeline, played: dict[int, Snapshot], parts: list[int]
) -> None:
    with Recording(path) as recording:
        moments_s = {part: moment_in(recording, part) for part in parts}
    for part in parts:
        wandering.approach(moments_s[part])
        wandering.advance(moments_s[part])
        assert wandering.snapshot() == played[part]


@pytest.mark.parametrize("path", [MADE], indirect=True)
def test_the_played_job_has_findings_that_come_and_go(played: dict[int, Snapshot]) -> None:
    counts = [sum(f.resolved_s is None for f in shown.findings) for shown in played.values()]
    assert len(set(counts)) > 2


@settings(max_examples=12)
@given(asked=st.lists(st.booleans(), min_size=90, max_size=90))
def test_snapshots_do_not_depend_on_how_often_they_are_asked_for(asked: list[bool]) -> None:
    often, seldom, engine, other = Fold(), Fold(), Engine(), Engine()
    for each, is_asked in zip(eventful(), asked, strict=False):
        often.apply(each)
        seldom.apply(each)
        if is_asked:
            assert often.snapshot() is often.snapshot()
            engine.preview(often.snapshot(), often.history())
        if isinstance(each, TreeSample):
            engine.diagnosed(often.snapshot(), often.history())
            other.diagnosed(seldom.snapshot(), seldom.history())

    assert often.snapshot() == seldom.snapshot()
    assert engine.preview(often.snapshot(), often.history()) == other.preview(
        seldom.snapshot(), seldom.history()
    )
