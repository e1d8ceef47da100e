"""Ranks that wait for each other or for one of them: which collective, which rank, and why."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.flight_recorder import recorded
from mpwatch.diagnose.rules.distributed import collective_mismatch, rank_stuck_in_collective
from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.diagnose.rules.throughput import straggler_worker
from mpwatch.model.account import Activity, Callers
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import Counts, ProgressSource
from mpwatch.model.samples import Frame, FrameValues, NameValue, ValuesRead, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import (
    Decider,
    EndlessLoop,
    Guarded,
    LoopEnd,
    Mark,
    SourceLine,
    Statement,
)
from tests.builders.accounts import IN_A_CONDITION, IN_ALL_REDUCE, with_shares
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    WALL_S,
    cpu,
    exited,
    fds,
    found,
    main,
    only,
    pid,
    pipe,
    process,
    snapshot_of,
    socket,
    thread,
    with_threads,
)

C10D = "torch/distributed/distributed_c10d.py"
ADDRESS = "tcp 127.0.0.1:41000 > 127.0.0.1:29500"
BACKWARD = "torch/autograd/graph.py:_engine_run_backward"


def state(number: int = 12, operation: str = "gloo:all_reduce", **more: Any) -> dict[str, Any]:
    return {
        "id": "0",
        "enqueued": number,
        "completed": number - 1,
        "group": "0",
        "description": "default_pg",
        "operation": operation,
        "number": number,
        "sizes": "[[3, 4]]",
        "types": "Float",
        "is_unfinished": True,
        **more,
    }


GROUPS = {
    name: {"size": 2, "rank": 0, "ranks": "0, 1", "backend": "gloo"} for name in ("0", "1", "half")
}


def rank(
    number: int,
    *stack: str,
    still_s: float = 60.0,
    states: list[Any] | None = None,
    name: str = "gloo_tcp_loop",
    **fields: Any,
) -> Process:
    own = 300 + number
    more: dict[str, Any] = fields.pop("more", {})
    if states is not None:
        more = {**more, "gauges": {"collectives": {"groups": GROUPS, "states": states}}}
    threads = [thread(own, *stack, still_s=still_s), thread(own + 50, name=name)]
    taken = {"label": f"rank {number}", "rank": number, **fields}
    return process(own, "rank", threads=threads, more=more, **taken)


def called(number: int, call: str, line: int = 40, **fields: Any) -> Process:
    return rank(number, f"{C10D}:{call}", f"train.py:step:{line}", **fields)


def backward(number: int, **fields: Any) -> Process:
    return rank(number, BACKWARD, "train.py:step:20", **fields)


def test_an_explicit_collective_against_a_backward_pass_is_a_mismatch() -> None:
    job = snapshot_of(main(), backward(0), called(1, "all_gather", 77))

    finding = only(collective_mismatch.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "1 in the backward pass, 1 in all_gather" in finding.summary
    assert "rank 1 (301) called all_gather instead" in finding.cause
    assert any("called at train.py:77 step" in each for each in finding.evidence)
    assert "same number of batches" in finding.advice
    assert found(rank_stuck_in_collective.check, job) == []


def test_a_rank_that_was_stopped_in_the_collective_before_is_late_and_calls_no_other_one() -> None:
    size = {"WORLD_SIZE": "3"}
    others = [backward(number, environment=size) for number in range(2)]
    stopped = called(2, "all_reduce", state="T", environment=size)
    job = snapshot_of(main(), *others, stopped)

    assert found(collective_mismatch.check, job) == []
    finding = only(rank_stuck_in_collective.check, job)
    assert "2 ranks wait in the backward pass for rank 2 (302)" in finding.summary
    assert "is stopped" in finding.cause


DDP = "torch/nn/parallel/distributed.py"


@pytest.mark.parametrize(
    ("stack", "states", "name"),
    [
        ((f"{DDP}:_pre_forward", f"{DDP}:forward"), None, "broadcast of gradient buckets"),
        (("torch/distributed/hooks.py:reduce", BACKWARD), None, "the backward pass"),
        # A function that is not known by its name: what torch has recorded tells.
        (("torch/new/module.py:share",), [state(operation="gloo:broadcast")], "in broadcast for"),
    ],
)
def test_a_wait_for_the_ranks_in_native_code_of_torch_is_no_lock_of_the_process(
    stack: tuple[str, ...], states: list[Any] | None, name: str
) -> None:
    size = {"WORLD_SIZE": "3"}
    wait = WaitedOn("futex", "futex", ("futex 0x70",))
    inside = [
        rank(number, *stack, "train.py:step:20", environment=size, states=states)
        for number in range(2)
    ]
    inside = [
        with_threads(each, [replace(each.threads[0], waits_on=wait), *each.threads[1:]])
        for each in inside
    ]
    job = snapshot_of(main(), *inside, rank(2, "train.py:save:60", environment=size))

    finding = only(rank_stuck_in_collective.check, job)

    assert name in finding.summary
    assert finding.summary.startswith("2 ranks wait in ")


@pytest.mark.parametrize(
    "job",
    [
        (backward(0, still_s=2.0), called(1, "all_gather")),
        (backward(0), called(1, "all_gather", still_s=1.0)),
        (backward(0, name="python"), called(1, "all_gather")),
        (called(0, "all_reduce"), called(1, "all_reduce")),
    ],
)
def test_ranks_in_different_calls_for_a_moment_are_no_mismatch(job: tuple[Process, ...]) -> None:
    assert found(collective_mismatch.check, snapshot_of(main(), *job)) == []


def test_messages_that_do_not_match_are_no_collective_which_only_some_ranks_call() -> None:
    sends, receives = called(0, "send", 41), called(1, "recv", 50)
    guard = (Statement(49, "else of if rank < 2:"),)
    lines = tuple(
        SourceLine("/home/me/train.py", n, "step", Statement(n, "dist.recv(x)"), guard)
        for n in (41, 50)
    )

    finding = only(collective_mismatch.check, snapshot_of(main(), sends, receives, source=lines))

    assert finding.summary.startswith("ranks wait for each other in messages that do not match: ")
    assert finding.cause.startswith("A send ends when its receiver takes that message")
    assert "rank 0 (300) is in send" in finding.cause
    assert "Only some ranks" not in finding.cause


KEYS = "for key, value in outputs.items():"
MADE_OF_A_SET = Mark(
    "set-order", "/home/me/model.py", "forward", "self.active & self.known",
    Statement(31, "result = {key: None for key in self.active & self.known}"),
)  # fmt: skip
FROM_A_SET = MADE_OF_A_SET._replace(file="/home/me/train.py", function="outputs")


def in_a_loop(*headers: str, forked: bool = False, marks: tuple[Mark, ...]) -> list[Finding]:
    """Two ranks in different collectives, each under a loop."""
    calls = (called(0, "all_reduce", 37), called(1, "all_to_all", 40))
    method = "fork" if forked else "spawn"
    ranks = [replace(e, sample=replace(e.sample, start_method=method)) for e in calls]
    lines = tuple(
        SourceLine(
            "/home/me/train.py", n, "step", Statement(n, "dist.f(x)"), (Statement(35, header),)
        )
        for n, header in zip((37, 40), headers, strict=True)
    )
    return found(collective_mismatch.check, snapshot_of(main(), *ranks, source=lines, marks=marks))


def test_ranks_that_go_through_a_set_in_another_order_each_are_told_so() -> None:
    (finding,) = in_a_loop(KEYS, KEYS, marks=(FROM_A_SET,))
    (other,) = in_a_loop(KEYS, KEYS, marks=(MADE_OF_A_SET,))

    assert "whose order most likely comes from a set: `result = {key: None" in finding.cause
    assert "at train.py:31 outputs goes through the set self.active & self.known" in finding.cause
    assert "sorted(self.active & self.known)" in finding.advice
    assert "whose order may come from a set" in other.cause


@pytest.mark.parametrize(
    "findings",
    [
        pytest.param(in_a_loop(KEYS, KEYS, forked=True, marks=(FROM_A_SET,)), id="forked"),
        pytest.param(in_a_loop(KEYS, "for x in xs:", marks=(FROM_A_SET,)), id="another loop"),
        pytest.param(
            in_a_loop(*["for i in range(9):"] * 2, marks=(FROM_A_SET,)), id="a loop that counts"
        ),
        pytest.param(in_a_loop(KEYS, KEYS, marks=()), id="no set"),
    ],
)
def test_ranks_that_are_not_in_one_loop_over_things_are_not_apart_by_a_set(
    findings: list[Finding],
) -> None:
    assert all("a set" not in each.cause for each in findings)


def test_a_loop_that_ranks_leave_by_their_own_clocks_is_named_with_that_condition() -> None:
    outer = ("train.py:main:86", "train.py:<module>:95")
    loops = [rank(n, f"{C10D}:all_reduce", "train.py:execute:48", *outer) for n in (1, 2)]
    ahead = rank(0, f"{C10D}:gather", "train.py:write:59", "train.py:main:88", *outer[1:])
    header = Statement(47, "while self.time < self.end and self.elapsed() < self.limit:")
    line = SourceLine("/home/me/train.py", 48, "execute", Statement(48, "dt = step()"), (header,))

    finding = only(collective_mismatch.check, snapshot_of(main(), ahead, *loops, source=(line,)))

    assert (
        "Most likely by `self.elapsed() < self.limit`, which each rank tests by a clock of its own"
        in finding.cause
    )
    assert finding.advice.startswith("Let one rank decide when the time is up")


PLAN = Mark(
    "set-order", "/home/me/data.py", "names", "wanted", Statement(34, "return list(wanted)")
)


@pytest.mark.parametrize(
    ("text", "method", "marks", "is_named", "has_set"),
    [
        ("dist.broadcast(t, src=self.plan[name])", "spawn", (PLAN,), True, True),
        ("dist.broadcast(t, src=self.plan[name])", "fork", (PLAN,), True, False),
        ("dist.broadcast(t, src=self.plan[name].owner)", "spawn", (PLAN,), True, True),
        ("dist.broadcast(t, src=owner)", "spawn", (), True, False),
        ("dist.broadcast(t, src=0)", "spawn", (PLAN,), False, False),
        ("dist.broadcast(t, 0)", "spawn", (PLAN,), False, False),
    ],
)
def test_ranks_that_compute_themselves_who_sends_may_each_have_another_one(
    text: str, method: str, marks: tuple[Mark, ...], is_named: bool, has_set: bool
) -> None:
    size: dict[str, Any] = {"environment": {"WORLD_SIZE": "3"}}
    ranks = [called(n, "broadcast", start_method=method, **size) for n in range(3)]
    source = (SourceLine("/home/me/train.py", 40, "step", Statement(40, text)),)
    job = snapshot_of(main(), *ranks, source=source, marks=marks)

    stuck = only(rank_stuck_in_collective.check, job)
    [*stalled] = found(standing_still.check, job)

    for finding in (stuck, *stalled):
        assert ("Each rank computes `src=" in finding.cause) is is_named
        assert (
            "`return list(wanted)` at data.py:34 names goes through wanted" in finding.cause
        ) is (has_set)


HASHES = Mark(
    "text-hash", "/home/me/data.py", "owners", "name", Statement(18, "own[name] = hash(name) % n")
)


def naming(
    text: str,
    passed: tuple[int, ...] | None = (1, 3, 1),
    method: str = "spawn",
    records: list[Any] | None = None,
    name: str = "src",
) -> Snapshot:
    """Three ranks in one broadcast, each with a value of a name that it passes."""
    given = records or [None] * 3
    size: dict[str, Any] = {"environment": {"WORLD_SIZE": "3"}, "start_method": method}
    ranks = [
        called(n, "broadcast", states=None if each is None else [each], **size)
        for n, each in enumerate(given)
    ]
    line = SourceLine("/home/me/train.py", 40, "step", Statement(40, text))
    values = [
        ValuesRead(
            pid(300 + n),
            NOW_S,
            "hook",
            (FrameValues(300 + n, line.file, "step", 40, (NameValue(name, "int", value),)),),
        )
        for n, value in enumerate(passed or ())
    ]
    return snapshot_of(main(), *ranks, source=(line,), marks=(HASHES,), values=tuple(values))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("dist.broadcast(p.data, src=src)", "src"),
        ("dist.broadcast(p.data, src)", "src"),
        ("dist.broadcast(self.made(p, n), self.root)", "self.root"),
        ("dist.reduce(p, dst=self.owner)", "self.owner"),
        ("dist.broadcast(p, src=rank)", "rank"),
    ],
)
def test_ranks_that_name_different_ranks_in_one_call_are_told_which(text: str, name: str) -> None:
    job = naming(text, name=name)
    shown = f"{name} is 1 at rank 0 (300) and rank 2 (302), 3 at rank 1 (301)"

    stuck = only(rank_stuck_in_collective.check, job)
    stalled = only(standing_still.check, job)

    assert stuck.severity is Severity.CRITICAL
    assert "in which they name different ranks" in stuck.summary
    assert stalled.summary == (
        "3 ranks are in broadcast at train.py:40 step, name different ranks in it, and do not meet"
    )
    for finding in (stuck, stalled):
        assert shown in finding.evidence
        assert f"at train.py:40 step: {shown}" in finding.cause
        assert "`own[name] = hash(name) % n` at data.py:18 owners chooses by it" in finding.cause
        assert "zlib.crc32()" in finding.advice


def test_a_hash_is_the_same_in_ranks_that_were_forked_from_one_process() -> None:
    finding = only(rank_stuck_in_collective.check, naming("f(p, src=src)", method="fork"))
    assert "src is 1 at rank 0" in finding.cause
    assert "hash()" not in finding.cause


@pytest.mark.parametrize(
    "job",
    [
        naming("dist.broadcast(p, src=src)", (1, 1, 1)),
        naming("dist.broadcast(p, src=src)", None),
        naming("dist.broadcast(p, src=src)", (1, 3)),
        naming("dist.broadcast(p, src=src, group=self.group)"),
        naming("dist.all_reduce(p)"),
        naming(
            "dist.broadcast(p, src=src)", records=[state(4 + n, "gloo:broadcast") for n in range(3)]
        ),
    ],
    ids=["the same", "not read", "not read of all", "a group", "no root", "another round"],
)
def test_ranks_that_may_name_the_same_rank_are_not_told_so(job: Snapshot) -> None:
    for check in (rank_stuck_in_collective.check, standing_still.check):
        for finding in found(check, job):
            assert "different ranks" not in finding.summary + finding.cause
            assert "hash" not in finding.cause


def test_ranks_of_one_recorded_group_name_different_ranks_in_it() -> None:
    records = [state(4, "gloo:broadcast") for _ in range(3)]
    job = naming("dist.broadcast(p, src=src, group=self.group)", records=records)
    assert "pass different ranks" in only(rank_stuck_in_collective.check, job).cause


CLOCK = Mark("asks-clock", "/home/me/data.py", "enough", "enough", Statement(9, "return t < n"))


@pytest.mark.parametrize(
    ("end", "marks", "is_named"),
    [
        ("if not self.control.enough(): break", (CLOCK,), True),
        ("if not self.control.enough: break", (CLOCK,), True),
        ("if not self.control.enough(): break", (), False),
        ("if not enough: break", (CLOCK,), False),
        ("if perf_counter() > end: break", (), True),
        ("if not self.control.other(): break", (CLOCK,), False),
    ],
)
def test_a_loop_may_be_left_by_a_function_that_compares_the_time(
    end: str, marks: tuple[Mark, ...], is_named: bool
) -> None:
    """Both functions are called `run`, as a method and the function that calls it often are."""
    outer = ("train.py:run:86", "train.py:<module>:95")
    reduces = ("train.py:block:49", "train.py:run:62", *outer)
    loops = [rank(n, f"{C10D}:all_reduce", *reduces) for n in (1, 2)]
    ahead = rank(0, f"{C10D}:barrier", "train.py:finish:72", "train.py:run:87", *outer[1:])
    header = Statement(60, "while block < self.blocks:")
    source = (
        SourceLine(
            "/home/me/train.py", 62, "run", Statement(62, "self.block(n)"), (header,),
            ends=(Statement(66, end),), defined=57,
        ),
        SourceLine("/home/me/train.py", 86, "run", Statement(86, "driver.run()"), defined=77),
        SourceLine("/home/me/train.py", 87, "run", Statement(87, "driver.finish()"), defined=77),
    )  # fmt: skip
    job = snapshot_of(main(), ahead, *loops, source=source, marks=marks)

    finding = only(collective_mismatch.check, job)

    assert "rank 0 (300) has left " in finding.cause
    assert (f"by `{end}`, which each rank tests by a clock" in finding.cause) is is_named


SETS = Mark(
    "set-by-clock", "/home/me/data.py", "on_step", "stop", Statement(47, "if time() - t > limit:")
)


@pytest.mark.parametrize(
    ("marks", "is_named"), [((SETS,), True), ((SETS._replace(about="other"),), False), ((), False)]
)
def test_a_flag_that_a_clock_sets_ends_the_loop_around_that_of_a_collective(
    marks: tuple[Mark, ...], is_named: bool
) -> None:
    outer = ("train.py:main:86", "train.py:<module>:95")
    loops = [rank(n, f"{C10D}:all_reduce", "train.py:fit:74", *outer) for n in (1, 2)]
    ahead = rank(0, f"{C10D}:gather", "train.py:test:59", "train.py:main:88", *outer[1:])
    steps, inner = (
        Statement(66, "for step in range(n):"),
        Statement(73, "for p in self.parameters():"),
    )
    ends = (LoopEnd(steps, Statement(79, "if self.control.stop: break")),)
    line = SourceLine(
        "/home/me/train.py", 74, "fit", Statement(74, "f(p)"), (steps, inner), ends_around=ends
    )
    job = snapshot_of(main(), ahead, *loops, source=(line,), marks=marks)

    finding = only(collective_mismatch.check, job)

    told = (
        "left the loop `for step in range(n):` of line 66 in fit()",
        "by `if self.control.stop: break`, of what `if time() - t > limit:` at data.py:47 on_step "
        "sets, which each rank tests by a clock",
    )
    assert all(each in finding.cause for each in told) is is_named
    assert finding.advice.startswith("Let one rank decide when the time is up") is is_named


RETRIES = Mark(
    "retries", "/home/me/train.py", "batch", "73-74", Statement(75, "except RuntimeError as e:")
)


def repeating(
    call: str = "all_gather",
    at: tuple[int, int] = (57, 66),
    outer: int = 73,
    within: tuple[Statement, ...] = (),
    after: tuple[Statement, ...] = (),
    text: str = "f()",
) -> Finding:
    """One rank is in a call of a block, and two are in an all_reduce of it."""
    stack = (f"train.py:batch:{outer}", "train.py:fit:85")
    again = rank(1, f"{C10D}:{call}", f"train.py:micro:{at[0]}", *stack)
    others = [
        rank(n, f"{C10D}:all_reduce", f"train.py:micro:{at[1]}", "train.py:batch:73", stack[1])
        for n in (0, 2)
    ]
    loop = (Statement(70, "while True:"),)
    source = [
        SourceLine("/home/me/train.py", n, "micro", Statement(n, text), within, after) for n in at
    ]
    source += [
        SourceLine("/home/me/train.py", n, "batch", Statement(n, "g()"), loop) for n in (73, 80)
    ]
    job = snapshot_of(main(), again, *others, source=tuple(source), marks=(RETRIES,))
    return only(collective_mismatch.check, job)


def test_a_rank_that_repeats_a_block_in_which_the_others_are_has_caught_an_exception() -> None:
    finding = repeating()

    assert "`except RuntimeError as e:` at train.py:75 batch has caught" in finding.cause
    assert "raised and caught on rank 1 (301) alone" in finding.cause
    assert "it calls all_gather a second time" in finding.cause
    assert finding.advice.startswith("Let all ranks decide together whether to repeat")


@pytest.mark.parametrize(
    "finding",
    [
        repeating("broadcast"),
        repeating(outer=80),
        repeating(within=(Statement(55, "for part in parts:"),)),
        repeating(after=(Statement(60, "if bad: return"),)),
        repeating(text="work = dist.all_gather(parts, x, async_op=True)"),
    ],
    ids=["not of all", "outside of the block", "in a loop", "left before", "returns at once"],
)
def test_a_rank_that_may_have_come_there_otherwise_repeats_no_block(finding: Finding) -> None:
    assert "caught" not in finding.cause


def test_ranks_that_have_left_a_loop_of_collectives_early_are_named_with_it() -> None:
    outer = ("train.py:main:86", "train.py:<module>:95")
    reduces = ("data.py:reduce:34", "train.py:validate:51", *outer)
    loops = [rank(n, f"{C10D}:all_reduce", *reduces) for n in (0, 1)]
    ahead = rank(2, f"{C10D}:broadcast", "train.py:validate:55", *outer)
    beside = rank(2, f"{C10D}:broadcast", "data.py:reduce:36", "train.py:validate:51", *outer)

    finding = only(collective_mismatch.check, snapshot_of(main(), *loops, ahead))
    other = only(collective_mismatch.check, snapshot_of(main(), *loops, beside))

    assert finding.process == pid(302)
    assert "rank 2 (302) has left reduce(), in which rank 0 (300) and rank 1 (301) still call" in (
        finding.cause
    )
    assert "the same calls in reduce() (data.py:34 reduce)" in finding.advice
    assert "has left" not in other.cause


def test_a_function_with_a_collective_that_one_rank_alone_calls_is_named() -> None:
    outer = ("train.py:main:62", "train.py:<module>:95")
    saves = rank(0, f"{C10D}:broadcast", "data.py:save:21", *outer)
    passed = [rank(n, f"{C10D}:barrier", "train.py:main:63", outer[1]) for n in (1, 2)]

    finding = only(collective_mismatch.check, snapshot_of(main(), saves, *passed))

    assert "rank 0 (300) calls broadcast in save() (data.py:21 save)" in finding.cause
    assert "rank 1 (301) and rank 2 (302) have passed the line that calls save()" in finding.cause
    assert "if rank == 0" in finding.cause
    assert finding.advice.startswith("Call save() on all ranks")


def test_ranks_in_different_groups_may_all_wait_for_one_that_is_in_no_collective() -> None:
    late = rank(2, "train.py:save:80")
    job = snapshot_of(main(), called(0, "all_reduce"), called(1, "broadcast"), late)

    assert found(collective_mismatch.check, job) == []
    finding = only(rank_stuck_in_collective.check, job)
    assert finding.process == pid(302)
    assert "2 ranks wait in all_reduce and broadcast for rank 2 (302)" in finding.summary


def test_evidence_has_the_recorded_collective_of_each_rank() -> None:
    job = snapshot_of(
        main(),
        called(0, "all_reduce", states=[state()]),
        called(1, "broadcast", states=[state(operation="gloo:broadcast", sizes="[[7]]")]),
    )

    finding = only(collective_mismatch.check, job)

    assert (
        "recorded by rank 0 (300): collective 12 of group 0 (default_pg): all_reduce of Float"
        " [[3, 4]], unfinished" in finding.evidence
    )
    assert any("broadcast of Float [[7]]" in each for each in finding.evidence)


@pytest.mark.parametrize(
    ("one", "other", "words", "cause"),
    [
        ({}, {"group": "1"}, "1 in barrier of group 0, 1 in barrier of group 1", "different order"),
        ({}, {"sizes": "[[9]]"}, "barrier of Float [[9]]", "different shape or type"),
        ({}, {"operation": "gloo:reduce"}, "1 in all_reduce, 1 in reduce", "same number of calls"),
    ],
)
def test_equal_calls_are_distinguished_by_what_torch_has_recorded(
    one: dict[str, Any], other: dict[str, Any], words: str, cause: str
) -> None:
    job = snapshot_of(
        main(),
        called(0, "barrier", states=[state(**one)]),
        called(1, "barrier", states=[state(**other)]),
    )

    finding = only(collective_mismatch.check, job)

    assert words in finding.summary
    assert cause in finding.cause


@pytest.mark.parametrize(
    "other",
    [
        state(),
        state(13),
        state(group="another"),
        state(operation="gloo:gather", sizes="[[9]]"),
        state(is_unfinished=False, group="1"),
    ],
)
def test_equal_calls_without_a_certain_difference_are_no_mismatch(other: dict[str, Any]) -> None:
    mine = state(operation=other["operation"])
    job = snapshot_of(
        main(), called(0, "gather", states=[mine]), called(1, "gather", states=[other])
    )

    assert found(collective_mismatch.check, job) == []


def test_evidence_has_the_different_number_of_earlier_calls_of_each_rank() -> None:
    ahead, behind = state(14), state(12, operation="gloo:barrier")
    job = snapshot_of(
        main(), called(0, "all_reduce", states=[ahead]), called(1, "barrier", states=[behind])
    )

    cause = only(collective_mismatch.check, job).cause

    assert "a different number of calls before: rank 0 (300) 13, rank 1 (301) 11" in cause


def test_without_a_record_both_causes_are_possible() -> None:
    job = snapshot_of(main(), called(0, "all_reduce"), called(1, "barrier"))

    cause = only(collective_mismatch.check, job).cause

    assert "depends on the rank or on its data, or the ranks have made a different number" in cause


def test_a_wrapper_is_named_with_its_callers() -> None:
    frames = (f"{C10D}:barrier", "train.py:barrier:15", "train.py:save:40", "data.py:end:18")
    job = snapshot_of(main(), rank(0, *frames), called(1, "all_reduce"))

    assert any(
        "called at train.py:15 barrier <- train.py:40 save <- data.py:18 end" in each
        for each in only(collective_mismatch.check, job).evidence
    )


def test_a_new_group_that_only_its_members_call_is_a_mismatch() -> None:
    making = (f"{C10D}:_store_based_barrier", f"{C10D}:new_group", "train.py:make:18")
    job = snapshot_of(main(), rank(0, *making), rank(1, *making), called(2, "broadcast"))

    finding = only(collective_mismatch.check, job)

    assert finding.process == pid(302)
    assert "2 in new_group, 1 in broadcast" in finding.summary
    assert "rank 2 (302) called another collective instead" in finding.cause
    assert found(rank_stuck_in_collective.check, job) == []


def test_ranks_that_have_made_different_numbers_of_groups_do_not_meet_in_the_next() -> None:
    making = (f"{C10D}:_new_process_group_helper", f"{C10D}:new_group", "train.py:make:18")
    size: dict[str, Any] = {"environment": {"WORLD_SIZE": "2"}}
    job = snapshot_of(main(), rank(0, *making, **size), rank(1, *making, **size))

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.severity is Severity.CRITICAL
    assert finding.summary == "all 2 ranks are in new_group, and do not meet there"
    assert "called by some of the ranks only" in finding.cause


@pytest.mark.parametrize(
    ("peers", "are_told"),
    [((701, 700), True), ((701, None), False), ((None, None), False)],
    ids=["only each other", "one talks to another machine", "unknown"],
)
def test_ranks_without_a_world_size_are_all_if_they_are_connected_only_to_each_other(
    peers: tuple[int | None, int | None], are_told: bool
) -> None:
    """`mp.spawn` with init_process_group(rank=..., world_size=...) sets no environment."""
    making = (f"{C10D}:_new_process_group_helper", f"{C10D}:new_group", "train.py:make:18")
    ranks = [
        rank(number, *making, fds=fds(9, links=[socket(5, 700 + number, peer, ADDRESS)]))
        for number, peer in enumerate(peers)
    ]

    findings = found(rank_stuck_in_collective.check, snapshot_of(main(), *ranks))

    assert [each.summary for each in findings] == [
        "all 2 ranks are in new_group, and do not meet there"
    ] * are_told


def test_the_process_that_has_started_the_other_ranks_is_one_of_them() -> None:
    first = main(
        threads=[
            thread(MAIN, f"{C10D}:all_gather", "train.py:log:30"),
            thread(MAIN + 1, name="gloo_tcp_loop"),
        ]
    )

    finding = only(collective_mismatch.check, snapshot_of(first, called(1, "broadcast")))

    assert "1 in all_gather, 1 in broadcast" in finding.summary
    assert any("main (100) in all_gather" in each for each in finding.evidence)


@pytest.mark.parametrize(("call", "other"), [("send", "recv"), ("recv", "send")])
def test_ranks_that_all_send_or_all_receive_wait_for_ever(call: str, other: str) -> None:
    size: dict[str, Any] = {"environment": {"WORLD_SIZE": "2"}, "still_s": 9.0}
    job = snapshot_of(main(), called(0, call, **size), called(1, call, **size))

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.severity is Severity.CRITICAL
    assert finding.summary == f"all 2 ranks are in {call}, and none of them is in {other}"


@pytest.mark.parametrize(
    ("waited_s", "severity"),
    [(9.0, Severity.INFO), (40.0, Severity.INFO), (130.0, Severity.CRITICAL)],
)
def test_a_rank_that_sleeps_repeatedly_is_reported_later(
    waited_s: float, severity: Severity
) -> None:
    sleeps = rank(0, "train.py:validate:90", still_s=0.0)
    job = snapshot_of(main(), sleeps, called(1, "barrier", still_s=waited_s))

    assert only(rank_stuck_in_collective.check, job).severity is severity


@pytest.mark.parametrize(
    ("header", "waited_s", "severity"),
    [
        ("while True:", 20.0, Severity.INFO),
        ("while True:", 100.0, Severity.CRITICAL),
        ("for step in range(steps):", 20.0, Severity.WARNING),
    ],
    ids=["a server", "for long", "a training"],
)
def test_a_rank_that_waits_for_a_request_may_be_a_server_between_two(
    header: str, waited_s: float, severity: Severity
) -> None:
    takes = rank(0, "threading.py:wait", "queue.py:get", "train.py:lead:78", still_s=waited_s)
    line = SourceLine(
        "/home/me/train.py", 78, "lead", Statement(78, "job = inbox.get()"),
        (Statement(77, header),),
        endless=EndlessLoop(Statement(77, header)) if header == "while True:" else None,
    )  # fmt: skip
    job = snapshot_of(main(), takes, called(1, "broadcast", still_s=waited_s), source=(line,))

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.severity is severity
    assert ("hands it on to the others" in finding.cause) is (header == "while True:")


def test_a_rank_in_one_long_sleep_is_information() -> None:
    asleep = rank(0, "train.py:upload:90")
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=20.0)
    asleep = replace(asleep, threads=(replace(asleep.threads[0], waits_on=sleeps),))

    finding = only(
        rank_stuck_in_collective.check, snapshot_of(main(), asleep, called(1, "barrier"))
    )

    assert finding.severity is Severity.INFO
    assert "rank 0 (300) sleeps at train.py:90 upload and will wake up by itself in 20 s" in (
        finding.cause
    )


@pytest.mark.parametrize(
    ("still_s", "grandchild_still_s", "severity"),
    [(None, 90.0, Severity.INFO), (90.0, None, Severity.INFO), (90.0, 90.0, Severity.CRITICAL)],
)
def test_a_rank_that_waits_for_its_own_process_which_works_is_information(
    still_s: float | None, grandchild_still_s: float | None, severity: Severity
) -> None:
    waits = WaitedOn("child", "wait4", ("pid 500",))
    waiting = rank(0, "train.py:validate:90")
    waiting = replace(waiting, threads=(replace(waiting.threads[0], waits_on=waits),))
    child = process(500, "other", parent=300, label="sh", threads=[thread(500, still_s=still_s)])
    ends = [thread(501, "evaluate.py:main:7", still_s=grandchild_still_s)]
    grandchild = process(501, "other", parent=500, label="python", threads=ends)

    job = snapshot_of(main(), waiting, called(1, "barrier"), child, grandchild)
    finding = only(rank_stuck_in_collective.check, job)

    assert finding.severity is severity
    assert "which waits for the exit of 500 at train.py:90 validate" in finding.summary
    assert ("sh (500), a process that it has started and that still works" in finding.cause) is (
        severity is Severity.INFO
    )


def test_a_rank_that_fills_an_output_which_its_launcher_does_not_read_is_reported_with_both() -> (
    None
):
    def finding(fd: int) -> Finding:
        writes = WaitedOn("pipe-write", "write", targets=("pipe:[71]",), fds=(fd,))
        blocked = rank(
            0,
            "logging/__init__.py:emit",
            "train.py:main:58",
            fds=fds(3, links=[pipe(fd, 71, is_writable=True)]),
        )
        blocked = replace(blocked, threads=(replace(blocked.threads[0], waits_on=writes),))
        launcher = main(
            threads=[thread(MAIN, "data.py:wait:43")],
            fds=fds(4, links=[pipe(9, 71, is_writable=False)]),
        )
        return only(
            rank_stuck_in_collective.check,
            snapshot_of(launcher, blocked, called(1, "all_reduce", still_s=60.0)),
        )

    to_error, elsewhere = finding(2), finding(12)

    assert "rank 0 (300) is blocked writing to its standard error at train.py:58 main" in (
        to_error.cause
    )
    assert "which main (100) has to read and does not, at data.py:43 wait" in to_error.cause
    assert "communicate()" in to_error.advice
    assert "standard error" not in elsewhere.cause


def test_a_rank_that_has_left_the_loop_in_which_another_one_waits_is_reported_as_that() -> None:
    """Above `main`, which calls both, the stacks are the same."""
    inside = ("train.py:step:34", "train.py:fit:45", "train.py:main:77", "train.py:<module>:85")
    waits = rank(0, BACKWARD, *inside)
    left = rank(1, "train.py:save:57", "train.py:main:78", "train.py:<module>:85")
    before = rank(1, "train.py:load:20", "train.py:main:70", "train.py:<module>:85")
    same = rank(1, "train.py:log:57", "train.py:fit:48", "train.py:main:77", "train.py:<module>:85")

    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), waits, left))

    assert "rank 1 (301) is past fit(), in which rank 0 (300) still is (train.py:45 fit)" in (
        finding.cause
    )
    assert "has made no progress for 60 s at train.py:57 save" in finding.cause
    assert "Let all ranks leave fit() in the same pass" in finding.advice
    for late in (before, same):
        other = only(rank_stuck_in_collective.check, snapshot_of(main(), waits, late))
        assert "past fit()" not in other.cause
    works = replace(left, threads=(replace(left.threads[0], still_s=0.0), *left.threads[1:]))
    busy = only(rank_stuck_in_collective.check, snapshot_of(main(), waits, works), cpu(w301=90.0))
    assert "is past" not in busy.cause


SAVES = Guarded(
    Statement(42, "if trainer.is_global_zero:"), Statement(43, "trainer.save(final)"), "save"
)
BARRIER = Mark(
    "collective", "/home/me/train.py", "save", "barrier", Statement(58, "dist.barrier()")
)


@pytest.mark.parametrize(
    ("guarded", "mark", "is_named"),
    [
        pytest.param(SAVES, BARRIER, True, id="a collective under the condition"),
        pytest.param(SAVES, BARRIER._replace(function="log"), False, id="no collective in it"),
        pytest.param(
            SAVES._replace(condition=Statement(42, "if args.firsthand:")),
            BARRIER,
            False,
            id="no condition on the rank",
        ),
    ],
)
def test_a_collective_that_only_some_ranks_have_entered_before_is_why_they_are_apart(
    guarded: Guarded, mark: Mark, is_named: bool
) -> None:
    waits = rank(0, f"{C10D}:barrier", "train.py:fit:45", "train.py:main:77")
    left = rank(1, "train.py:wrap:57", "train.py:main:78")
    at = line("train.py", 45, "fit", "dist.barrier()", guarded=(guarded,))

    finding = only(
        rank_stuck_in_collective.check,
        snapshot_of(main(), waits, left, source=(at,), marks=(mark,)),
    )

    words = (
        "Most likely they are one collective apart: `trainer.save(final)` at train.py:43 fit is "
        "under `if trainer.is_global_zero:` of line 42, and save() enters barrier "
        "(`dist.barrier()` at train.py:58 save)"
    )
    assert (words in finding.cause) is is_named
    assert ("by a decision of its own" in finding.cause) is not is_named
    assert ("move `trainer.save(final)` at train.py:43 fit out of it" in finding.advice) is is_named


def test_ranks_in_different_collectives_after_one_that_only_some_have_entered() -> None:
    waits = rank(0, f"{C10D}:barrier", "train.py:fit:45", "train.py:main:77")
    others = [rank(n, f"{C10D}:all_reduce", "train.py:wrap:57", "train.py:main:78") for n in (1, 2)]
    at = line("train.py", 45, "fit", "dist.barrier()", guarded=(SAVES,))

    finding = only(
        collective_mismatch.check,
        snapshot_of(main(), waits, *others, source=(at,), marks=(BARRIER,)),
    )

    assert "one collective apart: `trainer.save(final)` at train.py:43 fit is under" in (
        finding.cause
    )
    assert "move `trainer.save(final)` at train.py:43 fit out of it" in finding.advice


SLEEPS = WaitedOn("timer", "clock_nanosleep")


@pytest.mark.parametrize("function", ["__exit__", "__enter__"])
def test_ranks_that_wait_at_a_block_in_which_one_works_are_as_the_program_means_it(
    function: str,
) -> None:
    block = ("train.py:first:26", f"contextlib.py:{function}", "train.py:fit:72")
    waits = [rank(n, f"{C10D}:barrier", *block) for n in (1, 2)]
    works = rank(0, "train.py:score:50", "train.py:fit:75")
    asleep = replace(works, threads=(replace(works.threads[0], waits_on=SLEEPS), works.threads[1]))
    loop = line("train.py", 50, "score", "sleep(1)", within=(Statement(44, "for d in docs:"),))
    source = (loop, line("train.py", 72, "fit", "with first(rank):"))

    job = snapshot_of(main(), asleep, *waits, source=source)
    finding = only(rank_stuck_in_collective.check, job)
    stuck = only(rank_stuck_in_collective.check, snapshot_of(main(), works, *waits, source=source))

    assert finding.severity is Severity.INFO
    assert "rank 0 (300) is in the block of `with first(rank):` (train.py:72 fit)" in finding.cause
    assert "past first()" not in finding.cause
    assert stuck.severity is Severity.CRITICAL
    assert "rank 0 (300) has made no progress for 60 s at train.py:50 score" in stuck.cause


def test_ranks_that_wait_where_a_condition_on_the_rank_sends_them_have_not_been_left() -> None:
    waits = rank(1, f"{C10D}:barrier", "train.py:meet:26", "train.py:fit:72")
    works = rank(0, "train.py:score:50", "train.py:fit:75")
    source = (
        line("train.py", 72, "fit", "meet()", within=(Statement(71, "if rank > 0:"),)),
        line("train.py", 75, "fit", "score()", within=(Statement(71, "else of if rank > 0:"),)),
    )

    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), works, waits, source=source))

    assert "past meet()" not in finding.cause


def test_a_rank_in_the_backward_pass_is_there_also_where_it_has_just_woken_up() -> None:
    ranks = backward(0), backward(2, still_s=0.5), called(1, "broadcast")

    assert found(rank_stuck_in_collective.check, snapshot_of(main(), *ranks)) == []


@pytest.mark.parametrize(
    "gauge",
    [
        None,
        {"error": "no recorder"},
        {"states": 7, "groups": 8},
        {"states": [7, {"number": "12"}, {"number": 1, "group": 2}, {"number": True}]},
    ],
)
def test_a_gauge_of_another_form_is_no_record(gauge: Any) -> None:
    assert recorded(rank(0, more={"gauges": {"collectives": gauge}})) == ()


def test_ranks_of_one_job_that_are_all_in_one_collective_and_do_not_move() -> None:
    size: dict[str, Any] = {"environment": {"WORLD_SIZE": "2"}}
    job = snapshot_of(main(), called(0, "barrier", 40, **size), called(1, "barrier", 77, **size))

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.summary == "all 2 ranks are in barrier, and none of them makes progress"
    assert "called at train.py:40 step and train.py:77 step" in finding.evidence
    assert "at different lines" in finding.cause
    assert finding.severity is Severity.WARNING


def test_ranks_that_have_not_moved_in_one_collective_for_minutes_are_critical() -> None:
    more: dict[str, Any] = {"environment": {"WORLD_SIZE": "2"}, "still_s": 150.0}
    job = snapshot_of(main(), called(0, "barrier", **more), called(1, "barrier", **more))

    assert only(rank_stuck_in_collective.check, job).severity is Severity.CRITICAL


def test_ranks_that_are_recorded_in_different_groups_can_never_meet() -> None:
    size: dict[str, Any] = {"environment": {"WORLD_SIZE": "2"}}
    records = [state(4, id=group, group=group) for group in ("0", "1")]
    job = snapshot_of(
        main(),
        *(called(n, "all_reduce", 40 + n, states=[records[n]], **size) for n in range(2)),
    )

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.severity is Severity.CRITICAL
    assert finding.summary == (
        "all 2 ranks are in all_reduce, in different process groups, and none of them makes "
        "progress"
    )
    assert "rank 0 (300) waits in group 0 at train.py:40 step" in finding.cause


@pytest.mark.parametrize("size", ["3", ""])
def test_all_ranks_seen_may_wait_for_those_of_another_machine(size: str) -> None:
    where: dict[str, Any] = {"environment": {"WORLD_SIZE": size}}
    job = snapshot_of(main(), called(0, "barrier", **where), called(1, "barrier", **where))

    assert found(rank_stuck_in_collective.check, job) == []


BUSY = cpu(w300=90.0)


def with_stack_of(age_s: float, of: Process) -> Process:
    return replace(of, threads=tuple(replace(each, stack_age_s=age_s) for each in of.threads))


def test_a_stack_from_before_a_rank_stalled_does_not_say_where_it_is() -> None:
    inside = [called(each, "all_reduce", still_s=12.0) for each in range(2)]
    one, other = (rank(each, "train.py:forward:34", still_s=12.0) for each in (2, 3))
    before = with_stack_of(20.0, one)

    assert found(rank_stuck_in_collective.check, snapshot_of(main(), *inside, before)) == []
    for own in (with_stack_of(12.0, other), with_stack_of(20.0, replaced_state(other, "D"))):
        job = snapshot_of(main(), *inside, before, own)
        summary = only(rank_stuck_in_collective.check, job).summary
        assert summary == (
            "2 ranks wait in all_reduce for rank 3 (303), which is at train.py:34 forward"
        )


def test_a_rank_of_which_no_new_stack_can_be_taken_is_named_after_a_while() -> None:
    inside = [called(each, "all_reduce", still_s=40.0) for each in range(2)]
    late = with_stack_of(60.0, rank(2, "train.py:forward:34", still_s=40.0))

    only(rank_stuck_in_collective.check, snapshot_of(main(), *inside, late))


LOCK = WaitedOn("futex", "futex", ("futex 0x7f",), futex_command=9)


def waiters(count: int, *moved: int) -> list[Process]:
    """Ranks in a collective, some of which have just moved."""
    return [
        called(number, "all_reduce", still_s=0.5 if number in moved else 60.0)
        for number in range(count)
    ]


def test_one_of_twenty_ranks_that_wait_may_have_woken_up() -> None:
    late = rank(60, "train.py:save:91")

    one = only(rank_stuck_in_collective.check, snapshot_of(main(), *waiters(20, 7), late))

    assert one.process == pid(360)
    assert "for at least 60 s" in one.evidence[0]
    for inside in (waiters(20, 7, 8), waiters(19, 7)):
        assert found(rank_stuck_in_collective.check, snapshot_of(main(), *inside, late)) == []


def test_all_ranks_in_one_collective_are_judged_by_each_of_them() -> None:
    ranks = [replace_environment(each, WORLD_SIZE="20") for each in waiters(20, 7)]

    assert found(rank_stuck_in_collective.check, snapshot_of(main(), *ranks)) == []


def test_a_rank_that_has_woken_up_in_its_wait_is_not_where_its_old_stack_says() -> None:
    waits = with_stack_of(20.0, rank(2, "train.py:forward:34", still_s=0.5))
    main_waits = replace(waits.threads[0], waits_on=LOCK)
    woken = replace(waits, threads=(main_waits, *waits.threads[1:]))
    late = rank(3, "train.py:save:91")
    inside = waiters(2)

    assert found(rank_stuck_in_collective.check, snapshot_of(main(), *inside, woken)) == []
    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), *inside, woken, late))
    assert finding.summary.endswith("for rank 3 (303), which is at train.py:91 save")
    # One that sleeps there, or works, is what the others wait for.
    for own in (waits, replace(woken, threads=(replace(main_waits, state="R"),))):
        job = snapshot_of(main(), *inside, own)
        assert only(rank_stuck_in_collective.check, job).process == pid(302)


def replace_environment(of: Process, **environment: str) -> Process:
    return replace(of, sample=replace(of.sample, environment=environment))


def replaced_state(of: Process, state: str) -> Process:
    return replace(of, sample=replace(of.sample, state=state))


def test_a_rank_that_works_while_others_wait_is_information() -> None:
    works = rank(0, "train.py:validate:90", still_s=0.0)

    finding = only(
        rank_stuck_in_collective.check, snapshot_of(main(), works, called(1, "barrier")), BUSY
    )

    assert finding.severity is Severity.INFO
    assert "rank 0 (300) is still working at train.py:90 validate" in finding.cause


def test_a_rank_that_stays_in_a_generator_without_an_end_is_reported_with_its_yield() -> None:
    loop = EndlessLoop(
        Statement(31, "while True:"),
        gives=Statement(35, "yield pf.read(group)"),
        given_in=Statement(34, "for group in range(rank, pf.groups, ranks):"),
    )
    works = rank(0, "data.py:__init__:12", "train.py:batches:33", still_s=0.0)
    source = SourceLine(
        "/home/me/train.py", 33, "batches", Statement(33, "pf = File(path)"), endless=loop
    )
    job = snapshot_of(main(), works, called(1, "barrier"), source=(source,))
    job = with_shares(job, p300={Activity("computing"): 1.0})
    account = job.account.processes[pid(300)]

    def after(*frames: Frame) -> Finding:
        callers = (Callers(job.at_s - 40, job.at_s - 1, frames, 12, 0),)
        own = account.uncounted[0]._replace(callers=callers)
        processes = {**job.account.processes, pid(300): replace(account, uncounted=(own,))}
        seen = replace(job, account=replace(job.account, processes=processes))
        return only(rank_stuck_in_collective.check, seen, BUSY)

    batches, init = Frame("batches", "/home/me/train.py", 33), Frame("__init__", "/home/me/a.py", 0)
    inside, outside = after(Frame("main", "/home/me/train.py", 3), batches, init), after(init)

    words = "inside of the loop `while True:` of line 31 in batches(): it gives a value only at"
    assert words in inside.cause
    assert "in `for group in range(rank, pf.groups, ranks):` of line 34. If that is" in inside.cause
    assert inside.advice.startswith("Compare what the ranks get to iterate over")
    assert "while True" not in outside.cause


SEARCH = "/home/me/data.py"
TRAIN = "/home/me/train.py"
PENDING = Statement(42, "while pending and len(beam) < self.size:")
OF_FRAMES, OF_ITEMS = Statement(35, "for t in range(n):"), Statement(61, "for i in range(items):")
AT_PENDING = SourceLine(
    SEARCH,
    44,
    "advance",
    Statement(44, "best = max(pending)"),
    within=(PENDING,),
    deciders=(Decider(PENDING, 57, ("pending", "self.size")),),
    until=EndlessLoop(PENDING, ends=(Statement(46, "if is_good(best): break"),)),
)
AT_FRAMES = SourceLine(
    SEARCH,
    36,
    "decode",
    Statement(36, "beam = self.advance(beam)"),
    within=(OF_FRAMES,),
    deciders=(Decider(OF_FRAMES, 36, ("n",), ("t",)),),
)
AT_ITEMS = SourceLine(
    TRAIN,
    62,
    "validate",
    Statement(62, "found = self.search(i)"),
    within=(OF_ITEMS,),
    deciders=(Decider(OF_ITEMS, 63, ("items",), ("i",)),),
)
AFTER = SourceLine(TRAIN, 64, "validate", Statement(64, "dist.all_reduce(errors)"))


def frame_of(source: SourceLine) -> Frame:
    return Frame(source.function, source.file, source.line)


def values(at_s: float, t: int, i: int = 3, pending: int | None = None) -> ValuesRead:
    """What was read of a rank that searches: its counters, and the length of a container."""
    frames = [
        FrameValues(301, SEARCH, "decode", 36, (NameValue("t", "int", t),)),
        FrameValues(301, TRAIN, "validate", 62, (NameValue("i", "int", i),)),
    ]
    if pending is not None:
        known = (NameValue("pending", "list", length=pending), NameValue("self.size", "int", 4))
        frames.append(FrameValues(301, SEARCH, "advance", 44, known))
    return ValuesRead(pid(301), at_s, "hook", tuple(frames))


def searching(
    *read: ValuesRead,
    source: tuple[SourceLine, ...] = (AT_PENDING, AT_FRAMES, AT_ITEMS, AFTER),
    for_s: float = 40.0,
    still_s: float = 60.0,
    beside: str = "train.py:validate:64",
) -> Snapshot:
    """One rank in a loop with a condition for long, and one that waits behind it for the other."""
    stack = ("data.py:score:14", "data.py:advance:44", "data.py:decode:36")
    works = rank(1, *stack, "train.py:validate:62", still_s=0.0)
    waits = rank(0, f"{C10D}:all_reduce", beside, still_s=still_s)
    job = snapshot_of(main(), waits, works, source=source, values=read)
    computes = Activity("computing", place="data.py:44 advance")
    job = with_shares(job, p300={IN_ALL_REDUCE: 0.95, computes: 0.05}, p301={computes: 1.0})
    account = job.account.processes[pid(301)]
    frames = (frame_of(AT_ITEMS), frame_of(AT_FRAMES), Frame("advance", SEARCH, 0))
    before = Callers(job.at_s - 70, job.at_s - 41, (Frame("train", TRAIN, 0),), 20, 0)
    callers = (before, Callers(job.at_s - for_s, job.at_s - 1, frames, 12, 0))
    own = account.uncounted[0]._replace(callers=callers)
    processes = {**job.account.processes, pid(301): replace(account, uncounted=(own,))}
    return replace(job, account=replace(job.account, processes=processes))


def busy_search(snapshot: Snapshot) -> Finding:
    return only(rank_stuck_in_collective.check, snapshot, cpu(w301=100.0))


def test_a_rank_that_does_not_leave_a_loop_with_a_condition_is_reported_with_it() -> None:
    at_s = NOW_S
    finding = busy_search(searching(*(values(at_s - n, 33) for n in (30.0, 20.0, 10.0))))

    assert "which was inside of the loop `while pending and len(beam) < self.size:`" in (
        finding.summary
    )
    assert "(data.py:42 advance) in each of its stacks for 40 s" in finding.summary
    assert "it ends when that condition is not true any more, or by `if is_good(best): break`" in (
        finding.cause
    )
    assert "i is 3 (train.py:62 validate) and t is 33 (data.py:36 decode)" in finding.cause
    assert "Most likely the loop does not end" in finding.cause
    assert "same number of steps" not in finding.advice
    assert "A longer timeout only helps if the loop ends" in finding.advice
    assert finding.severity is Severity.INFO


def test_a_loop_that_one_call_does_not_leave_for_minutes_is_critical() -> None:
    read = [values(NOW_S - n, 33) for n in (30.0, 20.0, 10.0)]

    assert busy_search(searching(*read, still_s=130.0)).severity is Severity.CRITICAL
    assert busy_search(searching(still_s=130.0)).severity is Severity.INFO


def test_the_values_that_decide_a_loop_are_told_and_one_that_only_grows_shows_one_call() -> None:
    lengths = enumerate((100, 400, 700, 1200))
    read = [values(NOW_S - 30 + 8 * n, 33, pending=length) for n, length in lengths]
    items = replace(AT_ITEMS, deciders=(), within=(Statement(61, "for x in loader:"),))
    source = (AT_PENDING, replace(AT_FRAMES, deciders=()), items, AFTER)

    finding = busy_search(searching(*read, source=source))

    assert "pending is a list of 1200 (a list of 100 24 s before), self.size is 4" in finding.cause
    assert "pending has become longer at each of 4 readings, from 100 to 1,200" in finding.cause


def test_a_rank_that_goes_from_call_to_call_is_still_working() -> None:
    plain = "rank 1 (301) is still working at data.py:14 score"

    moves = busy_search(searching(*(values(NOW_S - n, 33 - int(n)) for n in (30.0, 20.0, 10.0))))
    items = busy_search(searching(values(NOW_S - 30, 33, 3), values(NOW_S - 20, 33, 4)))
    short = busy_search(searching(for_s=10.0))

    for finding in (moves, items, short):
        assert plain in finding.cause
        assert "same number of steps" in finding.advice


def test_a_rank_that_does_not_leave_a_loop_is_not_late_in_each_step() -> None:
    same = searching(*(values(NOW_S - n, 33) for n in (30.0, 20.0, 10.0)), still_s=5.0)
    moves = searching(*(values(NOW_S - n, int(n)) for n in (30.0, 20.0, 10.0)), still_s=5.0)

    assert found(straggler_worker.check, same, cpu(w301=100.0)) == []
    assert len(found(straggler_worker.check, moves, cpu(w301=100.0))) == 1


def test_a_loop_that_comes_closer_to_its_end_is_still_working() -> None:
    counted = Decider(PENDING, 57, ("self.size",), ("self.size",))
    source = (replace(AT_PENDING, deciders=(counted,)), AT_FRAMES, AT_ITEMS, AFTER)
    lengths = enumerate((1200, 700, 400))
    falls = [values(NOW_S - 30 + 8 * n, 33, pending=length) for n, length in lengths]
    first, last = values(NOW_S - 30, 33, pending=9), values(NOW_S - 20, 33, pending=9)
    size = last.frames[2]._replace(values=(NameValue("self.size", "int", 9),))
    last = replace(last, frames=(*last.frames[:2], size))

    assert "is still working" in busy_search(searching(*falls)).cause
    assert "is still working" in busy_search(searching(first, last, source=source)).cause


def test_where_stacks_do_not_show_whether_it_is_one_call_both_are_told() -> None:
    finding = busy_search(searching())

    assert "each of its stacks was inside of the loop" in finding.cause
    assert "do not show whether that is one call or many" in finding.cause
    assert "Most likely" not in finding.cause
    assert "shows the same counters around that call" in finding.advice
    assert "set a timeout of the process group that is longer" in finding.advice


def test_a_call_that_nothing_repeats_is_one_call() -> None:
    source = (AT_PENDING, replace(AT_FRAMES, within=()), replace(AT_ITEMS, within=()), AFTER)

    one = busy_search(searching(source=source)).cause
    several = replace(source[2], statement=Statement(62, "found = [self.search(i) for i in ids]"))
    many = busy_search(searching(source=(*source[:2], several, AFTER))).cause

    assert "Nothing around that call repeats it" in one
    assert "do not show whether" in many


def test_a_loop_around_both_ranks_does_not_repeat_a_call_for_one_of_them() -> None:
    epochs = Statement(50, "for epoch in epochs:")
    source = (
        AT_PENDING,
        replace(AT_FRAMES, within=()),
        replace(AT_ITEMS, within=(epochs,)),
        replace(AFTER, within=(epochs,)),
    )

    assert "Nothing around that call repeats it" in busy_search(searching(source=source)).cause


def test_a_loop_that_the_others_are_in_as_well_is_not_what_one_rank_does_not_leave() -> None:
    finding = busy_search(searching(beside="data.py:advance:50"))

    assert "inside of the loop" not in finding.summary + finding.cause


def drawing(text: str, for_s: float = 40.0, still_s: float = 60.0) -> Snapshot:
    """One rank at one line of a loop without an end, and one that waits for it."""
    loop = EndlessLoop(Statement(42, "while True:"), (Statement(45, "if fits(item): return item"),))
    line = SourceLine(SEARCH, 44, "draw", Statement(44, text), (loop.header,), endless=loop)
    works = rank(1, "data.py:draw:44", "train.py:train:62", still_s=0.0)
    waits = rank(0, f"{C10D}:all_reduce", "train.py:train:64", still_s=still_s)
    job = snapshot_of(main(), waits, works, source=(line,))
    job = with_shares(job, p301={Activity("computing", place="data.py:44 draw"): 1.0})
    account = job.account.processes[pid(301)]
    frames = (Frame("train", TRAIN, 62), Frame("draw", SEARCH, 44))
    callers = (Callers(job.at_s - for_s, job.at_s - 1, frames, 12, 0),)
    own = account.uncounted[0]._replace(callers=callers)
    processes = {**job.account.processes, pid(301): replace(account, uncounted=(own,))}
    return replace(job, account=replace(job.account, processes=processes))


RANDOM = "item = rng.integers(count)"


def test_a_rank_that_draws_again_and_again_is_reported_with_what_would_end_that() -> None:
    finding = busy_search(drawing(RANDOM, still_s=40.0))

    assert finding.severity is Severity.WARNING
    assert finding.says_why
    assert "has not left the loop `while True:` (data.py:42 draw) for 40 s" in finding.summary
    assert "It ends only by `if fits(item): return item` (line 45)" in finding.cause
    assert "nothing may be left to draw" in finding.advice


@pytest.mark.parametrize(
    "job",
    [drawing("item = solve(matrix)"), drawing(RANDOM, for_s=6.0)],
    ids=["one long call perhaps", "not for long"],
)
def test_a_rank_whose_rounds_are_not_seen_is_only_at_work(job: Snapshot) -> None:
    finding = busy_search(job)

    assert finding.severity is Severity.INFO
    assert "has not left" not in finding.summary


def test_a_rank_that_may_draw_for_ever_is_told_by_its_line_alone() -> None:
    finding = busy_search(drawing(RANDOM, for_s=6.0))

    assert finding.says_why
    assert "draws at random: it ends only by `if fits(item): return item`" in finding.cause
    assert "nothing may be left to draw" in finding.advice


def test_the_others_wait_for_a_draw_no_longer_than_before_is_information() -> None:
    assert busy_search(drawing(RANDOM, still_s=9.0)).severity is Severity.INFO


def test_the_endless_loop_of_a_worker_that_keeps_its_rank_waiting_is_reported() -> None:
    loop = EndlessLoop(
        Statement(77, "for _ in epochs:"),
        gives=Statement(79, "yield sample"),
        given_in=Statement(78, "for sample in run():"),
    )
    source = SourceLine(
        "/home/me/train.py", 77, "rows", Statement(77, "for _ in epochs:"), endless=loop
    )
    loads = rank(1, "torch/utils/data/dataloader.py:_try_get_data", "train.py:a:1")
    worker = process(
        400, "loader-worker", parent=301, threads=[thread(400, "train.py:rows:77", state="R")]
    )
    job = snapshot_of(main(), called(0, "all_reduce"), loads, worker, source=(source,))
    job = with_shares(job, p400={Activity("computing"): 1.0})
    account = job.account.processes[pid(400)]
    callers = Callers(job.at_s - 40, job.at_s - 1, (Frame("rows", "/home/me/train.py", 0),), 12, 0)
    own = account.uncounted[0]._replace(callers=(callers,))
    processes = {**job.account.processes, pid(400): replace(account, uncounted=(own,))}
    seen = replace(job, account=replace(job.account, processes=processes))

    cause = only(rank_stuck_in_collective.check, seen).cause

    assert "whose loader-worker 400 (400) was inside of the loop" in cause
    assert "inside of the loop `for _ in epochs:` of line 77 in rows()" in cause
    assert "what that iterates over is empty in" in cause


@pytest.mark.parametrize(("elsewhere", "is_told"), [(0.1, True), (0.34, False)])
def test_ranks_that_were_found_at_other_waits_meanwhile_take_steps(
    elsewhere: float, is_told: bool
) -> None:
    """A step of theirs takes milliseconds, and the one that they wait for takes seconds."""
    works = rank(0, "train.py:label:24", still_s=0.0)
    job = snapshot_of(main(), works, called(1, "broadcast"), called(2, "broadcast"))
    doing = {IN_ALL_REDUCE: 1 - elsewhere, IN_A_CONDITION: elsewhere}

    told = found(rank_stuck_in_collective.check, with_shares(job, p301=doing, p302=doing))

    assert bool(told) is is_told


def test_a_rank_that_works_for_longer_than_a_timeout_is_a_warning() -> None:
    works = rank(0, "train.py:validate:90", still_s=0.0)
    job = snapshot_of(main(), works, called(1, "barrier", still_s=400.0))

    assert only(rank_stuck_in_collective.check, job, BUSY).severity is Severity.CRITICAL


STORE_WAIT = WaitedOn("socket-read", "recvfrom", ("socket:[41]",), (9,))


def at_the_store(number: int, **fields: Any) -> Process:
    """A rank that waits for a key in the store of the ranks."""
    waits = thread(300 + number, "train.py:wait_for_peers:49", waits=STORE_WAIT, still_s=20.0)
    links = [socket(9, 41, None, ADDRESS)]
    store = {"MASTER_PORT": "29500", "WORLD_SIZE": "2"}
    made = rank(number, environment=store, fds=fds(9, links=links), **fields)
    return with_threads(made, [waits, *made.threads[1:]])


@pytest.mark.parametrize(("size", "severity"), [("2", Severity.CRITICAL), ("3", Severity.WARNING)])
def test_ranks_that_wait_for_each_other_at_two_places_are_critical_as_soon_as_it_is_certain(
    size: str, severity: Severity
) -> None:
    inside = called(0, "all_reduce", still_s=20.0, environment={"WORLD_SIZE": size})

    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), inside, at_the_store(1)))

    assert "waits for a key in the ranks' store at train.py:49" in finding.summary
    assert finding.severity is severity


def test_the_condition_that_only_the_late_rank_has_met_is_named() -> None:
    """Both are in one function; the others are under the loop, the late one under an if as well."""
    loop = Statement(65, "for x, y in loader:")
    condition = Statement(67, "if not is_finite(x):")
    lines = (
        SourceLine("/home/me/train.py", 69, "epoch", Statement(69, "take(x)"), (loop, condition)),
        SourceLine("/home/me/train.py", 73, "epoch", Statement(73, "all_reduce(x)"), (loop,)),
    )
    late = at_the_store(1)
    waits = thread(
        late.pid, "train.py:wait_for_peers:49", "train.py:epoch:69", waits=STORE_WAIT, still_s=20.0
    )
    late = with_threads(late, [waits, *late.threads[1:]])
    inside = called(0, "all_reduce", still_s=20.0, environment={"WORLD_SIZE": "2"})
    first = inside.threads[0]
    stack = (*first.stack[:1], *thread(1, "train.py:epoch:73").stack)
    inside = with_threads(inside, [replace(first, stack=stack), *inside.threads[1:]])

    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), inside, late, source=lines))

    branch = "`if not is_finite(x):` of line 67 in epoch()"
    assert f"Only rank 1 (301) is inside of {branch}." in finding.cause
    assert finding.advice.startswith(f"Let all ranks decide alike at {branch}")


def test_a_rank_that_is_silent_elsewhere_is_a_warning_until_a_minute_has_passed() -> None:
    size = {"WORLD_SIZE": "2"}
    inside = called(0, "all_reduce", still_s=20.0, environment=size)
    late = rank(1, "train.py:evaluate:9", still_s=20.0, environment=size)

    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), inside, late))

    assert finding.severity is Severity.WARNING


def test_the_reason_is_what_was_seen_of_the_late_rank() -> None:
    def cause(late: Process) -> str:
        job = snapshot_of(main(), called(0, "all_reduce"), late)
        return only(rank_stuck_in_collective.check, job).cause

    assert "rank 1 (301) is stopped by a signal" in cause(rank(1, "train.py:a:1", state="T"))
    loads = rank(1, "torch/utils/data/dataloader.py:_try_get_data", "train.py:a:1")
    assert "rank 1 (301) waits for a batch of its DataLoader" in cause(loads)
    stands = cause(rank(1, "train.py:save:9"))
    assert "rank 1 (301) has made no progress for 60 s at train.py:9 save" in stands
    assert "wakes up now and then" in cause(rank(1, "train.py:poll:9", still_s=0.0))
    assert "has ended with status 0" in cause(rank(1, ended=exited(301, exit_code=0)))
    assert "SIGKILL" in cause(rank(1, ended=exited(301, signal=9)))


NO_PIPES = fds(3, links=[])


def test_a_dead_end_of_the_late_rank_or_of_its_worker_is_the_cause() -> None:
    reads = WaitedOn("pipe-read", "read", ("pipe:[77]",), (4,))
    both_ends = fds(9, links=[pipe(4, 77, False), pipe(5, 77, True), pipe(6, 500, True)])
    alone = thread(400, "data.py:read:30", waits=reads, still_s=60.0)
    worker = process(400, threads=[alone], fds=both_ends, segments=(), parent=301)
    polls = WaitedOn("poll", "poll", ("pipe:[500]",), timeout_s=5.0)
    loads = thread(
        301,
        "torch/utils/data/dataloader.py:_try_get_data",
        "train.py:a:1",
        waits=polls,
        still_s=60.0,
    )
    late = process(
        301,
        "rank",
        label="rank 1",
        rank=1,
        threads=[loads, thread(351, name="gloo_tcp_loop")],
        fds=fds(9, links=[pipe(6, 500, False)]),
        segments=(),
    )

    root = main(fds=NO_PIPES, segments=())
    other = called(0, "all_reduce", fds=NO_PIPES, segments=())
    waits = only(rank_stuck_in_collective.check, snapshot_of(root, other, late, worker))

    assert waits.effect_of == "standing-still"
    assert "rank 1 (301) cannot go on: rank 1 waits for a batch" in waits.cause
    assert "data.py:30 read. No other process has the writing end" in waits.cause
    without = snapshot_of(root, other, late)
    assert only(rank_stuck_in_collective.check, without).effect_of is None


@pytest.mark.parametrize(
    ("label", "ended_s", "older_ticks", "is_awaited"),
    [
        ("rank 1", 70.0, 0, False),
        ("rank 7", 70.0, 0, False),
        ("rank 1", 3.0, 9, False),
        ("rank 7", 3.0, 900, True),
        ("rank 7", 59.0, 900, False),
        ("rank 7", 59.0, 9, True),
    ],
    ids=["both", "it had ended", "in its place", "neither", "noticed late", "of one attempt"],
)
def test_a_rank_of_an_attempt_before_is_not_waited_for(
    label: str, ended_s: float, older_ticks: int, is_awaited: bool
) -> None:
    """The living ranks were started a minute ago."""
    living = [called(n, "all_reduce", born_wall_s=WALL_S - 60) for n in (0, 1)]
    first = living[0].process.start_ticks
    old = ProcessId(290, first - older_ticks)
    killed = rank(-10, f"{C10D}:all_reduce", ended=exited(290, at_s=NOW_S - ended_s, signal=9))
    sample = replace(killed.sample, process=old)
    before = replace(killed, label=label, process=old, sample=sample)
    job = snapshot_of(main(), *living, before)

    findings = found(rank_stuck_in_collective.check, job)

    assert any("290" in each.summary for each in findings) is is_awaited


ALONE = Mark(
    "resumes-alone", "/home/me/saves.py", "resume", "45",
    Statement(49, "state.load_state_dict(torch.load(path))"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("marks", "loops", "is_told"),
    [
        ((ALONE,), (55, 55), True),
        ((ALONE, ALONE._replace(file="/home/me/other.py")), (55, 55), False),
        ((ALONE,), (55, 70), False),
    ],
    ids=["one", "two", "in two loops"],
)
def test_ranks_that_may_have_resumed_states_of_their_own_are_told_so(
    marks: tuple[Mark, ...], loops: tuple[int, int], is_told: bool
) -> None:
    ranks = [
        rank(0, f"{C10D}:all_gather", "train.py:evaluate:75", "train.py:fit:67"),
        rank(1, "torch/autograd/graph.py:_engine_run_backward", "train.py:fit:59"),
    ]
    headers = [Statement(each, "while state.batch < self.last:") for each in loops]
    source = (
        line("train.py", 67, "fit", "self.evaluate()", within=(headers[0],)),
        line("train.py", 59, "fit", "loss.backward()", within=(headers[1],)),
    )

    finding = only(collective_mismatch.check, snapshot_of(*ranks, source=source, marks=marks))

    assert ("at saves.py:49 resume loads on each rank" in finding.cause) is is_told
    assert ("load the newest that all of them have" in finding.advice) is is_told


RESTORED = Mark(
    "restores-start", "/home/me/train.py", "resume", "82, run, self.first",
    Statement(49, "self.first = epoch + 1"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("header", "killed_s", "first", "is_told"),
    [
        (82, 70.0, None, True),
        (82, None, None, True),
        (81, 70.0, None, False),
        (82, 70.0, 3, False),
    ],
    ids=["started again", "not seen to be", "another loop", "the same start"],
)
def test_ranks_that_were_started_again_have_most_likely_gone_on_from_different_rounds(
    header: int, killed_s: float | None, first: int | None, is_told: bool
) -> None:
    """The living ranks were started a minute ago."""
    stacks = (("all_gather", "validate", 86), ("all_reduce", "epoch", 83))
    living = [
        rank(
            n,
            f"{C10D}:{call}",
            f"train.py:{name}:60",
            f"train.py:run:{at}",
            born_wall_s=WALL_S - 60,
        )
        for n, (call, name, at) in enumerate(stacks)
    ]
    ended = exited(290, at_s=NOW_S - killed_s, signal=9) if killed_s is not None else None
    before = [rank(-10, f"{C10D}:all_reduce", ended=ended)] if ended is not None else []
    loop = (Statement(header, "for epoch in range(self.first, self.last):"),)
    lines = [SourceLine("/home/me/train.py", n, "run", Statement(n, "f()"), loop) for n in (83, 86)]

    value = NameValue("self.first", "int", first)
    values = [
        ValuesRead(pid(n), NOW_S, "hook", (FrameValues(n, lines[0].file, "run", 83, (value,)),))
        for n in (300, 301)
        if first is not None
    ]
    job = snapshot_of(
        main(),
        *living,
        *before,
        source=tuple(lines),
        marks=(RESTORED,),
        values=tuple(values),
    )
    finding = only(collective_mismatch.check, job)

    told = "`self.first = epoch + 1` at train.py:49 resume sets that by what each rank has found"
    assert (told in finding.cause) is is_told
    was_seen = is_told and killed_s is not None
    assert ("rank -10 (290) ended: signal 9 (SIGKILL)" in finding.cause) is was_seen
    assert ("newest that all of them have" in finding.advice) is is_told


def test_a_spawned_helper_beside_the_ranks_is_not_waited_for() -> None:
    def spawned(number: int, *stack: str, name: str = "gloo_tcp_loop") -> Process:
        threads = [thread(number, *stack, still_s=60.0), thread(number + 50, name=name)]
        return process(number, "spawned", threads=threads)

    call = f"{C10D}:all_reduce"
    helper = spawned(303, "train.py:log:5", name="python")
    job = snapshot_of(main(), spawned(301, call), spawned(302, call), helper)

    assert found(rank_stuck_in_collective.check, job) == []
    late = spawned(303, "train.py:log:5")
    job = snapshot_of(main(), spawned(301, call), spawned(302, call), late)
    assert only(rank_stuck_in_collective.check, job).process == pid(303)


def line(file: str, at: int, function: str, text: str, **more: Any) -> SourceLine:
    return SourceLine(f"/home/me/{file}", at, function, Statement(at, text), **more)


def test_a_collective_behind_a_condition_on_the_rank_is_reported_with_it() -> None:
    ranks = (
        rank(0, f"{C10D}:barrier", "train.py:save:44", "train.py:fit:57"),
        rank(1, BACKWARD, "train.py:fit:51"),
        rank(2, BACKWARD, "train.py:fit:51"),
    )
    guarded = line(
        "train.py", 44, "save", "dist.barrier()", after=(Statement(39, "if self.rank: return"),)
    )

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=(guarded,)))

    assert finding.cause.startswith(
        "Only some ranks call barrier: train.py:44 save comes after `if self.rank: return` of line "
        "39, and rank 0 (300) is past it. rank 1 (301) and rank 2 (302) went on to the backward"
    )
    assert "different number of batches" not in finding.cause
    assert finding.advice.startswith("Call barrier on all ranks: move it out")


def test_an_iterator_over_a_datapipe_on_one_rank_is_told_to_call_a_collective_itself() -> None:
    loader = "torch/utils/data/dataloader.py:__init__"
    ranks = (
        rank(0, f"{C10D}:new_group", loader, "train.py:epoch:29", "train.py:fit:57"),
        rank(1, f"{C10D}:broadcast_object_list", "train.py:fetch:23", "train.py:fit:57"),
    )
    guarded = line(
        "train.py", 29, "epoch", "it = iter(x)", within=(Statement(28, "if self.rank == 0:"),)
    )

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=(guarded,)))

    assert finding.cause.startswith("Only some ranks call new_group: train.py:29 epoch is inside")
    assert "iterator of a DataLoader: over a datapipe" in finding.cause
    assert finding.advice.startswith("Make that iterator on all ranks")


def test_a_condition_that_all_ranks_have_met_is_no_cause() -> None:
    ranks = called(0, "broadcast"), called(1, "barrier")
    guarded = line("train.py", 40, "step", "sync()", within=(Statement(38, "if rank >= 0:"),))

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=(guarded,)))

    assert "Only some ranks" not in finding.cause


def test_the_condition_that_ends_a_loop_on_one_rank_is_named() -> None:
    ranks = (
        rank(0, f"{C10D}:all_gather", f"{C10D}:gather_object", "train.py:run:65"),
        rank(1, f"{C10D}:all_reduce", "train.py:average:34", "train.py:fit:49", "train.py:run:64"),
        rank(2, f"{C10D}:all_reduce", "train.py:average:34", "train.py:fit:49", "train.py:run:64"),
    )
    loop = line(
        "train.py", 49, "fit", "loss = train()", ends=(Statement(54, "if self.is_done: break"),)
    )

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=(loop,)))

    assert "1 in gather_object" in finding.summary
    assert "also ends by `if self.is_done: break` (line 54), which rank 0 (300) may have met" in (
        finding.cause
    )
    assert "broadcast the decision" in finding.advice


@pytest.mark.parametrize(
    ("at", "is_told"), [(34, True), (39, False)], ids=["the next round", "the same block"]
)
def test_a_rank_that_has_left_a_block_whose_handler_goes_on_is_reported_with_the_handler(
    at: int, is_told: bool
) -> None:
    inside = [rank(n, f"{C10D}:all_reduce", "train.py:run:12", "train.py:serve:38") for n in (0, 1)]
    left = rank(2, f"{C10D}:broadcast", "train.py:next_task:29", f"train.py:serve:{at}")
    mark = Mark(
        "swallows", "/home/me/train.py", "serve", "38-39", Statement(40, "except Exception as e:")
    )

    finding = only(collective_mismatch.check, snapshot_of(main(), *inside, left, marks=(mark,)))

    told = "`except Exception as e:` at train.py:40 serve catches it on that rank alone"
    assert (told in finding.cause) is is_told


def ended(*conditions: str) -> Finding:
    """Ranks that reduce in each round of a loop, and one that is behind that loop."""
    outer = ("train.py:main:86", "train.py:<module>:95")
    reduces = ("train.py:update:34", "train.py:validate:51", *outer)
    ranks = (
        *(rank(n, f"{C10D}:all_reduce", *reduces) for n in (0, 1)),
        rank(2, f"{C10D}:barrier", "train.py:validate:55", *outer),
    )
    batches = Statement(49, "for batch in loader:")
    under = tuple(Statement(54, each) for each in conditions)
    source = (
        line("train.py", 51, "validate", "meter.update(psnr)", within=(batches,)),
        line("train.py", 55, "validate", "dist.barrier()", within=under),
    )
    return only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))


def test_a_rank_that_has_ended_the_loop_of_a_collective_is_reported_with_the_loop() -> None:
    finding = ended()

    assert finding.cause.startswith(
        "rank 2 (302) has ended the loop `for batch in loader:` of line 49 in validate(), in which "
        "rank 0 (300) and rank 1 (301) still are, most likely after fewer rounds."
    )
    assert finding.advice.startswith("If that all_reduce only adds up numbers")


def test_a_rank_under_a_condition_on_its_number_has_not_ended_a_loop_before() -> None:
    assert "has ended the loop" not in ended("if rank == 2:").cause


AGAIN = ("train.py:sync:44", "train.py:__iter__:48", "train.py:fit:59", "train.py:run:89")


@pytest.mark.parametrize(
    ("ends", "ahead", "is_named"),
    [
        ("if bad >= cfg.max_bad: break", AGAIN, True),
        ("if step >= cfg.max_steps: break", AGAIN, False),
        ("if bad >= cfg.max_bad: break", ("train.py:meet:12", "train.py:run:91"), True),
    ],
)
def test_a_rank_that_has_ended_a_round_of_batches_is_reported_with_what_ends_it(
    ends: str, ahead: tuple[str, ...], is_named: bool
) -> None:
    inside = [rank(n, BACKWARD, "train.py:fit:70", "train.py:run:89") for n in (0, 2)]
    batches = Statement(59, "for batch in loader:")
    source = (
        line(
            "train.py", 70, "fit", "loss.backward()", within=(batches,), ends=(Statement(62, ends),)
        ),
        line("train.py", 59, "fit", batches.text),
    )
    ranks = (inside[0], rank(1, f"{C10D}:broadcast", *ahead), inside[1])

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))

    assert "rank 1 (301) has ended " in finding.cause
    assert (f"by `{ends}` (line 62)" in finding.cause) is is_named
    assert ("drop_last" in finding.advice) is not is_named
    assert ("all_reduce of a flag" in finding.advice) is is_named


@pytest.mark.parametrize(
    ("before", "is_named"), [("if loss is None: continue", True), ("if done: return", False)]
)
def test_a_backward_pass_that_a_rank_may_have_passed_over_is_named(
    before: str, is_named: bool
) -> None:
    header = Statement(43, "for batch in batches:")
    inside = line("train.py", 53, "fit", "loss.backward()", within=(header,))
    source = (replace(inside, after=(Statement(44, before),)),)
    ranks = (
        rank(0, BACKWARD, "train.py:fit:53", "train.py:run:63"),
        rank(1, f"{C10D}:barrier", "train.py:run:66"),
    )

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))

    words = f"`{before}` of line 44 has passed over a backward pass there"
    assert (words in finding.cause) is is_named
    assert finding.advice.startswith("A rank must not skip a backward pass alone") is is_named


DRAW = Mark("draw", "/app/data.py", "load", "", Statement(13, "items = [i for i in all if p()]"))


@pytest.mark.parametrize(
    ("marks", "is_named"),
    [
        ((DRAW,), True),
        ((DRAW, DRAW._replace(kind="seed")), False),
        ((DRAW, DRAW._replace(file="/app/other.py")), False),
        ((DRAW._replace(function="__getitem__"),), False),
    ],
)
def test_items_that_each_rank_chooses_by_chance_are_why_one_has_fewer_batches(
    marks: tuple[Mark, ...], is_named: bool
) -> None:
    ranks = (
        rank(0, BACKWARD, "train.py:fit:53", "train.py:run:63"),
        rank(1, f"{C10D}:barrier", "train.py:run:66"),
    )

    finding = only(collective_mismatch.check, replace(snapshot_of(main(), *ranks), marks=marks))

    words = "most likely after fewer batches: `items = [i for i in all if p()]` at data.py:13 load"
    assert "rank 1 (301) has ended fit()" in finding.cause
    assert "fewer batches" in finding.cause
    assert (words in finding.cause) is is_named
    assert finding.advice.startswith("Choose the items alike") is is_named


@pytest.mark.parametrize(
    ("totals", "is_told"), [((45, 41), True), ((41, 41), False), ((45,), False)]
)
def test_the_batches_that_ranks_have_had_are_reported_where_they_differ(
    totals: tuple[int, ...], is_told: bool
) -> None:
    ranks = (
        rank(0, BACKWARD, "train.py:fit:53", "train.py:run:63"),
        rank(1, f"{C10D}:barrier", "train.py:run:66"),
    )
    progress = tuple(
        ProgressSource("batches", each.process, total, 0.0, 0.0, False, Counts(), 0, Counts(), 0)
        for each, total in zip(ranks, totals, strict=False)
    )

    finding = only(
        collective_mismatch.check, replace(snapshot_of(main(), *ranks), progress=progress)
    )

    words = "batches that the ranks have had from DataLoaders: rank 0 (300) 45, rank 1 (301) 41"
    assert (words in finding.evidence) is is_told
    assert any("batches that" in each for each in finding.evidence) is is_told


def test_a_rank_that_takes_the_next_batch_has_not_ended_the_loop() -> None:
    batches = Statement(59, "for batch in loader:")
    source = (
        line("train.py", 70, "fit", "loss.backward()", within=(batches,)),
        line("train.py", 59, "fit", batches.text),
    )
    ahead = rank(1, f"{C10D}:broadcast", "train.py:__next__:48", "train.py:fit:59")
    ranks = rank(0, BACKWARD, "train.py:fit:70"), ahead

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))

    assert "has ended" not in finding.cause


def test_the_broadcast_of_buffers_of_one_rank_is_a_mismatch() -> None:
    ddp = "torch/nn/parallel/distributed.py"
    stack = (f"{ddp}:_distributed_broadcast_coalesced", f"{ddp}:_sync_buffers", f"{ddp}:forward")
    ranks = rank(0, *stack, "train.py:validate:18"), called(1, "barrier"), called(2, "barrier")

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks))

    assert "1 in the broadcast of buffers in a forward pass" in finding.summary
    assert "rank 0 (300) called the model" in finding.cause
    assert "model.module" in finding.advice


@pytest.mark.parametrize(
    ("condition", "is_on_rank"),
    [
        ("if dist.get_rank() == 0:", True),
        ("if self.local_rank:", True),
        ("if trainer.is_global_zero:", True),
        ("if ranking_loss > 0:", False),
        ("if self.frank:", False),
    ],
)
def test_only_conditions_on_the_rank_decide_which_ranks_call(
    condition: str, is_on_rank: bool
) -> None:
    ranks = called(0, "broadcast", 44), called(1, "barrier")
    inside = line("train.py", 44, "step", "sync()", within=(Statement(40, condition),))

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=(inside,)))

    assert finding.cause.startswith("Only some ranks call broadcast") is is_on_rank


CONSOLIDATES = (f"{C10D}:all_gather", "data.py:gather:21", "data.py:save:27", "train.py:run:83")
STEPS = (f"{C10D}:all_reduce", "train.py:step:48", "train.py:run:77")
PARTED = (
    line("data.py", 21, "gather", "dist.all_gather(pieces, shard)"),
    line("data.py", 27, "save", "gather()", within=(Statement(25, "if val_loss < self.best:"),)),
    line("train.py", 83, "run", "save(loss)", within=(Statement(71, "for epoch in epochs:"),)),
    line("train.py", 77, "run", "step()", within=(Statement(71, "for epoch in epochs:"),)),
    line("train.py", 48, "step", "dist.all_reduce(grad)"),
)


def parted(condition: str = "", *, same_count: bool | None = None) -> Finding:
    """Two ranks that gather inside of a condition, and one that has gone on to the next step."""
    states = {
        None: (None, None),
        True: ([state(34, "gloo:all_gather")], [state(34)]),
        False: ([state(34, "gloo:all_gather")], [state(36)]),
    }[same_count]
    ranks = (
        rank(0, *CONSOLIDATES, states=states[0]),
        rank(1, *CONSOLIDATES, states=states[0]),
        rank(2, *STEPS, states=states[1]),
    )
    source = list(PARTED)
    if condition:
        source[1] = replace(source[1], within=(Statement(25, condition),))
    return only(collective_mismatch.check, snapshot_of(main(), *ranks, source=tuple(source)))


def test_a_condition_on_data_at_which_ranks_have_parted_is_reported_with_its_line() -> None:
    finding, sure = parted(), parted(same_count=True)

    assert (
        "rank 0 (300) and rank 1 (301) are in all_gather, because data.py:27 save is inside "
        "`if val_loss < self.best:` of line 25; rank 2 (302) has gone on to all_reduce"
    ) in finding.cause
    assert "Unless they have done a different number of rounds" in finding.cause
    assert finding.advice.startswith("Let all ranks decide alike")
    assert "All have made the same number of calls before (33)" in sure.cause


@pytest.mark.parametrize(
    "condition",
    ["if epoch % 5 > 2:", "if args.keep > 0:", "if step > warmup:", "if self.use_ema:", "try:"],
)
def test_a_condition_that_all_ranks_meet_alike_is_not_reported(condition: str) -> None:
    assert "parted" not in parted(condition).cause


def test_ranks_that_have_made_different_numbers_of_calls_have_not_parted_at_a_condition() -> None:
    assert "parted" not in parted(same_count=False).cause


def test_a_condition_that_both_sides_are_under_is_not_reported() -> None:
    outer = Statement(70, "if len(data) > 0:")
    lines = tuple(
        replace(each, within=(outer, *each.within)) if each.function == "run" else each
        for each in PARTED
    )
    unguarded = replace(lines[1], within=())
    ranks = rank(0, *CONSOLIDATES), rank(1, *STEPS)

    finding = only(
        collective_mismatch.check,
        snapshot_of(main(), *ranks, source=(lines[0], unguarded, *lines[2:])),
    )

    assert "parted" not in finding.cause


DDP_INIT = ("torch/distributed/utils.py:_verify_param_shape_across_processes", "train.py:run:47")
LOADS = (f"{C10D}:broadcast_object_list", "data.py:load:40", "train.py:run:45")


@pytest.mark.parametrize("around", ["", "if args.resume:", "for stage in stages:"])
@pytest.mark.parametrize("how", ["leaves", "is under"])
def test_a_condition_that_no_loop_repeats_is_reported_whatever_it_tests(
    how: str, around: str
) -> None:
    """Each rank finds for itself whether there is a checkpoint, once."""
    within = (Statement(44, around),) if around else ()
    tests = (Statement(34, "if not self.latest.exists(): return 0"),)
    source = (
        line("train.py", 45, "run", "step = load(net)", within=within),
        line("train.py", 47, "run", "model = DistributedDataParallel(net)", within=within),
        line(
            "data.py",
            40,
            "load",
            "dist.broadcast_object_list(state, src=0)",
            **{"after" if how == "leaves" else "within": tests},
        ),
    )
    ranks = rank(0, *LOADS), rank(1, *DDP_INIT), rank(2, *DDP_INIT)

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))

    assert "1 in broadcast_object_list" in finding.summary
    assert "2 in the set-up of DistributedDataParallel" in finding.summary
    is_told = f"{'comes after' if how == 'leaves' else 'is inside'} `if not self.latest.exists()"
    assert (is_told in finding.cause) is (around != "for stage in stages:")


def test_a_condition_is_reported_also_where_the_others_are_in_the_backward_pass() -> None:
    source = (
        line("train.py", 45, "run", "load()", within=(Statement(44, "if path is not None:"),)),
        line("train.py", 60, "run", "loss.backward()"),
        line("data.py", 40, "load", "dist.barrier()"),
    )
    ranks = (
        rank(0, f"{C10D}:barrier", "data.py:load:40", "train.py:run:45"),
        rank(1, "torch/autograd/graph.py:_engine_run_backward", "train.py:run:60"),
    )

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))

    assert finding.cause.startswith("The backward pass of DistributedDataParallel averages")
    assert "train.py:45 run is inside `if path is not None:` of line 44" in finding.cause
    assert finding.advice.startswith("Let all ranks decide alike")


AVERAGES = line(
    "train.py",
    40,
    "step",
    "dist.all_reduce(p.data, group=group)",
    within=(Statement(38, "for axis in sorted(parts, key=drift):"),),
)


def cycle(*sources: SourceLine, groups: tuple[str, ...] = ()) -> Finding:
    """Two ranks in all_reduce at one line."""
    ranks = [
        called(n, "all_reduce", states=[state(3, group=groups[n])] if groups else None)
        for n in range(2)
    ]
    return only(standing_still.check, snapshot_of(main(), *ranks, source=sources))


def test_ranks_that_use_groups_in_a_different_order_are_reported_with_the_loop() -> None:
    finding, sure = cycle(AVERAGES), cycle(AVERAGES, groups=("1", "half"))

    assert "2 ranks are in all_reduce at train.py:40 step and do not meet there: most likely" in (
        finding.summary
    )
    assert "(`for axis in sorted(parts, key=drift):`, line 38)" in finding.cause
    assert finding.advice.startswith("Use the groups in the same order on all ranks")
    assert "most likely" not in sure.summary + sure.cause
    assert any("recorded by rank 1 (301): collective 3 of group half" in e for e in sure.evidence)


def test_a_call_without_a_group_is_not_reported_as_an_order_of_groups() -> None:
    plain = replace(AVERAGES, statement=Statement(40, "dist.all_reduce(p.data)"))

    assert "do not meet" not in cycle(plain).summary
    assert "do not meet" not in cycle(AVERAGES, groups=("0", "0")).summary


EVERY = Statement(53, "if self.updates % self.sync_every == 0:")
FRAMES = Statement(55, "if self.frames >= self.next_publish:")
TWO_GROUPS = (
    line("train.py", 40, "sync", "dist.all_reduce(p.data, group=self.group)"),
    line("train.py", 46, "publish", "dist.all_reduce(scores)"),
    line("train.py", 54, "run", "self.sync()", within=(EVERY,)),
    line("train.py", 57, "run", "self.publish()", within=(FRAMES,)),
)


def two_groups(*groups: str) -> tuple[Process, ...]:
    stacks = ("train.py:sync:40", "train.py:run:54"), ("train.py:publish:46", "train.py:run:57")
    return tuple(
        rank(
            number,
            f"{C10D}:all_reduce",
            *stack,
            states=[state(3, group=groups[number])] if groups else None,
        )
        for number, stack in enumerate(stacks)
    )


def test_ranks_in_two_groups_in_an_order_of_their_own_are_reported_with_its_condition() -> None:
    job = snapshot_of(main(), *two_groups(), source=TWO_GROUPS)

    finding = only(standing_still.check, job)

    assert finding.summary == (
        "rank 0 (300) and rank 1 (301) wait for each other in collectives of most likely different "
        "process groups"
    )
    assert "rank 0 (300) waits in `self.group` at train.py:40 sync" in finding.cause
    assert "rank 1 (301) waits in the default group at train.py:46 publish" in finding.cause
    assert f"`{FRAMES.text}` of line 55" in finding.cause
    assert EVERY.text not in finding.cause


LEAVES = Statement(66, "if operation is None: return True")
EARLY = (
    line("train.py", 61, "can_end", "dist.all_reduce(state, group=self.group)"),
    line("train.py", 68, "check", "if not self.can_end(operation):", after=(LEAVES,)),
    line("train.py", 42, "forward", "dist.all_reduce(y)"),
    line("train.py", 110, "run", "self.check()", within=(Statement(108, "while True:"),)),
    line("train.py", 112, "run", "self.forward()", within=(Statement(108, "while True:"),)),
)


@pytest.mark.parametrize("condition", [LEAVES.text, "if self.world_size == 1: return True"])
def test_a_return_before_the_collective_of_one_group_is_named(condition: str) -> None:
    """In the way of a rank that is in it; a condition on the set-up is the same for all."""
    stacks = (
        ("train.py:can_end:61", "train.py:check:68", "train.py:run:110"),
        (
            "train.py:forward:42",
            "train.py:run:112",
        ),
    )
    ranks = [
        rank(number, f"{C10D}:all_reduce", *stack, states=[state(3, group=f"{number}")])
        for number, stack in enumerate(stacks)
    ]
    leaves = Statement(66, condition)
    source = [replace(each, after=(leaves,)) if each.after else each for each in EARLY]
    job = snapshot_of(main(), *ranks, source=tuple(source))

    finding = only(rank_stuck_in_collective.check, job)

    assert "rank 0 (300) waits in group 0 at train.py:61 can_end" in finding.cause
    told = f"train.py:68 check comes after `{condition}` of line 66"
    assert (told in finding.cause) is (condition == LEAVES.text)


def test_recorded_groups_are_reported_by_both_rules() -> None:
    job = snapshot_of(main(), *two_groups("1", "half"), source=TWO_GROUPS)

    for check in (standing_still.check, rank_stuck_in_collective.check):
        finding = only(check, job)
        assert "rank 0 (300) waits in group 1 at train.py:40 sync" in finding.cause
        assert "rank 1 (301) waits in group half" in finding.cause
        assert "most likely" not in finding.summary + finding.cause


@pytest.mark.parametrize(
    "text", ["dist.all_reduce(scores, group=self.group)", "total(scores, group)"]
)
def test_one_group_and_one_that_is_not_known_are_not_reported_as_two(text: str) -> None:
    other = replace(TWO_GROUPS[1], statement=Statement(46, text))
    job = snapshot_of(main(), *two_groups(), source=(TWO_GROUPS[0], other, *TWO_GROUPS[2:]))

    assert "group" not in only(standing_still.check, job).summary


SELECTED = Mark(
    "batch-rounds",
    "/home/me/train.py",
    "train_epoch",
    "63, present = labels.any(dim=1).nonzero().tolist()",
    Statement(64, "for organ in present:"),
)
IN_ROUND = line(
    "train.py",
    68,
    "train_epoch",
    "loss.backward()",
    within=(Statement(62, "for image, labels in loader:"), SELECTED.statement),
)


@pytest.mark.parametrize("ahead", [("validate:90", "fit:96"), ("train_epoch:75", "fit:95")])
@pytest.mark.parametrize("is_marked", [True, False])
def test_a_rank_whose_batches_contained_less_has_run_fewer_backward_passes(
    ahead: tuple[str, str], is_marked: bool
) -> None:
    ranks = (
        rank(0, f"{C10D}:all_reduce", *(f"train.py:{each}" for each in ahead)),
        rank(1, BACKWARD, "train.py:train_epoch:68", "train.py:fit:95"),
        rank(2, BACKWARD, "train.py:train_epoch:68", "train.py:fit:95"),
    )
    after = line(
        "train.py", 75, "train_epoch", "dist.all_reduce(total)", within=IN_ROUND.within[:1]
    )
    marks = (SELECTED,) if is_marked else ()

    job = snapshot_of(main(), *ranks, source=(IN_ROUND, after), marks=marks)
    finding = only(collective_mismatch.check, job)

    assert (
        "selected from the batch, of which each rank has another one: `present = "
        "labels.any(dim=1).nonzero().tolist()` of line 63. So most likely the ranks ran different "
        "numbers of backward passes for the same number of batches" in finding.cause
    ) is is_marked
    assert ("Run one backward pass for each batch" in finding.advice) is is_marked


def test_a_loop_over_what_a_batch_contains_is_not_the_cause_where_all_are_in_it() -> None:
    ranks = (
        rank(0, *IN_FORWARD, "train.py:train_epoch:66", "train.py:fit:95"),
        rank(1, BACKWARD, "train.py:train_epoch:68", "train.py:fit:95"),
    )
    other = line("train.py", 66, "train_epoch", "self.net(image)", within=IN_ROUND.within)
    job = snapshot_of(main(), *ranks, source=(IN_ROUND, other), marks=(SELECTED,))

    assert "selected from the batch" not in only(collective_mismatch.check, job).cause


def test_a_loop_over_what_a_batch_contains_is_not_the_cause_where_a_rank_has_not_come_to_it() -> (
    None
):
    ranks = (
        rank(0, f"{C10D}:all_reduce", "train.py:validate:90", "train.py:fit:96"),
        rank(1, BACKWARD, "train.py:train_epoch:68", "train.py:fit:95"),
        rank(2, f"{C10D}:all_reduce", "train.py:warm:20", "train.py:fit:91"),
    )
    job = snapshot_of(main(), *ranks, source=(IN_ROUND,), marks=(SELECTED,))

    assert "selected from the batch" not in only(collective_mismatch.check, job).cause


def test_a_collective_in_rounds_of_what_a_batch_contains_is_to_be_called_once_after_them() -> None:
    ranks = (
        rank(0, f"{C10D}:barrier", "train.py:fit:96"),
        rank(1, f"{C10D}:all_gather", "train.py:train_epoch:68", "train.py:fit:95"),
    )
    job = snapshot_of(main(), *ranks, source=(IN_ROUND,), marks=(SELECTED,))

    finding = only(collective_mismatch.check, job)

    assert "different numbers of calls of all_gather" in finding.cause
    assert "communicate once for each batch" in finding.advice


DDP = "torch/nn/parallel/distributed.py"
IN_FORWARD = (f"{DDP}:_distributed_broadcast_coalesced", f"{DDP}:_sync_buffers", f"{DDP}:forward")


def test_a_loss_of_no_parameter_is_reported_where_a_rank_has_run_past_its_backward_pass() -> None:
    ranks = (
        rank(0, BACKWARD, "train.py:fit:51"),
        rank(1, BACKWARD, "train.py:fit:51"),
        rank(2, *IN_FORWARD, "train.py:fit:48"),
    )
    fresh = Mark(
        "fresh-loss",
        "/home/me/data.py",
        "forward",
        "if rois is None: in line 34",
        Statement(35, 'return {"loss": torch.zeros(1, requires_grad=True).sum()}'),
    )

    told = only(collective_mismatch.check, snapshot_of(main(), *ranks, marks=(fresh,)))
    without = only(collective_mismatch.check, snapshot_of(main(), *ranks))

    assert "Likely the loss of rank 2 (302) depends on no parameter" in told.cause
    assert "data.py:35 forward, under `if rois is None:` in line 34" in told.cause
    assert "find_unused_parameters" in told.advice
    assert "depends on no parameter" not in without.cause


@pytest.mark.parametrize(
    ("header", "is_told"),
    [
        ("for key in sorted(metrics):", True),
        ("for key, value in self.metrics.items():", True),
        ("for _ in range(rounds):", False),
        ("for parameter in model.parameters():", False),
        ("while self.metrics:", False),
    ],
)
def test_a_loop_with_a_collective_over_what_each_rank_has_is_reported(
    header: str, is_told: bool
) -> None:
    ranks = (
        rank(0, f"{C10D}:all_gather", "data.py:log_dict:20", "train.py:fit:47"),
        rank(1, *IN_FORWARD, "train.py:fit:38"),
        rank(2, *IN_FORWARD, "train.py:fit:38"),
    )
    source = line(
        "data.py", 20, "log_dict", "dist.all_gather(x, y)", within=(Statement(16, header),)
    )
    empty = Mark(
        "empty-on-ranks",
        "/home/me/data.py",
        "evaluate",
        "if self.rank != 0: in line 24",
        Statement(25, "return OrderedDict()"),
    )

    job = snapshot_of(main(), *ranks, source=(source,), marks=(empty,))
    finding = only(collective_mismatch.check, job)

    assert (f"`{header}` of line 16" in finding.cause) is is_told
    assert ("`return OrderedDict()` at data.py:25 evaluate" in finding.cause) is is_told
    assert ("broadcast_object_list" in finding.advice) is is_told


def test_a_key_that_only_some_data_add_is_named_where_a_loop_goes_over_keys() -> None:
    ranks = (
        rank(0, f"{C10D}:all_reduce", "data.py:parse_losses:66", "train.py:fit:47"),
        rank(1, *IN_FORWARD, "train.py:fit:38"),
    )
    header = Statement(64, "for name, value in log_vars.items():")
    source = line("data.py", 66, "parse_losses", "dist.all_reduce(value)", within=(header,))
    condition = "if found.any(): in line 38"
    added = Statement(39, "losses['box'] = f(b)")
    mark = Mark("optional-key", "/home/me/data.py", "loss", condition, added)
    same = mark._replace(statement=Statement(40, "losses['acc'] = g(b)"))
    other = mark._replace(about="if n > 9: in line 50", statement=Statement(51, "losses['x'] = 1"))

    job = snapshot_of(main(), *ranks, source=(source,), marks=(mark, same, other))
    finding = only(collective_mismatch.check, job)

    assert (
        "most likely `losses['box'] = f(b)` at data.py:39 loss (so does `losses['acc'] = g(b)` at "
        "data.py:40 loss) adds a key only"
    ) in finding.cause
    assert "data.py:51" not in finding.cause
    assert "under `if found.any():` of line 38" in finding.cause
    assert "some have none" not in finding.cause
    assert finding.advice.startswith("Set each key on all ranks")


def test_a_loop_in_which_the_other_ranks_are_as_well_is_not_reported_as_of_one_rank() -> None:
    ranks = (
        rank(0, f"{C10D}:all_gather", "data.py:log_dict:20", "train.py:fit:47"),
        rank(1, f"{C10D}:barrier", "data.py:log_dict:22", "train.py:fit:47"),
    )
    header = Statement(16, "for key in sorted(metrics):")
    source = line("data.py", 20, "log_dict", "dist.all_gather(x, y)", within=(header,))

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=(source,)))

    assert "`for key in sorted(metrics):` of line 16" not in finding.cause


@pytest.mark.parametrize(
    ("loop", "is_named"),
    [
        ("for epoch in epoch_counter:", True),
        ("for epoch in self.stopper:", True),
        ("for batch in train_loader:", False),
        ("for epoch in range(9):", False),
        ("for epoch in self.epochs:", False),
        ("for rows in dataset:", False),
    ],
)
def test_a_loop_over_an_object_that_ends_by_itself_is_reported_where_one_rank_has_ended_it(
    loop: str, is_named: bool
) -> None:
    header = Statement(48, loop)
    source = (line("train.py", 53, "fit", "self.train_batches()", within=(header,)),)
    ranks = (
        rank(0, BACKWARD, "train.py:fit:53", "train.py:run:63"),
        rank(1, f"{C10D}:barrier", "train.py:run:66"),
    )

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks, source=source))

    assert ("which decides by itself when it ends" in finding.cause) is is_named
    assert ("Let all ranks end that loop in the same round" in finding.advice) is is_named
    assert ("fewer batches" in finding.cause) is not is_named


@pytest.mark.parametrize(
    ("condition", "is_named"),
    [
        ("if now - self.last >= self.seconds:", True),
        ("if step % self.every == 0:", False),
        ("if self.timer_name:", False),
    ],
)
def test_a_condition_on_the_time_before_a_collective_is_why_a_rank_does_not_come(
    condition: str, is_named: bool
) -> None:
    stack = (f"{C10D}:all_reduce", "train.py:print_energy:75", "data.py:__call__:26")
    waits = [rank(n, *stack, "train.py:solve:62") for n in (0, 2)]
    late = rank(
        1,
        "data.py:exchange:40",
        "train.py:solve:59",
        more={},
    )
    late = replace(
        late,
        threads=(replace(late.threads[0], waits_on=WaitedOn("futex", "futex")), late.threads[1]),
    )
    source = (
        line("data.py", 26, "__call__", "self.fn(step)", within=(Statement(23, condition),)),
        line("data.py", 40, "exchange", "request.wait()"),
    )

    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), *waits, late, source=source))

    assert "which waits for a send or receive that another rank has to match" in finding.summary
    assert ("at data.py:23 __call__, which asks the time" in finding.cause) is is_named
    assert ("Each rank asks its own clock" in finding.cause) is is_named
    assert ("The ranks that wait are not the cause" in finding.cause) is not is_named
    assert ("count steps in place of seconds" in finding.advice) is is_named


def test_a_rank_whose_helper_thread_runs_for_a_moment_is_still_counted() -> None:
    """On a busy machine one of its threads is now and then found awake."""
    inside = [backward(number) for number in (1, 2)]
    awake = backward(3)
    own, helper, *rest = awake.threads
    own = replace(
        own, stack_age_s=33.0, waits_on=WaitedOn("futex", "futex", ("futex 0x7f",), address=0x7F)
    )
    awake = with_threads(awake, (own, replace(helper, state="R"), *rest))
    job = snapshot_of(main(), rank(0, "train.py:wait_for_peers:49"), *inside, awake)

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.summary.startswith("3 ranks wait in the backward pass for rank 0")


def saving(number: int, *stack: str, still_s: float = 60.0) -> Process:
    """A rank whose main thread is somewhere while another one is in all_gather_object."""
    found = rank(number, *stack, still_s=still_s)
    gather = (f"{C10D}:all_gather", f"{C10D}:all_gather_object", "data.py:save:33")
    saver = thread(350 + number, *gather, name="saver_0", still_s=still_s)
    return replace(found, threads=(found.threads[0], saver))


IN_BARRIER = (f"{C10D}:barrier", "train.py:save:63")


def test_collectives_of_two_threads_have_no_order() -> None:
    ranks = [saving(number, *IN_BARRIER) for number in range(3)]

    finding = only(collective_mismatch.check, snapshot_of(main(), *ranks))

    assert finding.severity is Severity.CRITICAL
    assert "the main thread in barrier at train.py:63 save" in finding.summary
    assert "saver_0 in all_gather_object at data.py:33 save" in finding.summary
    assert "Give saver_0 a process group of its own" in finding.advice


def test_collectives_of_two_threads_that_may_still_move_data_are_a_warning() -> None:
    ranks = [saving(number, *IN_BARRIER, still_s=25.0) for number in range(3)]

    assert only(collective_mismatch.check, snapshot_of(main(), *ranks)).severity is Severity.WARNING


@pytest.mark.parametrize(
    "last",
    [
        saving(2, "train.py:step:12"),  # it computes: the others wait for it
        saving(2, *IN_BARRIER, still_s=2.0),  # it has just come
    ],
)
def test_two_threads_that_wait_for_a_late_rank_are_no_mismatch(last: Process) -> None:
    ranks = [saving(number, *IN_BARRIER) for number in range(2)]

    findings = found(collective_mismatch.check, snapshot_of(main(), *ranks, last))

    assert not any(each.subject == "threads" for each in findings)


@pytest.mark.parametrize("is_conditional", [True, False])
def test_a_rank_whose_tensor_is_not_part_of_the_graph_leaves_out_a_backward(
    is_conditional: bool,
) -> None:
    exchange = rank(0, f"{C10D}:all_to_all_single", "data.py:backward:22", "train.py:step:64")
    behind = rank(1, f"{C10D}:all_reduce", "train.py:sync:50", "train.py:step:65")
    anew = Statement(46, "return torch.empty_like(rows)")
    under = "if rows.size(0) == 0: in line 45" if is_conditional else "if is_test: in line 45"
    cut = Mark("cuts-graph", "/home/me/moe.py", "forward", under, anew)
    job = snapshot_of(main(), exchange, behind, marks=(cut,))

    finding = only(collective_mismatch.check, job)

    told = (
        "rank 0 (300) is still in the backward pass, which rank 1 (301) has left. Most likely `ret"
    )
    assert (told in finding.cause) is is_conditional
    assert ("under `if rows.size(0) == 0:` in line 45" in finding.cause) is is_conditional
    assert ("return the empty input itself" in finding.advice) is is_conditional
