from __future__ import annotations

from importlib.util import find_spec

import pytest

from mpwatch.cli import main


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        pytest.param(
            ["healthy", "--mended"],
            "healthy shows no failure, so there is nothing to mend.",
            marks=pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
        ),
        (["unheard-of"], "There is no scenario 'unheard-of'."),
    ],
)
def test_a_scenario_that_cannot_be_shown_is_a_usage_error(
    line: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *line]) == 2

    printed = capsys.readouterr().err
    assert sentence in printed
    assert "mpwatch demo" in printed.splitlines()[-1]
    assert "Traceback" not in printed
