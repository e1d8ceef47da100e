"""`python -m mpwatch.demo new` in a copy of the files that it changes."""

from __future__ import annotations

import ast
import importlib
import runpy
import shutil
from pathlib import Path

import pytest

import mpwatch.demo
from mpwatch.demo.__main__ import CHAPTERS, new
from tests.builders.snapshots import found, main, snapshot_of

ROOT = Path(mpwatch.demo.__file__).parents[2]
CATALOGUE = "mpwatch/demo/catalogue.py"
SIGNALS = "tests/integration/demo/signals.py"
KNOWN_ERRORS = "mpwatch/describe/error_messages.py"
HEARD = "tests/unit/diagnose/rules/test_known_errors.py"
FOLDERS = ("mpwatch/demo/programs", "tests/unit/diagnose/rules")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path in (SIGNALS, CATALOGUE, KNOWN_ERRORS, HEARD):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    for folder in (*FOLDERS, *(f"mpwatch/diagnose/rules/{chapter}" for chapter in CHAPTERS)):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_new_rule_begins_as_five_files_that_can_be_loaded(checkout: Path, chapter: str) -> None:
    paths = new("some-failure", chapter, str(checkout))

    assert len(paths) == 5
    trees = {path: ast.parse((checkout / path).read_text()) for path in paths}
    assert '"some-failure": says(' in ast.unparse(trees[SIGNALS]).replace("'", '"')
    tables = runpy.run_path(str(checkout / CATALOGUE))
    assert tables[chapter.upper()][-1].expected == ("some-failure",)
    rule = runpy.run_path(str(checkout / f"mpwatch/diagnose/rules/{chapter}/some_failure.py"))
    assert rule["RULE"] == "some-failure"
    assert found(rule["check"], snapshot_of(main())) == []
    importlib.import_module(f"mpwatch.diagnose.rules.{chapter}")


def test_a_rule_for_a_message_begins_as_a_row_with_an_example(checkout: Path) -> None:
    paths = new("some-failure", "starting", str(checkout), 'cannot "start"')

    assert len(paths) == 5
    assert not list((checkout / "mpwatch/diagnose/rules").glob("*/*"))
    assert runpy.run_path(str(checkout / CATALOGUE))["STARTING"][-1].layer == "hook"
    table = runpy.run_path(str(checkout / KNOWN_ERRORS))["KNOWN_ERRORS"]
    assert [each.rule for each in table] == sorted(each.rule for each in table)
    (row,) = (each for each in table if each.rule == "some-failure")
    assert row.messages[0].texts == ('cannot "start"',)
    rule, entry = runpy.run_path(str(checkout / HEARD))["HEARD"][-1]
    assert (rule, entry.words) == ("some-failure", "TODO: a whole message")


def test_existing_files_are_not_overwritten(checkout: Path) -> None:
    paths = new("some-failure", "hangs", str(checkout))
    before = {path: (checkout / path).read_text() for path in paths}

    with pytest.raises(ValueError, match="exists already"):
        new("some-failure", "hangs", str(checkout))
    with pytest.raises(ValueError, match="has this rule already"):
        new("max-map-count", "transport", str(checkout))

    assert {path: (checkout / path).read_text() for path in paths} == before
    assert not (checkout / "mpwatch/demo/programs/max_map_count.py").exists()
