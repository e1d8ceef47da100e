"""What torch's flight recorder shows of ranks: which rank is waited for in a collective, and why.

Of a running job each rank is read by itself (`recorded`: see `collectives` in `hook.wire`), of a
dead one the files of several ranks together (`RecordedRanks`).

Each rank numbers its calls of a process group, and a collective ends when all ranks of the group
have called it. So a rank that has an unfinished collective waits for those that have called fewer
of the group. Those that it waits for may wait themselves, in another group: the ranks at the end of
these chains are the ones to look at, the others are their victims.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from mpwatch.describe.frames import at_frame
from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.stack_patterns import user_frame
from mpwatch.model.collectives import RankRecord, Recorded, RecordedGroup
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import HookState
from mpwatch.model.snapshot import Process
from mpwatch.model.units import numbers_text, seconds_text

STUCK = "rank-stuck-in-collective"
MISMATCH = "collective-mismatch"
"""The rules about ranks that wait for each other, whatever the source of a finding is."""
ONE_SHAPE = frozenset(("all_reduce", "broadcast", "reduce", "barrier", "all_gather"))
"""Operations for which all ranks give tensors of the same shape and type."""

_ANSWERING: frozenset[HookState] = frozenset(("ready", "silent"))
_NCCL = "nccl:"
"""How the name of a process group of NCCL begins, see `mpwatch.hook.checks.flight_recorder`."""

# Sentences of findings, the same for a running job and for the files that a dead one has left.
WAIT_FOR_TIMEOUT = (
    "None of them can continue: they wait until the timeout of the process group expires."
)
DIFFERENT_SHAPES = "The ranks call the same collective with tensors of a different shape or type."
SAME_SHAPES = "Give tensors of one shape and type on all ranks: pad the last batch, or drop it."
COMPARE_CALLS = (
    "Compare the lines above: all ranks have to call the same collectives in the same order. "
    "TORCH_DISTRIBUTED_DEBUG=DETAIL checks each call and names the first difference, at a cost in "
    "speed."
)


def recorded(process: Process) -> tuple[Recorded, ...]:
    """What the flight recorder of a rank holds of each group; empty where it was not read.

    The hook reports it once a process has neither begun nor finished a collective for some seconds;
    without a hook it is read through the worker server of a process that has one.
    """
    gauge = process.gauges.get("collectives")
    if not isinstance(gauge, Mapping):
        return ()
    states, groups = gauge.get("states"), gauge.get("groups")
    facts = groups if isinstance(groups, Mapping) else {}
    return tuple(_parsed(states if isinstance(states, list) else [], facts))


def is_recorder_due(process: Process, *, has_server: bool = False) -> bool:
    """Whether torch's recorder of a rank can be read, and was not since the rank moved last.

    It is read once nothing has moved for some seconds. NCCL's recorder is not read in running jobs.

    Args:
        process: The rank.
        has_server: Whether it can be asked without a hook.
    """
    if process.is_gone or recorded(process):
        return False
    gauge = process.gauges.get("collectives")
    if not isinstance(gauge, Mapping):
        return has_server or (process.hook.state in _ANSWERING and not process.gauges)
    states = gauge.get("states")
    return any(
        isinstance(state, Mapping)
        and not str(state.get("id", "")).startswith(_NCCL)
        and _has_called(state)
        for state in (states if isinstance(states, list) else ())
    )


def _has_called(state: Mapping[object, object]) -> bool:
    """Whether a rank has called a collective of a process group."""
    enqueued = state.get("enqueued")
    return isinstance(enqueued, int) and enqueued >= 0


def unfinished(process: Process) -> Recorded | None:
    """The collective that a rank is in; `None` if in none, in several groups, or if unknown."""
    found = [each for each in recorded(process) if each.is_unfinished]
    return found[0] if len(found) == 1 else None


class Launched(Struct, frozen=True):
    """How many collectives of NCCL a rank has launched in one group, and how many have ended."""

    launched: int
    ended: int
    unchanged_s: float
    """For how long neither number has changed."""


def launched(process: Process) -> Mapping[str, Launched]:
    """The counts of a rank, by torch's number of the group in the process; empty if not known.

    A collective of NCCL is launched by its call, which returns at once.
    """
    gauge = process.gauges.get("collectives")
    states = gauge.get("states") if isinstance(gauge, Mapping) else None
    found: dict[str, Launched] = {}
    for state in states if isinstance(states, list) else ():
        if not isinstance(state, Mapping):
            continue
        name, begun, ended, unchanged_ns = (state.get(key) for key in _COUNTS)
        kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
        if (
            kind == "nccl"
            and isinstance(begun, int)
            and isinstance(ended, int)
            and isinstance(unchanged_ns, int)
        ):
            found[number] = Launched(begun, ended, unchanged_ns / 1e9)
    return found


_COUNTS = ("id", "enqueued", "completed", "unchanged_ns")


class LaunchedApart(Struct, frozen=True):
    """A group in which some ranks wait for what others have not launched."""

    group: str
    """As of `launched`."""
    counts: tuple[Launched, ...]
    """Of the ranks, in their order."""
    least: int
    """What all of them have launched, and what has ended on those that have launched more."""

    @property
    def unchanged_s(self) -> float:
        """For how long no count of any rank has changed."""
        return min(each.unchanged_s for each in self.counts)


def launched_apart(ranks: Sequence[Process]) -> Iterator[LaunchedApart]:
    """Yield the groups in which some of these ranks have launched more than others.

    Only where all that all have launched has ended on those, and nothing since.
    """
    counts = [launched(rank) for rank in ranks]
    for group in counts[0] if counts else ():
        known = tuple(each[group] for each in counts if group in each)
        least = min(each.launched for each in known)
        ahead = [each for each in known if each.launched > least]
        if len(known) == len(ranks) and ahead and all(each.ended == least for each in ahead):
            yield LaunchedApart(group, known, least)


def number_of(process: Process) -> int | None:
    """The number of a rank, by its place in the first process group; `None` if unknown."""
    if process.sample.rank is not None:
        return process.sample.rank
    gauge = process.gauges.get("collectives")
    groups = gauge.get("groups") if isinstance(gauge, Mapping) else None
    first = groups.get("0") if isinstance(groups, Mapping) else None
    rank = first.get("rank") if isinstance(first, Mapping) else None
    return rank if type(rank) is int else None


def world_size(process: Process) -> int | None:
    """The number of ranks of the job according to its environment; `None` if not set."""
    text = process.sample.environment.get("WORLD_SIZE", "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _parsed(states: list[object], facts: Mapping[object, object]) -> Iterator[Recorded]:
    """The states that are as `hook.wire` says; any other, of another program, is left out."""
    for state in states:
        if not isinstance(state, Mapping):
            continue
        number, group, operation = (state.get(key) for key in ("number", "group", "operation"))
        if type(number) is not int or type(group) is not str or type(operation) is not str:
            continue
        fact = facts.get(group)
        yield Recorded(
            group=group,
            description=str(state.get("description") or ""),
            operation=operation.rpartition(":")[2],
            number=number,
            sizes=str(state.get("sizes") or ""),
            types=str(state.get("types") or ""),
            is_unfinished=state.get("is_unfinished") is True,
            ranks=_ranks(fact) if isinstance(fact, Mapping) else None,
        )


def _ranks(fact: Mapping[object, object]) -> frozenset[int] | None:
    """The ranks of a group, unless the list was cut."""
    names = str(fact.get("ranks") or "").split(", ")
    if len(names) != fact.get("size") or not all(n.isascii() and n.isdecimal() for n in names):
        return None
    return frozenset(map(int, names))


DEFAULT_GROUP = "0"
"""Name of the group of all ranks (`_process_group_name`, torch 2.1 to 2.13)."""
SURE_S = 60.0
"""A collective that has lasted this long never ends; the same limit as for a running job."""
SHORT_S = 10.0
AGE_LIMIT_S = 7 * 86400.0
"""A file that seems to be written later than this was copied without its time."""
EARLY_S = 1.0
MANY = 64
"""Times as many ranks as there are files are not believed: a number in a name may be another."""
_SHOWN = 8
_NEED_ALL = ("all_reduce", "allreduce", "all_gather", "reduce_scatter", "barrier")
"""Operations that no rank finishes before all ranks have called them. A broadcast ends on its
source, and an all_to_all on a rank that receives nothing."""

WaitKind = Literal["not-called", "behind", "transfer"]


class RankWait(Struct, frozen=True):
    """One rank that waits for another in a collective or a transfer."""

    rank: int
    other: int
    call: Recorded
    """The unfinished call of the rank that waits."""
    kind: WaitKind
    """The other has not called it, has not finished an earlier one of the group, or has not called
    the other side of a transfer."""


class RecordedRanks:
    """The records of the ranks of a job, and what follows from them."""

    def __init__(self, records: Sequence[RankRecord]) -> None:
        self.by_rank: Mapping[int, RankRecord] = {record.rank: record for record in records}
        self._members: dict[str, tuple[int, ...]] = {}
        self._late: dict[tuple[str, int], list[tuple[int, WaitKind]]] = {}
        newest_s = (
            max((c.created_wall_ns or 0 for r in records for c in _calls_of(r)), default=0) / 1e9
        )
        self.early = tuple(
            record.rank for record in records if record.written_wall_s < newest_s - EARLY_S
        )
        """Ranks whose file was written before another rank made its newest call: what they have
        called since is not known."""
        self.mismatches = tuple(self._find_mismatches())
        self.waits = tuple(wait for rank in self.by_rank for wait in self._waits_of(rank))
        self.own = tuple(self._find_own())

    # --- facts -----------------------------------------------------------------------------------

    def ranks_of(self, name: str) -> tuple[int, ...]:
        """The ranks of a group: as recorded, else those that have called one of its collectives.

        gloo records no members (torch 2.13), but those of the default group are all ranks.
        """
        if name not in self._members:
            groups = {r: rec.groups[name] for r, rec in self.by_rank.items() if name in rec.groups}
            known = next((group.ranks for group in groups.values() if group.ranks), None)
            count = max(self.by_rank) + 1
            if known is None and name == DEFAULT_GROUP and count <= MANY * len(self.by_rank):
                known = tuple(range(count))
            callers = tuple(r for r, g in groups.items() if g.calls or g.transfers)
            self._members[name] = known or callers
        return self._members[name]

    def called(self, rank: int, name: str) -> int | None:
        """Number of the newest collective of a group that a rank has called; `None` if unknown.

        A file with nothing but unfinished collectives may hold none of the group. The number in the
        status of the groups is then found by the number that the group has in the other processes,
        because programs make their groups in the same order. It counts transfers as well, so it
        says nothing about a group with transfers.
        """
        record = self.by_rank.get(rank)
        if record is None or rank in self.early:
            return None
        group = record.groups.get(name)
        if group is not None and group.called is not None:
            return group.called
        peers = [g for g in self._groups(name).values() if g.calls or g.transfers]
        ids = {peer.local_id for peer in peers}
        if len(ids) != 1 or any(peer.transfers for peer in peers):
            return None
        return record.statuses.get(ids.pop(), 0)

    def _groups(self, name: str) -> dict[int, RecordedGroup]:
        return {r: rec.groups[name] for r, rec in self.by_rank.items() if name in rec.groups}

    def unfinished(self) -> Iterator[tuple[int, Recorded]]:
        """The oldest unfinished collective of each rank in each group."""
        for rank, record in self.by_rank.items():
            for group in record.groups.values():
                if group.unfinished is not None:
                    yield rank, group.unfinished

    # --- conclusions -----------------------------------------------------------------------------

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that others wait for and that wait for none; and those in `own`."""
        odd = {rank for calls in self.mismatches for rank in calls}
        waiting = {wait.rank for wait in self.waits} | odd
        ends = {wait.other for wait in self.waits} - waiting
        return tuple(sorted(ends | {rank for rank, _, _ in self.own}))

    def victims(self, culprits: Iterable[int]) -> set[int]:
        """The ranks that wait for one of some ranks, directly or through others."""
        found = set(culprits)
        first = set(found)
        grown = True
        while grown:
            more = {wait.rank for wait in self.waits if wait.other in found} - found
            found |= more
            grown = bool(more)
        return found - first

    def _find_mismatches(self) -> Iterator[dict[int, Recorded]]:
        """The calls of one number of one group, by rank, where they differ."""
        at: defaultdict[tuple[str, int], dict[int, Recorded]] = defaultdict(dict)
        wanted = {(call.group, call.number) for _, call in self.unfinished()}
        for rank, record in self.by_rank.items():
            for call in _calls_of(record):
                if call.other_place is None and (call.group, call.number) in wanted:
                    at[call.group, call.number].setdefault(rank, call)
        first: set[str] = set()
        for group, number in sorted(at):
            calls = at[group, number]
            if group not in first and len({_kind(call) for call in calls.values()}) > 1:
                first.add(group)
                yield calls

    def _waits_of(self, rank: int) -> Iterator[RankWait]:
        for group in self.by_rank[rank].groups.values():
            call = group.unfinished
            if call is not None:
                for other, kind in self._late_for(call):
                    if other != rank:
                        yield RankWait(rank, other, call, kind)
            for transfer in group.transfers:
                other_rank = _partner(group, transfer)
                if other_rank is not None and not self._is_met(rank, group, other_rank, transfer):
                    yield RankWait(rank, other_rank, transfer, "transfer")

    def _late_for(self, call: Recorded) -> Sequence[tuple[int, WaitKind]]:
        """The ranks that those in a collective wait for, which may be thousands."""
        key = call.group, call.number
        if key not in self._late:
            reasons = ((rank, self._reason(call, rank)) for rank in self.ranks_of(call.group))
            self._late[key] = [(rank, kind) for rank, kind in reasons if kind is not None]
        return self._late[key]

    def _reason(self, call: Recorded, other: int) -> WaitKind | None:
        """Why a collective waits for a rank of its group; `None` if it does not."""
        called = self.called(other, call.group)
        if called is None:
            return None
        if called < call.number:
            return "not-called"
        group = self.by_rank[other].groups.get(call.group)
        oldest = None if group is None else group.unfinished
        return "behind" if oldest is not None and oldest.number < call.number else None

    def _is_met(self, rank: int, group: RecordedGroup, other: int, transfer: Recorded) -> bool:
        """Whether the other rank is in the other side of a transfer, or that is not known."""
        record = self.by_rank.get(other)
        if record is None or other in self.early or group.ranks is None or rank not in group.ranks:
            return True
        theirs = record.groups.get(group.name)
        place = group.ranks.index(rank)
        return theirs is not None and any(
            each.other_place == place and each.operation != transfer.operation
            for each in theirs.transfers
        )

    def _find_own(self) -> Iterator[tuple[int, Recorded, tuple[int, ...]]]:
        """Ranks that do not finish a collective that others have finished; and which others.

        As these have finished it, no rank is missing in it.
        """
        seen: set[int] = set()
        found: dict[tuple[str, int], tuple[int, ...]] = {}
        for rank, call in self.unfinished():
            if rank in seen or rank in self.early:
                continue
            if not call.operation.lstrip("_").startswith(_NEED_ALL):
                continue
            key = call.group, call.number
            if key not in found:
                found[key] = tuple(self._finished(*key))
            if found[key]:
                seen.add(rank)
                yield rank, call, found[key]

    def _finished(self, name: str, number: int) -> Iterator[int]:
        """The ranks that have finished a collective."""
        for rank, group in self._groups(name).items():
            oldest = group.unfinished
            if (group.called or 0) >= number and (oldest is None or oldest.number > number):
                yield rank


