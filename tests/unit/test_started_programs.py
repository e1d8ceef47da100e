"""Programs that a test starts are killed at its end."""

from __future__ import annotations

import time
from pathlib import Path

from tests.conftest import Start


def test_descendants_in_sessions_of_their_own_are_ended_too(start: Start) -> None:
    program = start(["sh", "-c", "setsid sh -c 'echo $$; exec sleep 100' & wait"])
    while not program.lines:
        program.wait_for("")
    child = Path("/proc", program.lines[0])

    program.end()

    end_s = time.monotonic() + 30.0
    while child.exists() and "Z" not in (child / "stat").read_text().split()[2]:
        assert time.monotonic() < end_s
        time.sleep(0.01)
