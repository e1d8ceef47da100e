from __future__ import annotations

import json

from mpwatch.model.snapshot import Snapshot
from mpwatch.report.json import diagnose_json, text_of
from mpwatch.report.text import diagnose_text
from tests.builders.snapshots import (
    FETCHING_WORKER,
    IDLE_WORKER,
    main,
    process,
    snapshot_of,
    thread,
)


def loader(count: int, *busy: int) -> Snapshot:
    """A job with so many workers, of which these decode and the others wait."""
    stacks = {n: FETCHING_WORKER if n in busy else IDLE_WORKER for n in range(count)}
    workers = (
        process(200 + n, worker_id=n, threads=[thread(200 + n, *stack)])
        for n, stack in stacks.items()
    )
    return snapshot_of(main(), *workers)


def test_workers_with_equal_stacks_are_counted_and_exceptions_are_named() -> None:
    lines = diagnose_text(loader(64, 3, 17)).splitlines()

    at = lines.index("MERGED STACKS  main threads with equal stacks")
    assert lines[at + 1 : at + 3] == [
        "  workers: 62 of 64 wait for work in Queue.get; workers 3 and 17 in data.py:31",
        "    decode",
    ]


def test_json_has_the_pids_of_each_group() -> None:
    (together,) = json.loads(text_of(diagnose_json(loader(64, 3, 17))))["together"]

    most, others = together["groups"]
    assert (together["who"], len(most["pids"]), most["is_outlier"]) == ("workers", 62, False)
    assert (others["pids"], others["names"], others["is_outlier"]) == ([203, 217], "3 and 17", True)


def test_two_workers_are_not_merged() -> None:
    assert "MERGED STACKS" not in diagnose_text(loader(2))
    assert json.loads(text_of(diagnose_json(loader(2))))["together"] == []
