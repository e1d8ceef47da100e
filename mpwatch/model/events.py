"""Decoded events of hooks, and the inputs that a source folds and a recording contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from mpwatch.hook import wire
from mpwatch.model.collectives import NcclStatus
from mpwatch.model.ids import HookState, ProcessId
from mpwatch.model.samples import Ended, StacksTaken, TreeSample
from mpwatch.model.source_code import SourceRead

SENDS = (wire.SHARE, wire.CUDA_SHARE)
RECEIPTS = (wire.REBUILD, wire.CUDA_REBUILD)
LOADER_CALLS = (
    wire.LOADER_NEXT,
    wire.LOADER_PUT_INDEX,
    wire.LOADER_FETCH,
    wire.LOADER_FETCH_BEGIN,
)
"""Kinds of records about a task of a DataLoader worker: `aux` is the index of the batch."""


class HookEvent(NamedTuple):
    """One record of the ring; see `mpwatch.hook.wire` for the kinds."""

    sequence: int
    at_ns: int
    """CLOCK_MONOTONIC, which all processes of a machine share."""
    kind: int
    tid: int
    duration_ns: int
    bytes: int
    key: int
    """The segment, handle, queue or process; the same value in sender and receiver."""
    key2: int
    aux: int
    flags: int


@dataclass(frozen=True, slots=True)
class HookHello:
    """An input: the first message of a hook."""

    process: ProcessId
    at_s: float
    protocol: int
    python: str
    torch: str | None
    pid_inside: int
    """The pid in the pid namespace of the process."""
    started_by: str = ""
    """How the hook was loaded: instrument, run, fork, spawn, forkserver, attach."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Patch points that could not be installed, with the reason."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """All other fields of the hello, sanitized."""
    since_ns: int | None = None
    """When it was attached, CLOCK_MONOTONIC; its records and notes are numbered from then on."""


@dataclass(frozen=True, slots=True)
class HookSlice:
    """An input: new records from the ring of one process."""

    process: ProcessId
    at_s: float
    events: tuple[HookEvent, ...]
    lost: int
    """Records that were overwritten before an observer read them, since the hook was attached."""


_FORMER_KINDS: Mapping[str, str] = MappingProxyType(
    {"birth": "start", "ticket-failed": "receive-failed"}
)


def present_kind(kind: str) -> str:
    """The kind of a note, which hooks and recordings of mpwatch 0.2 and older name otherwise."""
    return _FORMER_KINDS.get(kind, kind)


@dataclass(frozen=True, slots=True)
class HookNote:
    """An input: a rare event with text: an exception, a process start, a call site."""

    process: ProcessId
    at_ns: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    lost: int = 0
    """Notes that were dropped before an observer read them, since the hook was attached."""
    number: int | None = None
    """Counts the notes of one hook from 0; with the process it identifies the note. `None` if the
    hook or the recording is of a version without it."""


@dataclass(frozen=True, slots=True)
class HookGauges:
    """An input: values that the hook read on request (SharedCache, loaders, queues, allocator)."""

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
    """The reason is temporary, so another injection may succeed."""


Input: TypeAlias = (
    TreeSample
    | Ended
    | StacksTaken
    | HookHello
    | HookSlice
    | HookNote
    | HookGauges
    | HookStatus
    | NcclStatus
    | SourceRead
)
