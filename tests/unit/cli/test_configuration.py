from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.cli.configuration import default_path, read_configuration
from mpwatch.cli.failures import Failure


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> str:
    path = folder / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


def refused(path: str) -> str:
    with pytest.raises(Failure) as caught:
        read_configuration(path)
    assert caught.value.exit_code == 2
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("answer", ["ask", "always", "never"])
def test_the_file_decides_whether_to_inject(tmp_path: Path, answer: str) -> None:
    path = written(tmp_path, f'[attach]\nhook = "{answer}"\n')

    assert read_configuration(path).hook == answer


@pytest.mark.parametrize(("text", "is_allowed"), [("", True), ("[values]\nread = false\n", False)])
def test_the_file_decides_whether_values_are_read(
    tmp_path: Path, text: str, is_allowed: bool
) -> None:
    assert read_configuration(written(tmp_path, text)).values is is_allowed


@pytest.mark.parametrize("text", ["", "[attach]\n", "# nothing\n"])
def test_without_a_setting_the_user_is_asked(tmp_path: Path, text: str) -> None:
    assert read_configuration(written(tmp_path, text)).hook == "ask"


def test_without_a_file_the_user_is_asked(tmp_path: Path) -> None:
    assert read_configuration(str(tmp_path / "none" / "config.toml")).hook == "ask"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[attach\nhook = "ask"', "malformed"),
        (b"[attach]\nhook = '\xff'", "malformed"),
        ('[attach]\nhook = "sometimes"', "'sometimes'"),
        ("[attach]\nhook = true", "True"),
        ('[attach]\nhok = "never"', "attach.hok"),
        ('hook = "never"', "'hook'"),
        ("attach = 1", "not a table"),
        ("values = 1", "values is not a table"),
        ('[values]\nread = "no"', "values.read is 'no'"),
        ("[values]\nlocals = true", "values.locals"),
        ('[attach]\nhook = "\\u001b[2J"', "malformed"),
        ("x = " + "[" * 5000, "malformed"),
        ("#" * 70_000, "larger"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    sentence = refused(written(tmp_path, text))

    assert words in sentence
    assert sentence.isprintable()


@pytest.mark.parametrize("mode", [0o622, 0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    assert "written by other users" in refused(written(tmp_path, "", mode))


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)

    assert f"belongs to uid {user}" in refused(path)


def test_a_fifo_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml", 0o600)

    assert "not a regular file" in refused(str(tmp_path / "config.toml"))


def test_the_path_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_path() == str(tmp_path / "mpwatch" / "config.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_path() == "/home/ann/.config/mpwatch/config.toml"
