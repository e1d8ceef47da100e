"""Failures that are named from outside are named with the hook attached as well.

The hook has a thread of its own in each process and answers in place of py-spy.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.integration import on_demand
from tests.integration.demo.trial import LONGEST_S, cases, run

NAMES = (
    "fork-openmp",
    "fork-with-threads-lock",
    "pool-hang-after-worker-death",
    "queue-join-feeder-deadlock",
    "queue-lock-held-by-dead",
)
USUAL = ("fork-with-threads-lock",)
SETTLE_S = 2.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", on_demand.cases(NAMES, USUAL))
def test_a_stalled_program_is_named_with_the_hook_attached(name: str) -> None:
    case = next(case for case in cases() if case.name == name)
    hooked = (case.argv[0], "-m", "mpwatch", "run", "--headless", *case.argv[1:])

    row = run(replace(case, argv=hooked, watch_s=LONGEST_S), settle_s=SETTLE_S)

    assert not row.problem
    assert not row.missed
    assert not row.alarms
