"""Runs every rule on one snapshot after another and keeps the findings steady over time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from operator import attrgetter
from pkgutil import walk_packages
from types import ModuleType
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.error_messages import KNOWN_ERRORS, KnownError
from mpwatch.describe.findings import effects_below_causes
from mpwatch.diagnose import rules
from mpwatch.diagnose.analysis.distributed.habits import with_habits
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.growth.registrations import with_handlers
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source.costs import with_copies
from mpwatch.diagnose.analysis.source.endings import endings_for
from mpwatch.diagnose.analysis.source.in_flight import with_limit_kept
from mpwatch.diagnose.analysis.source.lines import quotes_for
from mpwatch.diagnose.analysis.throughput.account import EVERY_S, MANY, advanced
from mpwatch.diagnose.analysis.throughput.saved_parts import with_saved_parts
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.consequences import (
    CONNECTS,
    DEATHS,
    GROWTH,
    GROWTH_NAMED_BY,
    HOT_SPOT,
    ONLY_ALONE,
    OUTPUT,
    with_causes,
)
from mpwatch.diagnose.known_errors import known_error, with_explanation
from mpwatch.model.account import Account
from mpwatch.model.collectives import RankHabit
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import LogEntry, Process, Snapshot
from mpwatch.model.waits import WaitGraph

LINGER_S = 4.0
"""A finding is resolved after this long without detection: values near a threshold jitter."""
LINGER_LIMIT_S = 30.0
RETURNS_S = 6.0
"""A finding detected again this soon after it was resolved keeps its first time."""
CALM_S = 10.0
"""A finding keeps its highest severity for this long."""
SHOWN_RESOLVED_S = 60.0
"""How long a finding is shown as resolved before it is dropped."""
FAR_S = 3600.0
"""A limit that is further away than this harms nothing soon: other findings are more urgent."""
UNKNOWN_COST = 0.5
"""What a finding is taken to cost, as a share of the time, where that is not known: what costs most
of the time comes before it, and what costs little after it."""
RULE_FAILED = "rule-failed"
STALLS = frozenset(
    ("standing-still", "no-progress", "rank-stuck-in-collective", "collective-mismatch")
)
"""Rules about a job that makes no progress, of which a death changes the waits and not that."""
DEATH_SEEN_S = 4.0
"""Between the last reading before a death and the first one after it, on a loaded machine."""
LEAST_MISSES = 2
"""A finding is resolved after so many runs without detection, at least: on a loaded machine one run
may come `LINGER_S` after the other, and one reading may find a stalled process awake."""
SHARES_LINGER_S = 20.0
"""A finding about shares of time is resolved no sooner than this: the account that it compares is
that of a minute."""
MISSES = 4
"""A share has to be below its threshold in so many runs, however far apart they are."""
STEADY_S = 30.0
"""A large job is calm when for so long nothing was logged and no process has started or exited, and
no finding is a warning."""
CALM_EVERY_S = 4.5
"""Interval of the rules in a calm job. Waits and account are derived every `EVERY_S` all the same:
shares of time are samples. For 65 processes the diagnosis takes 0.67 of the cpu time that way."""

Check: TypeAlias = Callable[[Index], Iterator[Finding]]
_Key: TypeAlias = tuple[str, ProcessId | None, int | None, str]


class Rule(Struct, frozen=True):
    """One failure that can be recognised."""

    id: str
    check: Check
    is_of_shares: bool = False
    """Whether it compares shares of time with a threshold. On a loaded machine readings are few,
    and a share wavers: what has held for most of the time since it was found still says what takes
    time."""
    slows_down: bool = False
    """Whether its findings say that one process is waited for: every job has a slowest part, so
    that of findings equally severe another one says more."""
    is_of_results: bool = False
    """Whether its findings are about wrong results: of findings equally severe, one that the job
    is stalled comes first."""


def _check_message(known: KnownError, index: Index) -> Iterator[Finding]:
    return known_error(known, index.snapshot)


def rule_modules() -> Iterator[ModuleType]:
    """The modules in the folders of `rules`, one for each rule."""
    for found in walk_packages(rules.__path__, f"{rules.__name__}."):
        if not found.ispkg:
            yield import_module(found.name)


def _rule_of(module: ModuleType) -> Rule:
    """The rule of a module, which may have `IS_OF_SHARES`, `SLOWS_DOWN` and `IS_OF_RESULTS`."""
    return Rule(
        module.RULE,
        module.check,
        is_of_shares=getattr(module, "IS_OF_SHARES", False),
        slows_down=getattr(module, "SLOWS_DOWN", False),
        is_of_results=getattr(module, "IS_OF_RESULTS", False),
    )


RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *map(_rule_of, rule_modules()),
            *(Rule(known.rule, partial(_check_message, known)) for known in KNOWN_ERRORS),
        ),
        key=attrgetter("id"),
    )
)
"""Every rule and every known error message, sorted by id."""
_OF_SHARES = frozenset(rule.id for rule in RULES if rule.is_of_shares)
_SLOWS_DOWN = frozenset(rule.id for rule in RULES if rule.slows_down)
_OF_RESULTS = frozenset(rule.id for rule in RULES if rule.is_of_results)


def is_of_slowness(rule: str) -> bool:
    """Whether a rule is about where the time of a job goes."""
    return rule in _OF_SHARES or rule in _SLOWS_DOWN


_NOT_MEMORY = ("_rules", "_derive_waits")


class _Tracked(Struct):
    """A finding with the times of its detection."""

    finding: Finding
    first_seen_s: float
    last_seen_s: float
    worst: Severity
    worst_at_s: float
    resolved_s: float | None = None
    linger_s: float = LINGER_S
    """Seconds without detection until it is resolved; longer each time it is detected again."""
    misses: int = 0
    """Runs since it was last detected."""
    until: str = ""
    """The process whose end has made an end of the state that it describes."""
    earlier: tuple[Finding, float] | None = None
    """As it was detected the time before, and when."""


class Engine:
    """Turns the snapshots of one job, in order, into findings that do not flicker.

    The engine is the only part of the diagnosis with a memory: the rules are functions of an
    `Index`, which is built here, once for each snapshot. The engine's memory changes by `diagnosed`
    alone, and by the values of snapshots alone: the same snapshot given again changes nothing.
    """

    def __init__(
        self,
        rules: Sequence[Rule] = RULES,
        waits: Callable[[Index], WaitGraph] = wait_graph,
    ) -> None:
        self._rules = rules
        self._derive_waits = waits
        self._tracked: dict[_Key, _Tracked] = {}
        self._waits = WaitGraph()
        self._account = Account()
        self._habits: Mapping[ProcessId, RankHabit] = {}
        self._root: ProcessId | None = None
        self._at_s = float("-inf")
        self._ran_at_s = self._rules_at_s = float("-inf")
        """When waits and account were derived, and when the rules ran."""
        self._ran_on: tuple[int, tuple[LogEntry, ...]] = 0, ()
        """The number of processes and the last log entry then."""
        self._changed_s = float("-inf")
        """Since when these are the same."""

    @property
    def memory(self) -> Mapping[str, object]:
        """All that this engine remembers, to be pickled; the rules are not part of it."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_MEMORY}

    def restore(self, memory: Mapping[str, object]) -> None:
        """Remember what `memory` was, which this engine may change from now on."""
        vars(self).update(memory)

    def copy(self) -> Engine:
        """An independent engine in the same state."""
        other = copy.copy(self)
        other._tracked = {key: copy.copy(tracked) for key, tracked in self._tracked.items()}
        return other

    def diagnosed(self, snapshot: Snapshot, history: History) -> Snapshot:
        """The snapshot of a reading with its waits and findings; later findings depend on it.

        Waits, account and findings are derived of every snapshot of a small job. From `MANY`
        processes on, this is done every `EVERY_S`, findings of a calm job every `CALM_EVERY_S`, and
        at once after a log entry or when the number of processes has changed; until then the last
        ones hold. For 65 processes it takes 20 ms.

        Args:
            snapshot: The job after a reading.
            history: Its numbers over time.

        Returns:
            The snapshot with present findings, most severe first, each followed by its effects;
            then those resolved in the last `SHOWN_RESOLVED_S`, with `resolved_s` set.
        """
        failures = [*self._note_habits(snapshot)]
        snapshot = replace(snapshot, habits=self._habits)
        is_later, is_due = snapshot.at_s > self._at_s, self.is_due(snapshot)
        if snapshot.root != self._root or snapshot.at_s < self._at_s:
            self._tracked.clear()
            self._rules_at_s = float("-inf")
        self._root, self._at_s = snapshot.root, snapshot.at_s
        if is_due:
            self._ran_at_s = snapshot.at_s
            if _ran_on(snapshot) != self._ran_on:
                self._ran_on, self._changed_s = _ran_on(snapshot), snapshot.at_s
            self._derive(Index(snapshot, history), failures, is_later=is_later)
        self._settle(snapshot.at_s)
        findings = _ordered([_shown(tracked) for tracked in self._tracked.values()])
        return replace(snapshot, waits=self._waits, account=self._account, findings=findings)

    def is_due(self, snapshot: Snapshot) -> bool:
        """Whether `diagnosed` derives anything of a snapshot, for which it needs the history."""
        if snapshot.root != self._root or snapshot.at_s < self._at_s:
            return True
        is_recent = snapshot.at_s - self._ran_at_s < EVERY_S
        is_same = _ran_on(snapshot) == self._ran_on
        return not (is_recent and is_same and len(snapshot.processes) >= MANY)

    def preview(self, snapshot: Snapshot, history: History, *, all_rules: bool = False) -> Snapshot:
        """A snapshot with its waits and findings; the engine does not change.

        Args:
            snapshot: The job, also between two readings.
            history: Its numbers over time.
            all_rules: Diagnose it also where `diagnosed` would not.
        """
        other = self.copy()
        if all_rules:
            other._ran_at_s = other._rules_at_s = float("-inf")
        return other.diagnosed(snapshot, history)

    def _note_habits(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Note what a reading shows of the habits of ranks; a finding if that raises."""
        if snapshot.root != self._root or snapshot.at_s < self._at_s:
            self._habits = {}
        try:
            self._habits = with_habits(self._habits, snapshot)
        except Exception as error:  # noqa: BLE001 - it must not silence the rules
            yield _failure_of("habits", error)

    def _derive(self, index: Index, failures: list[Finding], *, is_later: bool) -> None:
        """Derive waits and account of a snapshot, then run the rules if they are due.

        Rules read both, and share what they derive.

        Args:
            index: The snapshot.
            failures: What has failed before; each failure is a finding of its own.
            is_later: Whether the snapshot is not the one of the last run.
        """
        snapshot = index.snapshot
        self._waits = WaitGraph()
        try:
            self._waits = self._derive_waits(index)
        except Exception as error:  # noqa: BLE001 - it must not silence the rules
            failures.append(_failure_of("waits", error, _NO_WAITS))
        try:
            self._account = advanced(self._account, index, self._waits)
        except Exception as error:  # noqa: BLE001 - it must not silence the rules
            failures.append(_failure_of("account", error, _NO_ACCOUNT))
        # What was derived of the index before does not depend on these.
        index.snapshot = replace(snapshot, waits=self._waits, account=self._account)
        if self._are_rules_due(snapshot):
            self._rules_at_s = snapshot.at_s
            for tracked in self._tracked.values():
                tracked.misses += is_later
            detected = {id(self._track(each, snapshot.at_s)) for each in self._run(index)}
            self._drop_unshown(snapshot, detected)
            self._drop_first_impressions()
            self._keep_story(index)
        for finding in failures:
            self._track(finding, snapshot.at_s)
        index.drop_derived()

    def _are_rules_due(self, snapshot: Snapshot) -> bool:
        """Whether the rules run on a snapshot of which waits and account are derived."""
        is_recent = snapshot.at_s - self._rules_at_s < CALM_EVERY_S
        is_steady = snapshot.at_s - self._changed_s >= STEADY_S
        if not (is_recent and is_steady and len(snapshot.processes) >= MANY):
            return True
        return any(
            each.resolved_s is None and each.worst >= Severity.WARNING
            for each in self._tracked.values()
        )

    def _run(self, index: Index) -> Iterable[Finding]:
        """The findings of all rules; a rule that raises becomes a finding."""
        for rule in self._rules:
            try:
                for found in rule.check(index):
                    finding = found
                    if rule.is_of_shares:
                        finding = with_handlers(index, with_copies(index, found))
                        finding = with_saved_parts(index, finding)
                    finding = with_explanation(index, finding)
                    more = (*quotes_for(index, finding), *endings_for(index, finding))
                    finding = replace(finding, evidence=(*finding.evidence, *more))
                    yield with_limit_kept(index, finding)
            except Exception as error:  # noqa: BLE001 - one broken rule must not silence the others
                yield _failure_of(rule.id, error)

    def _track(self, finding: Finding, at_s: float) -> _Tracked:
        """Note the detection of a finding, new or known."""
        tracked = self._tracked.get(finding.key) or self._renamed(finding, at_s)
        if tracked is None or tracked.resolved_s is not None:
            tracked = self._tracked[finding.key] = _begun(finding, at_s, tracked)
            return tracked
        if at_s > tracked.last_seen_s:
            tracked.earlier = tracked.finding, tracked.last_seen_s
        tracked.finding, tracked.last_seen_s, tracked.misses = finding, at_s, 0
        if finding.severity >= tracked.worst or at_s - tracked.worst_at_s > CALM_S:
            tracked.worst, tracked.worst_at_s = finding.severity, at_s
        return tracked

    def _drop_unshown(self, snapshot: Snapshot, detected: Collection[int]) -> None:
        """Drop findings that were not detected about processes that the snapshot has dropped.

        Args:
            snapshot: On which the rules have run.
            detected: What they have found, by its `id`.
        """
        for key, tracked in list(self._tracked.items()):
            finding = tracked.finding
            concerned = (finding.process, *finding.others)
            is_shown = finding.process is None or any(map(snapshot.get, concerned))
            if not is_shown and id(tracked) not in detected:
                del self._tracked[key]

    def _drop_first_impressions(self) -> None:
        """Drop what was said of a stall for a moment, until more of it was read.

        A job that has stood still for long is judged at its first reading, when most stacks and the
        source are not known yet. Once the rule has found something else since, that is the answer.
        """
        latest_s: dict[str, float] = {}
        for each in self._tracked.values():
            if each.misses == 0 and each.finding.rule in STALLS:
                rule = each.finding.rule
                latest_s[rule] = max(each.first_seen_s, latest_s.get(rule, each.first_seen_s))
        for key, each in list(self._tracked.items()):
            is_first = each.last_seen_s - each.first_seen_s < LINGER_S and not each.until
            began_s = latest_s.get(each.finding.rule, float("-inf"))
            if (
                is_first
                and each.misses > 0
                and each.resolved_s is None
                and began_s > each.last_seen_s
            ):
                del self._tracked[key]

    def _renamed(self, finding: Finding, at_s: float) -> _Tracked | None:
        """The same finding about fewer or more processes, kept under the new key."""
        for key, tracked in self._tracked.items():
            is_of_several = finding.others or tracked.finding.others
            if (
                is_of_several
                and tracked.resolved_s is None
                and tracked.last_seen_s < at_s
                and tracked.finding.overlaps(finding)
            ):
                self._tracked[finding.key] = self._tracked.pop(key)
                return tracked
        return None

    def _keep_story(self, index: Index) -> None:
        """Keep what was known of a stall when a process of the stalled job failed.

        Its waits are others since, and a job that has ended has none: that is no progress. The
        finding stays until the process it is about makes progress.
        """
        deaths = _failures(index.snapshot)
        for tracked in self._tracked.values():
            finding = tracked.finding
            if finding.rule not in STALLS or tracked.resolved_s is not None:
                continue
            before = [each for each in deaths if _is_before(tracked, each)]
            process = index.snapshot.get(finding.process)
            is_detected = tracked.misses == 0
            if not before or is_detected or process is None or _goes_on(index, process, before[0]):
                tracked.until = ""
            elif not tracked.until:
                tracked.finding = _as_before(tracked, before[0])
                tracked.until = called(before[0])
        kept = {key: each.finding.rule for key, each in self._tracked.items() if each.until}
        if not ONLY_ALONE.issuperset(kept.values()):
            for key in [key for key, rule in kept.items() if rule in ONLY_ALONE]:
                del self._tracked[key]

    def _settle(self, at_s: float) -> None:
        """Resolve findings not detected for a while, drop those resolved long ago."""
        for key, tracked in list(self._tracked.items()):
            if tracked.until:
                continue
            if tracked.resolved_s is None and self._is_over(tracked, at_s):
                tracked.resolved_s = at_s
            elif tracked.resolved_s is not None and at_s - tracked.resolved_s >= SHOWN_RESOLVED_S:
                del self._tracked[key]

    def _is_over(self, tracked: _Tracked, at_s: float) -> bool:
        """Whether a finding was not detected for so long that it no longer holds.

        Shares of time say nothing of a job that has failed meanwhile.
        """
        missed_s = at_s - tracked.last_seen_s
        rule = tracked.finding.rule
        if tracked.misses < LEAST_MISSES:
            return False
        if rule in _OF_SHARES and self._has_failed(Severity.CRITICAL):
            return True
        stall = self._stall_of(tracked.finding)
        if stall is not None and (stall.says_why or missed_s >= tracked.linger_s):
            return True
        if missed_s < tracked.linger_s or rule not in _OF_SHARES or self._has_failed():
            return missed_s >= tracked.linger_s
        if missed_s >= LINGER_LIMIT_S:
            return True
        held_s = tracked.last_seen_s - tracked.first_seen_s
        return tracked.misses >= MISSES and missed_s >= max(SHARES_LINGER_S, held_s)

    def _stall_of(self, finding: Finding) -> Finding | None:
        """The present finding of a stall by a process that took more time than others before."""
        if finding.rule not in _OF_SHARES or finding.process is None:
            return None
        found = (each.finding for each in self._tracked.values() if each.misses == 0)
        same = (each for each in found if each.process == finding.process)
        return next((each for each in same if each.rule in STALLS), None)

    def _has_failed(self, severity: Severity = Severity.WARNING) -> bool:
        """Whether a present finding of this severity or a higher one is of more than time lost."""
        return any(
            each.resolved_s is None
            and each.finding.severity >= severity
            and each.finding.rule not in _OF_SHARES
            for each in self._tracked.values()
        )


def _ran_on(snapshot: Snapshot) -> tuple[int, tuple[LogEntry, ...]]:
    """The number of processes and the last log entry."""
    return len(snapshot.processes), snapshot.log[-1:]


def _begun(finding: Finding, at_s: float, before: _Tracked | None) -> _Tracked:
    """A finding detected for the first time, or again; then it lingers for longer."""
    tracked = _Tracked(finding, at_s, at_s, finding.severity, at_s)
    if before is not None and before.resolved_s is not None:
        tracked.linger_s = min(LINGER_LIMIT_S, 3 * before.linger_s)
        if at_s - before.resolved_s < RETURNS_S:
            tracked.first_seen_s = before.first_seen_s
    return tracked


def _failures(snapshot: Snapshot) -> list[Process]:
    """The processes that have failed or were killed, the first of them first."""
    failed = [
        (process.ended.at_s, number, process)
        for number, process in enumerate(snapshot.processes)
        if process.ended is not None and death_of(process.ended) in ("failed", "crash", "killed")
    ]
    return [process for _, _, process in sorted(failed)]


def _is_before(tracked: _Tracked, process: Process) -> bool:
    """Whether a finding was detected up to the end of a process, and well before it."""
    ended = process.ended
    return ended is not None and (
        tracked.first_seen_s < ended.at_s <= tracked.last_seen_s + DEATH_SEEN_S
    )


def _as_before(tracked: _Tracked, failed: Process) -> Finding:
    """The finding as it was before a process ended, not as it was found of those that were left."""
    ended, earlier = failed.ended, tracked.earlier
    if ended is None or earlier is None or tracked.last_seen_s <= ended.at_s:
        return tracked.finding
    return earlier[0] if earlier[1] <= ended.at_s else tracked.finding


def _goes_on(index: Index, process: Process, failed: Process) -> bool:
    """Whether a process has made progress since another one failed."""
    if process.is_gone or failed.ended is None:
        return False
    quiet, passed_s = quiet_s(process, index), index.snapshot.at_s - failed.ended.at_s
    return quiet is not None and quiet + DEATH_SEEN_S < passed_s


def _shown(tracked: _Tracked) -> Finding:
    """The finding with its severity and times over all runs."""
    finding = tracked.finding
    if tracked.until:
        # It is no effect of that end, and its cause is the one that it names.
        finding = replace(
            finding,
            summary=f"before {tracked.until} ended, {finding.summary}",
            says_why=True,
            effect_of=None,
        )
    return replace(
        finding,
        severity=tracked.worst,
        first_seen_s=tracked.first_seen_s,
        resolved_s=tracked.resolved_s,
        eta_s=tracked.finding.eta_s if tracked.resolved_s is None else None,
    )


_NO_WAITS = "the waits between processes could not be determined"
_NO_ACCOUNT = "what processes did with their time could not be determined"


def _failure_of(name: str, error: Exception, summary: str = "") -> Finding:
    """A finding about a rule that raised, or about what all rules read.

    Args:
        name: The rule, or the part of the engine.
        error: What was raised.
        summary: What is missing now; empty for a rule.
    """
    where = "unknown place"
    trace = error.__traceback__
    while trace is not None:
        where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return Finding(
        rule=RULE_FAILED,
        severity=Severity.INFO,
        subject=name,
        summary=summary or f"the rule {name} failed before it had checked all of this job",
        evidence=(f"{type(error).__name__}: {error}", where),
        cause="A defect in mpwatch, or a reading it did not expect. Other rules still run.",
        advice="Report it with a recording of this job. The job itself need not be at fault.",
    )


def _ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Root causes by severity, each followed by its effects; resolved ones last."""
    present = [finding for finding in findings if finding.resolved_s is None]
    causes = with_causes(present)
    named = [
        replace(finding, effect_of=causes.get(finding))
        for finding in present
        if finding.rule not in ONLY_ALONE or causes.get(finding) in (None, *_shows(finding))
    ]
    if any(_is_of_wrong(finding) for finding in named):
        named = [each for each in named if each.rule != HOT_SPOT or not each.is_doubtful]
    effects: dict[str | None, list[Finding]] = {}
    for finding in named:
        effects.setdefault(finding.effect_of, []).append(finding)
    urgent = sorted(named, key=lambda finding: _urgency_with_effects(finding, effects))
    resolved = sorted(
        # Where the time went before was no problem that is gone.
        (each for each in findings if each.resolved_s is not None and each.rule != HOT_SPOT),
        key=lambda finding: -(finding.resolved_s or 0.0),
    )
    return (*effects_below_causes(urgent), *resolved)


def _is_of_wrong(finding: Finding) -> bool:
    """Whether a finding says of something that it is wrong, beyond where the time goes."""
    return finding.rule not in (HOT_SPOT, RULE_FAILED) and not _may_be_output(finding)


def _may_be_output(finding: Finding) -> bool:
    """Whether a finding is about files that may be what the program is to write."""
    is_of_files = finding.rule == GROWTH and finding.subject in OUTPUT
    return is_of_files and finding.is_doubtful


def _shows(finding: Finding) -> frozenset[str]:
    """The causes under which a finding is shown that is otherwise left out beside its cause."""
    if finding.rule == "standing-still" or (finding.rule, finding.subject) == CONNECTS:
        return DEATHS
    if (finding.rule, finding.subject) == (GROWTH, "queue"):
        return frozenset(GROWTH_NAMED_BY["queue"])
    return frozenset()


def _urgency(finding: Finding) -> tuple[float, ...]:
    """Sort key: most severe, then what harms rather than slows down, soonest, costliest, oldest.

    Of equally severe ones what may be innocent comes later: what costs time now is more than that.
    Last are findings that a process merely waits, or computes for long, and limits far away.
    """
    eta_s = float("inf") if finding.eta_s is None else finding.eta_s
    is_far = finding.eta_s is not None and finding.eta_s > FAR_S
    first_s = finding.first_seen_s or 0.0
    return (
        -finding.severity,
        _doubt(finding, is_far=is_far),
        2 if finding.rule in _SLOWS_DOWN else finding.rule in _OF_RESULTS,
        is_far,
        eta_s,
        -round(UNKNOWN_COST if finding.costs is None else finding.costs, 1),
        first_s,
    )


def _doubt(finding: Finding, *, is_far: bool) -> int:
    """How likely nothing is wrong, in steps: 0 where it is not innocent.

    Of innocent findings, what grows comes before what merely waits or computes, and that before a
    limit that is far away. The pace of a job comes last: every job has one, and what grows is lost
    however far its limit is. Only files that may be the output of the job come after it.
    """
    if not finding.is_doubtful:
        return 0
    if _may_be_output(finding):
        return 6
    if is_far:
        return 4
    if finding.eta_s is not None:
        return 1
    if finding.rule == GROWTH:
        return 2
    return 5 if finding.rule in _SLOWS_DOWN else 3


def _urgency_with_effects(
    finding: Finding, effects: Mapping[str | None, Sequence[Finding]]
) -> tuple[float, ...]:
    """A cause is as urgent as the worst of its direct effects."""
    family = [finding, *effects.get(finding.rule, ())]
    return (-max(f.severity for f in family), *_urgency(finding))
