from __future__ import annotations

from pathlib import Path

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
