"""Inputs made of a hook's answers."""

from __future__ import annotations

import pytest

from mpwatch.collect.hook import decode
from mpwatch.model.ids import ProcessId

PROCESS = ProcessId(100, 1000)
THREAD = {"tid": 100, "name": "MainThread", "frames": [["main", "train.py", 7]]}


def test_stacks_include_their_cost_in_the_process() -> None:
    taken = decode.stacks(PROCESS, 5.0, {"id": 1, "threads": [THREAD], "cpu_ns": 250_000})

    assert taken.cost_s == 0.000_25
    assert taken.stacks[0].frames[0].line == 7


@pytest.mark.parametrize("said", [{}, {"cpu_ns": "7"}, {"cpu_ns": -1}, {"cpu_ns": None}])
def test_stacks_of_a_hook_that_does_not_report_the_cost_are_read(said: dict[str, object]) -> None:
    taken = decode.stacks(PROCESS, 5.0, {"threads": [THREAD], **said})

    assert taken.cost_s is None
    assert len(taken.stacks) == 1
