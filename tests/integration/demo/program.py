"""A program under trial: started, awaited by its line `ready`, ended, and searched for what it
left."""

from __future__ import annotations

import contextlib
import glob
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from tests import procfs

READY_S = 90.0
ENDS_WITHIN_S = 8.0
TIDY_WITHIN_S = 25.0
"""Seconds for its guardian to clean up: it needs one or two on an idle machine."""


class Program:
    """A program that runs, and what it has printed."""

    def __init__(self, argv: Sequence[str], folder: str, env: Mapping[str, str]) -> None:
        with open(os.path.join(folder, "output"), "wb") as output:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**env, "PYTHONUNBUFFERED": "1"},
            )
        self._output = os.path.join(folder, "output")
        self._family: dict[int, str] = {}
        self._guardians: dict[int, str] = {}

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def text(self) -> str:
        """All it has printed."""
        with open(self._output, errors="replace") as output:
            return output.read()

    def is_ready(self) -> bool:
        """Wait until it prints that it is in its failing state; `False` if it never does."""
        pidfd = os.pidfd_open(self.pid)
        try:
            end_s = time.monotonic() + READY_S
            while "ready" not in self.text.split() and time.monotonic() < end_s:
                if select.select([pidfd], [], [], 0.1)[0]:
                    break
        finally:
            os.close(pidfd)
        return "ready" in self.text.split()

    def says(self, beginning: str | tuple[str, ...], deadline_s: float = 30.0) -> bool:
        """Wait for a line that starts with one of these texts."""
        return procfs.eventually(
            lambda: any(line.startswith(beginning) for line in self.text.splitlines()), deadline_s
        )

    def has_ended(self) -> bool:
        """Whether its main process has exited; `end` reaps it."""
        return not procfs.is_alive(self.pid)

    def wait_unreaped(self, limit_s: float) -> int | None:
        """Wait for the end of its main process, and leave the zombie for others to read.

        Returns:
            Its exit code, or the negative number of a signal; `None` if it still runs.
        """
        pidfd = os.pidfd_open(self.pid)
        try:
            if not select.select([pidfd], [], [], limit_s)[0]:
                return None
            ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        finally:
            os.close(pidfd)
        assert ended is not None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def fails(self) -> str:
        """The error it has printed so far; empty if it runs or has exited normally."""
        has_failed = self.process.poll() not in (None, 0, -signal.SIGTERM)
        is_bad = has_failed or "Traceback (most recent call last)" in self.text
        return self.text[-300:].replace("\n", " | ") if is_bad else ""

    def look_around(self) -> None:
        """Note all of its processes: some outlive the main process."""
        for pid in (self.pid, *procfs.descendants(self.pid)):
            self._family.setdefault(pid, procfs.start_ticks(pid))
        for pid, folder in guardians_of(self.pid):
            self._guardians.setdefault(pid, folder)

    def end(self) -> tuple[str, ...]:
        """Ask it and its guardian to end, and return what is left then, in words."""
        self.look_around()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDS_WITHIN_S)
        self.process.kill()
        self.process.wait()
        for pid in self._guardians:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        procfs.eventually(lambda: not self._remains(), TIDY_WITHIN_S)
        return self._remains()

    def _remains(self) -> tuple[str, ...]:
        """Processes, files and folders of it that are left, in words."""
        return (
            *(
                f"process {p}"
                for p, ticks in self._family.items()
                if procfs.start_ticks(p) == ticks != ""
            ),
            *(path for pid in self._family for path in glob.glob(f"/dev/shm/torch_{pid}_*")),
            *(folder for folder in self._guardians.values() if os.path.exists(folder)),
        )


@contextlib.contextmanager
def started(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Program]:
    """A program that is ended at the latest when the block is left."""
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        program = Program(argv, folder, env)
        try:
            yield program
        finally:
            if program.process.returncode is None or program.process.poll() is None:
                program.end()


def guardians_of(pid: int) -> Iterator[tuple[int, str]]:
    """The guardians of a demonstration: pids, each with the folder it will remove."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        words = procfs.text(int(name), "cmdline").split("\0")
        if str(pid) in words and any("guardian.py" in word for word in words):
            yield int(name), next(word for word in words if "mpwatch-demo-" in word)
