"""Targets with many threads or processes, that are exiting, or that cannot be stopped now."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.inject_tree import detach_tree, inject_tree
from mpwatch.attach.outcomes import Attached
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from tests import procfs
from tests.integration import on_demand
from tests.integration.attach.conftest import Start
from tests.integration.attach.test_kinds_of_targets import sample
from tests.integration.attach.test_late_children import children
from tests.integration.attach.test_safety import is_well
from tests.integration.cli.terminal import Terminal
from tests.integration.hook.client import Client, wait_for_sockets
from tests.procfs import eventually

pytestmark = pytest.mark.slow

THREADS, CHILDREN = 200, 64


def test_a_target_with_two_hundred_threads_is_injected_and_keeps_its_threads(
    start: Start,
) -> None:
    running = start("attach_many", "threads", str(THREADS))
    attached = inject(running.process, timeout_s=20)
    assert attached.state == "ready", attached
    assert detach(running.process, timeout_s=20).state == "absent"
    assert eventually(lambda: len(procfs.threads(running.pid)) == THREADS + 1)
    for tid in procfs.threads(running.pid):
        assert procfs.status(tid, "TracerPid") == "0"
        assert stat_of(tid).state in "RS"


def test_all_of_sixty_four_workers_are_injected_and_detached(start: Start, runtime: Path) -> None:
    running = start("attach_many", "children", str(CHILDREN))
    samples = [sample(running.pid), *(sample(child.pid) for child in children(running.pid))]
    assert len(samples) == CHILDREN + 1
    outcomes, seen = injected(samples, timeout_s=60)
    assert [each for each in outcomes if each.state != "ready"] == []
    assert seen.count("ready") == len(samples)
    assert len(list((runtime / "mpwatch").glob("*.sock"))) == len(samples)
    gone = detach_tree(samples, lambda outcome: None, timeout_s=60)
    assert {outcome.state for outcome in gone} == {"absent"}
    assert list((runtime / "mpwatch").iterdir()) == []


def injected(samples: list[ProcSample], timeout_s: float) -> tuple[Collection[Attached], list[str]]:
    """The result for each process, and the states that were reported on the way.

    As in a session, those that were refused for a moment are tried again: on a busy machine one may
    not get a cpu for as long as an injection waits for that.
    """
    outcomes: dict[ProcessId, Attached] = {}
    seen: list[str] = []
    for _ in range(5):
        left = [each for each in samples if each.process not in outcomes]
        found = inject_tree(left, lambda outcome: seen.append(outcome.state), timeout_s=timeout_s)
        outcomes |= {each.process: each for each in found if not each.passes}
        if len(outcomes) == len(samples):
            break
    return outcomes.values(), seen


def figures(outcomes: Iterable[Attached]) -> str:
    """How long the targets were stopped, in ms; the load of the machine with it."""
    ms = sorted(1000 * (each.stopped_s or 0.0) for each in outcomes)
    middle, worst = statistics.median(ms), ms[-1]
    return f"stopped: median {middle:.2f} ms, worst {worst:.2f} ms of {len(ms)}; {os.getloadavg()}"


@on_demand.ON_DEMAND
def test_a_target_with_ten_thousand_threads_is_injected_and_keeps_its_threads(
    start: Start,
) -> None:
    running = start("attach_many", "parked", "9999")
    attached = []
    for _ in range(10):
        attached.append(inject(running.process, timeout_s=60))
        assert attached[-1].state == "ready", attached
        assert len(procfs.threads(running.pid)) == 10_001
        assert detach(running.process, timeout_s=60).state == "absent"
        assert eventually(lambda: len(procfs.threads(running.pid)) == 10_000)
    print(figures(attached))
    assert procfs.status(running.pid, "TracerPid") == "0"


@on_demand.ON_DEMAND
@pytest.mark.timeout(900)
def test_all_of_a_thousand_processes_are_injected_and_detached(start: Start, runtime: Path) -> None:
    running = start("attach_many", "calm", "999")
    samples = [sample(running.pid), *(sample(child.pid) for child in children(running.pid))]
    began_s = time.monotonic()
    outcomes, _ = injected(samples, timeout_s=120)
    print(f"injected in {time.monotonic() - began_s:.1f} s; {figures(outcomes)}")
    assert len(outcomes) == len(samples)
    assert [each for each in outcomes if each.state != "ready"] == []
    assert len(list((runtime / "mpwatch").glob("*.sock"))) == 1000
    began_s = time.monotonic()
    gone = detach_tree(samples, lambda _: None, timeout_s=120)
    print(f"detached in {time.monotonic() - began_s:.1f} s")
    assert [each for each in gone if each.state != "absent"] == []
    assert list((runtime / "mpwatch").iterdir()) == []
    assert len(children(running.pid)) == 999


@on_demand.ON_DEMAND
@pytest.mark.timeout(1800)
def test_a_dashboard_injects_a_thousand_processes_and_detaches_them_as_it_ends(
    start: Start, runtime: Path
) -> None:
    running = start("attach_many", "calm", "999")
    folder = runtime / "mpwatch"
    terminal = Terminal("attach", str(running.pid), "--hook", variables={}, width=160, height=48)

    def are_all_in() -> bool:
        terminal.read_some()
        terminal.forget()
        return len(list(folder.glob("*.sock"))) == 1000

    try:
        began_s = time.monotonic()
        assert eventually(are_all_in, 900)
        print(f"injected after {time.monotonic() - began_s:.0f} s; {os.getloadavg()}")
        began_s = time.monotonic()
        terminal.press("q")
        assert terminal.wait(600) == 0
        print(f"left after {time.monotonic() - began_s:.0f} s")
    finally:
        terminal.end()
    assert list(folder.iterdir()) == []
    assert len(children(running.pid)) == 999


def test_a_target_in_uninterruptible_sleep_is_refused_and_continues(
    start: Start, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    running = start("attach_unbreakable", str(fifo))
    assert eventually(lambda: running.state == "D")
    attached = inject(running.process)
    assert attached.state == "absent"
    assert "uninterruptible sleep" in attached.reason
    assert running.state == "D"
    fifo.write_bytes(b"")
    assert running.line() == "on"
    assert inject(running.process, timeout_s=20).state == "ready"


def test_a_target_in_uninterruptible_sleep_is_released(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpwatch.attach import methods

    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    running = start("attach_unbreakable", str(fifo))
    assert eventually(lambda: running.state == "D")
    # As if its state had changed since it was read.
    monkeypatch.setattr(methods, "require_stoppable", lambda target: None)
    attached = inject(running.process)
    assert attached.state == "absent"
    assert "did not stop within 250 ms" in attached.reason
    assert attached.passes
    assert procfs.status(running.pid, "TracerPid") == "0"
    fifo.write_bytes(b"")
    assert running.line() == "on"
    assert is_well(running)


def test_a_zombie_has_ended() -> None:
    popen = subprocess.Popen([sys.executable, "-c", "pass"])
    try:
        assert eventually(lambda: stat_of(popen.pid).state == "Z")
        attached = inject(stat_of(popen.pid).process)
    finally:
        popen.wait()
    assert (attached.state, attached.reason) == ("absent", "the process has ended")


EXITING = """
import atexit, sys, time
atexit.register(lambda: (print("exiting", flush=True), time.sleep(0.5)))
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_target_that_is_about_to_exit_exits_as_it_would_have(
    start: Start, tmp_path: Path
) -> None:
    program = tmp_path / "exiting.py"
    program.write_text(EXITING)
    for _ in range(5):
        running = start(str(program.with_suffix("")), stderr=subprocess.PIPE)
        running.say(b"\n")
        assert running.line() == "exiting"
        inject(running.process, timeout_s=0.0)
        _, stderr = running.popen.communicate(timeout=60)
        assert (running.popen.returncode, stderr) == (0, b"")


