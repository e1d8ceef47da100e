"""Checks of the doctor, from numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.collect.host import doctor
from mpwatch.model.host import CgroupSample, CheckState, FileSystemSample

MIB, GIB = 1 << 20, 1 << 30
CGROUP = CgroupSample(2, "/job", memory_bytes=GIB, memory_limit_bytes=8 * GIB, pids_current=100)


def space(total_bytes: int, free_bytes: int) -> FileSystemSample:
    return FileSystemSample("/dev/shm", total_bytes, free_bytes, 1000, 900)


@pytest.mark.parametrize(
    ("soft", "hard", "used", "state"),
    [
        (1024, 524288, None, "warning"),
        (4096, 4096, None, "ok"),
        (65536, 65536, 60000, "problem"),
        (65536, 65536, 600, "ok"),
        (None, None, 600, "ok"),
    ],
)
def test_open_files(
    soft: int | None, hard: int | None, used: int | None, state: CheckState
) -> None:
    assert doctor.open_files(soft, hard, used).state == state


def test_a_low_soft_limit_can_be_raised_to_the_hard_one() -> None:
    check = doctor.open_files(1024, 524288, None)

    assert check.value == "1024 soft, 524288 hard"
    assert check.fix.startswith("ulimit -n 524288")


def test_the_fix_of_a_low_hard_limit_is_an_option_of_the_container() -> None:
    assert "--ulimit nofile" in doctor.open_files(1024, 1024, None).fix


@pytest.mark.parametrize(
    ("limit", "used", "state"),
    [
        (65530, None, "ok"),
        (65530, 64000, "problem"),
        (1000, None, "warning"),
        (None, None, "note"),
    ],
)
def test_memory_mappings(limit: int | None, used: int | None, state: CheckState) -> None:
    assert doctor.mappings(limit, used).state == state


@pytest.mark.parametrize(
    ("total", "free", "state"),
    [
        (64 * MIB, 64 * MIB, "warning"),
        (8 * GIB, 8 * GIB, "ok"),
        (8 * GIB, GIB, "warning"),
        (8 * GIB, 8 * MIB, "problem"),
        (0, 0, "problem"),
    ],
)
def test_room_in_shared_memory(total: int, free: int, state: CheckState) -> None:
    assert doctor.shm_space(space(total, free)).state == state


def test_no_shared_memory_at_all_is_a_problem() -> None:
    assert doctor.shm_space(None).state == "problem"


def test_files_in_shared_memory() -> None:
    few = replace(space(GIB, GIB), free_inodes=10)

    assert doctor.shm_inodes(few).state == "warning"
    assert doctor.shm_inodes(space(GIB, GIB)).state == "ok"
    assert doctor.shm_inodes(replace(few, total_inodes=None)).value == "not counted"


@pytest.mark.parametrize(
    ("used", "kills", "state"),
    [(GIB, 0, "ok"), (7 * GIB, 0, "warning"), (8 * GIB, 0, "problem"), (GIB, 3, "warning")],
)
def test_memory_of_the_control_group(used: int, kills: int, state: CheckState) -> None:
    check = doctor.cgroup_memory(replace(CGROUP, memory_bytes=used, oom_kills=kills))

    assert check.state == state
    assert ("3 killed" in check.value) == bool(kills)


def test_no_limit_and_an_unknown_limit_are_not_the_same() -> None:
    free = replace(CGROUP, memory_limit_bytes=None)
    problem = "control group, memory: not mounted here, its limits are unknown"

    assert doctor.cgroup_memory(free).value == "1.0G used, no limit"
    assert doctor.cgroup_memory(free, (problem,)).value == "unknown"
    assert problem in doctor.cgroup_memory(free, (problem,)).meaning
    assert doctor.cgroup_memory(None).state == "note"
    assert doctor.cgroup_pids(None).state == "note"


@pytest.mark.parametrize(
    ("limit", "used", "hits", "state"),
    [
        (None, 100, None, "ok"),
        (512, 100, 0, "warning"),
        (4096, 100, 0, "ok"),
        (4096, 3900, 0, "problem"),
        (4096, 3500, 0, "warning"),
        (4096, 100, 2, "warning"),
    ],
)
def test_processes_of_the_control_group(
    limit: int | None, used: int, hits: int | None, state: CheckState
) -> None:
    group = replace(CGROUP, pids_limit=limit, pids_current=used, pids_limit_hits=hits)

    assert doctor.cgroup_pids(group).state == state


@pytest.mark.parametrize(
    ("cores", "usable", "threads", "state"),
    [
        (64, 4, None, "warning"),
        (64, 4, "1", "ok"),
        (8, 8, None, "note"),
        (None, None, None, "note"),
    ],
)
def test_cores_against_threads(
    cores: int | None, usable: int | None, threads: str | None, state: CheckState
) -> None:
    assert doctor.cores_and_threads(cores, usable, threads).state == state


@pytest.mark.parametrize(
    ("load", "cores", "state"),
    [
        (23.0, 2, "warning"),
        (1.7, 2, "note"),
        (0.3, 2, "ok"),
        (50.0, 64, "note"),
        (None, 2, "note"),
        (1.0, None, "note"),
    ],
)
def test_the_load_is_compared_with_the_cores(
    load: float | None, cores: int | None, state: CheckState
) -> None:
    assert doctor.cpu_load(load, cores).state == state


def test_a_loaded_machine_is_told_with_its_figures() -> None:
    check = doctor.cpu_load(23.0, 2)

    assert check.value == "23.0 in the last minute, on 2 cores"
    assert "11.5 threads want each core" in check.meaning


def test_a_long_tmpdir_is_a_problem_before_anything_runs() -> None:
    assert doctor.temporary_folder("/scratch/" + "x" * 80).state == "problem"
    assert doctor.temporary_folder("/" + "\u00e9" * 40).state == "problem"
    assert doctor.temporary_folder("/scratch").state == "ok"
    assert doctor.temporary_folder(None).state == "ok"


def test_the_default_start_method_depends_on_the_version() -> None:
    assert "forkserver" in doctor.start_method((3, 14)).value
    assert doctor.start_method((3, 14)).state == "note"
    assert "fork by default" in doctor.start_method((3, 10)).value
    assert doctor.start_method((3, 10)).state == "note"
    assert "that another thread of main holds at the fork" in doctor.start_method((3, 10)).meaning
    assert "warns" in doctor.start_method((3, 12)).meaning
    assert doctor.start_method(None).value == "unknown"
