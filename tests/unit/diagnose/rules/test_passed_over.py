"""Ranks at one line of a loop, whose elements each has passed over by its own data."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.distributed import collective_mismatch, rank_stuck_in_collective
from mpwatch.model.findings import Finding
from mpwatch.model.samples import FrameValues, NameValue, ValuesRead
from mpwatch.model.source_code import Mark, Origin, OriginStep, SourceLine, Statement
from tests.builders.snapshots import NOW_S, main, only, pid, snapshot_of
from tests.unit.diagnose.rules.test_ranks_apart import BACKWARD, C10D, rank, state

FILE = "/home/me/train.py"
LOOP = Statement(12, "for i, expert in enumerate(self.experts):")
SKIP = Statement(14, "if tokens.numel() == 0: continue")
CALL = SourceLine(
    FILE, 16, "forward", Statement(16, "y = expert(tokens)"), (LOOP,), (SKIP,), defined=10
)


def stuck(
    *source: SourceLine,
    call: str = f"{C10D}:all_gather_into_tensor",
    states: tuple[Any, Any] = (None, None),
    **more: Any,
) -> Finding:
    ranks = [
        rank(
            n,
            call,
            "train.py:forward:16",
            environment={"WORLD_SIZE": "2"},
            states=None if states[n] is None else [states[n]],
        )
        for n in range(2)
    ]
    job = snapshot_of(main(), *ranks, source=source, **more)
    return only(rank_stuck_in_collective.check, job)


OVER = (
    "in a round of `for i, expert in enumerate(self.experts):` of line 12, and `if tokens.numel() "
    "== 0: continue` of line 14 passes over elements"
)


def test_a_condition_on_data_in_the_loop_around_one_line_is_told() -> None:
    finding = stuck(CALL)

    assert OVER in finding.cause
    assert "Possible: they are there for different elements" in finding.cause
    assert finding.advice.startswith("Let all ranks go through the same elements")


def test_an_origin_in_the_data_makes_it_likely() -> None:
    step = OriginStep(FILE, "forward", Statement(13, "tokens = load(path)"))
    finding = stuck(CALL, origins=(Origin(FILE, SKIP, "data", "load(path)", (step,)),))

    assert "it depends on `tokens = load(path)` (train.py:13 forward): data." in finding.cause
    assert "Most likely they are there for different elements" in finding.cause


def test_a_condition_around_the_call_passes_over_elements_too() -> None:
    around = replace(CALL, within=(LOOP, Statement(14, "if mask.any():")), after=())

    assert "`if mask.any():` of line 14 passes over elements" in stuck(around).cause


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (CALL, (Origin(FILE, SKIP, "shared", "all_reduce(n)"),)),
        (CALL, (Origin(FILE, SKIP, "argument", "args.active"),)),
        (CALL, (Origin(FILE, SKIP, "rank", "rank"),)),
        (replace(CALL, after=(Statement(9, SKIP.text),)), ()),
        (replace(CALL, after=(Statement(14, "if i % 2: continue"),)), ()),
        (replace(CALL, statement=Statement(16, "y = self.shared(tokens)")), ()),
        (replace(CALL, within=(Statement(12, "for i, expert in enumerate(loader):"),)), ()),
        (replace(CALL, within=()), ()),
    ],
    ids=[
        *("shared", "a setting", "the rank", "before the loop", "a counter"),
        *("another call", "over data", "no loop"),
    ],
)
def test_what_ranks_meet_alike_passes_over_no_elements(
    line: SourceLine, found: tuple[Origin, ...]
) -> None:
    assert "passes over" not in stuck(line, origins=found).cause


def read(*numbers: int) -> tuple[ValuesRead, ...]:
    return tuple(
        ValuesRead(
            pid(300 + n),
            NOW_S,
            "hook",
            (FrameValues(300 + n, FILE, "forward", 16, (NameValue("i", "int", number),)),),
        )
        for n, number in enumerate(numbers)
    )


def test_a_counter_that_was_read_tells_for_which_elements_ranks_are_there() -> None:
    apart, alike = stuck(CALL, values=read(3, 4)), stuck(CALL, values=read(3, 3))

    shown = "i is 3 at rank 0 (300), 4 at rank 1 (301)"
    assert f"{shown}: they are there for different elements" in apart.cause
    assert shown in apart.evidence
    assert "passes over" not in alike.cause


def test_ranks_that_torch_has_recorded_in_the_same_call_have_passed_over_none() -> None:
    same = state(operation="gloo:all_gather_into_tensor")
    other = {**same, "number": 13, "enqueued": 13}

    assert "passes over" not in stuck(CALL, states=(same, same)).cause
    assert OVER in stuck(CALL, states=(same, other)).cause


def test_shapes_that_differ_at_one_line_are_those_of_different_elements() -> None:
    records = [state(sizes=sizes) for sizes in ("[[3, 4]]", "[[5, 4]]")]
    ranks = [
        rank(n, f"{C10D}:all_reduce", "train.py:forward:16", states=[records[n]]) for n in range(2)
    ]

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=(CALL,)))

    assert "tensors of a different shape or type. All are at train.py:16 forward" in finding.cause


def test_in_a_backward_pass_the_forward_pass_of_the_program_is_asked() -> None:
    mark = Mark(
        "passes-over-module", FILE, "forward", f"{SKIP.text[:-9]} in line 14", CALL.statement
    )

    finding = stuck(CALL, call=BACKWARD)
    told = stuck(call=BACKWARD, marks=(mark,))

    assert OVER in finding.cause
    assert "Possible: rank 0 (300) and rank 1 (301) run the backward pass of different parts" in (
        told.cause
    )
    assert "under `if tokens.numel() == 0:` in line 14" in told.cause
    assert told.advice.startswith("Run each of these modules on all ranks in each step")
