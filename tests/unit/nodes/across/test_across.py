"""Findings of a job from the summaries of made-up nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.flight_recorder import MISMATCH, STUCK
from mpwatch.model.findings import JobFinding, Severity
from mpwatch.model.units import numbers_text
from mpwatch.nodes.across.collectives import STRAGGLER
from mpwatch.nodes.across.judge import NODES_DIFFER as DIFFER
from mpwatch.nodes.across.judge import NOT_ANSWERING, JobJudge, job_findings, may_be_slow
from mpwatch.nodes.across.ranks import JobRanks, PlacedRank
from mpwatch.nodes.head.node import NodeState, NodeView
from mpwatch.nodes.wire.summary import WAITS_ENOUGH, FindingRow, NodeRow, NodeSummary, RankRow

NOW_S = 1000.0


def row(rank: int, *, world: int | None = 4, quiet_s: float | None = 90.0, **more: Any) -> RankRow:
    fields: dict[str, Any] = {
        "pid": 100 + rank,
        "label": f"rank {rank}",
        "rank": rank,
        "world_size": world,
        "job": "10.0.0.1:29500",
        "state": "waiting",
        "place": "all_reduce",
        "line": "train.py:48 train",
        "has_stack": True,
        "quiet_at_s": None if quiet_s is None else NOW_S - quiet_s,
        **more,
    }
    return RankRow(**fields)


replaced = msgspec.structs.replace


def elsewhere(rank: int, **more: Any) -> RankRow:
    return row(rank, **{"place": None, "line": "save.py:9 save", "doing": "open(2)", **more})


def node(
    name: str,
    *rows: RankRow,
    state: NodeState = "live",
    facts: dict[str, str] | None = None,
    findings: tuple[FindingRow, ...] = (),
    problem: str = "",
    last_seen_s: float = 0.0,
) -> NodeView:
    summary = NodeSummary(
        NOW_S, NodeRow(state="watching", facts=facts or {}), tuple(rows), findings
    )
    has_summary = state != "failed"
    return NodeView(
        name,
        state,
        last_seen_s if has_summary else None,
        problem,
        summary=summary if has_summary else None,
    )


def only(*views: NodeView) -> JobFinding:
    (found,) = job_findings(views)
    return found


def test_the_rank_that_is_elsewhere_is_named_with_its_node() -> None:
    found = only(
        node("node-1", row(0), row(1)),
        node("node-2", row(2), elsewhere(3, quiet_s=212.0)),
    )

    assert (found.rule, found.severity) == (STUCK, Severity.CRITICAL)
    assert (found.node, found.rank, found.pid) == ("node-2", 3, 103)
    assert found.summary == (
        "3 ranks wait in all_reduce for rank 3 on node-2, which has made no progress for 4 min "
        "at save.py:9 save"
    )
    assert found.evidence[0] == (
        "ranks 0-2 on 2 nodes in all_reduce for at least 90 s, called at train.py:48 train"
    )


def test_what_a_late_rank_waits_for_is_part_of_the_summary_and_its_line_is_said_once() -> None:
    late = elsewhere(1, line="save.py:9 save", doing="save.py:9 save, waits for a FIFO")
    found = only(node("a", row(0, world=2)), node("b", late))

    assert found.summary.endswith(" at save.py:9 save: waits for a FIFO")
    assert found.evidence[1].endswith(" at save.py:9 save; waits for a FIFO")
    assert found.advice.startswith("End that wait.")


def test_a_rank_that_has_not_moved_since_it_is_watched_may_not_have_for_longer() -> None:
    late = elsewhere(1, quiet_s=30.0, is_since_watched=True)
    found = only(node("a", row(0, world=2, quiet_s=30.0)), node("b", late))

    assert "has made no progress for at least 30 s" in found.summary


def test_a_wait_is_critical_where_the_node_of_the_late_rank_is_sure() -> None:
    def severity(rule: str, pid: int) -> Severity:
        told = FindingRow(rule, "critical", "s", pid=pid)
        late = node("b", elsewhere(1, quiet_s=30.0), findings=(told,))
        return only(node("a", row(0, world=2, quiet_s=30.0)), late).severity

    assert severity(STUCK, 101) is Severity.CRITICAL
    assert {severity(STUCK, 7), severity("other", 101)} == {Severity.WARNING}


def test_what_a_late_rank_waits_for_on_its_node_is_evidence() -> None:
    chain = "rank 1 waits for a batch <- worker 0 (9) waits for tcp 10.0.0.1:5 > 10.0.0.9:6"
    found = only(node("a", row(0, world=2)), node("b", elsewhere(1, chain=chain)))

    assert found.evidence[1].endswith(f" at save.py:9 save; {chain}")


def test_the_rank_is_named_while_the_node_of_those_that_wait_does_not_answer() -> None:
    waiting = row(0, world=3), row(1, world=3)
    silent = node("node-1", *waiting, state="silent", last_seen_s=12.0)
    late = node("node-2", elsewhere(2, world=3, quiet_s=212.0))
    entering = node("node-1", row(0), elsewhere(1, quiet_s=None), state="silent", last_seen_s=12.0)

    stuck, not_answering = job_findings([silent, late])
    (alone,) = job_findings([entering, late])

    assert (stuck.rule, stuck.rank) == (STUCK, 2)
    assert stuck.evidence[-1] == "node-1 does not answer: as last received"
    assert not_answering.rule == alone.rule == NOT_ANSWERING


def test_a_rank_that_the_others_wait_for_is_first_named_as_information() -> None:
    found = only(node("a", row(0, quiet_s=6.0)), node("b", elsewhere(1, quiet_s=5.5)))

    assert (found.rule, found.severity, found.rank) == (STUCK, Severity.INFO, 1)


def test_the_number_of_the_collective_is_shown_where_torch_has_recorded_it() -> None:
    record: dict[str, Any] = {
        "group": "0",
        "number": 48121,
        "operation": "all_reduce",
        "is_unfinished": True,
    }
    behind: dict[str, Any] = {"group": "0", "number": 48120, "operation": "all_reduce"}
    found = only(
        node("a", *(row(n, **record) for n in range(3))), node("b", elsewhere(3, **behind))
    )

    assert found.summary.startswith("3 ranks wait in all_reduce #48121 for rank 3 on b")
    assert any("collective 48120 of group 0: all_reduce, finished" in e for e in found.evidence)


def test_a_rank_that_has_died_is_the_cause() -> None:
    dead = row(3, place=None, is_ended=True, has_failed=True, ended="signal 9 (SIGKILL)")
    found = only(node("a", row(0), row(1)), node("b", row(2), dead))

    assert found.severity is Severity.CRITICAL
    assert "rank 3 on b, which has ended (signal 9 (SIGKILL))" in found.summary


def test_a_rank_that_was_started_again_is_not_reported_as_missing() -> None:
    dead = row(3, place=None, is_ended=True, has_failed=True, ended="signal 9 (SIGKILL)")

    assert (
        job_findings([node("a", *(row(n, quiet_s=10.0) for n in range(4))), node("b", dead)]) == []
    )


def test_a_rank_that_computes_is_information() -> None:
    busy = elsewhere(1, quiet_s=None, cpu_percent=100, state="running")
    found = only(node("a", row(0, world=2)), node("b", busy))

    assert found.severity is Severity.INFO
    assert "still working at save.py:9 save" in found.summary


@pytest.mark.parametrize(
    ("quiet_s", "severity"), [(60.0, Severity.INFO), (130.0, Severity.WARNING)]
)
def test_a_rank_that_wakes_up_meanwhile_may_take_its_time(
    quiet_s: float, severity: Severity
) -> None:
    evaluates = elsewhere(0, world=2, quiet_s=2.0, cpu_percent=0)
    (found,) = job_findings([node("a", evaluates), node("b", row(1, world=2, quiet_s=quiet_s))])

    assert min(found.severity, Severity.WARNING) is severity


def test_a_finding_stays_while_the_stack_of_a_rank_is_too_old_for_a_moment() -> None:
    judge = JobJudge()
    waits = node("a", row(0, world=2), row(1, world=2))
    late = elsewhere(1, world=2)
    unknown = elsewhere(1, world=2, has_stack=False, quiet_s=None)
    views = [node("a", row(0, world=2)), node("b", late)]
    without = [node("a", row(0, world=2)), node("b", unknown)]

    first = judge.findings(views, 100.0)
    assert first != []
    assert judge.findings(without, 103.0) == first
    assert judge.findings(without, 106.0) == []
    assert [each.rank for each in judge.findings([waits], 107.0)] == [0]
    assert judge.findings(without, 90.0) == []  # a recording was sought


def test_a_finding_ends_at_once_when_most_ranks_go_on() -> None:
    judge = JobJudge()
    late = elsewhere(2, world=3)
    waiting = [node("a", row(0, world=3), row(1, world=3)), node("b", late)]
    moved = [elsewhere(n, world=3, quiet_s=None) for n in range(3)]

    assert [each.rank for each in judge.findings(waiting, 100.0)] == [2]
    assert judge.findings([node("a", *moved[:2]), node("b", late)], 101.0) == []


def test_a_finding_stays_for_a_moment_although_another_job_stands_still() -> None:
    def job(port: int, late: RankRow) -> list[RankRow]:
        return [replaced(each, job=f"10.0.0.1:{port}") for each in (row(0, world=2), late)]

    judge = JobJudge()
    stuck, unknown = elsewhere(1, world=2), elsewhere(1, world=2, has_stack=False, quiet_s=None)
    both = [node("a", *job(1, stuck)), node("b", *job(2, stuck))]
    one = [both[0], node("b", *job(2, unknown))]

    assert {each.node for each in judge.findings(both, 100.0)} == {"a", "b"}
    assert {each.node for each in judge.findings(one, 103.0)} == {"a", "b"}
    assert {each.node for each in judge.findings(one, 106.0)} == {"a"}


def test_a_stuck_rank_is_named_although_of_others_no_stack_is_known() -> None:
    found = only(
        node("a", row(0, world=5), row(1, world=5), row(4, world=5)),
        node("b", elsewhere(2, world=5), elsewhere(3, world=5, has_stack=False, quiet_s=95.0)),
    )

    assert found.summary.startswith("3 ranks wait in all_reduce for rank 2 on b, which has made no")
    assert found.evidence[-1] == "no stack is known of rank 3, without progress as well"


def test_a_stuck_rank_is_named_before_the_stacks_of_most_others_are_known() -> None:
    without = [elsewhere(n, world=9, has_stack=False) for n in range(3, 9)]
    found = only(
        node("a", row(0, world=9), row(1, world=9), *without), node("b", elsewhere(2, world=9))
    )

    assert found.rank == 2
    assert found.evidence[-1] == "no stack is known of ranks 3-8, without progress as well"


def many(stuck: int, *strays: RankRow, nodes: int = 1, ranks: int = 64) -> list[NodeView]:
    """Nodes whose ranks wait for one that is elsewhere; strays replace ranks of the same number."""
    rows = {number: row(number, world=nodes * ranks) for number in range(nodes * ranks)}
    rows[stuck] = elsewhere(stuck, world=nodes * ranks)
    rows |= {each.rank: each for each in strays if each.rank is not None}
    return [
        node(f"n{n}", *(rows[number] for number in range(n * ranks, (n + 1) * ranks)))
        for n in range(nodes)
    ]


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param({"quiet_s": 1.0}, id="waits"),
        pytest.param({"quiet_s": None, "place": None, "has_stack": False}, id="without-a-stack"),
    ],
)
@pytest.mark.parametrize(("nodes", "ranks"), [(2, 64), (80, 2)])
def test_a_few_of_many_ranks_that_have_moved_take_no_finding_back(
    stray: dict[str, Any], nodes: int, ranks: int
) -> None:
    # A rank that wakes up for a tick looks like one that goes on: of many, one does at any time.
    world = nodes * ranks
    few = [row(number, world=world, **stray) for number in (0, world - 1)]
    more = [row(number, world=world, **stray) for number in range(0, world, 8)]

    assert only(*many(world // 2, *few, nodes=nodes, ranks=ranks)).rank == world // 2
    assert job_findings(many(world // 2 + 1, *more, nodes=nodes, ranks=ranks)) == []


def test_of_many_ranks_that_are_all_in_one_collective_each_has_to_be_blocked() -> None:
    rows = [row(number, world=64) for number in range(64)]

    assert only(node("a", *rows)).summary.startswith("all 64 ranks are in all_reduce")
    assert job_findings([node("a", row(0, world=64, quiet_s=1.0), *rows[1:])]) == []


def test_a_stopped_rank_is_named_without_a_stack() -> None:
    stopped = elsewhere(1, has_stack=False, line="", state="stopped")
    found = only(node("a", row(0, world=2)), node("b", stopped))

    assert "rank 1 on b, which is stopped" in found.summary
    assert found.advice == "Continue it: kill -CONT 101 on b."


@pytest.mark.parametrize(
    "views",
    [
        # A step that takes some seconds.
        (node("a", row(0, quiet_s=3.0), row(1)), node("b", elsewhere(2), row(3))),
        # A rank without a stack yet may be at any line.
        (node("a", row(0), row(1)), node("b", elsewhere(2, has_stack=False), row(3))),
        # It goes on, and may be what the other one waits for; and the other way round.
        (node("a", row(0)), node("b", elsewhere(1), elsewhere(2, has_stack=False, quiet_s=None))),
        (node("a", row(0)), node("b", elsewhere(1, quiet_s=2.0), elsewhere(2, has_stack=False))),
        # Most ranks compute.
        (node("a", row(0), elsewhere(1, quiet_s=None)), node("b", elsewhere(2, quiet_s=None))),
        # No rank waits in a collective.
        (node("a", elsewhere(0)), node("b", elsewhere(1))),
        # For some seconds only, and none of the ranks is elsewhere.
        (node("a", row(0, quiet_s=6.0)), node("b", row(1, quiet_s=6.0, place="broadcast"))),
        (node("a", row(0, quiet_s=6.0)), node("b", row(1, place=None, is_ended=True))),
        # The node reports it by itself.
        (
            node(
                "a",
                row(0, world=2),
                elsewhere(1, world=2),
                findings=(FindingRow(STUCK, "critical", "s"),),
            ),
        ),
        # Several groups: what is known of one job says nothing about another.
        (node("a", row(0, world=1, quiet_s=9.0)), node("b", elsewhere(0, job="other", world=1))),
        # An impossible world size.
        (node("a", row(0, world=10**12, quiet_s=20.0)),),
        (),
        (node("a"), node("b", state="starting")),
    ],
)
def test_no_finding_without_evidence(views: tuple[NodeView, ...]) -> None:
    assert job_findings(views) == []


def test_a_late_rank_of_a_node_that_does_not_answer_is_named_first() -> None:
    lost: dict[str, Any] = {"state": "silent", "problem": "Nothing.", "last_seen_s": 40.0}
    waits = elsewhere(3, doing="save.py:9 save, waits for a FIFO")
    stuck, silent = job_findings([node("a", row(0), row(1)), node("b", row(2), waits, **lost)])

    assert (stuck.rule, stuck.severity, stuck.node) == (STUCK, Severity.CRITICAL, "b")
    assert (stuck.rank, stuck.pid) == (3, 103)
    assert stuck.summary == (
        "2 ranks wait in all_reduce; ranks 2-3 are on no node that answers; rank 3 on b was last "
        "seen at save.py:9 save: waits for a FIFO"
    )
    assert stuck.evidence[1] == "rank 3 on b, last seen 40 s ago: save.py:9 save, waits for a FIFO"
    assert (silent.rule, silent.summary) == (
        NOT_ANSWERING,
        "b has sent nothing for 40 s; ranks 2-3 are there",
    )


def test_a_node_that_does_not_answer_is_told_before_ranks_that_were_not_late() -> None:
    lost = node("b", row(2), row(3), state="silent", last_seen_s=40.0)
    found = job_findings([node("a", row(0), row(1)), lost])

    assert [each.rule for each in found] == [NOT_ANSWERING, STUCK]
    assert found[1].rank is None


def test_a_lost_node_is_critical_once_ranks_elsewhere_have_failed() -> None:
    failed = row(0, place=None, is_ended=True, has_failed=True, ended="exit code 1")
    again = node("c", failed, row(0, quiet_s=None, place=None))
    lost = node("b", row(1), state="ended", problem="ssh ended.", last_seen_s=40.0)
    (found,) = job_findings([node("a", failed), lost])

    assert (found.rule, found.severity) == (NOT_ANSWERING, Severity.CRITICAL)
    assert found.summary.endswith("; rank 1 is there, and a rank on another node has failed")
    assert found.evidence == ("b: ssh ended.", "rank 0 on a has ended: exit code 1")
    assert [each.severity for each in job_findings([again, lost])] == [Severity.WARNING]


@pytest.mark.parametrize("is_live", [True, False])
def test_a_node_without_ranks_that_are_lost_is_not_critical(is_live: bool) -> None:
    """It answers and has a problem, or its rank was started again elsewhere."""
    failed = row(0, place=None, is_ended=True, has_failed=True, ended="exit code 1")
    state: NodeState = "live" if is_live else "ended"
    found = job_findings(
        [
            node("a", failed, row(2, quiet_s=None, place=None)),
            node("b", row(1, quiet_s=None, place=None), state=state, problem="hidden."),
            *([] if is_live else [node("c", row(1, quiet_s=None, place=None))]),
        ]
    )

    (told,) = [each for each in found if each.rule == NOT_ANSWERING]
    assert told.severity is Severity.WARNING
    assert "failed" not in told.summary + told.cause


def test_what_is_known_of_a_job_is_computed_once_for_all_nodes_that_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand nodes may each be lost for a reason of its own."""
    calls: list[int] = []
    placed = JobRanks.placed

    def counted(ranks: JobRanks, what: str = "rows") -> list[PlacedRank]:
        calls.append(1)
        return placed(ranks, what)

    def asked(count: int) -> int:
        lost = [
            node(f"n{number}", row(number), state="ended", problem=f"10.0.0.{number} is lost.")
            for number in range(1, count)
        ]
        calls.clear()
        assert len(job_findings([node("a", row(0)), *lost])) >= count - 1
        return len(calls)

    monkeypatch.setattr(JobRanks, "placed", counted)

    assert asked(9) == asked(3)


