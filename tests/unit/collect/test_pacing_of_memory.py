from __future__ import annotations

from mpwatch.collect.pacing import Due
from mpwatch.collect.tree import _most_urgent
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