def _calls_of(record: RankRecord) -> Iterator[Recorded]:
    for group in record.groups.values():
        yield from group.calls
        yield from group.transfers


def _kind(call: Recorded) -> tuple[str, ...]:
    """What has to be the same on all ranks."""
    if call.operation in ONE_SHAPE:
        return call.operation, call.sizes, call.types
    return (call.operation,)


def _partner(group: RecordedGroup, transfer: Recorded) -> int | None:
    """The job's number of the other rank of a transfer."""
    place = transfer.other_place
    if place is None or group.ranks is None or place >= len(group.ranks):
        return None
    return group.ranks[place]


# --- findings ------------------------------------------------------------------------------------


def findings_of(records: Sequence[RankRecord]) -> list[Finding]:
    """What keeps the ranks from continuing, the most certain first; nothing if all has finished."""
    if not records:
        return []
    ranks = RecordedRanks(records)
    found = [_mismatch(ranks, calls) for calls in ranks.mismatches]
    for rank, call, done in ranks.own:
        found.append(_own(ranks, rank, call, done))
    found += _awaited(ranks)
    if not found and ranks.waits:
        found.append(_cycle(ranks))
    if not found:
        found += _without_culprit(ranks)
    return sorted(found, key=lambda finding: -finding.severity)


def _awaited(ranks: RecordedRanks) -> Iterator[Finding]:
    """A finding for the ranks that others wait for in the same call."""
    own = {rank for rank, _, _ in ranks.own}
    groups: defaultdict[tuple[str, int, WaitKind], list[int]] = defaultdict(list)
    for culprit in ranks.culprits:
        if culprit not in own:
            waits = [wait for wait in ranks.waits if wait.other == culprit]
            counts: defaultdict[tuple[str, int, WaitKind], int] = defaultdict(int)
            for wait in waits:
                counts[wait.call.group, wait.call.number, wait.kind] += 1
            groups[max(counts, key=lambda key: (key[2] != "transfer", counts[key]))].append(culprit)
    for key, culprits in groups.items():
        waits = [
            wait
            for wait in ranks.waits
            if wait.other in culprits and (wait.call.group, wait.call.number, wait.kind) == key
        ]
        yield _stuck(ranks, waits, culprits)


