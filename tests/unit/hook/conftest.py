"""Fixtures of the tests of the hook's modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


@pytest.fixture(scope="session")
def torch() -> Any:
    """The package torch; its import takes 3 s of cpu, for which only the worker that needs it pays.

    Modules that use it have the mark `xdist_group("torch")`: all of them run in one worker.
    """
    return pytest.importorskip("torch")
