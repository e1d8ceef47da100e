"""Ranks that wait in a collective for one that is late, has ended or calls another one.

A standstill shows at one moment. That one rank is slow in each step shows over time: `Pace` counts
stacks. What a late rank waits for on another node is read off TCP connections, joined by both ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mpwatch.describe.processes import NAMES_SHOWN, names_text
from mpwatch.diagnose.analysis.distributed.flight_recorder import MISMATCH, ONE_SHAPE, STUCK
from mpwatch.diagnose.analysis.distributed.ranks import ALL_INSIDE_S, ALL_STALLED_S, WORKING_S
from mpwatch.diagnose.analysis.idle_time import STALLED_S
from mpwatch.model.findings import JobFinding, Severity
from mpwatch.model.units import numbers_text, seconds_text
from mpwatch.nodes.across.ranks import (
    EVIDENCE_SHOWN,
    NAMED_S,
    STOPPED,
    JobRanks,
    NodeRanks,
    PlacedRank,
    does,
    is_rank,
    rank_name,
)
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.summary import RankRow, SocketRow

CRITICAL_S = 60.0
RANKS_LIMIT = 1_000_000
"""A job of more ranks is not believed: WORLD_SIZE comes from an environment."""
STEPS_LIMIT = 4
"""So many connections are followed."""
_LOOPBACK = ("127.", "[::1]", "::1")

STRAGGLER = "straggler-rank"
SAMPLE_S = 4.0
"""A stack of a process that moves is shown for 3 s (`mpwatch.nodes.agent.rows.FRESH_S`): at this
interval none is counted twice."""
SAMPLES_LEAST = 15
SAMPLES_KEPT = 60
"""Then the older ones count half."""
WAITING_SHARE = 0.4
PACE_SHARE = 0.1
"""A rank sets the pace if it waits in collectives in at most this share of its stacks, and all
others in at least `WAITING_SHARE`. With 15 stacks of each, equal ranks show that once in a million
times at most."""
LINES_KEPT = 16


def of_collectives(ranks: JobRanks, views: Sequence[NodeView]) -> Iterator[JobFinding]:
    """Findings about the collectives of one job.

    Args:
        ranks: All ranks of the job.
        views: All nodes, also those without a rank.
    """
    live = ranks.live
    if live.count("known"):
        live = JobRanks(ranks.job, live.parts + ranks.silent_waiters.parts)
    inside_count, known_count = live.count("inside"), live.count("known")
    if not inside_count or live.most_quiet_s < NAMED_S or _is_told_by_its_node(ranks):
        return
    # A rank without a stack may be at any line, also in the collective. Where others are known to
    # be elsewhere, they are waited for in any case, unless one of them goes on.
    if live.count("unknown") and (not known_count or live.late_quiet_s < NAMED_S):
        return
    if inside_count < known_count and live.late_quiet_s < ALL_STALLED_S:
        return
    if late := live.placed("known"):
        yield _stuck(live, late, views)
    elif live.quiet_s < STALLED_S:
        return
    elif gone := _gone(live):
        yield _stuck(live, gone, views)
    elif missing := missing_ranks(ranks, live):
        yield _unseen(ranks, missing, views)
    else:
        yield from _all_inside(live)


def _is_told_by_its_node(ranks: JobRanks) -> bool:
    """Whether all ranks are on one node that has found the same by itself."""
    if len(ranks.parts) > 1:
        return False
    summary = ranks.parts[0][0].summary
    rules = {each.rule for each in summary.findings} if summary is not None else set()
    return bool(rules & {STUCK, MISMATCH})


def _gone(live: JobRanks) -> list[PlacedRank]:
    """Ranks that have ended.

    The exited process of a rank that was started again keeps no other rank waiting.
    """
    ended = live.placed("ended")
    numbers = {row.rank for _, ranks in live.parts for row in ranks.alive} if ended else set()
    return [each for each in ended if each.row.rank not in numbers]


def missing_ranks(ranks: JobRanks, live: JobRanks) -> list[int]:
    """Numbers of ranks that the job has and that are on no node that answers.

    Args:
        ranks: All that is known of the job.
        live: The part of it that counts as seen.
    """
    sizes = {row.world_size for _, each in ranks.parts for row in each.rows} - {None}
    size = sizes.pop() or 0 if len(sizes) == 1 else 0
    seen = {row.rank for _, each in live.parts for row in each.alive}
    return [number for number in range(size) if number not in seen] if size <= RANKS_LIMIT else []


def _stuck(live: JobRanks, late: Sequence[PlacedRank], views: Sequence[NodeView]) -> JobFinding:
    """Ranks wait in a collective for others that are elsewhere or have ended.

    Args:
        live: The ranks of the nodes that answer, and of silent ones those that wait.
        late: Those that are waited for.
        views: All nodes.
    """
    since_s = live.most_quiet_s
    inside, unknown = live.rows("inside"), live.rows("unknown")
    place = _place_words(inside)
    first = max(late, key=lambda each: (each.row.has_failed, each.quiet_s))
    is_working = all(each.is_working for each in late)
    severity = (
        Severity.CRITICAL if since_s >= CRITICAL_S or first.row.is_ended else Severity.WARNING
    )
    if since_s < STALLED_S or (is_working and since_s < WORKING_S):
        severity = Severity.INFO
    others = f" and {len(late) - 1} more" if len(late) > 1 else ""
    evidence = [_inside_words(live), *map(_whereabouts, late[:NAMES_SHOWN])]
    evidence += waits_across(first, views)
    evidence += _records([_first_inside(live), *late[:2]])
    silent = [view for view, _ in live.parts if view.state == "silent"]
    if silent:
        names = names_text(view.name for view in silent)
        evidence.append(f"{names} {'does' if len(silent) == 1 else 'do'} not answer: as last heard")
    if unknown:
        evidence.append(f"no stack is known of {_list(unknown)}, without progress as well")
    return JobFinding(
        rule=STUCK,
        severity=severity,
        summary=(f"{_counted(live)} in {place} for {first.called}{others}, which {does(first)}"),
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
    if row.state in STOPPED:
        return f"Continue it: kill -CONT {row.pid} on {first.view.name}."
    if first.is_working:
        return (
            "If it is meant to do that alone, set a timeout of the process group that is longer "
            "than it takes, or share the work between the ranks."
        )
    return f"Find out what {first.name} waits for there; its stack is on {first.view.name}."


def _unseen(ranks: JobRanks, missing: Sequence[int], views: Sequence[NodeView]) -> JobFinding:
    """Ranks wait in a collective, and some of their job are on no node that answers."""
    live = ranks.live
    place = _place_words(live.rows("inside"))
    lost = {each.row.rank: each for each in ranks.placed() if each.view.state != "live"}
    silent = [view for view in views if view.state in ("silent", "ended", "failed")]
    evidence = [_inside_words(live)]
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
            f"{_counted(live)} in {place}; rank{'s' if len(missing) > 1 else ''} {numbers} "
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


def _all_inside(live: JobRanks) -> Iterator[JobFinding]:
    """All ranks of a job are in collectives: in different ones, or in one that does not end."""
    rows = live.rows("inside")
    sizes = {row.world_size for row in rows} - {None}
    if len(rows) < 2 or (sizes and max(size or 0 for size in sizes) > len(rows)):
        return
    since_s = live.quiet_s
    inside = live.placed("inside")
    groups: defaultdict[str, list[PlacedRank]] = defaultdict(list)
    for each, place in zip(inside, _told_apart(_rows(inside)), strict=True):
        groups[place].append(each)
    by_place = sorted(groups.items(), key=lambda item: -len(item[1]))
    evidence = tuple(
        f"{_list(_rows(group))}{_on_nodes({each.view.name for each in group})} in {place} for at "
        f"least {seconds_text(min(each.quiet_s for each in group))}{_lines(_rows(group))}"
        for place, group in by_place[:EVIDENCE_SHOWN]
    )
    if len(groups) > 1:
        odd = by_place[-1][1][0]
        yield JobFinding(
            rule=MISMATCH,
            severity=Severity.CRITICAL,
            summary="ranks wait for each other in different collectives: "
            + ", ".join(f"{len(group)} in {place}" for place, group in by_place[:4])
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
                f"all {len(inside)} ranks are in {by_place[0][0]}, and none of them makes progress"
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


def _rows(ranks: Sequence[PlacedRank]) -> list[RankRow]:
    return [each.row for each in ranks]


def _told_apart(rows: Sequence[RankRow]) -> list[str]:
    """Where the ranks are; where the function is the same, by what torch has recorded of it."""
    places = [f"{row.place}" for row in rows]
    if len(set(places)) > 1 or not all(row.is_unfinished for row in rows):
        return places
    if len({(row.group, row.number) for row in rows}) > 1:
        return places
    if len({row.operation for row in rows}) > 1:
        return [row.operation for row in rows]
    if rows[0].operation in ONE_SHAPE and len({row.shape for row in rows}) > 1:
        return [f"{place} of {row.shape}" for place, row in zip(places, rows, strict=True)]
    return places


# --- words ---------------------------------------------------------------------------------------


def _inside_words(live: JobRanks) -> str:
    rows = live.rows("inside")
    where = _on_nodes({view.name for view, ranks in live.parts if ranks.inside})
    return (
        f"{_list(rows)}{where} in {_place_words(rows)} for at least "
        f"{seconds_text(live.most_quiet_s)}{_lines(rows)}"
    )


def _on_nodes(names: Collection[str]) -> str:
    """` on node-1`, or how many nodes."""
    return f" on {len(names)} nodes" if len(names) > 1 else f" on {next(iter(names))}"


def _first_inside(live: JobRanks) -> PlacedRank:
    return next(PlacedRank(view, row) for view, ranks in live.parts for row in ranks.inside)


def _whereabouts(late: PlacedRank) -> str:
    row = late.row
    doing = f"; {row.doing}" if row.doing not in ("", row.line) and not row.is_ended else ""
    return f"{late.called} (pid {row.pid}): {does(late)}{doing}"


def _records(ranks: Iterable[PlacedRank]) -> Iterator[str]:
    """What torch has recorded of some ranks."""
    for each in ranks:
        row = each.row
        if row.number is not None:
            state = "unfinished" if row.is_unfinished else "finished"
            record = f"collective {row.number} of group {row.group}: {row.operation}, {state}"
            yield f"recorded by {each.called}: {record}"


def _place_words(rows: Sequence[RankRow]) -> str:
    """`all_reduce #48121`, or several collectives."""
    places = sorted({f"{place}" for place in {row.place for row in rows}})
    numbers = {row.number for row in rows if row.is_unfinished}
    all_recorded = all(row.is_unfinished for row in rows)
    number = f" #{numbers.pop()}" if all_recorded and len(numbers) == 1 else ""
    return " and ".join(places[:3]) + (number if len(places) == 1 else "")


def _lines(rows: Sequence[RankRow]) -> str:
    lines = sorted({row.line for row in rows} - {""})
    return f", called at {' and '.join(lines[:2])}" if lines else ""


def _counted(live: JobRanks) -> str:
    count = live.count("inside")
    return f"{count} ranks wait" if count > 1 else f"{_first_inside(live).called} waits"


def _list(rows: Sequence[RankRow]) -> str:
    """`ranks 0-300, 302-1023`."""
    numbers = [row.rank for row in rows if row.rank is not None]
    if len(numbers) < len(rows):
        return names_text(map(rank_name, rows))
    return f"rank{'s' if len(numbers) > 1 else ''} {numbers_text(numbers)}"


def waits_across(first: PlacedRank, views: Sequence[NodeView]) -> Iterator[str]:
    """In words what a rank waits for over TCP, what is at the other end, and so on.

    Args:
        first: The rank.
        views: All nodes.
    """
    view, pid, name = first.view, first.row.pid, first.called
    seen = {(view.name, pid)}
    for _ in range(STEPS_LIMIT):
        own = _awaited(view, pid)
        if own is None:
            return
        words = f"{name} waits to read from the connection {own.local} > {own.remote}"
        end = _other_end(view, own, views)
        if end is None:
            yield f"{words}, whose other end is not known"
            return
        view, other = end
        pid, rank = other.pid, _rank(view, other.pid)
        name = rank.called if rank is not None else f"{other.label} ({other.pid}) on {view.name}"
        does_words = f", which {does(rank)}" if rank is not None else ""
        is_cycle = (view.name, pid) in seen
        yield f"{words}; at its other end is {name}{' again' if is_cycle else does_words}"
        if is_cycle:
            return
        seen.add((view.name, pid))


def _awaited(view: NodeView, pid: int) -> SocketRow | None:
    """The connection that the main thread of a process waits to read from."""
    sockets = view.summary.sockets if view.summary is not None else ()
    return next((row for row in sockets if row.pid == pid and row.is_awaited), None)


def _other_end(
    view: NodeView, own: SocketRow, views: Sequence[NodeView]
) -> tuple[NodeView, SocketRow] | None:
    """The node and process at the other end of a connection.

    Loopback addresses are the same on all machines: their other end is on the same one.
    """
    is_local = own.local.startswith(_LOOPBACK)
    for other in views:
        if is_local and other.host != view.host:
            continue
        for row in other.summary.sockets if other.summary is not None else ():
            if (row.local, row.remote) == (own.remote, own.local):
                return other, row
    return None


def _rank(view: NodeView, pid: int) -> PlacedRank | None:
    ranks = view.summary.ranks if view.summary is not None else ()
    return next((PlacedRank(view, row) for row in ranks if row.pid == pid), None)


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


class _NodeShares:
    """The shares of the ranks of one node."""

    def __init__(self) -> None:
        self.by_pid: dict[int, _Share] = {}
        self._rows: NodeRanks | None = None
        self._at_s = float("-inf")
        self._due_s = float("-inf")

    def see(self, at_s: float, ranks: NodeRanks) -> None:
        """Count the stacks of a summary; nothing is due where rows are as they were."""
        if ranks is self._rows and self._at_s <= at_s < self._due_s:
            return
        if at_s < self._at_s:  # the machine was started again
            self.by_pid = {}
        self._rows, self._at_s, self._due_s = ranks, at_s, float("inf")
        before, self.by_pid = self.by_pid, {}
        for row in ranks.living:
            if not is_rank(row):
                continue
            share = self.by_pid[row.pid] = before.get(row.pid) or _Share()
            if row.has_stack:
                if at_s - share.at_s >= SAMPLE_S:
                    share.add(at_s, row)
                self._due_s = min(self._due_s, share.at_s + SAMPLE_S)


class Pace:
    """Counts the stacks of the ranks of a job that is watched."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeShares] = {}

    def see(self, nodes: Sequence[tuple[NodeView, NodeRanks]]) -> None:
        """Count the stacks that have arrived; to be called about once a second."""
        before, self._nodes = self._nodes, {}
        for view, ranks in nodes:
            if view.state == "live" and view.summary is not None:
                shares = self._nodes[view.name] = before.get(view.name) or _NodeShares()
                shares.see(view.summary.at_s, ranks)

    def slowest(self, ranks: JobRanks) -> Iterator[JobFinding]:
        """The one rank that all others wait for."""
        if ranks.count("rows") < 2:
            return
        counted: list[tuple[PlacedRank, _Share]] = []
        for view, each in ranks.parts:
            shares = self._nodes.get(view.name)
            for row in each.rows:
                share = shares.by_pid.get(row.pid) if shares is not None else None
                rank = PlacedRank(view, row)
                if share is None or share.samples < SAMPLES_LEAST or rank.quiet_s >= STALLED_S:
                    return
                counted.append((rank, share))
        fast = [pair for pair in counted if pair[1].share >= WAITING_SHARE]
        slow = [pair for pair in counted if pair[1].share <= PACE_SHARE]
        if len(slow) == 1 and len(fast) == len(counted) - 1 and not missing_ranks(ranks, ranks):
            yield _finding(*slow[0], [share for _, share in fast])


def _finding(slow: PlacedRank, share: _Share, others: Sequence[_Share]) -> JobFinding:
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
