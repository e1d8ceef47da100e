"""Results of injecting and detaching the hook, and the refusal of an attempt."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import TypeAlias

from mpwatch.model.ids import HookState, ProcessId
from mpwatch.model.sanitize import clean

SOCKET, CALLED_OFF = "socket", "called off"
"""How a hook was detached without the interpreter: at its request, or before it was loaded."""
DONE = "done"
"""State of an answer where the exchange directory is gone: the action was done, or called off."""
_MAX_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class PayloadAnswer:
    """The payload's answer, cleaned because it comes from another process."""

    state: str
    """`loaded`, `unloaded`, `failed`, `later` (it was importing), or `done` (see `DONE`)."""
    reason: str = ""
    """Why the action failed; after success, the problems that the hook reports, if any."""
    version: str = ""
    """Version of the hook's sources, see `wire.sources_version`; empty if not known."""
    release: str = ""
    """Version of the mpwatch installation that the hook is from; empty if not known."""
    socket: str = ""
    """Path of the hook's socket as the target names it; empty if it has none."""
    left: tuple[str, ...] = ()
    """After an unload: what the hook could not undo, one sentence each."""

    @property
    def is_success(self) -> bool:
        """Whether the requested action was done."""
        return self.state in ("loaded", "unloaded", DONE)

    @classmethod
    def parse(cls, raw: bytes) -> PayloadAnswer:
        """Parse an answer; a malformed one becomes the state `failed`."""
        try:
            found = json.loads(raw)
            texts = {field.name: found.get(field.name, "") for field in fields(cls)}
            left = texts.pop("left")
        except (ValueError, AttributeError, RecursionError):
            return cls("failed", "its answer is malformed")
        if not all(isinstance(text, str) for text in (left, *texts.values())):
            return cls("failed", "its answer is malformed")
        cleaned = {name: clean(text, _MAX_CHARACTERS) for name, text in texts.items()}
        lines = left[:_MAX_CHARACTERS].splitlines()
        return cls(**cleaned, left=tuple(clean(line, _MAX_CHARACTERS) for line in lines if line))


@dataclass(frozen=True, slots=True)
class Attached:
    """The result of injecting the hook into one process."""

    process: ProcessId
    state: HookState
    """`ready`, `pending` (queued, not loaded yet), `silent` (loaded, no answer) or `absent`."""
    method: str = ""
    """The last method: `already there` or `pending call`; empty if none was tried."""
    reason: str = ""
    """One sentence; empty if the state is `ready`."""
    fix: str = ""
    """The command or setting that would help, where there is one."""
    stopped_s: float | None = None
    """How long the target's main thread was stopped; `None` if it never was."""
    took_s: float = 0.0
    passes: bool = False
    """The obstacle is temporary: see `Refused`."""


@dataclass(frozen=True, slots=True)
class Detached:
    """The result of detaching the hook from one process."""

    process: ProcessId
    state: HookState
    """`absent`: no part of a hook is seen in it; `pending`: the detach is queued; others: the hook
    is still loaded."""
    reason: str = ""
    fix: str = ""
    method: str = ""
    """`socket` (by a request to the hook), `pending call`, or `called off` (the hook was not loaded
    yet); empty if there was nothing to detach."""
    stopped_s: float | None = None
    """How long the target's main thread was stopped; `None` if it never was."""
    had_hook: bool = True
    """Whether the process had a hook before the detach."""
    left: tuple[str, ...] = ()
    """Changes of the hook that could not be undone, one sentence each."""
    hook: str = ""
    """Release and version of the hook as it says itself, see `hook_words`; empty if it did not."""
    since_s: float | None = None
    """CLOCK_BOOTTIME, in seconds, when that hook was attached; `None` if it did not say so."""

    @property
    def is_attached(self) -> bool:
        """Whether the process still has the hook, possibly until a queued detach runs."""
        return self.state not in ("absent", "gone")


Begun: TypeAlias = Callable[[ProcessId, str, str], None]
"""Called before a target is changed: with the process, the method, and the hook that is to be
detached (see `hook_words`; empty if not known, and for an injection). May raise `Refused`."""


def not_logged(_process: ProcessId, _method: str, _hook: str) -> None:
    """A `Begun` that does nothing."""


def hook_words(release: object, version: object) -> str:
    """A hook for the log: `0.1.0/1a2b3c4d`, release and checksum; empty if neither is known."""
    words = [clean(text, 40) if isinstance(text, str) else "" for text in (release, version)]
    return "/".join(word or "unknown" for word in words) if any(words) else ""


class Refused(Exception):
    """A method cannot be used with a process; the message is one sentence for the user.

    It is cleaned here: it may name a directory that the process chose.

    Args:
        reason: That sentence.
        fix: The command or setting that would help, if there is one.
        passes: The obstacle is temporary: a disk is being read, or py-spy takes a stack.
    """

    def __init__(self, reason: str, fix: str = "", *, passes: bool = False) -> None:
        self.reason = clean(reason, _MAX_CHARACTERS)
        self.fix = clean(fix, _MAX_CHARACTERS)
        super().__init__(self.reason)
        self.passes = passes


def still_attached(staying: Collection[Detached], total: int) -> str:
    """The result of a detach that failed in some processes, without full stop."""
    words = f"in {len(staying)} of {total} processes"
    if all(each.method == CALLED_OFF for each in staying):
        return f"An injection is still under way {words}"
    return f"The hook is still attached {words}"
