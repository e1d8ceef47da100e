"""Errors shown to the user of a command: one sentence and the command that helps."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from typing import IO

EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_NO_SUCH_PROCESS = 3
EXIT_NOT_PERMITTED = 4
EXIT_INTERRUPTED = 130


class Failure(Exception):
    """A command failed.

    Attributes:
        fix: A command that helps; empty if there is none.
        exit_code: The exit code of mpwatch.
    """

    def __init__(self, sentence: str, fix: str, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(sentence)
        self.fix = fix
        self.exit_code = exit_code


def describe(failure: Failure) -> str:
    """The failure as it is printed: the sentence, and below it the command that helps."""
    lines = [f"mpwatch: {failure}"]
    if failure.fix:
        lines.append(f"  try: {failure.fix}")
    return "\n".join(lines)


def check_recordable(path: str) -> None:
    """Refuse a recording that could not be written, before the command starts.

    Raises:
        Failure: The file exists, or its folder does not or cannot be written to.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path):
        raise Failure(
            f"{path} exists already.", f"mv {shlex.quote(path)} {shlex.quote(path + '.old')}"
        )
    if not os.path.isdir(folder):
        raise Failure(f"There is no folder {folder}.", f"mkdir -p {shlex.quote(folder)}")
    if not os.access(folder, os.W_OK):
        raise Failure(f"{folder} cannot be written to.", f"ls -ld {shlex.quote(folder)}")


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn errors of reading a recording into a `Failure`."""
    from mpwatch.observe.recording.file import NotARecording

    try:
        yield
    except NotARecording as error:
        raise Failure(str(error), "mpwatch record PID -o FILE") from None
    except OSError as error:
        raise Failure(
            f"{path} cannot be read: {error.strerror}.", f"ls -ld {shlex.quote(path)}"
        ) from None


@contextlib.contextmanager
def writing(path: str) -> Iterator[IO[str]]:
    """Open the output file of a command; errors become a `Failure`."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        folder = os.path.dirname(os.path.abspath(path))
        raise Failure(
            f"{path} cannot be written: {error.strerror}.", f"ls -ld {shlex.quote(folder)}"
        ) from None
