"""Snapshots of one job as bytes: what has changed since the snapshot that was sent before.

A node sends the snapshots that its own observer has made, not the inputs they were folded from: a
head that opens a node late sees what has been known of it for hours, and a snapshot that is left
out costs nothing but its own moment. A field is sent whole when it has changed, a process field by
field, and of long lists only the new entries. What is decoded here comes from another machine: it
is bounded, checked against the types of the model, and its text is sanitized.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import fields, replace

from mpwatch.model.account import Account, ProcessAccount
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import MESSAGE_LIMIT, clean
from mpwatch.model.snapshot import LogEntry, Process, Segment, Snapshot
from mpwatch.observe.recording.codec import CANNOT_ENCODE

VERSION = 2
"""Version of these bytes and of the messages that ask for them; rises when an older head or agent
would misunderstand them."""
PART_BYTES = 1 << 16
"""Longest part of a snapshot: between two there is place for a summary, on slow links as well."""
INFLATED_LIMIT_BYTES = 32 << 20
"""Longest change that a head inflates; 33 processes with a hook begin with 130 kB deflated."""
KEPT_LIMIT_BYTES = 32 << 20
"""The most that a head keeps of one job, by the length of its fields in messages; as objects they
take some ten times as much."""
CONTAINERS_LIMIT = 4_000_000
"""Lists and maps in one change. An empty one takes a byte of the change and 56 bytes of memory."""
DEPTH_LIMIT = 24
NUMBER_LIMIT = 1e15
"""Largest number with a fraction: a time beyond that has no date."""

_CONTAINERS = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
"""First bytes of lists and maps (the specification of MessagePack, version 2)."""
_NO_CONTAINERS = bytes(each for each in range(256) if each not in _CONTAINERS)
_APART: Mapping[type, frozenset[str]] = {
    Snapshot: frozenset(("processes", "segments", "log", "account", "habits", "_living", "_by_id")),
    Account: frozenset(("processes", "task_waits")),
    Process: frozenset(("process", "sample")),
    ProcSample: frozenset(("process",)),
}
"""Fields that identify a value, are sent entry by entry, or that only the next reading needs."""
_CANNOT_DECODE = (*CANNOT_ENCODE, KeyError, zlib.error)


class NotASnapshot(ValueError):
    """Bytes of a node are no change of a snapshot."""


# Made on first use: making a decoder walks its type, and most heads open no node.
@cache
def _decoders(kind: type) -> dict[str, Callable[[bytes | msgspec.Raw], Any]]:
    """Decoders of the fields that are sent one by one, by name."""
    hints = get_type_hints(kind)
    return {name: _decoder(hints[name]) for name in _names(kind)}


@cache
def _decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.msgpack.Decoder(kind).decode


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields that are sent one by one."""
    return tuple(each.name for each in fields(kind) if each.name not in _APART[kind])


class _Members(msgspec.Struct, frozen=True):
    """A list: its keys in order if they have changed, and its new or changed entries."""

    keys: list[Any] | None = None
    changed: list[msgspec.Raw] = []


class _ProcessChange(msgspec.Struct, array_like=True):
    """The changed fields of one process."""

    process: ProcessId
    fields: dict[str, msgspec.Raw]
    sample: dict[str, msgspec.Raw]


class _Change(msgspec.Struct):
    """What has changed since the snapshot before."""

    fields: dict[str, msgspec.Raw] = {}
    account: dict[str, msgspec.Raw] = {}
    accounts: _Members = _Members()
    segments: _Members = _Members()
    log: _Members = _Members()
    processes: list[_ProcessChange] = []
    order: list[ProcessId] | None = None
    """All processes, if they are others than before or in another order."""


# --- on the node ---------------------------------------------------------------------------------


