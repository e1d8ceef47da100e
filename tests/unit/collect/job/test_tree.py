from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mpwatch.collect.host.gpu import GpuCollector
from mpwatch.collect.host.new_files import NewFilesReader
from mpwatch.collect.job.reader import ReadRequest, TreeCollector, find_jobs
from mpwatch.collect.process import identify
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample, TreeSample
from tests.builders.clock import Clock
from tests.unit.collect.conftest import FakeProc

TORCH_LINE = "7f0000030000-7f0000031000 r-xp 00000000 08:01 12 /x/torch/lib/libtorch_cpu.so\n"


def collector(proc: FakeProc, clock: Clock | None = None) -> TreeCollector:
    return TreeCollector(ProcessId(10, 10), proc=str(proc), clock=clock or Clock(), wall=Clock(5e9))


def read(tree: TreeCollector, wanted: ReadRequest | None = None) -> TreeSample:
    sample = tree.collect(wanted or ReadRequest.everything())
    assert sample is not None
    return sample


def only(tree: TreeCollector, wanted: ReadRequest | None = None) -> ProcSample:
    (process,) = read(tree, wanted).processes
    return process


@pytest.mark.parametrize("many", [1, 8], ids=["alone", "among many"])
def test_memory_is_not_read_from_the_first_reading_on_while_a_thread_is_stuck(
    proc: FakeProc, many: int
) -> None:
    for pid in range(10, 10 + many):
        proc.process(pid, parent=10 if pid > 10 else 1, maps=TORCH_LINE)
    proc.thread(10, 99, state="D")

    stuck, *others = read(collector(proc)).processes

    assert stuck.maps is None
    assert stuck.memory is not None
    assert stuck.memory.pss_bytes is None
    assert all(each.memory is not None and each.memory.pss_bytes for each in others)


def test_long_values_of_the_environment_are_cut_and_can_still_be_compared(proc: FakeProc) -> None:
    for pid, last in ((10, "a"), (11, "b"), (12, "a")):
        libraries = "/opt/lib:" * 50 + last
        environ = f"LD_LIBRARY_PATH={libraries}\0OMP_X=\x1b[2J\0"
        proc.process(pid, parent=10 if pid > 10 else 1, environ=environ, maps=TORCH_LINE)

    found = [each.environment for each in read(collector(proc)).processes]

    first, second, third = (each["LD_LIBRARY_PATH"] for each in found)
    assert first != second
    assert first == third
    assert len(first) < 100
    assert found[0]["OMP_X"].isprintable()


def test_one_process_is_read_completely(proc: FakeProc) -> None:
    proc.process(
        10, environ="RANK=3\0SECRET=x\0TMPDIR=/scratch\0NCCL_IB_HCA=mlx5\0", maps=TORCH_LINE
    )
    proc.fd(10, 3, "pipe:[77]")

    sample = only(collector(proc))

    assert sample.process == (10, 10)
    assert (sample.role, sample.rank) == ("main", 3)
    assert dict(sample.environment) == {
        "RANK": "3",
        "TMPDIR": "/scratch",
        "NCCL_IB_HCA": "mlx5",
    }
    assert sample.python_version == "3.11"
    assert sample.torch_loaded
    assert sample.fds is not None
    assert (sample.fds.soft_limit, sample.fds.hard_limit) == (1024, 4096)
    assert sample.fds.by_kind == {"pipe": 1}
    assert sample.maps is not None
    assert (sample.maps.used, sample.maps.limit) == (1, 65530)
    assert sample.memory is not None
    assert sample.memory.private_bytes == 40 * 1024
    assert sample.memory.shmem_bytes == 12 * 1024
    assert sample.memory.anon_bytes == 30 * 1024
    assert sample.memory.virtual_bytes == 90 * 1024
    assert sample.cpus_allowed == 4
    assert sample.signals_caught == 2
    assert (sample.read_bytes, sample.written_bytes) == (10, 20)
    assert sample.born_wall_s == 1000.1
    assert sample.threads is not None
    assert sample.problems == ()


