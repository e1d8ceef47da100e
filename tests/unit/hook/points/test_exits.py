"""What stays in the runtime directory of a process that calls `os._exit`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.points.exits import wrap_os_exit
from mpwatch.hook.session import Session
from mpwatch.hook.transport import runtime_dir, server


@pytest.fixture(params=[b"tmpfs", b"ext4"])
def directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """The directory of the hook's files, which counts as one in memory or on a disk."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(server, "STOP_S", 60.0)
    device = tmp_path.stat().st_dev
    monkeypatch.setattr(runtime_dir, "mount_of", lambda *_: (request.param, device))
    return tmp_path / "mpwatch"


def suffixes(directory: Path) -> set[str]:
    return {path.suffix for path in directory.iterdir()}


def test_at_os_exit_only_what_an_autopsy_reads_stays(directory: Path) -> None:
    session = Session("instrument")
    seen: list[Any] = []

    def replaced(code: int) -> None:
        seen.append((code, suffixes(directory)))

    leave: Callable[..., Any] = wrap_os_exit(replaced, session)
    session.enter(())
    try:
        session.server.wait_for_opening(60.0)
        assert wire.SOCKET_SUFFIX in suffixes(directory)

        leave(3)
        assert seen == [(3, {wire.RING_SUFFIX, wire.NOTES_SUFFIX})]
        # It has returned: the program has replaced `os._exit`, and can be observed again.
        deadline_ns = session.system.monotonic_ns() + 60 * 10**9
        while not os.path.exists(str(session.server.path)):
            assert session.system.monotonic_ns() < deadline_ns
            session.system.sleep(0.01)
    finally:
        session.leave("test")
    assert suffixes(directory) == set()
