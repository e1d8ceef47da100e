from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from mpwatch.collect.job.reader import _most_urgent
from mpwatch.collect.process.schedule import MEMORY_PATIENCE, Due, MemoryTurn
from mpwatch.model.ids import ProcessId

NEVER = float("inf")
ROOT, EARLY, LATE = ProcessId(50, 10), ProcessId(60, 20), ProcessId(7, 30)


def most_urgent(count: int, **ages: float | None) -> set[ProcessId]:
    dues = {
        process: Due(None, None, ages[name])
        for name, process in (("late", LATE), ("early", EARLY), ("root", ROOT))
    }
    return set(_most_urgent(dues, lambda due: due.memory, count))


def test_what_was_never_read_comes_first_and_of_those_the_root() -> None:
    assert most_urgent(1, root=NEVER, early=NEVER, late=NEVER) == {ROOT}
    assert most_urgent(2, root=3.0, early=NEVER, late=NEVER) == {EARLY, LATE}


def test_what_is_not_due_is_not_read_even_if_there_is_room() -> None:
    assert most_urgent(3, root=None, early=1.0, late=2.0) == {EARLY, LATE}


MIB = 1 << 20
PAGES = MIB // 4096
"""Of one MiB, where a page has 4 KiB."""


def read_at(turn: MemoryTurn, course: Callable[[int], tuple[int, int]], until_s: int) -> list[int]:
    """When memory is read whose pages are touched, and whose private bytes are, as said."""
    found = []
    for second in range(until_s):
        faults, private_bytes = course(second)
        if turn.urgency((faults, 0), float(second), 30.0) is not None:
            found.append(second)
            turn.done((faults, 0), float(second), 0.0, private_bytes)
    return found


def test_memory_that_nobody_touched_is_read_again_once_it_is_very_old() -> None:
    assert read_at(MemoryTurn(), lambda second: (7, 50 * MIB), 700) == [0, 300, 600]


def test_memory_that_may_have_grown_by_a_twentieth_is_read_again() -> None:
    turn = MemoryTurn()
    grows = read_at(turn, lambda s: (s * PAGES, (100 + s) * MIB), 40)

    assert grows[:4] == [0, 20, 26, 33]
    assert turn.patience == 1


def test_faults_that_left_nothing_count_for_less_each_time_and_growth_for_all_again() -> None:
    turn = MemoryTurn()
    stays = read_at(turn, lambda second: (second * PAGES, 100 * MIB), 290)
    gaps = [later - earlier for earlier, later in pairwise(stays)]

    assert gaps == [20, 40, 80, 80]
    assert turn.patience == MEMORY_PATIENCE
    turn.done((400 * PAGES, 0), 400.0, 0.0, 110 * MIB)
    assert turn.patience == 1


def test_pages_that_came_in_as_one_are_seen_in_what_is_resident() -> None:
    turn = MemoryTurn()
    turn.done((10, 1000), 0.0, 0.0, 100 * MIB)

    assert turn.urgency((11, 1000 + 21 * PAGES), 1.0, 30.0) is not None
    assert turn.urgency((11, 1000), 1.0, 30.0) is None


def test_memory_that_may_not_be_read_waits_like_that_which_may() -> None:
    turn = MemoryTurn()
    assert turn.urgency((0, 0), 0.0, 30.0) == NEVER
    turn.done((0, 0), 0.0, 0.0, None)

    assert turn.urgency((0, 0), 5.0, 30.0) is None


def test_memory_that_is_dear_to_read_is_read_rarely_whatever_was_touched() -> None:
    turn = MemoryTurn()
    turn.done((0, 0), 0.0, 2.0, 100 * MIB)

    assert turn.urgency((1000 * PAGES, 0), 99.0, 1.0) is None
    assert turn.urgency((1000 * PAGES, 0), 101.0, 1.0) is not None
