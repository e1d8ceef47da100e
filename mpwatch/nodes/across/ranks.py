"""The ranks of a job on all of its nodes, and what findings ask of all of them at once.

A job of 1,000 nodes has 64,000 ranks. What is asked of each of them is computed when the rows of
its node change, and not at each summary: `RankCache` keeps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from mpwatch.diagnose.analysis.distributed.habits import most_s
from mpwatch.diagnose.analysis.distributed.ranks import WORKING_PERCENT, strays
from mpwatch.diagnose.analysis.idle_time import STALLED_S
from mpwatch.model.collectives import HABIT
from mpwatch.model.units import seconds_text
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.summary import IN_RAY_GET, WAITS_ENOUGH, RankRow

NAMED_S = 5.0
"""After so long a rank that the others wait for is named as information. It is a warning from
`STALLED_S` on: to save a checkpoint may take a rank some seconds."""
WAITING_PERCENT = 40
PACE_PERCENT = 10
"""Ranks that wait in collectives in at most this share of their time set the pace, where the others
do so in `WAITING_PERCENT` or more."""
LOOPBACK = ("127.", "[::1]", "::1", "localhost:")
"""How addresses begin that are another machine's own on each machine."""
EVIDENCE_SHOWN = 8
"""Lines of evidence of one finding."""
STOPPED = frozenset(("stopped", "traced"))
_NEVER, _NOW = float("-inf"), float("inf")


class PlacedRank(NamedTuple):
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
        return rank_name(self.row)

    @property
    def quiet_s(self) -> float:
        """Seconds for which it has made no progress, as its node has last said; 0 if it does."""
        summary, since_s = self.view.summary, self.row.quiet_at_s
        return max(0.0, summary.at_s - since_s) if summary and since_s is not None else 0.0

    @property
    def is_moving(self) -> bool:
        """Whether it makes progress, however little cpu that takes."""
        has_ended = self.row.is_ended or self.row.state in STOPPED
        return self.quiet_s < STALLED_S and not has_ended

    @property
    def is_working(self) -> bool:
        """Whether it uses the cpu."""
        return self.quiet_s < STALLED_S and (self.row.cpu_percent or 0) >= WORKING_PERCENT


def rank_name(row: RankRow) -> str:
    """`rank 301`, or its label and pid if it has no number."""
    return f"rank {row.rank}" if row.rank is not None else f"{row.label} ({row.pid})"


def does(late: PlacedRank, at_most_s: float = _NOW) -> str:
    """What a rank does while the others wait for it.

    Args:
        late: The rank.
        at_most_s: It has made progress so many seconds ago, whatever its node says.
    """
    row = late.row
    quiet_s = min(late.quiet_s, at_most_s)
    at = f" at {row.line}" if row.line else ""
    least = "at least " if row.is_since_watched and quiet_s == late.quiet_s else ""
    if row.is_ended:
        return f"has ended ({row.ended})"
    if row.state in STOPPED:
        return f"is {row.state}{at}"
    if quiet_s >= NAMED_S:
        return f"has made no progress for {least}{seconds_text(quiet_s)}{at}"
    return f"is still working{at}" if late.is_working else f"was last seen{at or ' elsewhere'}"


def awaits(row: RankRow) -> str:
    """What a rank that has not ended waits for, in words; empty if unknown."""
    known = row.doing.removeprefix(f"{row.line}, ") if row.line else row.doing
    return row.chain or (known if known.startswith("waits ") else "")


class RankSet(NamedTuple):
    """The ranks of one job on one node."""

    rows: tuple[RankRow, ...]
    inside: tuple[RankRow, ...]
    """Those that wait in a collective."""
    late: tuple[RankRow, ...]
    """Those that live and are in no collective, or of which no stack is known."""
    known: tuple[RankRow, ...]
    """Those of the late ones that are known to be in no collective."""
    unknown: tuple[RankRow, ...]
    """Those of the late ones of which no stack is known."""
    ended: tuple[RankRow, ...]
    inside_moved_s: float
    """When the last one inside made progress, by the clock of the node; infinite if one does."""
    most_inside_moved_s: float
    """The same without `STRAY_SHARE` of those inside."""
    known_moved_s: float
    """When the last known one made progress, without those that a signal has stopped."""
    most_unknown_moved_s: float
    """The same of the unknown ones, without as many as are `STRAY_SHARE` of those that live."""
    slow: tuple[RankRow, ...] = ()
    """Those that wait in collectives in `PACE_PERCENT` of their time at most."""
    fast: tuple[RankRow, ...] = ()
    """Those that do so in `WAITING_PERCENT` or more, each time anew in steps enough."""
    fast_moved_s: float = _NEVER
    """When the last of these made progress, as `inside_moved_s`."""
    undecided: tuple[RankRow, ...] = ()
    """Those that wait as much, in too few steps so far."""
    usual_wait_s: float = 0.0
    """How long most of those that live have waited before; 0 if for a few seconds at most."""

    @property
    def alive(self) -> tuple[RankRow, ...]:
        """Those that have not ended."""
        return self.inside + self.late


