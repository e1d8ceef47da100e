"""The lines of a recording: one input each, as JSON, tagged with its kind.

`{"k": "tree", "v": {...}}`. Readers skip kinds and keys they do not know, so newer recordings can
be read as far as they are understood. Most of a tree does not change from one reading to the next;
such a tree is written as a change of the one before, see `TreeChange`. A key member begins with a
whole tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mpwatch.model.collectives import NcclStatus
from mpwatch.model.events import (
    HookGauges,
    HookHello,
    HookNote,
    HookSlice,
    HookStatus,
    Input,
    WrittenErrors,
    present_kind,
)
from mpwatch.model.ids import ProcessId, SegmentUse
from mpwatch.model.samples import Ended, FdLink, ProcSample, StacksTaken, TreeSample, ValuesRead
from mpwatch.model.sanitize import MESSAGE_LIMIT, clean
from mpwatch.model.source_code import SourceRead

SCHEMA = 1
"""Version of the lines. Raised only when old readers would misunderstand new lines."""

KINDS: dict[str, type] = {
    "tree": TreeSample,
    "ended": Ended,
    "stacks": StacksTaken,
    "hello": HookHello,
    "slice": HookSlice,
    "note": HookNote,
    "gauges": HookGauges,
    "status": HookStatus,
    "nccl": NcclStatus,
    "source": SourceRead,
    "written": WrittenErrors,
    "values": ValuesRead,
}
HEADER_KIND = "header"
CHANGE_KIND = "change"
JOB_KIND = "job"
"""Of the first line of a recording of several nodes; see `mpwatch.nodes.recording`."""

VALUES_LIMIT = 6_000_000
"""Values in one line. The tree of a main process with 64 forked workers has 227,000; the number
grows with the square of the workers of one main process, because each maps all semaphores."""

CANNOT_ENCODE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What msgspec raises for a value JSON cannot hold."""

_KIND_OF: dict[type, str] = {type_: kind for kind, type_ in KINDS.items()}


class Header(Struct, frozen=True):
    """The first line of a recording."""

    schema: int
    mpwatch: str = ""
    """Version of mpwatch that wrote it."""
    host: str = ""
    root: ProcessId | None = None
    at_s: float = 0.0
    """CLOCK_MONOTONIC seconds at its beginning."""
    wall_s: float = 0.0


