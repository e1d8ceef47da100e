"""Programs that a test controls by lines while it observes them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

PROGRAM = Path(__file__).parents[2] / "programs" / "collect_states.py"
T = TypeVar("T")


class Talker:
    """A program that continues when it gets a line."""

    def __init__(self, state: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), state],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.words = self.hear("ready")

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self, word: str) -> list[str]:
        """Read the next line, which must start with this word."""
        assert self.process.stdout is not None
        first, *rest = self.process.stdout.readline().split() or [""]
        assert first == word
        return rest

    def tell(self) -> None:
        """Write a line, so that the program continues."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)


@pytest.fixture
def talk() -> Iterator[Callable[[str], Talker]]:
    """Start `collect_states.py` in one of its states."""
    started: list[Talker] = []

    def start(state: str) -> Talker:
        started.append(Talker(state))
        return started[-1]

    yield start
    for talker in started:
        talker.end()


def eventually(look: Callable[[], T | None], deadline_s: float = 60.0) -> T:
    """The first answer that is not `None` or empty; fails at the deadline."""
    until_s = time.monotonic() + deadline_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until_s:
            pytest.fail(f"not within {deadline_s:.0f} s; the last answer was {found!r}")
        time.sleep(0.005)
