from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from mpwatch.collect.hook import decode
from mpwatch.collect.hook.decode import decode_slice, parse_ring, read_ring
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FrameValues, NameValue, ValuesRead, WantedFrame


def record(number: int, kind: int = wire.SHARE) -> bytes:
    return wire.RECORD.pack(number + 1, 1000 + number, kind, 2, 77, 5, 4096, 11, 12, 13)


def ring(written: int, slots: int = 8, **changes: int) -> bytearray:
    values = {"protocol": 1, "header": 4096, "record": 64, "slots": slots, **changes}
    data = bytearray(wire.HEADER_BYTES + slots * wire.RECORD_BYTES)
    wire.HEADER.pack_into(
        data, 0, wire.MAGIC, values["protocol"], values["header"], values["record"],
        values["slots"], 42, 777, 5, 6,
    )  # fmt: skip
    for number in range(max(0, written - slots), written):
        start = wire.HEADER_BYTES + number % slots * wire.RECORD_BYTES
        data[start : start + wire.RECORD_BYTES] = record(number)
    return data


def test_a_ring_is_read_oldest_first_with_what_was_overwritten_counted() -> None:
    found = parse_ring(bytes(ring(11)))

    assert found.header is not None
    assert (found.header.pid_inside, found.header.start_ticks) == (42, 777)
    assert [event.sequence for event in found.events] == list(range(3, 11))
    assert found.lost == 3
    assert found.problems == ()
    event = found.events[0]
    assert (event.at_ns, event.kind, event.flags, event.tid) == (1003, wire.SHARE, 2, 77)
    assert (event.duration_ns, event.bytes, event.key, event.key2, event.aux) == (
        5, 4096, 11, 12, 13,
    )  # fmt: skip


def test_an_empty_ring_has_lost_nothing() -> None:
    found = parse_ring(bytes(ring(0)))

    assert (found.events, found.lost) == ((), 0)


def test_a_torn_record_is_counted_as_lost() -> None:
    data = ring(5)
    struct.pack_into("<Q", data, wire.HEADER_BYTES + 2 * wire.RECORD_BYTES, 0)

    found = parse_ring(bytes(data))

    assert [event.sequence for event in found.events] == [0, 1, 3, 4]
    assert found.lost == 1


def test_a_file_that_was_cut_gives_what_is_left() -> None:
    data = bytes(ring(8))[: wire.HEADER_BYTES + 3 * wire.RECORD_BYTES + 10]

    found = parse_ring(data)

    assert [event.sequence for event in found.events] == [0, 1, 2]
    assert found.problems == ("the file is cut: 3 of 8 slots are there",)


def test_damaged_slots_are_left_out() -> None:
    data = ring(8)
    struct.pack_into("<Q", data, wire.HEADER_BYTES, 0xDEADBEEF)

    found = parse_ring(bytes(data))

    assert [event.sequence for event in found.events] == list(range(1, 8))
    assert found.problems == ("1 slots hold something else than their record",)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "too few"),
        (bytes(5000), "not a ring"),
        (bytes(ring(1, protocol=9)), "protocol 9"),
        (bytes(ring(1, header=64)), "damaged"),
        (bytes(ring(1, record=32)), "damaged"),
        (bytes(ring(1, slots=8))[:32].replace(b"\x08\x00\x00\x00", b"\x00\x00\x00\x00"), "too few"),
    ],
    ids=["nothing", "zeros", "protocol", "header", "record", "cut"],
)
def test_a_file_that_is_no_ring_is_refused(data: bytes, problem: str) -> None:
    found = parse_ring(data)

    assert found.header is None
    assert problem in found.problems[0]


def test_a_header_with_a_billion_slots_is_refused() -> None:
    data = ring(1)
    struct.pack_into("<I", data, 16, 1 << 30)

    assert "damaged" in parse_ring(bytes(data)).problems[0]


def test_arbitrary_bytes_are_refused_or_read() -> None:
    chance = random.Random(1)
    for _ in range(200):
        data = ring(chance.randrange(20))
        for _ in range(chance.randrange(1, 30)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        found = parse_ring(bytes(data[: chance.randrange(len(data))]))
        assert len(found.events) <= 8
        assert [e.sequence for e in found.events] == sorted({e.sequence for e in found.events})


def test_special_files_and_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(bytes(ring(3)))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "fifo")

    assert len(read_ring(str(tmp_path / "real")).events) == 3
    assert "symbolic" in read_ring(str(tmp_path / "link")).problems[0]
    assert "regular" in read_ring(str(tmp_path / "fifo")).problems[0]
    assert "No such file" in read_ring(str(tmp_path / "none")).problems[0]


