from __future__ import annotations

import os
import stat
from multiprocessing import process
from pathlib import Path
from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.safe.unpatched import System
from mpwatch.hook.transport.runtime_dir import (
    IN_MEMORY,
    MightBlock,
    find_directory,
    mount_of,
    parent_and_name,
)
from tests.builders.replaced_os import Os


def find(run: Path, **replaced: Any) -> tuple[str | None, str]:
    system = System()
    system.os = Os(**replaced)
    return find_directory(system, {"XDG_RUNTIME_DIR": str(run)}, {})


def test_the_directory_is_made_for_its_user_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path, problem = find(tmp_path)
    finally:
        os.umask(before)

    assert (path, problem) == (f"{tmp_path}/mpwatch", "")
    assert stat.S_IMODE((tmp_path / "mpwatch").stat().st_mode) == 0o700


def test_a_directory_open_to_others_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mpwatch").mkdir()
    (tmp_path / "mpwatch").chmod(0o750)

    path, problem = find(tmp_path, mkdir=refuse_others(tmp_path))

    assert path is None
    assert problem.startswith(f"{tmp_path}/mpwatch is open to other users; ")


def test_what_is_renamed_meanwhile_keeps_its_mode(tmp_path: Path) -> None:
    """Where others can rename in the directory above: a link takes the place of what was seen."""
    (tmp_path / "mpwatch").mkdir()
    (tmp_path / "mpwatch").chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o755)

    def lstat(path: str) -> os.stat_result:
        found = os.lstat(path)
        if path == f"{tmp_path}/mpwatch" and not stat.S_ISLNK(found.st_mode):
            os.rename(path, f"{path}.away")
            os.symlink(tmp_path / "elsewhere", path)
        return found

    find(tmp_path, lstat=lstat, mkdir=refuse_others(tmp_path))

    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755


def test_a_link_is_not_followed_even_to_a_directory_of_ours(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "mpwatch").symlink_to(tmp_path / "elsewhere")

    path, problem = find(tmp_path, mkdir=refuse_others(tmp_path))

    assert path is None
    assert problem.startswith(f"{tmp_path}/mpwatch is a symbolic link; ")


def test_a_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mpwatch").mkdir(mode=0o700)
    other = os.geteuid() + 1

    path, problem = find(tmp_path, geteuid=lambda: other, mkdir=refuse_others(tmp_path))

    assert path is None
    assert f"{tmp_path}/mpwatch belongs to user {os.geteuid()}; " in problem
    assert problem.endswith(f"/tmp/mpwatch-{other}: Permission denied")


def refuse_others(folder: Path) -> Any:
    """A mkdir that fails outside of one folder."""

    def mkdir(path: str, mode: int) -> None:
        if not path.startswith(str(folder)):
            raise PermissionError(13, "Permission denied")
        os.mkdir(path, mode)

    return mkdir


def test_a_path_too_long_for_a_socket_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)

    path, problem = find(folder, mkdir=refuse_others(tmp_path))

    assert path is None
    assert "is too long for the path of a socket" in problem


@pytest.mark.parametrize("parent", [1 << 40, 1 << 32, 0, -7, "7", None])
def test_a_parent_without_a_pid_is_unknown(monkeypatch: pytest.MonkeyPatch, parent: object) -> None:
    current = process.current_process()
    monkeypatch.setattr(current, "_parent_pid", 7, raising=False)
    assert parent_and_name() == (7, current.name)

    monkeypatch.setattr(current, "_parent_pid", parent)
    found, name = parent_and_name()

    assert found == 0
    wire.ORIGIN.pack(found, 0, name.encode())


