"""Obstacles that pass: another tracer that detaches, a disk that is read."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from mpwatch.attach import inject as inject_module
from mpwatch.attach import methods
from mpwatch.attach.inject import inject
from mpwatch.attach.native import pending_call
from mpwatch.attach.native.cpython_symbols import Interpreter
from mpwatch.attach.native.pending_call import CallPlan
from mpwatch.attach.native.ptrace import Tracee
from mpwatch.attach.outcomes import Refused
from tests import procfs
from tests.integration.attach.conftest import Start
from tests.procfs import eventually

pytestmark = pytest.mark.slow


class Tracer:
    """Another tracer of a thread for a while; the kernel distinguishes tracers by thread."""

    def __init__(self, tid: int, *, stops: bool) -> None:
        self._is_there = threading.Event()
        self._may_go = threading.Event()
        self._thread = threading.Thread(target=self._trace, args=(tid, stops))
        self._thread.start()
        self.tid = self._thread.native_id
        assert self._is_there.wait(30)

    def _trace(self, tid: int, stops: bool) -> None:
        with Tracee(tid) as tracee:
            if stops:
                tracee.interrupt(5.0)
            self._is_there.set()
            assert self._may_go.wait(60)

    def leave(self) -> None:
        self._may_go.set()
        self._thread.join(30)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The refusals that were waited for; the waiting itself is not shortened."""
    found: list[str] = []
    once = inject_module.deliver_once

    def noted(*arguments: object) -> object:
        try:
            return once(*arguments)  # type: ignore[arg-type]
        except Refused as refusal:
            found.append(refusal.reason)
            raise

    monkeypatch.setattr(inject_module, "deliver_once", noted)
    monkeypatch.setattr(methods, "PASSES_WITHIN_S", 30.0)
    return found


@pytest.mark.parametrize("stops", [False, True])
def test_the_hook_is_injected_after_another_tracer_has_detached(
    start: Start, waits: list[str], stops: bool
) -> None:
    running = start("attach_plain", "idle")
    tracer = Tracer(running.pid, stops=stops)

    def leave_when_missed() -> None:
        eventually(lambda: bool(waits))
        tracer.leave()

    leaving = threading.Thread(target=leave_when_missed)
    leaving.start()
    try:
        attached = inject(running.process, timeout_s=20)
    finally:
        tracer.leave()
        leaving.join()
    assert attached.state == "ready", attached
    word = "stopped it for debugging" if stops else "traces it already"
    assert word in waits[0]
    assert procfs.status(running.pid, "TracerPid") == "0"


def test_memory_that_has_changed_since_it_was_looked_at_is_looked_at_again(
    start: Start, waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the target executes another program in between."""
    running = start("attach_plain", "idle")
    prepare, interpreters = pending_call.prepare, []

    def changed_once(interpreter: Interpreter, *arguments: Any) -> CallPlan:
        interpreters.append(interpreter)
        if len(interpreters) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return prepare(interpreter, *arguments)

    monkeypatch.setattr(pending_call, "prepare", changed_once)

    attached = inject(running.process, timeout_s=20)

    assert attached.state == "ready", attached
    assert len(waits) == 1
    assert "its memory has changed meanwhile" in waits[0]
    assert interpreters[1] is not interpreters[0]


def test_a_tracer_that_stays_is_named_and_the_refusal_says_that_it_may_pass(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "PASSES_WITHIN_S", 0.1)
    running = start("attach_plain", "idle")
    tracer = Tracer(running.pid, stops=False)
    try:
        attached = inject(running.process)
    finally:
        tracer.leave()
    assert (attached.state, attached.passes) == ("absent", True)
    assert f"process {tracer.tid} " in attached.reason


def test_the_hook_is_injected_after_uninterruptible_sleep(
    start: Start, waits: list[str], tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    running = start("attach_unbreakable", str(fifo))
    assert eventually(lambda: running.state == "D")
    waking = threading.Thread(
        target=lambda: eventually(lambda: bool(waits)) and fifo.write_bytes(b"")
    )
    waking.start()
    try:
        attached = inject(running.process, timeout_s=20)
    finally:
        waking.join()
    assert attached.state == "ready", attached
    assert "uninterruptible sleep" in waits[0]
    assert running.line() == "on"
