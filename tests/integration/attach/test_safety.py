"""The target is never harmed, whatever happens to the observer or to the target."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.native import cpython_symbols, elf, pending_call, tracer
from mpwatch.attach.native.code_cave import TargetMemory
from mpwatch.attach.outcomes import Refused
from mpwatch.model.ids import ProcessId
from tests import procfs
from tests.integration import on_demand
from tests.integration.attach.conftest import Running, Start
from tests.procfs import eventually, hook_threads
from tests.programs.attach_plain import BLOCK

pytestmark = pytest.mark.slow


def is_well(running: Running) -> bool:
    return (
        running.is_running
        and running.state in "RS"
        and procfs.status(running.pid, "TracerPid") == "0"
    )


def attach_and_die_after(process: ProcessId, count: int) -> bool:
    """Attach from a process that kills itself after so many steps; whether it got that far."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    seen = 0

    def step(_name: str) -> None:
        nonlocal seen
        seen += 1
        if seen > count:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        inject(process, timeout_s=0.0, step=step)
    finally:
        os._exit(0)


def steps_of_an_attach(process: ProcessId) -> list[str]:
    """The steps of an undisturbed attach; the hook is detached again.

    At times the thread is stopped at an unsuitable place, continued and stopped again.
    """
    rounds: list[list[str]] = []
    for _ in range(4):
        steps: list[str] = []
        inject(process, timeout_s=0.1, step=steps.append)
        detach(process, timeout_s=0.1)
        if "interrupt" in steps:
            rounds.append(steps)
    assert rounds
    return min(rounds, key=len)


def require_right_digest(line: str) -> None:
    """Recompute a line of the busy program and compare."""
    last, printed = line.split()
    digest = hashlib.sha256()
    for number in range(int(last) + 1 - BLOCK, int(last) + 1):
        digest.update(b"%d" % number)
    assert digest.hexdigest() == printed


@pytest.mark.parametrize(
    "what", on_demand.cases(["busy", "idle", "blocked", "threads"], ["threads"])
)
def test_an_observer_killed_at_any_step_leaves_the_target_running(start: Start, what: str) -> None:
    running = start("attach_plain", what)
    steps = steps_of_an_attach(running.process)
    killed = 0
    for count in range(len(steps) + 1):
        # Otherwise a call queued by a killed observer had loaded the hook before.
        killed += attach_and_die_after(running.process, count)
        assert eventually(lambda: is_well(running)), f"killed at step {count}"
        assert eventually(lambda: int(procfs.status(running.pid, "SigBlk"), 16) == 0), (
            f"killed at step {count}: {procfs.status(running.pid, 'SigBlk')}"
        )
        detach(running.process, timeout_s=0.05)
    assert killed > len(steps) // 2
    if what == "busy":
        require_right_digest(running.line())
        require_right_digest(running.line())
    if what != "blocked":
        assert eventually(lambda: inject(running.process).state == "ready")


def test_vector_registers_survive_many_attaches(start: Start) -> None:
    running = start("attach_vectors")
    for _ in range(30 if on_demand.IS_SET else 10):
        assert inject(running.process, timeout_s=20).state == "ready"
        assert detach(running.process, timeout_s=20).state == "absent"
    running.lines.clear()
    assert [running.line() for _ in range(3)] == ["right"] * 3


def counts(pid: int) -> dict[str, int]:
    mappings = elf.read_mappings(pid)
    return {
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(procfs.threads(pid)),
        "files mapped": sum(bool(mapping.inode) for mapping in mappings),
    }


def anonymous_count(pid: int) -> int:
    """Number of anonymous mappings; a few more or less mean nothing, as allocators split and join
    them."""
    return sum(not mapping.inode for mapping in elf.read_mappings(pid))


@on_demand.ON_DEMAND
def test_a_hundred_attaches_under_load_leave_nothing_behind(start: Start) -> None:
    running = start("attach_plain", "busy")
    stderr_before = os.readlink(f"/proc/{running.pid}/fd/2")

    def attach_and_detach() -> None:
        attached = inject(running.process, timeout_s=30)
        assert attached.state == "ready", attached
        detached = detach(running.process, timeout_s=30)
        running.drain()
        assert detached.state == "absent", detached

    def settled() -> dict[str, int]:
        for _ in range(3):  # lines printed before may still be in the pipe
            require_right_digest(running.newest_line())
        assert eventually(lambda: counts(running.pid)["threads"] == 1)
        return counts(running.pid)

    for _ in range(10):  # the first ones import modules that stay
        attach_and_detach()
    before, memory_before = settled(), procfs.resident_kib(running.pid)
    anonymous_before = anonymous_count(running.pid)
    for _ in range(100):
        attach_and_detach()
    assert settled() == before
    assert procfs.resident_kib(running.pid) - memory_before < 2048
    assert anonymous_count(running.pid) - anonymous_before < 10
    assert os.readlink(f"/proc/{running.pid}/fd/2") == stderr_before


