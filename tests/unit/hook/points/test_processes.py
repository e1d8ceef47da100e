from __future__ import annotations

import multiprocessing
import pickle
from typing import Any

import pytest

from mpwatch.hook.points import processes
from mpwatch.hook.session import Session

Birth = dict[str, Any]


class Method(str):
    """A string of the program: a spawned child cannot load it before its main module."""


class Text(str):
    """A string that may not be formatted or compared."""

    def __format__(self, spec: str) -> str:
        raise AssertionError

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = str.__hash__


def _worker_loop(*parts: object) -> None:
    """A function of the program with the name of one of torch's."""


def torchs_worker_loop(*parts: object) -> None:
    """A stand-in for torch's."""


torchs_worker_loop.__module__ = "torch.utils.data._utils.worker"
torchs_worker_loop.__qualname__ = "_worker_loop"


def birth_of(session: Session, process: Any) -> Birth:
    """The birth that the start of a process has, which is not started."""
    found: list[Birth] = []

    def start(self: Any) -> None:
        found.extend(session.births.values())

    processes.wrap_start(start, session)(process)
    return found[0]


def of_the_program(birth: Birth) -> list[str]:
    """The names of what is no exact string, number, truth value or None."""
    return [
        name for name, value in birth.items() if type(value) not in (str, int, bool, type(None))
    ]


@pytest.mark.parametrize(
    ("target", "last", "worker_id"),
    [
        (_worker_loop, 4, None),
        (_worker_loop, Method("4"), None),
        (torchs_worker_loop, Method("4"), None),
        (torchs_worker_loop, True, None),
        (torchs_worker_loop, 4, 4),
    ],
)
def test_only_torchs_own_worker_loop_makes_a_worker_of_a_loader(
    session: Session, target: Any, last: object, worker_id: int | None
) -> None:
    context = multiprocessing.get_context("spawn")

    birth = birth_of(session, context.Process(target=target, args=(*range(10), last)))

    assert birth["worker_id"] == worker_id
    assert (birth["loader"] is None) == (worker_id is None)
    assert (session.loaders.show() is None) == (worker_id is None)
    assert of_the_program(birth) == []


def test_no_object_of_the_program_gets_into_the_birth_of_a_child(session: Session) -> None:
    kind: Any = multiprocessing.get_context("spawn").Process

    class Named(kind):  # type: ignore[misc]
        _start_method = Method("spawn")

    def work() -> None:
        pass

    work.__qualname__ = Text("work")
    Named.__qualname__ = Text("Named")
    for process in (Named(target=work, name=Method("named")), Named()):
        process._config["daemon"] = Method("yes")

        birth = birth_of(session, process)

        assert of_the_program(birth) == []
        assert birth["target"] == f"{__name__}.{'work' if process._target else 'Named'}"
        assert pickle.loads(pickle.dumps(birth)) == birth


class Popen:
    """What a library has put in place of the handle of a process."""

    def __init__(self) -> None:
        self.method, self.pid, self.returncode, self._fds = ["spawn"], "17", "0", 3


def test_a_process_with_a_handle_of_another_kind_starts_and_is_joined(session: Session) -> None:
    process: Any = multiprocessing.get_context("spawn").Process()

    def start(self: Any) -> str:
        self._popen = Popen()
        return "started"

    def join(self: Any) -> str:
        return "joined"

    assert processes.wrap_start(start, session)(process) == "started"
    assert processes.wrap_join(join, session)(process) == "joined"