MOUNTS = b"""\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:20 / /run rw,nosuid shared:2 master:3 - tmpfs tmpfs rw,mode=755
24 23 0:31 / /run/user/1000 rw shared:4 - tmpfs tmpfs rw,mode=700
25 22 0:40 / /mnt/with\\040blank rw - tmpfs none rw
26 22 0:41 / /covered rw - tmpfs none rw
27 26 8:1 / /covered rw - ext4 /dev/sda1 rw
28 22 0:50 / /tmp rw - overlay overlay rw
29 22 0:51 / /home rw - nfs4 server:/home rw
torn line
"""


@pytest.mark.parametrize(
    ("path", "kind", "device"),
    [
        ("/run/mpwatch", b"tmpfs", (0, 20)),
        ("/run/user/1000/mpwatch", b"tmpfs", (0, 31)),
        ("/run/user/10000/mpwatch", b"tmpfs", (0, 20)),
        ("/runs/mpwatch", b"ext4", (254, 0)),
        ("/mnt/with blank/mpwatch", b"tmpfs", (0, 40)),
        ("/covered/mpwatch", b"ext4", (8, 1)),
        ("/tmp/mpwatch-0", b"overlay", (0, 50)),
        ("/home/me/run/mpwatch", b"nfs4", (0, 51)),
        ("/", b"ext4", (254, 0)),
    ],
)
def test_the_file_system_of_a_path_is_read_from_the_mount_table(
    path: str, kind: bytes, device: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "table").write_bytes(MOUNTS)
    system = System()
    table = tmp_path / "table"
    system.os = Os(
        open=lambda _, *rest: os.open(table, *rest),
        stat=lambda file: os.stat(file if isinstance(file, int) else table),
    )

    assert mount_of(system, path) == (kind, os.makedev(*device))


def test_without_a_mount_table_no_file_system_is_known() -> None:
    system = System()
    system.os = Os(open=lambda _, *rest: os.open("/nowhere/table", *rest))

    assert mount_of(system, "/dev/shm/x") == (b"", 0)


def test_the_mount_table_is_read_once_for_both_looks_at_a_directory_on_a_disk(
    tmp_path: Path,
) -> None:
    system, opened, mounts = System(), [], dict[str, tuple[bytes, int]]()

    def count(path: str, *rest: Any) -> int:
        opened.append(path)
        return os.open(path, *rest)

    system.os = Os(open=count)
    if is_in_memory(tmp_path):
        pytest.skip("temporary files lie in memory here")
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with pytest.raises(MightBlock):
        find_directory(system, environ, mounts, may_block=False)

    assert find_directory(system, environ, mounts) == (f"{tmp_path}/mpwatch", "")
    assert opened == ["/proc/self/mountinfo"]


def is_in_memory(folder: Path) -> bool:
    return mount_of(System(), str(folder))[0] in IN_MEMORY


def test_a_directory_on_a_disk_is_not_touched_where_that_might_block(tmp_path: Path) -> None:
    def touched(*_: Any) -> None:
        pytest.fail("it touched the disk")

    system = System()
    system.os = Os(mkdir=touched, lstat=touched, access=touched)
    if is_in_memory(tmp_path):
        pytest.skip("temporary files lie in memory here")

    with pytest.raises(MightBlock):
        find_directory(system, {"XDG_RUNTIME_DIR": str(tmp_path)}, {}, may_block=False)


def test_a_directory_in_memory_is_made_at_once(runtime_in_memory: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(runtime_in_memory)}

    mounts: dict[str, tuple[bytes, int]] = {}

    found = find_directory(System(), environ, mounts, may_block=False)

    assert found == (f"{runtime_in_memory}/mpwatch", "")
    assert mounts == {str(found[0]): (b"tmpfs", runtime_in_memory.stat().st_dev)}


@pytest.mark.parametrize("relative", ["run", "./run", ""])
def test_a_relative_runtime_directory_is_ignored(relative: str) -> None:
    assert wire.runtime_candidates(7, relative) == wire.runtime_candidates(7, None)
    assert wire.runtime_candidates(7, "/run/user/7") == ("/run/user/7/mpwatch", "/tmp/mpwatch-7")
