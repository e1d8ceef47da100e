"""Children that are started while the hook is injected into their parents."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpwatch.attach.attach_session import AttachSession
from mpwatch.attach.inject import inject
from mpwatch.attach.inject_tree import detach_tree, inject_tree, late_children
from mpwatch.attach.injection_log import InjectionLog
from mpwatch.attach.outcomes import Attached, Detached
from mpwatch.collect.hook import discovery
from mpwatch.collect.host.doctor import hook_checks
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import run
from mpwatch.model.ids import ProcessId
from tests import procfs
from tests.integration.attach.conftest import PROGRAMS, Running, Start
from tests.integration.attach.test_kinds_of_targets import sample
from tests.procfs import eventually, hook_threads

pytestmark = pytest.mark.slow

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


ENDED = "the process has ended"


def children(pid: int) -> list[ProcessId]:
    found = []
    for child in procfs.children(pid):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(stat_of(child).process)
    return found


def born_before(process: ProcessId, at_s: float) -> bool:
    return process.start_ticks / TICKS_PER_S + 0.02 < at_s


def test_a_child_forked_before_its_parent_is_injected_is_injected_too(
    start: Start,
) -> None:
    running = start("attach_short_children", "0.1", "60")
    listed = [sample(running.pid)]  # the children are not in the list that is injected
    assert eventually(lambda: len(children(running.pid)) >= 3)
    hooked_s: dict[ProcessId, float] = {}

    def progress(outcome: Attached) -> None:
        hooked_s[outcome.process] = time.clock_gettime(time.CLOCK_BOOTTIME)

    outcomes = inject_tree(listed, progress, timeout_s=30)
    parent_s = hooked_s[running.process]
    without = [child for child in children(running.pid) if born_before(child, parent_s)]
    assert len(without) >= 3
    assert {o.process for o in outcomes if o.state == "ready"} >= {running.process, *without}
    for child in children(running.pid):  # and those that inherited the hook
        attached = inject(child, timeout_s=30)
        assert (attached.state, attached.reason) in (("ready", ""), ("absent", ENDED)), attached


def test_after_a_detach_no_child_started_meanwhile_keeps_the_hook(
    start: Start, runtime: Path
) -> None:
    running = start("attach_short_children", "0.1", "20")
    inject_tree([sample(running.pid)], lambda outcome: None, timeout_s=60)
    assert eventually(lambda: len(children(running.pid)) > 3)
    gone = detach_tree([sample(running.pid)], lambda outcome: None, timeout_s=60)
    assert {outcome.state for outcome in gone} == {"absent"}, gone
    assert len(gone) > 3
    before = {*children(running.pid)}
    assert eventually(lambda: len({*children(running.pid)} - before) > 2)
    # A child that was forked with the hook and has ended by `os._exit` meanwhile leaves its notes.
    left = [path.name for path in (runtime / "mpwatch").iterdir()]
    assert [name for name in left if procfs.is_alive(int(name.partition("-")[0]))] == []


def test_children_without_python_are_excluded(start: Start) -> None:
    running = start("attach_short_children", "0.2", "20", "non-python")
    assert eventually(lambda: len(children(running.pid)) >= 2)
    outcomes = inject_tree([sample(running.pid)], lambda outcome: None, timeout_s=30)
    assert outcomes[0].state == "ready"
    assert {o.reason for o in outcomes[1:]} == {"it is not a Python process"}


def test_a_job_without_starts_has_no_late_children(start: Start) -> None:
    running = start("attach_plain", "idle")
    assert late_children([running.process]) == []


def fork_child(running: Running, how: str = "fork") -> int:
    """A child that the program forks now."""
    running.say(f"{how}\n".encode())
    pid = int(running.line())
    assert eventually(lambda: stat_of(pid).state == "S")
    return pid


def inject_at_next_line(running: Running) -> None:
    """Inject the hook; the program waits for input."""
    assert inject(running.process, timeout_s=0.1).state in ("pending", "ready")
    use_hook_at_next_line(running)


def use_hook_at_next_line(running: Running) -> None:
    running.say(b"go on\n")
    assert running.line() == "-1"
    assert eventually(lambda: hook_threads(running.pid) == 1)


def test_a_detach_finds_hooks_that_forked_children_have_not_used_yet(start: Start) -> None:
    """Such a hook has no thread, no file and no socket until its first record."""
    running = start("attach_forks_idle")
    before = fork_child(running)
    inject_at_next_line(running)
    after = fork_child(running)
    assert hook_threads(after) == 0
    processes = [sample(running.pid), sample(before), sample(after)]
    seen: list[Detached] = []

    outcomes = detach_tree(processes, seen.append, timeout_s=20)

    found = {each.process.pid: (each.state, each.had_hook) for each in outcomes}
    assert found[before] == ("absent", False)
    assert found[after] == ("absent", True)
    assert sorted(each.process.pid for each in seen) == sorted(found)
    os.kill(after, signal.SIGUSR1)
    assert running.line() == "False"


@contextmanager
def orphan(running: Running) -> Iterator[int]:
    """A child that has outlived the program."""
    after = fork_child(running)
    try:
        assert running.popen.stdin is not None
        running.popen.stdin.close()
        running.popen.wait(60)
        yield after
    finally:
        os.kill(after, signal.SIGKILL)


def is_seen_and_detached(after: int, running: Running) -> None:
    """Require that the hook of an orphan, which has recorded nothing, is seen and detached."""
    assert hook_threads(after) == 0
    check, *_ = hook_checks(stat_of(after).process)
    assert check.value == "asleep"
    seen: list[Detached] = []

    outcomes = detach_tree([sample(after)], seen.append, timeout_s=20)

    assert list(outcomes) == seen
    assert (seen[0].state, seen[0].had_hook, seen[0].reason) == ("absent", True, "")
    assert not discovery.find(sample(after))
    check, *_ = hook_checks(stat_of(after).process)
    assert check.value == "absent"
    os.kill(after, signal.SIGUSR1)
    assert running.line() == "False"


@pytest.mark.parametrize("how", ["injected", "instrumented"])
def test_a_hook_that_an_orphan_has_not_used_is_detached_from_it(start: Start, how: str) -> None:
    """Such a hook has neither thread nor file."""
    running = start("attach_forks_idle", "orphaned", how)
    if how == "injected":
        inject_at_next_line(running)
    with orphan(running) as after:
        is_seen_and_detached(after, running)


@pytest.mark.parametrize("is_root", [True, False])
def test_a_hook_of_mpwatch_run_that_an_orphan_has_not_used_is_detached_from_it(
    start: Start, tmp_path: Path, is_root: bool
) -> None:
    program = tmp_path / "starts.py"
    command = [sys.executable, str(PROGRAMS / "attach_forks_idle.py"), "orphaned"]
    command = run.command(command[1:]) if is_root else command
    path = "" if is_root else str(Path(run.__file__).with_name("startup"))
    program.write_text(
        f"import os; os.environ['PYTHONPATH'] = {path!r}; os.execv({command[0]!r}, {command!r})"
    )
    running = start(str(program.with_suffix("")))
    with orphan(running) as after:
        is_seen_and_detached(after, running)


def test_a_hook_that_an_orphan_cannot_detach_is_said_to_stay(start: Start) -> None:
    running = start("attach_forks_idle", "orphaned", "instrumented")
    with orphan(running) as after:
        os.kill(after, signal.SIGSTOP)
        assert eventually(lambda: stat_of(after).state == "T")
        done = detach_command(after)
        assert done.returncode == 4, done
        assert "The hook is still attached in 1 of 1 processes" in done.stderr
        os.kill(after, signal.SIGCONT)
        done = detach_command(after)
        assert (done.returncode, done.stdout.splitlines()[0]) == (
            0,
            f"{after}: the hook is detached",
        )


def detach_command(pid: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mpwatch", "detach", str(pid)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_an_orphan_without_a_hook_has_none(start: Start, runtime: Path) -> None:
    running = start("attach_forks_idle", "orphaned")
    with orphan(running) as after:
        (unseen,) = detach_tree([sample(after)], lambda _: None)
        assert (unseen.state, unseen.had_hook, unseen.method) == ("absent", False, "")
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize("where", ["group", "session"])
def test_an_orphan_outside_of_the_group_is_detached_or_named(start: Start, where: str) -> None:
    """Nobody enters a session from outside; one that an orphan has made is nobody else's."""
    running = start("attach_forks_idle", "orphaned", where)
    inject_at_next_line(running)
    after = fork_child(running, "fork twice")
    try:
        done = detach_command(running.pid)
        assert done.returncode == 0, done.stderr
        is_in_tree = f"{after}: the hook is detached\n" in done.stdout
        is_named = (
            f"{after}: not of the tree of {running.pid}, and left alone: it has the hook of a"
            f" process that has exited; to detach it: mpwatch detach {after}\n"
        ) in done.stdout
        assert (is_in_tree, is_named) == ((True, False) if where == "group" else (False, True))
        os.kill(after, signal.SIGUSR1)
        assert running.line() == str(where == "session")
    finally:
        os.kill(after, signal.SIGKILL)


