from __future__ import annotations

import os
import stat
from multiprocessing import process
from pathlib import Path
from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.places import find_directory, parent_and_name
from mpwatch.hook.pristine import System


class Os:
    """The operating system, of another user or with a disk that refuses."""

    def __init__(self, **replaced: Any) -> None:
        self.replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self.replaced.get(name) or getattr(os, name)


def find(run: Path, **replaced: Any) -> tuple[str | None, str]:
    system = System()
    system.os = Os(**replaced)
    return find_directory(system, {"XDG_RUNTIME_DIR": str(run)})


def test_the_directory_is_made_for_its_user_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path, problem = find(tmp_path)
    finally:
        os.umask(before)

    assert (path, problem) == (f"{tmp_path}/mpwatch", "")
    assert stat.S_IMODE((tmp_path / "mpwatch").stat().st_mode) == 0o700


def test_a_directory_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "mpwatch").mkdir()
    (tmp_path / "mpwatch").chmod(0o777)

    assert find(tmp_path)[0] == f"{tmp_path}/mpwatch"
    assert stat.S_IMODE((tmp_path / "mpwatch").stat().st_mode) == 0o700


def test_a_link_is_not_followed_even_to_a_directory_of_ours(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "mpwatch").symlink_to(tmp_path / "elsewhere")

    path, problem = find(tmp_path, mkdir=refuse_others(tmp_path))

    assert path is None
    assert problem.startswith(f"{tmp_path}/mpwatch is a symbolic link; ")


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mpwatch").mkdir(mode=0o700)
    other = os.getuid() + 1

    path, problem = find(tmp_path, getuid=lambda: other, mkdir=refuse_others(tmp_path))

    assert path is None
    assert f"{tmp_path}/mpwatch belongs to user {os.getuid()}; " in problem
    assert problem.endswith(f"/tmp/mpwatch-{other}: Permission denied")


def refuse_others(folder: Path) -> Any:
    """A mkdir that makes nothing but in one folder."""

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
def test_a_parent_that_is_no_pid_is_not_known(
    monkeypatch: pytest.MonkeyPatch, parent: object
) -> None:
    current = process.current_process()
    monkeypatch.setattr(current, "_parent_pid", 7, raising=False)
    assert parent_and_name() == (7, current.name)

    monkeypatch.setattr(current, "_parent_pid", parent)
    found, name = parent_and_name()

    assert found == 0
    wire.ORIGIN.pack(found, 0, name.encode())