def test_a_target_that_its_user_stopped_stays_stopped_through_tree_and_detach(
    start: Start,
) -> None:
    running = start("attach_plain", "idle")
    assert inject(running.process, timeout_s=20).state == "ready"
    os.kill(running.pid, signal.SIGSTOP)
    assert eventually(lambda: running.state == "T")
    assert inject(running.process).state == "silent"
    (gone,) = detach_tree([sample(running.pid)], lambda outcome: None, timeout_s=0.2)
    assert (gone.state, gone.reason) == ("silent", "it is stopped")
    assert gone.fix == f"kill -CONT {running.pid}"
    assert running.state == "T"
    os.kill(running.pid, signal.SIGCONT)
    assert eventually(lambda: detach(running.process, timeout_s=30).state == "absent")


@pytest.mark.parametrize("limit", ["0", "4096"])
def test_a_target_that_the_answer_would_end_is_refused(start: Start, limit: str) -> None:
    """A write beyond RLIMIT_FSIZE is SIGXFSZ, whose default action this program has restored."""
    running = start("attach_file_limit", limit)
    attached = inject(running.process, timeout_s=5)
    assert attached.state == "absent"
    assert f"it may write no file beyond {limit} bytes (ulimit -f)" in attached.reason
    running.say(b"go on\n")
    assert running.line() == "goes on"


