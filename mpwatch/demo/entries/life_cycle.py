"""Part D: how processes end."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="orphaned-workers",
        title="workers survive a main process that was killed",
        expected=("orphaned-workers",),
        ends="6 s after `ready` the main process is killed, 40 s later the workers are ended",
    ),
)
