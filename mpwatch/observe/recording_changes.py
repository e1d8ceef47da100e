"""A reading of the job as what changed since the one before.

Of each process only the fields that differ are written, and of its two long lists, segments and
descriptors, only the new members: a job with thousands of segments replaces a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdLink, ProcSample, TreeSample
from mpwatch.model.segments import SegmentUse

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

Before = Mapping[ProcessId, ProcSample]
"""The samples of the tree before."""

MEMBERS_LIMIT = 1 << 20
"""Members a list may have after it was put together; a file that asks for more is not believed."""
_SEGMENTS, _LINKS = "segments~", "links~"


class New(msgspec.Struct, Generic[T]):
    """Members of a list that were not in the one before."""

    new: tuple[T, ...]


class Change(msgspec.Struct):
    """A tree without its processes, and of each process what changed."""

    tree: dict[str, msgspec.Raw]
    processes: list[dict[str, msgspec.Raw]]


def change_of(tree: TreeSample, before: Before) -> dict[str, object]:
    """What of a tree differs from the samples before it, ready to be encoded as a `Change`."""
    whole = {f.name: getattr(tree, f.name) for f in fields(tree) if f.name != "processes"}
    return {
        "tree": whole,
        "processes": [_changed(sample, before.get(sample.process)) for sample in tree.processes],
    }


def tree_of(raw: msgspec.Raw, before: Before) -> TreeSample:
    """The whole tree again.

    Raises:
        ValueError: It does not follow from the samples before it.
        msgspec.MsgspecError: It is no change.
    """
    change = _decoder(Change)(raw)
    bare: TreeSample = _decoder(TreeSample)(msgspec.json.encode({**change.tree, "processes": []}))
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
    process = _decoder(ProcessId)(changed["process"])
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
    """The new list again.

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
                raise ValueError("a change refers to what was not there before")
            members += (old or ())[start : start + count]
        if len(members) > MEMBERS_LIMIT:
            raise ValueError("a change grows beyond all measure")
    return tuple(members)


# Decoders are made on first use: making one walks all types, and most commands read no recording.


@cache
def _decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(kind).decode


@cache
def _field_decoders() -> dict[str, Callable[[bytes | msgspec.Raw], Any]]:
    hints = get_type_hints(ProcSample)
    names = [field.name for field in fields(ProcSample) if field.name != "process"]
    return {name: msgspec.json.Decoder(hints[name]).decode for name in names}


@cache
def _segment_splices() -> Callable[[msgspec.Raw], list[tuple[int, int] | New[SegmentUse]]]:
    return msgspec.json.Decoder(list[tuple[int, int] | New[SegmentUse]]).decode


@cache
def _link_splices() -> Callable[[msgspec.Raw], list[tuple[int, int] | New[FdLink]]]:
    return msgspec.json.Decoder(list[tuple[int, int] | New[FdLink]]).decode