def _stuck(ranks: RecordedRanks, waits: Sequence[RankWait], culprits: Sequence[int]) -> Finding:
    """The finding that some ranks wait for others that have not made a call."""
    call, kind = waits[0].call, waits[0].kind
    inside = sorted({wait.rank for wait in waits})
    names, verb = _names(culprits), "has" if len(culprits) == 1 else "have"
    evidence = list(_calls(ranks, {wait.rank: wait.call for wait in waits}))
    evidence += [_newest(ranks, rank, call) for rank in culprits[:3]]
    others = ranks.victims(culprits) - set(inside)
    if others:
        wait = wait_verb(others)
        these = "it" if len(culprits) == 1 else "these"
        evidence.append(
            f"{_names(others)} {wait} as well, for {these} or for ranks that wait for {these}"
        )
    if kind == "transfer":
        missing = "recv" if call.operation == "send" else "send"
        reason = (
            f"{call.operation} ends when the other rank has called {missing}, and {names} {verb} "
            "not."
        )
    else:
        reason = (
            f"{call.operation} ends when all ranks of its group have called it, and {names} "
            f"{verb} not."
        )
    it, them = ("it waits", "it") if len(culprits) == 1 else ("they wait", "them")
    has_transfers = any(g.transfers for r in ranks.by_rank.values() for g in r.groups.values())
    where = (
        "collectives" if has_transfers else "recorded collectives (gloo records no send or recv)"
    )
    return Finding(
        rule=STUCK,
        severity=_severity(ranks, {wait.rank: wait.call for wait in waits}),
        subject=_names(culprits),
        summary=f"{_counted(inside)} {wait_verb(inside)} in {call.operation} for {names}",
        evidence=tuple(evidence),
        cause=(
            f"{reason} In what was recorded {it} for no other rank: what keeps {them} is outside "
            f"of the {where}. The ranks that wait are not the cause, whichever of them reports a "
            "timeout."
        ),
        advice=(
            f"Look what {names} did after the last call above: the log of that rank, its exit "
            "status, or, while it still runs, mpwatch diagnose PID. If it has done fewer steps "
            "than the others, give all ranks the same number (drop_last, or the Join context of "
            "DistributedDataParallel); if it does something alone (a checkpoint, a validation), "
            "let the others not wait for it in a collective, or raise the timeout of the group."
        ),
    )


