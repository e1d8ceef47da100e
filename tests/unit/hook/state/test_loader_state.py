from __future__ import annotations

import sys
import types
import weakref
from typing import Any

import pytest

from mpwatch.hook.points import loader
from mpwatch.hook.session import Session
from mpwatch.hook.state.loader_state import LoaderStates

PID = 7


class Queue:
    """A stand-in for an object that only the iterator references."""


class Worker:
    pid = 11


class Iterator:
    """A DataLoader iterator with three batches sent to workers, one of which was returned early."""

    def __init__(self) -> None:
        self._worker_result_queue = Queue()
        self._num_workers = 2
        self._prefetch_factor = 2
        self._persistent_workers = False
        self._pin_memory = False
        self._workers = [Worker(), Worker()]
        self._dataset = [0]
        self._rcvd_idx = 4
        self._tasks_outstanding = 2
        self._task_info: dict[int, Any] = {4: (0,), 5: (1, "a batch"), 6: (0,)}


@pytest.fixture
def readings() -> LoaderStates:
    return LoaderStates(PID)


def row_of(readings: LoaderStates) -> dict[str, Any]:
    rows = readings.show()
    assert rows is not None
    (row,) = rows
    return row


def test_a_row_has_the_position_of_an_iterator_when_it_is_read(readings: LoaderStates) -> None:
    iterator = Iterator()
    readings.of(iterator).begin(iterator)

    assert row_of(readings) == {
        "key": 1,
        "batches": 0,
        "waiting_since_ns": None,
        "workers": 2,
        "prefetch": 2,
        "persistent": False,
        "pin_memory": False,
        "pids": [11, 11],
        "dataset": "list",
        "batch_size": None,
        "rcvd": 4,
        "outstanding": 2,
        "parked": 1,
        "owner": 0,
    }

    iterator._rcvd_idx = 5
    iterator._task_info.pop(4)

    assert (row_of(readings)["rcvd"], row_of(readings)["owner"]) == (5, 1)


def test_following_an_iterator_keeps_none_of_its_objects_alive(readings: LoaderStates) -> None:
    iterator = Iterator()
    readings.of(iterator).begin(iterator)
    itself, content = weakref.ref(iterator), weakref.ref(iterator._worker_result_queue)

    readings.end(iterator)
    del iterator

    assert itself() is None
    assert content() is None
    assert readings.show() is None


def test_no_reference_to_the_iterator_is_kept(readings: LoaderStates) -> None:
    iterator = Iterator()
    before = sys.getrefcount(iterator)
    readings.of(iterator).begin(iterator)
    readings.show()

    assert sys.getrefcount(iterator) == before


def test_a_forked_child_neither_shows_nor_references_iterators_of_its_parent(
    readings: LoaderStates,
) -> None:
    iterator = Iterator()
    readings.of(iterator).begin(iterator)
    content = weakref.ref(iterator._worker_result_queue)

    readings.reset_in_child(PID + 1)
    del iterator

    assert content() is None
    assert readings.show() is None


def test_only_a_position_that_another_torch_version_keeps_elsewhere_is_missing(
    readings: LoaderStates,
) -> None:
    iterator = Iterator()
    del iterator._tasks_outstanding
    readings.of(iterator).begin(iterator)

    row = row_of(readings)
    assert row["workers"] == 2
    assert "rcvd" not in row
    with pytest.raises(AttributeError, match="_tasks_outstanding"):
        readings.of(iterator).positions()


def test_a_detached_hook_drops_all_iterators_and_adds_none(
    session: Session,
) -> None:
    undo = loader.add_gauges(types.ModuleType("torch.utils.data.dataloader"), session)
    one, other = Iterator(), Iterator()
    loader.begin(session, session.loaders.of(one), one)

    undo()
    session.state = "off"
    loader.begin(session, session.loaders.of(other), other)
    contents = [weakref.ref(each._worker_result_queue) for each in (one, other)]
    del one, other

    assert [content() for content in contents] == [None, None]
    assert "loaders" not in session.gauges


def test_the_size_of_batches_is_read_from_their_sampler_without_its_code(
    readings: LoaderStates,
) -> None:
    class Sampler:
        def __init__(self) -> None:
            self.batch_size = 32

        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

    iterator = Iterator()
    vars(iterator)["_index_sampler"] = Sampler()
    readings.of(iterator).begin(iterator)

    assert row_of(readings)["batch_size"] == 32
