"""What the tests of the hook's parts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mpwatch.hook.session import Session


@pytest.fixture
def session() -> Iterator[Session]:
    """A hook that came into nothing: without points, files and thread."""
    session = Session("instrument")
    server = session.server
    yield session
    session.patcher.uninstall()
    server.close("test")
    session.ring.close()
