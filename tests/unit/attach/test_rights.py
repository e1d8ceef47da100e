from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mpwatch.collect import rights
from mpwatch.collect.rights import Facts, judge

SYS_PTRACE = 1 << 19
PLAIN = Facts(pid=42, uid=1000, capabilities=0, uids=(1000, 1000, 1000, 1000), may_open=True)
REFUSED = replace(PLAIN, may_open=False)


def test_the_owner_may_where_nothing_forbids_it() -> None:
    assert judge(PLAIN).is_allowed
    assert judge(PLAIN).reason == ""


def test_a_process_that_has_gone_is_no_matter_of_rights() -> None:
    assert judge(replace(PLAIN, may_open=None)).reason == "the process has gone"


@pytest.mark.parametrize(
    ("facts", "reason", "fix"),
    [
        (replace(REFUSED, uids=(0, 0, 0, 0)), "belongs to uid 0", "sudo -u '#0' mpwatch attach 42"),
        (
            replace(REFUSED, uids=(1000, 1001, 1000, 1000)),
            "has changed its user id",
            "sudo mpwatch attach 42",
        ),
        (replace(REFUSED, yama_scope=1), "its own children", "kernel.yama.ptrace_scope=0"),
        (replace(REFUSED, yama_scope=2), "nothing without CAP_SYS_PTRACE", "sudo"),
        (replace(REFUSED, yama_scope=3), "until the next boot", "reboot"),
        (
            replace(REFUSED, yama_scope=1, in_container=True),
            "ptrace_scope = 1",
            "--cap-add=SYS_PTRACE",
        ),
        (replace(REFUSED, is_dumpable=False), "undumpable", "sudo"),
        (replace(REFUSED, is_same_user_namespace=False), "another user namespace", "inside it"),
        (
            replace(REFUSED, capabilities=SYS_PTRACE, is_same_user_namespace=False),
            "no CAP_SYS_PTRACE",
            "on the host",
        ),
        (
            replace(REFUSED, capabilities=SYS_PTRACE, security_label="docker-default (enforce)"),
            "docker-default",
            "apparmor=unconfined",
        ),
        (replace(REFUSED, in_container=True), "kernel refuses", '{add: ["SYS_PTRACE"]}'),
        (replace(PLAIN, is_ptrace_filtered=True), "seccomp", "seccompProfile"),
        (
            replace(PLAIN, tracer_pid=7, tracer_name="gdb"),
            "process 7 (gdb) traces it already",
            "kill 7",
        ),
    ],
)
def test_each_obstacle_is_named_with_what_removes_it(facts: Facts, reason: str, fix: str) -> None:
    verdict = judge(facts)
    assert not verdict.is_allowed
    assert reason in verdict.reason
    assert fix in verdict.fix


def test_several_obstacles_are_all_reported() -> None:
    verdict = judge(replace(REFUSED, is_ptrace_filtered=True, uids=(0, 0, 0, 0)))
    assert len(verdict.obstacles) == 2


def test_facts_come_from_procfs(tmp_path: Path) -> None:
    for name, status in (
        ("self", "CapEff:\t0000000000080000\nSeccomp:\t2\n"),
        ("42", "Uid:\t5\t6\t7\t8\nGid:\t1\t1\t1\t1\nTracerPid:\t9\n"),
        ("9", ""),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status").write_text(status)
    (tmp_path / "9" / "comm").write_text("strace\n")
    (tmp_path / "42" / "mem").touch()
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/yama/ptrace_scope").write_text("1\n")
    facts = rights.read_facts(42, str(tmp_path), lambda: False)
    assert facts.uids == (5, 6, 7, 8)
    assert (facts.tracer_pid, facts.tracer_name) == (9, "strace")
    assert facts.yama_scope == 1
    assert facts.capabilities == SYS_PTRACE
    assert facts.own_seccomp == 2
    assert facts.may_open is True


def test_we_may_look_at_ourselves() -> None:
    assert rights.check(os.getpid()).is_allowed
