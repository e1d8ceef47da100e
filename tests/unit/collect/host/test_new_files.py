"""Files that the user of a job has made since the job began, counted by kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.collect.host import new_files as module
from mpwatch.collect.host.new_files import LIST_S, PAUSE_S, NewFilesReader, shm_kind, tmp_kind

UID = os.geteuid()


def reader(cost_s: float = 0.0) -> NewFilesReader:
    """A reader whose listings use so much cpu time."""
    times = iter(n * cost_s for n in range(1000))
    return NewFilesReader(shm_kind, clock=lambda: next(times))


def counts(reader: NewFilesReader, folder: Path, at_s: float, **of: float) -> dict[str, int] | None:
    uid, since_s = int(of.get("uid", UID)), of.get("since_wall_s", 0.0)
    found = reader.read(str(folder), "/dev/shm", uid, since_s, at_s)
    return None if found is None else {kind: files.total for kind, files in found.items()}


def make(folder: Path, *names: str, size: int = 5000) -> None:
    for name in names:
        (folder / name).write_bytes(bytes(size))


def test_blocks_and_semaphores_are_counted_with_what_they_occupy(tmp_path: Path) -> None:
    make(tmp_path, "psm_a1", "psm_b2", "sem.mp-x", "torch_1_2_3", "other")

    found = reader().read(str(tmp_path), "/dev/shm", UID, 0.0, 1.0)

    assert found is not None
    assert set(found) == {"psm", "semaphore"}
    assert found["psm"].total == 2
    assert found["psm"].size_bytes == sum(
        (tmp_path / name).stat().st_blocks * 512 for name in ("psm_a1", "psm_b2")
    )
    assert found["psm"].example in ("/dev/shm/psm_a1", "/dev/shm/psm_b2")


def test_what_is_added_and_removed_is_seen_at_the_next_listing(tmp_path: Path) -> None:
    one = reader()
    make(tmp_path, "psm_a", "psm_b")
    assert counts(one, tmp_path, 0.0) == {"psm": 2}

    make(tmp_path, "psm_c")
    (tmp_path / "psm_a").unlink()
    make(tmp_path, "psm_d")

    assert counts(one, tmp_path, LIST_S - 1) == {"psm": 2}
    assert counts(one, tmp_path, LIST_S) == {"psm": 3}


def test_files_of_others_and_from_before_the_job_do_not_count(tmp_path: Path) -> None:
    make(tmp_path, "psm_a")
    later_s = (tmp_path / "psm_a").stat().st_ctime + 1

    assert counts(reader(), tmp_path, 0.0, uid=UID + 1) == {}
    assert counts(reader(), tmp_path, 0.0, since_wall_s=later_s) == {}


def test_a_directory_that_cannot_be_read_or_is_very_long_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NAMES_LIMIT", 3)
    make(tmp_path, "psm_a", "psm_b", "psm_c")
    one = reader()

    assert counts(one, tmp_path / "none", 0.0) is None
    assert counts(one, tmp_path, 1.0) == {"psm": 3}
    make(tmp_path, "psm_d")
    assert counts(one, tmp_path, 1.0 + LIST_S) is None


def test_a_listing_that_costs_much_is_rare(tmp_path: Path) -> None:
    make(tmp_path, "psm_a")
    one = reader(cost_s=1.0)
    assert counts(one, tmp_path, 0.0) == {"psm": 1}
    make(tmp_path, "psm_b")

    assert counts(one, tmp_path, PAUSE_S - 1) == {"psm": 1}
    assert counts(one, tmp_path, PAUSE_S) == {"psm": 2}


def test_a_directory_in_which_nothing_changed_is_not_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "psm_a")
    one = reader()
    assert counts(one, tmp_path, 0.0) == {"psm": 1}

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", None)
        assert counts(one, tmp_path, LIST_S) == {"psm": 1}


def test_names_are_cleaned_and_directories_of_hooks_left_out(tmp_path: Path) -> None:
    make(tmp_path, "tmp\x1b[31mred", "mpwatch-1000")
    one = NewFilesReader(tmp_kind)

    found = one.read(str(tmp_path), "/tmp", UID, 0.0, 1.0)

    assert found is not None
    assert found["tmp"].total == 1
    assert "\x1b" not in found["tmp"].example
