"""The snapshot that most tests of pages use."""

from __future__ import annotations

import pytest

from mpwatch.tui.elements.page import SnapshotView
from tests.tui.scripted import loader_job


@pytest.fixture
def view() -> SnapshotView:
    return SnapshotView(loader_job())
