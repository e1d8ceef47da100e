from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from mpwatch.hook import points, wire

FOLDER = Path(points.__file__).parent
(KINDS,) = (
    {key.id for key in node.value.keys if isinstance(key, ast.Name)}
    for node in ast.parse(Path(wire.__file__).read_text(encoding="utf-8")).body
    if isinstance(node, ast.AnnAssign)
    and ast.unparse(node.target) == "KIND_NAMES"
    and isinstance(node.value, ast.Dict)
)
COMMENT = re.compile(r"    # (\w+)\.py: ((?:.|\n    # )*)")


def described() -> dict[str, dict[str, set[str]]]:
    """By module, the records, notes and gauges that the comments of the table list."""
    modules = {}
    for module, text in COMMENT.findall((FOLDER / "__init__.py").read_text(encoding="utf-8")):
        said: dict[str, set[str]] = {"records": set(), "notes": set(), "gauges": set()}
        for clause in re.sub(r"\n +#|\([^)]*\)", "", text).split(";"):
            verb, _, names = clause.strip().partition(" ")
            if verb in said:
                said[verb] = {name.strip() for name in names.split(",")}
        modules[module] = said
    return modules


def used(module: str) -> dict[str, set[str]]:
    """The records, notes and gauges in the source of a module."""
    text = (FOLDER / f"{module}.py").read_text(encoding="utf-8")
    kept = re.sub(r"failed\(\s*wire\.\w+", "", text)
    return {
        "records": KINDS.intersection(re.findall(r"wire\.([A-Z_]+)", kept)),
        # An exception that is noted by `failed` is described once for all modules.
        "notes": set(re.findall(r'note\(\s*"([a-z-]+)"', text)),
        "gauges": set(re.findall(r'(?:gauges|on_request)\["(\w+)"\]', text)),
    }


MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", MODULES)
def test_the_table_says_what_a_module_records(module: str) -> None:
    assert described()[module] == used(module)


def test_no_two_points_have_the_same_name() -> None:
    names = [point.name for point in points.TABLE]

    assert len(set(names)) == len(names)
