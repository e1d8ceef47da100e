from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import PROGRAMS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cost")]

BOUNDED = ("check", "is_whole", "add", "note", "place_here", "_spend", "_remember", "_identity")
"""Functions that run so many times a second at most, however many batches there are."""


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    """The calls and records of the hook for a batch, in main and in a worker."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAMS / "hook_calls.py")],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    rows = map(json.loads, done.stdout.splitlines())
    return {row["who"]: row for row in rows}


@pytest.mark.parametrize("who", ["main", "worker"])
def test_a_batch_makes_three_records_in_each_process_and_those_of_queues(
    counted: dict[str, Any], who: str
) -> None:
    """Where batches are slow, the calls of the two queues are recorded each time."""
    assert 2.9 < counted[who]["records"] < 5.1


@pytest.mark.parametrize(("who", "most"), [("main", 16.5), ("worker", 11.5)])
def test_a_batch_makes_a_fixed_number_of_calls_of_the_hook(
    counted: dict[str, Any], who: str, most: float
) -> None:
    calls = {name: each for name, each in counted[who]["calls"].items() if name not in BOUNDED}

    assert calls["record"] > 1.9
    assert sum(calls.values()) < most, calls
