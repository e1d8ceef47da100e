"""Findings about ranks say where the value comes from by which they have parted."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.origins import kind_words, passed_words
from mpwatch.diagnose.rules.distributed import collective_mismatch, rank_stuck_in_collective
from mpwatch.model.findings import Finding
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import (
    Ending,
    LoopEnd,
    Origin,
    OriginKind,
    OriginStep,
    SourceLine,
    Statement,
)
from tests.builders.snapshots import main, only, snapshot_of, thread, with_threads
from tests.unit.diagnose.rules.test_ranks_apart import BACKWARD, C10D, at_the_store, rank, state

FILE, CLOCK = "/home/me/train.py", "/home/me/clock.py"
DUE = Statement(40, "if due:")
STEPS = (
    OriginStep(FILE, "fit", Statement(38, "due = self.clock.due()")),
    OriginStep(CLOCK, "due", Statement(12, "return time.time() - self.began > 30")),
)
BY_CLOCK = Origin(FILE, DUE, "clock", "time.time()", STEPS)
CHAIN = (
    "depends on `due = self.clock.due()` (train.py:38 fit) <- "
    "`return time.time() - self.began > 30` (clock.py:12 due): a clock; each rank reads its own"
)


def parted(*found: Origin, condition: Statement = DUE, call: str = "all_gather") -> Finding:
    """One rank is in a collective under a condition, and another one behind it."""
    alone = rank(0, f"{C10D}:{call}", "train.py:fit:41", "train.py:<module>:85")
    other = rank(1, f"{C10D}:all_reduce", "train.py:fit:44", "train.py:<module>:85")
    source = (
        SourceLine(FILE, 41, "fit", Statement(41, "gather(x)"), (condition,), defined=30),
        SourceLine(FILE, 44, "fit", Statement(44, "reduce(x)"), (), defined=30),
    )
    job = snapshot_of(main(), alone, other, source=source, origins=found)
    return only(collective_mismatch.check, job)


def test_the_origin_of_the_condition_at_which_ranks_part_is_told_with_its_fix() -> None:
    finding = parted(BY_CLOCK)

    assert f"`if due:` (train.py:40 fit), at which they part, {CHAIN}" in finding.cause
    assert finding.advice.startswith("Let one rank look at the clock")


SKIPS = Statement(40, "if torch.rand(()) < self.drop: continue")
SEEDED = OriginStep(FILE, "run", Statement(26, "torch.manual_seed(seed + rank)"))


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        (
            Origin(FILE, SKIPS, "random", "torch.rand(())", seeded=SEEDED),
            "it depends on `torch.rand(())`: a random number; each rank draws for itself, and "
            "`torch.manual_seed(seed + rank)` (train.py:26 run) seeds it otherwise on each of them",
        ),
        (
            Origin(FILE, SKIPS, "random", "torch.rand(())"),
            "it depends on `torch.rand(())`: a random number; each rank draws for itself, and "
            "nothing that was read seeds them alike",
        ),
        (None, "it tests what each rank computes or finds for itself, such as its own data"),
    ],
)
def test_a_branch_by_what_each_rank_draws_is_told_as_that(origin: Origin | None, why: str) -> None:
    inside = rank(0, f"{C10D}:all_gather", "train.py:fit:41", "train.py:<module>:85")
    gone_on = rank(1, f"{C10D}:all_reduce", "train.py:fit:44", "train.py:<module>:85")
    loop = Statement(39, "for layer in self.layers:")
    source = (
        SourceLine(FILE, 41, "fit", Statement(41, "layer(x)"), (loop,), (SKIPS,), defined=30),
        SourceLine(FILE, 44, "fit", Statement(44, "reduce(x)"), (), defined=30),
    )
    found = () if origin is None else (origin,)
    job = snapshot_of(main(), inside, gone_on, source=source, origins=found)

    finding = only(collective_mismatch.check, job)

    assert f"the condition was not the same for all: {why}" in finding.cause
    assert ("Draw on one rank and broadcast" in finding.advice) is (origin is not None)


def test_a_chain_with_several_ways_only_may_be_it() -> None:
    finding = parted(BY_CLOCK._replace(is_certain=False))

    assert CHAIN.replace("depends", "may depend", 1) in finding.cause


@pytest.mark.parametrize(
    "found",
    [
        (),
        (BY_CLOCK._replace(kind="argument"),),
        (BY_CLOCK._replace(kind="shared"),),
        (BY_CLOCK._replace(kind=""),),
        (BY_CLOCK._replace(kind="data"), BY_CLOCK._replace(kind="shared")),
        (BY_CLOCK._replace(statement=Statement(39, "if other:")),),
        (BY_CLOCK._replace(file="/home/me/other.py"),),
        (BY_CLOCK._replace(names=("src",)),),
    ],
)
def test_what_is_the_same_on_all_ranks_is_no_reason(found: tuple[Origin, ...]) -> None:
    finding = parted(*found)

    assert "depend on `" not in finding.cause
    assert "depends on `" not in finding.cause
    assert finding.advice == parted().advice


def test_of_several_origins_the_most_telling_is_told() -> None:
    data = BY_CLOCK._replace(kind="data", about="batch")

    assert parted(data, BY_CLOCK).cause == parted(BY_CLOCK).cause


def test_a_collective_that_is_never_called_says_why_data_differ() -> None:
    guard = OriginStep(FILE, "fit", Statement(37, "if group is not None:"))
    data = BY_CLOCK._replace(kind="data", about="batch")
    never = BY_CLOCK._replace(kind="unshared", about="group", steps=(STEPS[0], guard))

    finding = parted(data, never)

    assert (
        "`if group is not None:` (train.py:37 fit): a collective that is never called, as no call "
        "of the program gives `group`; each rank goes on with what it has found or computed itself."
    ) in finding.cause
    assert finding.advice.startswith("Give that parameter where the function is called")


def test_a_condition_on_the_rank_that_is_seen_needs_no_origin() -> None:
    statement = Statement(40, "if rank == 0:")
    found = Origin(FILE, statement, "rank", "rank")

    finding = parted(found, condition=statement)

    assert "Only some ranks call all_gather" in finding.cause
    assert "depends on" not in finding.cause


@pytest.mark.parametrize("found", [(), (BY_CLOCK,)])
def test_the_origin_is_told_of_ranks_that_wait_in_different_groups(
    found: tuple[Origin, ...],
) -> None:
    """Though all are in the same operation."""
    source = (
        SourceLine(FILE, 41, "fit", Statement(41, "reduce(x, self.a)"), (DUE,), defined=30),
        SourceLine(FILE, 44, "fit", Statement(44, "reduce(x, self.b)"), (), defined=30),
    )
    job = snapshot_of(
        main(),
        *(
            rank(
                n,
                f"{C10D}:all_reduce",
                f"train.py:fit:{line}",
                environment={"WORLD_SIZE": "2"},
                states=[state(4, id=group, group=group)],
            )
            for n, (line, group) in enumerate(((41, "0"), (44, "1")))
        ),
        source=source,
        origins=found,
    )

    finding = only(rank_stuck_in_collective.check, job)

    assert "in different process groups" in finding.summary
    told = f"`if due:` (train.py:40 fit), at which they part, {CHAIN}"
    assert (told in finding.cause) is bool(found)


def in_a_loop(*found: Origin, ahead: str = "barrier") -> Finding:
    """Two ranks are in a loop that a third has left."""
    outer = ("train.py:main:86", "train.py:<module>:95")
    loops = [rank(n, f"{C10D}:all_reduce", "train.py:fit:74", *outer) for n in (1, 2)]
    past = rank(0, f"{C10D}:{ahead}", "train.py:main:88", *outer[1:])
    header = Statement(66, "for step in range(n):")
    end = Statement(79, "if self.control.stop: break")
    source = (
        SourceLine(
            FILE, 74, "fit", Statement(74, "f(p)"), (header,), ends=(end,),
            ends_around=(LoopEnd(header, end),), defined=60,
        ),
        SourceLine(FILE, 86, "main", Statement(86, "self.fit()"), defined=80),
        SourceLine(FILE, 88, "main", Statement(88, "barrier()"), defined=80),
    )  # fmt: skip
    job = snapshot_of(main(), past, *loops, source=source, origins=found)
    return only(collective_mismatch.check, job)


def test_the_origin_of_what_ends_a_loop_is_told() -> None:
    end = Statement(79, "if self.control.stop: break")
    finding = in_a_loop(BY_CLOCK._replace(statement=end))

    assert f"(train.py:79 fit), by which a rank leaves that loop, {CHAIN}" in finding.cause
    assert finding.advice.startswith("Let one rank look at the clock")


def test_data_of_its_own_leave_the_fix_for_loops_as_it_is() -> None:
    header = Statement(66, "for step in range(n):")
    finding = in_a_loop(BY_CLOCK._replace(statement=header, kind="data"))

    assert "whose rounds one of them has ended, depends on" in finding.cause
    assert finding.advice == in_a_loop().advice


def test_an_origin_that_is_told_already_is_not_told_again() -> None:
    end = Statement(79, "if self.control.stop: break")
    found = BY_CLOCK._replace(statement=end, steps=(OriginStep(FILE, "fit", end),))

    assert in_a_loop(found).cause == in_a_loop().cause


def test_a_rank_that_is_silent_under_a_condition_is_told_with_its_origin() -> None:
    late = rank(0, "train.py:save:57", "train.py:fit:41", "train.py:<module>:85")
    waits = [
        rank(n, f"{C10D}:all_reduce", "train.py:fit:44", "train.py:<module>:85") for n in (1, 2)
    ]
    source = (
        SourceLine(FILE, 41, "fit", Statement(41, "save(x)"), (DUE,), defined=30),
        SourceLine(FILE, 44, "fit", Statement(44, "reduce(x)"), (), defined=30),
    )
    job = snapshot_of(main(), late, *waits, source=source, origins=(BY_CLOCK,))

    assert CHAIN in only(rank_stuck_in_collective.check, job).cause


STOPS = Origin(
    FILE,
    DUE,
    "signal",
    "SIGTERM",
    (
        OriginStep(CLOCK, "on_signal", Statement(18, "self.due = True")),
        OriginStep(CLOCK, "__init__", Statement(15, "signal.signal(signum, self.on_signal)")),
    ),
)


def test_a_flag_that_a_signal_sets_on_one_rank_is_told_with_the_keys_that_it_waits_for() -> None:
    left = at_the_store(0)
    frames = rank(0, "train.py:drain:23", "train.py:fit:54", "train.py:<module>:85").threads[0]
    left = with_threads(left, [replace(left.threads[0], stack=frames.stack), *left.threads[1:]])
    waits = [
        rank(n, BACKWARD, "train.py:step:34", "train.py:fit:47", "train.py:<module>:85")
        for n in (1, 2)
    ]
    loop = Statement(46, "while self.step < self.last:")
    sets = Ending(FILE, "drain", Statement(22, 'self.store.set(name, "1")'))
    source = (
        SourceLine(FILE, 54, "fit", Statement(54, "drain()"), (loop, DUE), defined=30),
        SourceLine(FILE, 47, "fit", Statement(47, "step()"), (loop,), defined=30),
        SourceLine(FILE, 23, "drain", Statement(23, "store.wait(keys)"), (), ended_by=(sets,)),
    )
    job = snapshot_of(main(), left, *waits, source=source, origins=(STOPS,))

    finding = only(rank_stuck_in_collective.check, job)

    assert (
        "`if due:` (train.py:40 fit), at which they part, depends on `self.due = True` "
        "(clock.py:18 on_signal) <- `signal.signal(signum, self.on_signal)` (clock.py:15 __init__):"
        " the handler of a signal (SIGTERM); it runs only in a process that gets the signal"
    ) in finding.cause
    assert 'only once it comes there as well (`self.store.set(name, "1")`, train.py:22)' in (
        finding.cause
    )
    assert "fewer batches" not in finding.cause
    assert "all_reduce the flag (with MAX) at the end of each step" in finding.advice


def in_one_loop(*found: Origin, is_repeated: bool = True, beside: str = "") -> Finding:
    """One rank is in a collective below a condition, and the other in a later backward pass.

    Args:
        found: The origins.
        is_repeated: Whether both are in one loop.
        beside: Where another thread of the first rank is.
    """
    alone = rank(0, f"{C10D}:all_gather", "train.py:save:66", "train.py:fit:57")
    alone = with_threads(alone, [*alone.threads, thread(399, *filter(None, [beside]))])
    other = rank(1, BACKWARD, "train.py:step:34", "train.py:fit:52")
    loop = (Statement(51, "for step in range(n):"),) if is_repeated else ()
    source = (
        SourceLine(FILE, 57, "fit", Statement(57, "save(model)"), loop, defined=50),
        SourceLine(FILE, 52, "fit", Statement(52, "step()"), loop, defined=50),
        SourceLine(FILE, 34, "step", Statement(34, "loss.backward()"), ()),
        SourceLine(FILE, 66, "save", Statement(66, "gather()"), (NO_WRITER,)),
    )
    job = snapshot_of(main(), alone, other, source=source, origins=found)
    return only(collective_mismatch.check, job)


NO_WRITER = Statement(65, "if WRITER is None:")
BY_THREAD = Origin(
    FILE,
    NO_WRITER,
    "thread",
    "its function",
    (OriginStep(FILE, "write", Statement(58, "WRITER = Writer()")),),
)


def test_a_condition_above_the_collective_of_one_rank_is_the_cause_and_not_its_batches() -> None:
    finding = in_one_loop(BY_THREAD)

    assert (
        "`if WRITER is None:` (train.py:65 save), under which one of them has come to its "
        "collective, most likely without the other, depends on `WRITER = Writer()` (train.py:58 "
        "write): what another thread of the process sets"
    ) in finding.cause
    assert "batches" not in f"{finding.cause} {finding.advice}"
    assert finding.advice.startswith("Let the condition be the same on all ranks")


@pytest.mark.parametrize(
    ("beside", "is_told"), [("train.py:write:59", True), ("train.py:read:9", False)]
)
def test_what_sets_a_value_on_another_thread_is_known_by_the_stack_of_that(
    beside: str, is_told: bool
) -> None:
    finding = in_one_loop(BY_THREAD._replace(kind=""), beside=beside)

    assert ("what another thread of the process sets" in finding.cause) is is_told


def test_a_rank_at_another_line_of_the_same_round_has_ended_no_loop() -> None:
    finding = in_one_loop()

    assert "has ended step()" not in finding.cause
    assert "after fewer batches" not in finding.cause


def test_a_condition_of_a_call_that_nothing_repeats_has_not_parted_the_ranks() -> None:
    assert "under which one of them" not in in_one_loop(BY_THREAD, is_repeated=False).cause


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("set-order", "What the call passes as src depends on `due = self.clock.due()` (train.py"),
        ("rank", ""),
        ("data", ""),
        ("argument", ""),
    ],
)
def test_what_ranks_pass_to_one_call_is_told_unless_it_differs_by_design(
    kind: OriginKind, words: str
) -> None:
    call = Statement(20, "dist.broadcast(x, src=self.plan[name])")
    found = Origin(FILE, call, kind, "wanted", STEPS[:1], names=("src",))
    index = Index(snapshot_of(main(), origins=(found,)))

    told = passed_words(index, Frame("send", FILE, 20))

    assert told.startswith(words)
    assert bool(told) is bool(words)


def test_each_kind_has_words() -> None:
    silent = {"", "shared"}
    for kind in get_args(OriginKind):
        assert bool(kind_words(kind)) is (kind not in silent)
