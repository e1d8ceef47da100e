from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process import identify as errors
from mpwatch.collect.process.exits import ExitWatch
from mpwatch.collect.process.identify import identify
from mpwatch.collect.process.py_spy import StackCollector
from mpwatch.model.samples import Ended, ProcSample, TreeSample, WaitedOn
from tests import procfs
from tests.conftest import kill_group

from .conftest import Talker, eventually

pytestmark = pytest.mark.slow

Talk = Callable[[str], Talker]
OTHER_UID = 65534


def read(tree: TreeCollector) -> TreeSample:
    sample = tree.collect(ReadRequest.everything())
    assert sample is not None
    return sample


def by_pid(sample: TreeSample) -> dict[int, ProcSample]:
    return {process.process.pid: process for process in sample.processes}


def times_of(sample: ProcSample) -> dict[int, float | None]:
    return {each.tid: each.ran_at_s for each in sample.threads or ()}


def test_an_orphan_stays_in_the_tree(talk: Talk) -> None:
    program = talk("orphan")
    middle, child = map(int, program.words)
    tree = TreeCollector(identify(program.pid))
    assert set(by_pid(read(tree))) == {program.pid, middle, child}

    program.tell()
    program.hear("orphaned")
    found = by_pid(read(tree))

    assert set(found) == {program.pid, child}
    assert found[child].parent_pid not in (program.pid, middle)


def test_a_child_keeps_its_role_when_the_root_was_killed() -> None:
    # One write each: with PYTHONUNBUFFERED, print() writes a line in two.
    code = r"import os; child = os.fork(); os.write(1, b'ready\n'); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as root:
        assert root.stdout is not None
        assert root.stdout.readline() == root.stdout.readline() == b"ready\n"
        tree = TreeCollector(identify(root.pid))
        before = {pid: sample.role for pid, sample in by_pid(read(tree)).items()}
        root.kill()
        root.wait()
        after = {pid: sample.role for pid, sample in by_pid(read(tree)).items()}

    child = next(pid for pid in before if pid != root.pid)
    assert before == {root.pid: "main", child: "spawned"}
    assert after == {child: "spawned"}


@pytest.mark.skipif(not procfs.has_last_runs(), reason="the kernel has no CONFIG_SCHED_DEBUG")
def test_a_thread_that_sleeps_has_not_run_since_before_the_first_reading(talk: Talk) -> None:
    program = talk("waits")  # its threads sleep from now on
    ready_s = time.monotonic()
    assert eventually(lambda: time.monotonic() - ready_s > 4.0)

    def first_readings() -> list[ProcSample]:
        tree = TreeCollector(identify(program.pid))
        return [by_pid(read(tree))[program.pid] for _ in range(2)]

    def is_known() -> bool:  # not where other programs keep the clock of its cpu from being read
        looked[:] = first_readings()
        return times_of(looked[0])[program.pid] is not None

    looked: list[ProcSample] = []
    assert eventually(is_known)
    first, again = looked

    ran_at_s = times_of(first)[program.pid]
    assert ran_at_s is not None
    assert ran_at_s <= first.at_s - 2.0
    assert ready_s - ran_at_s < 4.0, "it ran until it was ready"
    assert times_of(again) == times_of(first)


def test_a_zombie_is_refused_with_its_parent_and_reported_with_its_exit_code(talk: Talk) -> None:
    program = talk("zombie")
    (zombie,) = map(int, program.words)
    tree = TreeCollector(identify(program.pid))

    with pytest.raises(errors.IsZombie) as caught:
        identify(zombie)
    sample = by_pid(read(tree))[zombie]
    deaths = ExitWatch()
    deaths.watch([sample.process])
    (ended,) = deaths.poll(60)
    deaths.close()

    assert caught.value.parent_pid == program.pid
    assert sample.state == "Z"
    assert ended.exit_code == 7


def test_a_thread_is_refused_with_its_process(talk: Talk) -> None:
    program = talk("waits")
    tids = dict(word.split("=") for word in program.words)

    with pytest.raises(errors.IsThread) as caught:
        identify(int(tids["futex"]))

    assert caught.value.pid == program.pid


