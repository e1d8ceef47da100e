from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import mpwatch.hook

HOOK = Path(mpwatch.hook.__file__).parent
LAYERS = (
    ("session",),
    ("requests",),
    ("points",),
    ("lifecycle",),
    ("checks",),
    ("context",),
    ("state",),
    ("transport",),
    ("safe",),
    ("strip_docs", "wire"),
)
"""From the top: a module imports only from its own layer and from those below it."""
ALLOWED = {
    # The state of wrappers loads checks, which are its own optional parts.
    ("state/start_checks.py", "checks"),
    ("state/thread_state.py", "checks"),
    # The size and keys of a storage are read in the same way as by the hook points.
    ("checks/late_attach_scan.py", "points"),
    # Types: a context is what session, points and checks have in common.
    ("checks/fork_risks.py", "context"),
}


def imported(path: Path) -> Iterator[str]:
    """The first parts of modules of the hook that a file imports, under TYPE_CHECKING too."""
    package = path.relative_to(HOOK).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
        names = [base[0]] if base[0] else [each.name for each in node.names]
        yield from names


def test_modules_of_the_hook_import_from_lower_layers_only() -> None:
    rank = {name: number for number, names in enumerate(LAYERS) for name in names}
    wrong = set()
    for path in HOOK.rglob("*.py"):
        inside = path.relative_to(HOOK)
        own = inside.parts[0].removesuffix(".py")
        if own in ("__init__", "run"):
            continue
        for name in imported(path):
            if rank[name] < rank[own] and (str(inside), name) not in ALLOWED:
                wrong.add((str(inside), name))

    assert sorted(wrong) == []


def test_no_part_of_the_hook_knows_the_session() -> None:
    knowing = {
        str(path.relative_to(HOOK)) for path in HOOK.rglob("*.py") if "session" in imported(path)
    }

    assert knowing == {"__init__.py"}
