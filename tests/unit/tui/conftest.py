"""The moment most tests of pages look at."""

from __future__ import annotations

import pytest

from mpwatch.tui.elements.snapshot_view import Moment
from tests.tui.scripted import loader_job


@pytest.fixture
def moment() -> Moment:
    return Moment(loader_job())
