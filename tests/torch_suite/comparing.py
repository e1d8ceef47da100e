"""Outcomes of tests, side by side."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple

Outcomes = dict[str, str]
"""How each test ended, by its name."""


class Difference(NamedTuple):
    """A test that did not have the same outcome in all runs."""

    name: str
    without: tuple[str, ...]
    with_hook: tuple[str, ...]

    @property
    def is_by_the_hook(self) -> bool:
        """Whether it had an outcome with the hook that it never had without."""
        return not set(self.with_hook) <= set(self.without)

    def __str__(self) -> str:
        verdict = "CHANGED" if self.is_by_the_hook else "flaky"
        ways = f"without {', '.join(self.without)}; with {', '.join(self.with_hook)}"
        return f"{verdict} {self.name}: {ways}"


def differences(without: Sequence[Outcomes], with_hook: Sequence[Outcomes]) -> list[Difference]:
    """The tests that had different outcomes, of those that the last runs had."""
    found = []
    for name in without[-1]:
        before = tuple(run[name] for run in without if name in run)
        after = tuple(run[name] for run in with_hook if name in run)
        if len({*before, *after}) > 1:
            found.append(Difference(name, before, after))
    return found


def summary(outcomes: Outcomes) -> str:
    """`61 passed, 3 skipped`."""
    counts = collections.Counter(outcomes.values())
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
