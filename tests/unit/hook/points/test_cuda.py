from __future__ import annotations

from types import ModuleType
from typing import Any

from mpwatch.hook import requests
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
