"""Findings of a node about ranks whose steps are long, judged by how they usually wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from mpwatch.diagnose.analysis.distributed.flight_recorder import STUCK
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Ended
from mpwatch.nodes.agent.rank_waits import WaitSample
from mpwatch.nodes.agent.rows import NO_PROGRESS, Rows
from tests.builders.snapshots import NOW_S, pid, process, snapshot_of, thread

WORKS, WAITS, SLOW = 70, 71, 72


class Node:
    """A node with a rank that works, one that waits for it, and one that never waits."""

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.second = 0
        self.rows = Rows(lambda own, _tid: WaitSample(own in self.inside, ticks=0))
        ranks = []
        for own in (WORKS, WAITS, SLOW):
            threads = (thread(own), thread(own + 100, name="gloo_tcp_loop"))
            ranks.append(process(own, "rank", threads=threads))
        self.ranks = ranks

    def run(self, *turns: tuple[Iterable[int], int]) -> None:
        """Sample and read the ranks, of which some wait for so many seconds."""
        for inside, seconds in turns:
            self.inside = set(inside)
            for _ in range(seconds):
                self.second += 1
                at_s = NOW_S + self.second
                for part in (0.25, 0.75):
                    self.rows.sample(at_s - part)
                self.rows.sections([snapshot_of(*self.ranks, at_s=at_s)])

    def judged(self, *findings: Finding) -> list[Finding]:
        made = snapshot_of(*self.ranks, at_s=NOW_S + self.second)
        (judged,) = self.rows.judged([replace(made, findings=findings)])
        return list(judged.findings)


def finding(rule: str, about: int | None) -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.CRITICAL,
        summary="nothing in this job has moved for 4 min",
        evidence=("it sleeps",),
        cause="",
        advice="",
        process=pid(about) if about is not None else None,
    )


STEP: tuple[tuple[list[int], int], ...] = (([], 5), ([WORKS, WAITS], 25))


def test_a_rank_that_begins_and_ends_waits_makes_progress() -> None:
    node = Node()
    node.run(*STEP * 3)
    moved = node.judged(finding(NO_PROGRESS, WORKS))
    # As long as twice what was usual, it may be a step that takes longer.
    node.run(([WORKS, WAITS], 20))
    later = node.judged(finding(NO_PROGRESS, WORKS))
    node.run(([WORKS, WAITS], 20))
    stands = node.judged(finding(NO_PROGRESS, WORKS))

    assert (moved, later) == ([], [])
    assert [each.severity for each in stands] == [Severity.CRITICAL]


@pytest.mark.parametrize("about", [SLOW, 9, None])
def test_of_a_process_that_was_not_seen_to_move_the_finding_stays(about: int | None) -> None:
    node = Node()
    node.run(*STEP * 3)

    assert node.judged(finding(NO_PROGRESS, about)) == [finding(NO_PROGRESS, about)]


def test_that_ranks_wait_for_as_long_as_usual_is_information() -> None:
    node = Node()
    node.run(*STEP * 4)
    (usual,) = node.judged(finding(STUCK, SLOW))
    node.run(([WORKS, WAITS], 60))
    (longer,) = node.judged(finding(STUCK, SLOW))

    assert (usual.severity, longer.severity) == (Severity.INFO, Severity.CRITICAL)


def test_a_rank_that_has_died_is_no_usual_wait() -> None:
    node = Node()
    node.run(*STEP * 4)
    node.ranks[2] = replace(node.ranks[2], ended=Ended(pid(SLOW), NOW_S, exit_code=1))

    assert node.judged(finding(STUCK, SLOW)) == [finding(STUCK, SLOW)]


def test_other_findings_about_such_a_rank_stay() -> None:
    node = Node()
    node.run(*STEP * 3)

    assert node.judged(finding("fd-exhaustion", WORKS)) == [finding("fd-exhaustion", WORKS)]
