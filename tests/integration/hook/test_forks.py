from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.integration.hook.client import Client, sockets

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["processes", "raw"])
def test_no_thread_of_the_hook_is_alive_while_a_program_of_one_thread_forks(
    mode: str, start: Start
) -> None:
    program = start("hook_forks.py", mode, "20")

    assert program.wait_for("tasks") == "tasks [1]"
    assert program.wait() == 0


@pytest.mark.parametrize("mode", ["processes", "raw"])
def test_forking_prints_nothing_and_leaves_no_file(mode: str, start: Start, runtime: Path) -> None:
    program = start("hook_forks.py", mode, "5")

    assert program.wait() == 0
    assert program.lines == ["ready", "tasks [1]", "done"]
    assert list((runtime / "mpwatch").iterdir()) == []


def test_in_a_storm_of_forks_no_child_hangs_and_no_record_goes_astray(
    start: Start, runtime: Path
) -> None:
    program = start("hook_forks.py", "storm", "150")
    program.wait_for("ready")
    stop = threading.Event()
    visits = 0

    def visit() -> None:
        nonlocal visits
        while not stop.is_set():
            path = sockets(runtime).get(program.pid)
            if path is None:
                return
            try:
                with Client(path) as client:
                    client.hello()
                visits += 1
            except (OSError, EOFError):
                time.sleep(0)

    visitor = threading.Thread(target=visit)
    visitor.start()
    try:
        code = program.wait(120)
    finally:
        stop.set()
        visitor.join(30)

    assert code == 0, program.lines
    assert program.lines[1:4] == ["foreign 0", "children 0", "is written True"]
    assert program.lines[-1] == "done"
    assert visits > 0
