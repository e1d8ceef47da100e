from __future__ import annotations

import resource
from pathlib import Path
from signal import SIG_DFL, SIG_IGN, SIGXFSZ, signal

import pytest

from mpwatch.cli.terminal import tell_recorded
from mpwatch.nodes.recording import JobRecording, JobRecordingWriter
from mpwatch.nodes.wire.messages import Hello
from mpwatch.observe.recording.file import Recording, RecordingWriter
from tests.builders.clock import Clock
from tests.builders.samples import MAIN, START_S, small_job


def recorded(path: Path, seconds: int, limit_bytes: int | None = None) -> float | None:
    """How long a recording lasts of a job watched so long, with a disk full from 42 s on."""
    clock = Clock(START_S)
    writer = RecordingWriter(str(path), MAIN, clock=clock, wall_clock=lambda: 1.8e9)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal(SIGXFSZ, SIG_IGN)
    try:
        for number in range(seconds + 1):
            clock.now_s = START_S + number
            if limit_bytes is not None and number == 42:
                limit = path.stat().st_size + limit_bytes
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            writer.write(small_job(clock.now_s, cpu_ticks=number))
            writer.flush()
        writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal(SIGXFSZ, SIG_DFL)
    with Recording(str(path)) as recording:
        assert writer.recorded_s == recording.length_s
    return writer.recorded_s


@pytest.mark.parametrize(("limit_bytes", "told"), [(None, "60 s"), (10, "41 s")])
def test_a_recording_is_told_with_its_length_and_the_command_that_shows_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    limit_bytes: int | None,
    told: str,
) -> None:
    path = tmp_path / "my job.rec"

    tell_recorded(str(path), recorded(path, 60, limit_bytes))

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"mpwatch: recorded {told} in {path} (")
    assert err.endswith(f"). To see it: mpwatch replay '{path}'\n")


def test_a_recording_of_several_nodes_that_has_reached_its_limit_is_told_as_long_as_it_is(
    tmp_path: Path,
) -> None:
    path, clock = tmp_path / "job.rec", Clock(0.0)
    writer = JobRecordingWriter(str(path), "ssh:a,b", clock=clock, limit_bytes=2000)
    for number in range(60):
        clock.now_s = float(number)
        writer.message("a", Hello("0.1", f"machine-{number}", 12))
    length = clock.now_s
    writer.close()

    assert writer.problem is not None
    assert writer.recorded_s is not None
    assert 0 < writer.recorded_s < length
    with JobRecording(str(path)) as recording:
        assert writer.recorded_s == recording.length_s


def test_a_recording_that_was_removed_is_told_and_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_recorded(str(tmp_path / "\x1b[31mgone.rec"), 5.0)

    told = capsys.readouterr().err
    assert told.endswith("gone.rec cannot be read: No such file or directory.\n")
    assert "\x1b" not in told


def test_a_recording_without_a_reading_is_told_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "b.rec"
    writer = RecordingWriter(str(path), MAIN)
    writer.close()

    tell_recorded(str(path), writer.recorded_s)

    assert capsys.readouterr().err.endswith("b.rec has no reading of the job.\n")
