from __future__ import annotations

import importlib
import inspect
import sys
from importlib.machinery import ModuleSpec
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType

import pytest

from mpwatch.hook.strip_docs import strip_package

TEXT = '''
"""What it is."""
class Thing:
    """A thing."""
    def plain(self, number: int) -> int: return number
    @property
    def size(self) -> int: return 1
    @staticmethod
    def loose(text: str) -> str: return text
def outside(path: str) -> None: ...
'''


class Lazy(ModuleType):
    """A module with a `__getattr__` that has an effect."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"somebody asked for {name}")


def module(name: str, parent: ModuleType | None = None) -> ModuleType:
    made = ModuleType(name)
    exec(TEXT, vars(made))
    if parent is not None:
        setattr(parent, name.rpartition(".")[2], made)
    return made


def test_only_the_package_and_its_modules_are_stripped() -> None:
    package = module("lean_package")
    inner = module("lean_package.points", package)
    deep = module("lean_package.points.deep", inner)
    other = module("lean_packages")
    vars(deep).update(other=other, borrowed=vars(other)["outside"], lazy=Lazy("lazy"))

    strip_package(package)

    assert package.__doc__ == "What it is."
    assert inner.__doc__ is deep.__doc__ is None
    for each in (package, inner, deep):
        assert each.Thing.__doc__ is None
        assert not each.outside.__annotations__
        assert not each.Thing.plain.__annotations__
        assert not each.Thing.size.fget.__annotations__
        assert not each.Thing.loose.__annotations__
        assert each.Thing().plain(3) == 3
        assert each.Thing.plain.__qualname__ == "plain"
    assert other.outside.__annotations__
    assert other.Thing.__doc__ == "A thing."


def test_functions_of_the_package_that_users_call_stay_as_they_are() -> None:
    package = ModuleType("lean_package")
    exec('def call() -> int:\n    """Call it."""\n    return 1\n', vars(package))
    code = package.call.__code__

    strip_package(package, ("call",))

    assert package.call.__doc__ == "Call it."
    assert package.call.__annotations__
    assert package.call.__code__ is code


def test_stripped_functions_have_no_docstrings_and_return_the_same() -> None:
    package = module("lean_package")
    inner = module("lean_package.words", package)
    text = (
        'def told(number, more="more"):\n    """It tells."""\n    return [number, "told", more]\n'
        'def bare(): return "It tells."\n'
        'def made():\n    """It makes."""\n    kept = "kept"\n    return lambda: kept\n'
    )
    exec(text, vars(inner))

    strip_package(package)

    told, bare, made = (vars(inner)[name] for name in ("told", "bare", "made"))
    assert told(1) == [1, "told", "more"]
    assert (bare(), made()()) == ("It tells.", "kept")
    assert told.__doc__ is made.__doc__ is None
    constants = [*told.__code__.co_consts, *made.__code__.co_consts]
    assert not [each for each in constants if isinstance(each, str) and each.startswith("It ")]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no table of columns")
def test_stripped_functions_have_one_line_and_raise_and_return_the_same() -> None:
    package = module("lean_package")
    inner = module("lean_package.words", package)
    lines = "".join(f"    number += {n}\n" for n in range(40))
    within = "    def within():\n        return 1 / number\n    return within\n"
    text = f"def outer(number):\n{lines}{within}"
    exec(compile(text, "words.py", "exec"), vars(inner))
    outer = vars(inner)["outer"]
    before = len(outer.__code__.co_linetable)

    strip_package(package)

    assert outer(0)() == 1 / sum(range(40))
    with pytest.raises(ZeroDivisionError) as raised:
        outer(-sum(range(40)))()
    step = raised.value.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    assert step is not None
    assert (step.tb_frame.f_code.co_filename, step.tb_lineno) == ("words.py", 42)
    assert {line for *_, line in outer.__code__.co_lines()} == {1}
    assert len(outer.__code__.co_linetable) < before / 2


@pytest.mark.parametrize("statements", range(9))
def test_a_table_of_lines_ends_with_the_code(statements: int) -> None:
    """CPython 3.11 writes beyond an array of lines where it is longer, once one is traced."""
    package = ModuleType("lean_package")
    inner = ModuleType("lean_package.words")
    vars(package)["words"] = inner
    body = "    number += 1\n" * statements + "    return number\n"
    exec(f"def f(number):\n{body}", vars(inner))

    strip_package(package)

    code = vars(inner)["f"].__code__
    assert sum(end - start for start, end, _ in code.co_lines()) == len(code.co_code)
    if sys.version_info >= (3, 11):
        assert len([*code.co_positions()]) == len(code.co_code) // 2


def test_a_function_that_is_small_already_keeps_its_code() -> None:
    """A copy of its bytecode would stay in it, in an injected hook in that of all functions."""
    package = module("lean_package")
    inner = module("lean_package.words", package)
    strip_package(package)
    code = vars(inner)["outside"].__code__

    strip_package(package)

    assert vars(inner)["outside"].__code__ is code


def test_the_path_of_a_modules_bytecode_is_found_again_where_it_is_asked_for() -> None:
    package = module("lean_package")
    inner = module("lean_package.points", package)
    inner.__path__ = ["/lean_package"]
    spec = ModuleSpec(inner.__name__, None, origin="/lean_package/points.py")
    spec.has_location = True
    inner.__spec__, path = spec, spec.cached

    strip_package(package)

    assert not hasattr(inner, "__cached__") or inner.__cached__ is None
    assert spec.cached == path == cache_from_source("/lean_package/points.py")


def test_a_stripped_module_is_imported_and_reloaded_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lean_folder"
    folder.mkdir()
    (folder / "__init__.py").write_text("from . import words\n")
    (folder / "words.py").write_text("from . import lines as lines\n" + TEXT)
    (folder / "lines.py").write_text("count = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("lean_folder")
    words = package.words

    strip_package(package)

    assert words.__spec__ is words.__loader__ is None
    assert importlib.import_module("lean_folder.words") is words
    assert "loose" in inspect.getsource(words)
    assert importlib.reload(words) is words
    assert words.__spec__ is not None
    for name in [name for name in sys.modules if name.startswith("lean_folder")]:
        monkeypatch.delitem(sys.modules, name)


def test_equal_constants_of_other_types_are_not_exchanged() -> None:
    package = module("lean_package")
    inner = module("lean_package.words", package)
    text = 'def {}():\n    """1."""\n    return {}\n'
    text = text.format("one", 1.0) + text.format("true", True) + "x: int = 1\n"
    exec(text, vars(inner))

    strip_package(package)

    one, true = vars(inner)["one"], vars(inner)["true"]
    assert (one.__code__.co_consts, true.__code__.co_consts) == ((None, 1.0), (None, True))
    assert one() is not True
    assert true() is True
    assert "__annotations__" not in vars(inner)
