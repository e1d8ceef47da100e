"""Programs with nothing wrong."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="healthy",
        title="train a small network with four persistent DataLoader workers",
        expected=(),
        memory_mib=80,
    ),
)
