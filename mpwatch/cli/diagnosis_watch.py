"""How long `diagnose` watches a job, on one machine or on several."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

from mpwatch.describe.findings import GROWTH_TOLD_S, rises, unresolved
from mpwatch.describe.progress import MENTIONED_S
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import seconds_text

if TYPE_CHECKING:
    from mpwatch.nodes.head.node import NodeView

LEAST_S = 5.0
"""How long a job is watched whose failure is known at once, and how long after it was found: what
the failure does to other processes shows a little later."""
LONGEST_S = GROWTH_TOLD_S
"""How long a job is watched at most: a little longer than the pause after which a job of which
nothing else is known counts as stalled (`rules.hangs.no_progress`), and than steady growth takes to
differ from a warm-up (`diagnose.analysis.growth.growing`)."""

STANDS_LIMIT_S = 66.0
"""How long a job is watched whose ranks make no progress while it is not certain that they never
will: a little longer than they take to be said to have stopped (`CRITICAL_S` of
`rules.distributed.rank_stuck_in_collective`), so that the answer has its final severity."""

SETTLED_S = 20.0
"""How long a job is watched at least of which it is known why it is slow: of shares of time that
are known so far, the 95 % confidence interval is 15 percentage points to each side, and what rises
has risen for long enough to be seen (`describe.findings.rises`), or by few values of a busy one."""

FIRST_FOR_S = 10.0
"""And for how long the same finding has been the first."""

TREND_ASKED_S = 3.0
"""So long before the end of the usual time it is decided whether to watch longer."""
TREND_LIMIT_S = 60.0
"""How long a job is watched in which a resource rises, but has not risen by enough to be told."""
STEPS_LIMIT_S = 90.0
"""Of how long a step takes it depends when it is known that few ranks of several machines are slow:
`mpwatch.nodes.wire.summary.WAITS_ENOUGH` steps are."""
URGENT_WITHIN_S = 15 * 60.0
"""A limit that is reached so soon is a warning once enough of the growth was seen."""
RECORDERS_S = 15.0
"""How long an answer is put off, at most, until what torch has recorded of each rank is read. Hooks
read it after 4 s without a change, and at most every 10 s."""
ANSWER_S = 88.0
"""The answer comes this long after the command was started, however slow the machine is."""


class DiagnosisWatch:
    """Says how long to watch a job whose findings are asked for, and what it waits for meanwhile.

    With a time given by the user, that time. Otherwise until a critical finding says what is wrong,
    at least `LEAST_S` and at most `LONGEST_S`: a stall, a growth and a slow job show only in time.
    `SETTLED_S` are enough where it is known why the job is slow, and nothing stalls or rises. Where
    something rises by then and is not told, or reaches a limit soon, up to `TREND_LIMIT_S`; where a
    warning says why ranks do not go on, up to `STANDS_LIMIT_S`. Once there is a critical finding,
    up to `RECORDERS_S` are added until what torch has recorded of ranks that stand still is read.
    """

    def __init__(
        self,
        seconds: float | None,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        spent_s: float = 0.0,
    ) -> None:
        """Start to watch.

        Args:
            seconds: Given by the user; `None` to decide by what is seen.
            show: Shows what is waited for.
            clock: Monotonic seconds.
            spent_s: For how long the command has run before. On a machine with many processes to
                each core that is much, and the report takes about as long.
        """
        self.limit_s = LONGEST_S if seconds is None else seconds
        self._is_fixed = seconds is not None
        self._show = show
        self._clock = clock
        self._began_s = clock()
        self._spent_s = spent_s
        self._certain_since_s: float | None = None
        self._slow_since_s: float | None = None
        self._first: Hashable = None
        self.last: Snapshot | None = None
        """The job at its last reading."""

    @property
    def longest_s(self) -> float:
        """Seconds after which the watch ends in any case."""
        return self.limit_s if self._is_fixed else STANDS_LIMIT_S

    def has_read(self, snapshot: Snapshot) -> None:
        """Take note of a reading of the job."""
        self.last = snapshot
        findings = unresolved(snapshot)
        if not any(finding.severity is Severity.CRITICAL for finding in findings):
            self._certain_since_s = None
        elif self._certain_since_s is None:
            self._certain_since_s = self._clock()
        stalled = None if self._is_fixed else stalled_words(snapshot)
        may_turn_critical = stalled is not None and any(map(_says_why_ranks_stand, findings))
        self._note_first(findings, is_stalled=stalled is not None)
        words = f"{len(snapshot.living())} processes"
        if not self._is_fixed:
            rising = None
            if self._clock() - self._began_s >= LONGEST_S - TREND_ASKED_S:
                is_told = any(map(_is_told, findings))
                rising = None if is_told else rising_words(snapshot)
                self.limit_s = LONGEST_S if rising is None else TREND_LIMIT_S
                self.limit_s = STANDS_LIMIT_S if may_turn_critical else self.limit_s
            self.limit_s = min(self.limit_s, self._affordable_s())
            known = rising or stalled or f"{words}, {_count_of(findings)}"
            words = f"{known}; watching up to {self.limit_s:.0f} s, ctrl-c to stop"
        self._show(words)

    def _note_first(self, findings: Sequence[Finding], *, is_stalled: bool) -> None:
        """Take note of for how long the same finding was the first, where it says what is slow."""
        first = findings[0] if findings else None
        key = None if first is None or is_stalled or not _says_what_is_slow(first) else first.key
        if key != self._first:
            self._slow_since_s = None if key is None else self._clock()
            self._first = key

    def _is_settled(self, now_s: float) -> bool:
        """Whether it is known why the job is slow, and nothing rises, which shows later."""
        if self._slow_since_s is None or self.last is None:
            return False
        if now_s - self._began_s < SETTLED_S or now_s - self._slow_since_s < FIRST_FOR_S:
            return False
        return next(rises(self.last, is_early=True), None) is None

    def _affordable_s(self) -> float:
        """How long the watch may last for the answer to come within `ANSWER_S`.

        After it everything is read once more and the report is made, which takes no longer than
        what came before (half of it, measured at a load of 56 on two cores).
        """
        return max(LEAST_S, ANSWER_S - 2 * self._spent_s)

    def is_enough(self) -> bool:
        """Whether the watch ends now, before its limit."""
        if self._is_fixed:
            return False
        now_s = self._clock()
        if now_s - self._began_s >= self.limit_s:
            return True
        if self._certain_since_s is None or now_s - self._certain_since_s < LEAST_S:
            return self._is_settled(now_s)
        is_late = now_s - self._certain_since_s >= LEAST_S + RECORDERS_S
        return is_late or self.last is None or not _has_unread_recorders(self.last)


def _says_what_is_slow(finding: Finding) -> bool:
    """Whether it is about where the time of a job goes, which shows within `SETTLED_S`."""
    from mpwatch.diagnose.engine import is_of_slowness

    return not finding.is_doubtful and is_of_slowness(finding.rule)


def _says_why_ranks_stand(finding: Finding) -> bool:
    from mpwatch.diagnose.analysis.distributed.flight_recorder import MISMATCH, STUCK

    return finding.rule in (STUCK, MISMATCH) and finding.severity > Severity.INFO


def _has_unread_recorders(snapshot: Snapshot) -> bool:
    """Whether torch's recorder of a rank that stands still can be read, and was not yet."""
    from mpwatch.diagnose.analysis.distributed.flight_recorder import is_recorder_due
    from mpwatch.diagnose.analysis.distributed.ranks import ranks_of
    from mpwatch.diagnose.analysis.index import Index
    from mpwatch.observe.sources.on_demand import is_still, servers

    served = {process.process for process, _ in servers(snapshot)}
    return any(
        is_still(rank) and is_recorder_due(rank, has_server=rank.process in served)
        for rank in ranks_of(Index(snapshot))
    )


