"""Errors shown to the user of a command: one sentence and the command that helps."""

from __future__ import annotations

EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_NO_SUCH_PROCESS = 3
EXIT_NOT_PERMITTED = 4
EXIT_NOT_PYTHON = 5
EXIT_INTERRUPTED = 130


class Failure(Exception):
    """A command failed; the message is one sentence for the user."""

    def __init__(self, sentence: str, fix: str = "", exit_code: int = EXIT_USAGE) -> None:
        super().__init__(sentence)
        self.fix = fix
        self.exit_code = exit_code


def describe(failure: Failure) -> str:
    """The failure as it is printed: the sentence, and below it the command that helps."""
    lines = [f"mpwatch: {failure}"]
    if failure.fix:
        lines.append(f"  try: {failure.fix}")
    return "\n".join(lines)
