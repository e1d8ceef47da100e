"""Recordings on disk: written, cut, damaged, full, foreign."""

from __future__ import annotations

import gzip
import os
import resource
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIG_DFL, SIG_IGN, SIGXFSZ, signal

import pytest

from mpwatch.model.events import HookNote, Input
from mpwatch.model.samples import Ended, TreeSample
from mpwatch.observe.recording.codec import Header, LineEncoder
from mpwatch.observe.recording.file import (
    KEY_S,
    CannotRecord,
    MemberIndex,
    NotARecording,
    Recording,
    RecordingWriter,
    pack,
    scan,
)
from tests.builders.clock import Clock
from tests.builders.recordings import read_recording
from tests.builders.samples import MAIN, START_S, shared_batches, small_job


@pytest.fixture
def clock() -> Clock:
    return Clock(START_S)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.mpw"


def ticks(count: int, step_s: float = 1.0) -> list[Input]:
    inputs: list[Input] = []
    for number in range(count):
        at_s = START_S + number * step_s
        inputs += [small_job(at_s, cpu_ticks=number // 3), shared_batches(at_s + 0.3)]
    return inputs


def record(path: Path, clock: Clock, inputs: list[Input]) -> RecordingWriter:
    writer = RecordingWriter(str(path), MAIN, clock=clock, wall_clock=lambda: 1.8e9)
    for one in inputs:
        clock.now_s = one.at_ns / 1e9 if isinstance(one, HookNote) else one.at_s
        writer.write(one)
    return writer


@contextmanager
def no_file_longer_than(byte_count: int) -> Iterator[None]:
    """A full disk, as a process sees it: writes stop short, then fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal(SIGXFSZ, SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal(SIGXFSZ, SIG_DFL)


def test_inputs_are_read_as_they_were_written(path: Path, clock: Clock) -> None:
    inputs = ticks(100)
    record(path, clock, inputs).close()

    assert list(read_recording(str(path))) == inputs


def test_the_header_has_process_command_and_time(path: Path, clock: Clock) -> None:
    record(path, clock, []).close()

    with Recording(str(path)) as recording:
        assert recording.header.root == MAIN
        assert recording.header.at_s == START_S
        assert recording.header.wall_s == 1.8e9
        assert recording.header.host
        assert list(recording.inputs()) == []
        assert recording.length_s == 0.0


def test_gzip_can_read_a_recording(path: Path, clock: Clock) -> None:
    record(path, clock, ticks(5)).close()

    lines = gzip.decompress(path.read_bytes()).splitlines()

    assert lines[0].startswith(b'{"k":"header"')
    assert len(lines) == 11


def test_only_the_owner_may_read_a_recording(path: Path, clock: Clock) -> None:
    record(path, clock, ticks(1)).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_crash_of_the_writer_loses_less_than_a_second(path: Path, clock: Clock) -> None:
    inputs = ticks(60, step_s=0.25)
    record(path, clock, inputs)  # never closed

    read = list(read_recording(str(path)))

    assert read == inputs[: len(read)]
    assert inputs[-1].at_s - read[-1].at_s < 1.0  # type: ignore[union-attr]


def test_an_existing_file_is_never_overwritten(path: Path, clock: Clock) -> None:
    path.write_text("dear diary")

    with pytest.raises(CannotRecord, match="exists already"):
        RecordingWriter(str(path), MAIN, clock=clock)
    assert path.read_text() == "dear diary"


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotRecord, match="No such file or directory"):
        RecordingWriter(str(tmp_path / "none" / "job.mpw"), MAIN)


def test_a_disk_that_is_full_at_once_leaves_no_file(path: Path) -> None:
    with no_file_longer_than(10), pytest.raises(CannotRecord, match="File too large"):
        RecordingWriter(str(path), MAIN)
    assert not path.exists()


@pytest.mark.parametrize("cut", range(1, 400, 7))
def test_a_cut_end_costs_only_what_was_cut(path: Path, clock: Clock, cut: int) -> None:
    inputs = ticks(8)
    record(path, clock, inputs).close()
    os.truncate(path, path.stat().st_size - cut)

    with Recording(str(path)) as recording:
        read = list(recording.inputs())

    assert read == inputs[: len(read)]
    assert recording.problems == [f"{path} is cut off at its end; what was complete is shown."]


def test_the_complete_lines_of_a_cut_member_are_read(path: Path, clock: Clock) -> None:
    inputs: list[Input] = [small_job(START_S), *(Ended(MAIN, START_S, n) for n in range(30_000))]
    record(path, clock, inputs).close()
    os.truncate(path, path.stat().st_size - 200)

    read = list(read_recording(str(path)))

    assert 10_000 < len(read) < len(inputs)
    assert read == inputs[: len(read)]


def test_damage_in_the_middle_loses_the_inputs_that_depend_on_it(path: Path, clock: Clock) -> None:
    inputs = ticks(70)
    record(path, clock, inputs).close()
    with Recording(str(path)) as recording:
        hurt = recording.members[20]
    data = bytearray(path.read_bytes())
    middle = hurt.offset + hurt.length // 2
    data[middle : middle + 20] = bytes(20)
    path.write_bytes(data)

    with Recording(str(path)) as recording:
        read = list(recording.inputs())
        problems = recording.problems

    # How much of the damaged member decompresses to broken lines depends on its content.
    assert "is damaged" in problems[0]
    assert all("were not understood" in problem for problem in problems[1:])
    assert [one for one in inputs if one in read] == read
    assert read[-1] == inputs[-1]
    trees = [one for one in read if isinstance(one, TreeSample)]
    assert 30 < len(trees) < 70


@pytest.mark.parametrize(
    "content", [b"", b"\x1f", b"hello", b"x" * 4096, gzip.compress(b"{}\n", mtime=0)]
)
def test_another_file_is_refused_in_one_sentence(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(NotARecording, match=r"is not a recording of mpwatch[^.]*\.$"):
        list(read_recording(str(path)))


def test_a_recording_of_a_later_schema_is_refused(path: Path) -> None:
    header = LineEncoder().header(Header(schema=99, mpwatch="9.0"))
    path.write_bytes(pack(header, 0.0, 0.0, is_key=False))

    with pytest.raises(NotARecording, match=r"mpwatch 9\.0 \(schema 99\)"):
        Recording(str(path))


def test_a_recording_in_a_later_container_is_refused(path: Path, clock: Clock) -> None:
    record(path, clock, ticks(1)).close()
    data = bytearray(path.read_bytes())
    data[16] = 200
    path.write_bytes(data)

    with pytest.raises(NotARecording, match="later mpwatch"):
        Recording(str(path))


def test_a_file_that_is_not_there_is_an_os_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Recording(str(path))


def test_reading_can_begin_at_every_key_member(path: Path, clock: Clock) -> None:
    inputs = ticks(100)
    record(path, clock, inputs).close()

    with Recording(str(path)) as recording:
        keys = [index for index, member in enumerate(recording.members) if member.is_key]
        for key in keys:
            read = list(recording.inputs(key))
            assert isinstance(read[0], TreeSample)
            assert read == inputs[-len(read) :]
        assert len(keys) == 4
        assert recording.members[keys[1]].first_s == START_S + KEY_S
        assert recording.length_s == pytest.approx(99.3)


def test_the_index_has_the_members_of_the_file_in_few_bytes_each(path: Path, clock: Clock) -> None:
    record(path, clock, ticks(100)).close()
    with path.open("rb") as file:
        members = list(scan(file))

    index = MemberIndex(members)

    assert list(index) == members
    assert (index[-1], index[3:5]) == (members[-1], members[3:5])
    with pytest.raises(IndexError):
        index[len(members)]
    with Recording(str(path)) as recording:
        assert list(recording.members) == members
    tracemalloc.start()
    try:
        many = MemberIndex(members[n % len(members)] for n in range(100_000))
        used_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(many) == 100_000
    assert used_bytes < 4_000_000


def record_on_full_disk(
    path: Path, clock: Clock, after: Callable[[RecordingWriter], None]
) -> RecordingWriter:
    inputs = ticks(40)
    writer = record(path, clock, inputs[:40])
    with no_file_longer_than(path.stat().st_size + 100):
        for one in inputs[40:60]:
            clock.now_s = one.at_s  # type: ignore[union-attr]
            writer.write(one)
        after(writer)
    for one in inputs[60:]:
        clock.now_s = one.at_s  # type: ignore[union-attr]
        writer.write(one)
    writer.close()
    return writer


def test_a_disk_that_is_full_for_a_while_loses_nothing(path: Path, clock: Clock) -> None:
    said: list[str | None] = []
    writer = record_on_full_disk(path, clock, lambda writer: said.append(writer.problem))

    assert said == [f"The recording {path} waits for its disk: File too large."]
    assert writer.problem is None
    assert list(read_recording(str(path))) == ticks(40)


def test_a_disk_that_stays_full_loses_only_the_rest(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpwatch.observe.recording.file.WAITING_BYTES_LIMIT", 1000)
    writer = record_on_full_disk(path, clock, lambda _: None)

    read = list(read_recording(str(path)))

    assert writer.lost > 0
    assert writer.problem is not None
    assert f"misses {writer.lost} readings" in writer.problem
    assert len(read) + writer.lost == 80
    assert [one for one in ticks(40) if one in read] == read


def test_a_disk_that_is_full_at_the_end_costs_the_end(path: Path, clock: Clock) -> None:
    writer = record(path, clock, ticks(20))
    with no_file_longer_than(path.stat().st_size):
        writer.write(Ended(MAIN, clock.now_s, 1))
        writer.close()

    assert writer.problem is not None
    assert "misses" in writer.problem
    assert "File too large" in writer.problem
    read = list(read_recording(str(path)))
    assert len(read) + writer.lost == 41


def test_an_input_that_is_not_json_is_counted_and_the_rest_is_recorded(
    path: Path, clock: Clock
) -> None:
    writer = record(path, clock, [small_job(START_S)])
    writer.write(HookNote(MAIN, 5, "start", {"child": object()}))
    writer.write(small_job(START_S + 1))
    writer.close()

    assert writer.problem is not None
    assert "misses 1 reading: " in writer.problem
    assert list(read_recording(str(path))) == [small_job(START_S), small_job(START_S + 1)]


def test_closing_twice_is_harmless(path: Path, clock: Clock) -> None:
    writer = record(path, clock, ticks(2))
    writer.close()
    writer.close()

    assert len(list(read_recording(str(path)))) == 4
