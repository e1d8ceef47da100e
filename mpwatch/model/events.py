"""Decoded events of hooks, and the inputs that a source folds and a recording contains."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct, field

from mpwatch.hook import wire
from mpwatch.model.collectives import NcclStatus
from mpwatch.model.ids import HookState, ProcessId
from mpwatch.model.samples import Ended, Frame, StacksTaken, TreeSample, ValuesRead
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


class HookHello(Struct, frozen=True):
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


class HookSlice(Struct, frozen=True):
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


class HookNote(Struct, frozen=True):
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


class HookGauges(Struct, frozen=True):
    """An input: values that the hook read on request (SharedCache, loaders, queues, allocator)."""

    process: ProcessId
    at_s: float
    data: Mapping[str, Any] = field(default_factory=dict)


class HookStatus(Struct, frozen=True):
    """An input: the state of a process's hook changed."""

    process: ProcessId
    at_s: float
    state: HookState
    reason: str = ""
    passes: bool = False
    """The reason is temporary, so another injection may succeed."""


class Raised(NamedTuple):
    """An exception as a traceback shows it."""

    type: str
    """Name of its class, without its module."""
    text: str
    """First line of its message."""
    frames: tuple[Frame, ...]
    """Innermost first, the innermost 12 at most."""


class WrittenError(Struct, frozen=True):
    """An exception whose traceback stands in a file to which the job writes its output.

    Nothing has caught it, but for one of a process that is only named in the line above.
    """

    file: str
    """Path as its processes have it."""
    offset: int
    """Of its first line in the file, bytes."""
    raised: Raised
    first: Raised | None = None
    """With which its chain began; `None` if it is alone."""
    is_from: bool = True
    """Whether each of the chain was raised `from` the one before; else while it was handled."""
    process_name: str = ""
    """The process of multiprocessing that it has ended, by the line above it."""
    thread_name: str = ""
    """The thread that it has ended, likewise."""
    rank: int | None = None
    """The number that torch or torchrun have written before each line."""
    process: ProcessId | None = None
    """The process whose pid stands in the line above, if none of the three is known: the exception
    may have been handled."""
    script: str = ""
    """File of the module whose code the traceback begins with; empty if it begins elsewhere."""
    writers: tuple[ProcessId, ...] = ()
    """The processes seen with this file as standard output or error, at most 64."""
    is_of_job: bool = False
    """Whether the text was written after the job had begun; `False` if it may be older."""


class WrittenErrors(Struct, frozen=True):
    """An input: tracebacks that were not read before."""

    at_s: float
    errors: tuple[WrittenError, ...]


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
    | WrittenErrors
    | ValuesRead
)