@pytest.mark.parametrize(
    ("state", "problem", "words"),
    [
        (
            "ended",
            "ssh ended.",
            "the agent on b has ended: nothing was received for 40 s; rank 1 is there",
        ),
        (
            "starting",
            "",
            "b has sent nothing for 40 s, and its agent is being started again; rank 1 is there",
        ),
    ],
)
def test_for_how_long_nothing_was_received_is_said_until_the_node_answers(
    state: NodeState, problem: str, words: str
) -> None:
    lost = replace(node("b", row(1), state=state, problem=problem), last_seen_s=40.0)
    found = job_findings([node("a", elsewhere(0, quiet_s=None)), lost])

    assert [each.summary for each in found if each.rule == NOT_ANSWERING] == [words]


def test_missing_ranks_on_nodes_that_were_not_given_are_information() -> None:
    found = only(node("a", row(0, world=3), row(1, world=3)))

    assert found.severity is Severity.INFO
    assert "rank 2 is on no node that answers" in found.summary


def test_a_missing_rank_is_told_beside_one_that_is_late() -> None:
    late, missing = job_findings(
        [node("a", row(0, world=4), row(1, world=4)), node("b", elsewhere(2, world=4))]
    )

    assert (late.rank, late.severity) == (2, Severity.CRITICAL)
    assert missing.severity is Severity.INFO
    assert missing.summary == "2 ranks wait in all_reduce; rank 3 is on no node that answers"


