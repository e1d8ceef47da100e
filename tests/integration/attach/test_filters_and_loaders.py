"""Attaching through system-call filters, and to a real DataLoader with its workers."""

from __future__ import annotations

import ctypes
import os
import struct

import pytest

from mpwatch.attach import bring_in, bring_in_tree, detach_tree
from tests.integration.attach.conftest import Start, eventually
from tests.integration.attach.test_kinds_of_targets import sample
from tests.integration.attach.test_safety import as_child, is_well

pytestmark = pytest.mark.slow

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
KILL_PROCESS, ERRNO_EPERM, ALLOW = 0x80000000, 0x00050001, 0x7FFF0000
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
PTRACE = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
NO_CALL = 0xFFFFFFFF


def install_filter(number: int, action: int) -> None:
    """From now on, treat one system call of this process like that and allow all others."""
    instructions = (
        (LOAD_NUMBER, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, number),
        (RETURN, 0, 0, action),
        (RETURN, 0, 0, ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *i) for i in instructions))
    program = struct.pack("<HxxxxxxQ", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) == 0


def test_a_target_whose_filter_kills_for_unknown_calls_survives(start: Start) -> None:
    running = start(
        "attach_plain", "idle", preexec_fn=lambda: install_filter(NO_CALL, KILL_PROCESS)
    )
    attached = bring_in(running.process, timeout_s=5)
    assert attached.state == "ready", attached
    assert is_well(running)


def test_an_observer_whose_filter_refuses_ptrace_says_so(start: Start) -> None:
    running = start("attach_plain", "idle")

    def attempt() -> str:
        install_filter(PTRACE, ERRNO_EPERM)
        attached = bring_in(running.process)
        return f"{attached.state}\n{attached.reason}\n{attached.fix}"

    state, reason, fix = as_child(attempt).split("\n")
    assert state == "absent"
    assert "seccomp" in reason
    assert "--security-opt seccomp=unconfined" in fix


def test_a_loader_and_its_workers_take_the_hook_and_go_on_with_the_same_sums(start: Start) -> None:
    running = start("attach_loader")
    with open(f"/proc/{running.pid}/task/{running.pid}/children") as file:
        workers = [int(pid) for pid in file.read().split()]
    assert len(workers) == 2
    samples = [sample(running.pid, role="main")]
    samples += [sample(pid, role="loader-worker") for pid in workers]
    for _ in range(3):
        # The main thread is never away from Python for long; a worker that waits for an index is,
        # until its next poll (5 s, MP_STATUS_CHECK_INTERVAL).
        outcomes = bring_in_tree(samples, lambda outcome: None, timeout_s=20)
        assert [o.state for o in outcomes] == ["ready"] * 3, outcomes
        gone = detach_tree(samples, lambda outcome: None, timeout_s=20)
        assert [o.state for o in gone] == ["absent"] * 3, gone
    running.lines.clear()
    running.newest_line()
    assert set(running.lines) == {str(256 * sum(range(64)))}
    assert eventually(lambda: is_well(running))
