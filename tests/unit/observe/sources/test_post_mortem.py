from __future__ import annotations

from pathlib import Path

import pytest

from mpwatch.hook import wire
from mpwatch.model.events import HookHello, HookNote, HookSlice, HookStatus, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.observe.sources.collectors import PostMortem
from tests.builders.hook_files import MADE_NS, SLOTS, write_hook_files

# No process has this pid: pid_max is at most 4,194,304 (proc(5)).
DEAD = ProcessId(4_200_001, 77)
END = Ended(DEAD, 60.0, signal=9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [(wire.LOADER_FETCH_BEGIN, ms) for ms in (1, 2, 3)]
    notes = [{"kind": "exception", "ms": ms, "text": f"no {ms}"} for ms in (1, 3)]
    write_hook_files(tmp_path, DEAD, records, notes)
    return tmp_path


def last_words(folder: Path) -> PostMortem:
    return PostMortem(lambda: (str(folder),))


def told(words: PostMortem) -> tuple[list[int], list[str]]:
    """Sequence numbers of records, and texts of notes."""
    inputs = list(words.of(END))
    records = [event.sequence for each in inputs for event in getattr(each, "events", ())]
    return records, [each.data["text"] for each in inputs if isinstance(each, HookNote)]


def test_all_events_of_an_unconnected_process_are_read_after_its_exit(folder: Path) -> None:
    inputs: list[Input] = list(last_words(folder).of(END))

    assert [type(each) for each in inputs] == [HookSlice, HookNote, HookNote, HookStatus]
    assert {getattr(each, "process", None) for each in inputs} == {DEAD}
    assert inputs[-1] == HookStatus(DEAD, END.at_s, "gone", inputs[-1].reason)  # type: ignore[union-attr]


def test_only_events_not_received_before_are_reported(folder: Path) -> None:
    words = last_words(folder)
    (whole, *_) = last_words(folder).of(END)
    assert isinstance(whole, HookSlice)
    words.received(HookSlice(DEAD, 59.0, whole.events[:2], 0))
    words.received(HookNote(DEAD, MADE_NS + 1_000_000, "exception", {"text": "no 1"}))

    assert told(words) == ([2], ["no 3"])


def test_events_received_in_time_are_kept_though_the_ring_has_overwritten_them(
    tmp_path: Path,
) -> None:
    write_hook_files(tmp_path, DEAD, [(wire.SHARE, ms) for ms in range(200)])
    (whole, _) = last_words(tmp_path).of(END)
    assert isinstance(whole, HookSlice)
    first = whole.events[0].sequence
    assert (first, whole.lost) == (200 - SLOTS, 200 - SLOTS)
    words = last_words(tmp_path)
    heard = tuple(whole.events[0]._replace(sequence=number) for number in range(first + 4))
    words.received(HookSlice(DEAD, 59.0, heard, 0))

    (rest, _) = words.of(END)

    assert isinstance(rest, HookSlice)
    assert (rest.events[0].sequence, rest.lost) == (first + 4, 0)


def test_the_files_are_found_in_the_directory_of_the_hook_by_the_pid_in_its_namespace(
    tmp_path: Path,
) -> None:
    inside = ProcessId(4_200_002, DEAD.start_ticks)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write_hook_files(elsewhere, inside, [(wire.SHARE, 1)])
    words = last_words(tmp_path)

    ring = f"{elsewhere}/{wire.stem(*inside)}{wire.RING_SUFFIX}"
    words.received(HookHello(DEAD, 50.0, 1, "3.11", None, inside.pid, data={"ring": ring}))

    assert told(words) == ([0], [])


def test_a_process_without_files_has_no_late_events(tmp_path: Path) -> None:
    assert told(last_words(tmp_path)) == ([], [])


def test_a_file_of_random_bytes_has_no_late_events(tmp_path: Path) -> None:
    (tmp_path / (wire.stem(*DEAD) + wire.RING_SUFFIX)).write_bytes(b"\xff" * 5000)

    assert told(last_words(tmp_path)) == ([], [])


def test_events_reported_after_an_exit_are_forgotten(folder: Path) -> None:
    words = last_words(folder)
    words.received(HookNote(DEAD, MADE_NS + 1_000_000, "exception", {"text": "no 1"}))

    assert told(words)[1] == ["no 3"]
    assert told(words)[1] == ["no 1", "no 3"]


PARENT = ProcessId(4_200_009, 55)


def earlier(folder: Path, *present: ProcessId) -> list[tuple[ProcessId, str]]:
    """The notes of processes that exited before the observer came, by process."""
    words = PostMortem(lambda: ())
    ring = f"{folder}/{wire.stem(*PARENT)}{wire.RING_SUFFIX}"
    words.received(HookHello(PARENT, 50.0, 1, "3.11", None, PARENT.pid, data={"ring": ring}))
    found = words.left_earlier(present)
    return [(each.process, each.data["text"]) for each in found if isinstance(each, HookNote)]


def test_what_children_wrote_before_the_observer_started_is_read(tmp_path: Path) -> None:
    notes = [{"kind": "exception", "ms": 1, "text": "queue.Full"}]
    write_hook_files(tmp_path, DEAD, [(wire.SHARE, 1)], notes, origin=(*PARENT, b"actor-0"))

    assert earlier(tmp_path, PARENT) == [(DEAD, "queue.Full")]


def test_files_of_processes_of_other_jobs_and_of_present_ones_are_not_read(tmp_path: Path) -> None:
    notes = [{"kind": "exception", "ms": 1, "text": "no"}]
    elsewhere = ProcessId(4_200_003, 9)
    write_hook_files(tmp_path, elsewhere, [], notes, origin=(4_200_004, 1, b""))
    write_hook_files(tmp_path, DEAD, [], notes, origin=(*PARENT, b""))

    assert earlier(tmp_path, PARENT, DEAD) == []


def test_what_arrives_after_an_exit_was_reported_is_dropped_with_the_process(folder: Path) -> None:
    words = last_words(folder)
    told(words)
    words.received(HookNote(DEAD, MADE_NS + 1_000_000, "exception", {"text": "no 1"}))
    words.keep({DEAD})
    words.keep(set())

    assert told(words) == ([0, 1, 2], ["no 1", "no 3"])
