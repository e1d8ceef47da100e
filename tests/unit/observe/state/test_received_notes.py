"""Each note is one event, whether it was received, recorded or read from a file."""

from __future__ import annotations

import pickle
import random

from hypothesis import given
from hypothesis import strategies as st

from mpwatch.model.events import HookHello, HookNote, HookSlice, Input
from mpwatch.model.samples import Ended
from mpwatch.observe.state.event_log import GAPS_KEPT, UNNUMBERED_KEPT, ReceivedNotes
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, WORKER_0, event, sample, tree


def note(number: int | None, at_ns: int = 5, text: str = "no") -> HookNote:
    return HookNote(WORKER_0, at_ns, "exception", {"text": text}, number=number)


@given(st.lists(st.integers(0, GAPS_KEPT)))
def test_a_numbered_note_is_new_once(numbers: list[int]) -> None:
    received, seen = ReceivedNotes(), set()
    for number in numbers:
        assert received.add(note(number)) == (number not in seen)
        seen.add(number)
    assert [received.has(note(n)) for n in range(GAPS_KEPT + 1)] == [
        n in seen for n in range(GAPS_KEPT + 1)
    ]


def test_notes_without_a_number_differ_by_time_and_content() -> None:
    received = ReceivedNotes()
    assert [received.add(note(None, 5, text)) for text in "aba"] == [True, True, False]
    assert received.add(note(None, 6, "a"))


def test_the_memory_of_received_notes_is_bounded() -> None:
    received = ReceivedNotes()
    for number in range(0, 4 * GAPS_KEPT, 2):
        received.add(note(number))
    for at_ns in range(UNNUMBERED_KEPT):
        received.add(note(None, at_ns))
    size = len(pickle.dumps(received))

    for number in range(4 * GAPS_KEPT, 100 * GAPS_KEPT, 2):
        received.add(note(number))
    for at_ns in range(UNNUMBERED_KEPT, 3 * UNNUMBERED_KEPT):
        received.add(note(None, at_ns))
    assert len(pickle.dumps(received)) <= 1.2 * size
    assert not received.add(note(100 * GAPS_KEPT - 2))


def test_notes_of_another_hook_in_the_same_process_are_new() -> None:
    received = ReceivedNotes()
    assert received.add(note(0))
    received.restart()
    assert received.add(note(0))


def shuffled_twice(inputs: list[Input]) -> list[Input]:
    again = list(inputs)
    random.Random(1).shuffle(again)
    return [*inputs, *again]


def test_repeated_inputs_of_a_recording_are_folded_once() -> None:
    fold = Fold()
    fold.apply(tree(1.0, sample(MAIN, 1.0), sample(WORKER_0, 1.0, parent=100)))
    notes: list[Input] = [note(number, 10 + number, f"no {number}") for number in range(5)]
    notes += [note(None, 10 + n, f"unnumbered {n}") for n in range(5)]
    for each in shuffled_twice(notes):
        fold.apply(each)
    events = tuple(event(1, 1.0 + n / 10)._replace(sequence=n) for n in range(6))
    for part in (events[:4], events[:4], events[2:]):
        fold.apply(HookSlice(WORKER_0, 2.0, part, 0))
    for at_s in (2.0, 3.0):
        fold.apply(Ended(WORKER_0, at_s, problem="unknown"))

    snapshot = fold.snapshot()

    kinds = [entry.kind for entry in snapshot.log]
    assert (kinds.count("exception"), kinds.count("ended")) == (10, 1)
    worker = snapshot.get(WORKER_0)
    assert worker is not None
    assert worker.hook.events == 6


def test_notes_and_records_of_another_hook_are_not_those_of_the_one_before() -> None:
    fold = Fold()
    fold.apply(tree(1.0, sample(MAIN, 1.0)))
    for since_ns in (1, 2):
        fold.apply(HookHello(MAIN, 1.0, 1, "3.11", None, 100, since_ns=since_ns))
        fold.apply(HookNote(MAIN, 5 * since_ns, "exception", {}, number=0))
        fold.apply(HookSlice(MAIN, 1.0, (event(1, 1.0)._replace(sequence=0),), 0))

    snapshot = fold.snapshot()

    assert [entry.kind for entry in snapshot.log] == ["exception", "exception"]
    assert snapshot.processes[0].hook.events == 2
