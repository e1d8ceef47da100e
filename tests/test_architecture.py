"""Promises about what is loaded when, proven in fresh interpreters."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("command", ["ps", "ps --json", "doctor", "doctor --json"])
def test_one_shot_commands_load_neither_a_screen_nor_torch(command: str) -> None:
    loaded = roots(modules_after(f"import mpwatch.cli; mpwatch.cli.main({command.split()!r})"))

    assert loaded.isdisjoint(HEAVY)


def test_a_dump_loads_neither_a_screen_nor_torch() -> None:
    code = (
        "import mpwatch.cli, os, subprocess, sys; "
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE); "
        "code = mpwatch.cli.main(['dump', str(child.pid), '--json', '--no-stacks']); "
        "child.communicate(b'\\n'); assert code == 0, code"
    )

    assert roots(modules_after(code)).isdisjoint(HEAVY)


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
