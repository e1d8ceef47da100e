"""What hooks report, decoded, and the inputs that a source folds and a recording holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from mpwatch.model.ids import HookState, ProcessId
from mpwatch.model.samples import Ended, StacksTaken, TreeSample


class HookEvent(NamedTuple):
    """One record of the ring; see `mpwatch.hook.wire` for the kinds."""

    sequence: int
    at_ns: int
    """CLOCK_MONOTONIC, one clock for the machine."""
    kind: int
    tid: int
    duration_ns: int
    bytes: int
    key: int
    """Which segment, handle, queue or process: the same on both sides."""
    key2: int
    aux: int
    flags: int


@dataclass(frozen=True, slots=True)
class HookHello:
    """An input: the hook of a process introduced itself."""

    process: ProcessId
    at_s: float
    protocol: int
    python: str
    torch: str | None
    pid_inside: int
    """The pid as the process itself sees it."""
    started_by: str = ""
    """How the hook came in: instrument, run, fork, spawn, forkserver, attach."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Patch points that could not be set, with the reason."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Everything else of the hello, as it came, cleaned."""
    since_ns: int | None = None
    """When it came in, CLOCK_MONOTONIC: it numbers its records and notes from then on."""


@dataclass(frozen=True, slots=True)
class HookSlice:
    """An input: the ring's new records of one process."""

    process: ProcessId
    at_s: float
    events: tuple[HookEvent, ...]
    lost: int
    """Records that were overwritten before anybody got them, since the hook came in."""


@dataclass(frozen=True, slots=True)
class HookNote:
    """An input: something rare with text: an exception, a birth, a call site."""

    process: ProcessId
    at_ns: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    lost: int = 0
    """Notes that were pushed out of memory before anybody got them, since the hook came in."""
    number: int | None = None
    """Counts the notes of one hook from 0; with the process it identifies the note. `None` if the
    hook or the recording is of a version that did not write it."""


@dataclass(frozen=True, slots=True)
class HookGauges:
    """An input: readings the hook took on request (SharedCache, loaders, queues, allocator)."""

    process: ProcessId
    at_s: float
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HookStatus:
    """An input: the state of a process's hook changed."""

    process: ProcessId
    at_s: float
    state: HookState
    reason: str = ""
    passes: bool = False
    """What keeps the hook out may be over soon: it is worth another try."""


Input: TypeAlias = (
    TreeSample | Ended | StacksTaken | HookHello | HookSlice | HookNote | HookGauges | HookStatus
)
