from __future__ import annotations

import multiprocessing.queues
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.points import queues
from mpwatch.hook.safe.exact import key_of
from mpwatch.hook.session import Session
from mpwatch.hook.state.queue_sampling import APART_NS, EVERY
from tests.builders.clock import NanosecondClock


class Queue:
    """A stand-in for a queue of the standard library, whose calls take as long as a test says."""

    def __init__(self, clock: NanosecondClock) -> None:
        self.clock = clock
        self.takes_ns = 0

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        self.clock.now_ns += self.takes_ns

    def get(self, block: bool = True, timeout: float | None = None) -> str:
        self.clock.now_ns += self.takes_ns
        return "an item"


@pytest.fixture
def clock() -> NanosecondClock:
    # Behind the clock of the records, so that no record ends before it began.
    return NanosecondClock(1)


@pytest.fixture
def session(session: Session, clock: NanosecondClock) -> Session:
    session.system.monotonic_ns = clock
    return session


def wrapped(
    session: Session, clock: NanosecondClock, name: str
) -> tuple[Queue, Callable[..., Any]]:
    """A queue, and its `put` or its `get` with the hook in, called once."""
    queue = Queue(clock)
    make = {"put": queues.wrap_put, "get": queues.wrap_get}[name]
    call = make(getattr(Queue, name), session)
    arguments = ("an item",) if name == "put" else ()

    def again(queue: Queue = queue) -> None:
        clock.now_ns += 1
        call(queue, *arguments)

    again()
    return queue, again


def numbers(session: Session) -> list[int]:
    """The numbers of the recorded calls."""
    data, _ = session.ring.slice_of(0, session.ring.handed_out())
    return [row[9] for row in wire.RECORD.iter_unpack(data)]


@pytest.mark.parametrize("name", ["put", "get"])
def test_a_quick_call_is_recorded_with_a_count_once_the_last_record_is_old(
    session: Session, clock: NanosecondClock, name: str
) -> None:
    _, call = wrapped(session, clock, name)
    for _ in range(5):
        call()
    assert numbers(session) == [1]

    clock.now_ns += APART_NS
    call()

    assert numbers(session) == [1, 7]


@pytest.mark.parametrize("name", ["put", "get"])
def test_a_call_that_was_blocked_is_recorded_whatever_others_do_meanwhile(
    session: Session, clock: NanosecondClock, name: str
) -> None:
    queue, call = wrapped(session, clock, name)
    queue.takes_ns = APART_NS + 1
    session.items.put_due_ns = session.items.get_due_ns = 1 << 60

    call()

    assert numbers(session) == [1, 2]


@pytest.mark.parametrize("name", ["put", "get"])
def test_the_first_call_of_each_queue_is_recorded(
    session: Session, clock: NanosecondClock, name: str
) -> None:
    _, call = wrapped(session, clock, name)
    other = Queue(clock)
    for _ in range(3):
        call(other)

    assert numbers(session) == [1, 2]
    assert key_of(other) in session.items.depths.known


def test_one_put_in_some_is_recorded_and_examined(session: Session, clock: NanosecondClock) -> None:
    _, call = wrapped(session, clock, "put")
    for _ in range(2 * EVERY):
        call()

    assert numbers(session) == [1, EVERY + 1, 2 * EVERY + 1]


@pytest.mark.parametrize("turn", ["reset_in_child", "server.start_with_next_record"])
def test_after_a_fork_the_next_call_is_recorded_in_either_process(
    session: Session, clock: NanosecondClock, turn: str
) -> None:
    _, call = wrapped(session, clock, "put")
    attrgetter(turn)(session)()
    before = session.ring.handed_out()

    call()

    assert session.ring.handed_out() == before + 1


def test_a_replacement_by_a_library_is_called_with_the_programs_arguments(
    session: Session,
) -> None:
    calls: list[Any] = []

    def put(self: Any, *args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))

    def get(self: Any, block: bool = True, timeout: float | None = 7.0) -> None:
        calls.append((block, timeout))

    queue = object()
    call = queues.wrap_put(put, session)
    call(queue, "an item")
    call(queue, obj="an item", block=False)
    queues.wrap_get(get, session)(queue)

    assert calls == [(("an item",), {}), ((), {"obj": "an item", "block": False}), (True, 7.0)]


def test_functions_of_the_standard_library_are_recognised_by_their_arguments() -> None:
    holders = (multiprocessing.queues.Queue, multiprocessing.queues.JoinableQueue)
    assert all(queues.takes(each.put, "self", "obj", "block", "timeout") for each in holders)
    assert queues.takes(multiprocessing.queues.Queue.get, "self", "block", "timeout")
    assert not queues.takes(multiprocessing.queues.SimpleQueue.put, "self", "obj")


@pytest.mark.parametrize("name", ["put", "get"])
def test_a_quick_call_adds_few_bytecodes(
    session: Session, clock: NanosecondClock, name: str
) -> None:
    _, call = wrapped(session, clock, name)
    steps = 0

    def step(frame: Any, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_filename == queues.__file__:
            steps += 1
        return step

    before = sys.gettrace()
    for _ in range(2):  # Python 3.12 reports bytecodes only from the second request on
        steps = 0
        sys.settrace(step)
        call()
        sys.settrace(before)

    # 52 in Python 3.11; a record and the call of it are as many again.
    assert 20 < steps < 70
