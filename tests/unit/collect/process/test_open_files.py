from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.collect.process.procfs import DescriptorBudget, OpenFiles


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A real process: only the kernel's files become unreadable when their process exits."""
    program = "import time; print('ready', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # an interpreter that starts opens and closes files
        yield process
        process.kill()


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths opened from here on."""
    paths: list[str] = []
    really = os.open

    def note(path: str, flags: int) -> int:
        paths.append(path)
        return really(path, flags)

    monkeypatch.setattr(os, "open", note)
    return paths


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_file_is_opened_once_and_read_anew_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "stat"
    file.write_text("1")
    files, paths = OpenFiles(DescriptorBudget(1)), opened(monkeypatch)

    first = files.read(str(file))
    file.write_text("2")

    assert (first, files.read(str(file))) == (b"1", b"2")
    assert paths == [str(file)]


def test_without_room_in_the_budget_nothing_is_held_open(tmp_path: Path) -> None:
    budget = DescriptorBudget(1)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    files, before = OpenFiles(budget), descriptors()

    assert [files.read(str(tmp_path / name)) for name in ("a", "b", "b")] == [b"a", b"b", b"b"]
    assert (descriptors() - before, budget.left) == (1, 0)


def test_closing_a_file_frees_its_place_in_the_budget(tmp_path: Path) -> None:
    budget, before = DescriptorBudget(3), descriptors()
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    files = OpenFiles(budget)
    files.read(str(tmp_path / "a"))
    files.read(str(tmp_path / "b"))
    files.forget(str(tmp_path / "a"))
    files.forget(str(tmp_path / "never read"))

    assert (budget.left, descriptors() - before) == (2, 1)
    files.close()
    assert (budget.left, descriptors() - before) == (3, 0)


def test_a_reader_that_is_dropped_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    before = descriptors()
    files = OpenFiles(DescriptorBudget(1))
    files.read(str(tmp_path / "a"))
    del files

    assert descriptors() == before


def test_the_file_of_an_exited_process_raises_and_is_closed(
    sleeper: subprocess.Popen[bytes],
) -> None:
    budget = DescriptorBudget(4)
    files, path = OpenFiles(budget), f"/proc/{sleeper.pid}/stat"
    assert files.read(path).startswith(str(sleeper.pid).encode())
    sleeper.kill()
    sleeper.wait()

    with pytest.raises(ProcessLookupError):
        files.read(path)
    assert budget.left == 4


def test_files_of_a_copy_of_procfs_are_not_kept(tmp_path: Path) -> None:
    assert DescriptorBudget.of_this_process(str(tmp_path)).left == 0
    assert DescriptorBudget.of_this_process("/proc").left > 0


def test_the_size_of_a_folder_is_read_from_an_open_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, paths = OpenFiles(DescriptorBudget(1)), opened(monkeypatch)
    sizes = [files.size(str(tmp_path)) for _ in range(3)]

    assert sizes == [tmp_path.stat().st_size] * 3
    assert paths == [str(tmp_path)]


def test_without_a_free_descriptor_the_size_of_a_folder_is_read_by_path(tmp_path: Path) -> None:
    before = descriptors()

    assert OpenFiles(DescriptorBudget(0)).size(str(tmp_path)) == tmp_path.stat().st_size
    assert descriptors() == before


def test_the_descriptors_of_a_process_that_has_ended_are_not_counted_any_more(
    sleeper: subprocess.Popen[bytes],
) -> None:
    budget = DescriptorBudget(4)
    files, folder = OpenFiles(budget), f"/proc/{sleeper.pid}/fd"

    assert files.size(folder) == len(os.listdir(folder))
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(FileNotFoundError):
        files.size(folder)
    assert budget.left == 4