def test_a_rank_of_a_silent_node_is_told_before_one_that_only_takes_long() -> None:
    found = job_findings(
        [
            node("a", row(0, world=4), row(1, world=4), row(3, world=4)),
            node("b", elsewhere(2, world=4, quiet_s=None, cpu_percent=100, state="running")),
            node("c", row(3, world=4), state="silent", last_seen_s=40.0),
        ]
    )
    lost = job_findings(
        [
            node("a", row(0, world=4), row(1, world=4)),
            node("b", elsewhere(2, world=4, quiet_s=None, cpu_percent=100, state="running")),
            node("c", elsewhere(3, world=4), state="silent", last_seen_s=40.0),
        ]
    )

    assert [each.rule for each in found] == [NOT_ANSWERING, STUCK]
    assert found[0].summary == "c has sent nothing for 40 s"  # rank 3 was started again
    severities = [Severity.CRITICAL, Severity.WARNING, Severity.INFO]
    assert [each.severity for each in lost] == severities
    assert "rank 3 is on no node that answers" in lost[0].summary
    assert lost[2].rank == 2


def test_a_missing_rank_is_told_where_a_node_has_found_the_late_one_by_itself() -> None:
    told = FindingRow(STUCK, "critical", "s")
    found = only(node("a", row(0, world=3), elsewhere(1, world=3), findings=(told,)))

    assert "rank 2 is on no node that answers" in found.summary


