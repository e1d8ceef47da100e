"""Fixtures of the tests of the hook's modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mpwatch.hook.points import TABLE
from mpwatch.hook.session import Session

POINTS = {point.name: point for point in TABLE}


@pytest.fixture
def session() -> Iterator[Session]:
    """A session without points, files and thread."""
    session = Session("instrument")
    server = session.server
    yield session
    session.patcher.uninstall()
    server.close("test")
    session.ring.close()
