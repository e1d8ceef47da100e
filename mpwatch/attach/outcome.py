"""What comes of an attempt to bring the hook in or out, and why one was refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from mpwatch.model.ids import HookState, ProcessId
from mpwatch.model.sanitize import clean

_MAX_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """What the payload said, cleaned: it comes from another process."""

    state: str
    """`loaded`, `unloaded`, `failed`, `later` (it was importing), or `done` without particulars."""
    reason: str = ""
    """Why it failed; after success, what the hook could not do, if anything."""
    version: str = ""
    """The hook's, that of the mpwatch it was installed with; empty if not known."""
    socket: str = ""
    """Path of the hook's socket as the target names it; empty if it has none."""
    ring: str = ""
    """Path of the hook's ring file, likewise."""

    @property
    def is_success(self) -> bool:
        """Whether the payload did what was asked."""
        return self.state in ("loaded", "unloaded", "done")

    @classmethod
    def parse(cls, raw: bytes) -> Answer:
        """Read an answer; one that is malformed is a failure that says so."""
        try:
            found = json.loads(raw)
            texts = {field.name: found.get(field.name, "") for field in fields(cls)}
        except (ValueError, AttributeError, RecursionError):
            return cls("failed", "its answer is malformed")
        if not all(isinstance(text, str) for text in texts.values()):
            return cls("failed", "its answer is malformed")
        return cls(**{name: clean(text, _MAX_CHARACTERS) for name, text in texts.items()})


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
    hook_version: str = ""
    """The hook's version as its payload answered; empty if no payload ran."""
    socket_path: str = ""
    """Where the hook listens, as the target names it; empty as above."""
    ring_path: str = ""
    """Where the hook's ring file is, as the target names it; empty as above."""


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
    method: str = ""
    """`socket` (the hook was asked), `remote_exec`, `pending call`, or `called off` (the hook had
    not arrived yet); empty where there was nothing to detach."""
    stopped_s: float | None = None
    """How long the target's main thread was stopped; `None` if it never was."""
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
