"""Pages and their building blocks keep nothing between two snapshots."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections import deque
from types import ModuleType

import pytest

from mpwatch.tui import elements, pages

NAMES = [
    found.name
    for package in (pages, elements)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
CONTAINERS = (dict, list, set, bytearray, deque)


def own_values(module: ModuleType) -> dict[str, object]:
    """The values of a module that its own statements define, without what it imports."""
    defined: set[str] = set()
    for statement in ast.parse(inspect.getsource(module)).body:
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        defined |= {target.id for target in targets if isinstance(target, ast.Name)}
        defined |= {getattr(statement, "name", "")}
    return {name: value for name, value in vars(module).items() if name in defined}


@pytest.mark.parametrize("name", NAMES)
def test_a_module_has_no_container_that_can_change_and_no_cache(name: str) -> None:
    values = own_values(importlib.import_module(name))

    assert [key for key, value in values.items() if isinstance(value, CONTAINERS)] == []
    assert [key for key, value in values.items() if hasattr(value, "cache_info")] == []
