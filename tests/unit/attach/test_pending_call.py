"""When a thread may be stopped: what is seen of its system call before."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from mpwatch.attach.native import pending_call
from mpwatch.attach.outcomes import Refused

PIDS = itertools.count((1 << 22) + 1)
"""Larger than any of Linux, and each used once: what was seen of a process is remembered."""
WRITE = (1, 5, 0, 1 << 20, 0, 0, 0)
MACHINE: Any = SimpleNamespace(sending=frozenset((1,)), connect=42)


class Runnable:
    """A thread that waits for a cpu, and is in a call each time it has run."""

    def __init__(self, waits_s: float, call: tuple[int, ...]) -> None:
        self.now_s, self.waits_s, self._call = 50.0, waits_s, call

    @property
    def has_run(self) -> bool:
        return self.now_s >= 50.0 + self.waits_s

    def call(self, pid: int) -> tuple[int, ...]:
        return self._call if self.has_run else ()

    def ran(self, pid: int) -> bytes:
        return b"2" if self.has_run else b"1"

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


def look_at(thread: Runnable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_call, "blocked_call", thread.call)
    monkeypatch.setattr(pending_call, "time_on_cpu", thread.ran)
    monkeypatch.setattr(pending_call, "time", thread)
    memory: Any = None
    pending_call.require_no_transfer(next(PIDS), MACHINE, memory)


def test_a_thread_that_waits_for_a_cpu_is_looked_at_until_it_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Runnable(0.05, WRITE)

    with pytest.raises(Refused, match="part of the data transferred"):
        look_at(thread, monkeypatch)


@pytest.mark.parametrize("waits_s", [0.002, 0.05, 10.0])
def test_a_thread_that_is_in_no_transfer_is_looked_at_for_a_bounded_time(
    waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = Runnable(waits_s, ())

    look_at(thread, monkeypatch)

    looked_s = thread.now_s - 50.0
    assert looked_s == pytest.approx(min(waits_s, pending_call.RUNS_WITHIN_S), abs=0.003)