def test_threads_other_than_the_stopped_one_keep_running(start: Start) -> None:
    running = start("attach_plain", "threads")
    for _ in range(10 if on_demand.IS_SET else 4):
        assert inject(running.process, timeout_s=30).state == "ready"
        assert detach(running.process, timeout_s=30).state == "absent"
    # Four threads run in turns of 5 ms each; on a busy machine not all of them run between two
    # readings.
    assert "moved True" in {running.newest_line() for _ in range(40)}


@pytest.mark.parametrize(
    "at",
    ["exchange made", "text written", "seize", "stopped", "frame written", "write mask", "run"],
)
def test_a_target_that_exits_during_an_attach_is_reported_as_exited(start: Start, at: str) -> None:
    running = start("attach_plain", "busy")

    def kill(name: str) -> None:
        if name == at:
            running.popen.kill()
            if at in ("exchange made", "text written"):
                running.popen.wait()  # nobody traces it yet: it is gone, and no zombie

    attached = inject(running.process, step=kill)
    assert attached.state == "absent"
    assert attached.reason in ("the process has ended", "the process ended during the attempt")
    assert running.popen.wait(60) == -signal.SIGKILL


def test_a_stopped_target_is_refused_and_stays_stopped(start: Start) -> None:
    running = start("attach_plain", "idle")
    os.kill(running.pid, signal.SIGSTOP)
    assert eventually(lambda: running.state == "T")
    attached = inject(running.process)
    assert (attached.state, attached.reason) == ("absent", "it is stopped")
    assert attached.fix == f"kill -CONT {running.pid}"
    assert running.state == "T"
    os.kill(running.pid, signal.SIGCONT)
    assert inject(running.process, timeout_s=30).state == "ready"


def test_a_target_that_its_user_stops_during_an_attach_is_stopped_afterwards(start: Start) -> None:
    running = start("attach_plain", "idle")

    def stop(name: str) -> None:
        if name == "write mask":
            os.kill(running.pid, signal.SIGSTOP)

    inject(running.process, timeout_s=0.05, step=stop)
    assert eventually(lambda: running.state == "T")
    os.kill(running.pid, signal.SIGCONT)
    assert eventually(lambda: inject(running.process).state == "ready")


TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace(0x4206, int(sys.argv[1]), None, None)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_traced_target_is_refused_with_the_name_of_its_tracer(start: Start) -> None:
    running = start("attach_plain", "idle")
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACER, str(running.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert tracer.stdout is not None
        assert tracer.stdout.readline() == b"ready\n"
        attached = inject(running.process)
    finally:
        tracer.communicate()
    assert attached.state == "absent"
    assert f"process {tracer.pid}" in attached.reason
    assert is_well(running)


def test_a_process_that_is_not_python_is_refused(start: Start) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        attached = inject(process_of(child.pid))
    finally:
        child.kill()
        child.wait()
    assert attached.state == "absent"
    assert "not a Python process" in attached.reason


def test_a_pid_that_was_reused_is_refused(start: Start) -> None:
    running = start("attach_plain", "idle")
    attached = inject(ProcessId(running.pid, running.process.start_ticks + 1))
    assert (attached.state, attached.reason) == ("absent", "the process has ended")


def process_of(pid: int) -> ProcessId:
    from mpwatch.collect.process.procfs import stat_of

    return stat_of(pid).process


def as_child(work: Callable[[], str]) -> str:
    """The result of a function that runs in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        return file.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_with_the_command_that_helps(start: Start) -> None:
    running = start("attach_plain", "idle")

    def attempt() -> str:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        attached = inject(running.process)
        return f"{attached.state}\n{attached.reason}\n{attached.fix}"

    state, reason, fix = as_child(attempt).split("\n")
    assert state == "absent"
    assert reason == "it belongs to uid 0, and mpwatch runs as uid 65534 without CAP_SYS_PTRACE"
    assert f"mpwatch attach {running.pid}" in fix
    assert is_well(running)


@pytest.mark.parametrize(
    ("how", "at"),
    [
        *((signal.SIGSTOP, at) for at in ("stopped", "frame written", "write mask", "run")),
        (signal.SIGTSTP, "frame written"),
        *(
            pytest.param(signal.SIGTSTP, at, marks=on_demand.ON_DEMAND)
            for at in ("stopped", "write mask", "run")
        ),
    ],
)
def test_an_observer_that_is_stopped_holds_no_target(
    start: Start, how: signal.Signals, at: str
) -> None:
    running = start("attach_plain", "busy")
    observer = os.fork()
    if not observer:
        done: list[str] = []

        def stop(name: str) -> None:
            if name == at and not done:
                done.append(name)
                os.kill(os.getpid(), how)

        try:
            os.setpgid(0, 0)  # an orphaned group would ignore SIGTSTP, one of a job does not
            while not done:  # on a busy machine the thread may not stop in time at first
                inject(running.process, timeout_s=30, step=stop)
        finally:
            os._exit(0)
    try:
        assert eventually(lambda: procfs.fields(observer)[0] == "T")
        assert eventually(lambda: is_well(running))
        # The call is made nevertheless: the hook is loaded while the observer is stopped.
        assert eventually(lambda: hook_threads(running.pid) == 1)
        assert procfs.fields(observer)[0] == "T"
    finally:
        os.kill(observer, signal.SIGCONT)
        os.waitpid(observer, 0)
    running.drain()
    require_right_digest(running.newest_line())


@pytest.mark.parametrize("what", on_demand.cases(["busy", "blocked"], ["blocked"]))
def test_a_tracer_killed_at_any_step_leaves_the_target_running(start: Start, what: str) -> None:
    running = start("attach_plain", what)
    steps = steps_of_an_attach(running.process)
    killed = 0
    for count in range(steps.index("seize"), len(steps)):
        seen: list[str] = []

        def kill(name: str, seen: list[str] = seen, count: int = count) -> None:
            seen.append(name)
            if len(seen) == count + 1:
                os.kill(tracer.start().pid, signal.SIGKILL)

        attached = inject(running.process, timeout_s=0.0, step=kill)
        killed += "tracer process ended" in attached.reason
        assert eventually(lambda: is_well(running)), f"killed at step {count}"
        assert eventually(lambda: int(procfs.status(running.pid, "SigBlk"), 16) == 0)
        detach(running.process, timeout_s=0.05)
    assert killed > 3
    if what == "busy":
        require_right_digest(running.line())
        assert eventually(lambda: inject(running.process).state == "ready")


def freeze_by_signal(pid: int) -> Callable[[], None]:
    os.kill(pid, signal.SIGSTOP)
    return lambda: None


def frozen_in(group: Path, pid: int, file: str, on: str, off: str) -> Callable[[], None]:
    """Put a process into a new control group and freeze that; the function that thaws it."""
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(pid))
        (group / file).write_text(on)
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no writable freezer: {error}")

    def thaw() -> None:
        (group / file).write_text(off)
        assert eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()

    return thaw


def freeze_by_group_1(pid: int) -> Callable[[], None]:
    group = Path("/sys/fs/cgroup/freezer", f"mpwatch-{pid}")
    return frozen_in(group, pid, "freezer.state", "FROZEN", "THAWED")


def freeze_by_group_2(pid: int) -> Callable[[], None]:
    """As `docker pause` does it."""
    hybrid = Path("/sys/fs/cgroup/unified")
    parent = hybrid if hybrid.exists() else Path("/sys/fs/cgroup")
    return frozen_in(parent / f"mpwatch-{pid}", pid, "cgroup.freeze", "1", "0")


@pytest.mark.parametrize(
    ("freeze", "is_released"),
    [(freeze_by_signal, True), (freeze_by_group_2, True), (freeze_by_group_1, False)],
)
def test_a_tracer_that_is_frozen_during_an_injection_is_killed_and_releases_the_target(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    freeze: Callable[[int], Callable[[], None]],
    is_released: bool,
) -> None:
    """The freezer of version 1 holds back SIGKILL as well, so the target waits for the thaw.

    The tracer waits a quarter of a second for the observer at each step, and the kernel may take
    longer to freeze it: such an attempt shows nothing, and is repeated.
    """
    monkeypatch.setattr(tracer, "WITHIN_S", 1)
    running = start("attach_plain", "busy")
    thaws: list[Callable[[], None]] = []
    pids: list[int] = []
    in_time: list[bool] = []

    def freeze_tracer(name: str) -> None:
        if name == "frame written" and not thaws:
            pids.append(tracer.start().pid)
            thaws.append(freeze(pids[-1]))
            in_time.append(running.state == "t")

    try:
        while not any(in_time):
            assert len(in_time) < 10
            for thaw in thaws:
                os.kill(pids[-1], signal.SIGKILL)
                thaw()
            thaws.clear()
            assert eventually(lambda: detach(running.process).state == "absent")
            tracer.forget()
            attached = inject(running.process, timeout_s=0.0, step=freeze_tracer)
        assert attached.state == "absent"
        assert attached.reason.startswith("the tracer process ended during the attempt")
        # What is held is seen to be held for five seconds; what is released may take a while.
        assert eventually(lambda: is_well(running), 60.0 if is_released else 5.0) == is_released
    finally:
        for thaw in thaws:
            thaw()
    assert eventually(lambda: is_well(running))
    assert not procfs.is_alive(pids[-1])
    running.drain()
    require_right_digest(running.newest_line())
    monkeypatch.undo()
    assert eventually(lambda: inject(running.process).state == "ready", 60.0)


def test_a_target_is_released_where_observer_and_tracer_are_both_stopped(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a pause of the container that both are in: nobody can kill the tracer but its timer."""
    monkeypatch.setattr(tracer, "WITHIN_S", 1)
    running = start("attach_plain", "busy")
    observer = os.fork()
    if not observer:
        done: list[str] = []

        def stop(name: str) -> None:
            if name != "frame written":
                return
            pid = tracer.start().pid
            os.kill(pid, signal.SIGSTOP)
            # The tracer waits a quarter of a second for the reply to this step.
            if eventually(lambda: procfs.fields(pid)[0] == "T") and running.state == "t":
                done.append(name)
                os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(pid, signal.SIGCONT)

        try:
            os.setpgid(0, 0)
            while not done:
                inject(running.process, timeout_s=0.0, step=stop)
                detach(running.process)
        finally:
            os._exit(0)
    try:
        assert eventually(lambda: procfs.fields(observer)[0] == "T", 60.0)
        assert eventually(lambda: is_well(running), 60.0)
        assert procfs.fields(observer)[0] == "T"
    finally:
        os.kill(observer, signal.SIGKILL)
        os.waitpid(observer, 0)
        if tracer_pid := int(procfs.status(running.pid, "TracerPid")):
            os.kill(tracer_pid, signal.SIGKILL)  # else the end of the target is never seen
    running.drain()
    require_right_digest(running.newest_line())


def test_a_tracer_that_was_killed_between_two_attaches_is_replaced(start: Start) -> None:
    first, second = start("attach_plain", "idle"), start("attach_plain", "idle")
    assert inject(first.process, timeout_s=20).state == "ready"
    pid = tracer.start().pid
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: procfs.fields(pid)[0] == "Z")
    assert inject(second.process, timeout_s=20).state == "ready"
    assert tracer.start().pid != pid


