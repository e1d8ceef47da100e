from __future__ import annotations

import gc
import json
import multiprocessing
import operator
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from mpwatch.hook import requests
from mpwatch.hook.safe import one_call
from mpwatch.hook.session import Session
from mpwatch.hook.state.queue_sampling import QUEUES_LIMIT


class Thing:
    """Takes part in cycles, and is counted by the collector."""


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The threads on which a collection began; the thresholds are the interpreter's own."""
    seen: list[int] = []

    def note(phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            seen.append(threading.get_ident())

    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.collect()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*before)


def fill_to(left: int) -> list[Thing]:
    """Allocate until so many more objects are allowed before a collection."""
    kept: list[Thing] = []
    while gc.get_count()[0] < 700 - left:
        kept.append(Thing())
    return kept


def on_a_thread(call: Any) -> int:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert thread.ident is not None
    return thread.ident


@pytest.mark.parametrize("has_reserve", [True, False])
def test_with_a_reserve_an_answer_starts_no_collection(
    collections: list[int], has_reserve: bool
) -> None:
    reserve = one_call.Reserve()
    reserve.fill()
    gc.collect()
    kept: list[Thing] = []

    def answer() -> None:
        kept.extend(fill_to(20))
        if has_reserve:
            reserve.wait()
        kept.extend([Thing() for _ in range(one_call.AT_A_TIME - 20)])

    ident = on_a_thread(answer)

    assert (ident in collections) is not has_reserve


@pytest.mark.parametrize("left", [100, 120])
def test_gauges_of_many_queues_start_no_collection(
    collections: list[int], session: Session, left: int
) -> None:
    queues: list[Any] = [multiprocessing.Queue() for _ in range(QUEUES_LIMIT)]
    for queue in queues:
        session.items.depths.add(queue)
    session.gauges["queues"] = session.items.depths.show
    one_call.reserve.fill()
    gc.collect()
    kept: list[Thing] = []
    read: list[dict[str, Any]] = []

    def answer() -> None:
        kept.extend(fill_to(left))
        one_call.reserve.wait()
        read.append(requests.read_gauges(session, []))

    ident = on_a_thread(answer)

    assert len(read[0]["queues"]) == QUEUES_LIMIT
    assert ident not in collections


def test_without_room_and_reserve_it_waits_for_the_program_to_collect(
    collections: list[int],
) -> None:
    reserve = one_call.Reserve()
    kept = fill_to(100)
    thread = threading.Thread(target=reserve.wait)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()

    kept.extend([Thing() for _ in range(200)])
    thread.join(10)

    assert not thread.is_alive()
    assert thread.ident not in collections


def test_it_waits_once_for_a_program_that_is_idle_and_again_after_a_collection(
    collections: list[int],
) -> None:
    pauses_s: list[float] = []
    reserve = one_call.Reserve()
    reserve._sleep = pauses_s.append
    kept = fill_to(50)

    reserve.wait()
    assert one_call.WAIT_S <= sum(pauses_s) < 2 * one_call.WAIT_S
    assert len(pauses_s) < 100
    pauses_s.clear()
    for _ in range(5):
        reserve.wait()
    assert pauses_s == []

    kept.extend(Thing() for _ in range(60))
    assert collections
    reserve.wait()  # the reserve suffices
    assert pauses_s == []
    reserve._objects.clear()
    kept.extend(fill_to(50))
    reserve.wait()
    assert pauses_s != []


def test_the_object_of_a_weak_reference_is_read_without_a_new_reference() -> None:
    thing = Thing()
    thing.size = 3  # type: ignore[attr-defined]
    reference = weakref.ref(thing)

    assert one_call.through((reference,), one_call.dereference, operator.attrgetter("size")) == [3]
    del thing
    assert reference() is None


def test_stacks_are_json_with_names_of_threads_and_of_other_alphabets() -> None:
    ready, done = threading.Event(), threading.Event()

    def größe() -> None:
        ready.set()
        done.wait()

    thread = threading.Thread(target=größe, name='a "name" ü')
    thread.start()
    ready.wait()
    try:
        rows = {row["name"]: row for row in json.loads(one_call.stacks_as_json())}
    finally:
        done.set()
        thread.join()

    row = rows['a "name" ü']
    assert row["tid"] == thread.native_id
    assert [__file__ for frame in row["frames"] if frame[0] == "größe" and frame[1] == __file__]
    assert "MainThread" not in rows  # the requesting thread is left out


def test_names_of_threads_are_read_where_a_library_has_replaced_their_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Derived(threading.Thread):
        pass

    monkeypatch.setattr(threading, "Thread", Derived)
    assert "MainThread" in one_call.thread_table("_name").values()


@pytest.mark.parametrize("replaced", [object(), int, None])
def test_stacks_have_no_class_names_where_a_library_has_replaced_the_class(
    replaced: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "Thread", replaced)
    assert one_call.thread_table("_name") == {}
    assert isinstance(json.loads(one_call.stacks_as_json()), list)
