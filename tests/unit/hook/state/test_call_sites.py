from __future__ import annotations

import json
from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.session import Session
from mpwatch.hook.state import call_sites
from mpwatch.hook.state.call_sites import (
    APART_NS,
    BURST_NS,
    EVERY_BYTES,
    FIRST,
    IN_VAIN_NS,
    definition,
    place_here,
)
from mpwatch.hook.transport.notes import LIMIT, PASSING_LIMIT
from tests.builders.clock import NanosecondClock

KEY = (7, 27)


class Storage:
    """The attributes of a storage that the sample reads."""

    def __init__(self, cdata: int, size: int) -> None:
        self._cdata = cdata
        self.size = size

    def nbytes(self) -> int:
        return self.size


@pytest.fixture
def clock() -> NanosecondClock:
    return NanosecondClock()


@pytest.fixture
def session(session: Session, clock: NanosecondClock) -> Session:
    session.system.monotonic_ns = clock
    return session


def sites(session: Session) -> list[dict[str, Any]]:
    notes = [json.loads(data) for _, data in session.notes.since(0)]
    return [note for note in notes if note["kind"] == "call-site"]


def test_a_storage_pickled_elsewhere_has_the_line_that_created_it(
    session: Session,
) -> None:
    storage = Storage(1, 100)
    session.origins.made(storage)
    session.origins.shared(storage, True, 100, KEY)
    session.origins.shared(storage, True, 100, KEY)

    (note,) = sites(session)
    assert (note["inode"], note["device"], note["bytes"]) == (7, 27, 100)
    assert note["site"].startswith("test_call_sites.py:")


def test_a_storage_shared_before_and_not_in_the_sample_is_not_noted(
    session: Session,
) -> None:
    session.origins.shared(Storage(1, 100), True, 100, KEY)

    assert sites(session) == []


def test_after_the_first_ones_one_storage_in_a_mebibyte_is_noted(
    session: Session, clock: NanosecondClock
) -> None:
    for number in range(FIRST + 64):
        clock.now_ns += APART_NS
        session.origins.shared(Storage(number, 1), False, EVERY_BYTES // 16, KEY)

    assert len(sites(session)) == FIRST + 4


def test_the_rate_of_notes_is_limited_however_much_is_shared(
    session: Session, clock: NanosecondClock
) -> None:
    for number in range(1000):
        session.origins.shared(Storage(number, 1), False, 10 * EVERY_BYTES, KEY)
    assert len(sites(session)) == 8

    clock.now_ns += APART_NS
    for number in range(1000):
        session.origins.shared(Storage(number, 1), False, 10 * EVERY_BYTES, KEY)

    assert len(sites(session)) == 9


class Walks:
    """Counts walks up the stack, which find the line that the test sets."""

    count = 0
    line: str | None = "train.py:1"

    def __call__(self) -> str | None:
        self.count += 1
        return self.line


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Walks:
    walks = Walks()
    monkeypatch.setattr(call_sites, "place_here", walks)
    return walks


def test_the_stack_is_walked_four_times_in_a_second_of_large_batches(
    session: Session, clock: NanosecondClock, walks: Walks
) -> None:
    for _ in range(BURST_NS // APART_NS + FIRST):
        session.origins.made(Storage(0, EVERY_BYTES))
    walks.count = 0
    for number in range(1000):
        clock.now_ns += 1_000_000
        session.origins.made(Storage(number, 100 * EVERY_BYTES))

    assert walks.count == 4


def test_stacks_without_a_line_of_the_program_are_walked_at_a_limited_rate(
    session: Session, clock: NanosecondClock, walks: Walks
) -> None:
    walks.line = None
    for _ in range(100 * IN_VAIN_NS // 100_000):
        clock.now_ns += 100_000
        session.origins.shared(Storage(0, 1), False, 100 * EVERY_BYTES, KEY)

    assert 95 <= walks.count <= 101
    assert sites(session) == []


def test_small_batches_do_not_read_the_clock_between_samples(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(FIRST):
        session.origins.made(Storage(number, EVERY_BYTES))
    looks: list[int] = []

    def look() -> int:
        looks.append(0)
        return 0

    session.system.monotonic_ns = look
    for number in range(1000):
        session.origins.made(Storage(number, 64))

    assert looks == []


def test_notes_of_lines_displace_no_other_note(session: Session, clock: NanosecondClock) -> None:
    session.note("fork")
    for number in range(LIMIT + PASSING_LIMIT):
        clock.now_ns += APART_NS
        session.origins.shared(Storage(number, 1), False, EVERY_BYTES, KEY)

    notes = [json.loads(data)["kind"] for _, data in session.notes.since(0)]
    assert notes == ["fork"] + ["call-site"] * PASSING_LIMIT


def test_a_worker_whose_stack_has_no_line_of_the_program_names_its_dataset() -> None:
    assert definition(wire.stem) is None
    assert definition(json.dumps) is None
    found = definition(Storage.nbytes)
    assert found is not None
    assert found.startswith("test_call_sites.py:")
    assert found.endswith(" Storage.nbytes")
    assert definition(None) is None


def test_a_function_of_the_program_with_the_name_of_a_childs_entry_is_a_place() -> None:
    def _worker_loop() -> str | None:
        return place_here()

    line = _worker_loop.__code__.co_firstlineno + 1

    assert _worker_loop() == f"test_call_sites.py:{line}"
