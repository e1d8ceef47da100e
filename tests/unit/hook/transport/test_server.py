from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from mpwatch.hook.session import Session
from mpwatch.hook.transport.server import STOP_S
from tests.builders.clock import NanosecondClock


def test_a_fork_waits_a_bounded_time_for_a_thread_that_does_not_end(
    session: Session, tmp_path: Path
) -> None:
    session.server.listen(str(tmp_path / "s"))
    clock = NanosecondClock()
    session.system.monotonic_ns, session.system.sleep = clock, clock.sleep
    session.system.start_new_thread = lambda function, arguments: 0  # it never ends
    session.server.start()

    assert session.server.stop() is False
    assert STOP_S <= (clock.now_ns - 10**12) / 1e9 < STOP_S + 0.001


class Swapping:
    """A stand-in for `os`: as soon as the socket is there, a link takes its place."""

    def __init__(self, path: Path, elsewhere: Path) -> None:
        self.path, self.elsewhere = path, elsewhere

    def __getattr__(self, name: str) -> Any:
        if self.path.is_socket() and name == "chmod":
            self.path.unlink()
            self.path.symlink_to(self.elsewhere)
        return getattr(os, name)


def test_the_socket_is_for_its_user_only_and_no_other_file_changes(
    session: Session, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    session.system.os = Swapping(tmp_path / "s", elsewhere)
    before = os.umask(0)
    try:
        session.server.listen(str(tmp_path / "s"))
    finally:
        os.umask(before)

    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "s").lstat().st_mode) == 0o600
