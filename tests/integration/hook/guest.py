"""The program `hook_guest.py`, or another that reads lines, and its input and output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.conftest import PROGRAMS


class Guest:
    """The program; it is killed at the end of the test."""

    def __init__(
        self,
        mode: str,
        *,
        within: Sequence[str] = (),
        program: str = "hook_guest.py",
        **env: str,
    ) -> None:
        self.process = subprocess.Popen(
            [*within, sys.executable, str(PROGRAMS / program), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **env},
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self) -> tuple[int, str]:
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, rest

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
