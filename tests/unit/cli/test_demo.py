from __future__ import annotations

import pytest

from mpwatch.cli import main


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["healthy", "--mended"], "healthy shows no failure that could be mended."),
        (["unheard-of"], "There is no scenario 'unheard-of'."),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence_with_a_command(
    line: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *line]) == 2

    told = capsys.readouterr().err
    assert said in told
    assert "mpwatch demo" in told.splitlines()[-1]
    assert "Traceback" not in told
