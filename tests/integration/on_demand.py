"""Cases of one class of which a run of all tests takes some, and the rest on demand."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest

VARIABLE = "MPWATCH_ALL_DEMOS"
IS_SET = bool(os.environ.get(VARIABLE))
ON_DEMAND = pytest.mark.skipif(
    not IS_SET, reason="takes its time, or the machine for itself: set MPWATCH_ALL_DEMOS=1"
)


def cases(every: Iterable[str], usual: Collection[str]) -> list[Any]:
    """Parameters of a test: those that are not usual run on demand only."""
    return [name if name in usual else pytest.param(name, marks=ON_DEMAND) for name in every]


def on_each_python(
    pythons: Sequence[object], every: Iterable[tuple[Any, ...]], usual: Collection[tuple[Any, ...]]
) -> list[Any]:
    """Parameters of a test of several Pythons: one of them, and what makes up a case.

    Args:
        pythons: The first one runs all cases. The others run those that are usual, and the rest on
            demand: the nightly run has all tests on each version.
        every: All cases.
        usual: Those that are most likely to differ from version to version.
    """
    return [
        pytest.param(
            python, *case, marks=() if python == pythons[0] or case in usual else ON_DEMAND
        )
        for python in pythons
        for case in every
    ]
