"""A dashboard that ends on a signal, or with its terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from types import FrameType

import pytest

from mpwatch.tui.termination import Termination


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_dashboard_that_is_ending_is_not_resumed(number: signal.Signals) -> None:
    """The kernel sends SIGCONT after the SIGHUP of a lost terminal."""
    resumed: list[int] = []

    def resume(arrived: int, _frame: FrameType | None) -> None:
        resumed.append(arrived)

    before = signal.getsignal(signal.SIGCONT)
    termination = Termination()
    with termination.watching():
        signal.signal(signal.SIGCONT, resume)  # as Textual does when it starts
        os.kill(os.getpid(), signal.SIGCONT)
        assert resumed == [signal.SIGCONT]
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGCONT)

    assert resumed == [signal.SIGCONT]
    assert termination.exit_code == 128 + number
    assert signal.getsignal(signal.SIGCONT) == before


@pytest.mark.parametrize("needs_terminal", [True, False])
async def test_a_dashboard_whose_terminal_was_lost_before_its_start_ends(
    needs_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing handled the SIGHUP of that; it would go on without a user for ever."""
    monkeypatch.setattr("mpwatch.tui.termination.os.isatty", lambda _: False)
    ended: list[bool] = []

    class App:
        def exit(self) -> None:
            ended.append(True)

    termination = Termination(needs_terminal=needs_terminal)
    with termination.watching():  # at its end, nothing enforces the end any more
        termination.started(App())
        await asyncio.sleep(0)

    assert bool(ended) is needs_terminal
    assert termination.exit_code == (128 + signal.SIGHUP if needs_terminal else None)
