"""Files of torch's flight recorder; those in `tests/data/flight-recorder` are of three gloo ranks.

They were written by torch 2.13: `absent` and `group` by `_dump_fr_trace()`, `operation` by
`_dump_fr_trace_json()`.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.job import flight_recorder
from mpwatch.collect.job.flight_recorder import NotADump, is_dump, read_dump, read_dumps, record_of

DATA = Path(__file__).parents[3] / "data" / "flight-recorder"
NOW_S = 1_800_000_000.0


def entry(**more: Any) -> dict[str, Any]:
    """A collective of NCCL as torch records it."""
    return {
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 10**18,
        "input_sizes": [[4, 3]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "retired": False,
        "is_p2p": False,
        **more,
    }


def dump(*entries: object, **more: Any) -> dict[str, object]:
    return {"version": "2.10", "entries": list(entries), "pg_config": {}, "pg_status": {}, **more}


def put(folder: Path, name: str, document: object, written_s: float = NOW_S) -> str:
    path = folder / name
    path.write_bytes(pickle.dumps(document, 2))
    os.utime(path, (written_s, written_s))
    return str(path)


def test_a_pickle_of_torch_has_the_calls_of_a_rank_by_group() -> None:
    record = read_dump(str(DATA / "absent" / "nccl_trace_rank_0"))

    assert record.rank == 0
    assert record.entries == 5
    assert set(record.groups) == {"0", "1"}
    assert record.groups["1"].description == "tensor_parallel"
    assert record.groups["1"].called == 1
    assert record.groups["1"].unfinished is None
    unfinished = record.groups["0"].unfinished
    assert unfinished is not None
    assert unfinished.words == (
        "collective 4 of group 0 (default_pg): all_reduce of Float [[8]], unfinished"
    )
    assert [frame.function for frame in unfinished.stack][:3] == ["all_reduce", "wrapper", "stuck"]
    assert record.statuses == {"0": 4, "1": 1}


def test_json_of_torch_has_the_same_but_for_the_stacks() -> None:
    record = read_dump(str(DATA / "operation" / "nccl_trace_rank_2.json"))

    unfinished = record.groups["0"].unfinished
    assert record.rank == 2
    assert unfinished is not None
    assert unfinished.words == (
        "collective 4 of group 0 (default_pg): broadcast of Float [[8]], unfinished"
    )
    assert record.statuses["0"] == 4


def test_transfers_and_members_of_groups_are_read_as_nccl_records_them() -> None:
    send = entry(
        profiling_name="nccl:send 0->3", is_p2p=True, p2p_seq_id=7, process_group=("43", "pipe")
    )
    receive = {**send, "profiling_name": "nccl:recv 0<-1", "p2p_seq_id": 8}
    config = {"43": {"name": "43", "desc": "pipe", "ranks": "[0, 4, 8, 12]"}}

    group = record_of(dump(send, receive, pg_config=config), 0, "f", NOW_S).groups["43"]

    assert group.ranks == (0, 4, 8, 12)
    assert group.called is None
    found = [(each.operation, each.number, each.other_place) for each in group.transfers]
    assert found == [("send", 7, 3), ("recv", 8, 1)]


@pytest.mark.parametrize(
    ("name", "state", "is_retired", "is_unfinished"),
    [
        ("nccl:all_reduce", "completed", True, False),
        ("nccl:all_reduce", "completed", False, False),
        ("nccl:all_reduce", "started", False, True),
        ("nccl:all_reduce", "scheduled", True, True),  # given up after its timeout
        ("gloo:all_reduce", "scheduled", True, False),
        ("gloo:all_reduce", "scheduled", False, True),
    ],
)
def test_what_counts_as_finished(
    name: str, state: str, is_retired: bool, is_unfinished: bool
) -> None:
    one = entry(profiling_name=name, state=state, retired=is_retired)

    group = record_of(dump(one), 0, "f", NOW_S).groups["0"]

    assert (group.unfinished is not None) == is_unfinished


def test_of_a_full_recorder_the_newest_finished_and_the_unfinished_calls_are_kept() -> None:
    done = [entry(collective_seq_id=n, state="completed") for n in range(1, 2000)]
    waiting = [entry(collective_seq_id=n) for n in range(2000, 2300)]

    group = record_of(dump(*done, *waiting), 0, "f", NOW_S).groups["0"]

    assert [call.number for call in group.calls] == list(range(1999, 1999 + 65))
    assert group.called == 2299


def test_entries_of_another_form_are_left_out_and_texts_are_cleaned() -> None:
    shared: list[Any] = ["x"]
    for _ in range(100):  # a text of it would have 2**100 characters
        shared = [shared, shared]
    bad: list[object] = [
        None,
        [],
        {},
        entry(process_group="0"),
        entry(process_group=("0", "a", "b")),
        entry(collective_seq_id="1"),
        entry(collective_seq_id=True),
        entry(profiling_name=None),
    ]
    odd = entry(
        process_group=(shared, "\x1b[31mred"),
        profiling_name="all\nreduce" * 1000,
        input_sizes=[shared, [shared]],
        input_dtypes=[shared],
        frames=[shared, {"name": shared, "filename": 7, "line": "x"}],
        time_created_ns="x",
    )

    record = record_of(
        dump(*bad, odd, pg_config={"0": {"name": "9", "ranks": shared}}, pg_status={"0": shared}),
        0,
        "f",
        NOW_S,
    )

    call = record.groups[""].unfinished
    assert call is not None
    assert call.description == "red"
    assert len(call.operation) == 64
    assert "\n" not in call.operation
    assert call.sizes == "[[], []]"
    assert call.stack[0].function == ""
    assert record.groups["9"].ranks is None
    assert record.groups["0"].called is None
    assert record.statuses == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x02]q\x00.",
        b"[]",
        b"{}",
        b'{"entries": 7, "pg_status": {}}',
        b'{"a": 1}',
        b"[" * 100_000,
        b'{"entries": ' + b"9" * 10_000 + b"}",
        b"\x80\x02cos\nsystem\n.",
    ],
    ids=range(9),
)
def test_other_files_are_refused_in_one_sentence(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace_rank_0"
    path.write_bytes(data)

    with pytest.raises(NotADump, match=r"no dump of torch's flight recorder.*\.$"):
        read_dump(str(path))


def test_a_file_needs_the_number_of_its_rank_and_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unnumbered = put(tmp_path, "trace", dump())
    large = put(tmp_path, "trace_0", dump(entry()))
    monkeypatch.setattr(flight_recorder, "FILE_BYTES", 100)

    with pytest.raises(NotADump, match="more than 0 MB"):
        read_dump(large)
    monkeypatch.undo()
    with pytest.raises(NotADump, match="number of a rank"):
        read_dump(unnumbered)


def test_a_dump_whose_entries_are_of_another_form_is_refused(tmp_path: Path) -> None:
    old = {"process_group": "0", "seq_id": 4, "profiling_name": "nccl:all_reduce"}

    with pytest.raises(NotADump, match=r"form that is not known \(version 1\.5\)"):
        read_dump(put(tmp_path, "trace_0", dump(old, version="1.5")))


def test_a_folder_is_read_without_what_lies_beside_the_dumps(tmp_path: Path) -> None:
    put(tmp_path, "nccl_trace_rank_1", dump(entry()))
    put(tmp_path, "nccl_trace_rank_0", dump(entry()))
    os.mkfifo(tmp_path / "pipe_0")  # TORCH_NCCL_DEBUG_INFO_PIPE_FILE
    os.mkdir(tmp_path / "folder_0")
    (tmp_path / "log_0.txt").write_text("nothing")
    (tmp_path / "notes.json").write_text("{}")

    records, problems = read_dumps([str(tmp_path)])

    assert [record.rank for record in records] == [0, 1]
    assert problems == []
    with pytest.raises(NotADump, match="regular file"):
        is_dump(str(tmp_path / "pipe_0"))


def test_files_of_an_earlier_job_and_older_ones_of_a_rank_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "trace_0", dump(entry(collective_seq_id=9)), NOW_S)
    put(tmp_path, "trace_0.json", dump(entry()), NOW_S - 60)
    put(tmp_path, "trace_1", dump(entry()), NOW_S - 1200)
    put(tmp_path, "trace_2", dump(entry()), NOW_S - 4000)
    put(tmp_path, "trace_3", dump(entry()), NOW_S - 5000)

    records, problems = read_dumps([str(tmp_path)])

    assert [record.rank for record in records] == [0, 1]
    assert records[0].groups["0"].called == 9
    assert problems == [
        f"{tmp_path}/trace_0.json left out: a newer file of the same rank was read.",
        f"{tmp_path}/trace_2 and 1 more left out: more than an hour older than the others.",
    ]


def test_a_damaged_file_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path, "trace_0", dump(entry()))
    (tmp_path / "trace_1").write_bytes((tmp_path / "trace_0").read_bytes()[:40])
    os.utime(tmp_path / "trace_1", (NOW_S, NOW_S))

    records, problems = read_dumps([str(tmp_path)])

    assert [record.rank for record in records] == [0]
    (problem,) = problems
    assert "trace_1 is no dump" in problem


def test_json_and_pickle_of_one_state_give_the_same_record(tmp_path: Path) -> None:
    document = dump(entry(), pg_status={"0": {"last_enqueued_collective": 1}})
    put(tmp_path, "trace_0", document)
    (tmp_path / "trace_0.json").write_text(
        json.dumps({**document, "pg_status": {"0": {"last_enqueued_collective": "1"}}})
    )

    one, other = (read_dump(str(tmp_path / name)) for name in ("trace_0", "trace_0.json"))

    assert one.groups == other.groups
    assert one.statuses == other.statuses == {"0": 1}
