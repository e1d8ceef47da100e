"""Cases of one class of which a run of all tests takes some, and the rest on demand."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
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
