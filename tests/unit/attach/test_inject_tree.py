from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.attach import inject_tree
from mpwatch.attach.inject_tree import MIN_AGE_S, in_parallel, late_children, why_not
from mpwatch.attach.outcomes import Detached
from mpwatch.collect.job.reader import TreeCollector
from mpwatch.collect.process.procfs import age_s, stat_of
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import ProcSample


def sample(role: Role = "other", state: str = "S", is_python: bool = True) -> ProcSample:
    return ProcSample(
        process=ProcessId(7, 1),
        at_s=0.0,
        parent_pid=1,
        name="python",
        cmdline=(),
        state=state,
        role=role,
        is_python=is_python,
    )


@pytest.mark.parametrize(
    "role", ["main", "loader-worker", "spawned", "rank", "launcher", "pool-worker", "other"]
)
def test_processes_that_run_the_program_get_the_hook(role: Role) -> None:
    assert why_not(sample(role)) is None


@pytest.mark.parametrize(
    ("role", "word"),
    [
        ("resource-tracker", "resource tracker"),
        ("forkserver", "children load the hook"),
        ("shm-manager", "torch_shm_manager"),
        ("compile-worker", "compile workers"),
    ],
)
def test_helper_processes_are_excluded_with_a_reason(role: Role, word: str) -> None:
    assert word in str(why_not(sample(role)))


def test_processes_without_python_and_exited_ones_are_excluded() -> None:
    assert why_not(sample(is_python=False)) == "it is not a Python process"
    assert why_not(sample(state="Z")) == "the process has ended"


@pytest.mark.parametrize(
    ("cmdline", "is_ours"),
    [
        (("python", "-m", "mpwatch", "record", "7"), True),
        (("/venv/bin/python", "/venv/bin/mpwatch", "attach", "7"), True),
        (("python", "/lib/mpwatch/hook/run.py", "train.py"), False),
        (("python", "-m", "mpwatch.demo.programs.worker_oom_killed"), False),
    ],
)
def test_an_observer_is_excluded_and_a_program_that_it_runs_is_not(
    cmdline: tuple[str, ...], is_ours: bool
) -> None:
    reason = why_not(replace(sample(), cmdline=cmdline))

    assert reason == ("it is mpwatch itself" if is_ours else None)


def process(pid: int) -> ProcessId:
    return stat_of(pid).process


@pytest.fixture
def child() -> Iterator[ProcessId]:
    popen = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process(popen.pid)
    popen.communicate()


def test_an_unlisted_child_is_found_once_it_is_old_enough(child: ProcessId) -> None:
    found = late_children([process(os.getpid())])

    assert child in {sample.process for sample in found}
    assert age_s(child.pid) >= MIN_AGE_S


def test_a_handled_child_is_not_found_again(child: ProcessId) -> None:
    found = late_children([process(os.getpid()), child])

    assert child not in {sample.process for sample in found}


