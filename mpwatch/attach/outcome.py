"""What comes of an attempt to bring the hook in or out, and why one was refused."""

from __future__ import annotations

from dataclasses import dataclass

from mpwatch.model.ids import HookState, ProcessId


@dataclass(frozen=True, slots=True)
class Attached:
    """What became of one process when the hook was to be brought in."""

    process: ProcessId
    state: HookState
    """`ready`, `pending` (it will arrive by itself), `silent` (there, no answer) or `absent`."""
    method: str = ""
    """What was tried last: `already there`, `remote_exec`, `pending call`; empty if nothing was."""
    reason: str = ""
    """One sentence, empty when ready."""
    fix: str = ""
    """The command or setting that would help, where there is one."""
    stopped_s: float | None = None
    """How long the target's main thread was stopped; `None` if it never was."""
    took_s: float = 0.0
    passes: bool = False
    """What spoke against it may be over soon: see `Refused`."""


@dataclass(frozen=True, slots=True)
class Detached:
    """What became of one process when the hook was to be taken out."""

    process: ProcessId
    state: HookState
    """`absent`: no part of a hook is seen in it; `pending`: the hook will leave by itself; others:
    the hook is still there."""
    reason: str = ""
    fix: str = ""
    took_s: float = 0.0
    had_hook: bool = True
    """Whether there was a hook when this began."""
    left: tuple[str, ...] = ()
    """What of the hook could not be taken back, one sentence each."""


class Refused(Exception):
    """This way cannot be taken with this process; the message is one sentence for the user.

    Args:
        reason: That sentence.
        fix: The command or setting that would help, where there is one.
        passes: It may be over in a moment without anybody's help: a disk is being read, py-spy
            takes a stack.
    """

    def __init__(self, reason: str, fix: str = "", *, passes: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.passes = passes