def test_no_rank_is_missing_while_a_node_is_being_started() -> None:
    assert job_findings([node("a", row(0, world=2)), node("b", state="starting")]) == []


def test_a_rank_that_has_died_comes_before_one_that_is_late() -> None:
    dead = row(3, place=None, is_ended=True, has_failed=True, ended="signal 9 (SIGKILL)")
    found = only(node("a", row(0), row(1)), node("b", elsewhere(2), dead))

    assert found.rank == 3
    assert "rank 3 on b and 1 more, which has ended (signal 9 (SIGKILL))" in found.summary
    assert any(line.startswith("rank 2 on b (pid 102)") for line in found.evidence)


def test_of_ranks_that_have_died_the_one_is_named_that_its_node_has_a_finding_about() -> None:
    """Its launcher has ended the others, and not all of them later."""
    ended = {"place": None, "is_ended": True, "has_failed": True}
    first = row(3, ended="exit code 1", quiet_s=50.0, **ended)
    other = row(2, ended="signal 15 (SIGTERM)", quiet_s=60.0, **ended)
    finding = FindingRow("worker-died", "critical", "rank 3 ended unexpectedly", pid=first.pid)
    (found, *_) = job_findings(
        [node("a", row(0), row(1)), node("b", other, first, findings=(finding,))]
    )

    assert found.rank == 3
    assert "rank 3 on b and 1 more, which has ended (exit code 1)" in found.summary