class SnapshotEncoder:
    """Turns snapshots of one job into changes, the first of which is the whole snapshot."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
        self._before: Snapshot | None = None

    def change(self, snapshot: Snapshot) -> bytes:
        """The change from the snapshot before, deflated; it counts as sent.

        Raises:
            CANNOT_ENCODE: It holds a value that MessagePack cannot hold.
        """
        before = self._before
        account = before.account if before is not None else Account()
        segments = before.segments if before is not None else ()
        log = before.log if before is not None else ()
        change = {
            "fields": _differing(snapshot, before, _names(Snapshot)),
            "account": _differing(snapshot.account, account, _names(Account)),
            "accounts": _members(_accounts(snapshot), _accounts(before), _by_process),
            "segments": _members(snapshot.segments, segments, _by_segment),
            "log": _members(snapshot.log, log, _by_sequence),
            "processes": list(_process_changes(snapshot, before)),
            "order": _order(snapshot, before),
        }
        data = zlib.compress(self._encode(change), 1)
        self._before = snapshot
        return data


def _differing(now: object, before: object | None, names: Iterable[str]) -> dict[str, object]:
    """The fields that differ, all of them without an earlier value."""
    return {
        name: value
        for name in names
        for value in (getattr(now, name),)
        if before is None or getattr(before, name) != value
    }


def _members(
    now: Sequence[Any], before: Sequence[Any], key: Callable[[Any], Hashable]
) -> dict[str, object]:
    known = {key(each): each for each in before}
    changed = [each for each in now if known.get(key(each)) != each]
    keys = [key(each) for each in now]
    return {"changed": changed} if keys == list(known) else {"keys": keys, "changed": changed}


def _accounts(snapshot: Snapshot | None) -> list[ProcessAccount]:
    """The accounts of all processes, without what only the next reading of them needs."""
    accounts = snapshot.account.processes.values() if snapshot is not None else ()
    return [
        replace(each, uncounted=tuple(thread._replace(basis=()) for thread in each.uncounted))
        for each in accounts
    ]


def _process_changes(snapshot: Snapshot, before: Snapshot | None) -> Iterable[tuple[object, ...]]:
    for process in snapshot.processes:
        earlier = before.get(process.process) if before is not None else None
        changed = _differing(process, earlier, _names(Process))
        sample = _differing(process.sample, earlier and earlier.sample, _names(ProcSample))
        if changed or sample:
            yield process.process, changed, sample


def _order(snapshot: Snapshot, before: Snapshot | None) -> list[ProcessId] | None:
    order = [each.process for each in snapshot.processes]
    is_same = before is not None and order == [each.process for each in before.processes]
    return None if is_same else order


def _plain(value: Any) -> Any:
    """Values for msgspec that it does not know.

    Raises:
        TypeError: It is something else than a mapping or an array of numbers.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"a snapshot cannot hold {type(value).__name__}")


def _by_process(account: ProcessAccount) -> ProcessId:
    return account.process


def _by_segment(segment: Segment) -> SegmentId:
    return segment.segment


def _by_sequence(entry: LogEntry) -> int:
    return entry.sequence


# --- on the head ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """The entries of a list by key."""

    kind: Any
    key: Callable[[Any], Hashable]
    entries: dict[Hashable, Any]