def _is_told(finding: Finding) -> bool:
    """Whether a growth is told, and longer watching would not make more of it.

    How urgent it is shows in time: a line is not drawn far beyond the past it is known from
    (`diagnose.analysis.growth.forecast`).
    """
    if finding.rule != "steady-growth":
        return False
    is_near = finding.eta_s is not None and finding.eta_s <= URGENT_WITHIN_S
    return not is_near or finding.severity > Severity.INFO


def _count_of(findings: Sequence[Finding]) -> str:
    if not findings:
        return "no finding yet"
    return "1 finding so far" if len(findings) == 1 else f"{len(findings)} findings so far"


def stalled_words(snapshot: Snapshot) -> str | None:
    """A process that makes no progress and is not idle by design, in words; `None` without one.

    A process that computes makes progress, and so does a parent that joins it.
    """
    from mpwatch.diagnose.analysis.index import Index
    from mpwatch.diagnose.analysis.waits.blockages import blockages

    for chain in snapshot.waits.chains:
        since_s = chain.links[0].since_s or 0.0
        if chain.verdict in ("cycle", "dead-end") and since_s >= MENTIONED_S:
            return f"{chain.links[0].name} has made no progress for {seconds_text(since_s)}"
    for blockage in blockages(Index(snapshot)):
        if blockage.reason != "computes" and blockage.waited_s >= MENTIONED_S:
            name = (blockage.waiters or (blockage.process,))[0].label
            return f"{name} has made no progress for {seconds_text(blockage.waited_s)}"
    return None


