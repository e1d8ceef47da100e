"""What NCCL RAS says of a job, as evidence: ranks that are missing, behind others, or failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.diagnose.analysis.distributed.flight_recorder import number_of, world_size
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.model.collectives import (
    NcclCommunicator,
    NcclPart,
    NcclProcess,
    NcclRemark,
    NcclRemarkKind,
)
from mpwatch.model.snapshot import Process
from mpwatch.model.units import numbers_text, seconds_text

SHOWN = 6
"""Lines of one finding."""
AGE_S = 60.0
"""An older answer is not told."""
SAME_S = 5.0
"""Answers that are equal over this time are told as that."""
_PARTS = 4
_MISSING: Mapping[NcclRemarkKind, tuple[str, str]] = {
    "dead": ("is considered dead", "are considered dead"),
    "unresponsive": ("is not responding", "are not responding"),
    "no-data": ("has sent no data", "have sent no data"),
    "not-in-it": (
        "responds, but is not part of it (not yet, or no longer)",
        "respond, but are not part of it (not yet, or no longer)",
    ),
}


def nccl_words(index: Index, processes: Iterable[Process]) -> tuple[str, ...]:
    """What NCCL RAS says, where one of some processes has NCCL; empty where it was not asked."""
    if not index.snapshot.nccl or not any(each.has_nccl for each in processes):
        return ()
    return _words(index)


class Late(Struct, frozen=True):
    """Ranks of a communicator for which the others wait, as NCCL RAS says."""

    communicator: str
    ranks: tuple[int, ...]
    """Their numbers in the communicator."""
    next_call: str
    """What they have not launched, `AllReduce 48121`; empty where they do not respond."""
    same_s: float
    """For how long the answers have been the same."""

    @property
    def words(self) -> str:
        """`rank 3 of communicator 0x1f`."""
        numbers = numbers_text(self.ranks)
        return f"rank{'s' * (len(self.ranks) > 1)} {numbers} of communicator {self.communicator}"


@derived
def late_ranks(index: Index) -> tuple[Late, ...]:
    """Ranks that do not respond, or that have launched fewer collectives of one kind than others.

    Only if successive answers were the same. Where ranks differ in several kinds of collectives,
    none of them is late.
    """
    status = index.snapshot.nccl
    if status is None or status.answer is None or status.since_s is None:
        return ()
    same_s = status.at_s - status.since_s
    if same_s < SAME_S or index.snapshot.at_s - status.at_s > AGE_S:
        return ()
    found = (_late(each, same_s) for each in status.answer.communicators)
    return tuple(late for late in found if late is not None)


class Pending(Struct, frozen=True):
    """A collective that a rank has launched and another rank of its communicator has not."""

    communicator: str
    call: str
    """`AllReduce 48121`."""
    same_s: float
    """As of `Late`."""


@derived
def pending_calls(index: Index) -> Mapping[int, Pending]:
    """What each rank of the whole job has launched before others, by its number.

    Of communicators of all ranks only: in one of some ranks, these have other numbers.
    """
    status = index.snapshot.nccl
    if status is None or status.answer is None or status.since_s is None:
        return {}
    same_s = status.at_s - status.since_s
    if same_s < SAME_S or index.snapshot.at_s - status.at_s > AGE_S:
        return {}
    ranks = [p for p in index.snapshot.living() if p.has_nccl and number_of(p) is not None]
    size = max((world_size(each) or len(ranks) for each in ranks), default=0)
    found: dict[int, Pending] = {}
    for each in status.answer.communicators:
        if each.size not in (None, size) or each.remarks:
            continue
        parts: defaultdict[str, list[NcclPart]] = defaultdict(list)
        for part in each.parts:
            parts[part.what].append(part)
        parts.pop("status", None)
        for what, those in parts.items():
            most = max(those, key=lambda part: int(part.value))
            if sum(part.size for part in those) != size or len(those) < 2:
                continue
            for number in most.ranks:
                call = f"{what or 'collective'} {int(most.value)}"
                found[number] = Pending(each.name, call, same_s)
    return found


def _late(communicator: NcclCommunicator, same_s: float) -> Late | None:
    absent = {r.rank for r in communicator.remarks if r.kind in ("dead", "unresponsive")}
    if absent:
        return Late(communicator.name, tuple(sorted(absent)), "", same_s)
    if communicator.remarks or any(part.what == "status" for part in communicator.parts):
        return None
    counts = sorted(communicator.parts, key=lambda part: int(part.value))
    if len({part.what for part in counts}) != 1 or not counts[0].ranks:
        return None
    kind = counts[0].what or "collective"
    return Late(communicator.name, counts[0].ranks, f"{kind} {int(counts[0].value) + 1}", same_s)


@derived
def _words(index: Index) -> tuple[str, ...]:
    status = index.snapshot.nccl
    if status is None or status.answer is None or index.snapshot.at_s - status.at_s > AGE_S:
        return ()
    answer = status.answer
    lines = [line for each in answer.communicators for line in _communicator_words(each)]
    told = {remark.pid for each in answer.communicators for remark in each.remarks}
    lines += [_process_words(each) for each in answer.processes if each.pid not in told]
    if not lines:
        return (_NOTHING,) if answer.total else ()
    same_s = status.at_s - (status.at_s if status.since_s is None else status.since_s)
    if same_s >= SAME_S:
        lines[0] += f" (the same in all answers of {seconds_text(same_s)})"
    if len(lines) > SHOWN:
        lines[SHOWN - 1 :] = [f"{len(lines) - SHOWN + 1} more such lines"]
    return tuple(f"NCCL RAS: {line}" for line in lines)


_NOTHING = (
    "NCCL RAS: all ranks of all communicators respond, and those of each have launched the same "
    "number of collectives"
)


def _communicator_words(communicator: NcclCommunicator) -> Iterator[str]:
    name = f"communicator {communicator.name}"
    yield from _missing_words(name, communicator)
    failed: defaultdict[str, list[NcclRemark]] = defaultdict(list)
    for remark in communicator.remarks:
        if remark.kind == "error":
            failed[remark.error].append(remark)
    for error, remarks in failed.items():
        yield f"{_ranks(remarks)} of {name} reported: {error}{_place(remarks)}"
    parts: defaultdict[str, list[NcclPart]] = defaultdict(list)
    for part in communicator.parts:
        parts[part.what].append(part)
    for what, those in parts.items():
        yield f"{name}: {_parts_words(what, those)}"


def _missing_words(name: str, communicator: NcclCommunicator) -> Iterator[str]:
    """The ranks that sent no data, by reason; how many, where it is not said which."""
    known = 0
    for kind, (one, several) in _MISSING.items():
        remarks = [remark for remark in communicator.remarks if remark.kind == kind]
        known += len(remarks)
        if remarks:
            verb = one if len(remarks) == 1 else several
            yield f"{_ranks(remarks)} of {name} {verb}{_place(remarks)}"
    more = communicator.missing - known
    if more > 0:
        other = " other" if known else ""
        yield f"{more}{other} rank{'s' if more > 1 else ''} of {name} sent no data"


def _parts_words(what: str, parts: Sequence[NcclPart]) -> str:
    """`ranks 0-2 at AllReduce count 48121, rank 3 at 48120`."""
    unit = "status" if what == "status" else f"{what or 'collective'} count"
    words = [f"{_of_part(part)} at {part.value}" for part in parts[:_PARTS]]
    words[0] = f"{_of_part(parts[0])} at {unit} {parts[0].value}"
    more = sum(part.size for part in parts[_PARTS:])
    return ", ".join(words) + (f", {more} more ranks at others" if more else "")


def _of_part(part: NcclPart) -> str:
    if not part.ranks:
        return f"{part.size} rank{'s' if part.size != 1 else ''}"
    return f"rank{'s' if len(part.ranks) > 1 else ''} {numbers_text(part.ranks)}"


def _ranks(remarks: Sequence[NcclRemark]) -> str:
    numbers = {remark.rank for remark in remarks}
    return f"rank{'s' if len(numbers) > 1 else ''} {numbers_text(numbers)}"


def _place(remarks: Sequence[NcclRemark]) -> str:
    """The process of a single rank; of several their machine, if it is one."""
    hosts = {remark.host for remark in remarks}
    host = hosts.pop() if len(hosts) == 1 else ""
    if len(remarks) == 1 and remarks[0].pid is not None:
        return f" (process {remarks[0].pid}{f' on {host}' if host else ''})"
    return f" (on {host})" if host else ""


def _process_words(process: NcclProcess) -> str:
    """A process that RAS does not reach, where no communicator names it."""
    state = "is considered dead" if process.is_dead else "is not responding"
    return f"process {process.pid} on {process.host}, with GPU {process.gpus}, {state}"
