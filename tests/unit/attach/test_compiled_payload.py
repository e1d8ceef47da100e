"""The compiled hook for a target: complete, and without docstrings."""

from __future__ import annotations

import importlib.util
import inspect
import json
import marshal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

import pytest

from mpwatch.attach.payload import compiled_payload, program
from tests import interpreters

HOOK = compiled_payload.installed()
OTHERS = interpreters.other_versions()

# Loads the hook as a payload does, and counts the files of its package that are opened.
COUNT = """
import json, marshal, runpy, sys
program, piece, hook = sys.argv[1:]
with open(piece, "rb") as file: contents = marshal.loads(file.read())
load = runpy.run_path(program)["load"]
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
finders = list(sys.meta_path)
answer = load(contents)
late = [name for name in list(sys.modules) if name.startswith("_mpwatch_hook")]
ours = [path for path in opened if path.startswith(hook) and not path.endswith("path_loader.py")]
assert answer["state"] == "loaded", answer
sys.modules["_mpwatch_hook"].uninstrument()
print(json.dumps([answer, ours, len(late), sys.meta_path == finders]))
"""

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


def functions(code: CodeType) -> Iterator[FunctionType]:
    """All named functions that a code object defines, nested ones included."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & inspect.CO_OPTIMIZED and each.co_name.isidentifier():
                cells = tuple(CellType() for _ in each.co_freevars)
                yield FunctionType(each, {}, closure=cells)
            yield from functions(each)


@pytest.fixture
def code(tmp_path: Path) -> CodeType:
    (tmp_path / "some.py").write_text(MODULE)
    found = compiled_payload.compile_modules(str(tmp_path), str(tmp_path))["some"][2]
    assert found is not None
    return found


def test_no_function_of_the_hook_brings_its_docstring() -> None:
    compiled = compiled_payload.compile_modules(HOOK, HOOK)

    found = [each for _, _, code in compiled.values() if code for each in functions(code)]
    assert len(found) > 300
    assert [each.__qualname__ for each in found if each.__doc__ is not None] == []


def test_functions_behave_the_same_and_keep_texts_other_than_docstrings(code: CodeType) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_a_target_of_any_version_loads_the_hook_without_opening_its_files(
    tmp_path: Path, python: str
) -> None:
    name = Path(python).name
    version = (3, int(name.rpartition(".")[2])) if "." in name else sys.version_info[:2]
    piece = tmp_path / "payload"
    piece.write_bytes(compiled_payload.payload_for(version, "load", HOOK, "attach-1-2"))
    done = subprocess.run(
        [python, "-c", COUNT, program.__file__, str(piece), HOOK],
        env={"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    answer, ours, modules, is_clean = json.loads(done.stdout)
    assert answer["version"]
    assert ours == []
    assert modules > 30
    assert is_clean


def test_a_copy_elsewhere_is_named_in_the_code() -> None:
    contents = marshal.loads(
        compiled_payload.payload_for(sys.version_info[:2], "load", "/run/mpwatch/hook-1", "a")
    )
    modules = marshal.loads(contents["modules"])
    assert contents["magic"] == importlib.util.MAGIC_NUMBER
    assert modules["points.loader"][0] == "/run/mpwatch/hook-1/points/loader.py"
    assert modules["points.loader"][2].co_filename == "/run/mpwatch/hook-1/points/loader.py"
    assert modules["points"][1] is modules[""][1] is True
    assert "run" not in modules


def test_another_version_of_python_gets_the_sources() -> None:
    contents = marshal.loads(compiled_payload.payload_for((3, 4), "load", "/hook", "a"))
    assert contents["magic"] == contents["code"] == b""
    assert contents["modules"]["wire"][2] == Path(HOOK, "wire.py").read_bytes()
