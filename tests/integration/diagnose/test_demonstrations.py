"""Every demonstration and every healthy program once: it fails as described, is named, leaves
nothing.

They run several at a time behind the tests, which wait for them one after the other. Some of the
failures and of their healthy variants are run each time, all of them on demand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace

import pytest

from mpwatch.demo.catalogue import obstacle, scenarios
from tests.integration import on_demand
from tests.integration.demo.schedule import trials
from tests.integration.demo.signals import SIGNALS
from tests.integration.demo.trial import LONGEST_S, Case, Row, cases, run

SETTLE_S = 3.0
"""Seconds after a program was named: false findings often come later."""
HEALTHY_S = 12.0
NEIGHBOUR_S = 8.0
NEIGHBOURS = frozenset(
    (
        "healthy: dataloader fork persistent",
        "healthy: dataloader forkserver file_system",
        "healthy: pool",
        "healthy: ddp torchrun",
        "healthy: just started",
        "healthy: threads and forkserver",
        "healthy: pinned",
        "healthy: debugger",
    )
) | frozenset(
    f"mended: {name}"
    for name in (
        "fd-exhaustion-receiver",
        "shm-full-sigbus",
        "queue-join-feeder-deadlock",
        "copy-on-write-growth",
        "straggler-worker",
    )
)
"""Healthy variants that were mistaken for their failures, or are most like them; the others run on
demand."""
JOBS = 3
ALL = {case.name: case for case in cases()}
CANNOT = {each.name: reason for each in scenarios() if (reason := obstacle(each))}
LONG = {name for name, case in ALL.items() if case.is_alone}
USUAL = frozenset(
    (
        "barrier-of-the-dead",
        "copy-on-write-growth",
        "event-set-hangs",
        "fd-exhaustion-receiver",
        "half-message",
        "iterable-duplicates",
        "loader-iterator-leak",
        "main-killed",
        "no-main-guard",
        "orphaned-workers",
        "pin-memory-thread-death",
        "prefetch-memory-blowup",
        "producer-exits-before-get",
        "queue-join-feeder-deadlock",
        "queue-lock-held-by-dead",
        "rank-stuck-in-collective",
        "shm-full-sigbus",
        "store-port-in-use",
        "straggler-worker",
        "stuck-worker-io",
        "task-errors-unread",
        "torchrun-root-cause-misread",
        "two-full-pipes",
        "worker-exited-unexpectedly",
        "worker-oom-killed",
        "zombie-processes",
    )
)
"""Failures of each kind, above all those that mpwatch tells by what it observes of a process. The
others run on demand, and every night: `spawn-startup-cost`, which imports torch again and again,
and those that other tests make each time: `collective-mismatch` (diagnosed in test_values.py and
test_ranks_apart.py), `fork-with-threads-lock` (test_named_with_the_hook.py), `no-progress`
(test_stuck_jobs.py), `pool-hang-after-worker-death` (test_written_errors.py), `steady-growth`
(test_growing_programs.py), `worker-segfault` (test_jobs.py); and noted by the hook in
tests/integration/hook: `feeder-thread-drops-batch`, `hogwild-not-shared`, `numpy-rng-identical` and
`spawn-unpicklable-object`."""

# One worker of xdist runs all of them: they are started together.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("demonstrations"),
]


def is_healthy(name: str) -> bool:
    """Whether a program has no failure."""
    return not ALL[name].expected


def is_left_out(name: str) -> bool:
    """Whether a program runs on demand only."""
    is_rare = name not in (NEIGHBOURS if is_healthy(name) else USUAL)
    return (name in LONG or is_rare) and not on_demand.IS_SET


def seconds_for(case: Case) -> float:
    """How long to watch a program at most."""
    if case.expected:
        return LONGEST_S  # enough for a slow machine; a program that is named early ends sooner
    if not case.never:
        return HEALTHY_S
    return case.watch_s if on_demand.IS_SET else NEIGHBOUR_S


def trial_in(env: dict[str, str]) -> Callable[[Case], Row]:
    """A function that runs a case, in one environment for the program and its observer."""

    def trial(case: Case) -> Row:
        patient = replace(case, watch_s=seconds_for(case))
        signal = SIGNALS.get(case.name)
        return run(patient, settle_s=SETTLE_S if case.expected else None, signal=signal, env=env)

    return trial


@pytest.fixture(scope="module")
def rows(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Row]]]:
    """The future row of each selected program."""
    selected = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        if item.originalname
        == test_a_program_fails_as_described_is_named_and_leaves_nothing.__name__
    ]
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    wanted = [ALL[name] for name in selected if name in ALL and not is_left_out(name)]
    with trials(wanted, trial_in(env), JOBS) as begun:
        yield dict(begun)


@pytest.mark.parametrize("name", [*ALL, *CANNOT])
def test_a_program_fails_as_described_is_named_and_leaves_nothing(
    rows: dict[str, Future[Row]], name: str
) -> None:
    if name in CANNOT:
        pytest.skip(CANNOT[name])
    if is_left_out(name):
        pytest.skip("takes its time, or the machine for itself: set MPWATCH_ALL_DEMOS=1")

    row = rows[name].result()

    assert not row.problem
    assert row.is_shown is not False, "its raw signal was not seen"
    assert not row.missed, sorted(row.findings)
    assert not row.alarms, [row.findings[rule] for rule in sorted(row.alarms)]
    assert not row.left


def test_every_scenario_has_its_raw_signal() -> None:
    assert {each.name for each in scenarios() if not obstacle(each)} <= set(SIGNALS)


def test_the_programs_that_are_run_each_time_exist() -> None:
    assert NEIGHBOURS - ALL.keys() <= {f"mended: {name}" for name in CANNOT}
    assert USUAL - ALL.keys() <= CANNOT.keys()
