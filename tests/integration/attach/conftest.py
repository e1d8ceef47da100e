"""Real programs to attach to, started with a private runtime directory and killed at the end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
from tests.conftest import kill_group

PROGRAMS = Path(__file__).parents[2] / "programs"
WITHIN_S = 90.0


@dataclass
class Running:
    """One started program and the lines it prints."""

    popen: subprocess.Popen[bytes]
    lines: list[str] = field(default_factory=list)
    _rest: bytes = b""

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def process(self) -> ProcessId:
        return stat_of(self.pid).process

    @property
    def state(self) -> str:
        return stat_of(self.pid).state

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def line(self, within_s: float = WITHIN_S) -> str:
        """The next line it prints."""
        assert self.popen.stdout is not None
        deadline_s = time.monotonic() + within_s
        while b"\n" not in self._rest:
            left_s = max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self.popen.stdout], [], [], left_s)
            assert ready, f"nothing printed within {within_s} s"
            chunk = os.read(self.popen.stdout.fileno(), 65536)
            assert chunk, f"it ended with {self.popen.wait()}"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        self.lines.append(line.decode())
        return self.lines[-1]

    def drain(self) -> None:
        """Read what it has printed so far, so that it never blocks on a full pipe."""
        assert self.popen.stdout is not None
        while b"\n" in self._rest or select.select([self.popen.stdout], [], [], 0)[0]:
            self.line()

    def newest_line(self) -> str:
        """The next line that is printed from now on."""
        self.drain()
        return self.line()

    def say(self, text: bytes) -> None:
        """Write a line to its standard input."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(text)
        self.popen.stdin.flush()


Start = Callable[..., Running]


@pytest.fixture(autouse=True)
def _may_trace(ptrace_allowed: None) -> None:
    """Every test here traces processes."""


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the programs' hooks put their files: a short one, for sockets."""
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    return folder


@pytest.fixture
def start(runtime: Path) -> Iterator[Start]:
    """Starts programs of tests/programs and ends all of them afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        name: str,
        *arguments: str,
        python: str = sys.executable,
        variables: Mapping[str, str] | None = None,
        **options: object,
    ) -> Running:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), **(variables or {})}
        environment.pop("PYTHONPATH", None)
        popen: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            [python, str(PROGRAMS / f"{name}.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            **{"start_new_session": True, **options},
        )
        started.append(popen)
        running = Running(popen)
        assert running.line() == "ready"
        return running

    yield start
    for popen in started:
        with popen:  # a child that outlives it may hold its pipes: their end is not waited for
            # With all descendants: a DataLoader worker that starts while its parent is killed takes
            # its next parent for its own, and waits for ever (torch 2.13).
            kill_group(popen.pid)
