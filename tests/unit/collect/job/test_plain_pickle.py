"""Pickles of plain values are read; all others are refused before anything is called."""

from __future__ import annotations

import os
import pickle
import random
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.job import flight_recorder
from mpwatch.collect.job.flight_recorder import NotPlain, load_plain

VALUES: Any = {
    "none": None,
    "truth": [True, False],
    "numbers": [0, 255, 256, 65_536, -1, 2**31, 1_795_456_631_268_852_721, -(2**70), 0.5],
    "texts": ["", "a", "é\ud800", "x" * 300],
    "nested": ({"a": []}, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    7: {"shared": "a"},
    "long": list(range(3000)),
}
RECORDED = Path(__file__).parents[3] / "data" / "flight-recorder" / "absent" / "nccl_trace_rank_0"


class Call:
    """Pickled as a call of `os.system`."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read_as_pickle_reads_them(protocol: int) -> None:
    data = pickle.dumps(VALUES, protocol)

    assert load_plain(data) == pickle.loads(data) == VALUES


def test_what_torch_writes_is_read_as_pickle_reads_it() -> None:
    data = RECORDED.read_bytes()

    assert load_plain(data) == pickle.loads(data)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_calls_a_function_is_refused_and_calls_nothing(
    protocol: int, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    data = pickle.dumps({"entries": [Call(f"touch {made}")]}, protocol)

    with pytest.raises(NotPlain, match="other than plain values"):
        load_plain(data)
    assert not made.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"(lp0\n.",  # protocol 0
        b"\x80\x02cos\nsystem\nq\x00.",  # a class
        b"\x80\x02\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02\x82\x01.",  # an extension of copyreg
        b"\x80\x02X\x03\x00\x00\x00abcQ.",  # a persistent id
        b"\x80\x02}]R.",  # REDUCE
        b"\x80\x02X\xff\xff\xff\xffabc.",  # a text longer than the file
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc.",
        b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",  # an integer of 255 bytes
        b"\x80\x02h\x07.",  # a reference to nothing
        b"\x80\x02e.",  # no mark
        b"\x80\x02]e.",
        b"\x80\x02\x87.",  # a tuple of values that are not there
        b"\x80\x02](\x85a.",  # takes what lies below a mark
        b"\x80\x02}](K\x01e",  # no end
        b"\x80\x02}]K\x01s.",  # a list as a key
        b"\x80\x02})K\x01s.",  # a tuple as a key
        b"\x80\x02](K\x01u.",  # items of a list
        b"\x80\x02}(K\x01u.",  # an odd number of them
        b"\x80\x02}K\x01a.",  # appends to a dictionary
        b"\x80\x02X\x01\x00\x00\x00\xff.",  # no UTF-8
        b"\x80\x02.",
    ],
    ids=range(24),
)
def test_hostile_and_damaged_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(NotPlain):
        load_plain(data)


def test_a_reference_of_a_huge_number_takes_no_memory() -> None:
    # CPython's own unpickler reserves a table of that many places for it.
    assert load_plain(b"\x80\x02Nr\xff\xff\xff\xff.") is None


@pytest.mark.parametrize(
    "body",
    [b"N" + b"\x94" * 101, b"]" + b"]a" * 60, b"(" + b"K\x00" * 101],
    ids=["references", "lists", "numbers"],
)
def test_more_values_than_a_dump_has_are_refused(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_recorder, "CONTAINERS_LIMIT", 100)
    monkeypatch.setattr(flight_recorder, "STACK_LIMIT", 100)

    with pytest.raises(NotPlain, match="more values"):
        load_plain(b"\x80\x02" + body + b".")


def test_deep_nesting_does_not_exhaust_the_stack_of_the_interpreter() -> None:
    depth = 50 * sys.getrecursionlimit()

    value = load_plain(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".")

    assert isinstance(value, list)
    assert len(value) == 1


def test_a_file_that_is_cut_short_anywhere_is_refused() -> None:
    data = RECORDED.read_bytes()

    for end in range(0, len(data), 3):
        with pytest.raises(NotPlain):
            load_plain(data[:end])


def test_a_file_with_changed_bytes_is_read_or_refused() -> None:
    data, chance = RECORDED.read_bytes(), random.Random(7)

    for _ in range(200):
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 6)):
            changed[chance.randrange(len(data))] = chance.randrange(256)
        try:
            load_plain(bytes(changed))
        except NotPlain:
            continue