def test_the_tree_of_a_job_is_read_once_for_all_new_children(
    child: ProcessId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that starts ten children a second is not read anew for each of them."""
    others = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) for _ in range(5)]
    read: list[ProcessId] = []

    class Counted(TreeCollector):
        def __init__(self, root: ProcessId, *, proc: str) -> None:
            read.append(root)
            super().__init__(root, proc=proc)

    monkeypatch.setattr(inject_tree, "TreeCollector", Counted)
    found = {sample.process.pid for sample in late_children([process(os.getpid())])}
    for other in others:
        other.communicate()

    assert found >= {child.pid, *(other.pid for other in others)}
    assert read == [process(os.getpid())]


def test_parents_that_have_gone_have_no_children() -> None:
    assert late_children([ProcessId(2**22 + 1, 1)]) == []


ROOT, OTHER = 10, 11
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(
        pid: int | str,
        *,
        state: str = "S",
        ticks: int = 1,
        mode: int = 0,
        filters: int | None = 0,
        uids: str = "1000 1000 1000 1000",
        namespaces: dict[str, int] | None = None,
        label: bytes | None = b"docker-default (enforce)\n",
        no_new_privs: int | None = 0,
        bounding: str = "00000000a80425fb",  # of a container by Docker
    ) -> None:
        folder = tmp_path / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "attr").mkdir()
        (folder / "stat").write_text(f"{pid} (python) {state} {'0 ' * 18}{ticks} {'0 ' * 30}\n")
        lines = ["Name:\tpython", f"Uid:\t{uids}", f"Seccomp:\t{mode}"]
        lines += [] if filters is None else [f"Seccomp_filters:\t{filters}"]
        lines += [] if no_new_privs is None else [f"NoNewPrivs:\t{no_new_privs}"]
        lines += [f"CapBnd:\t{bounding}"]
        (folder / "status").write_text("\n".join(lines) + "\n")
        for name, inode in {"user": 1, "pid": 2, "mnt": 3, **(namespaces or {})}.items():
            if inode:
                (folder / "ns" / name).symlink_to(f"{name}:[{inode}]")
        if label is not None:
            (folder / "attr/current").write_bytes(label)

    return write


def reason(tmp_path: Path) -> str | None:
    proc = str(tmp_path)
    return inject_tree.why_too_confined(
        inject_tree.read_confinement(OTHER, proc), inject_tree.read_confinement(ROOT, proc)
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            {"label": b"sandbox (enforce)\n"},
            "another security label than the root process (sandbox",
        ),
        ({"label": b"system_u:system_r:svirt_t:s0:c1\0"}, "another security label"),
        (
            {"uids": "1001 1001 1001 1001"},
            "another user (uid 1001) than the root process (uid 1000)",
        ),
        ({"uids": "1000 1001 1000 1001"}, "another user (uid 1000/1001)"),
        ({"namespaces": {"user": 9}}, "another user namespace"),
        ({"namespaces": {"pid": 9}}, "another pid namespace"),
        ({"namespaces": {"mnt": 9}}, "another mnt namespace"),
        ({"mode": 2, "filters": 1}, "a system-call filter (seccomp)"),
        ({"mode": 2, "filters": None}, "a system-call filter (seccomp)"),
        ({"mode": 1}, "a system-call filter (seccomp)"),
    ],
)
def test_a_process_that_is_confined_more_tightly_is_left_out_with_its_reason(
    tmp_path: Path, write: Write, what: dict[str, object], words: str
) -> None:
    write(ROOT)
    write(OTHER, **what)
    assert words in (reason(tmp_path) or "")


@pytest.mark.parametrize(
    "what", [{}, {"label": None}, {"label": b""}, {"namespaces": {"pid": 0, "net": 7}}]
)
def test_one_that_is_confined_alike_or_hides_how_is_not(
    tmp_path: Path, write: Write, what: dict[str, object]
) -> None:
    write(ROOT)
    write(OTHER, **what)
    assert reason(tmp_path) is None


@pytest.mark.parametrize(("filters", "is_left_out"), [(2, False), (3, True)])
def test_the_filters_of_a_container_are_the_measure(
    tmp_path: Path, write: Write, filters: int, is_left_out: bool
) -> None:
    write(ROOT, mode=2, filters=2)
    write(OTHER, mode=2, filters=filters)
    assert (reason(tmp_path) is not None) is is_left_out


@pytest.mark.parametrize(
    ("what", "is_left_out"),
    [
        ({}, False),  # a process without these rights cannot have added a filter
        ({"no_new_privs": 1}, True),
        ({"no_new_privs": None}, True),  # before Linux 4.10
        ({"bounding": "000001ffffffffff"}, True),
        ({"bounding": "nonsense"}, True),
        ({"namespaces": {"user": 0}}, True),  # hidden: it may have all rights in one of its own
        ({"mode": 0}, False),
    ],
)
def test_where_the_kernel_does_not_count_filters_one_that_may_have_more_is_left_out(
    tmp_path: Path, write: Write, what: dict[str, object], is_left_out: bool
) -> None:
    """Linux before 5.9."""
    write(ROOT, mode=2, filters=None)
    write(OTHER, **{"mode": 2, "filters": None, **what})
    found = reason(tmp_path)
    assert (found is not None) is is_left_out
    if found is not None:
        assert "this kernel does not say whether it has more of them than the root" in found


def test_a_label_of_another_process_cannot_move_the_cursor(tmp_path: Path, write: Write) -> None:
    write(ROOT)
    write(OTHER, label=b"x\x1b[2Jy\n")
    found = reason(tmp_path)
    assert found is not None
    assert found.isprintable()


def confined(tmp_path: Path, root: inject_tree.Root | None = None) -> list[str]:
    """The reasons why `OTHER` is left out, with the first root process of that pid."""
    root = root or inject_tree.Root(ProcessId(ROOT, 1), str(tmp_path))
    other = replace(sample(), process=ProcessId(OTHER, 1))
    return list(root.confined([other]).values())


def test_a_root_process_that_has_exited_is_still_the_measure(tmp_path: Path, write: Write) -> None:
    write("self")
    write(ROOT, mode=2, filters=2)
    write(OTHER, mode=2, filters=2)
    root = inject_tree.Root(ProcessId(ROOT, 1), str(tmp_path))
    shutil.rmtree(tmp_path / str(ROOT))
    assert confined(tmp_path, root) == []


@pytest.mark.parametrize("what", [{"state": "Z"}, {"ticks": 2}])
@pytest.mark.parametrize(("own", "is_left_out"), [(1, True), (2, False)])
def test_mpwatch_is_the_measure_for_a_root_process_that_exited_before_it_was_read(
    tmp_path: Path, write: Write, what: dict[str, object], own: int, is_left_out: bool
) -> None:
    """Also where another process has its pid."""
    write("self", mode=2, filters=own)
    write(ROOT, mode=2, filters=2, **what)
    write(OTHER, mode=2, filters=2)
    words = "a system-call filter (seccomp) that mpwatch does not have (the root process has exited"
    assert [words in reason for reason in confined(tmp_path)] == [True] * is_left_out


def test_a_root_process_that_confines_itself_later_is_read_again(
    tmp_path: Path, write: Write
) -> None:
    write(ROOT)
    root = inject_tree.Root(ProcessId(ROOT, 1), str(tmp_path))
    shutil.rmtree(tmp_path / str(ROOT))
    write(ROOT, mode=2, filters=1)
    write(OTHER, mode=2, filters=1)
    assert confined(tmp_path, root) == []


def test_nothing_is_examined_or_injected_that_is_not_wanted_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = replace(sample("main"), process=process(os.getpid()))
    asked: list[ProcessId] = []
    monkeypatch.setattr(inject_tree, "inject", lambda target, **_: asked.append(target))

    (outcome,) = inject_tree.inject_tree([own], lambda _: None, is_wanted=lambda: False)

    assert (outcome.state, outcome.reason, asked) == ("absent", inject_tree.NOT_WANTED, [])


FORKED_NO_EXEC = 0x40


def test_only_forks_of_the_jobs_own_program_are_strays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of another program, older ones, those that ran one, and those without a hook."""
    proc = str(tmp_path)

    def add(
        pid: int, command: bytes, ticks: int = 9, flags: int = FORKED_NO_EXEC, parent: int = 1
    ) -> None:
        (tmp_path / str(pid)).mkdir()
        before = f"{pid} (python) S {parent} 0 0 0 0 {flags} {'0 ' * 12}"
        (tmp_path / str(pid) / "stat").write_text(f"{before}{ticks} {'0 ' * 30}\n")
        (tmp_path / str(pid) / "cmdline").write_bytes(command)

    own, stray = b"python\0train.py\0", 20
    add(10, own, ticks=5)
    add(stray, own)
    add(21, b"python\0other.py\0")
    add(22, own, ticks=4)
    add(23, own, flags=0)
    add(24, own)
    add(25, own, parent=10)
    monkeypatch.setattr(inject_tree, "has_hook", lambda pid: pid != 24)
    monkeypatch.setattr(
        inject_tree, "is_orphaned_fork", lambda each, _: stat_of(each.pid, proc).parent_pid == 1
    )

    root = replace(sample("main"), process=ProcessId(10, 5))
    assert [each.pid for each in inject_tree.stray_forks([root], proc)] == [stray]


def detached(process: ProcessId) -> Detached:
    return Detached(process, "absent", method=threading.current_thread().name)


PROCESSES = [ProcessId(pid, 1) for pid in range(1, 8)]


@pytest.mark.timeout(20)
def test_threads_that_end_without_a_result_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with no memory left: they end in between, and nothing gives their results any more."""
    monkeypatch.setattr(threading.Thread, "run", lambda self: None)

    with pytest.raises(MemoryError, match="no memory"):
        in_parallel(detached, PROCESSES)


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_at_a_limit_of_processes_all_is_done_with_the_threads_that_there_are(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_if_allowed(thread: threading.Thread) -> None:
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_allowed)
    outcomes = in_parallel(detached, PROCESSES)

    assert sorted(outcomes) == PROCESSES
    here = threading.current_thread().name
    assert {each.method == here for each in outcomes.values()} == {allowed == 0}


def test_ctrl_c_without_threads_begins_with_no_further_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[ProcessId] = []

    def inject(process: ProcessId) -> Detached:
        begun.append(process)
        raise KeyboardInterrupt

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(KeyboardInterrupt):
        in_parallel(inject, PROCESSES)
    assert begun == PROCESSES[:1]


def test_what_is_raised_for_one_process_is_raised_after_the_others_are_done() -> None:
    done: list[ProcessId] = []

    def detach(process: ProcessId) -> Detached:
        if process == PROCESSES[2]:
            raise PermissionError("no")
        done.append(process)
        return detached(process)

    with pytest.raises(PermissionError, match="no"):
        in_parallel(detach, PROCESSES, at_once=2)
    assert sorted(done) == [each for each in PROCESSES if each != PROCESSES[2]]
