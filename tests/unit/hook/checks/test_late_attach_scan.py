from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.util
import sys
import types
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from typing import Any

import pytest

from mpwatch.hook.checks import late_attach_scan
from mpwatch.hook.checks.late_attach_scan import LateAttachScan
from mpwatch.hook.safe.exact import key_of
from mpwatch.hook.session import Session

CONTEXT = multiprocessing.get_context("fork")


class Derived(SimpleQueue):  # type: ignore[type-arg]
    pass


class Liar:
    """Has a false `__class__`, and fails the test if that is read."""

    asked = 0

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        Liar.asked += 1
        return SimpleQueue


@pytest.fixture(autouse=True)
def _only_what_a_test_makes() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def taken() -> tuple[Session, dict[str, Any]]:
    session = Session("attach")
    found = LateAttachScan(session)
    found.take()
    return session, found.summary


@pytest.mark.parametrize("registered", [[], [multiprocessing.util.ForkAwareLocal()]])
def test_a_program_without_locks_and_queues_is_not_searched(
    registered: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_attach_scan, "registered_for_forks", registered.copy)
    monkeypatch.setattr(gc, "get_referrers", None)

    _, summary = taken()

    assert (summary["queues"], summary["loaders"], summary["problem"]) == (0, 0, None)


def test_a_program_with_a_lock_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_attach_scan, "registered_for_forks", [CONTEXT.Lock()].copy)
    monkeypatch.setattr(gc, "get_referrers", None)

    assert "TypeError" in taken()[1]["problem"]


def test_a_worker_of_a_loader_is_not_searched_but_for_queues_in_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = types.SimpleNamespace(_worker_info=types.SimpleNamespace(id=3))
    monkeypatch.setitem(sys.modules, "torch.utils.data._utils.worker", worker)
    monkeypatch.setattr(gc, "get_referrers", None)
    _, before = taken()
    simple, full = CONTEXT.SimpleQueue(), CONTEXT.Queue(5)

    session, summary = taken()

    assert session.worker.is_worker
    assert (summary["queues"] - before["queues"], summary["problem"]) == (1, None)
    del simple, full


def test_a_program_whose_workers_are_threads_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    info = types.SimpleNamespace(id=3, worker_method="thread")
    worker = types.SimpleNamespace(_worker_info=info)
    monkeypatch.setitem(sys.modules, "torch.utils.data._utils.worker", worker)
    _, before = taken()
    simple = CONTEXT.SimpleQueue()

    session, summary = taken()

    assert not session.worker.is_worker
    assert summary["queues"] - before["queues"] == 1
    del simple


def test_queues_are_found_wherever_they_are_held() -> None:
    _, before = taken()
    simple, derived, full = CONTEXT.SimpleQueue(), Derived(ctx=CONTEXT), CONTEXT.Queue(5)
    liar = Liar()

    def hold() -> tuple[object, ...]:
        return simple, derived

    session, summary = taken()

    assert summary["queues"] - before["queues"] == 3
    assert {key_of(each) for each in (*hold(), full)} <= set(session.items.depths.known)
    assert Liar.asked == 0
    assert isinstance(liar, SimpleQueue)
    full.close()


def test_a_program_with_too_many_objects_is_not_searched_and_the_hello_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = CONTEXT.Queue()
    monkeypatch.setattr(late_attach_scan, "BLOCKS_LIMIT", 1000)
    monkeypatch.setattr(gc, "get_referrers", None)

    session, summary = taken()

    assert "was left out" in summary["problem"]
    assert session.problems == [f"on arrival: {summary['problem']}"]
    assert key_of(full) in session.items.depths.known
    full.close()


def test_the_scan_stops_at_its_time_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = [CONTEXT.SimpleQueue() for _ in range(3)]
    monkeypatch.setattr(late_attach_scan, "BUDGET_NS", -1)

    session, summary = taken()

    assert summary["queues"] == 0
    assert "no more time" in summary["problem"]
    assert len(queues) == 3
    assert session.problems


def test_a_scan_step_that_fails_does_not_prevent_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> list[Any]:
        raise AttributeError("_afterfork_registry")

    monkeypatch.setattr(late_attach_scan, "registered_for_forks", fail)

    _, summary = taken()

    assert summary["problem"] == "queues and loaders: AttributeError: _afterfork_registry"
