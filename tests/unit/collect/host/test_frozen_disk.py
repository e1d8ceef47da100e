"""Whether a write would block, on file systems that take writes; frozen ones take root."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpwatch
from mpwatch.collect.host import frozen_disk, isolated

FEW_DESCRIPTORS = ("nodes/agent/agent.py", "nodes/launchers/ray.py", "nodes/launchers/ray_actor.py")
"""Modules that may call select(2): they open what they wait for as their process starts."""


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


def test_a_disk_is_asked_by_a_process_with_very_many_descriptors(
    folder: int, tmp_path: Path
) -> None:
    """An mpwatch that is connected to the hooks of 1,000 processes has more than 1,024."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 1200 and os.geteuid() != 0:
        pytest.skip("only root may open more than 1,024 descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 1200), max(before[1], 1200)))
    os.utime(tmp_path, (0, 0))
    opened: list[int] = []
    try:
        while not opened or opened[-1] <= 1024:
            opened.append(os.dup(folder))
        assert not frozen_disk.blocks_writes(folder)
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert tmp_path.stat().st_mtime > 0  # a child wrote there


def test_nothing_that_may_have_very_many_descriptors_calls_select() -> None:
    package = Path(mpwatch.__file__).parent
    calling = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"^(?!.*[\"`]).*\bselect\.select\(", path.read_text(), re.MULTILINE)
    }

    assert {path for path in calling if not path.startswith("demo/")} == set(FEW_DESCRIPTORS)
