"""What the tests on a GPU share."""

from __future__ import annotations

import pytest

from mpwatch.demo.bounds import has_gpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder where there is no GPU."""
    if has_gpu():
        return
    for item in items:
        if item.path.parent.name == "gpu":
            item.add_marker(
                pytest.mark.skip(reason="needs an NVIDIA GPU and a CUDA build of torch")
            )
