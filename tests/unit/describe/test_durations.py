from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.describe.processes import lasting_text
from mpwatch.model.account import Account
from tests.builders.snapshots import MAIN, NOW_S, main, pid, snapshot_of


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.1, "100 ms"),
        (12.0, "12 s"),
        (27.0, "at least 27 s"),  # from the second reading on
        (28.0, "at least 28 s"),
        (95.0, "95 s"),  # the hook has told its beginning
        (None, "-"),
    ],
)
def test_what_was_there_at_the_first_reading_has_lasted_at_least_that_long(
    seconds: float | None, words: str
) -> None:
    job = replace(snapshot_of(main()), account=Account(pid(MAIN), NOW_S - 28, NOW_S, 40))

    assert lasting_text(seconds, job) == words


def test_of_one_look_every_time_is_a_least_one() -> None:
    job = replace(snapshot_of(main()), account=Account(pid(MAIN), NOW_S - 1.2, NOW_S, 2))

    assert lasting_text(0.111, job) == "at least 111 ms"
    assert lasting_text(1.2, job, at_least="≥") == "≥1.2 s"


def test_where_the_beginning_of_the_watch_is_not_known_nothing_is_added() -> None:
    assert lasting_text(27.0, snapshot_of(main())) == "27 s"
