"""Under Yama's `ptrace_scope` 1 only an ancestor may trace a target: the tracer process is not.

An observer that traced by itself would hold the target while it is stopped (ctrl-z, SIGSTOP).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mpwatch.attach import methods
from mpwatch.attach.inject import inject
from mpwatch.attach.native import tracer
from mpwatch.attach.native.tracer import Tracer
from mpwatch.attach.plan import plan_injection
from mpwatch.collect.host import isolated
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


@pytest.mark.slow
def test_under_scope_1_a_child_of_the_observer_is_left_out(
    start: Start, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting and the capability are files of the test."""
    running = start("attach_plain", "idle")
    (tmp_path / str(running.pid)).symlink_to(f"/proc/{running.pid}")
    monkeypatch.setattr(methods, "PROC", settings(tmp_path, "1", NO_CAPABILITY))
    attached = inject(running.process, timeout_s=20)
    (planned,) = plan_injection([sample(running.pid)]).processes
    assert (attached.state, attached.stopped_s) == ("absent", None)
    assert attached.reason == (
        "Yama allows only its ancestors to trace it (kernel.yama.ptrace_scope = 1), and mpwatch"
        " traces from another process"
    )
    assert "sudo sysctl kernel.yama.ptrace_scope=0" in attached.fix
    assert (planned.reason, planned.fix) == (attached.reason, attached.fix)
    assert list(runtime.iterdir()) == []


@pytest.mark.slow
def test_under_scope_1_a_child_of_an_able_observer_gets_the_hook(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start("attach_plain", "idle")
    (tmp_path / str(running.pid)).symlink_to(f"/proc/{running.pid}")
    monkeypatch.setattr(methods, "PROC", settings(tmp_path, "1", CAP_SYS_PTRACE))
    assert inject(running.process, timeout_s=20).state == "ready"


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["is refused", "cannot be started"])
def test_the_observer_does_not_trace_itself_where_the_tracer_cannot(
    start: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    def refused(*_: object) -> float:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def failing(*_: object, **__: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    if failure == "is refused":
        monkeypatch.setattr(Tracer, "queue", refused)
    else:
        tracer.forget()
        monkeypatch.setattr(isolated, "start", failing)
    running = start("attach_plain", "idle")
    attached = inject(running.process, timeout_s=20)
    assert (attached.state, attached.stopped_s) == ("absent", None)
    assert {
        "is refused": "could not be controlled by ptrace: [Errno 1]",
        "cannot be started": "the tracer process could not be started: [Errno 11]",
    }[failure] in attached.reason
    assert [path for path in runtime.glob("mpwatch/*") if "attach-" in path.name] == []


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
