"""Runs all rules over a snapshot and keeps what they find steady over time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mpwatch.describe.findings import effects_below_causes
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.consequences import ONLY_ALONE, with_causes
from mpwatch.diagnose.registry import RULES, Rule
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import LogEntry, Snapshot
from mpwatch.model.waits import WaitGraph

LINGER_S = 4.0
"""A finding that is not seen for less than this is still held: values near a threshold jitter."""
LINGER_LIMIT_S = 30.0
RETURNS_S = 6.0
"""What comes back this soon after it was resolved was never gone."""
CALM_S = 10.0
"""A finding keeps its highest severity for this long."""
SHOWN_RESOLVED_S = 60.0
"""How long a finding is shown as resolved before it is dropped."""
RULE_FAILED = "rule-failed"
MANY = 16
"""From so many processes on, not every one of looks that follow each other asks the rules."""
CLOSE_S = 1.25
LOOKS_SKIPPED = 2
"""With `CLOSE_S` less than `LINGER_S`: what a rule found last holds until it is asked again."""

_Key: TypeAlias = tuple[str, ProcessId | None, int | None, str]


@dataclass(slots=True)
class _Held:
    """A finding and its course so far."""

    finding: Finding
    first_seen_s: float
    last_seen_s: float
    worst: Severity
    worst_at_s: float
    resolved_s: float | None = None
    linger_s: float = LINGER_S
    """How long it is held without being seen; longer each time that it came back."""


class Engine:
    """Turns snapshots, one after another, into findings that do not flicker.

    One engine follows one job. What it finds depends on the snapshots it was given before, so it is
    given one for each reading of the job, and `preview` serves whoever asks in between.
    """

    def __init__(
        self,
        rules: Sequence[Rule] = RULES,
        waits: Callable[[Snapshot], WaitGraph] = wait_graph,
    ) -> None:
        self._rules = rules
        self._derive_waits = waits
        self._failed: Finding | None = None
        self._held: dict[_Key, _Held] = {}
        self._root: ProcessId | None = None
        self._at_s = float("-inf")
        self._told: tuple[int, tuple[LogEntry, ...]] = 0, ()
        """How many processes there were, and what was told last, when the rules were asked."""
        self._skipped = 0
        self._last: tuple[Snapshot, Snapshot] | None = None
        """The snapshot given last, and the same with waits and findings."""

    def copy(self) -> Engine:
        """An engine in the same state that goes its own way."""
        other = copy.copy(self)
        other._held = {key: copy.copy(held) for key, held in self._held.items()}
        other._last = None
        return other

    def diagnosed(self, snapshot: Snapshot, history: History) -> Snapshot:
        """The snapshot of a reading with its waits and findings, which count for later ones.

        Asked again about the same snapshot, it returns the same result and does nothing.
        """
        if self._last is None or self._last[0] is not snapshot:
            waiting = replace(snapshot, waits=self.waits(snapshot))
            found = replace(waiting, findings=self.look(waiting, history))
            self._last = snapshot, found
        return self._last[1]

    def preview(self, snapshot: Snapshot, history: History, *, all_rules: bool = False) -> Snapshot:
        """A snapshot with its waits and findings, which leaves no trace in the engine.

        Args:
            snapshot: The job, also between two readings.
            history: How its numbers moved.
            all_rules: Ask every rule, also where `look` would not; see there.
        """
        if not all_rules and self._last is not None and self._last[0] is snapshot:
            return self._last[1]
        other = self.copy()
        if all_rules:
            other._skipped = LOOKS_SKIPPED
        return other.diagnosed(snapshot, history)

    def waits(self, snapshot: Snapshot) -> WaitGraph:
        """What each thread waits for; a defect here becomes a finding of the next look."""
        try:
            return self._derive_waits(snapshot)
        except Exception as error:  # noqa: BLE001 - it must not silence the rules
            self._failed = _failure_of("waits", error)
            return WaitGraph()

    def look(self, snapshot: Snapshot, history: History) -> tuple[Finding, ...]:
        """Run the rules and return what is wrong.

        A job with many processes that is looked at every second is asked about every third time,
        unless something was told: a finding that only time brings comes two looks later at most.

        Returns:
            Present findings, most severe first, each followed by its effects; then the resolved
            ones, `resolved_s` set, until they are dropped.
        """
        if snapshot.root != self._root or snapshot.at_s < self._at_s:
            self._held.clear()
        rules = self._rules_for(snapshot)
        self._root, self._at_s = snapshot.root, snapshot.at_s
        for finding in self._found(rules, snapshot, history):
            self._see(finding, snapshot.at_s)
        self._settle(snapshot.at_s)
        return _ordered([_shown(held) for held in self._held.values()])

    def _rules_for(self, snapshot: Snapshot) -> Sequence[Rule]:
        """All rules, or none where they were asked a moment ago and nothing was told since.

        All at once: what one of them derives from a snapshot serves the others, too.
        """
        told = len(snapshot.processes), snapshot.log[-1:]
        is_close = snapshot.root == self._root and 0 <= snapshot.at_s - self._at_s <= CLOSE_S
        is_same = is_close and told == self._told and len(snapshot.processes) >= MANY
        if is_same and self._skipped < LOOKS_SKIPPED:
            self._skipped += 1
            return ()
        self._told, self._skipped = told, 0
        return self._rules

    def _found(
        self, rules: Sequence[Rule], snapshot: Snapshot, history: History
    ) -> Iterable[Finding]:
        """What the rules say now; a rule that raises says that."""
        failed, self._failed = self._failed, None
        if failed is not None:
            yield failed
        for rule in rules:
            try:
                yield from rule.check(snapshot, history)
            except Exception as error:  # noqa: BLE001 - one broken rule must not silence the others
                yield _failure_of(rule.id, error)

    def _see(self, finding: Finding, at_s: float) -> None:
        """Take in one finding, new or seen before."""
        held = self._held.get(finding.key)
        if held is None or held.resolved_s is not None:
            self._held[finding.key] = _begun(finding, at_s, held)
            return
        held.finding, held.last_seen_s = finding, at_s
        if finding.severity >= held.worst or at_s - held.worst_at_s > CALM_S:
            held.worst, held.worst_at_s = finding.severity, at_s

    def _settle(self, at_s: float) -> None:
        """Resolve what has not been seen for a while, drop what was resolved long ago."""
        for key, held in list(self._held.items()):
            if held.resolved_s is None and at_s - held.last_seen_s >= held.linger_s:
                held.resolved_s = at_s
            elif held.resolved_s is not None and at_s - held.resolved_s >= SHOWN_RESOLVED_S:
                del self._held[key]


def _begun(finding: Finding, at_s: float, before: _Held | None) -> _Held:
    """A finding that was not there; one that comes and goes is held for longer each time."""
    held = _Held(finding, at_s, at_s, finding.severity, at_s)
    if before is not None and before.resolved_s is not None:
        held.linger_s = min(LINGER_LIMIT_S, 3 * before.linger_s)
        if at_s - before.resolved_s < RETURNS_S:
            held.first_seen_s = before.first_seen_s
    return held


def _shown(held: _Held) -> Finding:
    """The finding with the times the engine knows."""
    return replace(
        held.finding,
        severity=held.worst,
        first_seen_s=held.first_seen_s,
        resolved_s=held.resolved_s,
        eta_s=held.finding.eta_s if held.resolved_s is None else None,
    )


def _failure_of(rule: str, error: Exception) -> Finding:
    """A finding about a rule that raised."""
    where = "unknown place"
    trace = error.__traceback__
    while trace is not None:
        where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return Finding(
        rule=RULE_FAILED,
        severity=Severity.INFO,
        subject=rule,
        summary=f"the rule {rule} failed and says nothing about this job",
        evidence=(f"{type(error).__name__}: {error}", where),
        cause="A defect in mpwatch, or a reading it did not expect. Other rules are not affected.",
        advice="Report it with a recording of this job. The job itself need not be at fault.",
    )


def _ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Root causes by severity, each followed by its effects; resolved ones last."""
    present = [finding for finding in findings if finding.resolved_s is None]
    causes = with_causes(present)
    named = [
        replace(finding, effect_of=causes.get(finding))
        for finding in present
        if finding.rule not in ONLY_ALONE or finding not in causes
    ]
    effects: dict[str | None, list[Finding]] = {}
    for finding in named:
        effects.setdefault(finding.effect_of, []).append(finding)
    urgent = sorted(named, key=lambda finding: _urgency_with_effects(finding, effects))
    resolved = sorted(
        (finding for finding in findings if finding.resolved_s is not None),
        key=lambda finding: -(finding.resolved_s or 0.0),
    )
    return (*effects_below_causes(urgent), *resolved)


def _urgency(finding: Finding) -> tuple[float, ...]:
    """Sort key: most severe, then soonest, then oldest."""
    eta_s = float("inf") if finding.eta_s is None else finding.eta_s
    return (-finding.severity, eta_s, finding.first_seen_s or 0.0)


def _urgency_with_effects(
    finding: Finding, effects: Mapping[str | None, Sequence[Finding]]
) -> tuple[float, ...]:
    """A cause is as urgent as the worst of its direct effects."""
    family = [finding, *effects.get(finding.rule, ())]
    return (-max(f.severity for f in family), *_urgency(finding))