def _own(ranks: RecordedRanks, rank: int, call: Recorded, done: Sequence[int]) -> Finding:
    """The finding that one rank does not finish what others have finished."""
    others = ranks.victims([rank])
    evidence = [*_calls(ranks, {rank: call}), f"{_names(done)} finished it"]
    if others:
        wait = wait_verb(others)
        evidence.append(f"{_names(others)} {wait} for rank {rank}, directly or through others")
    return Finding(
        rule=STUCK,
        severity=_severity(ranks, {rank: call}),
        subject=f"rank {rank}",
        summary=f"rank {rank} does not finish {call.operation}, which {_names(done)} finished",
        evidence=tuple(evidence),
        cause=(
            f"No rank finishes {call.operation} before all of its group have called it, so rank "
            f"{rank} waits for no other rank there. Its own device or process has stopped, or its "
            "connection: a kernel before it that does not end, an error of the GPU, a failed link."
        ),
        advice=(
            f"Look at the machine of rank {rank}: its own log, the kernel log (Xid), nvidia-smi, "
            "and the state of its network. Start the job without that device to see whether it "
            "continues."
        ),
    )


def _mismatch(ranks: RecordedRanks, calls: Mapping[int, Recorded]) -> Finding:
    """The finding that the ranks have made different calls as the same one of a group."""
    kinds: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, call in calls.items():
        kinds[_kind(call)].append(rank)
    parts = sorted(kinds.values(), key=len, reverse=True)
    has_one_operation = len({call.operation for call in calls.values()}) == 1
    words = []
    for part in parts[:4]:
        call = calls[part[0]]
        what = f"{call.operation} of {call.types} {call.sizes}" if has_one_operation else None
        words.append(f"{_names(part)} in {what or call.operation}")
    first = next(iter(calls.values()))
    cause = (
        DIFFERENT_SHAPES
        if has_one_operation
        else f"The ranks have made the same number of calls before ({first.number - 1}) and then "
        "called different ones: a branch depends on the rank or on its data, or some made another "
        "call in place of one of the others."
    )
    return Finding(
        rule=MISMATCH,
        severity=max(Severity.WARNING, _severity(ranks, calls)),
        subject=first.call,
        summary=f"the ranks differ in {first.call}: {', '.join(words)}",
        evidence=tuple(
            line for part in parts for line in _calls(ranks, {r: calls[r] for r in part})
        ),
        cause=f"{cause} {WAIT_FOR_TIMEOUT}",
        advice=SAME_SHAPES if has_one_operation else COMPARE_CALLS,
    )


