"""Texts of the actions on a process: the list to choose from and the confirmation."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mpwatch.model.snapshot import Process
from mpwatch.model.units import count_text
from mpwatch.tui.elements.styled_text import Column, Row, Tone, cell

Kind: TypeAlias = Literal["signal", "limit", "stacks", "record", "detach"]

COLUMNS = (
    Column("DO", 26, keep=9),
    Column("WHAT HAPPENS", 40, keep=8, grows=True),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """An action that is offered."""

    kind: Kind
    title: str
    words: str
    """The effect of the action, shown before it is confirmed."""
    number: int = 0
    """Signal number."""
    tone: Tone = ""
    needs_confirming: bool = True

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the choice."""
        return (self.kind, self.number)


_SIGNALS: tuple[tuple[signal.Signals, str, Tone], ...] = (
    (signal.SIGINT, "as ctrl-c does: Python raises KeyboardInterrupt in its main thread", ""),
    (
        signal.SIGTERM,
        "asks it to end; without a handler it ends at once, and nothing is saved",
        "warning",
    ),
    (
        signal.SIGKILL,
        "ends it at once and cannot be refused; named segments and locks stay",
        "critical",
    ),
    (signal.SIGSTOP, "halts it until SIGCONT; others that wait for it wait on", "warning"),
    (signal.SIGCONT, "lets a stopped process go on", ""),
)


def choices(
    process: Process, *, is_live: bool, recording: str | None, has_hooks: bool
) -> list[Choice]:
    """The actions offered for a process; in a replay only writing files."""
    found = [
        Choice(
            "stacks",
            "write all stacks to a file",
            "of every process of the job, as last taken, into a new file in this directory",
            needs_confirming=False,
        )
    ]
    if not is_live:
        return found
    if recording is None:
        words = "everything observed from now on, for mpwatch replay"
        found.append(Choice("record", "start recording", words, needs_confirming=False))
    else:
        found.append(Choice("record", "stop recording", f"closes {recording}"))
    if has_hooks:
        words = (
            "takes the hook out of the whole tree; the job goes on as if it had never been there"
        )
        found.append(Choice("detach", "detach the hook", words))
    if process.is_gone:
        return found
    fds = process.sample.fds
    if fds and fds.soft_limit and fds.hard_limit and fds.soft_limit < fds.hard_limit:
        limits = f"from {count_text(fds.soft_limit)} to {count_text(fds.hard_limit)}, while it runs"
        found.append(Choice("limit", "raise its limit of fds", limits))
    found += [
        Choice("signal", f"send {number.name}", words, int(number), tone)
        for number, words, tone in _SIGNALS
    ]
    return found


def choice_row(choice: Choice) -> Row:
    """One line of the list."""
    return Row(choice.key, (cell(choice.title, choice.tone or "title"), cell(choice.words)))


def question(choice: Choice, process: Process) -> str:
    """The question that confirms an action."""
    if choice.kind in ("detach", "record"):
        return f"{choice.title[0].upper()}{choice.title[1:]}?"
    return f"{choice.title[0].upper()}{choice.title[1:]}: {process.label}, pid {process.pid}?"
