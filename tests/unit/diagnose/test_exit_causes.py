from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.analysis.exits.kinds import died_with_parent
from mpwatch.diagnose.analysis.index import Index
from mpwatch.model.samples import Ended
from tests.builders.snapshots import MAIN, NOW_S, main, pid, process, snapshot_of


def end(number: int, at_s: float, **how: Any) -> Ended:
    return Ended(pid(number), at_s, **how)


@pytest.mark.parametrize(
    ("parent", "child", "is_explained"),
    [
        # A scheduler sends SIGTERM to the first process and SIGKILL to what is left.
        (end(MAIN, NOW_S, signal=15), end(200, NOW_S, signal=9), True),
        (end(MAIN, NOW_S, signal=9), end(200, NOW_S + 1, signal=9), True),
        (end(MAIN, NOW_S - 10, exit_code=0), end(200, NOW_S, signal=9), True),
        # Main failed because of its worker, or ran on for long after.
        (end(MAIN, NOW_S, exit_code=1), end(200, NOW_S, signal=9), False),
        (end(MAIN, NOW_S + 60, signal=15), end(200, NOW_S, signal=9), False),
        # A crash is never requested by a signal of a user.
        (end(MAIN, NOW_S, signal=15), end(200, NOW_S, signal=11), False),
        (None, end(200, NOW_S, signal=9), False),
    ],
)
def test_an_exit_may_be_explained_by_the_exit_of_the_parent(
    parent: Ended | None, child: Ended, is_explained: bool
) -> None:
    worker = process(200, ended=child)

    index = Index(snapshot_of(main(ended=parent), worker))
    assert died_with_parent(index, worker, child) is is_explained
