"""Inputs as lines and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mpwatch.model.events import HookNote, Input
from mpwatch.model.ids import SegmentId, SegmentUse
from mpwatch.model.samples import Ended, FdLink, FdSample, TreeSample
from mpwatch.observe.recording.codec import CANNOT_ENCODE, KINDS, LineDecoder, LineEncoder
from tests.builders.samples import MAIN, WORKER_0, small_job
from tests.builders.strategies import INPUTS


def there_and_back(*inputs: Input) -> list[Input | None]:
    encoder, decoder = LineEncoder(), LineDecoder()
    return [decoder.input(encoder.line(one)) for one in inputs]


def test_every_kind_of_input_has_a_name() -> None:
    assert set(KINDS.values()) == set(get_args(Input))


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(*INPUTS.values()), max_size=4))
def test_inputs_are_decoded_as_they_were_encoded(inputs: list[Input]) -> None:
    assert there_and_back(*inputs) == inputs


# Trees have hundreds of fields: on a loaded machine making them is slow.
@pytest.mark.slow
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(INPUTS[TreeSample], min_size=2, max_size=4))
def test_changes_between_any_trees_rebuild_the_second(trees: list[TreeSample]) -> None:
    assert there_and_back(*trees) == trees


def test_the_second_tree_holds_only_what_changed() -> None:
    encoder = LineEncoder()
    whole = encoder.line(small_job(1000.0))
    change = encoder.line(small_job(1001.0))

    assert b"train.py" in whole
    assert b"train.py" not in change
    assert change.startswith(b'{"k":"change"')


def test_a_value_that_became_unknown_is_not_carried_over() -> None:
    known = small_job(1000.0)
    unknown = replace(
        known, processes=tuple(replace(one, cpu_ticks=None) for one in known.processes)
    )

    assert there_and_back(known, unknown)[1] == unknown


def test_a_change_without_the_tree_before_it_is_left_out() -> None:
    encoder, decoder = LineEncoder(), LineDecoder()
    encoder.line(small_job(1000.0))
    change = encoder.line(small_job(1001.0))

    assert decoder.input(change) is None
    assert decoder.not_understood == 0


def test_a_process_started_between_two_readings_is_complete() -> None:
    before, after = (
        small_job(1000.0, processes=(MAIN,)),
        small_job(1001.0, processes=(MAIN, WORKER_0)),
    )

    assert there_and_back(before, after)[1] == after


def test_keys_of_later_versions_are_skipped() -> None:
    line = msgspec.json.encode(
        {
            "k": "ended",
            "v": {"process": [1, 2], "at_s": 3.0, "exit_code": 1, "mood": "fine"},
            "x": 1,
        }
    )

    assert LineDecoder().input(line) == Ended(MAIN._replace(pid=1, start_ticks=2), 3.0, 1)


@pytest.mark.parametrize(
    "line",
    [
        b'{"k":"telepathy","v":{}}',
        b'{"k":"ended","v":{"process":"me"}}',
        b'{"k":"ended"}',
        b"[]",
        b"",
        b"\xff\xfe",
        b'{"k":"note","v":' + b"[" * 100_000,
        b'{"k":"change","v":{"tree":{},"processes":[]}}',
    ],
)
def test_an_invalid_line_is_skipped(line: bytes) -> None:
    decoder = LineDecoder()

    assert decoder.input(line) is None


def test_skipped_lines_are_counted() -> None:
    decoder = LineDecoder()
    decoder.input(b'{"k":"telepathy","v":{}}')

    assert decoder.not_understood == 1


def test_texts_of_a_hostile_recording_are_sanitized() -> None:
    note = HookNote(
        MAIN, 5, "exception", {"text": "\x1b[2J\x1b]0;owned\x07gone", "a\nb": ["\u202e"]}
    )
    decoded = LineDecoder().input(LineEncoder().line(note))

    assert isinstance(decoded, HookNote)
    assert decoded.data == {"text": "gone", "a b": ["\ufffd"]}


def test_a_mapping_that_is_no_dict_can_be_written() -> None:
    note = HookNote(MAIN, 5, "start", MappingProxyType({"child": 7}))

    assert there_and_back(note) == [note]


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(1_000_000):  # Python 3.14 allows as many as fit the stack of the thread
        value = [value]
    return value


@pytest.mark.parametrize("value", [object, lambda: "\ud800", lambda: {1, object()}, deep])
def test_values_that_json_cannot_hold_are_refused_with_a_documented_error(
    value: Callable[[], object],
) -> None:
    note = HookNote(MAIN, 5, "start", {"child": value()})

    with pytest.raises(CANNOT_ENCODE):
        LineEncoder().line(note)


def crowded(numbers: list[int] | None) -> TreeSample:
    """A tree whose main process holds segments and descriptors with these numbers."""
    base = small_job(1000.0)
    uses, links = None, None
    if numbers is not None:
        uses = tuple(
            SegmentUse(SegmentId(1, n), f"/dev/shm/torch_{n}", "torch", False, n) for n in numbers
        )
        links = tuple(FdLink(n, "torch", f"/dev/shm/torch_{n}", n, None) for n in numbers)
    fds = FdSample(len(numbers or ()), 1024, 4096, links=links)
    main = replace(base.processes[0], segments=uses, fds=fds)
    return replace(base, processes=(main, *base.processes[1:]))


NUMBERS = st.none() | st.lists(st.integers(0, 9), max_size=12)


@pytest.mark.slow
@given(st.lists(NUMBERS, min_size=2, max_size=5))
def test_lists_that_shift_grow_and_shrink_are_read_again(steps: list[list[int] | None]) -> None:
    trees = [crowded(numbers) for numbers in steps]

    assert there_and_back(*trees) == trees


def test_a_long_list_that_shifts_costs_only_what_is_new() -> None:
    encoder = LineEncoder()
    whole = encoder.line(crowded(list(range(1000))))
    change = encoder.line(crowded(list(range(2, 1002))))

    assert len(change) < len(whole) / 100


@pytest.mark.parametrize("splices", ["[[0,5]]", "[[-1,1]]", "[[0,-1]]", '[{"old":1}]', "7"])
def test_a_change_that_does_not_follow_is_skipped_with_those_after_it(splices: str) -> None:
    encoder, decoder = LineEncoder(), LineDecoder()
    decoder.input(encoder.line(crowded([1, 2])))
    line = encoder.line(crowded([1, 2, 3]))
    tampered = re.sub(
        rb'"segments~":.*?,"links~"', f'"segments~":{splices},"links~"'.encode(), line
    )
    assert tampered != line

    assert decoder.input(tampered) is None
    assert decoder.input(encoder.line(crowded([1]))) is None
    assert decoder.not_understood == 1
    encoder.forget()
    assert decoder.input(encoder.line(crowded([1]))) == crowded([1])


def test_the_size_of_a_tree_after_changes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpwatch.observe.recording.codec.MEMBERS_LIMIT", 10)
    encoder, decoder = LineEncoder(), LineDecoder()
    decoder.input(encoder.line(crowded([1, 2])))

    assert decoder.input(encoder.line(crowded([1, 2, 1, 2] * 3))) is None
