"""What is left in a terminal once a dashboard in it is closed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .terminal import Terminal, idle_program

pytestmark = pytest.mark.slow

LEAVES = b"\x1b[?1049l"
"""Switches from the alternate screen, which a dashboard uses, back to the normal one."""
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
WIDTH = 60


def left(terminal: Terminal) -> list[str]:
    """The lines in the terminal after the dashboard was closed."""
    closed = terminal.output.rpartition(LEAVES)[2].decode()
    return [line.rstrip() for line in _STYLE.sub("", closed).replace("\r", "").split("\n")]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens dashboards in narrow terminals."""
    tmp_path.chmod(0o700)
    variables = {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    terminals: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        terminals.append(Terminal(*arguments, variables=variables, width=WIDTH))
        return terminals[-1]

    yield start
    for each in terminals:
        each.end()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    popen = idle_program({"XDG_RUNTIME_DIR": str(tmp_path)})
    yield popen
    popen.kill()
    popen.communicate()


def test_the_state_of_a_job_that_runs_on_is_left_with_the_commands_for_more(
    opened: Callable[..., Terminal], job: subprocess.Popen[bytes]
) -> None:
    terminal = opened("attach", str(job.pid), "--no-hook")
    terminal.read_until("LIVE")
    terminal.press("q")
    assert terminal.wait() == 0

    lines = left(terminal)

    text = " ".join(" ".join(lines).split())
    assert f"({job.pid}) was watched" in text
    assert "it still runs." in text
    assert "No findings" in text
    assert f"more mpwatch diagnose {job.pid}, mpwatch dump {job.pid}" in text
    assert max(map(len, lines)) <= WIDTH
    assert job.poll() is None


def test_the_end_of_a_job_is_left_and_that_nothing_was_recorded(
    opened: Callable[..., Terminal], job: subprocess.Popen[bytes]
) -> None:
    terminal = opened("attach", str(job.pid), "--no-hook")
    terminal.read_until("LIVE")
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    terminal.read_until("SIGKILL")
    terminal.press("q")
    terminal.wait()

    text = " ".join(" ".join(left(terminal)).split())

    assert "it has ended: " in text
    assert "Nothing was recorded; --record FILE keeps what a dashboard shows." in text
    assert "mpwatch diagnose" not in text


def test_the_output_of_a_program_comes_before_the_state_and_the_recording(
    opened: Callable[..., Terminal], tmp_path: Path
) -> None:
    program, recording = tmp_path / "job.py", tmp_path / "a job.mpw"
    program.write_text("print('the last words')\nimport time\nwhile True: time.sleep(0.02)\n")
    terminal = opened("run", "--record", str(recording), str(program))
    terminal.read_until("LIVE")
    terminal.signal(signal.SIGTERM)
    assert terminal.wait() == 128 + signal.SIGTERM

    lines = left(terminal)

    text = " ".join(" ".join(lines).split())
    assert text.index("the last words") < text.index("was watched")
    assert f"more mpwatch replay '{recording}'" in text
    assert recording.exists()