def _cycle(ranks: RecordedRanks) -> Finding:
    """The finding that all that are waited for wait themselves."""
    awaited = {wait.other for wait in ranks.waits}
    calls = {wait.rank: wait.call for wait in reversed(ranks.waits) if wait.rank in awaited}
    evidence = list(_calls(ranks, calls))
    evidence += [
        f"rank {wait.rank} waits in {wait.call.operation} ({wait.call.call}) for rank {wait.other}"
        for wait in ranks.waits
        if wait.rank in calls and wait.call is calls[wait.rank]
    ][:_SHOWN]
    return Finding(
        rule=MISMATCH,
        severity=_severity(ranks, calls),
        summary=f"{_names(calls)} wait for each other in different collectives",
        evidence=tuple(evidence),
        cause=(
            "Each of them is in a collective or transfer that another of them has not called. "
            f"{WAIT_FOR_TIMEOUT}"
        ),
        advice=(
            "Call the collectives of several groups in the same order on all ranks. For transfers "
            "let one side send first and the other receive first, or use batch_isend_irecv."
        ),
    )


def _without_culprit(ranks: RecordedRanks) -> Iterator[Finding]:
    """The oldest collective that all recorded ranks of its group are in, if there is one."""
    at: defaultdict[tuple[str, int], dict[int, Recorded]] = defaultdict(dict)
    for rank, call in ranks.unfinished():
        at[call.group, call.number][rank] = call
    if not at:
        return
    calls = min(at.values(), key=lambda c: min(call.created_wall_ns or 0 for call in c.values()))
    first = next(iter(calls.values()))
    absent = sorted(set(ranks.ranks_of(first.group)) - set(ranks.by_rank))
    severity = min(_severity(ranks, calls), Severity.WARNING)
    evidence = tuple(_calls(ranks, calls))
    if absent:
        yield Finding(
            rule=STUCK,
            severity=severity,
            subject=_names(absent),
            summary=f"{_counted(calls)} in {first.operation}, and no file of {_names(absent)}",
            evidence=(*evidence, f"no file of {_names(absent)}, of the same group, was read"),
            cause=(
                f"All ranks that left a file have called {first.operation}. Possible: a rank "
                "without a file has ended, or was not able to write one, and is the one that they "
                "wait for."
            ),
            advice=(
                "Add the files of these ranks, which other machines may have, or look at their "
                "logs and exit status."
            ),
        )
    elif len(calls) > 1 and set(calls) >= set(ranks.ranks_of(first.group)):
        yield Finding(
            rule=STUCK,
            severity=severity,
            summary=f"all {len(calls)} ranks of a group are in {first.operation}: not finished",
            evidence=evidence,
            cause=(
                f"All ranks of the group have called {first.operation}, and none has finished it. "
                "Possible: the connection between them or a GPU failed, or the groups of the job "
                "are used in a different order on different ranks."
            ),
            advice=(
                "Look at the logs with NCCL_DEBUG=WARN, and the kernel logs of the machines. If it "
                "happens again, TORCH_DISTRIBUTED_DEBUG=DETAIL checks each call."
            ),
        )