def test_different_collectives_on_two_nodes() -> None:
    found = only(
        node("a", row(0), row(1)), node("b", row(2), row(3, place="broadcast", line="x.py:3 f"))
    )

    assert (found.rule, found.severity) == (MISMATCH, Severity.CRITICAL)
    assert "3 in all_reduce, 1 in broadcast; rank 3 on b" in found.summary
    assert found.evidence == (
        "ranks 0-2 on 2 nodes in all_reduce for at least 90 s, called at train.py:48 train",
        "rank 3 on b in broadcast for at least 90 s, called at x.py:3 f",
    )


def test_different_shapes_of_one_collective() -> None:
    record: dict[str, Any] = {
        "group": "0",
        "number": 7,
        "operation": "all_reduce",
        "is_unfinished": True,
    }
    found = only(
        node("a", *(row(n, shape="Float [[8, 4]]", **record) for n in range(3))),
        node("b", row(3, shape="Float [[7, 4]]", **record)),
    )

    assert found.rule == MISMATCH
    assert "1 in all_reduce of Float [[7, 4]]" in found.summary


def test_all_ranks_in_one_collective_that_does_not_end() -> None:
    found = only(node("a", row(0), row(1)), node("b", row(2), row(3)))

    assert found.summary == "all 4 ranks are in all_reduce, and none of them makes progress"


