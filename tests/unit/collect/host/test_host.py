from __future__ import annotations

import contextlib
import gc
import os
import threading
from pathlib import Path

import pytest

from mpwatch.collect.host import host as module
from mpwatch.collect.host.host import (
    RELOCATE_S,
    CgroupReader,
    HostCollector,
    MemoryLeft,
    memory_left,
    parse_membership,
    parse_mounts,
)
from mpwatch.collect.host.new_files import SHOWN_LEAST
from mpwatch.collect.process.procfs import DescriptorBudget
from mpwatch.model.host import CgroupSample, FileSystemSample
from tests.unit.collect.conftest import FakeProc


class Groups:
    """Control groups in a folder, mounted where a test says."""

    def __init__(self, proc: FakeProc, folder: Path) -> None:
        self.proc = proc
        self.folder = folder
        self.mounts: list[str] = []

    def mount(self, name: str, kind: str, options: str, root: str = "/") -> None:
        point = self.folder / name
        point.mkdir(parents=True, exist_ok=True)
        self.mounts.append(f"30 20 0:30 {root} {point} rw,nosuid - {kind} {kind} {options}\n")
        self.proc.write(
            "self/mountinfo", "1 1 8:1 / / rw - ext4 /dev/sda rw\n" + "".join(self.mounts)
        )

    def write(self, path: str, **files: str) -> None:
        for name, text in files.items():
            file = self.folder / path / name.replace("__", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def read(self, membership: str) -> tuple[CgroupSample | None, list[str]]:
        self.proc.write("10/cgroup", membership)
        reader = CgroupReader(str(self.proc), 10)
        return reader.sample(), reader.problems


@pytest.fixture
def groups(proc: FakeProc, tmp_path: Path) -> Groups:
    proc.process(10)
    return Groups(proc, tmp_path / "cgroup")


def test_the_limit_with_the_least_room_counts(groups: Groups) -> None:
    groups.mount("v2", "cgroup2", "rw")
    groups.write("v2/job/step", memory__max="max\n", memory__current="100\n", pids__max="max\n")
    groups.write("v2/job", memory__max="1000\n", memory__current="900\n", memory__peak="950\n")
    groups.write("v2/job", memory__events="low 0\nmax 7\noom 1\noom_kill 2\n")
    groups.write("v2/job", pids__max="50\n", pids__current="49\n", pids__events="max 3\n")
    groups.write("v2/job", cpu__max="150000 100000\n")
    groups.write("v2/job/step", cpu__max="max 100000\n", cpu__stat="nr_periods 5\nnr_throttled 4\n")

    sample, problems = groups.read("0::/job/step\n")

    assert problems == []
    assert sample == CgroupSample(
        version=2,
        path="/job/step",
        memory_bytes=900,
        memory_limit_bytes=1000,
        memory_peak_bytes=950,
        limit_hits=7,
        oom_kills=2,
        pids_current=49,
        pids_limit=50,
        pids_limit_hits=3,
        cpu_quota_cpus=1.5,
        throttled_periods=4,
    )


def test_version_one_writes_unlimited_as_a_huge_number(groups: Groups) -> None:
    groups.mount("memory", "cgroup", "rw,memory")
    groups.mount("cpu", "cgroup", "rw,cpu,cpuacct")
    groups.write("memory/a", memory__limit_in_bytes="9223372036854771712\n")
    groups.write("memory/a", memory__usage_in_bytes="70\n", memory__failcnt="0\n")
    groups.write("memory/a", memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    groups.write("cpu/a", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")

    sample, _ = groups.read("4:memory:/a\n2:cpu,cpuacct:/a\n0::/\n")

    assert sample is not None
    assert (sample.version, sample.memory_bytes, sample.memory_limit_bytes) == (1, 70, None)
    assert (sample.oom_kills, sample.cpu_quota_cpus) == (1, 0.5)


def test_a_group_below_the_mounted_one_is_found_inside_a_container(groups: Groups) -> None:
    groups.mount("v2", "cgroup2", "rw", root="/docker/abc")
    groups.write("v2", memory__max="500\n", memory__current="5\n")

    sample, problems = groups.read("0::/docker/abc\n")

    assert problems == []
    assert sample is not None
    assert sample.memory_limit_bytes == 500


@pytest.mark.parametrize("path", ["/../other", "/docker/xyz", "/docker/abcd"])
def test_a_group_outside_what_is_mounted_is_reported(groups: Groups, path: str) -> None:
    groups.mount("v2", "cgroup2", "rw", root="/docker/abc")

    _, problems = groups.read(f"0::{path}\n")

    assert any("outside" in problem for problem in problems)


def test_the_memory_left_is_that_of_the_tightest_group_with_what_files_have(groups: Groups) -> None:
    groups.mount("v2", "cgroup2", "rw")
    groups.write("v2/job/step", memory__max="max\n", memory__current="500\n")
    groups.write("v2/job", memory__max="1000\n", memory__current="900\n")
    stat = "anon 600\ninactive_file 40\nactive_file 10\nshmem 200\n"
    groups.write("v2/job", memory__stat=stat)
    groups.proc.write("10/cgroup", "0::/job/step\n")
    groups.proc.write("meminfo", "MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapFree: 0 kB\n")

    assert memory_left(10, str(groups.proc)) == MemoryLeft(150, 4096)


@pytest.mark.parametrize(("swap_limit", "left"), [("max", 2148), ("0", 100), ("600", 500)])
def test_what_a_group_may_swap_is_left_to_it(groups: Groups, swap_limit: str, left: int) -> None:
    groups.mount("v2", "cgroup2", "rw")
    groups.write("v2/job", memory__max="1000\n", memory__current="900\n")
    groups.write("v2/job", memory__swap__max=swap_limit + "\n", memory__swap__current="200\n")
    groups.proc.write("10/cgroup", "0::/job\n")
    groups.proc.write("meminfo", "MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapFree: 2 kB\n")

    assert memory_left(10, str(groups.proc)) == MemoryLeft(left, 6144)


def test_the_memory_left_is_read_from_groups_of_version_one(groups: Groups) -> None:
    groups.mount("memory", "cgroup", "rw,memory")
    groups.write("memory/a", memory__limit_in_bytes="1000\n", memory__usage_in_bytes="1000\n")
    stat = "active_file 1\ntotal_inactive_file 40\ntotal_active_file 10\n"
    groups.write("memory/a", memory__stat=stat)
    groups.write("memory", memory__limit_in_bytes="9223372036854771712\n")
    groups.proc.write("10/cgroup", "4:memory:/a\n0::/\n")

    assert memory_left(10, str(groups.proc)).group_bytes == 50


@pytest.mark.parametrize(
    ("limit", "used", "left"), [("1000", "980", 20), ("1000", "1000", 0), ("5000", "980", 2148)]
)
def test_memory_and_swap_of_version_one_have_one_limit(
    groups: Groups, limit: str, used: str, left: int
) -> None:
    groups.mount("memory", "cgroup", "rw,memory")
    groups.write("memory/a", memory__limit_in_bytes="1000\n", memory__usage_in_bytes="900\n")
    together = {"memory__memsw__limit_in_bytes": limit, "memory__memsw__usage_in_bytes": used}
    groups.write("memory/a", **together)
    groups.proc.write("meminfo", "MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapFree: 2 kB\n")
    groups.proc.write("10/cgroup", "4:memory:/a\n0::/\n")

    assert memory_left(10, str(groups.proc)).group_bytes == left


def test_without_groups_and_procfs_no_memory_is_known_to_be_left(
    groups: Groups, tmp_path: Path
) -> None:
    groups.proc.write("10/cgroup", "0::/\n")

    assert memory_left(10, str(groups.proc)).group_bytes is None
    assert memory_left(10, str(tmp_path)) == MemoryLeft(None, None)


def test_a_hierarchy_that_is_not_mounted_leaves_the_limits_unknown(groups: Groups) -> None:
    groups.mount("v2", "cgroup2", "rw")

    sample, problems = groups.read("4:memory:/a\n0::/\n")

    assert sample is not None
    assert sample.memory_limit_bytes is None
    assert problems == ["control group, memory: not mounted here, its limits are unknown"]


def test_blanks_in_mount_points_are_unescaped() -> None:
    (mount,) = parse_mounts(b"30 20 0:30 / /my\\040groups rw - cgroup2 cgroup2 rw\n")

    assert mount.point == "/my groups"


def test_controllers_that_are_mounted_together_share_a_group() -> None:
    assert parse_membership(b"2:cpu,cpuacct:/a:b\n1:name=systemd:/\n0::/c\n") == {
        "cpu": "/a:b",
        "cpuacct": "/a:b",
        "name=systemd": "/",
        "": "/c",
    }


@pytest.mark.parametrize("state", ["R", "gone"])
def test_a_process_that_exits_while_it_is_read_is_no_problem(proc: FakeProc, state: str) -> None:
    if state == "R":
        proc.process(10, state=state, flags=0x4)

    host = HostCollector(str(proc)).collect(10, None, 4, 1.0, 2.0)

    assert (host.shm, host.tmp) == (None, None)
    assert not any("No such file" in each for each in host.problems), host.problems


def test_the_host_is_seen_through_the_processs_own_root(proc: FakeProc) -> None:
    proc.process(10)
    (proc.root / "10/root/dev/shm").mkdir(parents=True)

    host = HostCollector(str(proc)).collect(10, "/scratch", 4, 1.0, 2.0)

    assert host.shm is not None
    assert host.shm.path == "/dev/shm"
    assert host.shm.total_bytes > 0
    assert host.tmp is None
    assert "/scratch: No such file or directory" in host.problems
    assert (host.memory_total_bytes, host.memory_available_bytes) == (1024_000, 409_600)
    assert (host.load_1m, host.runnable) == (0.25, 2)
    assert (host.max_map_count, host.threads_max) == (65530, 1000)
    assert host.usable_cpus == 4


def test_new_files_are_counted_for_the_user_of_the_job(proc: FakeProc) -> None:
    for path in ("dev/shm", "scratch", "tmp"):
        for n in range(SHOWN_LEAST):
            proc.write(f"10/root/{path}/psm_{n}", "x")
    proc.write("10/mountinfo", "1 0 0:1 / / rw - ext4 none rw\n")
    uid = os.geteuid()

    own = HostCollector(str(proc)).collect(10, "/scratch", 4, 1.0, 2.0, uid=uid, since_wall_s=0.0)
    public = HostCollector(str(proc)).collect(10, None, 4, 1.0, 2.0, uid=uid, since_wall_s=0.0)
    unknown = HostCollector(str(proc)).collect(10, "/scratch", 4, 1.0, 2.0)

    assert own.new_files is not None
    assert {each.key.folder for each in own.new_files} == {"/dev/shm", "/scratch"}
    assert public.new_files is not None
    assert {each.key.folder for each in public.new_files} == {"/dev/shm", "/tmp"}
    assert unknown.new_files is None


def test_a_quota_leaves_fewer_cpus_than_affinity(groups: Groups, proc: FakeProc) -> None:
    groups.mount("v2", "cgroup2", "rw")
    groups.write("v2", cpu__max="250000 100000\n")
    proc.write("10/cgroup", "0::/\n")

    host = HostCollector(str(proc)).collect(10, None, os.cpu_count() or 1, 1.0, 2.0)

    assert host.usable_cpus == min(3, os.cpu_count() or 1)
    assert host.cgroup is not None
    assert host.cgroup.cpu_quota_cpus == 2.5


def test_a_file_system_that_does_not_count_inodes_says_so(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpwatch.collect.host import host

    real = os.statvfs("/")
    values = list(real[:10])
    values[5] = 0
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))

    assert host.file_system("/x", "/x").total_inodes is None


def test_kills_for_memory_are_still_counted_when_the_job_has_died_of_one(
    groups: Groups, proc: FakeProc
) -> None:
    groups.mount("v2", "cgroup2", "rw")
    groups.write("v2/job", memory__max="1000\n", memory__current="900\n")
    groups.write("v2/job", memory__events="max 7\noom_kill 2\n")
    proc.write("10/cgroup", "0::/job\n")
    host = HostCollector(str(proc))

    assert host.oom_kills() is None
    host.collect(10, None, 1, 1.0, 2.0)
    groups.write("v2/job", memory__events="max 9\noom_kill 3\n")
    proc.end(10)

    assert host.oom_kills() == 3


def test_files_of_exited_processes_are_read_again_before_they_are_reported(
    proc: FakeProc,
) -> None:
    proc.process(10)
    shm = proc.root / "10/root/dev/shm"
    shm.mkdir(parents=True)
    (shm / "torch_77_1_0").write_bytes(bytes(4096))
    host = HostCollector(str(proc))

    assert len(host.collect(10, None, 1, 1.0, 2.0).left_segments or ()) == 1
    (shm / "torch_77_1_0").unlink()

    assert host.collect(10, None, 1, 4.0, 5.0).left_segments == ()


def test_files_that_are_read_each_second_are_kept_open_and_closed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = DescriptorBudget(100)
    host = HostCollector("/proc", budget)
    pid = os.getpid()
    host.collect(pid, None, None, 1.0, 2.0)
    opened: list[str] = []
    really = os.open

    def note(path: str, *arguments: int, **more: int) -> int:
        opened.append(str(path))
        return really(path, *arguments, **more)

    monkeypatch.setattr(os, "open", note)
    first = host.collect(pid, None, None, 2.0, 3.0)
    held = 100 - budget.left

    assert first.memory_total_bytes
    assert first.runnable is not None
    assert not [path for path in opened if path.endswith(("/meminfo", "/loadavg"))]
    assert held >= 2
    for moment in range(1, 5):
        host.collect(pid, None, None, 2.0 + moment * (RELOCATE_S + 1), 3.0)
        assert 100 - budget.left == held
    del host
    gc.collect()
    assert budget.left == 100


def test_a_file_system_that_does_not_answer_is_asked_once_and_its_last_answer_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = threading.Event(), list[str]()

    def slow(path: str, shown: str) -> FileSystemSample:
        asked.append(path)
        answers.wait(30.0)
        return FileSystemSample(shown, 1, 1, None, None)

    monkeypatch.setattr(module, "file_system", slow)
    now_s = 100.0
    remote = module.RemoteFileSystem("/10/root/nfs", "/nfs", lambda: now_s)
    for _ in range(2):
        with pytest.raises(OSError, match="does not answer"):
            remote.read()
    assert len(asked) == 1

    answers.set()
    found = None
    while found is None:
        with contextlib.suppress(OSError):
            found = remote.read()
    answers.clear()
    assert remote.read() == found
    now_s += module.OUTDATED_S + 1
    with pytest.raises(OSError, match="does not answer"):
        remote.read()
    assert set(asked) == {"/10/root/nfs"}
    answers.set()
