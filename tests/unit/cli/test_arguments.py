from __future__ import annotations

import pytest

from mpwatch.cli.arguments import parse


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
