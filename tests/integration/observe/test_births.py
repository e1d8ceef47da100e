"""Processes that live between two readings, as the source of the dashboard shows them."""

from __future__ import annotations

import sys
import threading

import pytest

from mpwatch.collect.process.identify import identify
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.live import LiveOptions, LiveSource
from tests.conftest import Start

pytestmark = pytest.mark.slow

PERIOD_S = 30.0
"""Seconds between two readings in a calm job."""
MOTHER = """
import subprocess, sys
print("ready", flush=True)
while True:
    subprocess.run([sys.executable, "-c", "import time; time.sleep(1)"])
    print("buried", flush=True)
"""


def test_a_child_that_lives_between_two_readings_is_shown_running_and_exited(start: Start) -> None:
    job = start([sys.executable, "-c", MOTHER])
    job.wait_for("ready")
    seen: list[Snapshot] = []
    has_both = threading.Event()

    def deliver(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        children = [p for p in snapshot.processes if p.parent == snapshot.root]
        if {child.is_gone for child in children} == {True, False}:
            has_both.set()

    options = LiveOptions(refresh_hz=1 / PERIOD_S, hook="ignore", stacks=False)
    source = LiveSource(identify(job.pid), options)
    source.start(deliver)
    try:
        assert has_both.wait(PERIOD_S - 1), [len(each.processes) for each in seen]
    finally:
        source.stop()

    ended = [p.ended for p in seen[-1].processes if p.ended is not None]
    assert all(each.exit_code == 0 for each in ended)


def test_a_quiet_job_is_not_read_more_often_than_was_asked_for(start: Start) -> None:
    job = start([sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(99)"])
    job.wait_for("ready")
    readings: list[float] = []
    settled = threading.Event()

    def deliver(snapshot: Snapshot) -> None:
        readings.append(snapshot.at_s)
        if len(readings) == 12:
            settled.set()

    source = LiveSource(identify(job.pid), LiveOptions(hook="ignore", stacks=False))
    source.start(deliver)
    try:
        assert settled.wait(60)
    finally:
        source.stop()

    # One a second, as asked for; each may be late on a busy machine.
    assert readings[11] - readings[5] > 5.0