class NodeRanks(NamedTuple):
    """The rows of one node."""

    living: tuple[RankRow, ...]
    """Those of processes that have not ended, ranks or not."""
    jobs: Mapping[str, RankSet]
    """Ranks by job."""
    has_ray_driver: bool
    """Whether a driver waits in ray.get."""


def ranks_of_node(rows: Iterable[RankRow]) -> NodeRanks:
    """What is asked of the rows of a node."""
    jobs: defaultdict[str, list[RankRow]] = defaultdict(list)
    living = []
    has_ray_driver = False
    for row in rows:
        if is_rank(row):
            jobs[row.job].append(row)
        if not row.is_ended:
            living.append(row)
            has_ray_driver |= row.place == IN_RAY_GET and not row.is_ray_worker
    sets = {job: _rank_set(tuple(each)) for job, each in jobs.items()}
    return NodeRanks(tuple(living), sets, has_ray_driver)


def is_rank(row: RankRow) -> bool:
    """Whether a row is of a rank; a node without ranks has rows of other processes."""
    return row.rank is not None or row.world_size is not None


def has_known_place(row: RankRow) -> bool:
    """Whether it is known that a rank of which no collective is known is in none."""
    return row.has_stack or row.state in STOPPED


def _rank_set(rows: tuple[RankRow, ...]) -> RankSet:
    alive = [row for row in rows if not row.is_ended]
    inside = tuple(row for row in alive if row.place is not None)
    late = tuple(row for row in alive if row.place is None)
    known = tuple(row for row in late if has_known_place(row))
    unknown = tuple(row for row in late if not has_known_place(row))
    waiting = [row for row in alive if (row.waits_percent or 0) >= WAITING_PERCENT]
    fast = tuple(filter(_has_enough_waits, waiting))
    return RankSet(
        rows=rows,
        inside=inside,
        late=late,
        known=known,
        unknown=unknown,
        ended=tuple(row for row in rows if row.is_ended),
        inside_moved_s=_last_moved_s(inside),
        most_inside_moved_s=_last_moved_s(inside, strays(len(inside))),
        known_moved_s=_last_moved_s(row for row in known if row.state not in STOPPED),
        most_unknown_moved_s=_last_moved_s(unknown, strays(len(alive))),
        slow=tuple(
            row
            for row in alive
            if row.waits_percent is not None and row.waits_percent <= PACE_PERCENT
        ),
        fast=fast,
        fast_moved_s=_last_moved_s(fast),
        undecided=tuple(row for row in waiting if not _has_enough_waits(row)),
        usual_wait_s=most_s(row.usual_wait_s or 0 for row in alive),
    )


def _has_enough_waits(row: RankRow) -> bool:
    return row.has_enough_waits or row.waits >= WAITS_ENOUGH


def _last_moved_s(rows: Iterable[RankRow], strays: int = 0) -> float:
    """When the last of the ranks made progress, without those that did so last."""
    moved = sorted(_NOW if row.quiet_at_s is None else row.quiet_at_s for row in rows)
    return moved[-1 - strays] if strays < len(moved) else _NEVER


