"""A dashboard that ends on a signal, or with its terminal."""

from __future__ import annotations

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
