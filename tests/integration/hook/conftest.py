"""Fixtures of the tests of the hook in real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def runtime(_runtime_directory_of_its_own: None) -> Path:
    """The runtime directory of this test's programs."""
    return Path(os.environ["XDG_RUNTIME_DIR"])