@dataclass(frozen=True, slots=True)
class JobRanks:
    """The ranks of one job on all nodes; those of silent nodes as last received."""

    job: str
    parts: tuple[tuple[NodeView, RankSet], ...]
    host: str = ""
    """The machine of a job at a loopback address, where other machines have one there as well."""

    @property
    def live(self) -> JobRanks:
        """Without the nodes that do not answer."""
        parts = tuple(part for part in self.parts if part[0].state == "live")
        return JobRanks(self.job, parts, self.host)

    @property
    def silent_waiters(self) -> JobRanks:
        """The nodes that do not answer, with all their ranks in a collective in the last message.

        They are still there as long as a rank that it needs has not come.
        """
        parts = (
            (view, ranks)
            for view, ranks in self.parts
            if view.state == "silent" and ranks.inside and not ranks.late and not ranks.ended
        )
        return JobRanks(self.job, tuple(parts), self.host)

    def count(self, what: str) -> int:
        """The number of ranks in one of the fields of `RankSet`."""
        return sum(len(getattr(ranks, what)) for _, ranks in self.parts)

    def rows(self, what: str) -> list[RankRow]:
        """The rows in one of the fields of `RankSet`."""
        return [row for _, ranks in self.parts for row in getattr(ranks, what)]

    def placed(self, what: str = "rows") -> list[PlacedRank]:
        """The ranks in one of the fields of `RankSet`, by number."""
        found = [
            PlacedRank(view, row) for view, ranks in self.parts for row in getattr(ranks, what)
        ]
        return sorted(found, key=_by_number)

    @property
    def gone(self) -> list[PlacedRank]:
        """Ranks that have ended, without those that were started again."""
        ended = self.placed("ended")
        numbers = {row.rank for _, ranks in self.parts for row in ranks.alive} if ended else set()
        return [each for each in ended if each.row.rank not in numbers]

    @property
    def quiet_s(self) -> float:
        """Seconds for which no rank in a collective has moved; infinite if there is none."""
        return min(self._quiet(lambda ranks: ranks.inside_moved_s), default=_NOW)

    @property
    def most_quiet_s(self) -> float:
        """The same without `STRAY_SHARE` of the ranks of each node, and of the nodes."""
        found = sorted(
            quiet_s
            for quiet_s in self._quiet(lambda ranks: ranks.most_inside_moved_s)
            if quiet_s != _NOW
        )
        return found[strays(len(found))] if found else _NOW

    @property
    def has_gone_on(self) -> bool:
        """Whether most of its living ranks make progress."""
        alive = self.placed("alive")
        return 2 * sum(each.quiet_s < NAMED_S for each in alive) > len(alive)

    @property
    def habit_s(self) -> float:
        """How long a wait is nothing new on most of the nodes; 0 where their waits are short."""
        return HABIT * most_s(ranks.usual_wait_s for _, ranks in self.parts)

    @property
    def fast_quiet_s(self) -> float:
        """Seconds for which none of those that wait in each step has moved; infinite without."""
        return min(self._quiet(lambda ranks: ranks.fast_moved_s), default=_NOW)

    @property
    def late_quiet_s(self) -> float:
        """Seconds for which no late rank has made progress; infinite if there is none.

        Of those without a stack, `STRAY_SHARE` may have done so: they are in the collective, most
        of them, and had one before they moved.
        """
        known_s = min(self._quiet(lambda ranks: ranks.known_moved_s), default=_NOW)
        unknown = sorted(self._quiet(lambda ranks: ranks.most_unknown_moved_s))
        return min(known_s, unknown[strays(len(unknown))] if unknown else _NOW)

    def _quiet(self, moved_s: Callable[[RankSet], float]) -> Iterator[float]:
        """Seconds since a moment of each node."""
        for view, ranks in self.parts:
            if view.summary is not None:
                yield max(0.0, view.summary.at_s - moved_s(ranks))


def _by_number(each: PlacedRank) -> tuple[bool, int]:
    number = each.row.rank
    return number is None, number or 0


class RankCache:
    """What is asked of the rows of each node, computed again only where rows have changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[RankRow, ...], NodeRanks]] = {}

    def nodes(self, views: Sequence[NodeView]) -> list[tuple[NodeView, NodeRanks]]:
        """All nodes that have sent a summary."""
        before, self._known = self._known, {}
        found = []
        for view in views:
            if view.summary is None:
                continue
            rows = view.summary.ranks
            known = before.get(view.name)
            if known is None or known[0] is not rows:
                known = (rows, ranks_of_node(rows))
            self._known[view.name] = known
            found.append((view, known[1]))
        return found


def jobs_of(nodes: Iterable[tuple[NodeView, NodeRanks]]) -> list[JobRanks]:
    """The ranks of each job; jobs of two machines that meet at `localhost` are two."""
    parts: dict[str, dict[str, list[tuple[NodeView, RankSet]]]] = {}
    for view, ranks in nodes:
        for job, each in ranks.jobs.items():
            host = view.host if job.startswith(LOOPBACK) else ""
            parts.setdefault(job, {}).setdefault(host, []).append((view, each))
    found = []
    for job, by_host in parts.items():
        if len(by_host) > 1 and _are_of_one_job(by_host.values()):
            found.append(JobRanks(job, tuple(chain.from_iterable(by_host.values()))))
        else:
            found += [JobRanks(job, tuple(each), host) for host, each in by_host.items()]
    return found


def _are_of_one_job(hosts: Iterable[Sequence[tuple[NodeView, RankSet]]]) -> bool:
    """Whether machines with one loopback address are namespaces of one machine.

    Each has ranks of other numbers then, where each of two jobs has all of its own.
    """
    sizes: set[int | None] = set()
    seen: set[int | None] = set()
    for parts in hosts:
        rows = [row for _, ranks in parts for row in ranks.rows]
        numbers = {row.rank for row in rows}
        if None in numbers or not seen.isdisjoint(numbers):
            return False
        seen |= numbers
        sizes |= {row.world_size for row in rows}
    size = sizes.pop() if len(sizes) == 1 else None
    return size is not None and all(number is not None and number < size for number in seen)
