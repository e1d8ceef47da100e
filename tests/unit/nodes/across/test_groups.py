"""Ranks of several process groups, joined over nodes by what torch has recorded of each."""

from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.analysis.distributed.flight_recorder import MISMATCH, STUCK
from mpwatch.model.findings import JobFinding
from mpwatch.nodes.across.judge import job_findings
from mpwatch.nodes.wire.summary import GROUP_LIMIT, RankRow, ranks_in_group, text_of_group
from tests.unit.nodes.across.test_across import elsewhere, node, row


def inside(
    rank: int, group: str, ranks: str, number: int = 4, operation: str = "all_reduce", **more: Any
) -> RankRow:
    """A rank that is in a recorded call."""
    recorded: dict[str, Any] = {
        "place": operation,
        "group": group,
        "group_ranks": ranks,
        "number": number,
        "operation": operation,
        "is_unfinished": True,
        **more,
    }
    return row(rank, **recorded)


def found(*rows: RankRow) -> JobFinding:
    """The one finding about four ranks on two nodes."""
    (one,) = job_findings([node("a", *rows[:2]), node("b", *rows[2:])])
    return one


def test_groups_that_are_used_in_a_different_order_are_told_as_a_cycle() -> None:
    one = found(
        inside(0, "1", "0,1"), inside(1, "4", "1,3"), inside(2, "3", "0,2"), inside(3, "2", "2,3")
    )

    assert one.rule == MISMATCH
    for words in (
        "rank 0 on a waits in all_reduce #4 of group 1 (ranks 0-1) for rank 1 on a",
        "rank 1 on a waits in all_reduce #4 of group 4 (ranks 1, 3) for rank 3 on b",
        "rank 2 on b waits in all_reduce #4 of group 3 (ranks 0, 2) for rank 0 on a",
    ):
        assert words in one.summary
    assert "in a different order" in one.cause


def test_a_rank_that_is_in_none_of_the_groups_of_a_cycle_is_not_its_cause() -> None:
    one = found(
        inside(0, "1", "0,1"),
        inside(1, "3", "1,2"),
        inside(2, "2", "0,2"),
        elsewhere(3, quiet_s=200.0),
    )

    assert one.rule == MISMATCH
    assert "rank 3" not in one.summary


def test_groups_that_a_node_claims_to_be_huge_are_not_joined() -> None:
    rows = [inside(n, str(n), f"{n}-{GROUP_LIMIT + n - 1}") for n in range(9)]

    (one,) = job_findings([node("a", *rows)])

    assert one.rule == STUCK


def test_another_number_of_calls_of_one_group_is_told() -> None:
    one = found(
        *(inside(n, "0", "0-3", number=7) for n in (0, 1, 2)), inside(3, "0", "0-3", number=6)
    )

    assert one.rule == MISMATCH
    assert (
        "rank 3 on b waits in all_reduce #6 of group 0 (ranks 0-3) for rank 0 on a" in one.summary
    )
    assert "a different number of calls of this group" in one.cause


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"operation": "broadcast"}, "all_reduce on rank 0 on a; broadcast on rank 2 on b"),
        ({"shape": "Float [[7]]"}, "Float [[8]] on rank 0 on a; Float [[7]] on rank 2 on b"),
    ],
)
def test_a_group_whose_ranks_call_something_else_is_named_and_not_those_that_wait_for_it(
    odd: dict[str, Any], words: str
) -> None:
    call: dict[str, Any] = {"shape": "Float [[8]]"}
    one = found(
        inside(0, "3", "0,2", **call),
        inside(1, "0", "0-3", number=1, operation="barrier"),
        inside(2, "3", "0,2", **{**call, **odd}),
        inside(3, "0", "0-3", number=1, operation="barrier"),
    )

    assert words in one.summary
    assert "of group 3 " in one.summary
    assert "2 other ranks wait as well" in one.summary


def test_of_late_ranks_the_one_is_named_in_whose_group_others_wait() -> None:
    one = found(
        inside(0, "1", "0,1"),
        elsewhere(1, quiet_s=50.0),
        elsewhere(2, quiet_s=200.0),
        row(3, place=None, line="x.py:1 f", quiet_s=200.0),
    )

    assert (one.rule, one.rank) == (STUCK, 1)


def test_without_the_ranks_of_groups_nothing_is_joined() -> None:
    one = found(inside(0, "1", ""), inside(1, "4", ""), inside(2, "3", ""), inside(3, "2", ""))

    assert one.summary == "all 4 ranks are in all_reduce, and none of them makes progress"


def test_of_which_ranks_no_record_was_read_yet_is_said() -> None:
    apart = found(
        inside(0, "3", "0,2"),
        row(1, place="barrier", is_recorder_due=True),
        row(2, place="barrier", is_recorder_due=True),
        inside(3, "2", "2,3", operation="barrier"),
    )
    waiting = [row(n, is_recorder_due=True) for n in range(3)]
    late = found(*waiting, elsewhere(3, is_recorder_due=True, quiet_s=None, cpu_percent=90))

    assert apart.rule == MISMATCH
    assert "what torch has recorded of ranks 1-2 has not been read yet" in apart.evidence
    assert late.rank == 3
    assert "what torch has recorded of ranks 0-2 has not been read yet" in late.evidence


def test_a_group_that_has_all_its_ranks_in_equal_calls_is_no_mismatch() -> None:
    one = found(*(inside(n, "0", "0-3") for n in range(4)))

    assert one.rule == STUCK


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(64), "0-63"),
        (range(3, 64, 8), "3-59/8"),
        ((0, 3, 4), "0,3,4"),
        ((5,), "5"),
        ((0, 1), "0,1"),
        ([n * n for n in range(200)], ""),
    ],
)
def test_the_ranks_of_a_group_are_sent_as_a_short_text(ranks: Any, text: str) -> None:
    assert text_of_group(ranks) == text
    assert ranks_in_group(text) == (frozenset(ranks) if text else frozenset())


@pytest.mark.parametrize("text", ["", "x", "1,,2", "0-9999999", "0-5/0", "5-1", "1-2-3", "٣,4"])
def test_a_text_that_names_no_ranks_is_none(text: str) -> None:
    assert ranks_in_group(text) == frozenset()