def test_this_process_and_other_programs_are_refused() -> None:
    with pytest.raises(errors.IsObserver):
        identify(os.getpid())
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        eventually(lambda: os.path.basename(os.readlink(f"/proc/{sleeper.pid}/exe")) == "sleep")
        with pytest.raises(errors.NotPython):
            identify(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait()
    with pytest.raises(errors.NoSuchProcess):
        identify(sleeper.pid)


def test_exits_of_other_processes_are_reported_with_code_or_signal(talk: Talk) -> None:
    program = talk("deaths")
    children = list(map(int, program.words))
    tree = TreeCollector(identify(program.pid))
    identities = {pid: sample.process for pid, sample in by_pid(read(tree)).items()}
    deaths = ExitWatch()
    deaths.watch(identities[pid] for pid in children)

    program.tell()
    ended: list[Ended] = []

    def have_all_ended() -> bool:
        ended.extend(deaths.poll(1))
        return len(ended) == len(children)

    eventually(have_all_ended)
    deaths.close()

    found = {each.process.pid: (each.exit_code, each.signal, each.problem) for each in ended}
    has_exit_info = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (6, 15)
    if has_exit_info:
        assert [found[pid] for pid in children] == [
            (0, None, None),
            (3, None, None),
            (None, signal.SIGKILL, None),
            (None, signal.SIGSEGV, None),
        ]
    else:
        assert set(found) == set(children)


def test_the_exit_of_a_process_with_a_reused_pid_is_not_reported() -> None:
    mine = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = identify(mine.pid)
    deaths = ExitWatch()
    deaths.watch([process._replace(start_ticks=process.start_ticks - 1)])
    (ended,) = deaths.poll()
    deaths.close()
    mine.communicate(timeout=30)

    assert ended.exit_code is None
    assert ended.problem == "it exited before it could be watched"


def test_many_processes_can_be_watched_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    child = subprocess.Popen([sys.executable, "-c", "input(); raise SystemExit(5)"],
                             stdin=subprocess.PIPE)  # fmt: skip
    deaths = ExitWatch()
    deaths.watch([identify(child.pid)])
    assert deaths.poll() == []

    assert child.stdin is not None
    child.stdin.close()
    (ended,) = eventually(deaths.poll)
    child.wait(30)
    deaths.close()

    assert ended.exit_code == 1


def test_children_of_other_threads_are_listed_once(talk: Talk) -> None:
    program = talk("births")
    tree = TreeCollector(identify(program.pid))
    read(tree)

    program.tell()
    program.hear("started")
    (child,) = tree.started()

    assert child.pid in by_pid(read(tree))
    assert tree.started() == []


def test_every_kind_of_wait_is_resolved(talk: Talk) -> None:
    program = talk("waits")
    said = dict(word.split("=") for word in program.words)
    tree = TreeCollector(identify(program.pid))

    def waits() -> dict[str, WaitedOn] | None:
        threads = by_pid(read(tree))[program.pid].threads or ()
        known = {thread.tid: thread.waits_on for thread in threads}
        found = {
            name: waited
            for name, tid in said.items()
            if (waited := known.get(int(tid))) is not None
        }
        return found if len(found) == 11 else None

    found = eventually(waits)

    kinds = {name: waited.kind for name, waited in found.items()}
    assert kinds == {
        **{name: name for name in found},
        "select": "poll",
        "epoll": "poll",
    }
    empty, full = f"pipe:[{said['empty']}]", f"pipe:[{said['full']}]"
    assert found["pipe-read"].targets == (empty,)
    assert found["pipe-read"].queued_bytes == 0
    assert found["pipe-write"].targets == (full,)
    assert found["pipe-write"].queued_bytes == 65536
    assert {found[name].targets for name in ("poll", "select", "epoll")} == {(empty,)}
    assert found["poll"].timeout_s == 60.0
    assert found["child"].targets == (f"pid {said['sleeper']}",)
    assert found["timer"].timeout_s is not None
    assert found["timer"].timeout_s > 500
    semaphore = found["semaphore"]
    assert semaphore.value == 0
    assert semaphore.segment is not None
    held = by_pid(read(tree))[program.pid].segments or ()
    assert semaphore.segment in {use.segment for use in held if use.kind == "semaphore"}


def test_hostile_names_come_out_clean(talk: Talk) -> None:
    program = talk("names")

    (sample,) = read(TreeCollector(identify(program.pid))).processes

    assert sample.name.isprintable()
    assert sample.state in ("S", "R")
    assert sample.process.pid == program.pid


def run_as_nobody(code: str) -> str:
    """Run code after giving up all rights."""
    drop = f"import os; os.setgroups([]); os.setgid({OTHER_UID}); os.setuid({OTHER_UID})\n"
    # All modules are imported before: another user may not be able to read them.
    imports = textwrap.dedent(
        """
        from mpwatch.collect.process import identify as errors, py_spy
        from mpwatch.collect.process.exits import ExitWatch
        from mpwatch.collect.hook.client import HookClients
        from mpwatch.collect.process.identify import identify
        from mpwatch.collect.job.reader import TreeCollector, ReadRequest
        from mpwatch.model.ids import ProcessId
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", imports + drop + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_process_of_another_user_is_refused_with_the_command_that_helps(talk: Talk) -> None:
    program = talk("births")

    words = run_as_nobody(
        f"""
        try:
            identify({program.pid})
        except errors.NotPermitted as error:
            print(error.exit_code, error, error.fix, sep="|")
        """
    )

    code, message, fix = words.strip().split("|")
    assert code == "4"
    assert "it belongs to uid 0" in message
    assert f"mpwatch attach {program.pid}" in fix


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_is_hidden_of_another_users_process_is_none_with_reasons(talk: Talk) -> None:
    program = talk("births")
    process = identify(program.pid)

    words = run_as_nobody(
        f"""
        tree = TreeCollector(ProcessId({process.pid}, {process.start_ticks}))
        sample, = tree.collect(ReadRequest.everything()).processes
        links = sample.fds and sample.fds.links
        print(links, sample.maps, sample.memory.private_bytes, sample.memory.rss_bytes > 0)
        print("; ".join(sample.problems))
        print(py_spy.StackCollector().take(sample.process).problem)
        clients = HookClients()
        clients.watch([sample])
        print(*[status.reason for status in clients.poll(0)])
        deaths = ExitWatch()
        deaths.watch([sample.process])
        print(deaths.poll())
        """
    ).splitlines()

    assert words[0] == "None None None True"
    assert "executable: it belongs to uid 0" in words[1]
    assert f"No stacks of process {program.pid}: it belongs to uid 0" in words[2]
    assert "Permission denied" in words[3]
    assert words[4] == "[]"


def test_stacks_of_a_real_process_name_its_functions(talk: Talk) -> None:
    program = talk("births")

    taken = StackCollector().take(identify(program.pid), locals=True)

    assert taken.problem is None
    assert taken.cost_s is not None
    functions = [frame.function for frame in taken.stacks[0].frames]
    assert functions[-3:] == ["births", "main", "<module>"]
    assert taken.stacks[0].tid == program.pid


def test_stacks_of_a_program_that_streams_end_none_of_its_writes_early() -> None:
    """It writes 1 MiB at a time to a pipe, and a stop would end each write that has begun."""
    program = Path(__file__).parents[2] / "programs" / "attach_streaming.py"
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as popen:
        try:
            assert popen.stdin is not None
            assert popen.stdout is not None
            assert popen.stdout.readline() == b"ready\n"
            collector, process = StackCollector(), identify(popen.pid)
            functions = set()
            for _ in range(5):
                taken = collector.take(process)
                assert taken.problem is None
                functions |= {frame.function for frame in taken.stacks[0].frames}
            assert functions == {"<module>"}
            popen.stdin.write(b"?")
            popen.stdin.flush()
            short, count = map(int, popen.stdout.readline().split())
            assert (short, count > 0) == (0, True)
        finally:
            kill_group(popen.pid)


def test_a_stack_dump_that_is_cut_short_never_leaves_the_process_stopped(talk: Talk) -> None:
    program = talk("births")
    process = identify(program.pid)
    collector = StackCollector()
    late = 0

    for step in range(40):
        taken = collector.take(process, native=True, limit_s=0.001 + step * 0.0015)
        late += taken.problem is not None
        assert procfs.fields(program.pid)[0] not in "Tt"

    assert late > 0
    program.tell()
    program.hear("started")


def test_a_stopped_process_is_read_and_stays_stopped(talk: Talk) -> None:
    program = talk("births")
    os.kill(program.pid, signal.SIGSTOP)
    process = identify(program.pid)
    tree = TreeCollector(process)
    eventually(lambda: by_pid(read(tree))[program.pid].state == "T")

    taken = StackCollector().take(process)
    sample = by_pid(read(tree))[program.pid]

    assert taken.problem is None
    assert sample.state == "T"
    assert sample.threads is not None
    assert sample.threads[0].waits_on is not None
    assert sample.threads[0].waits_on.kind == "stopped"


def is_expected_of_a_short_life(problem: str) -> bool:
    """Whether a problem follows from a process being started or exiting while it is read."""
    # While the parent waits for a vfork the kernel shows state D. Once a process has given up its
    # memory on exit, its files in procfs belong to root (task_dump_owner in fs/proc/base.c).
    return "state D" in problem or (os.geteuid() != 0 and problem.endswith("Permission denied"))


def test_processes_that_start_and_exit_while_they_are_read_cause_no_problems() -> None:
    code = "import subprocess\nprint('ready', flush=True)\nwhile True: subprocess.run(['true'])"
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    tree = TreeCollector(identify(program.pid))
    deaths = ExitWatch()
    seen: set[int] = set()
    problems: set[str] = set()
    ended: list[Ended] = []

    def look() -> bool:
        deaths.watch(tree.started())
        sample = read(tree)
        seen.update(by_pid(sample))
        deaths.watch(process.process for process in sample.processes)
        problems.update(problem for process in sample.processes for problem in process.problems)
        ended.extend(deaths.poll())
        return len(ended) >= 20

    try:
        eventually(look)
    finally:
        program.kill()
        program.communicate(timeout=30)
        deaths.close()

    assert {each for each in problems if not is_expected_of_a_short_life(each)} == set()
    assert len(seen) > 1
