from __future__ import annotations

import os
import subprocess
import sys
import threading

from mpwatch.cli import run
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
