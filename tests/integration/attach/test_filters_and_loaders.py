"""Attaching through system-call filters, and to a real DataLoader with its workers."""

from __future__ import annotations

import ctypes
import os
import struct
from functools import partial
from pathlib import Path

import pytest

from mpwatch.attach.attach_session import AttachSession
from mpwatch.attach.inject import inject
from mpwatch.attach.inject_tree import inject_tree
from mpwatch.attach.injection_log import InjectionLog
from mpwatch.attach.plan import plan_injection
from mpwatch.model.events import HookStatus
from tests import procfs
from tests.integration.attach.conftest import Running, Start
from tests.integration.attach.test_kinds_of_targets import sample
from tests.integration.attach.test_safety import as_child, is_well

pytestmark = pytest.mark.slow

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ERRNO_EPERM, ALLOW = 0x00050001, 0x7FFF0000
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
PTRACE = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
KILLED_FOR = {
    "x86_64": {"openat": 257, "mmap": 9, "socket": 41},
    "aarch64": {"openat": 56, "mmap": 222, "socket": 198},
}[os.uname().machine]


def install_filter(number: int, action: int) -> None:
    """Install a seccomp filter for one system call of this process; all others are allowed."""
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


def child_of(running: Running) -> int:
    (child,) = procfs.children(running.pid)
    return child


@pytest.mark.parametrize("call", KILLED_FOR)
def test_a_sandboxed_child_is_excluded_and_continues(start: Start, call: str) -> None:
    """The filter kills for a call that an injection makes in every case, or makes at first."""
    running = start("attach_sandboxed", "filter", str(KILLED_FOR[call]))
    child = child_of(running)
    samples = [sample(running.pid, role="main"), sample(child, role="spawned")]
    planned = plan_injection(samples).processes
    parent, sandboxed = inject_tree(samples, lambda outcome: None, timeout_s=30)
    assert parent.state == "ready", parent
    assert sandboxed.state == "absent"
    assert "sandboxed" in sandboxed.reason
    assert sandboxed.stopped_s is None
    assert [each.reason for each in planned] == ["", sandboxed.reason]
    for _ in range(20):  # the child's lines arrive through the parent
        assert running.newest_line() == "alive"


@pytest.mark.parametrize("only", [(), ("child",)])
def test_a_session_that_injects_a_sandboxed_child_alone_compares_it_with_the_root(
    start: Start, tmp_path: Path, only: tuple[str, ...]
) -> None:
    """As for a child that is sampled later, and where the root process has the hook already."""
    running = start("attach_sandboxed", "filter", str(KILLED_FOR["openat"]))
    child = child_of(running)
    log = InjectionLog(str(tmp_path / "log"))
    session = AttachSession(running.process, only=[child for _ in only], log=log)
    seen: list[HookStatus] = []
    session.inject([sample(child, role="spawned")], seen.append)
    assert [(status.state, "sandboxed" in status.reason) for status in seen] == [("absent", True)]
    for _ in range(20):  # the child's lines arrive through the parent
        assert running.newest_line() == "alive"


@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_process_whose_root_has_exited_is_compared_with_mpwatch(
    start: Start, is_filtered: bool
) -> None:
    root = start("attach_plain", "idle")
    limit = partial(install_filter, PTRACE, ERRNO_EPERM)
    running = start("attach_plain", "idle", preexec_fn=limit if is_filtered else None)
    samples = [sample(root.pid, role="main"), sample(running.pid, role="spawned")]
    root.popen.kill()
    root.popen.wait()
    planned = plan_injection(samples).processes
    _, orphan = inject_tree(samples, lambda outcome: None, timeout_s=30)
    assert planned[1].reason == orphan.reason
    if is_filtered:
        assert orphan.state == "absent"
        assert "that mpwatch does not have (the root process has exited)" in orphan.reason
    else:
        assert orphan.state == "ready", orphan


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("how", "word"), [("user", "another user (uid 1001)"), ("mounts", "another mnt namespace")]
)
def test_a_child_of_another_user_or_namespace_is_excluded(
    start: Start, how: str, word: str
) -> None:
    running = start("attach_sandboxed", how)
    samples = [sample(running.pid, role="main"), sample(child_of(running), role="spawned")]
    planned = plan_injection(samples).processes
    parent, other = inject_tree(samples, lambda outcome: None, timeout_s=30)
    assert (parent.state, other.state) == ("ready", "absent")
    assert word in other.reason
    assert [each.reason for each in planned] == ["", other.reason]


def test_a_root_process_with_a_filter_of_its_own_gets_the_hook(start: Start) -> None:
    """As in every container: its filter forbids some calls, none of which an injection makes."""
    running = start("attach_plain", "idle", preexec_fn=lambda: install_filter(PTRACE, ERRNO_EPERM))
    (attached,) = inject_tree([sample(running.pid)], lambda outcome: None, timeout_s=30)
    assert attached.state == "ready", attached
    assert is_well(running)


def test_an_observer_whose_filter_refuses_ptrace_says_so(start: Start) -> None:
    running = start("attach_plain", "idle")

    def attempt() -> str:
        install_filter(PTRACE, ERRNO_EPERM)
        attached = inject(running.process)
        return f"{attached.state}\n{attached.reason}\n{attached.fix}"

    state, reason, fix = as_child(attempt).split("\n")
    assert state == "absent"
    assert "seccomp" in reason
    assert "--security-opt seccomp=unconfined" in fix