def test_nodes_for_which_no_descriptor_is_left_need_a_higher_limit() -> None:
    failed = replace(
        node("b", state="failed", problem="It was not started."), cause="no-descriptor"
    )
    found = only(node("a", row(0, quiet_s=None)), failed)

    assert "limit" in found.cause
    assert "prlimit" in found.advice


def test_nodes_that_fail_for_one_reason_are_one_finding() -> None:
    found = only(
        *(
            node(
                f"node-{n}", state="failed", problem="ssh ended with status 255: Permission denied."
            )
            for n in range(9)
        )
    )

    assert found.rule == NOT_ANSWERING
    assert found.summary == (
        "node-0, node-1, node-2, node-3, node-4, node-5 and 3 more cannot be read: ssh ended with "
        "status 255: Permission denied"
    )


@pytest.mark.parametrize(
    ("problem", "fix"),
    [
        ("ssh ended with status 255: Connection timed out.", "starts mpwatch there: ssh a mpwatch"),
        ("ssh ended with status 127: sh: 1: mpwatch: not found.", "has to be installed there"),
    ],
)
def test_the_fix_of_a_node_that_cannot_be_read_is_that_of_its_reason(
    problem: str, fix: str
) -> None:
    failed = NodeView("a", "failed", problem=problem, check="ssh a mpwatch --version")
    recorded = replace(failed, check="")

    assert fix in only(failed).advice
    assert ("has to be installed" in only(recorded).advice) is ("not found" in problem)


def test_nodes_of_one_job_that_differ() -> None:
    same = {"python": "3.11", "open files limit": "1024"}
    moving: dict[str, Any] = {"quiet_s": None, "place": None}
    found = only(
        node("a", row(0, **moving), facts={**same, "torch": "2.9.1"}),
        node("b", row(1, **moving), facts={**same, "torch": "2.9.1"}),
        node("c", row(2, **moving), facts={**same, "torch": "2.6.0"}),
    )

    assert (found.rule, found.severity, found.node) == (DIFFER, Severity.WARNING, "c")
    assert found.evidence == ("torch: 2.9.1 on a, b; 2.6.0 on c",)


def test_nodes_with_different_gpu_drivers() -> None:
    moving: dict[str, Any] = {"quiet_s": None, "place": None}
    old, new = {"driver": "NVIDIA 535.104.05"}, {"driver": "NVIDIA 560.35.03"}
    found = only(
        *(node(f"n{n}", row(n, **moving), facts=new) for n in range(3)),
        node("n3", row(3, **moving), facts=old),
        # Without a GPU nothing is compared.
        node("n4", row(4, **moving)),
    )

    assert (found.rule, found.severity, found.node) == (DIFFER, Severity.INFO, "n3")
    assert found.summary == "nodes of one job differ in driver"
    assert found.evidence == ("driver: NVIDIA 560.35.03 on n0, n1, n2; NVIDIA 535.104.05 on n3",)


def with_variables(view: NodeView, variables: dict[str, str] | None) -> NodeView:
    assert view.summary is not None
    changed = msgspec.structs.replace(view.summary.node, environment=variables)
    return replace(view, summary=replace(view.summary, node=changed))


def test_a_variable_that_is_set_on_some_nodes_only_is_a_difference() -> None:
    moving: dict[str, Any] = {"quiet_s": None, "place": None}
    same = {"LD_LIBRARY_PATH": "/opt/lib"}
    a, b, c, d = (node(name, row(n, **moving)) for n, name in enumerate("abcd"))
    found = only(
        with_variables(a, {**same, "NCCL_IB_DISABLE": "1"}),
        with_variables(b, same),
        with_variables(c, same),
        # Of this node it is not known.
        with_variables(d, None),
    )

    assert (found.rule, found.severity, found.node) == (DIFFER, Severity.INFO, "a")
    assert found.evidence == ("NCCL_IB_DISABLE: not set on b, c; 1 on a",)


