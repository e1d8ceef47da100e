"""When a thread may be stopped: what is seen of its system call before."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from mpwatch.attach.native import pending_call
from mpwatch.attach.native.pending_call import CpuTime
from mpwatch.attach.outcomes import Refused

PIDS = itertools.count((1 << 22) + 1)
"""Larger than any of Linux, and each used once: what was seen of a process is remembered."""
WRITE = (1, 5, 0, 1 << 20, 0, 0, 0)
MACHINE: Any = SimpleNamespace(sending=frozenset((1,)), connect=42)


class Runnable:
    """A thread that waits for a cpu, and then is in a call, computes, or runs in the kernel."""

    def __init__(
        self, waits_s: float, call: tuple[int, ...] = (), kernel_share: float = 0.0
    ) -> None:
        self.now_s, self.waits_s = 50.0, waits_s
        self._call, self._kernel_share = call, kernel_share

    @property
    def ran_s(self) -> float:
        return max(0.0, self.now_s - 50.0 - self.waits_s)

    def call(self, pid: int) -> tuple[int, ...]:
        return self._call if self.ran_s else ()

    def cpu_time(self, pid: int) -> CpuTime:
        system_s = self.ran_s * self._kernel_share
        is_running = not (self.ran_s and self._call)
        return CpuTime(is_running, int(100 * (self.ran_s - system_s)), int(100 * system_s))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


def look_at(thread: Runnable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_call, "blocked_call", thread.call)
    monkeypatch.setattr(pending_call, "cpu_time", thread.cpu_time)
    monkeypatch.setattr(pending_call, "time", thread)
    memory: Any = None
    pending_call.require_no_transfer(next(PIDS), MACHINE, memory)


def test_a_thread_that_waits_for_a_cpu_is_looked_at_until_it_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Runnable(0.05, WRITE)

    with pytest.raises(Refused, match="part of the data transferred"):
        look_at(thread, monkeypatch)


@pytest.mark.parametrize("waits_s", [0.0, 0.05])
def test_a_thread_that_computes_is_looked_at_until_that_was_seen(
    waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = Runnable(waits_s)

    look_at(thread, monkeypatch)

    ran_s = pending_call.RUNS_TICKS / 100
    assert thread.now_s - 50.0 == pytest.approx(waits_s + ran_s, abs=0.003)


@pytest.mark.parametrize(
    ("thread", "reason"),
    [
        (Runnable(0.0, kernel_share=1.0), "in the kernel all the time"),
        (Runnable(0.0, kernel_share=0.9), "in the kernel all the time"),
        (Runnable(0.27, kernel_share=0.6), "in the kernel all the time"),  # one tick of each
        (Runnable(10.0), "has not been on a cpu"),
    ],
)
def test_a_thread_that_was_not_seen_outside_the_kernel_is_not_stopped(
    thread: Runnable, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        look_at(thread, monkeypatch)

    assert refused.value.passes
    assert thread.now_s - 50.0 == pytest.approx(pending_call.RUNS_WITHIN_S, abs=0.003)


def test_a_thread_that_computes_between_its_calls_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Runnable(0.0, kernel_share=0.7)

    look_at(thread, monkeypatch)

    assert thread.now_s - 50.0 == pytest.approx(pending_call.RUNS_WITHIN_S, abs=0.003)