def test_a_target_with_room_for_the_answer_alone_has_a_hook_without_a_ring(
    start: Start, runtime: Path
) -> None:
    running = start("attach_file_limit", "100000")
    assert inject(running.process, timeout_s=0.1).state in ("pending", "ready")
    running.say(b"go on\n")
    assert running.line() == "goes on"
    with Client(wait_for_sockets(runtime, 1)[running.pid]) as client:
        hello = client.hello()
    assert any("the limit of file sizes (ulimit -f) is too low" in p for p in hello["problems"])
    assert detach(running.process, timeout_s=0.1).state in ("pending", "absent")
    running.say(b"go on\n")
    assert running.line() == "goes on"


@pytest.mark.parametrize("room_bytes", [0, (8 << 20) + 4096, 30 << 20])
def test_a_target_that_may_hardly_map_more_memory_is_refused_and_continues(
    start: Start, room_bytes: int
) -> None:
    running = start("attach_plain", "idle")
    for _ in range(20):  # a thread without a frame for its first call ended one in a hundred
        size = int(Path(f"/proc/{running.pid}/statm").read_text().split()[0]) * 4096
        _, hard = resource.prlimit(running.pid, resource.RLIMIT_AS)
        resource.prlimit(running.pid, resource.RLIMIT_AS, (size + room_bytes, hard))
        attached = inject(running.process, timeout_s=20)
        assert attached.state == "absent"
        assert f"it may map only {room_bytes >> 20} MiB more (ulimit -v)" in attached.reason
        assert running.popen.poll() is None
    resource.prlimit(running.pid, resource.RLIMIT_AS, (hard, hard))
    assert inject(running.process, timeout_s=20).state == "ready"


@contextlib.contextmanager
def with_memory_left(pid: int, left_bytes: int) -> Iterator[None]:
    """Let a process, alone in a control group, use so much more memory and not more."""
    found = [
        (parent, *files)
        for parent, *files in (
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "-1"),
            ("/sys/fs/cgroup", "memory.max", "memory.current", "max"),
        )
        if os.path.exists(f"{parent}/cgroup.procs")
    ]
    if not found or os.geteuid() != 0:
        pytest.skip("run as root with control groups")
    parent, limit, used, none = found[0]
    group = Path(parent, f"mpwatch-test-{pid}")
    try:
        group.mkdir()
        (group / limit).write_text(none)
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"only root may limit the memory of a group: {error}")
    try:
        # What the process has so far is counted where it was allocated.
        (group / limit).write_text(str(int((group / used).read_text()) + left_bytes))
        yield
    finally:
        (group / limit).write_text(none)
        Path(parent, "cgroup.procs").write_text(str(pid))
        assert eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_target_whose_control_group_has_hardly_memory_left_is_refused_and_continues(
    start: Start,
) -> None:
    running = start("attach_plain", "idle")
    with with_memory_left(running.pid, 2 << 20):
        attached = inject(running.process, timeout_s=20)
        assert running.popen.poll() is None
    assert (attached.state, attached.passes) == ("absent", True)
    assert "MiB of memory left, and an injection could use it up" in attached.reason
    assert inject(running.process, timeout_s=20).state == "ready"


@pytest.mark.parametrize("limit", ["0", "4096", "100000"])
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_a_hook_writes_no_file_beyond_the_limit_of_its_program(
    start: Start, request: pytest.FixtureRequest, limit: str, place: str
) -> None:
    variables = {}
    if place == "memory":
        variables["XDG_RUNTIME_DIR"] = str(request.getfixturevalue("runtime_in_memory"))
    running = start("attach_file_limit", limit, "hooked", variables=variables)
    running.say(b"notes\n")
    assert running.line() == "goes on"
    assert running.popen.stdin is not None
    running.popen.stdin.close()
    assert running.popen.wait(60) == 0
