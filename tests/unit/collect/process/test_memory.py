"""Memory of many processes, one of which holds its mmap lock for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.collect.process import memory
from mpwatch.collect.process.memory import Rollups


def test_a_process_whose_reading_does_not_end_is_not_read_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "STUCK_S", 0.05)
    for pid in (5, 6):
        (tmp_path / str(pid)).mkdir()
    stuck = tmp_path / "5" / "smaps_rollup"
    os.mkfifo(stuck)  # as a held lock, it blocks whoever opens it
    (tmp_path / "6" / "smaps_rollup").write_text("Rss: 8 kB\nPss: 8 kB\n")

    rollups = Rollups(str(tmp_path), [5, 6], 1.0)

    assert rollups.get(5) is None
    assert rollups.is_under_way(5)
    found = rollups.get(6)
    assert not rollups.is_under_way(6)
    stuck.write_text("Rss: 4 kB\n")  # lets the reader go on
    assert found is None or found.rss_bytes == 8192
