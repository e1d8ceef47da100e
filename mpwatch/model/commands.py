"""What a person can ask of a source while it runs, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mpwatch.model.ids import ProcessId


@dataclass(frozen=True, slots=True)
class TakeStacks:
    """Take stacks now; of everything if no process is given."""

    process: ProcessId | None = None
    native: bool = False
    locals: bool = False


@dataclass(frozen=True, slots=True)
class Follow:
    """Keep taking stacks of one process twice a second, or stop following with `None`."""

    process: ProcessId | None


@dataclass(frozen=True, slots=True)
class Focus:
    """Take stacks of the process under the cursor, at intervals by their cost; `None` ends it."""

    process: ProcessId | None


@dataclass(frozen=True, slots=True)
class SetRefresh:
    """Sample this often."""

    hz: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Keep the last snapshot on screen; collecting goes on."""

    paused: bool


@dataclass(frozen=True, slots=True)
class StartRecording:
    """Write all inputs to a file from now on; `None` stops."""

    path: str | None


@dataclass(frozen=True, slots=True)
class Seek:
    """Replay only: move to seconds since the start of the recording."""

    at_s: float


@dataclass(frozen=True, slots=True)
class SetSpeed:
    """Replay only: seconds of recording per second."""

    factor: float


@dataclass(frozen=True, slots=True)
class Step:
    """Replay only: pause, and move by so many readings; backwards if negative."""

    readings: int = 1


@dataclass(frozen=True, slots=True)
class InjectHook:
    """Live only: inject the hook into the job, and into what it starts from now on."""


Command: TypeAlias = (
    Focus
    | Follow
    | InjectHook
    | Pause
    | Seek
    | SetRefresh
    | SetSpeed
    | StartRecording
    | Step
    | TakeStacks
)