# --- words ---------------------------------------------------------------------------------------


def _calls(ranks: RecordedRanks, calls: Mapping[int, Recorded]) -> Iterator[str]:
    """The calls of some ranks, equal ones together: `ranks 0-1: collective 4 of ...`."""
    alike: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, call in calls.items():
        alike[call.words, _place(call)].append(rank)
    for (words, place), group in list(alike.items())[:_SHOWN]:
        ages = [age for rank in group if (age := _age_s(ranks, rank, calls[rank])) is not None]
        age_words = f" {seconds_text(min(ages))} before its file was written" if ages else ""
        called = f", called{place}{age_words}" if place or age_words else ""
        yield f"{_names(group)}: {words}{called}"


def _newest(ranks: RecordedRanks, rank: int, call: Recorded) -> str:
    """What a rank that has not made a call has called last of the same group, or at all."""
    record = ranks.by_rank[rank]
    if call.other_place is None:
        group = record.groups.get(call.group)
        newest = None if group is None else group.newest
        if newest is not None:
            return f"rank {rank}, newest of that group: {newest.words}{_called_at(newest)}"
        called = ranks.called(rank, call.group)
        if called:
            return f"rank {rank} has called {called} collectives of that group"
    newest = max(_calls_of(record), key=lambda each: each.created_wall_ns or 0, default=None)
    if newest is None:
        return f"the file of rank {rank} holds no unfinished collective"
    return f"rank {rank}, newest of all its groups: {newest.words}{_called_at(newest)}"


