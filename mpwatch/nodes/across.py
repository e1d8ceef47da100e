"""Findings of a job as a whole, from the summaries of its nodes.

What one node can tell alone is a finding of that node. Here are the failures that only show when
nodes are compared: a rank that is elsewhere while those of other nodes wait for it, different
collectives, a node that does not answer, nodes that are set up differently, a rank that is slower.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mpwatch.diagnose.analysis.distributed.collectives import MISMATCH, ONE_SHAPE, STUCK
from mpwatch.diagnose.analysis.distributed.ranks import (
    ALL_INSIDE_S,
    ALL_STALLED_S,
    WORKING_PERCENT,
    WORKING_S,
)
from mpwatch.diagnose.analysis.idle_time import STALLED_S
from mpwatch.model.findings import Severity
from mpwatch.model.units import numbers_text, seconds_text
from mpwatch.nodes.across_ray import RULE as RAY_STUCK
from mpwatch.nodes.across_ray import stuck_calls
from mpwatch.nodes.head import NodeView
from mpwatch.nodes.summary import RankRow

CRITICAL_S = 60.0
RANKS_LIMIT = 1_000_000
"""A job of more ranks is not believed: WORLD_SIZE comes from an environment."""
NAMES_SHOWN = 6
EVIDENCE_SHOWN = 8

STANDSTILLS = frozenset((STUCK, MISMATCH, RAY_STUCK))
"""Rules that say why a job makes no progress."""
NOT_ANSWERING = "node-not-answering"
DIFFER = "nodes-differ"
STRAGGLER = "straggler-rank"
SAMPLE_S = 4.0
"""A stack of a process that moves is shown for 3 s (`mpwatch.nodes.rows.FRESH_S`): at this interval
none is counted twice."""
SAMPLES_LEAST = 15
SAMPLES_KEPT = 60
"""Then the older ones count half."""
WAITING_SHARE = 0.4
PACE_SHARE = 0.1
"""A rank sets the pace if it waits in collectives in at most this share of its stacks, and all
others in at least `WAITING_SHARE`. With 15 stacks of each, equal ranks show that once in a million
times at most."""
LINES_KEPT = 16
_STOPPED = frozenset(("stopped", "traced"))
_IMPORTANT = frozenset(("torch", "python", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
"""Differences that break jobs, rather than slow them down or break them later."""

_OUT_OF_DATE = (
    "Check whether the machine answers, for instance by ssh. The values shown for it are those "
    "received last."
)
_NOT_ANSWERING_WORDS: Mapping[str, tuple[str, str]] = {
    "silent": (
        "The machine, its network or the agent is stopped or overloaded; its processes may still "
        "run.",
        _OUT_OF_DATE,
    ),
    "ended": (
        "The agent was killed, or the way to it has ended: the connection, the allocation or the "
        "machine.",
        _OUT_OF_DATE,
    ),
    "failed": (
        "No agent could be started there, so nothing is known of its processes.",
        "mpwatch has to be installed there, or be one file that the node can read: --agent "
        "'python3 /shared/mpwatch.pyz'.",
    ),
}
"""Cause and fix by state."""


@dataclass(frozen=True, slots=True)
class JobFinding:
    """One failure of a job, with its evidence; see `mpwatch.model.findings.Finding`."""

    rule: str
    severity: Severity
    summary: str
    evidence: tuple[str, ...]
    cause: str
    advice: str
    node: str | None = None
    """The node of the process that causes it, or the node itself."""
    pid: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class PlacedRank:
    """A rank and the node it is on."""

    view: NodeView
    row: RankRow

    @property
    def called(self) -> str:
        """`rank 301 on node-37`."""
        return f"{self.name} on {self.view.name}"

    @property
    def name(self) -> str:
        """`rank 301`, or its label and pid if it has no number."""
        row = self.row
        return f"rank {row.rank}" if row.rank is not None else f"{row.label} ({row.pid})"

    @property
    def quiet_s(self) -> float:
        """Seconds for which it has made no progress, as its node has last said; 0 if it does."""
        summary, since_s = self.view.summary, self.row.quiet_at_s
        return max(0.0, summary.at_s - since_s) if summary and since_s is not None else 0.0

    @property
    def is_working(self) -> bool:
        """Whether it uses the cpu."""
        return self.quiet_s < STALLED_S and (self.row.cpu_percent or 0) >= WORKING_PERCENT


def job_findings(views: Sequence[NodeView]) -> list[JobFinding]:
    """All findings, most urgent first.

    Args:
        views: All nodes of the job.
    """
    found = list(_not_answering(views))
    for ranks in rank_groups(views):
        found += _of_group(ranks, views)
        found += _differences(ranks)
    found += stuck_calls(views)
    return sorted(found, key=lambda each: -each.severity)


def rank_groups(views: Sequence[NodeView]) -> list[list[PlacedRank]]:
    """The ranks of each job, by number; those of silent nodes as last received."""
    groups: defaultdict[str, list[PlacedRank]] = defaultdict(list)
    for view in views:
        for row in view.summary.ranks if view.summary is not None else ():
            if row.rank is not None or row.world_size is not None:
                groups[row.job].append(PlacedRank(view, row))
    for ranks in groups.values():
        ranks.sort(key=lambda each: (each.row.rank is None, each.row.rank or 0))
    return list(groups.values())


# --- nodes that do not answer --------------------------------------------------------------------


def _not_answering(views: Sequence[NodeView]) -> Iterator[JobFinding]:
    """One finding for each reason; a thousand hosts may all refuse for the same one."""
    groups: defaultdict[tuple[str, str], list[NodeView]] = defaultdict(list)
    for view in views:
        if view.state in ("silent", "ended", "failed"):
            reason = "" if view.state == "silent" else view.problem.replace(view.name, "HOST")
            groups[view.state, reason].append(view)
    for (state, _), nodes in groups.items():
        names = _names(view.name for view in nodes)
        times = [view.last_seen_s for view in nodes if view.last_seen_s is not None]
        since = f" for {seconds_text(max(times))}" if times else ""
        words = {
            "silent": f"{names} {_verb(nodes, 'has', 'have')} sent nothing{since}",
            "ended": f"the agent on {names} has ended",
            "failed": f"{names} cannot be read",
        }[state]
        yield JobFinding(
            rule=NOT_ANSWERING,
            severity=Severity.WARNING,
            summary=words,
            evidence=tuple(
                f"{view.name}: {view.problem or 'no reason known'}"
                for view in nodes[:EVIDENCE_SHOWN]
            ),
            cause=_NOT_ANSWERING_WORDS[state][0],
            advice=_NOT_ANSWERING_WORDS[state][1],
            node=nodes[0].name,
        )


# --- ranks and collectives -----------------------------------------------------------------------


def _of_group(ranks: Sequence[PlacedRank], views: Sequence[NodeView]) -> Iterator[JobFinding]:
    """Findings about the collectives of one job."""
    known = [each for each in ranks if each.view.state == "live"]
    alive = [each for each in known if not each.row.is_ended]
    inside = [each for each in alive if each.row.place is not None]
    late = [each for each in alive if each.row.place is None]
    unknown = [each for each in late if not _is_known(each)]
    if not inside or any(each.quiet_s < STALLED_S for each in inside):
        return
    if _is_told_by_its_node(ranks):
        return
    # A rank without a stack may be at any line, also in the collective. Where others are known to
    # be elsewhere, they are waited for in any case, unless one of them goes on.
    if unknown and (len(unknown) == len(late) or not all(map(_stands, late))):
        return
    if len(inside) < len(late) and any(each.quiet_s < ALL_STALLED_S for each in late):
        return
    numbers = {each.row.rank for each in alive}
    # The exited process of a rank that was started again keeps no other rank waiting.
    gone = [each for each in known if each.row.is_ended and each.row.rank not in numbers]
    missing = _missing(ranks, alive)
    if late or gone:
        yield _stuck(inside, [each for each in late if _is_known(each)] or gone, unknown)
    elif missing:
        yield _unseen(inside, missing, ranks, views)
    else:
        yield from _all_inside(inside)


def _is_told_by_its_node(ranks: Sequence[PlacedRank]) -> bool:
    """Whether all ranks are on one node that has found the same by itself."""
    views = {each.view.name: each.view for each in ranks}
    if len(views) > 1:
        return False
    summary = next(iter(views.values())).summary
    rules = {each.rule for each in summary.findings} if summary is not None else set()
    return bool(rules & {STUCK, MISMATCH})


def _missing(ranks: Sequence[PlacedRank], alive: Sequence[PlacedRank]) -> list[int]:
    """Numbers of ranks that the job has and that are on no node that answers."""
    sizes = {each.row.world_size for each in ranks} - {None}
    size = sizes.pop() or 0 if len(sizes) == 1 else 0
    seen = {each.row.rank for each in alive}
    return [number for number in range(size) if number not in seen] if size <= RANKS_LIMIT else []


def _is_known(late: PlacedRank) -> bool:
    """Whether it is known that a rank is in no collective."""
    return late.row.has_stack or late.row.state in _STOPPED


def _stands(each: PlacedRank) -> bool:
    return each.quiet_s >= STALLED_S or each.row.state in _STOPPED


def _stuck(
    inside: Sequence[PlacedRank], late: Sequence[PlacedRank], unknown: Sequence[PlacedRank]
) -> JobFinding:
    """Ranks wait in a collective for others that are elsewhere or have ended.

    Args:
        inside: The ranks that wait.
        late: Those that they wait for.
        unknown: Those of which no stack is known; they make no progress.
    """
    since_s = min(each.quiet_s for each in inside)
    place = _place_words(inside)
    first = max(late, key=lambda each: (each.row.has_failed, each.quiet_s))
    is_working = all(each.is_working for each in late)
    severity = (
        Severity.CRITICAL if since_s >= CRITICAL_S or first.row.is_ended else Severity.WARNING
    )
    if is_working and since_s < WORKING_S:
        severity = Severity.INFO
    others = f" and {len(late) - 1} more" if len(late) > 1 else ""
    evidence = [_inside_words(inside, since_s), *map(_whereabouts, late[:NAMES_SHOWN])]
    evidence += [f"recorded by {each.called}: {words}" for each, words in _records(inside, late)]
    if unknown:
        evidence.append(f"no stack is known of {_list(unknown)}, without progress as well")
    return JobFinding(
        rule=STUCK,
        severity=severity,
        summary=(f"{_counted(inside)} in {place} for {first.called}{others}, which {_does(first)}"),
        evidence=tuple(evidence),
        cause=(
            f"{place} ends when all ranks have entered it. The ranks that wait are not the cause, "
            "whichever of them reports a timeout."
        ),
        advice=_advice(first),
        node=first.view.name,
        pid=first.row.pid,
        rank=first.row.rank,
    )


def _advice(first: PlacedRank) -> str:
    row = first.row
    if row.is_ended and row.has_failed:
        return "Find out why it ended: its own error is the cause, those of the others follow."
    if row.is_ended:
        return "Give all ranks the same number of steps (drop_last, or the Join context of DDP)."
    if row.state in _STOPPED:
        return f"Continue it: kill -CONT {row.pid} on {first.view.name}."
    if first.is_working:
        return (
            "If it is meant to do that alone, set a timeout of the process group that is longer "
            "than it takes, or share the work between the ranks."
        )
    return f"Find out what {first.name} waits for there; its stack is on {first.view.name}."


def _unseen(
    inside: Sequence[PlacedRank],
    missing: Sequence[int],
    ranks: Sequence[PlacedRank],
    views: Sequence[NodeView],
) -> JobFinding:
    """Ranks wait in a collective, and some of their job are on no node that answers."""
    since_s = min(each.quiet_s for each in inside)
    place = _place_words(inside)
    lost = {each.row.rank: each for each in ranks if each.view.state != "live"}
    silent = [view for view in views if view.state in ("silent", "ended", "failed")]
    evidence = [_inside_words(inside, since_s)]
    evidence += [
        f"{lost[number].called}, last heard of {seconds_text(lost[number].view.last_seen_s)} ago: "
        f"{lost[number].row.doing or lost[number].row.state}"
        for number in missing[:NAMES_SHOWN]
        if number in lost
    ]
    evidence += [f"{view.name}: {view.problem}" for view in silent[:NAMES_SHOWN]]
    numbers = numbers_text(missing)
    return JobFinding(
        rule=STUCK,
        severity=Severity.WARNING if silent else Severity.INFO,
        summary=(
            f"{_counted(inside)} in {place}; rank{'s' if len(missing) > 1 else ''} {numbers} "
            f"{'are' if len(missing) > 1 else 'is'} on no node that answers"
        ),
        evidence=tuple(evidence),
        cause=(
            f"{place} ends when all ranks have entered it, and nothing is known of some of them"
            + (": the nodes above do not answer." if silent else ".")
        ),
        advice=(
            "Look at the nodes that do not answer."
            if silent
            else "Name all nodes of the job, or look for ranks that were never started."
        ),
        node=silent[0].name if silent else None,
    )


def _all_inside(inside: Sequence[PlacedRank]) -> Iterator[JobFinding]:
    """All ranks of a job are in collectives: in different ones, or in one that does not end."""
    sizes = {each.row.world_size for each in inside} - {None}
    if len(inside) < 2 or (sizes and max(size or 0 for size in sizes) > len(inside)):
        return
    since_s = min(each.quiet_s for each in inside)
    groups: defaultdict[str, list[PlacedRank]] = defaultdict(list)
    for each, place in zip(inside, _told_apart(inside), strict=True):
        groups[place].append(each)
    members = sorted(groups.items(), key=lambda item: -len(item[1]))
    evidence = tuple(
        f"{_list(group)} in {place} for at least {seconds_text(min(r.quiet_s for r in group))}"
        f"{_lines(group)}"
        for place, group in members[:EVIDENCE_SHOWN]
    )
    if len(groups) > 1:
        odd = members[-1][1][0]
        yield JobFinding(
            rule=MISMATCH,
            severity=Severity.CRITICAL,
            summary="ranks wait for each other in different collectives: "
            + ", ".join(f"{len(group)} in {place}" for place, group in members[:4])
            + f"; {odd.called} is one of the fewest",
            evidence=evidence,
            cause=(
                "The ranks call different collectives, or one with tensors of a different shape: a "
                "branch depends on the rank, its data or its node, or the ranks have made a "
                "different number of calls before. None of them can go on."
            ),
            advice=(
                "Compare the lines above: all ranks have to call the same collectives in the same "
                "order. TORCH_DISTRIBUTED_DEBUG=DETAIL names the first difference."
            ),
            node=odd.view.name,
            pid=odd.row.pid,
            rank=odd.row.rank,
        )
    elif since_s >= ALL_INSIDE_S and sizes:
        yield JobFinding(
            rule=STUCK,
            severity=Severity.WARNING,
            summary=(
                f"all {len(inside)} ranks are in {members[0][0]}, and none of them makes progress"
            ),
            evidence=evidence,
            cause=(
                "All ranks of the job have called it, and no data moves between them. Possible: "
                "the network between the nodes fails, or the calls belong to different groups."
            ),
            advice=(
                "Check that each node reaches the others at the interface that is used "
                "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), and compare the lines above."
            ),
            node=inside[0].view.name,
            pid=inside[0].row.pid,
            rank=inside[0].row.rank,
        )


def _told_apart(inside: Sequence[PlacedRank]) -> list[str]:
    """Where the ranks are; where the function is the same, by what torch has recorded of it."""
    places = [f"{each.row.place}" for each in inside]
    rows = [each.row for each in inside]
    if len(set(places)) > 1 or not all(row.is_unfinished for row in rows):
        return places
    if len({(row.group, row.number) for row in rows}) > 1:
        return places
    if len({row.operation for row in rows}) > 1:
        return [row.operation for row in rows]
    if rows[0].operation in ONE_SHAPE and len({row.shape for row in rows}) > 1:
        return [f"{place} of {row.shape}" for place, row in zip(places, rows, strict=True)]
    return places


# --- the rank that sets the pace -----------------------------------------------------------------


@dataclass(slots=True)
class _Share:
    """In how many of its stacks a rank has waited in a collective."""

    at_s: float = float("-inf")
    """When it was last counted, by the clock of its node."""
    samples: float = 0.0
    inside: float = 0.0
    lines: Counter[str] = field(default_factory=Counter)
    """Where it was otherwise."""

    @property
    def share(self) -> float:
        """Part of its stacks in which it has waited."""
        return self.inside / self.samples if self.samples else 0.0

    def add(self, at_s: float, row: RankRow) -> None:
        """Count one stack."""
        if self.samples >= SAMPLES_KEPT:
            self.samples, self.inside = self.samples / 2, self.inside / 2
            self.lines = Counter({line: count // 2 for line, count in self.lines.items()})
        self.at_s = at_s
        self.samples += 1
        self.inside += row.place is not None
        if row.place is None and (row.line in self.lines or len(self.lines) < LINES_KEPT):
            self.lines[row.line or row.doing] += 1


class JobJudge:
    """The findings of a job that is watched: also those that show only over time."""

    def __init__(self) -> None:
        self._shares: dict[tuple[str, int], _Share] = {}

    def see(self, views: Sequence[NodeView]) -> None:
        """Count the stacks that have arrived; to be called about once a second."""
        before, self._shares = self._shares, {}
        for view in views:
            if view.state != "live" or view.summary is None:
                continue
            at_s = view.summary.at_s
            for row in view.summary.ranks:
                if row.is_ended or (row.rank is None and row.world_size is None):
                    continue
                key = (view.name, row.pid)
                share = before.get(key)
                if share is None or at_s < share.at_s:
                    share = _Share()
                if row.has_stack and at_s - share.at_s >= SAMPLE_S:
                    share.add(at_s, row)
                self._shares[key] = share

    def findings(self, views: Sequence[NodeView]) -> list[JobFinding]:
        """All findings as they are now, most urgent first."""
        found = job_findings(views)
        for ranks in rank_groups(views):
            found += self._pace(ranks)
        return sorted(found, key=lambda each: -each.severity)

    def _pace(self, ranks: Sequence[PlacedRank]) -> Iterator[JobFinding]:
        """The one rank that others wait for again and again, while all of them go on."""
        if len(ranks) < 2 or _missing(ranks, ranks):
            return
        counted: list[tuple[PlacedRank, _Share]] = []
        for each in ranks:
            share = self._shares.get((each.view.name, each.row.pid))
            if share is None or share.samples < SAMPLES_LEAST or each.quiet_s >= STALLED_S:
                return
            counted.append((each, share))
        fast = [pair for pair in counted if pair[1].share >= WAITING_SHARE]
        slow = [pair for pair in counted if pair[1].share <= PACE_SHARE]
        if len(slow) == 1 and len(fast) == len(counted) - 1:
            yield _pace_finding(*slow[0], [share for _, share in fast])


def _pace_finding(slow: PlacedRank, share: _Share, others: Sequence[_Share]) -> JobFinding:
    waiting = min(other.share for other in others)
    lines = [f"{line} in {count}" for line, count in share.lines.most_common(3) if line and count]
    evidence = [
        f"waiting in a collective, of the stacks of each rank: {slow.name} {share.share:.0%}, "
        f"each of the {len(others)} others {waiting:.0%} or more"
    ]
    if lines:
        evidence.append(f"of {share.samples:.0f} stacks {slow.name} was at {'; '.join(lines)}")
    return JobFinding(
        rule=STRAGGLER,
        severity=Severity.INFO,
        summary=(
            f"{slow.called} is the slowest: the other ranks wait in collectives in {waiting:.0%} "
            f"or more of their time, it does in {share.share:.0%}"
        ),
        evidence=tuple(evidence),
        cause=(
            "Each collective ends when all ranks have called it, so that each step takes as long "
            "as it takes this rank. Its input, its work or its machine is slower than the others'."
        ),
        advice=f"Compare {slow.name} with another rank at the lines above, and the two machines.",
        node=slow.view.name,
        pid=slow.row.pid,
        rank=slow.row.rank,
    )


# --- nodes that differ ---------------------------------------------------------------------------


def _differences(ranks: Sequence[PlacedRank]) -> Iterator[JobFinding]:
    """What is not the same on all nodes of one job; only of ranks known to be of one job."""
    if not ranks or not ranks[0].row.job:
        return
    views = {each.view.name: each.view for each in ranks if not each.row.is_ended}
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, view in views.items():
        for fact, value in view.summary.node.facts.items() if view.summary is not None else ():
            values[fact][name] = value
    differing = {
        fact: by_node for fact, by_node in values.items() if len(set(by_node.values())) > 1
    }
    if not differing:
        return
    is_important = not _IMPORTANT.isdisjoint(differing)
    odd = next((_minority(by_node) for by_node in differing.values()), None)
    shown = sorted(differing, key=lambda fact: (fact not in _IMPORTANT, fact))
    yield JobFinding(
        rule=DIFFER,
        severity=Severity.WARNING if is_important else Severity.INFO,
        summary=f"nodes of one job differ in {_names(shown)}",
        evidence=tuple(_difference(fact, differing[fact]) for fact in shown[:EVIDENCE_SHOWN]),
        cause=(
            "The nodes were set up or started differently. That may be harmless; other versions of "
            "torch, limits or variables of a library on some nodes are a usual cause of failures "
            "that show on these nodes only."
        ),
        advice="Set them to the same value on all nodes where that is not meant to be so.",
        node=odd,
    )


def _difference(fact: str, by_node: Mapping[str, str]) -> str:
    """`torch: 2.9.1 on node-1, node-2; 2.6.0 on node-3`."""
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for node, value in by_node.items():
        nodes[value].append(node)
    parts = sorted(nodes.items(), key=lambda item: -len(item[1]))
    return f"{fact}: " + "; ".join(f"{value} on {_names(names)}" for value, names in parts[:4])


def _minority(by_node: Mapping[str, str]) -> str:
    """A node with the rarest value."""
    counts = Counter(by_node.values())
    return min(by_node, key=lambda node: counts[by_node[node]])


# --- words ---------------------------------------------------------------------------------------


def _inside_words(inside: Sequence[PlacedRank], since_s: float) -> str:
    nodes = len({each.view.name for each in inside})
    where = f" on {nodes} nodes" if nodes > 1 else f" on {inside[0].view.name}"
    return (
        f"{_list(inside)}{where} in {_place_words(inside)} for at least "
        f"{seconds_text(since_s)}{_lines(inside)}"
    )


def _whereabouts(late: PlacedRank) -> str:
    row = late.row
    doing = f"; {row.doing}" if row.doing not in ("", row.line) and not row.is_ended else ""
    return f"{late.called} (pid {row.pid}): {_does(late)}{doing}"


def _does(late: PlacedRank) -> str:
    """What a rank does while the others wait for it."""
    row = late.row
    at = f" at {row.line}" if row.line else ""
    if row.is_ended:
        return f"has ended ({row.ended})"
    if row.state in _STOPPED:
        return f"is {row.state}{at}"
    if late.quiet_s >= STALLED_S:
        return f"has made no progress for {seconds_text(late.quiet_s)}{at}"
    return f"is still working{at}" if late.is_working else f"was last seen{at or ' elsewhere'}"


def _records(
    inside: Sequence[PlacedRank], late: Sequence[PlacedRank]
) -> Iterator[tuple[PlacedRank, str]]:
    """What torch has recorded of one rank that waits and of some that do not."""
    for each in [*inside[:1], *late[:2]]:
        row = each.row
        if row.number is not None:
            state = "unfinished" if row.is_unfinished else "finished"
            yield each, f"collective {row.number} of group {row.group}: {row.operation}, {state}"


def _place_words(inside: Sequence[PlacedRank]) -> str:
    """`all_reduce #48121`, or several collectives."""
    places = sorted({f"{each.row.place}" for each in inside})
    numbers = {each.row.number for each in inside if each.row.is_unfinished}
    all_recorded = all(each.row.is_unfinished for each in inside)
    number = f" #{numbers.pop()}" if all_recorded and len(numbers) == 1 else ""
    return " and ".join(places[:3]) + (number if len(places) == 1 else "")


def _lines(ranks: Sequence[PlacedRank]) -> str:
    lines = sorted({each.row.line for each in ranks if each.row.line})
    return f", called at {' and '.join(lines[:2])}" if lines else ""


def _counted(inside: Sequence[PlacedRank]) -> str:
    return f"{len(inside)} ranks wait" if len(inside) > 1 else f"{inside[0].called} waits"


def _list(ranks: Sequence[PlacedRank]) -> str:
    """`ranks 0-300, 302-1023`."""
    numbers = [each.row.rank for each in ranks if each.row.rank is not None]
    if len(numbers) < len(ranks):
        return _names(each.name for each in ranks)
    return f"rank{'s' if len(numbers) > 1 else ''} {numbers_text(numbers)}"


def _names(names: Iterable[str]) -> str:
    found = list(names)
    more = len(found) - NAMES_SHOWN
    return ", ".join(found[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _verb(items: Sequence[object], one: str, several: str) -> str:
    return one if len(items) == 1 else several
