"""Ranks that wait in a collective for one that is late, has ended or calls another one.

Also those that are slow in each step, by how much of its time each rank waits: its node sends that.
What a late rank waits for on another node is read off TCP connections, joined by both ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from mpwatch.describe.processes import NAMES_SHOWN, names_text
from mpwatch.diagnose.analysis.distributed.flight_recorder import MISMATCH, ONE_SHAPE, STUCK
from mpwatch.diagnose.analysis.distributed.ranks import (
    ALL_INSIDE_S,
    ALL_STALLED_S,
    PAUSE_S,
    WORKING_S,
    strays,
)
from mpwatch.diagnose.analysis.idle_time import STALLED_S
from mpwatch.model.collectives import HABIT
from mpwatch.model.findings import JobFinding, Severity
from mpwatch.model.units import numbers_text, seconds_text
from mpwatch.nodes.across.groups import apart_in_groups, awaited_by, ranks_words
from mpwatch.nodes.across.ranks import (
    EVIDENCE_SHOWN,
    LOOPBACK,
    NAMED_S,
    STOPPED,
    JobRanks,
    PlacedRank,
    awaits,
    does,
    has_known_place,
    rank_name,
)
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.summary import RankRow, SocketRow

CRITICAL_S = 60.0
RANKS_LIMIT = 1_000_000
"""A job of more ranks is not believed: WORLD_SIZE comes from an environment."""
STEPS_LIMIT = 4
"""So many connections are followed."""
STRAGGLER = "straggler-rank"
MET = 3
"""Ranks that have waited in collectives so often have taken part in some with all others."""


def of_collectives(ranks: JobRanks, views: Sequence[NodeView]) -> Iterator[JobFinding]:
    """Findings about the collectives of one job.

    Args:
        ranks: All ranks of the job.
        views: All nodes, also those without a rank.
    """
    live = ranks.live
    if live.count("known"):
        live = JobRanks(ranks.job, live.parts + ranks.silent_waiters.parts, ranks.host)
    inside_count, known_count = live.count("inside"), live.count("known")
    if not inside_count or live.most_quiet_s < NAMED_S:
        return
    unseen = list(_of_missing(ranks, live, views))
    if _is_told_by_its_node(ranks):
        yield from unseen
        return
    # A rank without a stack may be at any line, also in the collective. Where others are known to
    # be elsewhere, they are waited for in any case, unless one of them goes on.
    if live.count("unknown") and (not known_count or live.late_quiet_s < NAMED_S):
        return
    if inside_count < known_count and live.late_quiet_s < ALL_STALLED_S:
        return
    is_stalled = live.quiet_s >= STALLED_S
    # Each of these waits for another one of them, wherever the other ranks of the job are.
    # To put 64,000 ranks in order takes as long as all else; without records it is for nothing.
    if is_stalled and all(row.is_unfinished for row in live.rows("inside")):
        of_groups = apart_in_groups(live.placed("inside"), live.quiet_s)
        if of_groups is not None:
            yield of_groups
            return
    late = _awaited_first(live)
    if late or is_stalled:
        late += live.gone if live.most_quiet_s >= STALLED_S else []
        if late:
            yield _stuck(live, late, views)
        yield from unseen
        if not late and not unseen:
            yield from _all_inside(live)


def _awaited_first(live: JobRanks) -> list[PlacedRank]:
    """The ranks that are in no collective; of several groups only those that others wait for.

    A rank that is in none of the groups in which the others wait may just do its own work.
    """
    late = live.placed("known")
    awaited = awaited_by(live.placed("inside")) if len(late) > 1 else frozenset()
    return [each for each in late if each.row.rank in awaited] or late


def _of_missing(ranks: JobRanks, live: JobRanks, views: Sequence[NodeView]) -> Iterator[JobFinding]:
    """The finding about ranks on no node that answers, once each node has had time to."""
    is_starting = any(view.state in ("waiting", "starting") and not view.problem for view in views)
    if live.most_quiet_s < STALLED_S or is_starting:
        return
    ended = {each.row.rank for each in live.gone}
    missing = [number for number in missing_ranks(ranks, live) if number not in ended]
    if missing:
        yield _unseen(ranks, missing, views)


def unread(ranks: JobRanks) -> list[RankRow]:
    """Ranks that make no progress and whose recorder can be read, and was not yet."""
    return [
        row
        for view, each in ranks.live.parts
        for row in each.alive
        if row.is_recorder_due and PlacedRank(view, row).quiet_s >= NAMED_S
    ]


def _is_told_by_its_node(ranks: JobRanks) -> bool:
    """Whether all ranks are on one node that has found the same by itself."""
    if len(ranks.parts) > 1:
        return False
    summary = ranks.parts[0][0].summary
    rules = {each.rule for each in summary.findings} if summary is not None else set()
    return bool(rules & {STUCK, MISMATCH})


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
    # A launcher ends the other ranks of its node once one has failed.
    first = max(late, key=lambda each: (each.row.has_failed, _is_known_to_fail(each), each.quiet_s))
    is_usual = since_s < live.habit_s and not first.row.is_ended
    others = f" and {len(late) - 1} more" if len(late) > 1 else ""
    # Of a rank that only sleeps or reads in its steps no counter shows any of them, but the others
    # have waited for each; and one that stands still is late by a step at most.
    have_met = min(row.waits for row in inside) >= MET
    has_done_more = live.habit_s or (have_met and first.quiet_s > HABIT * since_s)
    at_most_s = since_s if has_done_more else float("inf")
    evidence = [_inside_words(live)]
    evidence += [_whereabouts(each, at_most_s) for each in late[:NAMES_SHOWN]]
    evidence += waits_across(first, views)
    evidence += _records([_first_inside(live), *late[:2]])
    silent = [view for view, _ in live.parts if view.state == "silent"]
    if silent:
        names = names_text(view.name for view in silent)
        verb = "does" if len(silent) == 1 else "do"
        evidence.append(f"{names} {verb} not answer: as last received")
    if unknown:
        evidence.append(f"no stack is known of {_list(unknown)}, without progress as well")
    evidence += _unread_words(live)
    if is_usual:
        usual_s = live.habit_s / HABIT
        evidence.append(f"they have waited for up to {seconds_text(usual_s)} in earlier steps")
    return JobFinding(
        rule=STUCK,
        severity=Severity.INFO if is_usual else _severity(since_s, first, late),
        summary=(
            f"{_counted(live)} in {place} for {first.called}{others}, which "
            f"{does(first, at_most_s)}{_and_awaits(first)}"
        ),
        evidence=tuple(evidence),
        cause=(
            f"{_first(place)} ends when all ranks have entered it. The ranks that wait are not the "
            "cause, whichever of them reports a timeout."
        ),
        advice=_advice(first, place),
        node=first.view.name,
        pid=first.row.pid,
        rank=first.row.rank,
    )


def _severity(since_s: float, first: PlacedRank, late: Sequence[PlacedRank]) -> Severity:
    """How bad it is that ranks have waited for so long; worse where no late one makes progress."""
    may_be_meant_s = STALLED_S
    if all(each.is_working for each in late):
        may_be_meant_s = WORKING_S
    elif all(each.is_moving for each in late):
        may_be_meant_s = PAUSE_S
    if since_s < may_be_meant_s:
        return Severity.INFO
    is_sure = since_s >= CRITICAL_S or first.row.is_ended or _is_sure_of(first)
    return Severity.CRITICAL if is_sure else Severity.WARNING


def _is_sure_of(late: PlacedRank) -> bool:
    """Whether the rank's own node has found that it will not come: it has read more of it."""
    summary = late.view.summary
    return summary is not None and any(
        each.rule == STUCK and each.pid == late.row.pid and each.severity == Severity.CRITICAL.word
        for each in summary.findings
    )


