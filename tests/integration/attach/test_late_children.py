"""Children that are started while the hook is injected into their parents."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from mpwatch.attach.inject import inject
from mpwatch.attach.inject_tree import detach_tree, inject_tree, late_children
from mpwatch.attach.outcomes import Attached
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
from tests import procfs
from tests.integration.attach.conftest import Start
from tests.integration.attach.test_kinds_of_targets import sample
from tests.procfs import eventually

pytestmark = pytest.mark.slow

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


ENDED = "the process has ended"


def children(pid: int) -> list[ProcessId]:
    found = []
    for child in procfs.children(pid):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(stat_of(child).process)
    return found


def born_before(process: ProcessId, at_s: float) -> bool:
    return process.start_ticks / TICKS_PER_S + 0.02 < at_s


def test_a_child_forked_before_its_parent_is_injected_is_injected_too(
    start: Start,
) -> None:
    running = start("attach_short_children", "0.1", "20")
    listed = [sample(running.pid)]  # the children are not in the list that is injected
    assert eventually(lambda: len(children(running.pid)) >= 3)
    hooked_s: dict[ProcessId, float] = {}

    def progress(outcome: Attached) -> None:
        hooked_s[outcome.process] = time.clock_gettime(time.CLOCK_BOOTTIME)

    outcomes = inject_tree(listed, progress, timeout_s=30)
    parent_s = hooked_s[running.process]
    without = [child for child in children(running.pid) if born_before(child, parent_s)]
    assert len(without) >= 3
    assert {o.process for o in outcomes if o.state == "ready"} >= {running.process, *without}
    for child in children(running.pid):  # and those that inherited the hook
        attached = inject(child, timeout_s=30)
        assert (attached.state, attached.reason) in (("ready", ""), ("absent", ENDED)), attached


def test_after_a_detach_no_child_started_meanwhile_keeps_the_hook(
    start: Start, runtime: Path
) -> None:
    running = start("attach_short_children", "0.1", "20")
    inject_tree([sample(running.pid)], lambda outcome: None, timeout_s=60)
    assert eventually(lambda: len(children(running.pid)) > 3)
    gone = detach_tree([sample(running.pid)], lambda outcome: None, timeout_s=60)
    assert {outcome.state for outcome in gone} == {"absent"}, gone
    assert len(gone) > 3
    before = {*children(running.pid)}
    assert eventually(lambda: len({*children(running.pid)} - before) > 2)
    assert list((runtime / "mpwatch").iterdir()) == []


def test_children_without_python_are_excluded(start: Start) -> None:
    running = start("attach_short_children", "0.2", "20", "non-python")
    assert eventually(lambda: len(children(running.pid)) >= 2)
    outcomes = inject_tree([sample(running.pid)], lambda outcome: None, timeout_s=30)
    assert outcomes[0].state == "ready"
    assert {o.reason for o in outcomes[1:]} == {"it is not a Python process"}


def test_a_job_without_starts_has_no_late_children(start: Start) -> None:
    running = start("attach_plain", "idle")
    assert late_children([running.process]) == []
