"""Reading torch's flight recorder, from its text as torch 2.13 writes it."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from mpwatch.hook.checks.flight_recorder import (
    ENTRIES_NS,
    GROUPS,
    STILL_NS,
    FlightRecorder,
    newest_entries,
)
from mpwatch.hook.points import distributed


class Clock:
    now_ns = 10**12

    def monotonic_ns(self) -> int:
        return self.now_ns


def entry(number: int, *, group: int = 0, retired: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"],
        "input_sizes": [[3, 4]],
        "pg_id": group,
        "process_group": [str(group), "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "retired": retired,
        "time_created_ns": 77,
        **more,
    }


class Recorder:
    """A stand-in for torch's function."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.status: dict[str, tuple[int, int]] = {}
        self.calls: list[bool] = []

    def dump(self, *, includeCollectives: bool) -> bytes:  # noqa: N803 - torch's name
        self.calls.append(includeCollectives)
        status = {
            group: {
                "last_completed_collective": str(completed),
                "last_enqueued_collective": str(enqueued),
                "last_started_collective": "-1",
            }
            for group, (enqueued, completed) in self.status.items()
        }
        found: dict[str, Any] = {"pg_status": status, "version": "2.10"}
        if includeCollectives:
            found["entries"] = self.entries
        return json.dumps(found, sort_keys=True, separators=(",", ":")).encode()


def test_entries_are_read_only_once_nothing_has_changed_for_a_while() -> None:
    clock, torch = Clock(), Recorder()
    torch.status = {"0": (5, 4)}
    torch.entries = [entry(4), entry(5, retired=False)]
    reader = FlightRecorder(clock, torch.dump)  # type: ignore[arg-type]

    assert reader.show() == [{"id": "0", "enqueued": 5, "completed": 4, "unchanged_ns": 0}]
    clock.now_ns += STILL_NS
    (state,) = reader.show()
    reader.show()

    assert (state["group"], state["operation"], state["number"]) == ("0", "gloo:all_reduce", 5)
    assert (state["sizes"], state["types"], state["is_unfinished"]) == ("[[3, 4]]", "Float", True)
    assert torch.calls == [False, False, True, False]


def test_entries_of_a_job_with_long_steps_are_read_at_intervals() -> None:
    clock, torch = Clock(), Recorder()
    reader = FlightRecorder(clock, torch.dump)  # type: ignore[arg-type]
    for step in range(10):
        torch.status = {"0": (step + 1, step + 1)}
        reader.show()
        clock.now_ns += STILL_NS
        reader.show()

    assert 2 <= torch.calls.count(True) <= 1 + 10 * STILL_NS // ENTRIES_NS


def test_the_oldest_unfinished_collective_of_each_group_is_reported_else_its_newest() -> None:
    torch = Recorder()
    torch.entries = [
        entry(7, group=1),
        entry(1),
        entry(2, retired=False, profiling_name="gloo:broadcast"),
        entry(3, retired=False),
        entry(8, group=1),
    ]

    found = newest_entries(torch.dump(includeCollectives=True), ["0", "1", "2"])

    assert sorted(found) == ["0", "1"]
    assert (found["0"]["number"], found["0"]["operation"]) == (2, "gloo:broadcast")
    assert (found["1"]["number"], found["1"]["is_unfinished"]) == (8, False)


def test_a_name_that_looks_like_json_and_entries_of_another_form_do_no_harm() -> None:
    torch = Recorder()
    strange = '"},{"collective_seq_id":9,"pg_id":0'
    torch.entries = [entry(1, process_group=["0", strange]), {"collective_seq_id": 2}]

    found = newest_entries(torch.dump(includeCollectives=True), ["0"])

    assert found["0"]["number"] == 1
    assert found["0"]["description"] == strange[:64]


