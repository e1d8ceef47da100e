"""Ranks that wait in clean-up while the others still are in the block before it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.distributed import collective_mismatch, rank_stuck_in_collective
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import CleanUp, SourceLine, Statement
from tests.builders.snapshots import found, main, only, snapshot_of
from tests.unit.diagnose.rules.test_ranks_apart import BACKWARD, C10D, rank

FILE = "/home/me/train.py"
CLEAN_UP = CleanUp(Statement(52, "finally:"), 40, 51)
LOOP = Statement(41, "for step in range(steps):")
OUTER = "train.py:<module>:90"


def line(number: int, text: str = "f()", function: str = "run") -> SourceLine:
    return SourceLine(FILE, number, function, Statement(number, text), defined=30)


IN_FINALLY = replace(line(53, "dist.barrier()"), cleans_up=(CLEAN_UP,))
IN_BLOCK = line(45, "step(batch)")
BELOW = line(10, "dist.all_reduce(x)", "step")
MODULE = line(90, "run()", "<module>")
SOURCE = (IN_FINALLY, IN_BLOCK, BELOW, MODULE)


def job(
    *source: SourceLine,
    cleans: tuple[str, ...] = (f"{C10D}:barrier", "train.py:run:53", OUTER),
    block: tuple[str, ...] = (f"{C10D}:all_reduce", "train.py:step:10", "train.py:run:45", OUTER),
) -> Finding:
    ranks = [rank(1, *cleans), *(rank(n, *block) for n in (0, 2))]
    return only(collective_mismatch.check, snapshot_of(main(), *ranks, source=(*source, *SOURCE)))


ONLY = "nothing but an exception (sys.exit() is one) leads from the block to its clean-up"
EITHER = "Either an exception was raised in the block on rank 1 (301) alone, or it has left"


def test_a_rank_in_finally_while_the_others_are_in_the_try_block_has_raised() -> None:
    finding = job()

    assert finding.severity is Severity.CRITICAL
    assert (
        "rank 1 (301) is in the `finally:` of line 52 (train.py:53 run), which runs however its "
        "block was left, also by an exception; rank 0 (300) and rank 2 (302) still are in that "
        "block, at train.py:45 run."
    ) in finding.cause
    assert ONLY in finding.cause
    assert "one was raised on rank 1 (301) alone" in finding.cause
    assert "no log has it yet" in finding.cause
    assert "move `dist.barrier()` of line 53 behind the block" in finding.advice


@pytest.mark.parametrize(
    ("other", "way"),
    [
        (replace(IN_BLOCK, within=(LOOP,)), f"by the end of `{LOOP.text}` (train.py:41 run)"),
        (
            replace(IN_BLOCK, after=(Statement(43, "if done: return"),)),
            "by `if done: return` (train.py:43 run)",
        ),
        (
            replace(IN_BLOCK, within=(Statement(44, "if is_due:"),)),
            "by not meeting `if is_due:` (train.py:44 run)",
        ),
        (
            replace(BELOW, after=(Statement(8, "if not rows: return"),)),
            "by `if not rows: return` (train.py:8 step)",
        ),
        (
            replace(
                IN_FINALLY,
                cleans_up=(CLEAN_UP._replace(leaves=(Statement(42, "if x: return"),)),),
            ),
            "by `if x: return` (train.py:42 run)",
        ),
        (replace(IN_BLOCK, statement=Statement(45, "ready and step(batch)")), ""),
        (replace(BELOW, statement=Statement(10, "dist.all_reduce(x, async_op=True)")), ""),
        (replace(BELOW, statement=Statement(10, "dist.all_reduce(x, group=self.tensor)")), ""),
        (replace(BELOW, statement=Statement(10, "dist.barrier(tp_group)")), ""),
    ],
)
def test_where_the_source_has_another_way_out_of_the_block_it_is_told(
    other: SourceLine, way: str
) -> None:
    source = [other if (e.line, e.function) == (other.line, other.function) else e for e in SOURCE]
    ranks = [
        rank(1, f"{C10D}:barrier", "train.py:run:53", OUTER),
        rank(0, f"{C10D}:all_reduce", "train.py:step:10", "train.py:run:45", OUTER),
    ]

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=tuple(source)))

    assert ONLY not in finding.cause
    assert EITHER in finding.cause
    assert way in finding.cause


@pytest.mark.parametrize(
    ("ends", "is_only"), [((), True), ((Statement(47, "if x.isnan(): break"),), False)]
)
def test_a_loop_of_as_many_rounds_for_all_has_not_ended_before(
    ends: tuple[Statement, ...], is_only: bool
) -> None:
    loop = Statement(41, "for step in range(10):")
    block = replace(IN_BLOCK, within=(loop,), ends=ends)
    ranks = [
        rank(1, f"{C10D}:barrier", "train.py:run:53", OUTER),
        rank(0, f"{C10D}:all_reduce", "train.py:step:10", "train.py:run:45", OUTER),
    ]
    source = (IN_FINALLY, block, BELOW, MODULE)

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))

    assert (ONLY in finding.cause) is is_only
    assert "by the end of" not in finding.cause
    assert ("by `if x.isnan(): break` (train.py:47 run)" in finding.cause) is not is_only


def test_a_library_between_the_block_and_the_call_may_have_returned() -> None:
    lib = "/usr/lib/python3.11/site-packages/fit/loop.py:fit:3"
    block = (f"{C10D}:all_reduce", "train.py:step:10", lib, "train.py:run:45", OUTER)

    assert EITHER in job(block=block).cause


def test_the_end_of_a_with_statement_is_a_clean_up_too() -> None:
    header = Statement(39, "with session() as s:")
    own = replace(line(39, header.text), cleans_up=(CleanUp(header, 40, 51, is_exit=True),))
    end, start = "session.py:__exit__:9", "session.py:__enter__:5"
    source = tuple(
        SourceLine("/home/me/session.py", n, name, Statement(n, "dist.barrier()"))
        for n, name in ((9, "__exit__"), (5, "__enter__"))
    )

    leaves = job(own, *source, cleans=(f"{C10D}:barrier", end, "train.py:run:39", OUTER))
    enters = job(own, *source, cleans=(f"{C10D}:barrier", start, "train.py:run:39", OUTER))

    assert f"is in the end of `{header.text}` of line 39 (train.py:39 run)" in leaves.cause
    assert ONLY in leaves.cause
    assert "wait for no other rank or process where it is given an exception" in leaves.advice
    assert "exception" not in enters.cause


def in_loop() -> tuple[SourceLine, ...]:
    """A block that a loop around repeats."""
    loop = (Statement(35, "for epoch in range(epochs):"),)
    return tuple(replace(each, within=loop) if each.function == "run" else each for each in SOURCE)


def late(*source: SourceLine, cleans: str = "train.py:run:53") -> Finding:
    inside = [
        rank(n, f"{C10D}:all_reduce", "train.py:step:10", "train.py:run:45", OUTER) for n in (0, 2)
    ]
    ranks = [rank(1, "train.py:upload:70", cleans, OUTER), *inside]
    return only(rank_stuck_in_collective.check, snapshot_of(main(), *ranks, source=source))


def test_a_rank_that_waits_for_another_thing_in_its_clean_up_is_told_of_as_well() -> None:
    finding = late(*SOURCE, line(70, "thread.join()", "upload"))

    assert "rank 1 (301) has made no progress" in finding.cause
    assert ONLY in finding.cause
    assert "has left" not in finding.cause
    assert finding.advice.startswith("To see an exception of rank 1 (301), print it before")


def test_a_rank_may_be_in_the_clean_up_of_an_earlier_round_than_the_others() -> None:
    """Each step ends with it, and that rank is slower."""
    finding = late(*in_loop(), line(70, "thread.join()", "upload"))

    assert "clean-up" not in finding.cause


def test_ranks_that_all_have_to_meet_in_the_clean_up_of_a_round_are_in_one_round() -> None:
    ranks = [
        rank(1, f"{C10D}:barrier", "train.py:run:53", OUTER),
        rank(0, f"{C10D}:all_reduce", "train.py:step:10", "train.py:run:45", OUTER),
    ]
    under = tuple(
        replace(each, within=(*each.within, Statement(52, "if is_bad:")))
        if each.line == 53
        else each
        for each in in_loop()
    )

    meets = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=in_loop()))
    may_not = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=under))

    assert ONLY in meets.cause
    assert "exception" not in may_not.cause


def test_a_rank_that_waits_at_the_end_for_one_at_work_in_the_block_has_raised_nothing() -> None:
    works: list[Process] = [rank(0, "train.py:step:10", "train.py:run:45", OUTER, state="R")]
    waits = [rank(n, f"{C10D}:barrier", "train.py:run:53", OUTER) for n in (1, 2)]

    told = found(rank_stuck_in_collective.check, snapshot_of(main(), *works, *waits, source=SOURCE))

    assert all("exception" not in each.cause for each in told)


def test_a_backward_pass_with_collectives_is_not_passed_either() -> None:
    finding = job(block=(BACKWARD, "train.py:step:10", "train.py:run:45", OUTER))

    assert ONLY in finding.cause
