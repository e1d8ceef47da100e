from __future__ import annotations

import collections
from collections.abc import Iterator

import pytest

from mpwatch.hook.notes import LIMIT, Notes
from mpwatch.hook.pristine import System


class Counted(collections.deque[tuple[int, bytes]]):
    """Counts how often somebody goes through it."""

    walks = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        self.walks += 1
        return super().__iter__()


@pytest.fixture
def notes() -> Notes:
    notes = Notes(System())
    notes._recent = Counted(maxlen=LIMIT)
    return notes


def test_nothing_new_is_found_without_going_through_what_is_old(notes: Notes) -> None:
    for _ in range(LIMIT):
        notes.add("fork", {})

    assert notes.since(LIMIT) == []
    assert isinstance(notes._recent, Counted)
    assert notes._recent.walks == 0


def test_what_is_new_comes_in_the_order_of_its_numbers_whatever_its_kind(notes: Notes) -> None:
    for kind in ("fork", "call-site", "fork", "call-site"):
        notes.add(kind, {})

    assert [number for number, _ in notes.since(0)] == [0, 1, 2, 3]
    assert [number for number, _ in notes.since(3)] == [3]
    assert [number for number, _ in notes.since(2)] == [2, 3]
    assert notes.since(4) == []
