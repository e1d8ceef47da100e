from __future__ import annotations

import re
from pathlib import Path

from mpwatch.cli.arguments import build_parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def commands_that_exist() -> set[str]:
    """The names of all subcommands."""
    for action in build_parser()._actions:
        if isinstance(action.choices, dict):
            return set(action.choices)
    return set()


def test_every_picture_the_readme_shows_exists() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)

    assert pictures
    assert [picture for picture in pictures if not (ROOT / picture).is_file()] == []


def test_the_readme_names_every_command_and_no_other() -> None:
    named = set(re.findall(r"`mpwatch ([a-z]+)", README))

    assert named == commands_that_exist()


def test_the_continuous_integration_runs_the_readmes_own_test_command() -> None:
    block = README.split("<!-- test command -->")[1].split("<!-- end -->")[0]

    assert "python3 -m venv .venv && " in block
    assert "pytest" in block
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text()