def _called_at(call: Recorded) -> str:
    place = _place(call)
    return f", called{place}" if place else ""


def _place(call: Recorded) -> str:
    """` at train.py:18 step`; empty without a stack."""
    frame = user_frame(call.stack)
    return at_frame(frame)


def _age_s(ranks: RecordedRanks, rank: int, call: Recorded) -> float | None:
    """Seconds between a call and the writing of the file; `None` if the file was copied since."""
    if call.created_wall_ns is None:
        return None
    age_s = ranks.by_rank[rank].written_wall_s - call.created_wall_ns / 1e9
    return age_s if 0.0 <= age_s <= AGE_LIMIT_S else None


def _severity(ranks: RecordedRanks, calls: Mapping[int, Recorded]) -> Severity:
    """By how long the ranks had waited when the files were written."""
    ages = [age for rank, call in calls.items() if (age := _age_s(ranks, rank, call)) is not None]
    if not ages:
        return Severity.WARNING
    longest_s = max(ages)
    if longest_s >= SURE_S:
        return Severity.CRITICAL
    return Severity.WARNING if longest_s >= SHORT_S else Severity.INFO


def _names(ranks: Iterable[int]) -> str:
    """`rank 2`, `ranks 0-3, 5`."""
    numbers = sorted(set(ranks))
    return f"rank{'s' if len(numbers) > 1 else ''} {numbers_text(numbers)}"


def _counted(ranks: Iterable[int]) -> str:
    count = len(set(ranks))
    return f"{count} rank{'s' if count != 1 else ''}"
