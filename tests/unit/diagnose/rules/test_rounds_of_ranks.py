"""Ranks of which one has left a loop, or a `try` block, that the others still are in."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.distributed import collective_mismatch
from mpwatch.model.findings import Finding
from mpwatch.model.source_code import Caught, Origin, OriginStep, SourceLine, Statement
from tests.builders.snapshots import main, only, snapshot_of
from tests.unit.diagnose.rules.test_ranks_apart import BACKWARD, C10D, rank

FILE = "/home/me/train.py"
FOREVER = Statement(71, "while True:")
TOKENS = Statement(49, "while produced < limit:")
STOP = Statement(57, "if token in self.stop: break")
NEXT = SourceLine(FILE, 72, "serve", Statement(72, "prompt = source.next()"), (FOREVER,))
GENERATE = SourceLine(FILE, 74, "serve", Statement(74, "generate(prompt)"), (FOREVER,))
ASKS = SourceLine(FILE, 20, "next", Statement(20, "dist.broadcast_object_list(box)"))
STEP = SourceLine(
    FILE, 50, "generate", Statement(50, "logits = model(tokens)"), (TOKENS,), ends=(STOP,)
)
LAYERS = SourceLine(
    FILE, 36, "forward", Statement(36, "x = block(x)"), (Statement(35, "for block in blocks:"),)
)
DRAWN = Origin(
    FILE,
    STOP,
    "random",
    "torch.multinomial(probs, 1)",
    (OriginStep(FILE, "generate", Statement(55, "token = torch.multinomial(probs, 1)")),),
    seeded=OriginStep(FILE, "serve", Statement(65, "seed_all(args.seed + rank)")),
)


def served(*changed: SourceLine, origins: tuple[Origin, ...] = ()) -> Finding:
    """One rank asks for the next prompt, and the other one generates a token."""
    asks = (f"{C10D}:broadcast_object_list", "train.py:next:20", "train.py:serve:72")
    reduces = (f"{C10D}:all_reduce", "train.py:forward:36", "train.py:generate:50")
    ranks = rank(0, *asks), rank(1, *reduces, "train.py:serve:74")
    source = (*changed, NEXT, GENERATE, ASKS, STEP, LAYERS)
    found = {(each.line, each.function): each for each in reversed(source)}
    job = snapshot_of(main(), *ranks, source=tuple(found.values()), origins=origins)
    return only(collective_mismatch.check, job)


ROUND_AHEAD = (
    "rank 0 (300) has left the loop `while produced < limit:` of line 49 in generate(), in which "
    "rank 1 (301) still calls all_reduce, and has come to the next round of `while True:` of line "
    "71 in serve(): to broadcast_object_list at train.py:72 serve, which each of its rounds calls, "
    "so that rank 1 (301) has passed it before. Most likely the inner loop has ended earlier on "
    "rank 0 (300), by its condition or `if token in self.stop: break` (line 57)."
)


def test_of_two_calls_in_one_loop_the_rank_at_the_first_is_a_round_ahead() -> None:
    finding = served()

    assert ROUND_AHEAD in finding.cause
    assert "calls both in one loop" not in finding.cause
    assert "when the loop of generate() ends: compute `if token in self.stop: break`" in (
        finding.advice
    )


def test_what_is_drawn_by_each_rank_is_told_as_that_with_what_seeds_it() -> None:
    finding = served(origins=(DRAWN,))

    assert ROUND_AHEAD in finding.cause
    assert (
        "`if token in self.stop: break` (train.py:57 generate), by which a rank leaves the loop "
        "that one of them still is in, depends on `token = torch.multinomial(probs, 1)` "
        "(train.py:55 generate): a random number; each rank draws for itself, and "
        "`seed_all(args.seed + rank)` (train.py:65 serve) seeds it otherwise on each of them."
    ) in finding.cause
    assert finding.advice.startswith("Draw on one rank and broadcast what it has drawn")


def test_what_a_library_calls_need_not_be_called_in_each_round() -> None:
    calls = ("train.py:next:20", "torch/hooks.py:call_all:8", "train.py:serve:72")
    reduces = ("train.py:generate:50", "train.py:serve:74")
    ranks = rank(0, f"{C10D}:broadcast", *calls), rank(1, f"{C10D}:all_reduce", *reduces)
    source = (NEXT, GENERATE, ASKS, STEP)

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))

    assert "next round" not in finding.cause


@pytest.mark.parametrize(
    "changed",
    [
        replace(ASKS, within=(Statement(19, "for each in boxes:"),)),
        replace(ASKS, after=(Statement(18, "if not self.boxes: return"),)),
        replace(NEXT, within=()),
        replace(NEXT, within=(FOREVER, Statement(71, "if is_due:"))),
        replace(NEXT, caught=(Caught(Statement(73, "except OSError:"), 72, 72, 73),)),
        replace(STEP, within=(), ends=()),
    ],
)
def test_no_rank_is_a_round_ahead_where_the_source_shows_another_way(changed: SourceLine) -> None:
    assert "next round" not in served(changed).cause


AGAIN = Statement(54, "while True:")
CATCHES = Caught(
    Statement(59, "except RuntimeError as error:"), 58, 58, 63, Statement(62, "log.warning(error)")
)
PIECES = Statement(39, "for i, piece in enumerate(pieces):")
TRAINS = SourceLine(
    FILE, 58, "batch", Statement(58, "loss = self.run(x)"), (AGAIN,), caught=(CATCHES,)
)
SHARES = SourceLine(FILE, 64, "batch", Statement(64, "self.share(oom)"), (AGAIN,))
RUNS = SourceLine(FILE, 42, "run", Statement(42, "loss.backward()"), (PIECES,))


def trained(*changed: SourceLine) -> Finding:
    """One rank is in the backward pass, and the other one behind the block with it."""
    shares = (f"{C10D}:all_gather", "train.py:share:50", "train.py:batch:64")
    ranks = rank(0, BACKWARD, "train.py:run:42", "train.py:batch:58"), rank(1, *shares)
    source = (*changed, TRAINS, SHARES, RUNS)
    found = {(each.line, each.function): each for each in reversed(source)}
    return only(
        collective_mismatch.check, snapshot_of(main(), *ranks, source=tuple(found.values()))
    )


RAISED = (
    "an exception was raised in that block on rank 1 (301) alone, `except RuntimeError as error:` "
    "of line 59 (train.py:58 batch) has caught it and logs it (`log.warning(error)`, line 62), and "
    "the rest of the block was left out there, with the backward pass, for which the others wait."
)


def test_a_rank_behind_a_handler_has_left_the_block_of_the_others_by_an_exception() -> None:
    finding = trained()

    assert f"Most likely {RAISED} Else the loop `{PIECES.text}` of line 39 in run() has ended" in (
        finding.cause
    )
    assert "fewer batches" not in finding.cause
    assert "Look in the log of rank 1 (301) for what was caught" in finding.advice
    assert "before any of them calls the backward pass" in finding.advice
    assert f"let the loop `{PIECES.text}` of line 39 in run() have the same" in finding.advice


def test_without_a_loop_in_the_block_nothing_but_an_exception_is_likely() -> None:
    finding = trained(replace(RUNS, within=()))

    assert f"Most likely {RAISED}" in finding.cause
    assert " Else the loop" not in finding.cause
    assert "same number of rounds" not in finding.advice


def test_around_all_steps_a_handler_is_only_one_way_behind_them() -> None:
    loop = Statement(39, "for batch in self.loader:")

    finding = trained(replace(RUNS, within=(loop,)))

    assert "most likely after fewer batches." in finding.cause
    assert f"Also possible: {RAISED}" in finding.cause
    assert finding.advice.startswith("Give all ranks the same number of batches")
    assert "If an exception was caught: Look in the log of rank 1 (301)" in finding.advice


@pytest.mark.parametrize(
    "changed",
    [
        replace(TRAINS, caught=()),
        replace(TRAINS, caught=(CATCHES._replace(end=66),)),
        replace(SHARES, within=(AGAIN, Statement(64, "if not oom:"))),
        replace(SHARES, after=(Statement(64, "if oom: continue"),)),
    ],
)
def test_no_exception_is_told_where_no_handler_leads_to_the_line_of_the_other(
    changed: SourceLine,
) -> None:
    assert "exception" not in trained(changed).cause


@pytest.mark.parametrize("is_deeper", [False, True])
def test_a_condition_in_the_block_may_lead_behind_it_as_well(is_deeper: bool) -> None:
    """`if loss.item() > limit: self.run(x)` in the block of a handler."""
    changed = RUNS if is_deeper else TRAINS
    own = Statement(changed.line - 1, "if loss.item() > limit:")
    inside = replace(changed, within=(*(() if is_deeper else (AGAIN,)), own))

    finding = trained(inside, replace(RUNS, within=()))

    assert "Most likely an exception" not in finding.cause


def test_a_handler_in_a_loop_does_not_lead_behind_the_loop() -> None:
    """The rank behind it may have had fewer rounds."""
    behind = replace(SHARES, within=())

    assert "exception" not in trained(behind, replace(RUNS, within=())).cause
