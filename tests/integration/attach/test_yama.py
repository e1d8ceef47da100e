"""Under Yama's `ptrace_scope` 1 only an ancestor may trace a target: the tracer process is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.attach import methods
from mpwatch.attach.inject import detach, inject
from mpwatch.attach.native import tracer
from mpwatch.attach.native.tracer import Tracer
from mpwatch.attach.plan import plan_injection
from tests import procfs
from tests.integration.attach.conftest import Start
from tests.integration.attach.test_kinds_of_targets import sample

NO_CAPABILITY = "0000000000000000"
CAP_SYS_PTRACE = "0000000000080000"


def settings(folder: Path, scope: str, capabilities: str) -> str:
    """A procfs with a scope and the capabilities of this process."""
    (folder / "sys/kernel/yama").mkdir(parents=True)
    (folder / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    (folder / "self").mkdir()
    (folder / "self/status").write_text(f"Name:\tx\nCapPrm:\t0\nCapEff:\t{capabilities}\n")
    return str(folder)


@pytest.mark.parametrize(
    ("scope", "capabilities", "is_forbidden"),
    [
        ("0", NO_CAPABILITY, False),
        ("1", NO_CAPABILITY, True),
        ("1", CAP_SYS_PTRACE, False),
        ("2", CAP_SYS_PTRACE, False),
    ],
)
def test_only_scope_1_without_the_capability_forbids_the_tracer(
    tmp_path: Path, scope: str, capabilities: str, is_forbidden: bool
) -> None:
    assert tracer.is_forbidden(settings(tmp_path, scope, capabilities)) == is_forbidden


def test_a_kernel_without_yama_does_not_forbid_the_tracer(tmp_path: Path) -> None:
    assert not tracer.is_forbidden(str(tmp_path))


@pytest.mark.slow
def test_the_observer_traces_a_child_itself_under_scope_1(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Tracer:
        raise AssertionError("the tracer was started")

    monkeypatch.setattr(methods, "PROC", settings(tmp_path, "1", NO_CAPABILITY))
    monkeypatch.setattr(tracer, "start", refuse)
    running = start("attach_plain", "idle")
    (tmp_path / str(running.pid)).symlink_to(f"/proc/{running.pid}")
    are_ours: list[bool] = []

    def note_tracer(name: str) -> None:
        if name == "seize":
            tracer = int(procfs.status(running.pid, "TracerPid"))
            are_ours.append(tracer in procfs.threads(os.getpid()))

    attached = inject(running.process, timeout_s=20, step=note_tracer)
    assert (attached.state, attached.method) == ("ready", "pending call")
    assert are_ours == [True]
    assert detach(running.process, timeout_s=20).state == "absent"


@pytest.mark.slow
def test_the_observer_traces_a_child_itself_where_the_tracer_is_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> float:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Tracer, "queue", refused)
    running = start("attach_plain", "idle")
    assert inject(running.process, timeout_s=20).state == "ready"


@pytest.mark.slow
def test_scope_2_without_the_capability_is_refused_with_its_fix(
    start: Start, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting, the capability and the kernel's refusal are files of the test."""
    running = start("attach_plain", "idle")
    own = tmp_path / str(running.pid)
    own.mkdir()
    (own / "status").write_text(f"Uid:\t{os.getuid()}\nTracerPid:\t0\nCapPrm:\t0\n")
    (own / "mem").symlink_to("mem")  # opening it is refused, even to root
    monkeypatch.setattr(methods, "PROC", settings(tmp_path, "2", NO_CAPABILITY))
    attached = inject(running.process, timeout_s=20)
    (planned,) = plan_injection([sample(running.pid)]).processes
    assert attached.state == "absent"
    assert attached.stopped_s is None
    assert attached.reason == (
        "Yama allows a process to trace nothing without CAP_SYS_PTRACE"
        " (kernel.yama.ptrace_scope = 2)"
    )
    assert "sudo sysctl kernel.yama.ptrace_scope=0" in attached.fix
    assert (planned.reason, planned.fix) == (attached.reason, attached.fix)
    assert list(runtime.iterdir()) == []
