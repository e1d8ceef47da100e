from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mpwatch.hook import wire
from mpwatch.hook.transport.runtime_dir import KEEP_DEAD_BYTES, SWEEP_EVERY
from tests.conftest import Start
from tests.integration.hook.client import Client, sockets, wait_for_sockets

pytestmark = pytest.mark.slow

THREADED = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}
"""Versions that warn of forks of a program with threads of its own, with or without the hook."""


@pytest.mark.parametrize("mode", ["processes", "raw"])
def test_no_thread_of_the_hook_is_alive_while_a_program_of_one_thread_forks(
    mode: str, start: Start
) -> None:
    program = start("hook_forks.py", mode, "20")

    assert program.wait_for("tasks") == "tasks [1]"
    assert program.wait() == 0


def test_the_cost_of_threads_that_ended_for_forks_stays_in_the_account(
    start: Start, runtime: Path
) -> None:
    program = start("hook_forks.py", "account", "20")

    assert program.wait() == 0, program.lines
    assert program.lines == ["ready", "falls 0", "grows True", "done"]


@pytest.mark.parametrize("mode", ["processes", "raw"])
def test_forking_prints_nothing_and_leaves_no_file(mode: str, start: Start, runtime: Path) -> None:
    program = start("hook_forks.py", mode, "5")

    assert program.wait() == 0
    assert program.lines == ["ready", "tasks [1]", "done"]
    assert list((runtime / "mpwatch").iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "number", "said"),
    [("crowd", "60", []), ("struck", "20", ["heard True"]), ("mocked", "3", ["forks seen 3"])],
)
def test_forks_at_odd_moments_print_nothing_and_lose_no_signal(
    mode: str, number: str, said: list[str], start: Start
) -> None:
    program = start("hook_forks.py", mode, number, env=THREADED)

    assert program.wait() == 0, program.lines
    assert program.lines == ["ready", *said, "done"]


OBSERVER = """
import socket, sys
observer = socket.socket(socket.AF_UNIX)
observer.connect(sys.argv[1])
while observer.recv(65536):
    print("heard", flush=True)
"""


def watch_and_be_killed(path: Path) -> bool:
    """Connect as an observer that is killed while it receives; whether it received anything."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", OBSERVER, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as observer:
        assert observer.stdout is not None
        has_heard = bool(observer.stdout.readline())
        observer.kill()
    return has_heard


def test_with_many_forks_no_child_hangs_and_no_record_is_in_another_ring(
    start: Start, runtime: Path
) -> None:
    program = start("hook_forks.py", "storm", "250", env=THREADED)
    program.wait_for("ready")
    stop = threading.Event()
    visits = killed = 0

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

    def send_observers() -> None:
        nonlocal killed
        while not stop.is_set() and (path := sockets(runtime).get(program.pid)):
            killed += watch_and_be_killed(path)

    visitors = [threading.Thread(target=visit), threading.Thread(target=send_observers)]
    for visitor in visitors:
        visitor.start()
    try:
        code = program.wait(240)
    finally:
        stop.set()
        for visitor in visitors:
            visitor.join(30)

    assert code == 0, program.lines
    assert program.lines[1:4] == ["foreign 0", "children 0", "is written True"]
    assert program.lines[-1] == "done"
    assert visits > 0
    assert killed > 0


def test_files_of_killed_children_are_bounded_while_their_parent_runs(
    start: Start, runtime: Path
) -> None:
    program = start("hook_forks.py", "litter", "500")
    assert program.wait(200) == 0, program.lines

    left = list((runtime / "mpwatch").iterdir())
    assert sum(path.lstat().st_blocks * 512 for path in left) < KEEP_DEAD_BYTES * 1.5
    assert len([path for path in left if path.suffix == ".sock"]) < 2 * SWEEP_EVERY


def test_children_of_many_threads_work_while_their_parent_puts_and_is_watched(
    start: Start, runtime: Path
) -> None:
    program = start("hook_forks.py", "workers", "40", env=THREADED)
    program.wait_for("ready")
    (path,) = wait_for_sockets(runtime, 1).values()
    with Client(path, timeout_s=60) as client:
        client.hello()
        births = client.listen_for(wire.PROCESS_START, 120, 200)
        assert program.wait(60) == 0, program.lines

    assert len({record[7] for record in births}) == 120
    assert program.lines == ["ready", "answers 120", "failed []", "done"]
    assert list((runtime / "mpwatch").iterdir()) == []
