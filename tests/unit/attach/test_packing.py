"""What a target is given to load: all of the hook, and nothing that it would only drop."""

from __future__ import annotations

import inspect
import marshal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

import pytest

from mpwatch.attach import packing

MODULE = '''"""A module."""

PLAIN = "not a docstring", lambda: "neither"

def documented(word="default"):
    """It says what it returns."""
    def inner():
        "So does this."
        return word
    return inner, [f"{each} of " "a text" for each in range(2)]

def bare():
    return "the first constant"

class Documented:
    """A class."""

    def method(self):
        """A method."""
        return __class__
'''


def unpacked(piece: bytes) -> dict[str, tuple[str, bool, CodeType]]:
    packed: dict[str, tuple[str, bool, CodeType]] = marshal.loads(
        piece[8 + int.from_bytes(piece[4:8], "little") :]
    )
    return packed


def functions(code: CodeType) -> Iterator[FunctionType]:
    """All functions with a name that a piece of code makes, and those within them."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & inspect.CO_OPTIMIZED and each.co_name.isidentifier():
                cells = tuple(CellType() for _ in each.co_freevars)
                yield FunctionType(each, {}, closure=cells)
            yield from functions(each)


@pytest.fixture
def code(tmp_path: Path) -> CodeType:
    (tmp_path / "some.py").write_text(MODULE)
    return unpacked(packing.pack(str(tmp_path), str(tmp_path), ""))["some"][2]


def test_no_function_of_the_hook_brings_its_docstring() -> None:
    folder = str(Path(packing.__file__).parents[1] / "hook")

    packed = unpacked(packing.pack(folder, folder, ""))

    found = [each for _, _, code in packed.values() for each in functions(code)]
    assert len(found) > 300
    assert [each.__qualname__ for each in found if each.__doc__ is not None] == []


def test_texts_that_are_no_docstrings_stay_and_so_does_what_functions_do(code: CodeType) -> None:
    names: dict[str, Any] = {"__name__": "some"}
    exec(code, names)

    plain, neither = names["PLAIN"]
    inner, texts = names["documented"]()
    assert (plain, neither()) == ("not a docstring", "neither")
    assert (inner(), inner.__doc__, texts) == ("default", None, ["0 of a text", "1 of a text"])
    assert names["bare"]() == "the first constant"
    kind = names["Documented"]
    assert kind().method() is kind


def test_lines_are_those_of_the_file(code: CodeType, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "some"}
    exec(code, names)
    documented = names["documented"]

    assert documented.__code__.co_filename == str(tmp_path / "some.py")
    assert (
        documented.__code__.co_firstlineno
        == MODULE.splitlines().index('def documented(word="default"):') + 1
    )
    assert sys.version_info < (3, 11) or documented.__code__.co_qualname == "documented"
