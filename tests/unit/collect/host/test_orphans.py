from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from mpwatch.collect.host.orphans import KEPT, QUIET_S, find_leftovers, left_segments, remove
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire

GONE = 2_000_000_000
"""A pid of no process: above the largest pid_max."""


HERE = os.stat("/proc/self/ns/pid").st_ino
"""These tests may themselves run in a container."""


@pytest.fixture
def shm(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


def procfs_of_one(tmp_path: Path) -> str:
    """A procfs with this process alone: others on the machine may not be readable."""
    folder = tmp_path / "proc"
    if not folder.exists():
        folder.mkdir()
        (folder / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
        (folder / "self").symlink_to("/proc/self")
        (folder / "1").mkdir()
    return str(folder)


def segment(shm: Path, pid: int) -> Path:
    path = shm / f"torch_{pid}_123456_7"
    path.write_bytes(b"x" * 5000)
    return path


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.time()
    monkeypatch.setattr("mpwatch.collect.host.orphans.time.time", lambda: now_s + QUIET_S + 5)


def found(shm: Path, *folders: Path) -> list[str]:
    proc = procfs_of_one(shm.parent)
    seen = find_leftovers(proc, str(shm), tuple(map(str, folders)), HERE)
    assert seen.problems == ()
    return [os.path.basename(each.path) for each in seen.files]


def test_a_segment_of_an_exited_creator_without_a_holder_is_orphaned(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = segment(shm, GONE)
    later(monkeypatch)

    assert found(shm) == [path.name]


def test_a_young_segment_and_one_of_a_living_maker_are_not(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(shm, os.getpid())
    assert found(shm) == []
    later(monkeypatch)
    assert found(shm) == []
    segment(shm, GONE)
    monkeypatch.undo()
    assert found(shm) == []


def test_an_open_segment_is_not_orphaned(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = segment(shm, GONE)
    later(monkeypatch)

    with path.open():
        assert found(shm) == []
    assert found(shm) == [path.name]


def test_files_of_others_are_never_named(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("psm_1234", "sem.mp-x", "torch_x_1_2", f"torch_{GONE}", f"nccl-{GONE}"):
        (shm / name).write_bytes(b"x")
    later(monkeypatch)

    assert found(shm) == []


def listening(path: Path, backlog: int | None = None) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    if backlog is not None:
        listener.listen(backlog)
    return listener


def hook_files(folder: Path, pid: int, ticks: int) -> list[str]:
    """Everything that a process and an injection into it have in a runtime directory."""
    folder.mkdir(exist_ok=True)
    stem = f"{pid}-{ticks}"
    listening(folder / f"{stem}.sock").close()
    for suffix in (".ring", ".notes"):
        (folder / (stem + suffix)).write_bytes(b"x")
    (folder / f"{stem}.check").symlink_to("nowhere")
    (folder / f"attach-{stem}").mkdir()
    (folder / f"attach-{stem}" / "payload").write_bytes(b"x")
    return sorted([f"{stem}{suffix}" for suffix in wire.FILE_SUFFIXES] + [f"attach-{stem}"])


def test_all_files_of_hooks_of_dead_processes_are_left_over(
    shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    names = hook_files(folder, GONE, 77) + hook_files(folder, os.getpid(), 1)
    hidden = [f".attach-5-6.{GONE}.7.8", f".hook-1234abcd.{GONE}.7.8"]
    for name in (*hidden, f".attach-5-6.{os.getpid()}.7.8", "hook-1234abcd", f"{GONE}-7.ring"):
        (folder / name).mkdir()

    assert found(shm, folder) == []  # a process elsewhere may be about to listen
    later(monkeypatch)
    assert sorted(found(shm, folder)) == sorted(names + hidden)


def test_no_file_of_a_living_process_is_left_over(
    shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook_files(tmp_path / "run", os.getpid(), stat_of(os.getpid()).start_ticks)
    later(monkeypatch)

    assert found(shm, tmp_path / "run") == []


def test_files_of_a_process_whose_socket_answers_are_not_left_over(
    shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    hook_files(folder, GONE, 5)
    (folder / f"{GONE}-5.sock").unlink()
    later(monkeypatch)

    with listening(folder / f"{GONE}-5.sock", 1):
        assert found(shm, folder) == []
    assert f"{GONE}-5.ring" in found(shm, folder)


def test_files_of_a_process_of_a_nested_pid_namespace_are_not_left_over(
    shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook_files(tmp_path / "run", GONE, 5)
    later(monkeypatch)
    proc = Path(procfs_of_one(shm.parent))
    (proc / "77").mkdir()
    (proc / "77" / "status").write_text(f"Name:\tpython\nNSpid:\t77\t{GONE}\n")

    assert found(shm, tmp_path / "run") == []


def test_a_process_of_another_time_namespace_is_not_reported_by_its_start_ticks(
    shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook_files(tmp_path / "run", os.getpid(), 1)
    later(monkeypatch)
    really = os.readlink
    monkeypatch.setattr(
        "mpwatch.collect.host.orphans.os.readlink",
        lambda path: "time:[1]" if path.endswith(f"{os.getpid()}/ns/time") else really(path),
    )

    assert found(shm, tmp_path / "run") == []


@pytest.mark.parametrize("is_local", [True, False])
def test_where_the_process_may_be_elsewhere_files_are_left_alone_and_counted(
    shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    folder = tmp_path / "run"
    names = hook_files(folder, GONE, 77)
    later(monkeypatch)
    if not is_local:
        monkeypatch.setattr("mpwatch.collect.host.orphans.type_of", lambda *_: "nfs4")

    seen = find_leftovers(
        procfs_of_one(shm.parent), str(shm), (str(folder),), HERE + 1 if is_local else HERE
    )

    # A refused connection proves that no process of this machine listens.
    listed = [f"{GONE}-77.sock"] if is_local else []
    why = (
        "processes outside this container may use them (run it on the host)"
        if is_local
        else "this file system is shared with other machines, whose processes may own them"
    )
    assert [os.path.basename(each.path) for each in seen.files] == listed
    assert seen.problems == (
        f"files of hooks in {folder} are left alone ({len(names) - len(listed)}): {why}",
    )


def test_files_of_hooks_are_removed_with_their_folders(
    shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    hook_files(folder, GONE, 77)
    later(monkeypatch)
    seen = find_leftovers(procfs_of_one(shm.parent), str(shm), (str(folder),), HERE)

    assert {each.kind for each in seen.files} == {"socket", "ring", "notes", "link", "folder"}
    assert [remove(each) for each in seen.files] == [None] * 5
    assert os.listdir(folder) == []


def test_removing_says_why_a_file_is_still_there(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = segment(shm, GONE)
    later(monkeypatch)
    (leftover,) = find_leftovers(procfs_of_one(shm.parent), str(shm), ()).files

    assert remove(leftover) is None
    assert not path.exists()
    assert remove(leftover) is None
    path.mkdir()
    assert remove(leftover) == f"{path}: Is a directory"


def test_while_a_process_cannot_be_read_no_segment_is_reported_as_orphaned(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(shm, GONE)
    later(monkeypatch)
    proc = Path(procfs_of_one(shm.parent))
    (proc / "77").mkdir()
    (proc / "77" / "maps").mkdir()

    seen = find_leftovers(str(proc), str(shm), (), HERE)

    assert seen.files == ()
    assert "1 processes of others may hold them" in seen.problems[0]


def test_where_another_container_may_use_them_no_segment_is_named(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(shm, GONE)
    later(monkeypatch)
    proc = procfs_of_one(shm.parent)

    seen = find_leftovers(proc, str(shm), (), HERE + 1)

    assert seen.files == ()
    assert seen.problems == (
        "segments without a visible owner are left alone (1): processes outside this container may"
        " use them (run it on the host)",
    )


def test_where_processes_of_others_are_hidden_no_segment_is_named(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(shm, GONE)
    later(monkeypatch)
    proc = Path(procfs_of_one(shm.parent))
    (proc / "1").rmdir()

    seen = find_leftovers(str(proc), str(shm), (), HERE)

    assert seen.files == ()
    assert "hidden" in seen.problems[0]


def test_a_segment_whose_maker_runs_in_a_nested_pid_namespace_is_not_orphaned(
    shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(shm, GONE)
    later(monkeypatch)
    proc = Path(procfs_of_one(shm.parent))
    (proc / "77").mkdir()
    (proc / "77" / "status").write_text(f"Name:\tpython\nNSpid:\t77\t{GONE}\n")
    (proc / "77" / "maps").write_text("")
    (proc / "77" / "fd").mkdir()

    assert found(shm) == []


def jail(tmp_path: Path, *names: str, alive: tuple[int, ...] = ()) -> str:
    shm = tmp_path / "7" / "root" / "dev" / "shm"
    shm.mkdir(parents=True)
    for name in names:
        (shm / name).write_bytes(bytes(5000))
    for pid in alive:
        (tmp_path / "7" / "root" / "proc" / str(pid)).mkdir(parents=True)
    return str(tmp_path)


def test_segments_whose_makers_have_exited_are_listed(tmp_path: Path) -> None:
    proc = jail(tmp_path, "torch_50_1_0", "torch_60_1_0", "psm_x", alive=(60,))

    found = left_segments(proc, 7)

    assert found is not None
    assert [(use.path, use.creator_pid, use.size_bytes) for use in found] == [
        ("/dev/shm/torch_50_1_0", 50, 5000)
    ]


def test_a_folder_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert left_segments(str(tmp_path), 7) is None


def test_a_very_long_list_is_cut(tmp_path: Path) -> None:
    proc = jail(tmp_path, *(f"torch_50_1_{n}" for n in range(KEPT + 9)))

    assert len(left_segments(proc, 7) or ()) == KEPT