def test_what_each_rank_has_for_itself_on_all_nodes_is_no_difference() -> None:
    moving: dict[str, Any] = {"quiet_s": None, "place": None}
    views = [
        with_variables(
            node(name, row(n, **moving)),
            {"TORCH_LOGS_OUT": f"mixed: /tmp/{n}a (rank {2 * n}), /tmp/{n}b (rank {2 * n + 1})"},
        )
        for n, name in enumerate("ab")
    ]

    assert job_findings(views) == []


def test_nodes_of_different_jobs_may_differ() -> None:
    moving: dict[str, Any] = {"quiet_s": None, "place": None}
    views = [
        node("a", row(0, **moving), facts={"torch": "2.9.1"}),
        node("b", row(0, job="", **moving), facts={"torch": "2.6.0"}),
        node("c", row(0, job="10.0.0.2:29500", **moving), facts={"torch": "2.6.0"}),
    ]

    assert job_findings(views) == []


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_jobs_of_two_machines_that_meet_at_their_own_address_are_two(address: str) -> None:
    own: dict[str, Any] = {"job": f"{address}:29500", "world": 2}
    stuck = node("a", row(0, **own), row(1, **own))
    works = node("b", *(elsewhere(rank, quiet_s=None, cpu_percent=100, **own) for rank in range(2)))
    apart = [replace(stuck, host="host-a"), replace(works, host="host-b")]

    (found,) = job_findings(apart)
    assert found.summary == "all 2 ranks are in all_reduce, and none of them makes progress"
    assert found.node == "a"


def test_a_job_of_namespaces_that_meet_at_one_loopback_address_is_one() -> None:
    own: dict[str, Any] = {"job": "127.0.0.1:29500"}
    views = [
        replace(node("a", row(0, **own), row(1, **own)), host="host-a"),
        replace(node("b", row(2, **own), elsewhere(3, **own)), host="host-b"),
    ]

    assert only(*views).summary.startswith("3 ranks wait in all_reduce for rank 3 on b")


def test_slow_ranks_are_those_of_one_job() -> None:
    assert slowest(60, 60, 0, job="") == []
    # The same numbers twice: two jobs that cannot be told apart.
    rows = [
        row(rank, pid=100 + place, waits_percent=percent, waits=WAITS_ENOUGH, world=2, quiet_s=None)
        for place, (rank, percent) in enumerate(((0, 0), (1, 5), (0, 60), (1, 60)))
    ]
    assert [each.rule for each in job_findings([node("a", *rows)])] == []


