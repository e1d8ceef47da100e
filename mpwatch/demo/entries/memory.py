"""Part E: memory that grows."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = ()
