"""How demonstrations are found and run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from mpwatch.demo.bounds import may_limit, may_mount
from mpwatch.demo.scenarios import SCENARIOS, Scenario

__all__ = ["Scenario", "command", "find", "obstacle", "scenarios"]


def scenarios() -> tuple[Scenario, ...]:
    """All scenarios, healthy ones first, including those without a program."""
    return SCENARIOS


def find(name: str) -> Scenario:
    """The scenario of this name.

    Raises:
        KeyError: No scenario has this name.
    """
    for scenario in scenarios():
        if scenario.name == name:
            return scenario
    raise KeyError(name)


def command(
    scenario: Scenario,
    python: str = sys.executable,
    seconds: float | None = None,
    *,
    mended: bool = False,
) -> list[str]:
    """Arguments that run a scenario.

    Args:
        scenario: One with a program.
        python: An interpreter that can import torch and `mpwatch.demo`.
        seconds: How long it may run; the program's default if `None`.
        mended: Run the healthy variant of the program instead.

    Raises:
        ValueError: The scenario has no program, or no healthy variant; the text says why.
    """
    if scenario.not_runnable:
        raise ValueError(f"{scenario.name} cannot be run: {scenario.not_runnable}")
    script = os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "programs", f"{scenario.stem}.py"
    )
    if mended and not scenario.neighbour:
        raise ValueError(f"{scenario.name} has no healthy variant")
    limit = [] if seconds is None else ["--seconds", f"{seconds:g}"]
    right = ["--mended"] if mended else []
    return [python, script, *scenario.arguments, *right, *limit]


def obstacle(scenario: Scenario) -> str:
    """Why a scenario cannot run on this machine, in a few words; empty if it can."""
    if scenario.not_runnable:
        return scenario.not_runnable
    met: dict[str, Callable[[], bool]] = {
        "mount": may_mount,
        "cgroup": may_limit,
        "python>=3.14": lambda: sys.version_info >= (3, 14),
        "python<3.13": lambda: sys.version_info < (3, 13),
    }
    words = {
        "mount": "needs the right to mount a /dev/shm of its own: run as root",
        "cgroup": "needs the right to make a cgroup: run as root",
    }
    missing = [words.get(need, f"needs {need}") for need in scenario.needs if not met[need]()]
    return "; ".join(missing)