def _is_known_to_fail(late: PlacedRank) -> bool:
    """Whether a finding of the rank's own node names it as one that has failed."""
    summary = late.view.summary
    critical = Severity.CRITICAL.word
    return late.row.has_failed and any(
        each.pid == late.row.pid and each.severity == critical
        for each in (summary.findings if summary is not None else ())
    )


def _and_awaits(late: PlacedRank) -> str:
    """What a late rank that makes no progress waits for, to be added to where it is."""
    is_waiting = late.quiet_s >= NAMED_S and late.row.state not in STOPPED
    known = awaits(late.row) if is_waiting and not late.row.is_ended else ""
    return f": {known}" if known else ""


def _advice(first: PlacedRank, place: str) -> str:
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
    if _and_awaits(first):
        return (
            "End that wait. What only one rank does has to end before the timeout of the process "
            f"group, and {first.name} has to reach {place} as well."
        )
    return f"Find out what {first.name} waits for there; its stack is on {first.view.name}."


def _unseen(ranks: JobRanks, missing: Sequence[int], views: Sequence[NodeView]) -> JobFinding:
    """Ranks wait in a collective, and some of their job are on no node that answers."""
    live = ranks.live
    place = _place_words(live.rows("inside"))
    known = {each.row.rank: each for each in ranks.placed() if each.view.state != "live"}
    # Those first that were late when their node was heard of last.
    lost = sorted((known[n] for n in missing if n in known), key=lambda each: not _was_late(each))
    first = lost[0] if lost and _was_late(lost[0]) else None
    silent = [view for view in views if view.state in ("silent", "ended", "failed")]
    evidence = [_inside_words(live)]
    evidence += [
        f"{each.called}, last seen {seconds_text(each.view.last_seen_s)} ago: "
        f"{each.row.doing or each.row.state}"
        for each in lost[:NAMES_SHOWN]
    ]
    evidence += [f"{view.name}: {view.problem}" for view in silent[:NAMES_SHOWN]]
    numbers = numbers_text(missing)
    severity, last = Severity.WARNING if silent else Severity.INFO, ""
    if first is not None:
        severity = Severity.CRITICAL if live.most_quiet_s >= CRITICAL_S else severity
        at = f" at {first.row.line}" if first.row.line else " elsewhere"
        last = f"; {first.called} was last seen{at}{_and_awaits(first)}"
    return JobFinding(
        rule=STUCK,
        severity=severity,
        summary=(
            f"{_counted(live)} in {place}; rank{'s' if len(missing) > 1 else ''} {numbers} "
            f"{'are' if len(missing) > 1 else 'is'} on no node that answers{last}"
        ),
        evidence=tuple(evidence),
        cause=(
            f"{_first(place)} ends when all ranks have entered it, and nothing is known of some of "
            "them" + (": the nodes above do not answer." if silent else ".")
        ),
        advice=(
            "Look at the nodes that do not answer."
            if silent
            else "Name all nodes of the job, or look for ranks that were never started."
        ),
        node=first.view.name if first else silent[0].name if silent else None,
        pid=first.row.pid if first else None,
        rank=first.row.rank if first else None,
    )