def test_the_tracer_has_a_session_of_its_own_and_ends_with_the_observer(start: Start) -> None:
    running = start("attach_plain", "idle")

    def attempt() -> str:
        for fd in os.listdir("/proc/self/fd"):  # the shell that runs the tests may have left some
            with contextlib.suppress(OSError):
                os.set_inheritable(int(fd), int(fd) <= 2)
        inject(running.process, timeout_s=30)
        pid = tracer.start().pid
        kinds = sorted(path.partition(":")[0] for path in procfs.links(pid))
        return f"{pid} {os.getsid(pid)} {' '.join(kinds)}"

    pid, session, *held = as_child(attempt).split()
    assert pid == session
    assert held == ["/dev/null", "/dev/null", "socket"]
    assert eventually(lambda: not procfs.is_alive(int(pid)))


def test_a_thread_in_locking_code_is_stopped_again_and_continues(start: Start) -> None:
    running = start("attach_plain", "busy")
    memory = TargetMemory(running.pid)
    try:
        plan = pending_call.prepare(
            cpython_symbols.find(running.pid), pending_call.machine_here(), memory, 1, 1, b""
        )
    finally:
        memory.close()
    everywhere = replace(plan, locking=((0, 1 << 64),))
    steps: list[str] = []
    with pytest.raises(Refused, match="busy with other pending calls"):
        tracer.queue_here(running.process, everywhere, steps.append)
    assert steps.count("interrupt") == 20
    assert running.newest_line()
