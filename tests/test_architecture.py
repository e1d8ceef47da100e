"""Promises about what is loaded when, proven in fresh interpreters."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import rich
import textual

import mpwatch
import mpwatch.tui

if TYPE_CHECKING:
    from typing_extensions import TypeIs

# One worker of xdist parses the sources, once for all tests of them.
OF_SOURCES = pytest.mark.xdist_group("sources")

HEAVY = ("textual", "rich", "torch", "numpy")
REPORT = """
import json, sys
before = set(sys.modules)
{code}
print("\\n" + json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_after(code: str) -> list[str]:
    """The modules that running some code loads into a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(code=code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


def roots(modules: list[str]) -> set[str]:
    """Names of the top-level packages."""
    return {module.partition(".")[0] for module in modules}


def test_importing_mpwatch_loads_nothing_but_itself() -> None:
    assert modules_after("import mpwatch") == ["mpwatch"]


def test_the_hook_needs_only_the_standard_library() -> None:
    loaded = roots(modules_after("import mpwatch; mpwatch.instrument(); mpwatch.uninstrument()"))

    assert loaded - set(sys.stdlib_module_names) == {"mpwatch", "_mpwatch_hook"}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ps", "ps --json", "doctor", "doctor --json"])
def test_one_shot_commands_load_neither_a_screen_nor_torch(command: str) -> None:
    loaded = roots(modules_after(f"import mpwatch.cli; mpwatch.cli.main({command.split()!r})"))

    assert loaded.isdisjoint(HEAVY)


@pytest.mark.slow
def test_a_dump_loads_neither_a_screen_nor_torch() -> None:
    code = (
        "import mpwatch.cli, os, subprocess, sys; "
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE); "
        "code = mpwatch.cli.main(['dump', str(child.pid), '--json', '--no-stacks']); "
        "child.communicate(b'\\n'); assert code == 0, code"
    )

    assert roots(modules_after(code)).isdisjoint(HEAVY)


@pytest.mark.slow
def test_no_module_reads_or_starts_anything_when_imported() -> None:
    code = (
        "import os, sys, threading, pkgutil, importlib, mpwatch; "
        "opened = []; "
        "sys.addaudithook(lambda name, arguments: opened.append(str(arguments[0])) "
        "if name == 'open' and 'mpwatch' not in str(arguments[0]) "
        "and '/proc/' in str(arguments[0]) else None); "
        "names = [m.name for m in pkgutil.walk_packages(mpwatch.__path__, 'mpwatch.') "
        "if '.demo.' not in m.name and not m.name.endswith('__main__')]; "
        "[importlib.import_module(name) for name in names]; "
        "assert len(names) > 40, names; "
        "assert threading.active_count() == 1, threading.enumerate(); "
        "assert opened == [], opened"
    )
    modules_after(code)


# --- public names of Textual and Rich only -------------------------------------------------------

DRAWING = ("textual", "rich")
REPOSITORY = Path(mpwatch.__file__).parents[1]
READS_THE_SCREEN = REPOSITORY / "tests/tui/screen_text.py"
"""The one module of the tests that may use a private name: Textual has no public way to read the
screen back as text."""
PRIVATE = re.compile(r"_(?!replace\Z)[a-z]\w*\Z")
"""`_replace` is the public method of named tuples, of which both have some."""


PRIVATE_OF_TEXTUAL = {f"_{name}" for name in ("compositor", "dirty_widgets", "display")}
"""Some of them, written so that this file does not seem to use them."""
DRAWS = re.compile(
    r"^\s*(?:from|import) .*\b(textual|rich|mpwatch\.tui|tests\.tui)\b", re.MULTILINE
)


def sources(*folders: Path) -> Iterator[tuple[Path, str]]:
    """Every Python file below some folders, but for programs as their authors have written them."""
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if not any(part.startswith("blind_") for part in path.parts):
                yield path, path.read_text()


def nodes_of(source: str) -> list[ast.AST]:
    """All nodes of a source, the module first."""
    return list(ast.walk(ast.parse(source)))


def blocks_of(module: ast.Module) -> list[ast.AST]:
    """The nodes of a module that have statements, and these: a fraction of all its nodes."""
    found: list[ast.AST] = [module]
    for node in found:  # it grows meanwhile
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            found.extend(getattr(node, name, ()))
    return found


def is_set_on_self(node: ast.AST) -> TypeIs[ast.Attribute]:
    """Whether it is `self.NAME = ...`."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
        return False
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def defined(nodes: Sequence[ast.AST]) -> set[str]:
    """Private names that a source defines: functions, classes, variables, attributes it sets."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif is_set_on_self(node):
            found.add(node.attr)
    return {name for name in found if PRIVATE.match(name)}


def mentioned(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of every private attribute a source reads or sets, by name or as a string."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and PRIVATE.match(node.attr):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and PRIVATE.match(str(node.value)):
            yield node.lineno, str(node.value)


def private_imports(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of every private module or name imported from Textual or Rich."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            root, *rest = name.split(".")
            if root in DRAWING and any(part.startswith("_") for part in rest):
                yield node.lineno, name


def names_of_others(nodes: Sequence[ast.AST]) -> list[tuple[int, str]]:
    """Line and name of every private name that a file mentions and does not define itself."""
    own = defined(nodes)
    return [each for each in mentioned(nodes) if each[1] not in own]


def defined_by_textual_and_rich(names: set[str]) -> set[str]:
    """Those of some private names that a source of Textual or Rich defines.

    Only sources that contain one of the names are parsed.
    """
    contains = re.compile(rf"\b(?:{'|'.join(sorted(names))})\b").search
    folders = [Path(package.__file__ or "").parent for package in (textual, rich)]
    theirs = (defined(nodes_of(source)) for _, source in sources(*folders) if contains(source))
    return names.intersection(set().union(*theirs))


@pytest.mark.slow
@OF_SOURCES
def test_no_private_name_of_textual_or_rich_is_used() -> None:
    used = {name for _, name in faults().of_others}
    theirs = defined_by_textual_and_rich(used | PRIVATE_OF_TEXTUAL)

    assert theirs >= PRIVATE_OF_TEXTUAL
    assert [place for place, name in faults().of_others if name in theirs] == []
    assert faults().imports_of_textual_and_rich == []


@pytest.mark.parametrize(
    "code",
    [
        "from textual._compositor import Compositor",
        "import textual\nimport rich._wrap",
        "from textual import screen\nscreen.Screen()._compositor",
        "from textual.app import App\nsetattr(App, '_display', None)",
        "from textual.app import App\nclass Own(App):\n def f(self): super()._display()",
    ],
)
def test_each_way_to_use_a_private_name_is_found(code: str) -> None:
    nodes = nodes_of(code)
    used = [name for _, name in names_of_others(nodes) if name in PRIVATE_OF_TEXTUAL]

    assert DRAWS.search(code)
    assert len([*private_imports(nodes), *used]) == 1


def widget_classes() -> set[type]:
    """Every class of the dashboard that is built on one of Textual's."""
    names = [m.name for m in pkgutil.walk_packages(mpwatch.tui.__path__, "mpwatch.tui.")]
    found = {
        each
        for name in names
        for each in vars(importlib.import_module(name)).values()
        if inspect.isclass(each) and each.__module__ == name
    }
    return {each for each in found if any(their_bases(each))}


def their_bases(kind: type) -> Iterator[type]:
    """The classes of Textual or Rich that a class inherits from."""
    return (base for base in kind.__mro__[1:] if base.__module__.partition(".")[0] in DRAWING)


@cache
def defined_in(kind: type) -> set[str]:
    """Private names that the source of a class defines."""
    return defined(nodes_of(inspect.cleandoc("\n" + inspect.getsource(kind))))


def test_no_private_name_of_a_base_class_of_textual_is_redefined() -> None:
    kinds = widget_classes()

    clashes = {
        (kind.__name__, base.__name__, name)
        for kind in kinds
        for base in their_bases(kind)
        for name in defined_in(kind) & defined_in(base)
    }

    assert len(kinds) > 20
    assert clashes == set()


# --- public names of mpwatch only -----------------------------------------------------------------

PRIVATE_PATH = re.compile(r"mpwatch(?:\.\w+)*\._[a-z]\w*\Z")
PRIVATE_WORD = re.compile(r"\b_[a-z]")
"""A source without one uses no private name: its expressions are not searched."""


def private_names_of_mpwatch(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of each private name of mpwatch that is imported, read or replaced."""
    imports = [
        node
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mpwatch"
    ]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    for node in imports:
        yield from ((node.lineno, each.name) for each in node.names if PRIVATE.match(each.name))
    for part in nodes:
        if isinstance(part, ast.Attribute):
            whose, name = part.value, part.attr
        elif isinstance(part, ast.Call) and len(part.args) > 1:
            whose, name = part.args[0], str(getattr(part.args[1], "value", ""))
        elif isinstance(part, ast.Constant) and PRIVATE_PATH.match(str(part.value)):
            yield part.lineno, str(part.value)
            continue
        else:
            continue
        if isinstance(whose, ast.Name) and whose.id in names and PRIVATE.match(name):
            yield part.lineno, f"{whose.id}.{name}"


@OF_SOURCES
def test_tests_use_public_names_of_mpwatch() -> None:
    assert faults().of_mpwatch == []


@pytest.mark.parametrize(
    "code",
    [
        "from mpwatch.collect.process.memory import _span",
        "from mpwatch.attach import methods\nmethods._stop()",
        "from mpwatch.attach import methods\nmonkeypatch.setattr(methods, '_stop', None)",
        "monkeypatch.setattr('mpwatch.attach.methods._stop', None)",
    ],
)
def test_each_way_to_use_a_private_name_of_mpwatch_is_found(code: str) -> None:
    assert len(list(private_names_of_mpwatch(nodes_of(code)))) == 1


# --- functions and docstrings ---------------------------------------------------------------------

FUNCTION_LINES = 60


def long_functions(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Functions of more lines than a screen has, from `def` to the end."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{node.name}, {length} lines"


def statements(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.stmt | None, ast.stmt, bool]]:
    """Each statement of a module with the one before it, and whether it may be a docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    with_statements = (ast.mod, ast.stmt, ast.ExceptHandler, ast.match_case)
    for node in nodes:
        if not isinstance(node, with_statements):
            continue
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            before = None
            for each in body if isinstance(body, list) else ():
                is_first = before is None and name == "body" and isinstance(node, documented)
                yield before, each, is_first
                before = each


def texts_of_nothing(nodes: Sequence[ast.AST]) -> Iterator[int]:
    """The lines of strings that stand alone, and are the docstring of nothing before them."""
    for before, each, is_docstring in statements(nodes):
        if not isinstance(each, ast.Expr) or not isinstance(each.value, ast.Constant):
            continue
        is_of_name = isinstance(before, ast.Assign | ast.AnnAssign)
        if isinstance(each.value.value, str) and not (is_docstring or is_of_name):
            yield each.lineno


@dataclass(frozen=True)
class Faults:
    """What the sources of the package and its tests should not have, each with its place."""

    imports_of_textual_and_rich: list[str]
    of_others: list[tuple[str, str]]
    """Place, with the name; and the private name alone, of a file that draws."""
    of_mpwatch: list[str]
    long: list[str]
    of_nothing: list[str]


@cache
def faults() -> Faults:
    """Those of all sources: each is parsed once, and its tree is dropped before the next one."""
    found = Faults([], [], [], [], [])
    of_dashboard: set[str] = set()
    for path, source in sources(REPOSITORY / "mpwatch", REPOSITORY / "tests"):
        module, place = ast.parse(source), path.relative_to(REPOSITORY)
        draws = path != READS_THE_SCREEN and DRAWS.search(source)
        is_of_tests = place.parts[0] == "tests" and path != Path(__file__)
        uses_mpwatch = is_of_tests and "mpwatch" in source and PRIVATE_WORD.search(source)
        nodes = list(ast.walk(module)) if draws or uses_mpwatch else []
        if draws:
            found.imports_of_textual_and_rich.extend(
                f"{place}:{line} {name}" for line, name in private_imports(nodes)
            )
            found.of_others.extend(
                (f"{place}:{line} {name}", name) for line, name in names_of_others(nodes)
            )
        if place.parts[:2] == ("mpwatch", "tui"):
            of_dashboard |= defined(nodes or [*ast.walk(module)])
        if uses_mpwatch:
            found.of_mpwatch.extend(
                f"{place}:{line} {name}" for line, name in private_names_of_mpwatch(nodes)
            )
        blocks = blocks_of(module)
        if place.parts[0] == "mpwatch" and "programs" not in place.parts:
            found.long.extend(f"{place}: {each}" for each in long_functions(blocks))
        found.of_nothing.extend(f"{place}:{line}" for line in texts_of_nothing(blocks))
    # What the dashboard defines as well is its own.
    found.of_others[:] = [each for each in found.of_others if each[1] not in of_dashboard]
    return found


@OF_SOURCES
def test_no_function_is_longer_than_a_screen() -> None:
    """But for the programs of `mpwatch demo`."""
    assert faults().long == []


@pytest.mark.slow
@OF_SOURCES
def test_each_docstring_belongs_to_something() -> None:
    assert faults().of_nothing == []


def test_a_text_of_nothing_is_found() -> None:
    code = '"""Of a module."""\nA = 1\n"""Of A."""\n"""Of nothing."""'

    assert list(texts_of_nothing(nodes_of(code))) == [4]


def test_a_long_function_is_found() -> None:
    code = "def short():\n" + "    f()\n" * 59 + "def long():\n" + "    f()\n" * 60

    assert list(long_functions(nodes_of(code))) == ["long, 61 lines"]
