"""Two observers of one job: each stops its processes, and neither takes that for progress."""

from __future__ import annotations

import sys

import pytest

from mpwatch.collect.process.identify import identify
from mpwatch.diagnose.analysis.idle_time import STALLED_S, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.live import LiveOptions, LiveSource
from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for
from mpwatch.observe.sources.source import Follow
from mpwatch.observe.state.fold import Fold
from tests.conftest import Start

pytestmark = pytest.mark.slow

LIMIT_S = 120.0
ASLEEP = """
import threading, time
never = threading.Event()
for _ in range(3):
    threading.Thread(target=never.wait, daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


def test_a_process_is_stalled_though_another_observer_takes_its_stacks(start: Start) -> None:
    job = start([sys.executable, "-c", ASLEEP])
    job.wait_for("ready")
    root = identify(job.pid)
    taken: set[float] = set()
    quiet: list[float] = []
    fold = Fold()

    def note_stacks(snapshot: Snapshot) -> None:
        taken.update(at for each in snapshot.processes[0].threads if (at := each.stack_at_s))

    def note_quiet(snapshot: Snapshot) -> None:
        index = Index(snapshot, fold.history())
        quiet.append(quiet_s(snapshot.processes[0], index) or 0.0)

    def is_stalled() -> bool:
        return bool(quiet) and quiet[-1] >= 1.5 * STALLED_S

    def is_enough() -> bool:
        return is_stalled() and len(taken) > STALLED_S

    follower = LiveSource(root, LiveOptions(hook="ignore"))
    follower.start(note_stacks)
    try:
        follower.ask(Follow(root))
        options = OneShotOptions(hook="ignore", stacks=False)
        watch_for(root, LIMIT_S, options, keep=fold.apply, each=note_quiet, stop=is_enough)
    finally:
        follower.stop()

    assert is_enough(), (quiet, taken)
