"""A process that computes in one function of the program, and does nothing else, is told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.describe.account import process_words
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.throughput.account import advanced_callers
from mpwatch.diagnose.analysis.throughput.shares import lonely_computations
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.account import CALLERS_S, Callers
from mpwatch.model.findings import Severity
from mpwatch.model.history import History, Point, Series
from mpwatch.model.progress import Counts, ProgressSource
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Hook, Process, Snapshot
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    accounted,
    found,
    frames,
    history,
    main,
    only,
    pid,
    process,
    snapshot_of,
    thread,
    ticked,
)

OUTER = ("collate.py:__iter__:38", "train.py:main:61", "train.py:<module>:88")
FITS = ("collate.py:first_fit:13", "collate.py:find_capacity:33", *OUTER)
COUNTS = ("collate.py:find_capacity:35", *OUTER)
TRAINS = ("dist-packages/torch/nn/linear.py:forward:9", *COUNTS)
SECONDS = 40
SLEEPS = WaitedOn("timer", "clock_nanosleep", timeout_s=0.5)
WROTE_AT_S: Series = (Point(NOW_S - SECONDS, 100.0),)


def watched(
    stacks: Sequence[Sequence[str]] = (FITS, COUNTS),
    *others: Process,
    cpu: float = 1.0,
    rests: bool = False,
    **more: Any,
) -> Snapshot:
    """A job of which main computed for a while, with these stacks in turn.

    With `rests`, every second reading finds it asleep.
    """
    made = []
    for second in range(SECONDS + 1):
        calls = stacks[second % len(stacks)]
        own = thread(
            MAIN, *calls, state="R", still_s=0.0, cpu_percent=99.0, has_gil=True, stack_age_s=0.0
        )
        if rests and second % 2:
            own = replace(own, state="S", waits_on=SLEEPS, has_gil=False, cpu_percent=0.0)
        at_s = NOW_S - SECONDS + second
        computing = ticked(main(threads=[own]), {MAIN: round(100 * cpu * second)})
        made.append(snapshot_of(computing, *others, at_s=at_s, **more))
    return accounted(*made)


def past(written: Series = WROTE_AT_S, read: Series = ()) -> History:
    return history({(MAIN, "written_bytes"): written, (MAIN, "main_read_bytes"): read})


def test_a_loop_of_two_lines_is_reported_with_the_function_that_does_not_return() -> None:
    finding = only(no_progress.check, watched(), past())

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        f"main ({MAIN}) has done nothing but compute for {SECONDS} s, always inside "
        "find_capacity (collate.py), called at collate.py:38 __iter__"
    )
    assert "cannot be seen from outside" in finding.cause


def test_on_a_loaded_machine_a_loop_has_less_than_a_core() -> None:
    finding = only(no_progress.check, watched(cpu=0.3), past())

    assert f"has done nothing but compute for {SECONDS} s" in finding.summary


def test_what_a_hook_sends_is_not_what_the_program_writes() -> None:
    wrote = past((Point(NOW_S - 40, 100.0), Point(NOW_S - 1, 900.0)))
    job = watched()
    hooked = replace(job.processes[0], hook=Hook(state="ready"))

    assert found(no_progress.check, job, wrote) == []
    finding = only(no_progress.check, replace(job, processes=(hooked,)), wrote)
    assert finding.process == pid(MAIN)


def test_the_account_says_in_which_function_a_process_always_is() -> None:
    job = watched()

    words = process_words(job.account.processes[pid(MAIN)], {})

    assert words.endswith(
        "; always inside find_capacity (collate.py), called at collate.py:38 __iter__"
    )


def test_stacks_older_than_two_stretches_of_time_are_forgotten() -> None:
    reads = frames("data.py:read:3", "train.py:main:50", "train.py:<module>:88")
    known: tuple[Callers, ...] = ()
    for second in range(3 * round(CALLERS_S) + 2):
        stack = reads if second < CALLERS_S / 2 else frames(*(FITS if second % 2 else COUNTS))
        own = replace(thread(MAIN, state="R", stack_age_s=0.0), stack=stack)
        known = advanced_callers(known, own, NOW_S + second)

    inside = reduce(Callers.with_later, known)

    assert len(known) == 2
    assert inside.taken_s - inside.since_s <= 2 * CALLERS_S
    assert [frame.function for frame in inside.frames][-1] == "find_capacity"


def test_a_stack_that_was_seen_before_changes_nothing() -> None:
    own = thread(MAIN, *FITS, state="R", stack_age_s=0.0)
    known = advanced_callers((), own, NOW_S)

    assert advanced_callers(known, replace(own, stack_age_s=1.0), NOW_S + 1.0) is known


@pytest.mark.parametrize(
    ("job", "known"),
    [
        (watched(), past((Point(NOW_S - 40, 100.0), Point(NOW_S - 3, 200.0)))),  # it has written
        (watched(), past(read=(Point(NOW_S - 40, 0.0), Point(NOW_S - 3, 9.0)))),
        (watched(), history()),  # what it writes is not known
        (watched(cpu=0.5, rests=True), past()),
        (watched((TRAINS, COUNTS)), past()),  # the time goes into numbers
        (watched([("train.py:<module>:88",), ("train.py:<module>:90",)]), past()),
        (watched((FITS, COUNTS), process(300, threads=[thread(300, still_s=0.0)])), past()),
    ],
)
def test_what_gets_on_or_could_get_on_is_not_reported(job: Snapshot, known: History) -> None:
    assert found(no_progress.check, job, known) == []


def test_a_process_whose_batches_are_counted_gets_on() -> None:
    batches = ProgressSource(
        "batches", pid(MAIN), 9, NOW_S - 50, NOW_S - 2, False, Counts(), 9, Counts(), 9
    )

    job = watched(progress=(batches,))

    assert list(lonely_computations(Index(job, past()), 20.0)) == []
