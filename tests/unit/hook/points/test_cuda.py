from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mpwatch.hook import checks, requests
from mpwatch.hook.points.cuda import add_allocator_gauge, count_sends
from mpwatch.hook.session import Session
from tests.unit.hook.conftest import POINTS


class Cuda(ModuleType):
    """A stand-in for `torch.cuda`; reading its memory initialises it."""

    def __init__(self) -> None:
        super().__init__("torch.cuda")
        self._initialized = False
        self._queued_calls: list[Any] = []

    def _is_in_bad_fork(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._initialized = True
        return lambda *_: 0


def test_gauges_never_initialise_cuda(session: Session) -> None:
    module = Cuda()
    for point in POINTS.values():
        if point.module == "torch.cuda":
            point.install(module, session)

    gauges = requests.read_gauges(session, ["cuda"])

    assert module._initialized is False
    assert "cuda" not in gauges


def test_a_program_that_initialises_cuda_is_noted_and_then_read(session: Session) -> None:
    module = Cuda()
    for point in POINTS.values():
        if point.module == "torch.cuda":
            point.install(module, session)
    module._initialized = True
    for call, _ in module._queued_calls:
        call()

    assert [b"cuda-init" in data for _, data in session.notes.since(0)] == [True]
    assert requests.read_gauges(session, ["cuda"])["cuda"]["allocated"] == 0


@pytest.mark.parametrize(("unreleased", "is_noted"), [(2, True), (0, False)])
def test_an_exit_with_tensors_that_others_still_use_is_noted(
    session: Session, unreleased: int, is_noted: bool
) -> None:
    """Only once the program has joined its children, which may use them until then."""
    session.state = "on"
    session.gauges["cuda_lent"] = lambda: {"sent": 3, "unreleased": unreleased, "bytes": 64}

    session.note_end()
    assert list(session.notes.since(0)) == []
    session.close("exit")

    assert [b"cuda-lent" in data for _, data in session.notes.since(0)] == [True] * is_noted


def test_a_forked_child_has_not_sent_what_its_parent_has(session: Session) -> None:
    session.state = "on"
    session.gauges["cuda_lent"] = lambda: {"sent": 3, "unreleased": 2, "bytes": 64}

    session.reset_in_child()
    session.close("exit")

    assert "cuda_lent" not in requests.read_gauges(session, [])
    assert list(session.notes.since(0)) == []


def test_an_exit_is_not_disturbed_by_a_gauge_that_fails(session: Session) -> None:
    def fails() -> None:
        raise OSError(5, "no device")

    session.state = "on"
    session.gauges["cuda_lent"] = fails
    session.close("exit")

    assert list(session.notes.since(0)) == []


def test_a_tensor_that_cannot_be_shared_is_noted(session: Session) -> None:
    class TypedStorage:
        def _share_cuda_(self) -> None:
            raise RuntimeError("cudaMallocAsync does not yet support shareIpcHandle")

    module = ModuleType("torch.storage")
    module.TypedStorage = TypedStorage  # type: ignore[attr-defined]
    undo = count_sends(module, session)
    with pytest.raises(RuntimeError, match="shareIpcHandle"):
        TypedStorage()._share_cuda_()
    undo()

    (noted,) = (data for _, data in session.notes.since(0))
    assert b"cuda share" in noted
    assert b"shareIpcHandle" in noted


def test_the_reading_of_the_allocator_starts_no_garbage_collection_on_the_hooks_thread(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading the code for it makes objects that the collector counts: a reserve is there first."""
    waited: list[int] = []
    monkeypatch.setattr("mpwatch.hook.checks.reserve", SimpleNamespace(wait=waited.append))
    checks.unload("cuda_allocator")
    module = Cuda()
    add_allocator_gauge(module, session)
    module._initialized = True

    session.gauges["cuda"]()

    assert waited == [checks.OBJECTS]


def test_the_allocator_is_read_only_for_a_request_that_names_it(session: Session) -> None:
    module = Cuda()
    for point in POINTS.values():
        if point.module == "torch.cuda":
            point.install(module, session)
    module._initialized = True

    assert "cuda" not in requests.answer(session, {"ask": "gauges"})  # type: ignore[operator]
    named = requests.answer(session, {"ask": "gauges", "also": ["cuda"]})
    assert named is not None
    assert named["cuda"]["reserved"] == 0