def _was_late(lost: PlacedRank) -> bool:
    """Whether a rank was known to be in no collective, without progress, in the last message."""
    row = lost.row
    is_elsewhere = row.place is None and has_known_place(row) and not row.is_ended
    return is_elsewhere and lost.quiet_s >= NAMED_S


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
    evidence += tuple(_unread_words(live))
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


def _whereabouts(late: PlacedRank, at_most_s: float) -> str:
    row = late.row
    known = row.chain or row.doing.removeprefix(f"{row.line}, ")  # the line is said before
    doing = f"; {known}" if known not in ("", row.line) and not row.is_ended else ""
    return f"{late.called} (pid {row.pid}): {does(late, at_most_s)}{doing}"


def _records(ranks: Iterable[PlacedRank]) -> Iterator[str]:
    """What torch has recorded of some ranks."""
    for each in ranks:
        row = each.row
        if row.number is not None:
            state = "unfinished" if row.is_unfinished else "finished"
            group = f"{row.group}{ranks_words(each)}"
            record = f"collective {row.number} of group {group}: {row.operation}, {state}"
            yield f"recorded by {each.called}: {record}"


def _unread_words(ranks: JobRanks) -> Iterator[str]:
    """Of which ranks it is not known yet what torch has recorded."""
    rows = unread(ranks)
    if rows:
        yield f"what torch has recorded of {_list(rows)} has not been read yet"


def _place_words(rows: Sequence[RankRow]) -> str:
    """`all_reduce #48121`, or several collectives."""
    places = sorted({f"{place}" for place in {row.place for row in rows}})
    numbers = {row.number for row in rows if row.is_unfinished}
    all_recorded = all(row.is_unfinished for row in rows)
    number = f" #{numbers.pop()}" if all_recorded and len(numbers) == 1 else ""
    return " and ".join(places[:3]) + (number if len(places) == 1 else "")


def _first(place: str) -> str:
    """A collective as the first words of a sentence; names of functions stay as they are."""
    return f"T{place[1:]}" if place.startswith("the ") else place


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
    is_local = own.local.startswith(LOOPBACK)
    for other in views:
        if is_local and other.host != view.host:
            continue
        for row in other.summary.sockets if other.summary is not None else ():
            if row.local == own.remote and own.local in row.remote.split():
                return other, row
    return None