def test_of_nccl_only_the_numbers_are_read() -> None:
    """For its entries torch asks CUDA for the state of events."""
    clock, gloo, nccl = Clock(), Recorder(), Recorder()
    nccl.status = {"0": (18, 16)}
    reader = FlightRecorder(clock, gloo.dump, nccl.dump)  # type: ignore[arg-type]
    reader.show()
    clock.now_ns += STILL_NS + ENTRIES_NS

    assert reader.show() == [
        {
            "id": "nccl:0",
            "enqueued": 18,
            "completed": 16,
            "unchanged_ns": STILL_NS + ENTRIES_NS,
        }
    ]
    assert nccl.calls == [False, False]
    assert True not in gloo.calls


def test_many_groups_are_bounded_and_another_form_is_a_reason() -> None:
    clock, torch = Clock(), Recorder()
    torch.status = {str(group): (1, 1) for group in range(40)}
    reader = FlightRecorder(clock, torch.dump)  # type: ignore[arg-type]

    assert len(reader.show()) == GROUPS
    torch.status = {str(group): (1, 1) for group in range(400)}
    with pytest.raises(ValueError, match="bytes"):
        reader.show()
    for text in (b"{}", b'{"pg_status": []}', b'{"pg_status": {"0": {}}}', b"[]", b"nothing"):
        with pytest.raises(ValueError, match=r"form|Expecting"):
            FlightRecorder(clock, lambda text=text, **_: text).show()  # type: ignore[arg-type]


class Session:
    def __init__(self) -> None:
        self.system = Clock()
        self.patcher = self
        self.prepared: Any = None
        self.missing: dict[str, str] = {}
        self.gauges: dict[str, Any] = {}

    def drop_gauges(self, *names: str) -> None:
        for name in names:
            self.gauges.pop(name, None)


def c10d() -> Any:
    module: Any = ModuleType("distributed_c10d")
    module._new_process_group_helper = lambda *args, **kwargs: ("group", args, kwargs)
    module._world = ModuleType("_world")
    module._world.pg_map = {}
    return module


def test_groups_are_noted_when_they_are_made_and_the_function_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "DUMP", "_of_no_version_of_torch")
    session: Any = Session()
    module = c10d()
    original = module._new_process_group_helper
    undo = distributed.follow_groups(module, session)
    assert session.gauges == {}

    make = module._new_process_group_helper
    assert make(2, 1, [], "gloo", None, "0", group_desc="default_pg")[0] == "group"
    make(2, 0, [1, 3], "gloo", None, group_name="1")
    make(2, None, [0, 2], "gloo", None, "2")  # one of other ranks
    make("what", 0)  # not as torch calls it

    told = session.gauges["collectives"]()
    assert told["groups"] == {
        "0": {"size": 2, "rank": 1, "ranks": "0, 1", "backend": "gloo"},
        "1": {"size": 2, "rank": 0, "ranks": "1, 3", "backend": "gloo"},
    }
    assert "no flight recorder" in told["error"]
    assert "ValueError" in session.missing["collectives"]
    undo()
    assert module._new_process_group_helper is original
    assert session.gauges == {}


def test_groups_made_before_the_hook_are_read_and_an_exception_passes_unchanged() -> None:
    class Group:
        def rank(self) -> int:
            return 1

    def fails(*_: Any) -> None:
        raise KeyError("mine")

    session: Any = Session()
    module = c10d()
    module._new_process_group_helper = fails
    group = Group()
    world = module._world
    world.pg_map = {group: ("gloo", None)}
    world.pg_names, world.pg_group_ranks = {group: "0"}, {group: {0: 0, 1: 1, 2: 2}}
    distributed.follow_groups(module, session)

    facts = session.gauges["collectives"]()["groups"]
    assert facts == {"0": {"size": 3, "rank": 1, "ranks": "0, 1, 2", "backend": "gloo"}}
    with pytest.raises(KeyError, match="mine"):
        module._new_process_group_helper(1, 0, [], "gloo", None)
