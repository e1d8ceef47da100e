"""The table of demonstrations agrees with the files of its programs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mpwatch.demo
from mpwatch.demo.catalogue import Scenario, command, find, scenarios

FOLDER = Path(mpwatch.demo.__file__).parent / "programs"
MACHINERY = {"__init__"}
RUNNABLE = [scenario for scenario in scenarios() if not scenario.not_runnable]


def test_every_name_is_used_once() -> None:
    names = [scenario.name for scenario in scenarios()]

    assert len(names) == len(set(names))


def test_every_program_has_a_row_and_every_row_a_program() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - MACHINERY

    assert {scenario.stem for scenario in RUNNABLE} == files


def test_a_failure_names_the_rule_it_is_about() -> None:
    for scenario in scenarios():
        healthy = scenario.name.startswith("healthy")
        assert healthy == (scenario.expected == ()), scenario.name
        assert not set(scenario.expected) & set(scenario.also), scenario.name
        assert scenario.layer in ("proc", "stacks", "hook"), scenario.name


def calls_in(scenario: Scenario) -> set[str]:
    """Functions that a program calls by their names."""
    tree = ast.parse((FOLDER / f"{scenario.stem}.py").read_text())
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_a_failure_that_can_be_run_has_its_nearest_healthy_neighbour(scenario: Scenario) -> None:
    is_failing = bool(scenario.expected) and not scenario.not_runnable

    assert bool(scenario.neighbour) == is_failing
    if is_failing:
        assert "mended" in calls_in(scenario), "nothing in the program depends on --mended"


def test_the_neighbour_is_the_same_program_with_one_argument_more() -> None:
    scenario = find("fork-openmp")

    assert command(scenario, mended=True, seconds=7) == [
        *command(scenario),
        "--mended",
        "--seconds",
        "7",
    ]
    with pytest.raises(ValueError, match="no healthy variant"):
        command(find("healthy"), mended=True)


def test_a_scenario_is_found_by_its_name() -> None:
    assert find("healthy").expected == ()
    with pytest.raises(KeyError):
        find("no-such-scenario")


def test_the_command_runs_the_file_of_the_scenario_for_the_time_asked() -> None:
    python, script, *rest = command(find("healthy"), python="python3", seconds=7)

    assert python == "python3"
    assert Path(script) == FOLDER / "healthy.py"
    assert rest == ["--seconds", "7"]


def test_a_scenario_without_a_program_has_no_command_but_a_reason() -> None:
    for scenario in scenarios():
        if scenario.not_runnable:
            with pytest.raises(ValueError, match="cannot be run"):
                command(scenario)


@pytest.mark.parametrize("scenario", RUNNABLE, ids=lambda scenario: scenario.name)
def test_a_program_begins_with_its_bounds_describes_itself_and_prints_ready(
    scenario: Scenario,
) -> None:
    source = (FOLDER / f"{scenario.stem}.py").read_text()

    assert ast.get_docstring(ast.parse(source))
    assert "begin" in calls_in(scenario)
    assert '"ready"' in source


def test_the_catalogue_is_read_without_torch() -> None:
    code = (
        "import sys, mpwatch.demo.catalogue as c; c.scenarios();"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
