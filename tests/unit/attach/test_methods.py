"""What the methods of an injection read of a target; here it is this process itself."""

from __future__ import annotations

import os

import pytest

from mpwatch.attach import methods
from mpwatch.attach.native import code_cave, tracer
from mpwatch.attach.outcomes import Refused
from mpwatch.attach.payload.exchange_dir import ExchangeDir
from mpwatch.attach.target import read_target
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
from tests import procfs

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
