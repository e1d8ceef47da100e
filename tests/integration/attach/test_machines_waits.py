"""A main thread that waits for another one takes the hook, on every interpreter of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpwatch.attach.inject import inject
from tests.integration.attach.conftest import Start
from tests.integration.attach.test_blocked_calls import is_blocked
from tests.integration.attach.test_kinds_of_targets import PYTHONS
from tests.procfs import eventually

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, threading
from concurrent.futures import Future

future = Future()
event = threading.Event()

def answer():
    sys.stdin.readline()
    event.set()
    future.set_result(True)

thread = threading.Thread(target=answer)
waits = {
    "event": lambda: event.wait(),
    "event with timeout": lambda: event.wait(1000),
    "join": lambda: thread.join() is None,
    "result": lambda: future.result(),
}
thread.start()
print("ready", flush=True)
print(waits[sys.argv[1]](), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("wait", ["event", "event with timeout", "join", "result"])
def test_a_main_thread_that_waits_for_another_is_pending_and_then_ready(
    start: Start, tmp_path: Path, python: str, wait: str
) -> None:
    program = tmp_path / "wait.py"
    program.write_text(PROGRAM)
    running = start(str(program.with_suffix("")), wait, python=python)
    assert eventually(lambda: is_blocked(running.pid))
    attached = inject(running.process, timeout_s=0.05)
    assert attached.state == "pending", attached
    assert "blocked in" in attached.reason
    running.say(b"go\n")
    assert running.line() == "True"
    assert eventually(lambda: inject(running.process).state == "ready")
