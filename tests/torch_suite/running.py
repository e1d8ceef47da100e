"""Runs the tests, a few in a process, and continues after one that hangs or kills its process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import Any

from tests.torch_suite.comparing import Outcomes
from tests.torch_suite.places import Place

STEP_S = 0.2
_VERSIONS = "import sys, torch; print('torch', torch.__version__, 'Python', sys.version.split()[0])"


class NoHook(RuntimeError):
    """A run with the hook had none, or a run without it had one."""


class Suite:
    """The tests in one place."""

    def __init__(self, place: Place, chunk: int, limit_s: float) -> None:
        self._place = place
        self._chunk = chunk
        self._limit_s = limit_s
        self._log = place.folder / "outcomes"
        self._output = place.folder / "output"

    def versions(self) -> str:
        """Torch's version and Python's."""
        return self._say(["-c", _VERSIONS]).strip()

    def collect(self, file: str, select: str) -> list[str]:
        """The names of a file's tests."""
        wanted = ["-k", select] if select else []
        said = self._say([*_pytest(), "--collect-only", *wanted, file])
        names = [line for line in said.splitlines() if line.startswith(f"{file}::")]
        if not names:
            raise LookupError(f"no tests were found in {file}:\n{said[-2000:]}")
        return names

    def run(self, names: list[str], with_hook: bool) -> Outcomes:
        """The outcome of each test: that of pytest, or `hung` or `died`."""
        outcomes: Outcomes = {}
        left = list(names)
        while left:
            outcomes.update(self._run_chunk(left[: self._chunk], with_hook))
            left = [name for name in left if name not in outcomes]
        return outcomes

    def _run_chunk(self, names: list[str], with_hook: bool) -> Outcomes:
        """Run tests in one process to its end; the one at which that ended early is the last."""
        self._log.write_text("")
        entry = [f"{self._place.inside}/hook/run.py"] if with_hook else []
        process = self._place.start([*entry, *_pytest(), *names], self._output)
        is_hung = self._watch(process)
        code = _end(process)
        outcomes: Outcomes = {}
        began = None
        for what, name, fact in self._rows():
            if what == "ended":
                outcomes[name] = fact
                began = None
                continue
            began = name
            if fact is not with_hook:
                raise NoHook(name)
        if began is not None:
            outcomes[began] = "hung" if is_hung else f"died {code}"
        if not outcomes:
            raise RuntimeError(self._output.read_text(errors="replace")[-4000:])
        return outcomes

    def _watch(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for its exit; whether no test began or ended for too long before that."""
        size, moved_s = 0, time.monotonic()
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STEP_S)
            grown = self._log.stat().st_size
            if grown != size:
                size, moved_s = grown, time.monotonic()
            elif time.monotonic() - moved_s > self._limit_s:
                return True
        return False

    def _rows(self) -> list[list[Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def _say(self, arguments: list[str]) -> str:
        """The output of Python there."""
        process = self._place.start(arguments, self._output)
        try:
            process.wait(300)
        finally:
            _end(process)
        return self._output.read_text(errors="replace")


def _pytest() -> list[str]:
    return ["-m", "pytest", "-p", "outcome_log", "-p", "no:cacheprovider", "-q", "-rN"]


def _end(process: subprocess.Popen[bytes]) -> int:
    """Kill a process with all it started; its exit code."""
    code = process.poll()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    return -9 if code is None else code
