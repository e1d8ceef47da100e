"""Whether a write would block, on file systems that take writes; frozen ones take root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.collect.host import frozen_disk, isolated


@pytest.fixture(autouse=True)
def _asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_disk, "written_s", {})
    monkeypatch.setattr(frozen_disk, "waiting", {})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A directory that counts as one on a disk."""
    monkeypatch.setattr(frozen_disk, "IN_MEMORY", ())
    fd = os.open(tmp_path, os.O_PATH)
    yield fd
    os.close(fd)


def test_a_disk_that_takes_writes_is_changed_but_for_a_moment(folder: int, tmp_path: Path) -> None:
    os.utime(tmp_path, (0, 0))

    assert not frozen_disk.blocks_writes(folder)
    assert tmp_path.stat().st_mtime > 0  # a child wrote there
    assert os.listdir(tmp_path) == []


def test_a_disk_that_took_a_write_is_not_asked_again_at_once(folder: int, tmp_path: Path) -> None:
    assert not frozen_disk.blocks_writes(folder)
    os.utime(tmp_path, (0, 0))
    assert not frozen_disk.blocks_writes(folder)
    assert tmp_path.stat().st_mtime == 0


def test_while_its_child_waits_a_disk_counts_as_frozen(
    folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    monkeypatch.setitem(frozen_disk.waiting, os.fstat(folder).st_dev, child)

    assert frozen_disk.blocks_writes(folder)
    os.kill(child, 9)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not frozen_disk.blocks_writes(folder)


def test_without_a_child_it_is_not_known(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(isolated, "start", refuse)

    assert not frozen_disk.blocks_writes(folder)


def test_in_memory_no_child_is_started(
    runtime_in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "start", lambda *_, **__: pytest.fail("it started a child"))
    fd = os.open(runtime_in_memory, os.O_PATH)
    try:
        assert not frozen_disk.blocks_writes(fd)
    finally:
        os.close(fd)