def test_a_slice_says_which_of_its_records_are_holes() -> None:
    holes = record(5) + bytes(64) + record(7) + record(100) + record(9)

    events, torn = decode_slice(holes)

    assert [event.sequence for event in events] == [5, 7, 9]
    assert torn == 2


def test_a_slice_of_half_a_record_is_refused() -> None:
    with pytest.raises(ValueError, match="not whole records"):
        decode_slice(record(1)[:40])


def test_an_empty_slice_is_empty() -> None:
    assert decode_slice(b"") == ((), 0)


@pytest.mark.parametrize("at_ns", [3, 1 << 60], ids=["more than one a nanosecond", "no clock"])
def test_random_bytes_in_a_slot_hide_no_record(at_ns: int) -> None:
    data = ring(3)
    noise = wire.RECORD.pack(8 * 10**9 + 6, at_ns, wire.SHARE, 2, 77, 5, 4096, 11, 12, 13)
    start = wire.HEADER_BYTES + 5 * wire.RECORD_BYTES
    data[start : start + wire.RECORD_BYTES] = noise

    found = parse_ring(bytes(data))

    assert [event.sequence for event in found.events] == [0, 1, 2]
    assert found.problems == ("1 slots hold something else than their record",)


def test_numbers_of_kinds_are_those_of_older_recordings() -> None:
    assert wire.KIND_NAMES == {
        1: "share", 2: "rebuild", 5: "cache sweep", 10: "queue put", 11: "queue get",
        20: "process start", 21: "process join", 22: "forked", 30: "loader next",
        31: "loader task", 32: "loader fetch", 33: "loader start", 34: "loader stop",
        35: "loader fetch begins", 50: "cuda init", 51: "cuda share", 52: "cuda rebuild",
        60: "exception", 62: "known",
    }  # fmt: skip


def test_a_record_of_a_kind_that_has_no_name_is_read() -> None:
    events, _ = decode_slice(record(0, kind=61))

    assert [event.kind for event in events] == [61]


PROCESS = ProcessId(100, 1000)
THREAD = {"tid": 100, "name": "MainThread", "frames": [["main", "train.py", 7]]}


def test_stacks_include_their_cost_in_the_process() -> None:
    taken = decode.stacks(PROCESS, 5.0, {"id": 1, "threads": [THREAD], "cpu_ns": 250_000})

    assert taken.cost_s == 0.000_25
    assert taken.stacks[0].frames[0].line == 7


@pytest.mark.parametrize("said", [{}, {"cpu_ns": "7"}, {"cpu_ns": -1}, {"cpu_ns": None}])
def test_stacks_of_a_hook_that_does_not_report_the_cost_are_read(said: dict[str, object]) -> None:
    taken = decode.stacks(PROCESS, 5.0, {"threads": [THREAD], **said})

    assert taken.cost_s is None
    assert len(taken.stacks) == 1


def test_values_of_a_hook_are_those_that_were_asked_for() -> None:
    wanted = [WantedFrame(7, "/a.py", "fit", ("step", "rows", "is_last", "hostile"))]
    said = {
        "frames": [
            {"frame": 3, "values": {"step": {"type": "int"}}},
            {
                "frame": 0,
                "line": 12,
                "values": {
                    "step": {"type": "int", "number": 60},
                    "rows": {"type": "list", "length": 3, "has_graph": True},
                    "is_last": {"type": "bool", "number": 1},
                    "hostile": {"type": "x.<locals>.Made", "number": 1 << 70, "length": "3"},
                    "secret": {"type": "int", "number": 1},
                },
            },
            "no frame",
        ]
    }

    found = decode.values(ProcessId(1, 2), 5.0, said, wanted)

    values = (
        NameValue("step", "int", 60),
        NameValue("rows", "list", None, 3, True),
        NameValue("is_last", "bool", True),
        NameValue("hostile", "Made"),
    )
    assert found == ValuesRead(
        ProcessId(1, 2), 5.0, "hook", (FrameValues(7, "/a.py", "fit", 12, values),)
    )
    assert found.frames[0].values[2].number is True


@pytest.mark.parametrize("said", [{}, {"frames": None}, {"error": "unknown request"}])
def test_a_hook_that_knows_no_values_gives_none(said: dict[str, object]) -> None:
    assert decode.values(ProcessId(1, 2), 5.0, said, []).frames == ()


def test_an_event_of_the_future_is_a_hole_on_the_socket() -> None:
    rows = [
        wire.RECORD.pack(number, at_ns, wire.SHARE, 2, 77, 5, 4096, 11, 12, 13)
        for number, at_ns in ((1, 10**9), (2, 1 << 62), (3, 10**12), (4, 2 * 10**9))
    ]

    found = decode.records(ProcessId(7, 70), 2.0, wire.LOST.pack(0) + b"".join(rows))

    assert [event.sequence for event in found.events] == [0, 3]
    assert found.lost == 2
