from __future__ import annotations

import multiprocessing
import os
from multiprocessing import synchronize
from typing import Any

from tests.unit.hook.conftest import POINTS
from tests.unit.hook.points.test_points_alone import Session


def addresses(*made: object) -> set[int]:
    return {each._semlock.handle for each in made}  # type: ignore[attr-defined]


def gauge() -> dict[str, Any]:
    """What the gauge of the hook says of this process."""
    session: Any = Session()
    POINTS["locks gauge"].install(synchronize, session)
    found: dict[str, Any] = session.gauges["locks"]()
    return found


def held() -> set[int]:
    return set(gauge()["held"])


def test_a_lock_is_held_from_acquire_to_release() -> None:
    context = multiprocessing.get_context("fork")
    lock, recursive, other = context.Lock(), context.RLock(), context.Lock()

    assert not held() & addresses(lock, recursive, other)
    with lock, recursive, recursive:
        assert held() & addresses(lock, recursive, other) == addresses(lock, recursive)
    assert not held() & addresses(lock, recursive, other)


def test_semaphores_that_count_are_no_locks() -> None:
    context = multiprocessing.get_context("fork")
    places, queue = context.BoundedSemaphore(1), context.Queue(1)

    places.acquire()
    queue.put(1)

    assert not held() & addresses(places, queue._sem)  # type: ignore[attr-defined]
    places.release()
    assert queue.get() == 1
    queue.close()
    queue.join_thread()


def test_a_lock_that_another_process_releases_or_inherits_is_not_held() -> None:
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    lock.acquire()

    child = context.Process(target=_release_and_tell, args=(lock,))
    child.start()
    child.join()

    assert child.exitcode == 0, "the child took what its parent held for its own"
    assert not held() & addresses(lock)


def _release_and_tell(lock: object) -> None:
    was_held = bool(held() & addresses(lock))
    lock.release()  # type: ignore[attr-defined]
    os._exit(was_held)


def test_the_gauge_is_added_and_removed() -> None:
    session: Any = Session()

    undo = POINTS["locks gauge"].install(synchronize, session)

    assert session.gauges.keys() == {"locks"}
    undo()
    assert session.gauges == {}
