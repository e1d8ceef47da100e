"""Part H: CUDA; none of it can be shown without a GPU."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = ()
