"""A main thread that is blocked outside Python: the injection is pending until it returns."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from unittest.mock import ANY

import pytest

from mpwatch.attach import methods
from mpwatch.attach.attach_session import AttachSession
from mpwatch.attach.inject import deliver, detach, inject
from mpwatch.attach.injection_log import InjectionLog
from mpwatch.attach.methods import Attempt
from mpwatch.attach.target import read_target
from tests.integration.attach.conftest import Start
from tests.integration.attach.test_blocked_calls import is_blocked
from tests.integration.attach.test_kinds_of_targets import sample
from tests.integration.attach.test_safety import is_well
from tests.integration.hook.client import Client, sockets, wait_for_sockets
from tests.procfs import eventually

pytestmark = pytest.mark.slow

BLOCKED = re.compile(
    r"its main thread is blocked in read\(\d+\), pipe:\[\d+\];"
    r" the hook arrives when it comes back to Python"
)


def test_a_main_thread_that_waits_for_a_queue_is_injected_with_the_next_item(
    start: Start, runtime: Path
) -> None:
    running = start("attach_queue")
    assert eventually(lambda: is_blocked(running.pid))
    attached = inject(running.process, timeout_s=0.1)
    assert attached.state == "pending"
    assert BLOCKED.fullmatch(attached.reason)
    assert inject(running.process, timeout_s=0.1).state == "pending"
    assert sockets(runtime) == {}
    running.say(b"something\n")
    assert running.line() == "got something"
    with Client(wait_for_sockets(runtime, 1)[running.pid]) as client:
        assert client.hello()["started_by"] == "attach"
    running.say(b"more\n")
    assert running.line() == "got more"
    left = list((runtime / "mpwatch").glob("attach-*"))
    if left:
        # The disk did not answer in time for the mark that nobody waits: the next one removes it.
        assert "unattended" not in os.listdir(left[0])
        assert inject(running.process).state == "ready"
    assert list((runtime / "mpwatch").glob("attach-*")) == []


def test_an_injection_does_not_take_a_pending_detach_for_its_own(
    start: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "PASSES_WITHIN_S", 0.1)
    running = start("attach_queue")
    assert eventually(lambda: is_blocked(running.pid))
    for _ in range(2):  # the second one waits for the answer to the first
        assert deliver(Attempt(read_target(running.process)), "unload", 0.1) == (None, ANY)

    attached = inject(running.process, timeout_s=0.1)
    assert (attached.state, attached.passes) == ("absent", True)
    assert attached.reason == "an injection or a detach has not finished in it"
    running.say(b"something\n")
    assert running.line() == "got something"
    assert inject(running.process, timeout_s=0.1).state == "pending"
    assert is_well(running)


def test_asking_again_for_a_pending_injection_leaves_no_second_line(
    start: Start, tmp_path: Path
) -> None:
    running = start("attach_queue")
    assert eventually(lambda: is_blocked(running.pid))
    session = AttachSession(running.process, log=InjectionLog(str(tmp_path / "log")))
    states: list[str] = []
    for _ in range(2):
        session.inject([sample(running.pid)], lambda status: states.append(status.state))
    assert states == ["pending", "pending"]
    session.end()

    lines = Path(session.log.path).read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["inject", "detach"]


def test_a_signal_that_the_program_handles_completes_a_pending_injection(
    start: Start, runtime: Path
) -> None:
    running = start("attach_queue")
    assert eventually(lambda: is_blocked(running.pid))
    assert inject(running.process, timeout_s=0.1).state == "pending"
    os.kill(running.pid, signal.SIGUSR1)
    assert running.line() == "noticed"
    wait_for_sockets(runtime, 1)
    assert eventually(lambda: is_blocked(running.pid))
    running.say(b"something\n")
    assert running.line() == "got something"
    assert is_well(running)


def test_a_pending_injection_can_be_cancelled(start: Start, runtime: Path) -> None:
    running = start("attach_queue")
    assert eventually(lambda: is_blocked(running.pid))
    assert inject(running.process, timeout_s=0.1).state == "pending"
    assert detach(running.process, timeout_s=0.1).state == "absent"
    running.say(b"something\n")
    assert running.line() == "got something"
    running.say(b"more\n")
    assert running.line() == "got more"
    assert list((runtime / "mpwatch").iterdir()) == []


# Reads a line while it imports a module that has the name of one of the standard library.
IMPORTING = """
import os, sys
print("ready", flush=True)
sys.path.insert(0, os.path.dirname(__file__))
import zipapp
os.read(0, 100)
print("read", flush=True)
os.read(0, 100)
"""
IMPORTED = """
import os
os.read(0, 100)
print("read", flush=True)
"""


def test_a_call_that_ran_during_an_import_is_repeated(
    start: Start, runtime: Path, tmp_path: Path
) -> None:
    (tmp_path / "importing.py").write_text(IMPORTING)
    (tmp_path / "zipapp.py").write_text(IMPORTED)
    running = start(str(tmp_path / "importing"))
    assert eventually(lambda: is_blocked(running.pid))
    assert inject(running.process, timeout_s=0.1).state == "pending"
    running.say(b"\n")
    assert running.line() == "read"
    assert eventually(lambda: is_blocked(running.pid))
    assert sockets(runtime) == {}
    assert inject(running.process, timeout_s=0.1, again=True).state == "pending"
    running.say(b"\n")
    assert running.line() == "read"
    wait_for_sockets(runtime, 1)


def test_a_cancelled_injection_is_not_repeated(start: Start, runtime: Path) -> None:
    running = start("attach_queue")
    assert eventually(lambda: is_blocked(running.pid))
    assert inject(running.process, timeout_s=0.1).state == "pending"
    assert detach(running.process, timeout_s=0.1).state == "absent"
    attached = inject(running.process, timeout_s=0.1, again=True)
    assert (attached.state, attached.reason) == ("absent", "it was called off")
    running.say(b"something\n")
    assert running.line() == "got something"
    assert sockets(runtime) == {}
