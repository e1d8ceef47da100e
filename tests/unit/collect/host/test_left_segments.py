from __future__ import annotations

from pathlib import Path

from mpwatch.collect.host.orphans import KEPT, left_segments


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
