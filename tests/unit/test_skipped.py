from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.demo.catalogue import scenarios
from tests.skipped import remedy, summary

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]
NIGHTLY = TESTS.parent / ".github/workflows/nightly.yml"
NEED_ROOT = ("root", "root, and a writable cgroup", "a privileged container")


def test_skipped_tests_are_summed_up_by_what_they_need_the_most_frequent_first() -> None:
    reasons = ["Skipped: only root may", "Skipped: set MPWATCH_ALL_DEMOS=1"] * 2
    reasons.append("Skipped: only root can")

    assert summary(reasons) == "5 skipped: 3 need root; 2 need MPWATCH_ALL_DEMOS=1 with -n 0"


def test_an_unknown_reason_is_quoted() -> None:
    assert summary(["Skipped: it rains"]) == "1 skipped: 1 need it rains"


def test_without_skipped_tests_there_is_no_line() -> None:
    assert summary([]) == ""


@pytest.mark.slow
def test_the_last_line_of_a_run_sums_up_what_was_skipped(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "from tests.conftest import pytest_terminal_summary\n"
        "__all__ = ['pytest_terminal_summary']\n"
    )
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.skipif(True, reason='gdb is missing')\ndef test_marked(): ...\n"
        "def test_called(): pytest.skip('only root may')\n"
    )

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    result.stdout.fnmatch_lines("2 skipped: 1 need apt install gdb; 1 need root")


def reasons_in(path: Path) -> Iterator[str]:
    """The reasons for skipping tests in a file, without values filled in at runtime."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "skip" and node.args:
            yield _text(node.args[0])
        elif node.func.attr == "skipif":
            yield from (_text(each.value) for each in node.keywords if each.arg == "reason")


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
        return "MPWATCH_ALL_DEMOS" if node.value.id == "ON_DEMAND" else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.slow
def test_every_reason_for_skipping_a_test_has_a_remedy() -> None:
    found = [reason for path in TESTS.rglob("test_*.py") for reason in reasons_in(path)]
    found += reasons_in(TESTS / "integration/attach/conftest.py")
    found += [scenario.not_runnable for scenario in scenarios()]
    known = {"", "it rains"}

    assert len(found) > 30
    assert {reason for reason in found if reason not in known and remedy(reason) is None} == set()


@pytest.mark.slow
@pytest.mark.skipif(not NIGHTLY.exists(), reason="no workflows in a source distribution")
def test_the_nightly_job_of_root_runs_each_test_that_only_root_can_run() -> None:
    (pattern,) = re.findall(r"grep -rlE '(.*)' tests/unit tests/integration", NIGHTLY.read_text())
    files = [p for part in ("unit", "integration") for p in (TESTS / part).rglob("test_*.py")]
    needing = [p for p in files if {remedy(reason) for reason in reasons_in(p)} & {*NEED_ROOT}]

    assert len(needing) > 10
    assert [str(p) for p in needing if not re.search(pattern, p.read_text())] == []
