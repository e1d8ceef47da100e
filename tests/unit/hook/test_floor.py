from __future__ import annotations

import multiprocessing.queues

from tests.benchmarks.hook_floor import Floor


def test_empty_wrappers_are_set_at_every_point_of_the_hook_and_removed_again() -> None:
    before = multiprocessing.queues.Queue.put
    floor = Floor()

    assert floor.install() > 0
    assert multiprocessing.queues.Queue.put is not before

    floor.uninstall()
    assert multiprocessing.queues.Queue.put is before
