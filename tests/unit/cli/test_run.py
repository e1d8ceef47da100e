from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from importlib.util import find_spec

import pytest

from mpwatch.cli import main, run
from tests import procfs


def test_the_exit_status_of_a_program_stays_available() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)"], stdin=subprocess.PIPE
    )
    assert child.stdin is not None
    assert not run.has_ended(child)

    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert run.has_ended(child)
    assert procfs.fields(child.pid)[0] == "Z"
    assert child.wait() == 7
    assert run.has_ended(child)


def test_a_running_program_has_not_ended_for_any_thread() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    answers: list[bool] = []

    asking = threading.Thread(target=lambda: answers.append(run.has_ended(child)))
    asking.start()
    asking.join()

    assert answers == [False]
    child.kill()
    child.communicate()


POUR = """\
import signal, subprocess, sys
from mpwatch.cli import run
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run below nohup
child = subprocess.Popen(["sleep", "60"])
signals = run.ForwardedSignals(child)
run.copy_output("/dev/null", child, signals, "the dashboard is closed")
sys.exit(0 if child.wait() == -signal.SIGHUP else 3)
"""


def test_a_terminal_that_is_gone_before_the_notice_counts_as_sighup() -> None:
    ours, theirs = pty.openpty()
    os.close(ours)  # every write to the other end fails with EIO now
    try:
        command = [sys.executable, "-c", POUR]
        done = subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, timeout=60)
    finally:
        os.close(theirs)
    assert done.returncode == 0


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
