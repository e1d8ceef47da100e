"""What the methods of an injection read of a target; here it is this process itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.attach import methods
from mpwatch.attach.native import code_cave, cpython_symbols, tracer
from mpwatch.attach.outcomes import Refused
from mpwatch.attach.payload.exchange_dir import ExchangeDir
from mpwatch.attach.target import read_target
from mpwatch.collect.host.host import MemoryLeft
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
from tests import procfs
from tests.unit.collect.conftest import FakeProc

UNMAPPED = 8


def test_no_descriptor_of_a_targets_memory_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dashboard asks for hours whether an injection that is pending has begun."""
    target = read_target(stat_of(os.getpid()).process)
    attempt = methods.Attempt(target)
    another = ProcessId(target.pid, target.process.start_ticks + 1)
    exchange = ExchangeDir("/run", "attach-1-1", target, True)

    def refuse(*_: object) -> None:
        raise Refused("there is no place")

    monkeypatch.setattr(code_cave, "install_code", refuse)

    for block_at in (None, UNMAPPED):
        assert not methods.cancel_call(target, block_at)
    assert not methods.call_is_under_way(target)
    assert methods.call_failure(target, UNMAPPED) == ""
    with pytest.raises(Refused, match="there is no place"):
        methods.queue_call(attempt, exchange)
    with pytest.raises(Refused, match="ended"):
        tracer.queue_here(another, None, tracer.no_step)  # type: ignore[arg-type]

    assert not any(link.endswith("/mem") for link in procfs.links(os.getpid()))


@pytest.mark.parametrize(
    ("left", "whose"),
    [
        (MemoryLeft(40 << 20, None), "its control group"),
        (MemoryLeft(None, 40 << 20), "the machine"),
    ],
)
def test_injections_at_a_time_claim_the_memory_that_each_may_take(
    monkeypatch: pytest.MonkeyPatch, left: MemoryLeft, whose: str
) -> None:
    """Each of them sees the memory as it is before the others have taken theirs."""
    target = read_target(stat_of(os.getpid()).process)
    monkeypatch.setattr(methods, "memory_left", lambda *_: left)

    with (
        methods.memory_claimed(target),
        methods.memory_claimed(target),
        pytest.raises(Refused) as refusal,
        methods.memory_claimed(target),
    ):
        pass
    with methods.memory_claimed(target):
        pass

    assert refusal.value.passes
    assert refusal.value.reason == (
        f"{whose} has only 40 MiB of memory left, and 3 injections at a time could use it up"
    )


def test_memory_of_which_nothing_is_known_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    target = read_target(stat_of(os.getpid()).process)
    monkeypatch.setattr(methods, "memory_left", lambda *_: MemoryLeft(None, None))

    methods.require_memory(target)


@pytest.mark.parametrize("left", [0, 255, 256])
def test_a_process_that_may_hardly_make_more_mappings_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: int
) -> None:
    found = cpython_symbols.find(os.getpid())
    proc = FakeProc(tmp_path)
    proc.write("sys/vm/max_map_count", f"{len(found.mappings) + left}\n")
    monkeypatch.setattr(methods, "PROC", str(proc))

    if left == 256:
        methods.require_mappings(found)
        return
    with pytest.raises(Refused) as refusal:
        methods.require_mappings(found)

    assert f"it may make only {left} mappings more (vm.max_map_count)" in refusal.value.reason


def test_without_a_known_limit_mappings_are_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(methods, "PROC", str(tmp_path))

    methods.require_mappings(cpython_symbols.find(os.getpid()))
