from __future__ import annotations

import collections
import json
import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.hook.safe.unpatched import System
from mpwatch.hook.transport import notes
from mpwatch.hook.transport.notes import LIMIT, NOTE_BYTES, PROBLEMS, RECENT_BYTES, Notes, Problems
from tests.builders.replaced_os import Os


def test_only_the_last_notes_are_remembered() -> None:
    made = Notes(System())
    for _ in range(LIMIT + 10):
        made.add("fork", {})

    kept = [json.loads(data)["n"] for _, data in made.since(0)]
    assert kept == list(range(10, LIMIT + 10))


def test_the_file_keeps_the_first_notes_and_ends_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "FILE_BYTES", 1000)
    made = Notes(System())
    made.save(str(tmp_path / "n"))
    for _ in range(100):
        made.add("exception", {})

    *lines, last = map(json.loads, (tmp_path / "n").read_text().splitlines())
    assert [line["n"] for line in lines] == list(range(len(lines)))
    assert (last["kind"], last["text"][:28]) == ("hook-problem", "the file of notes is full: o")
    assert 1000 <= (tmp_path / "n").stat().st_size < 1400


@pytest.mark.parametrize("length", [0, 1000, NOTE_BYTES - 200])
def test_notes_in_memory_are_bounded_in_bytes_too(length: int) -> None:
    tracemalloc.start()
    try:
        made = Notes(System())
        made.add("fork", {})
        before = tracemalloc.get_traced_memory()[0]
        for kind in ("exception", "fork"):
            for _ in range(2 * LIMIT):
                made.add(kind, {"text": "x" * length})
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert RECENT_BYTES / 4 < grown < RECENT_BYTES * 1.1


def test_notes_of_starts_and_forks_are_dropped_from_memory_first() -> None:
    made = Notes(System())
    made.add("cuda-init", {})
    for _ in range(2 * LIMIT):
        made.add("start", {"text": "x" * 300})

    kept = made.since(0)
    assert [number for number, _ in kept[:1]] == [0]
    assert kept[-1][0] == 2 * LIMIT


def test_notes_of_starts_and_forks_leave_room_in_the_file_for_errors_and_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "FILE_BYTES", 2000)
    made = Notes(System())
    made.save(str(tmp_path / "n"))
    for kind in ("start", "fork", "lost-item", "exception"):
        for _ in range(100):
            made.add(kind, {})
    made.add("exception", {"where": "main"}, is_end=True)

    lines = [json.loads(line) for line in (tmp_path / "n").read_text().splitlines()]
    kinds = collections.Counter(line["kind"] for line in lines)
    assert kinds["start"] > 10 < kinds["lost-item"]
    assert lines[-1]["where"] == "main"
    texts = [line["text"] for line in lines if line["kind"] == "hook-problem"]
    assert [text.partition(":")[0] for text in texts] == [
        "the file of notes is half full",
        "the file of notes is full",
    ]


def test_notes_for_which_there_was_no_descriptor_are_counted_in_the_file(tmp_path: Path) -> None:
    made = Notes(System())
    made.save(str(tmp_path / "folder" / "n"))
    for _ in range(3):
        made.add("fork", {})
    (tmp_path / "folder").mkdir()
    made.add("fork", {})

    first, second = map(json.loads, (tmp_path / "folder" / "n").read_text().splitlines())
    assert first["text"] == "3 notes are missing here"
    assert (second["kind"], second["n"]) == ("fork", 3)


def test_problems_are_bounded_and_those_not_kept_are_counted() -> None:
    problems = Problems()
    for number in range(PROBLEMS + 5):
        problems.append(f"problem {number}")

    assert problems.sentences() == [*(f"problem {n}" for n in range(PROBLEMS)), "and 5 more"]


def test_a_note_that_is_too_long_is_replaced_by_its_length() -> None:
    made = Notes(System())
    made.add("exception", {"text": "x" * NOTE_BYTES})

    ((_, data),) = made.since(0)
    assert json.loads(data)["cut"] > NOTE_BYTES
    assert len(data) < 100


class Counted(collections.deque[tuple[int, bytes]]):
    """A deque that counts its iterations."""

    walks = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        self.walks += 1
        return super().__iter__()


def test_without_new_notes_the_old_ones_are_not_iterated() -> None:
    made, recent = Notes(System()), Counted(maxlen=LIMIT)
    made.recent = recent
    for _ in range(LIMIT):
        made.add("exception", {})
    recent.walks = 0

    assert made.since(LIMIT) == []
    assert recent.walks == 0


def test_new_notes_of_all_kinds_are_in_the_order_of_their_numbers() -> None:
    made = Notes(System())
    for kind in ("fork", "call-site", "fork", "call-site"):
        made.add(kind, {})

    assert [number for number, _ in made.since(0)] == [0, 1, 2, 3]
    assert [number for number, _ in made.since(2)] == [2, 3]
    assert made.since(4) == []


def test_a_file_that_another_user_put_there_gets_no_note(tmp_path: Path) -> None:
    system = System()
    system.os = Os(geteuid=lambda: os.geteuid() + 1)
    made = Notes(system)
    made.save(str(tmp_path / "n"))
    made.add("exception", {"text": "secret"})

    assert (tmp_path / "n").read_bytes() == b""


def test_a_fifo_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n")
    made = Notes(System())
    made.save(str(tmp_path / "n"))
    thread = threading.Thread(target=made.add, args=("exception", {}), daemon=True)
    thread.start()
    thread.join(30)

    assert not thread.is_alive()
    assert len(list(made.since(0))) == 1
