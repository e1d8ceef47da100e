from __future__ import annotations

import multiprocessing.queues

from tests.benchmarks.hook_floor import Floor


def test_wrappers_that_do_nothing_are_set_where_the_hook_has_its_own_and_taken_out_again() -> None:
    before = multiprocessing.queues.Queue.put
    floor = Floor()

    assert floor.install() > 0
    assert multiprocessing.queues.Queue.put is not before

    floor.uninstall()
    assert multiprocessing.queues.Queue.put is before
