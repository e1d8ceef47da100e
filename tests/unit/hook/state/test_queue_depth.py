from __future__ import annotations

import multiprocessing

from mpwatch.hook.safe.exact import key_of
from mpwatch.hook.state import queue_sampling
from mpwatch.hook.state.queue_sampling import QueueDepths


def test_a_queue_has_its_number_of_items_and_its_limit() -> None:
    queue = multiprocessing.get_context("fork").Queue(5)
    seen = QueueDepths()
    seen.add(queue)
    queue.put(1)
    queue.put(2)

    (row,) = seen.show() or []

    assert (row["key"], row["maxsize"], row["depth"]) == (key_of(queue), 5, 2)
    for _ in range(2):
        queue.get(timeout=20)
    queue.close()
    queue.join_thread()


def test_a_queue_without_limit_has_none_and_one_that_is_read_is_marked() -> None:
    queue = multiprocessing.get_context("fork").Queue()
    seen = QueueDepths()
    seen.add(queue)
    with queue._rlock:  # type: ignore[attr-defined]
        (row,) = seen.show() or []

    assert (row["maxsize"], row["depth"], row["is_being_read"]) == (None, 0, True)


def test_a_queue_that_ended_is_forgotten() -> None:
    queue = multiprocessing.get_context("fork").SimpleQueue()
    seen = QueueDepths()
    seen.add(queue)
    del queue

    assert seen.show() is None


def test_no_more_queues_are_followed_than_the_limit() -> None:
    seen = QueueDepths()
    context = multiprocessing.get_context("fork")
    queues = [context.SimpleQueue() for _ in range(queue_sampling.QUEUES_LIMIT + 3)]
    for queue in queues:
        seen.add(queue)

    assert len(seen.known) == queue_sampling.QUEUES_LIMIT