def test_a_session_takes_out_hooks_that_forked_children_have_not_used_yet(
    start: Start, tmp_path: Path
) -> None:
    running = start("attach_forks_idle")
    session = AttachSession(running.process, log=InjectionLog(str(tmp_path / "log")))
    session.inject([sample(running.pid)], lambda _: None)
    use_hook_at_next_line(running)
    after = fork_child(running)

    assert "detached from 2 processes" in session.end()
    os.kill(after, signal.SIGUSR1)
    assert running.line() == "False"


def test_a_session_takes_out_hooks_of_forked_children_whose_parent_has_exited(
    start: Start, tmp_path: Path
) -> None:
    running = start("attach_forks_idle", "orphaned")
    session = AttachSession(running.process, log=InjectionLog(str(tmp_path / "log")))
    session.inject([sample(running.pid)], lambda _: None)
    use_hook_at_next_line(running)
    after = fork_child(running, "fork twice")
    try:
        assert "detached from 2 processes" in session.end()
        os.kill(after, signal.SIGUSR1)
        assert running.line() == "False"
    finally:
        os.kill(after, signal.SIGKILL)


def test_an_inherited_hook_in_a_confined_child_is_named_and_the_child_left_alone(
    start: Start,
) -> None:
    running = start("attach_forks_idle", "confined")
    inject_at_next_line(running)
    after = fork_child(running)

    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", "detach", str(running.pid)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 4
    assert f"{running.pid}: the hook is detached" in done.stdout
    assert (
        f"{after}: it was forked from a process with the hook, and it is sandboxed" in done.stdout
    )
    assert "The hook is still attached in 1 of 2 processes." in done.stderr
