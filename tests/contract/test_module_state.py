"""Snapshots, findings, reports and pages depend on their arguments alone: modules hold no state."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import operator
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

import mpwatch

PACKAGE = Path(mpwatch.__file__).parent
PARTS = (
    *("describe", "diagnose", "observe/state", "report", "nodes/across"),
    *("tui/pages", "tui/elements"),
)
MODULES = sorted(path for part in PARTS for path in (PACKAGE / part).rglob("*.py"))

CACHES = frozenset(("cache", "lru_cache", "singledispatch"))
CONTAINERS = frozenset(
    (
        *("dict", "list", "set", "bytearray", "array", "defaultdict", "Counter", "deque"),
        *("OrderedDict", "ChainMap", "WeakKeyDictionary", "WeakValueDictionary", "count", "iter"),
    )
)
DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTATORS = frozenset(
    (
        *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
        *("popleft", "remove", "reverse", "setdefault", "sort", "subtract", "update"),
    )
)


def state_of(source: str) -> Iterator[str]:
    """Each way in which a module remembers something between calls, with its line."""
    tree = ast.parse(source)
    containers = dict(_containers(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield f"{node.lineno}: rebinds {', '.join(node.names)}"
        elif _is_cache(node):
            yield f"{getattr(node, 'lineno', 0)}: keeps results with functools"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            if any(_is_container(default) for default in defaults):
                yield f"{node.lineno}: has a mutable default"
        changed = _changed(node)
        if changed in containers:
            yield f"{getattr(node, 'lineno', 0)}: changes {changed}"


def _is_cache(node: ast.AST) -> bool:
    """Whether a cache of functools is imported or named."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "functools" and any(each.name in CACHES for each in node.names)
    return isinstance(node, ast.Attribute) and (
        isinstance(node.value, ast.Name) and node.value.id == "functools" and node.attr in CACHES
    )


def _containers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The mutable containers of a module and of its classes, by name."""
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for statement in (each for body in bodies for each in body):
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        if _is_container(value):
            yield from ((_name(target), statement.lineno) for target in targets)


def _is_container(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return _name(value.func) in CONTAINERS
    return isinstance(value, DISPLAYS)


def _changed(node: ast.AST) -> str | None:
    """The name of the container that a statement or call changes, `self.` and `Class.` removed."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _name(node.value)
    if isinstance(node, ast.AugAssign):
        return _name(node.target)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            return _name(node.func.value)
        if _name(node.func) == "next" and node.args:
            return _name(node.args[0])
    return None


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# --- values ------------------------------------------------------------------------------------

UNCHANGEABLE = (
    *(bool, int, float, complex, str, bytes, range, slice, types.NoneType),
    *(re.Pattern, enum.Enum, type, types.FunctionType, types.MappingProxyType),
    *(types.GenericAlias, types.UnionType, typing.TypeVar, typing.ParamSpec),
    *(type(typing.Literal[1]), operator.attrgetter),
)


def changeable(module: types.ModuleType, source: str) -> Iterator[str]:
    """The values that a module defines and that could change, or hold what changes.

    A dictionary is a table if it is declared as a `Mapping`: then mypy refuses to change it. So is
    each value of a `Mapping[..., Mapping[...]]`.
    """
    for name, annotation in _defined(ast.parse(source)):
        if not _is_unchangeable(getattr(module, name, None), annotation.count("Mapping[")):
            yield name


def _defined(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The variables of a module, each with its annotation."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for node in (each for target in statement.targets for each in ast.walk(target)):
                if isinstance(node, ast.Name):
                    yield node.id, ""
        elif isinstance(statement, ast.AnnAssign):
            yield _name(statement.target), ast.unparse(statement.annotation)


def _is_unchangeable(value: object, depth: int = 0) -> bool:
    """Whether a value cannot change; dictionaries may be nested so deep."""
    if isinstance(value, dict) and depth > 0:
        return all(_is_unchangeable(each, depth - 1) for each in (*value, *value.values()))
    if isinstance(value, tuple | frozenset):
        return all(_is_unchangeable(each, depth) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return bool(value.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    if isinstance(value, Struct):
        return value.__struct_config__.frozen
    if isinstance(value, functools.partial):
        return all(map(_is_unchangeable, (*value.args, *value.keywords.values())))
    return isinstance(value, UNCHANGEABLE)


def test_no_value_of_a_module_can_change() -> None:
    found = []
    for path in MODULES:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        found += [f"{path}: {each}" for each in changeable(module, path.read_text())]

    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "class Store: ...\nKEPT = Store()",
        "KEPT = {}",
        "KEPT: dict[int, int] = {}",
        "from collections.abc import Mapping\nKEPT: Mapping[int, list[int]] = {1: []}",
        "KEPT = ([],)",
        "import dataclasses\n@dataclasses.dataclass\nclass Store:\n    n: int = 0\nKEPT = Store()",
        "import weakref\nKEPT = weakref.WeakKeyDictionary()",
        "import threading\nKEPT = threading.local()",
        "import functools\nKEPT = functools.lru_cache(abs)",
        "import itertools\nKEPT, OTHER = itertools.count(), 1",
    ],
)
def test_each_kind_of_value_that_can_change_is_found(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("made_up")
    monkeypatch.setitem(sys.modules, "made_up", module)
    exec(source, vars(module))

    assert list(changeable(module, source)) == ["KEPT"]


# --- statements --------------------------------------------------------------------------------


def test_a_module_holds_no_state() -> None:
    assert len(MODULES) > 150
    assert [f"{path}: {each}" for path in MODULES for each in state_of(path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    [
        "_last = None\ndef f(x):\n    global _last\n    _last = x",
        "def once(f):\n    last = None\n    def g():\n        nonlocal last\n        last = f()",
        "from functools import lru_cache\n@lru_cache(maxsize=8)\ndef f(x): ...",
        "import functools\nf = functools.cache(abs)",
        "_known = {}\ndef f(x):\n    _known[x] = 1",
        "_known: dict[int, int] = {}\ndef f(x):\n    del _known[x]",
        "_seen = set()\ndef f(x):\n    _seen.add(x)",
        "_total = [0]\ndef f():\n    _total[0] += 1",
        "from collections import defaultdict\n_by = defaultdict(list)\ndef f(x):\n    _by.pop(x)",
        "class Page:\n    rows = []\n    def add(self, row):\n        self.rows.append(row)",
        "def f(x, seen=[]):\n    return seen",
        "from itertools import count\n_numbers = count()\ndef f():\n    return next(_numbers)",
    ],
)
def test_each_kind_of_state_is_found(source: str) -> None:
    assert list(state_of(source))


@pytest.mark.parametrize(
    "source",
    [
        "NAMES = {'a': 1}\ndef f(x):\n    return NAMES[x]",
        "def f(rows):\n    found = []\n    found.append(rows)\n    return found",
        "ORDER = ['a']\nclass A:\n    def __init__(self):\n        self.rows = []\n",
    ],
)
def test_tables_and_local_values_are_no_state(source: str) -> None:
    assert list(state_of(source)) == []