def test_numbers_are_joined_to_runs() -> None:
    assert numbers_text([5, 0, 1, 2, 7]) == "0-2, 5, 7"
    assert numbers_text(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10 and 14 more runs"


def slowest(
    *percents: int | None, per_node: int = 1, world: int | None = None, **more: Any
) -> list[JobFinding]:
    """What is found of ranks that wait in collectives in these shares of their time."""
    more = {"quiet_s": None, "waits": WAITS_ENOUGH, "world": world or len(percents), **more}
    rows = [row(rank, waits_percent=share, **more) for rank, share in enumerate(percents)]
    views = [
        node(f"node-{number // per_node}", *rows[number : number + per_node])
        for number in range(0, len(rows), per_node)
    ]
    return [each for each in job_findings(views) if each.rule == STRAGGLER]


def test_the_rank_that_the_others_wait_for_in_each_step_is_named_with_its_line() -> None:
    (found,) = slowest(60, 50, 0, 70, works_at="input.py:9 load", step_ms=2000, step_of="batch")

    assert (found.rank, found.node, found.severity) == (2, "node-2", Severity.INFO)
    assert found.summary == (
        "rank 2 on node-2 is the slowest, mostly at input.py:9 load: the 3 others wait in "
        "collectives for 50% or more of the time, it for 0% at most"
    )
    assert found.evidence == (
        "time in which they wait in collectives: rank 2 0%, ranks 0-1, 3 50 to 70%, by 30 waits or "
        "more of each",
        "each batch takes 2.0 s; without waits rank 2 needed 2.0 s or more for it, ranks 0-1, 3 "
        "1.0 s or less",
        "rank 2 on node-2: most stacks at input.py:9 load",
    )


def test_the_node_all_of_whose_ranks_are_slow_is_named() -> None:
    (found,) = slowest(60, 60, 5, 0, 50, 60, per_node=2)

    assert found.node == "node-1"
    assert found.summary.startswith("ranks 2-3 on node-1 are the slowest: the 4 others wait")
    assert "All ranks there are slow" in found.cause
    assert found.advice.startswith("Compare node-1 with another node")


def test_several_slow_ranks_of_different_nodes_are_named() -> None:
    (found,) = slowest(60, 0, 60, 5, 60, 60, per_node=2)

    assert found.summary.startswith("ranks 1, 3 on node-0, node-1 are the slowest")
    assert "machine is" not in found.cause
    assert "All ranks there" not in found.cause


def test_slow_ranks_are_named_also_where_no_stack_is_known() -> None:
    (found,) = slowest(60, 60, 0, has_stack=False, place=None, line="")

    assert found.rank == 2


def test_few_waits_that_are_alike_are_enough() -> None:
    (found,) = slowest(60, 60, 0, waits=9, has_enough_waits=True)

    assert found.evidence[0].endswith("by 9 waits or more of each")


def test_a_wait_that_ranks_have_often_made_is_no_warning() -> None:
    def found(quiet_s: float) -> JobFinding:
        own: dict[str, Any] = {"quiet_s": quiet_s, "usual_wait_s": 25}
        return only(node("a", row(0, **own), row(1, **own)), node("b", row(2, **own), elsewhere(3)))

    usual, longer = found(40.0), found(55.0)

    # The node of rank 3 has seen no progress for 90 s, but the others have waited for it anew.
    assert "rank 3 on b, which has made no progress for 40 s" in usual.summary
    assert usual.severity is Severity.INFO
    assert "they have waited for up to 25 s in earlier steps" in usual.evidence
    assert longer.severity is Severity.WARNING


def test_a_rank_that_the_others_have_met_in_earlier_steps_has_made_progress_since() -> None:
    waiting = node("a", row(0, quiet_s=12.0, waits=6), row(1, quiet_s=12.0, waits=6))
    slow, stands = (
        only(waiting, node("b", row(2, quiet_s=12.0, waits=6), elsewhere(3, quiet_s=quiet_s)))
        for quiet_s in (118.0, 20.0)
    )

    assert "rank 3 on b, which has made no progress for 12 s" in slow.summary
    assert "rank 3 on b, which has made no progress for 20 s" in stands.summary


def test_a_slow_rank_is_named_while_the_others_wait_for_as_long_as_usual() -> None:
    assert slowest(60, 60, 0, quiet_s=31.0, usual_wait_s=25)
    assert slowest(60, 60, 0, quiet_s=51.0, usual_wait_s=25) == []


@pytest.mark.parametrize(
    ("percents", "waits", "is_open"),
    [
        ((60, 60, 0), 10, True),
        ((60, None, 0), 10, True),
        ((60, 60, 0), WAITS_ENOUGH, False),  # it is known
        ((60, 60, 20), 10, False),
        ((0, 0, 60), 10, False),
    ],
)
def test_more_steps_are_worth_waiting_for_where_few_ranks_may_be_slow(
    percents: tuple[int | None, ...], waits: int, is_open: bool
) -> None:
    rows = [
        row(rank, waits_percent=percent, waits=waits, world=3, quiet_s=None)
        for rank, percent in enumerate(percents)
    ]

    assert may_be_slow([node("a", *rows)]) is is_open


def test_one_of_twenty_ranks_may_be_neither_slow_nor_wait() -> None:
    shares = [60] * 39 + [0]

    assert slowest(*shares[1:], 30, 30)[0].rank == 38
    assert slowest(*shares[3:], 30, 30, 30) == []


@pytest.mark.parametrize(
    "found",
    [
        slowest(50, 50, 50),  # all wait for the network
        slowest(0, 0, 60),  # most are slow: one has less to do
        slowest(60, 20, 0),  # no clear difference
        slowest(60, 60, 20),
        slowest(60, 60, 0, waits=29),  # too few steps
        slowest(60, None, 0),  # nothing is known of a rank
        slowest(60, 60, 0, world=4),  # a rank is on no node that is seen
        slowest(60, 60, 0, quiet_s=31.0),  # it hangs, which is another finding
        slowest(0),
    ],
)
def test_no_rank_is_called_the_slowest_without_evidence(found: list[JobFinding]) -> None:
    assert found == []


def test_no_rank_is_called_the_slowest_while_a_node_does_not_answer() -> None:
    more: dict[str, Any] = {"world": 2, "quiet_s": None, "waits": WAITS_ENOUGH}
    views = [
        node("a", row(0, waits_percent=60, **more)),
        node("b", row(1, waits_percent=0, **more), state="silent"),
    ]

    assert [each.rule for each in job_findings(views) if each.rule == STRAGGLER] == []


def test_findings_follow_rows_that_change_between_two_looks() -> None:
    judge = JobJudge()
    first = [node("a", row(0, world=2)), node("b", elsewhere(1, world=2))]
    later = [first[0], node("b", row(1, world=2, quiet_s=None))]

    assert [each.rule for each in judge.findings(first)] == [STUCK]
    assert judge.findings(later) == []
    assert [each.rule for each in judge.findings(first)] == [STUCK]
