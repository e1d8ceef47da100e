"""Part I: torch.distributed and its launchers."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = ()
