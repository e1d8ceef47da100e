from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import ClassVar

import pytest

from mpwatch.cli import dashboards
from mpwatch.cli.arguments import build_parser, parse


def test_a_program_keeps_its_own_options() -> None:
    arguments = parse(["run", "-m", "pkg.train", "--lr", "0.1", "--record", "x"])

    assert arguments.is_module
    assert arguments.target == "pkg.train"
    assert arguments.arguments == ["--lr", "0.1", "--record", "x"]
    assert arguments.record is None


def test_without_a_command_the_picker_opens() -> None:
    assert parse([]).command == ("mpwatch.cli.dashboards", "pick")


@pytest.mark.parametrize(
    "line",
    [
        ["attach", "x"],
        ["attach", "-1"],
        ["attach", "0"],
        ["dump", "99999999999"],
        ["dump", "1", "--hook", "--no-hook"],
        ["attach", "1", "--refresh", "0"],
        ["attach", "1", "--refresh", "nan"],
        ["diagnose", "1", "--for", "-3"],
        ["diagnose", "1", "--fail-on", "sometimes"],
        ["record", "1"],
        ["unheard-of"],
    ],
)
def test_invalid_arguments_are_usage_errors(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as leaving:
        parse(line)

    assert leaving.value.code == 2
    assert "usage: mpwatch" in capsys.readouterr().err


def test_every_command_is_parsed_alone_as_it_is_among_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(parse_line: Callable[[list[str]], object], *line: str) -> str:
        with pytest.raises(SystemExit):
            parse_line([*line])
        return "".join(capsys.readouterr())

    commands = re.findall(r"^    ([a-z]+)  ", told(parse, "--help"), re.MULTILINE)
    assert len(commands) > 15
    for line in [[each, option] for each in commands for option in ("--help", "--unheard-of")]:
        assert told(parse, *line) == told(build_parser().parse_args, *line)


class Server:
    """Stands for the server of textual-serve."""

    commands: ClassVar[list[str]] = []

    def __init__(self, command: str, **_: object) -> None:
        self.commands.append(command)

    def serve(self) -> None:
        """Return at once."""


@pytest.mark.parametrize(("options", "handed_on"), [([], False), (["--no-hook"], True)])
def test_serve_hands_the_option_no_hook_on_to_attach(
    monkeypatch: pytest.MonkeyPatch, options: list[str], handed_on: bool
) -> None:
    monkeypatch.setattr("mpwatch.cli.dashboards.server_class", lambda: Server)
    monkeypatch.setattr("mpwatch.cli.dashboards.target", lambda pid, **_: pid)

    assert dashboards.serve(parse(["serve", "42", *options])) == 0

    assert ("--no-hook" in shlex.split(Server.commands[-1])) is handed_on


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("attach", "hooks that are there are used"),
        ("serve", "uses hooks that are there"),
        ("dump", "ignore hooks that are there"),
        ("diagnose", "ignore hooks that are there"),
        ("record", "ignore hooks that are there"),
    ],
)
def test_each_command_says_what_its_no_hook_does(
    capsys: pytest.CaptureFixture[str], command: str, words: str
) -> None:
    with pytest.raises(SystemExit):
        parse([command, "--help"])

    assert words in " ".join(capsys.readouterr().out.split())