def rising_words(snapshot: Snapshot) -> str | None:
    """A process of which a resource has risen for as long as it was watched, in words."""
    found = next(rises(snapshot), None)
    return None if found is None else f"{found.process.label} uses ever more {found.noun}"


# --- several machines ----------------------------------------------------------------------------

JUDGE_S = 1.0
"""Interval at which the findings of the job are updated while it is watched."""
_WORDS = frozenset(severity.word for severity in Severity)


class ReadsNodes(Protocol):
    """A head, as far as a watch needs it."""

    @property
    def is_settled(self) -> bool:
        """Whether each node has sent its first complete reading, or will not."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of any node."""
        ...

    def views(self) -> Sequence[NodeView]:
        """All nodes."""
        ...


class JobDiagnosisWatch:
    """Says how long to watch: with a time given by the user, that time.

    Otherwise as for one machine (`DiagnosisWatch`), from the time on at which
    all nodes have read their jobs: until a finding says what is wrong, within the same bounds.
    Where few ranks may be slow, up to `STEPS_LIMIT_S`. Without what torch has recorded, ranks that
    wait in several process groups look like ranks that have called something else.
    """

    def __init__(self, seconds: float | None) -> None:
        self.limit_s = LONGEST_S if seconds is None else seconds
        self.most_s = STEPS_LIMIT_S if seconds is None else seconds
        self._is_fixed = seconds is not None
        self._settled_s: float | None = None
        self._certain_s: float | None = None
        self._judged_s = 0.0

    def is_enough(self, head: ReadsNodes, seconds: float) -> bool:
        """Whether the watch ends; `seconds` is its length so far."""
        from mpwatch.nodes.across.judge import may_be_slow, may_know_more

        if not head.is_settled:
            return False
        if self._settled_s is None:
            self._settled_s = seconds
        watched_s = seconds - self._settled_s
        if head.is_over or (self._is_fixed and watched_s >= self.limit_s):
            return True
        if self._is_fixed or seconds - self._judged_s < JUDGE_S:
            return False
        self._judged_s = seconds
        views = head.views()
        if watched_s >= self.limit_s:
            return watched_s >= STEPS_LIMIT_S or not may_be_slow(views)
        if watched_s < LEAST_S or not _is_certain(views):
            self._certain_s = None
            return False
        if self._certain_s is None:
            self._certain_s = watched_s
        return watched_s - self._certain_s >= RECORDERS_S or not may_know_more(views)


def _is_certain(views: Sequence[NodeView]) -> bool:
    """Whether it is known why the job makes no progress, or a node has a critical finding."""
    from mpwatch.nodes.across.judge import STANDSTILLS, job_findings

    if any(
        each.rule in STANDSTILLS and each.severity > Severity.INFO for each in job_findings(views)
    ):
        return True
    return Severity.CRITICAL in severities_of_nodes(views)


def severities_of_nodes(views: Sequence[NodeView]) -> list[Severity]:
    """The severities of the findings of the nodes themselves."""
    return [
        Severity[row.severity.upper()]
        for view in views
        if view.summary is not None
        for row in view.summary.findings
        if row.severity in _WORDS
    ]
