"""The output of a program whose dashboard was closed, on a terminal that is closed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

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
