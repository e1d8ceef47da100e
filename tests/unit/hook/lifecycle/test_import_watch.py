"""The finder that tells when a module has been imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from mpwatch.hook.lifecycle.patcher import ImportWatch


def test_the_watches_of_two_hooks_in_one_process_each_tell_of_a_module_and_do_not_ask_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watched_by_two.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    loaded: list[str] = []
    watches = [ImportWatch(loaded.append) for _ in range(2)]
    try:
        for watch in watches:
            watch.names.add("watched_by_two")
            watch.start()
        assert importlib.import_module("watched_by_two").value == 7
    finally:
        for watch in watches:
            watch.end()
        sys.modules.pop("watched_by_two", None)

    assert loaded == ["watched_by_two"] * 2
