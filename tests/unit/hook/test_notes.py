from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.hook import notes
from mpwatch.hook.notes import LIMIT, NOTE_BYTES, Notes
from mpwatch.hook.pristine import System


def test_only_the_last_notes_are_remembered() -> None:
    made = Notes(System())
    for number in range(LIMIT + 10):
        made.add("fork", {"n": number})

    kept = [json.loads(data)["n"] for _, data in made.since(0)]
    assert kept == list(range(10, LIMIT + 10))


def test_the_file_keeps_the_first_notes_and_ends_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "FILE_BYTES", 1000)
    made = Notes(System())
    made.save(str(tmp_path / "n"))
    for number in range(100):
        made.add("fork", {"n": number})

    lines = [json.loads(line)["n"] for line in (tmp_path / "n").read_text().splitlines()]
    assert lines == list(range(len(lines)))
    assert 1000 <= (tmp_path / "n").stat().st_size < 1100


def test_a_note_that_is_too_long_is_replaced_by_its_length() -> None:
    made = Notes(System())
    made.add("exception", {"text": "x" * NOTE_BYTES})

    ((_, data),) = made.since(0)
    assert json.loads(data)["cut"] > NOTE_BYTES
    assert len(data) < 100


class Counted(collections.deque[tuple[int, bytes]]):
    """Counts how often somebody goes through it."""

    walks = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        self.walks += 1
        return super().__iter__()


def test_nothing_new_is_found_without_going_through_what_is_old() -> None:
    made, recent = Notes(System()), Counted(maxlen=LIMIT)
    made._recent = recent
    for _ in range(LIMIT):
        made.add("fork", {})

    assert made.since(LIMIT) == []
    assert recent.walks == 0


def test_what_is_new_comes_in_the_order_of_its_numbers_whatever_its_kind() -> None:
    made = Notes(System())
    for kind in ("fork", "call-site", "fork", "call-site"):
        made.add(kind, {})

    assert [number for number, _ in made.since(0)] == [0, 1, 2, 3]
    assert [number for number, _ in made.since(2)] == [2, 3]
    assert made.since(4) == []
