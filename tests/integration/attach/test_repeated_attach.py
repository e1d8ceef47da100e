"""What many attach-detach rounds leave in a target."""

from __future__ import annotations

import pytest

from mpwatch.attach.inject import detach, inject
from tests.integration.attach.conftest import Running, Start
from tests.integration.attach.test_blocked_calls import is_blocked
from tests.procfs import eventually

pytestmark = pytest.mark.slow

ROUNDS = 25
WARM_UP = 3


def blocks_and_callbacks(running: Running) -> tuple[int, int]:
    running.say(b"\n")
    blocks, callbacks = map(int, running.line().split())
    return blocks, callbacks


def attach_and_detach(running: Running) -> None:
    """Attach and detach once; the target reads a line in between, because a pending call waits for
    Python code."""
    assert eventually(lambda: is_blocked(running.pid))
    assert inject(running.process, timeout_s=0.0).state in ("pending", "ready")
    blocks_and_callbacks(running)
    assert eventually(lambda: inject(running.process).method == "already there")
    assert detach(running.process, timeout_s=20).state == "absent"


def test_rounds_leave_no_blocks_and_no_exit_callbacks(start: Start) -> None:
    running = start("attach_blocks")
    for _ in range(WARM_UP):
        attach_and_detach(running)
    blocks, callbacks = blocks_and_callbacks(running)
    for _ in range(ROUNDS):
        attach_and_detach(running)
    later_blocks, later_callbacks = blocks_and_callbacks(running)
    assert later_callbacks == callbacks
    assert later_blocks - blocks < 2 * ROUNDS