def _rank(view: NodeView, pid: int) -> PlacedRank | None:
    ranks = view.summary.ranks if view.summary is not None else ()
    return next((PlacedRank(view, row) for row in ranks if row.pid == pid), None)


def slowest(ranks: JobRanks) -> Iterator[JobFinding]:
    """The few ranks for which all others wait in each step.

    Nothing where a rank is neither slow nor waits, but for `STRAY_SHARE`, or is not known.
    """
    slow, fast = ranks.count("slow"), ranks.count("fast")
    alive = ranks.count("inside") + ranks.count("late")
    if not slow or slow > fast or alive - slow - fast > strays(alive):
        return
    if any(view.state != "live" for view, _ in ranks.parts):
        return
    if ranks.fast_quiet_s >= max(ALL_INSIDE_S, ranks.habit_s):
        return
    numbers = [row.rank for _, each in ranks.parts for row in each.alive]
    is_one_job = bool(ranks.job) and len(set(numbers)) == len(numbers)
    if is_one_job and not missing_ranks(ranks, ranks):
        yield _straggling(ranks)


def may_have_slow_ranks(ranks: JobRanks) -> bool:
    """Whether few ranks may be slow, and only too few steps were seen so far."""
    undecided = ranks.count("undecided")
    return undecided > 0 and 0 < ranks.count("slow") <= undecided + ranks.count("fast")


def _straggling(ranks: JobRanks) -> JobFinding:
    slow, fast = ranks.placed("slow"), ranks.rows("fast")
    first, nodes = slow[0], names_text(dict.fromkeys(each.view.name for each in slow))
    many = len(slow) > 1
    is_whole = many and all(
        len(each.slow) == len(each.alive) for _, each in ranks.parts if each.slow
    )
    names = _list(_rows(slow))
    called = f"{names} on {nodes}" if many else first.called
    at = f", mostly at {first.row.works_at}" if first.row.works_at else ""
    others = f"the {len(fast)} others wait" if len(fast) > 1 else f"{rank_name(fast[0])} waits"
    least = min(row.waits_percent or 0 for row in fast)
    most = max(each.row.waits_percent or 0 for each in slow)
    if is_whole:
        limit = f"on {nodes}. All ranks there are slow, so that it is likely the machine."
        advice = (
            f"Compare {nodes} with another node: other programs on it, its processors' clock and "
            "temperature, its disks and its network."
        )
    else:
        limit = f"{names}: input, work or machine are slower than those of the others."
        advice = (
            f"Compare {first.name} with a rank that waits: what each of them does at these lines, "
            "with how much data, and what else runs on the two machines."
        )
    return JobFinding(
        rule=STRAGGLER,
        severity=Severity.INFO,
        summary=(
            f"{called} {'are' if many else 'is'} the slowest{at}: {others} in collectives for "
            f"{least}% or more of the time, {'these' if many else 'it'} for {most}% at most"
        ),
        evidence=tuple(_slow_words(slow, fast, names)),
        cause=(
            "Each collective ends when all ranks have called it, so that each step takes as long "
            f"as {limit}"
        ),
        advice=advice,
        node=first.view.name,
        pid=first.row.pid,
        rank=first.row.rank,
    )


def _slow_words(slow: Sequence[PlacedRank], fast: Sequence[RankRow], names: str) -> Iterator[str]:
    """How much of its time each rank waits, what that is of a step, and where the slow ones are."""
    others = _list(fast)
    yield (
        f"time in which they wait in collectives: {names} {_between(_rows(slow))}%, {others} "
        f"{_between(fast)}%, by {min(row.waits for row in fast)} waits or more of each"
    )
    step = slow[0].row
    if step.step_ms:
        step_s = step.step_ms / 1000
        most = max(each.row.waits_percent or 0 for each in slow)
        least = min(row.waits_percent or 0 for row in fast)
        yield (
            f"each {step.step_of} takes {seconds_text(step_s)}; without waits {names} needed "
            f"{seconds_text(step_s * (100 - most) / 100)} or more for it, {others} "
            f"{seconds_text(step_s * (100 - least) / 100)} or less"
        )
    for each in slow[:NAMES_SHOWN]:
        if each.row.works_at:
            yield f"{each.called}: most stacks at {each.row.works_at}"


def _between(rows: Sequence[RankRow]) -> str:
    """`40 to 60`."""
    percents = sorted(row.waits_percent or 0 for row in rows)
    least, most = percents[0], percents[-1]
    return f"{least}" if least == most else f"{least} to {most}"