class LineEncoder:
    """Turns inputs into lines; of a tree only what has changed since the last one."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._before: dict[ProcessId, ProcSample] | None = None

    @property
    def follows_a_tree(self) -> bool:
        """Whether the next tree would be written as a change."""
        return self._before is not None

    def forget(self) -> None:
        """Write the next tree whole."""
        self._before = None

    def header(self, header: Header) -> bytes:
        """The first line of a recording."""
        return self._line(HEADER_KIND, header)

    def line(self, input: Input) -> bytes:
        """One input as a line, with its newline.

        Raises:
            CANNOT_ENCODE: It holds a value that JSON cannot hold.
        """
        if not isinstance(input, TreeSample):
            return self._line(_KIND_OF[type(input)], input)
        before = self._before
        line = (
            self._line("tree", input)
            if before is None
            else self._line(CHANGE_KIND, change_of(input, before))
        )
        self._before = {sample.process: sample for sample in input.processes}
        return line

    def _line(self, kind: str, value: object) -> bytes:
        return self._encode({"k": kind, "v": value}) + b"\n"


class LineDecoder:
    """Turns lines into inputs again; the counterpart of `LineEncoder`."""

    def __init__(self) -> None:
        self.not_understood = 0
        """Lines of a kind or shape this version does not know."""
        self._before: dict[ProcessId, ProcSample] | None = None

    def forget(self) -> None:
        """Lines will be skipped: no change can be read before the next whole tree."""
        self._before = None

    def input(self, line: bytes) -> Input | None:
        """The input of one line; `None` for a header or a line that is not understood."""
        try:
            _check_size(line)
            return self._input(_harmless(line))
        except _NothingBefore:
            return None
        except (ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError):
            self.not_understood += 1
            return None

    def _input(self, line: bytes) -> Input | None:
        envelope = envelope_of(line)
        kind, value = envelope.k, envelope.v
        if kind == HEADER_KIND:
            return None
        if kind not in ("tree", CHANGE_KIND):
            decoded: Input = _decoder(kind)(value)
            if isinstance(decoded, HookNote):
                return replace(decoded, kind=present_kind(decoded.kind))
            return decoded
        # A tree that cannot be read must not have the next change applied to the one before it.
        before, self._before = self._before, None
        tree: TreeSample
        if kind == "tree":
            tree = _decoder(kind)(value)
        elif before is None:
            raise _NothingBefore
        else:
            tree = tree_of(value, before)
        self._before = {sample.process: sample for sample in tree.processes}
        return tree


class _NothingBefore(ValueError):
    """A change of a tree that was not read."""


class Envelope(msgspec.Struct):
    """One line of a recording, its value still as text."""

    k: str
    v: msgspec.Raw


def envelope_of(line: bytes) -> Envelope:
    """The kind of a line and its value.

    Raises:
        msgspec.MsgspecError: It is no such line.
    """
    return _envelopes().decode(line)


def read_header(line: bytes) -> Header | None:
    """The header in the first line of a recording, or `None` if that is none."""
    try:
        envelope = envelope_of(_harmless(line))
        if envelope.k != HEADER_KIND:
            return None
        return msgspec.json.decode(envelope.v, type=Header)
    except (ValueError, msgspec.MsgspecError):
        return None


def kind_of(line: bytes) -> str | None:
    """The kind of a line, `None` if it is none."""
    try:
        return envelope_of(line).k
    except (ValueError, msgspec.MsgspecError):
        return None


def moment_of(input: Input) -> float:
    """The time of an input, CLOCK_MONOTONIC seconds."""
    return input.at_ns / 1e9 if isinstance(input, HookNote) else input.at_s


def _plain(value: Any) -> Any:
    """Mappings other than dict, for msgspec.

    Raises:
        TypeError: It is something else.
    """
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a recording cannot hold {type(value).__name__}")


def _check_size(line: bytes) -> None:
    """Refuse a line of so many values that decoding it could need gigabytes.

    Raises:
        ValueError: It is such a line.
    """
    if len(line) > VALUES_LIMIT:
        values = sum(line.count(mark) for mark in (b",", b"[", b"{"))
        if values > VALUES_LIMIT:
            raise ValueError("a line has too many values")


def _harmless(line: bytes) -> bytes:
    """The line with its texts cleaned: a recording may come from another user.

    Plain ASCII without a backslash cannot hold anything harmful, and that is nearly every line.
    """
    if line.isascii() and b"\\" not in line:
        return line
    return msgspec.json.encode(_cleaned(msgspec.json.decode(line)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value, MESSAGE_LIMIT)
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    if isinstance(value, dict):
        return {clean(name): _cleaned(one) for name, one in value.items()}
    return value


# Decoders are made on first use: making one walks all types, and most commands read no recording.


@cache
def _decoder(kind: str) -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(KINDS[kind]).decode


@cache
def _envelopes() -> msgspec.json.Decoder[Envelope]:
    return msgspec.json.Decoder(Envelope)


T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

Before = Mapping[ProcessId, ProcSample]
"""The samples of the tree before."""

MEMBERS_LIMIT = 1 << 20
"""Members of a list after its splices were joined; a change with more is refused."""
_SEGMENTS, _LINKS = "segments~", "links~"


class New(msgspec.Struct, Generic[T]):
    """Members of a list that were not in the one before."""

    new: tuple[T, ...]


class TreeChange(msgspec.Struct):
    """A tree without its processes, and the changed fields of each process."""

    tree: dict[str, msgspec.Raw]
    processes: list[dict[str, msgspec.Raw]]


def change_of(tree: TreeSample, before: Before) -> dict[str, object]:
    """What differs from the samples before, ready to be encoded as a `TreeChange`."""
    whole = {name: getattr(tree, name) for name in tree.__struct_fields__ if name != "processes"}
    return {
        "tree": whole,
        "processes": [_changed(sample, before.get(sample.process)) for sample in tree.processes],
    }


def tree_of(raw: msgspec.Raw, before: Before) -> TreeSample:
    """The whole tree of a change.

    Raises:
        ValueError: It does not follow from the samples before it.
        msgspec.MsgspecError: It is no change.
    """
    change = _change_decoder(TreeChange)(raw)
    bare: TreeSample = _change_decoder(TreeSample)(
        msgspec.json.encode({**change.tree, "processes": []})
    )
    return replace(bare, processes=tuple(_sample(one, before) for one in change.processes))


def _changed(sample: ProcSample, earlier: ProcSample | None) -> dict[str, object]:
    changed: dict[str, object] = {"process": sample.process}
    for name in _field_decoders():
        value = getattr(sample, name)
        if earlier is None or getattr(earlier, name) != value:
            changed[name] = value
    if earlier is None:
        return changed
    if sample.segments and earlier.segments and "segments" in changed:
        del changed["segments"]
        changed[_SEGMENTS] = _splices(earlier.segments, sample.segments)
    fds, fds_before = sample.fds, earlier.fds
    if fds and fds_before and fds.links and fds_before.links and "fds" in changed:
        changed["fds"] = replace(fds, links=None)
        changed[_LINKS] = _splices(fds_before.links, fds.links)
    return changed


def _sample(changed: Mapping[str, msgspec.Raw], before: Before) -> ProcSample:
    decoders = _field_decoders()
    values = {name: decoders[name](raw) for name, raw in changed.items() if name in decoders}
    process = _change_decoder(ProcessId)(changed["process"])
    earlier = before.get(process)
    if earlier is None:
        return ProcSample(process=process, **values)
    sample = replace(earlier, **values)
    if _SEGMENTS in changed:
        segments = _joined(changed[_SEGMENTS], _segment_splices(), earlier.segments)
        sample = replace(sample, segments=segments)
    if _LINKS in changed and sample.fds is not None and earlier.fds is not None:
        links = _joined(changed[_LINKS], _link_splices(), earlier.fds.links)
        sample = replace(sample, fds=replace(sample.fds, links=links))
    return sample


def _splices(old: Sequence[H], new: Sequence[H]) -> list[list[int] | New[H]]:
    """The new list as runs of the old one (start, count) and members that were not in it."""
    places = {member: place for place, member in enumerate(old)}
    splices: list[list[int] | New[H]] = []
    for member in new:
        last = splices[-1] if splices else None
        place = places.get(member)
        if place is None:
            if isinstance(last, New):
                last.new = (*last.new, member)
            else:
                splices.append(New((member,)))
        elif isinstance(last, list) and sum(last) == place:
            last[1] += 1
        else:
            splices.append([place, 1])
    return splices


def _joined(
    raw: msgspec.Raw,
    decode: Callable[[msgspec.Raw], list[tuple[int, int] | New[T]]],
    old: Sequence[T] | None,
) -> tuple[T, ...]:
    """The list of some splices.

    Raises:
        ValueError: It refers to members that are not there, or to more than can be believed.
    """
    members: list[T] = []
    for splice in decode(raw):
        if isinstance(splice, New):
            members += splice.new
        else:
            start, count = splice
            if not 0 <= start <= start + count <= len(old or ()):
                raise ValueError("a change refers to members that were not there before")
            members += (old or ())[start : start + count]
        if len(members) > MEMBERS_LIMIT:
            raise ValueError("a change has too many members")
    return tuple(members)


# Decoders are made on first use: making one walks all types, and most commands read no recording.


@cache
def _change_decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(kind).decode


@cache
def _field_decoders() -> dict[str, Callable[[bytes | msgspec.Raw], Any]]:
    hints = get_type_hints(ProcSample)
    names = [name for name in ProcSample.__struct_fields__ if name != "process"]
    return {name: msgspec.json.Decoder(hints[name]).decode for name in names}


@cache
def _segment_splices() -> Callable[[msgspec.Raw], list[tuple[int, int] | New[SegmentUse]]]:
    return msgspec.json.Decoder(list[tuple[int, int] | New[SegmentUse]]).decode


@cache
def _link_splices() -> Callable[[msgspec.Raw], list[tuple[int, int] | New[FdLink]]]:
    return msgspec.json.Decoder(list[tuple[int, int] | New[FdLink]]).decode