def test_new_files_are_counted_only_if_wanted(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(10)
    monkeypatch.setattr(NewFilesReader, "read", lambda *_: ())

    assert read(collector(proc)).host.new_files == ()
    assert read(collector(proc), ReadRequest(new_files=False)).host.new_files is None


def test_gpus_are_read_only_if_wanted(proc: FakeProc) -> None:
    def no_binding() -> object:
        raise ImportError

    proc.process(10)
    gpus = GpuCollector(Clock(), no_binding)
    tree = TreeCollector(ProcessId(10, 10), proc=str(proc), clock=Clock(), gpu=gpus)

    assert read(tree, ReadRequest(gpu=False)).problems == ()
    (problem,) = read(tree, ReadRequest()).problems
    assert problem.startswith("GPUs are not shown")


def test_a_job_without_processes_has_no_sample(proc: FakeProc) -> None:
    proc.process(10)
    tree = collector(proc)
    read(tree)

    proc.end(10)

    assert tree.collect(ReadRequest()) is None


def test_a_tree_of_zombies_has_ended(proc: FakeProc) -> None:
    proc.process(10, state="Z", cmdline=(), exe=None)

    assert collector(proc).collect(ReadRequest()) is None


def test_a_zombie_among_running_processes_is_shown_without_problems(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(11, parent=10, state="Z", cmdline=(), exe=None)

    zombie = read(collector(proc)).processes[1]

    assert zombie.state == "Z"
    assert zombie.memory is None
    assert zombie.problems == ()


def test_a_process_whose_exit_has_begun_keeps_what_was_known_of_it(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(11, parent=10, cmdline=("python", "worker.py"))
    tree = collector(proc)
    before = read(tree).processes[1]
    (proc.root / "11/exe").unlink()
    proc.process(11, parent=10, cmdline=(), exe=None, state="R", flags=0x4)

    after = read(tree).processes[1]

    assert after.cmdline == before.cmdline == ("python", "worker.py")
    assert (after.is_python, after.role) == (before.is_python, before.role)
    assert after.problems == ()


@pytest.mark.parametrize(
    ("tracer", "parent", "state"),
    [(77, os.getpid(), "S"), (77, 1, "t"), (0, 1, "S"), (78, 1, "S")],
    ids=["py-spy of this observer", "a debugger", "the stop is over", "the tracer has exited"],
)
def test_a_process_is_not_traced_while_its_own_observer_takes_its_stack(
    proc: FakeProc, tracer: int, parent: int, state: str
) -> None:
    proc.process(10)
    proc.thread(10, 10, syscall="0 0x3 0x1 0x2 0x0 0x0 0x0 0x7ffc 0x7fbc\n", counters="10 20 30\n")
    tree = collector(proc)
    before = only(tree)
    proc.process(77, parent=parent, exe="/usr/bin/py-spy")
    proc.process(10, state="t")
    proc.thread(10, 10, state="t", counters="11 20 31\n")
    for folder in ("10", "10/task/10"):
        proc.write(f"{folder}/status", f"Name:\tx\nTgid:\t10\nTracerPid:\t{tracer}\n")

    after = only(tree)

    assert before.threads is not None
    assert after.threads is not None
    assert (before.state, before.threads[0].state) == ("S", "S")
    assert (after.state, after.threads[0].state) == (state, state)


def test_what_cannot_be_read_is_none_with_one_reason(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(10)
    from mpwatch.collect.process import procfs

    real = procfs.read
    hidden = ("environ", "maps", "smaps_rollup", "syscall", "wchan", "io")

    def read_or_refuse(path: str, limit: int = 1 << 16) -> bytes:
        if path.rsplit("/", 1)[-1] in hidden:
            raise PermissionError(13, "Permission denied")
        return real(path, limit)

    monkeypatch.setattr(procfs, "read", read_or_refuse)
    sample = only(collector(proc))

    assert sample.maps is None
    assert sample.segments is not None
    assert sample.memory is not None
    assert sample.memory.private_bytes is None
    assert sample.memory.rss_bytes is not None
    assert sample.read_bytes is None
    assert "environment: Permission denied" in sample.problems
    assert "mappings: Permission denied" in sample.problems


def test_links_are_kept_until_their_number_moves(proc: FakeProc) -> None:
    clock = Clock()
    proc.process(10)
    for number in range(4):
        proc.fd(10, number, "pipe:[77]")
    tree = collector(proc, clock)
    first = only(tree, ReadRequest())

    clock.now_s += 1
    same = only(tree, ReadRequest())
    for number in range(4, 20):
        proc.fd(10, number, "socket:[5]")
    clock.now_s += 1
    moved = only(tree, ReadRequest())

    assert first.fds is not None
    assert same.fds is not None
    assert moved.fds is not None
    assert same.fds.read_at_s == first.fds.read_at_s
    assert moved.fds.read_at_s == clock.now_s
    assert moved.fds.by_kind == {"pipe": 4, "socket": 16}


def test_a_process_with_many_new_descriptors_is_read_before_fluctuating_ones(
    proc: FakeProc,
) -> None:
    clock = Clock()
    proc.process(10)
    for pid in range(11, 15):
        proc.process(pid, parent=10)
    tree = collector(proc, clock)
    read(tree)
    for pid, opened in ((11, 8), (12, 60), (13, 8), (14, 8)):
        for number in range(opened):
            proc.fd(pid, number, "pipe:[77]")
    clock.now_s += 1

    processes = read(tree, ReadRequest(links_count=1)).processes

    fresh = [p.process.pid for p in processes if p.fds and p.fds.read_at_s == clock.now_s]
    assert fresh == [12]


def test_memory_is_read_in_rotation(proc: FakeProc) -> None:
    clock = Clock()
    proc.process(10)
    proc.process(11, parent=10)
    tree = collector(proc, clock)
    seen = []
    for _ in range(4):
        processes = read(tree, ReadRequest()).processes
        seen += [p.process.pid for p in processes if p.memory and p.memory.read_at_s == clock.now_s]
        clock.now_s += 11  # of a small job it is read again after 20 s, changed or not

    assert sorted(seen[:2]) == [10, 11]
    assert seen[2:] == seen[:2]


def test_memory_of_the_process_under_the_cursor_is_always_read(proc: FakeProc) -> None:
    clock = Clock()
    proc.process(10)
    for pid in range(11, 14):
        proc.process(pid, parent=10)
    tree = collector(proc, clock)
    read(tree)
    clock.now_s += 100

    wanted = ReadRequest(links_count=0, maps_count=0, memory_count=0, followed=ProcessId(13, 13))
    processes = read(tree, wanted).processes

    fresh = [p.process.pid for p in processes if p.maps and p.maps.read_at_s == clock.now_s]
    assert fresh == [13]


def test_a_young_process_is_read_again_after_its_exec(proc: FakeProc) -> None:
    proc.process(10)
    tree = TreeCollector(ProcessId(10, 10), proc=str(proc), clock=Clock(), wall=Clock(1000.2))
    read(tree)
    proc.write("10/cmdline", "python\0other.py\0")

    assert only(tree).cmdline == ("python", "other.py")


def test_mappings_are_not_read_while_the_process_is_stuck_in_the_kernel(proc: FakeProc) -> None:
    proc.process(10, state="D")

    sample = only(collector(proc))

    assert sample.maps is None
    assert sample.cmdline == ()
    assert any("state D" in problem for problem in sample.problems)


def test_creators_are_translated_from_the_containers_numbers(proc: FakeProc) -> None:
    proc.process(10, ns_pids=(1,))
    proc.process(11, parent=10, ns_pids=(7,))
    line = "7f0000000000-7f0000001000 rw-s 0 00:1b 41 /dev/shm/torch_{}_1_0 (deleted)\n"
    proc.write("10/maps", line.format(7) + line.format(8).replace("41", "42"))

    main = read(collector(proc)).processes[0]

    assert main.segments is not None
    assert [use.creator_pid for use in main.segments] == [11, None]
    assert main.ns_pid == 1


def test_dead_workers_keep_their_numbers(proc: FakeProc) -> None:
    proc.process(10)
    for pid in (11, 12, 13):
        proc.process(pid, parent=10, name="pt_data_worker")
    tree = collector(proc)
    read(tree)
    proc.end(11)

    processes = read(tree).processes

    assert [(p.process.pid, p.worker_id) for p in processes[1:]] == [(12, 1), (13, 2)]


def test_the_first_rank_is_the_same_once_the_one_that_it_has_started_is_dead(
    proc: FakeProc,
) -> None:
    proc.process(10)
    proc.process(11, parent=10, environ="LOCAL_RANK=1\0NODE_RANK=0\0")
    tree = collector(proc)
    assert [p.rank for p in read(tree).processes] == [0, 1]

    proc.end(11)

    assert [p.rank for p in read(tree).processes] == [0]


def test_a_process_that_exits_between_two_reads_does_not_affect_the_others(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(10)
    proc.process(11, parent=10)
    real = identify.read_static_facts

    def end_then_read(proc_root: str, stat: object, *rest: object) -> identify.StaticFacts:
        if (proc.root / "11").exists() and getattr(stat, "pid", 0) == 11:
            proc.end(11)
        return real(proc_root, stat, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("mpwatch.collect.job.reader.read_static_facts", end_then_read)
    processes = read(collector(proc)).processes

    assert [process.process.pid for process in processes] == [10, 11]
    assert processes[1].fds is None
    assert processes[1].problems == ()


def test_hostile_names_are_clean_everywhere(proc: FakeProc) -> None:
    proc.process(10, name=b"e\x1b[31m)vil\n\xff", cmdline=("python", "\x1b]0;x\x07", "[bold]"))
    proc.fd(10, 3, "/tmp/\x1b[2J")

    sample = only(collector(proc))

    assert sample.name.isprintable()
    assert all(argument.isprintable() for argument in sample.cmdline)
    assert sample.fds is not None
    assert sample.fds.links is not None
    assert all(link.target.isprintable() for link in sample.fds.links)


def test_jobs_are_trees_whose_top_runs_torch(proc: FakeProc) -> None:
    proc.process(5, name="bash", cmdline=("bash",), exe="/bin/bash")
    proc.process(10, parent=5, maps=TORCH_LINE)
    proc.process(11, parent=10, name="pt_data_worker", maps=TORCH_LINE)
    proc.process(12, parent=10, name="cat", cmdline=("cat",), exe="/bin/cat")
    proc.process(20, parent=5, cmdline=("python", "-m", "http.server"))

    (job,) = find_jobs(str(proc))

    assert job.root.process == (10, 10)
    assert [(p.process.pid, p.role, p.has_torch) for p in job.processes] == [
        (10, "main", True),
        (11, "loader-worker", True),
        (12, "other", False),
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the hooks of this user."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = tmp_path / "mpwatch"
    made.mkdir(mode=0o700)
    return made


def test_a_process_with_the_socket_of_a_hook_is_a_job(proc: FakeProc, folder: Path) -> None:
    proc.process(10)
    proc.process(11)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/10-10.sock")
        jobs = find_jobs(str(proc))

    assert [(job.root.process.pid, job.root.has_hook) for job in jobs] == [(10, True)]


def make_public(folder: Path) -> None:
    folder.chmod(0o755)


def put_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def put_file(folder: Path) -> None:
    (folder / "10-10.sock").unlink()
    (folder / "10-10.sock").touch()


def give_away(folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    os.chown(folder, 65533, -1)


@pytest.mark.parametrize("change", [make_public, put_link, put_file, give_away])
def test_a_directory_that_another_user_may_have_made_is_not_believed(
    proc: FakeProc, folder: Path, change: Callable[[Path], None]
) -> None:
    proc.process(10)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/10-10.sock")
        change(folder)

        assert find_jobs(str(proc)) == []


def test_a_job_has_no_process_whose_exit_has_begun(proc: FakeProc) -> None:
    proc.process(10, maps=TORCH_LINE)
    proc.process(11, parent=10, maps=TORCH_LINE)
    proc.process(12, parent=10, state="R", flags=0x4, exe=None, cmdline=())

    (job,) = find_jobs(str(proc))

    assert [each.process.pid for each in job.processes] == [10, 11]


def test_a_launcher_is_the_root_of_its_ranks(proc: FakeProc) -> None:
    proc.process(10, cmdline=("python", "/usr/bin/torchrun", "train.py"))
    proc.process(11, parent=10, environ="RANK=0\0", maps=TORCH_LINE)
    proc.process(12, parent=10, environ="RANK=1\0", maps=TORCH_LINE)

    (job,) = find_jobs(str(proc))

    assert [(p.role, p.rank) for p in job.processes] == [
        ("launcher", None),
        ("rank", 0),
        ("rank", 1),
    ]
