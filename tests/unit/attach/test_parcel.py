from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mpwatch.attach import hook_copy, parcel
from mpwatch.attach.outcome import Refused
from mpwatch.attach.target import Target
from mpwatch.model.ids import ProcessId

PROC = "proc"


@pytest.fixture
def proc(tmp_path: Path) -> str:
    """A procfs of one process, whose root is a directory of the test."""
    (tmp_path / PROC / "42").mkdir(parents=True)
    (tmp_path / "root" / "run").mkdir(parents=True)
    (tmp_path / "root" / "tmp").mkdir()
    (tmp_path / PROC / "42" / "root").symlink_to(tmp_path / "root")
    uid, gid = os.getuid(), os.getgid()
    status = f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\n"
    (tmp_path / PROC / "42" / "status").write_text(status)
    return str(tmp_path / PROC)


TARGET = Target(
    process=ProcessId(42, 7), name="python", state="S", tracer_pid=0, uid=os.getuid(),
    gid=os.getgid(), groups=frozenset((os.getgid(),)), uid_inside=1000, pid_inside=5,
    exe="/usr/bin/python3", environment={"XDG_RUNTIME_DIR": "/run"}, shares_files=False,
    shares_pids=False, has_shadow_stack=False,
)  # fmt: skip


def test_a_parcel_is_private_and_lies_where_the_target_looks(proc: str, tmp_path: Path) -> None:
    laid = parcel.lay_down(TARGET, "load", "/hook", proc)
    assert (laid.path, laid.is_ours) == ("/run/mpwatch/attach-5-7", True)
    folder = tmp_path / "root/run/mpwatch/attach-5-7"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "argument").read_text() == "load\n/hook\n"
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}
    laid.remove()
    assert list((tmp_path / "root/run/mpwatch").iterdir()) == []


def test_the_answer_is_what_the_target_wrote_and_a_parcel_it_removed_was_delivered(
    proc: str, tmp_path: Path
) -> None:
    laid = parcel.lay_down(TARGET, "load", "/hook", proc)
    assert laid.answer() is None
    (tmp_path / "root/run/mpwatch/attach-5-7/result").write_text("no memory")
    assert laid.answer() == "no memory"
    laid.remove()
    assert laid.answer() == "done"


def test_whoever_comes_second_finds_the_first_ones_parcel(proc: str, tmp_path: Path) -> None:
    first = parcel.lay_down(TARGET, "load", "/hook", proc)
    second = parcel.lay_down(TARGET, "load", "/hook", proc)
    assert (first.is_ours, second.is_ours) == (True, False)
    assert second.handed_over_at() is None
    first.mark("handed-over", 17)
    assert second.handed_over_at() == 17
    assert [p.name for p in (tmp_path / "root/run/mpwatch").iterdir()] == ["attach-5-7"]


def test_parcels_of_dead_processes_are_swept_and_others_stay(proc: str, tmp_path: Path) -> None:
    runtime = tmp_path / "root/run/mpwatch"
    runtime.mkdir(mode=0o700)
    for name in ("attach-77-1", "attach-78-9"):
        (runtime / name).mkdir()
        (runtime / name / "payload.py").touch()
    (tmp_path / PROC / "78").mkdir()
    (tmp_path / PROC / "78" / "stat").write_text("78 (python) S" + " 0" * 18 + " 9 0")
    parcel.lay_down(replace(TARGET, shares_pids=True), "load", "/hook", proc)
    assert sorted(p.name for p in runtime.iterdir()) == ["attach-5-7", "attach-78-9"]


def test_a_directory_open_to_others_or_behind_a_link_is_never_used(
    proc: str, tmp_path: Path
) -> None:
    (tmp_path / "root/run/mpwatch").mkdir()
    (tmp_path / "root/run/mpwatch").chmod(0o777)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "root/tmp/mpwatch-1000").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match=r"open to other users.*not a directory"):
        parcel.lay_down(TARGET, "load", "/hook", proc)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_directory_of_another_user_is_never_used(proc: str, tmp_path: Path) -> None:
    for ours in ("run/mpwatch", "tmp/mpwatch-1000"):
        (tmp_path / "root" / ours).mkdir(mode=0o700)
    other = replace(TARGET, uid=os.getuid() + 1)
    with pytest.raises(Refused, match=f"belongs to uid {os.getuid()}"):
        parcel.runtime_directory(other, proc)


def test_a_target_that_cannot_see_this_installation_gets_a_copy_once(
    proc: str, tmp_path: Path
) -> None:
    first = hook_copy.directory_for(TARGET, proc)
    assert hook_copy.directory_for(TARGET, proc) == first
    copy = tmp_path / "root" / first.lstrip("/")
    assert (copy / "wire.py").read_bytes() == Path(hook_copy.installed(), "wire.py").read_bytes()
    assert (copy / "points" / "__init__.py").exists()
    hook_copy.remove_unused(TARGET, proc)
    assert not copy.exists()


@pytest.mark.parametrize("user", ["9-9.sock", "attach-9-9"])
def test_a_copy_stays_while_a_hook_is_there_or_on_its_way(
    proc: str, tmp_path: Path, user: str
) -> None:
    copy = tmp_path / "root" / hook_copy.directory_for(TARGET, proc).lstrip("/")
    (tmp_path / "root/run/mpwatch" / user).touch()
    hook_copy.remove_unused(TARGET, proc)
    assert copy.exists()


def test_a_target_that_may_read_this_installation_uses_it(proc: str) -> None:
    ours = replace(TARGET, shares_files=True)
    assert hook_copy.directory_for(ours, proc) == hook_copy.installed()


@pytest.mark.parametrize(("free_blocks", "is_there"), [(50, False), (1000, True)])
def test_the_compiled_hook_is_left_out_where_it_would_take_the_room_for_the_answer(
    proc: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free_blocks: int,
    is_there: bool,
) -> None:
    disk = os.statvfs_result((4096, 4096, 2000, free_blocks, free_blocks, 9, 9, 9, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda fd: disk)
    parcel.lay_down(TARGET, "load", "/hook", proc, compiled=b"x" * 100_000)
    names = {path.name for path in (tmp_path / "root/run/mpwatch/attach-5-7").iterdir()}
    assert ("hook" in names) is is_there
    assert {"payload.py", "argument"} <= names
