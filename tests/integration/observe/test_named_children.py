"""Children of multiprocessing have their target in their label, with and without the hook."""

from __future__ import annotations

import sys
import time

import pytest

from mpwatch.collect.process.identify import identify
from mpwatch.hook import run
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for
from tests.conftest import PROGRAMS, Start

pytestmark = pytest.mark.slow

NAMES = {
    "functions": ["actor 0", "actor 1", "actor 2"],
    "pool": ["pool worker 0", "pool worker 1"],
    "executor": ["pool worker 0", "pool worker 1"],
    "manager": ["actor", "manager"],
    "ranks": ["rank 0", "rank 1"],
}


def children(snapshot: Snapshot) -> list[str]:
    return sorted(
        process.label for process in snapshot.living() if process.role in ("spawned", "pool-worker")
    )


def names(
    start: Start, way: str, method: str, expected: list[str], *, is_hooked: bool
) -> list[str]:
    program = str(PROGRAMS / "named_children.py")
    command = run.command([program]) if is_hooked else [sys.executable, program]
    job = start([*command, way, method])
    job.wait_for("ready")
    found: list[str] = []

    def each(snapshot: Snapshot) -> None:
        found[:] = children(snapshot)

    end_s = time.monotonic() + 30
    watch_for(
        identify(job.pid),
        60,
        OneShotOptions(),
        each=each,
        stop=lambda: found == expected or time.monotonic() > end_s,
        diagnose=False,
    )
    return found


@pytest.mark.parametrize(
    ("method", "is_hooked"), [("fork", True), ("fork", False), ("spawn", False)]
)
@pytest.mark.parametrize("way", NAMES)
def test_children_are_called_by_what_they_run(
    start: Start, way: str, method: str, is_hooked: bool
) -> None:
    assert names(start, way, method, NAMES[way], is_hooked=is_hooked) == NAMES[way]


def test_a_subclass_is_called_by_its_class_or_its_method(start: Start) -> None:
    hooked = ["Collector 0", "Collector 1"]
    assert names(start, "classes", "fork", hooked, is_hooked=True) == hooked
    # Before Python 3.11, a stack does not say whose method a function is.
    by_method = ["named_children.run 0", "named_children.run 1"]
    outside = hooked if sys.version_info >= (3, 11) else by_method
    assert names(start, "classes", "fork", outside, is_hooked=False) == outside


def test_a_name_that_the_program_gave_is_kept(start: Start) -> None:
    given = ["Env<0>", "Env<1>"]
    assert names(start, "named", "fork", given, is_hooked=True) == given
