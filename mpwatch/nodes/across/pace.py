"""The rank that sets the pace: the others wait for it again and again, while all of them go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mpwatch.diagnose.analysis.idle_time import STALLED_S
from mpwatch.model.findings import Severity
from mpwatch.nodes.across.collectives import missing_ranks
from mpwatch.nodes.across.finding import JobFinding
from mpwatch.nodes.across.ranks import JobRanks, NodeRanks, PlacedRank, is_rank
from mpwatch.nodes.head.view import NodeView
from mpwatch.nodes.wire.summary import RankRow

RULE = "straggler-rank"
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
        rule=RULE,
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
