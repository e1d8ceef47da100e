from __future__ import annotations

from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookNote, HookSlice
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, sample, tree

CHILD = 555


def start(at_s: float, **more: Any) -> HookNote:
    data = {"pid": CHILD, "method": "fork", "worker_id": None, **more}
    return HookNote(MAIN, int(at_s * 1e9), "start", data)


def joined(at_s: float, code: int, pid: int = CHILD) -> HookSlice:
    aux = wire.EXIT_BASE + code
    event = HookEvent(1, int(at_s * 1e9), wire.PROCESS_JOIN, 1, 0, 0, pid, 0, aux, 0)
    return HookSlice(MAIN, at_s, (event,), 0)


def children(*inputs: Any, until_s: float = 20.0) -> list[Process]:
    fold = Fold()
    fold.apply(tree(11.0, sample(MAIN, 11.0)))
    for each in inputs:
        fold.apply(each)
    fold.apply(tree(until_s, sample(MAIN, until_s)))
    return [process for process in fold.snapshot().processes if process.process != MAIN]


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3"), (-11, "signal 11 (SIGSEGV)")])
def test_a_child_that_failed_between_two_readings_is_known_from_its_parent(
    code: int, words: str
) -> None:
    (child,) = children(start(12.0), joined(12.1, code))

    assert child.process == ProcessId(CHILD, 1200)
    assert child.parent == MAIN
    assert child.role == "spawned"
    assert child.ended is not None
    assert child.ended.words == words


def test_a_child_that_left_notes_of_its_own_is_the_process_that_wrote_them() -> None:
    itself = ProcessId(CHILD, 1207)
    note = HookNote(itself, int(12.05e9), "exception", {"text": "queue.Full"})

    (child,) = children(start(12.0), note, joined(12.1, 1))

    assert child.process == itself


def test_notes_of_an_earlier_process_with_the_pid_are_not_those_of_the_child() -> None:
    note = HookNote(ProcessId(CHILD, 400), int(5e9), "exception", {"text": "queue.Full"})

    (child,) = children(start(12.0), note, joined(12.1, 1))

    assert child.process == ProcessId(CHILD, 1200)


def test_a_short_lived_loader_worker_has_its_role() -> None:
    (child,) = children(start(12.0, worker_id=3), joined(12.1, 1))

    assert (child.role, child.label) == ("loader-worker", "worker 3")


@pytest.mark.parametrize(
    "inputs",
    [
        (start(12.0), joined(12.1, 0)),
        (start(12.0),),
        (joined(12.1, 3),),
        (start(12.0), joined(12.1, 3, pid=9)),
        (start(12.0, pid=None), joined(12.1, 3)),
        (start(19.5), joined(19.6, 3)),
    ],
    ids=["ended well", "not joined", "not started", "another", "no pid", "may be read yet"],
)
def test_values_that_were_not_reported_are_unknown(inputs: tuple[Any, ...]) -> None:
    assert children(*inputs) == []


def test_a_child_that_was_read_is_not_added_twice() -> None:
    fold = Fold()
    child = ProcessId(CHILD, 1201)
    fold.apply(tree(11.0, sample(MAIN, 11.0)))
    fold.apply(start(12.0))
    fold.apply(tree(12.5, sample(MAIN, 12.5), sample(child, 12.5, parent=MAIN.pid)))
    fold.apply(joined(13.0, 3))
    fold.apply(tree(20.0, sample(MAIN, 20.0)))

    assert [p.process for p in fold.snapshot().processes] == [MAIN, child]