class SnapshotDecoder:
    """Puts the snapshots of one job together from changes; the counterpart of `SnapshotEncoder`.

    After an error it can no longer be used: a change may have been applied in part.
    """

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._account = Account()
        self._accounts = _Known(ProcessAccount, _by_process, {})
        self._segments = _Known(Segment, _by_segment, {})
        self._log = _Known(LogEntry, _by_sequence, {})
        self._processes: dict[ProcessId, Process] = {}
        self._sizes: dict[tuple[Hashable, Hashable], int] = {}
        """Bytes of each field that is kept, by its owner and its name."""

    def snapshot(self, data: bytes) -> Snapshot:
        """The snapshot after one more change.

        Raises:
            NotASnapshot: The change is none, does not fit, or is larger than any job needs.
        """
        try:
            return self._applied(msgspec.msgpack.decode(_inflated(data), type=_Change))
        except _CANNOT_DECODE as error:
            raise NotASnapshot(clean(f"{type(error).__name__}: {error}")) from None

    def _applied(self, change: _Change) -> Snapshot:
        self._fields |= self._typed(Snapshot, change.fields)
        account = self._typed(Account, change.account)
        accounts = self._listed(self._accounts, change.accounts)
        self._account = replace(
            self._account, **account, processes={each.process: each for each in accounts}
        )
        for each in change.processes:
            self._processes[each.process] = self._process(each)
        if change.order is not None:
            self._processes = {each: self._processes[each] for each in change.order}
        segments = self._listed(self._segments, change.segments)
        log = self._listed(self._log, change.log)
        self._check_size()
        return Snapshot(
            **self._fields,
            processes=tuple(self._processes.values()),
            segments=segments,
            log=log,
            account=self._account,
        )

    def _typed(
        self, kind: type, raws: Mapping[str, msgspec.Raw], owner: Hashable = None
    ) -> dict[str, Any]:
        """Changed fields as values of the model; those that this version does not know are left."""
        decoders = _decoders(kind)
        known = {name: raw for name, raw in raws.items() if name in decoders}
        for name, raw in known.items():
            self._sizes[owner, (kind, name)] = len(raw)
        return {name: _value(raw, decoders[name]) for name, raw in known.items()}

    def _process(self, change: _ProcessChange) -> Process:
        earlier = self._processes.get(change.process)
        changed = self._typed(Process, change.fields, change.process)
        sample = self._typed(ProcSample, change.sample, change.process)
        if earlier is not None:
            return replace(earlier, **changed, sample=replace(earlier.sample, **sample))
        return Process(
            process=change.process, sample=ProcSample(process=change.process, **sample), **changed
        )

    def _listed(self, known: _Known, change: _Members) -> tuple[Any, ...]:
        for raw in change.changed:
            entry = _value(raw, _decoder(known.kind))
            key = known.key(entry)
            known.entries[key] = entry
            self._sizes[(known.kind, key), None] = len(raw)
        if change.keys is not None:
            keys = [tuple(key) if isinstance(key, list) else key for key in change.keys]
            known.entries = {key: known.entries[key] for key in keys}
        return tuple(known.entries.values())

    def _check_size(self) -> None:
        """Forget the sizes of what is no more, and refuse to keep too much.

        Raises:
            ValueError: It is more than a job has.
        """
        owners: set[Hashable] = {None, *self._processes}
        for known in (self._accounts, self._segments, self._log):
            owners.update((known.kind, key) for key in known.entries)
        self._sizes = {place: size for place, size in self._sizes.items() if place[0] in owners}
        if sum(self._sizes.values()) > KEPT_LIMIT_BYTES:
            raise ValueError("the job is larger than can be kept")


def _inflated(data: bytes) -> bytes:
    """The inflated change.

    Raises:
        ValueError: It is too long, incomplete, or has more lists than memory should hold.
    """
    inflater = zlib.decompressobj()
    inflated = inflater.decompress(data, INFLATED_LIMIT_BYTES)
    if not inflater.eof:
        raise ValueError("the change is incomplete or too long")
    if len(inflated.translate(None, _NO_CONTAINERS)) > CONTAINERS_LIMIT:
        raise ValueError("the change has too many parts")
    return inflated


def _value(raw: msgspec.Raw, decode: Callable[[bytes | msgspec.Raw], Any]) -> Any:
    """A value of the model from its bytes, with its text sanitized."""
    plain = msgspec.msgpack.decode(raw)
    cleaned = _cleaned(plain)
    return decode(raw if cleaned == plain else msgspec.msgpack.encode(cleaned))


def _cleaned(value: Any, depth: int = 0) -> Any:
    """A decoded value with its text sanitized; numbers that nothing can be become unknown.

    Raises:
        ValueError: It is nested more deeply than a snapshot.
    """
    if isinstance(value, str):
        return clean(value, MESSAGE_LIMIT)
    if isinstance(value, float):
        return value if abs(value) <= NUMBER_LIMIT else None
    if value is None or isinstance(value, int):
        return value
    if depth > DEPTH_LIMIT:
        raise ValueError(f"nested more than {DEPTH_LIMIT} deep")
    if isinstance(value, list):
        return [_cleaned(each, depth + 1) for each in value]
    if isinstance(value, tuple):  # a list as a key
        return tuple(_cleaned(each, depth + 1) for each in value)
    if isinstance(value, dict):
        return {_cleaned(key, depth + 1): _cleaned(each, depth + 1) for key, each in value.items()}
    raise ValueError(f"a snapshot has no {type(value).__name__}")
