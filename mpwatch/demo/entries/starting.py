"""Part B: start methods and pickling."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = ()
