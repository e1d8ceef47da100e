from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.collect.host import ptrace_access
from mpwatch.collect.host.ptrace_access import AccessFacts, judge

SETUID, SYS_PTRACE, SYS_ADMIN = 1 << 7, 1 << 19, 1 << 21
PLAIN = AccessFacts(pid=42, uid=1000, capabilities=0, uids=(1000, 1000, 1000, 1000), may_open=True)
REFUSED = replace(PLAIN, may_open=False)
ROOT_INSIDE = replace(REFUSED, uid=0, uids=(0, 0, 0, 0), in_container=True)
OTHERS = replace(REFUSED, uids=(0, 0, 0, 0))


def test_the_owner_may_trace_where_nothing_forbids_it() -> None:
    assert judge(PLAIN).is_allowed
    assert judge(PLAIN).reason == ""


def test_an_exited_process_is_not_reported_as_a_lack_of_rights() -> None:
    assert judge(replace(PLAIN, may_open=None)).reason == "the process has exited"


@pytest.mark.parametrize(
    ("facts", "reason", "fix"),
    [
        (OTHERS, "belongs to uid 0", "sudo -u '#0' mpwatch attach 42, or sudo mpwatch attach 42"),
        (replace(OTHERS, yama_scope=1), "belongs to uid 0", "sudo mpwatch attach 42"),
        (replace(OTHERS, has_sudo=False), "belongs to uid 0", "as root: mpwatch attach 42"),
        (replace(OTHERS, can_gain=False), "belongs to uid 0", "from another login: sudo mpwatch"),
        (
            replace(REFUSED, uids=(1000, 1001, 1000, 1000)),
            "has changed its user id",
            "sudo mpwatch attach 42",
        ),
        (
            replace(REFUSED, gid=1000, gids=(1000, 7, 7, 7)),
            "its group is 7 and that of mpwatch 1000",
            "sudo -u '#1000' -g '#7' mpwatch attach 42, or",
        ),
        (
            replace(REFUSED, its_capabilities=SYS_ADMIN),
            "capabilities that mpwatch lacks (CAP_SYS_ADMIN)",
            "sudo mpwatch attach 42",
        ),
        (
            replace(ROOT_INSIDE, its_capabilities=SYS_ADMIN),
            "capabilities that mpwatch lacks",
            "docker exec --privileged --user 0 CONTAINER mpwatch attach 42, or docker run",
        ),
        (replace(ROOT_INSIDE, uids=(5, 5, 5, 5)), "belongs to uid 5", "--cap-add=SYS_PTRACE"),
        (
            replace(ROOT_INSIDE, capabilities=SETUID, uids=(5, 5, 5, 5), gids=(6, 6, 6, 6)),
            "belongs to uid 5",
            "setpriv --reuid=5 --regid=6 --clear-groups mpwatch attach 42, or docker exec",
        ),
        (
            replace(ROOT_INSIDE, uids=(5, 5, 5, 5), in_kubernetes=True),
            "belongs to uid 5",
            '{add: ["SYS_PTRACE"]}}, or kubectl debug POD --target=CONTAINER --profile=sysadmin',
        ),
        (
            replace(REFUSED, uid=0, uids=(5, 5, 5, 5)),
            "mpwatch runs as uid 0 without CAP_SYS_PTRACE",
            "which root lacks here",
        ),
        (replace(REFUSED, yama_scope=1), "only its own children", "kernel.yama.ptrace_scope=0; or"),
        (replace(REFUSED, yama_scope=1), "ptrace_scope = 1", "prctl(PR_SET_PTRACER"),
        (replace(REFUSED, yama_scope=2), "nothing without CAP_SYS_PTRACE", "sudo setcap"),
        (replace(REFUSED, yama_scope=3), "until the next boot", "reboot"),
        (
            replace(REFUSED, yama_scope=1, in_container=True, can_gain=False),
            "ptrace_scope = 1",
            "--cap-add=SYS_PTRACE ...; or on the host: sudo sysctl",
        ),
        (replace(REFUSED, is_dumpable=False), "undumpable", "sudo"),
        (replace(REFUSED, is_same_user_namespace=False), "another user namespace", "sudo"),
        (
            replace(REFUSED, is_same_user_namespace=False, is_confined=True),
            "another user namespace",
            "outside this container",
        ),
        (
            replace(REFUSED, capabilities=SYS_PTRACE, is_same_user_namespace=False),
            "no capabilities",
            "inside that container",
        ),
        (
            replace(REFUSED, capabilities=SYS_PTRACE, security_label="docker-default (enforce)"),
            "docker-default",
            "apparmor=unconfined",
        ),
        (
            replace(REFUSED, security_label="system_u:system_r:container_t:s0"),
            "security module",
            "setsebool deny_ptrace off",
        ),
        (replace(PLAIN, is_ptrace_filtered=True), "seccomp", "--security-opt seccomp=unconfined"),
        (
            replace(PLAIN, is_ptrace_filtered=True, in_kubernetes=True),
            "seccomp",
            "seccompProfile",
        ),
        (
            replace(PLAIN, tracer_pid=7, tracer_name="gdb"),
            "process 7 (gdb) traces it already",
            "kill 7",
        ),
    ],
)
def test_each_obstacle_is_named_with_what_removes_it(
    facts: AccessFacts, reason: str, fix: str
) -> None:
    verdict = judge(facts)
    assert not verdict.is_allowed
    assert reason in verdict.reason
    assert fix in verdict.fix


def test_several_obstacles_are_all_reported() -> None:
    verdict = judge(replace(REFUSED, is_ptrace_filtered=True, uids=(0, 0, 0, 0)))
    assert len(verdict.obstacles) == 2


@pytest.mark.parametrize("scope", [None, 1, 2])
@pytest.mark.parametrize("facts", [ROOT_INSIDE, replace(ROOT_INSIDE, in_container=False)])
def test_root_is_never_told_to_become_root(facts: AccessFacts, scope: int | None) -> None:
    others = replace(facts, uids=(5, 5, 5, 5), yama_scope=scope)
    fixes = [obstacle.fix for obstacle in judge(others).obstacles]
    assert fixes
    assert all("sudo mpwatch" not in fix and "sudo -u" not in fix for fix in fixes)


def test_another_user_and_yama_are_both_named() -> None:
    reasons = [obstacle.reason for obstacle in judge(replace(OTHERS, yama_scope=1)).obstacles]
    assert ["belongs" in reasons[0], "Yama" in reasons[1], len(reasons)] == [True, True, 2]


def procfs_stat(pid: str, parent: int) -> str:
    """The start of a `stat` line."""
    return f"{pid} (x) S {parent} 0 0"


def test_a_hidden_process_is_explained_without_mention_of_tracing(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    status = "Uid:\t5\t5\t5\t5\nTracerPid:\t9\n"
    (tmp_path / "42" / "status").write_text(status)
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/yama/ptrace_scope").write_text("3\n")
    assert "belongs to uid 5" in ptrace_access.why_hidden(42, str(tmp_path)).reason


@pytest.mark.parametrize(
    ("status", "can_gain"),
    [
        ("CapBnd:\t0000000000080000\nNoNewPrivs:\t0\n", True),
        ("CapBnd:\t0000000000080000\nNoNewPrivs:\t1\n", False),
        ("CapBnd:\t00000000a80425fb\nNoNewPrivs:\t0\n", False),
    ],
)
def test_sudo_helps_only_where_the_capability_can_be_had(
    tmp_path: Path, status: str, can_gain: bool
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(status)
    assert ptrace_access.read_facts(42, str(tmp_path), lambda: False, {}).can_gain is can_gain


def test_other_user_namespaces_show_in_the_maps_that_everybody_may_read(tmp_path: Path) -> None:
    for name, text in (("self", "0 0 4294967295\n"), ("42", "0 100000 65536\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "uid_map").write_text(text)
    facts = ptrace_access.read_facts(42, str(tmp_path), lambda: False, {})
    assert (facts.is_same_user_namespace, facts.is_confined) == (False, False)


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
    facts = ptrace_access.read_facts(42, str(tmp_path), lambda: False)
    assert facts.uids == (5, 6, 7, 8)
    assert (facts.tracer_pid, facts.tracer_name) == (9, "strace")
    assert facts.yama_scope == 1
    assert facts.capabilities == SYS_PTRACE
    assert facts.own_seccomp == 2
    assert facts.may_open is True


@pytest.mark.parametrize(
    ("scope", "capabilities", "is_ours", "is_allowed"),
    [
        ("1", 0, True, False),
        ("1", 0, False, True),  # it has named its tracers by PR_SET_PTRACER
        ("1", SYS_PTRACE, True, True),
        ("0", 0, True, True),
    ],
)
def test_what_only_an_ancestor_may_trace_no_helper_may(
    tmp_path: Path, scope: str, capabilities: int, is_ours: bool, is_allowed: bool
) -> None:
    """py-spy and the tracer are children of this process, and so are jobs of `mpwatch run`."""
    for name, above in (("self", 1), ("42", 41), ("41", os.getpid() if is_ours else 5), ("5", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stat").write_text(procfs_stat(name, above))
        (tmp_path / name / "status").write_text(f"TracerPid:\t0\nCapEff:\t{capabilities:x}\n")
    (tmp_path / "42" / "mem").touch()
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    found = judge(ptrace_access.read_facts(42, str(tmp_path), lambda: False))
    assert found.is_allowed is ptrace_access.may_attach(42, str(tmp_path)) is is_allowed
    assert ("only its ancestors" in found.reason) is not is_allowed
    assert "PR_SET_PTRACER" not in found.fix


def test_a_process_may_read_itself() -> None:
    assert ptrace_access.check(os.getpid()).is_allowed
    assert ptrace_access.may_attach(os.getpid())


@pytest.mark.parametrize("tracer", ["0", "9"])
@pytest.mark.parametrize("is_filtered", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_the_short_check_agrees_with_the_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracer: str, is_filtered: bool, is_there: bool
) -> None:
    monkeypatch.setattr(ptrace_access, "is_ptrace_filtered", lambda: is_filtered)
    for name in ("self", "7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status").write_text(f"Uid:\t5\t5\t5\t5\nTracerPid:\t{tracer}\n")
    if is_there:
        (tmp_path / "7" / "mem").touch()

    is_allowed = ptrace_access.check(7, str(tmp_path)).is_allowed

    assert ptrace_access.may_attach(7, str(tmp_path)) is is_allowed
    assert is_allowed == (tracer == "0" and not is_filtered and is_there)


@pytest.mark.parametrize(
    ("root", "in_container"),
    [
        ("501 480 0:61 / / rw,relatime - overlay overlay rw,lowerdir=/a", True),
        ("501 480 0:61 / / rw,relatime - fuse.fuse-overlayfs fuse-overlayfs rw", True),
        ("29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw", False),
    ],
)
def test_containers_are_known_by_their_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, in_container: bool
) -> None:
    monkeypatch.setattr(ptrace_access, "_CONTAINER_FILES", ())
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(
        f"{root}\n502 501 0:62 / /proc rw - proc proc rw\n"
    )
    assert (
        ptrace_access.read_facts(42, str(tmp_path), lambda: False, {}).in_container is in_container
    )


def test_a_process_that_made_itself_undumpable_is_known_by_its_files() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a process of another user")
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0); print(flush=True); sys.stdin.read()"
    hidden = subprocess.Popen(
        ["/usr/bin/env", "python3", "-c", code], stdin=-1, stdout=-1, user=65534, group=65534,
        cwd="/", env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert hidden.stdout is not None
    hidden.stdout.readline()
    try:
        assert not ptrace_access.read_facts(hidden.pid).is_dumpable
    finally:
        hidden.kill()
        hidden.communicate()
