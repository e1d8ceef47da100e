"""Values of names: which of them findings ask for, and what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.values import (
    LEAST,
    NEW_S,
    READINGS,
    Difference,
    difference,
    grown,
    loop_values,
    same_round,
    wanted_values,
)
from mpwatch.diagnose.rules.distributed import collective_mismatch
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FrameValues, NameValue, ValuesRead, WantedFrame
from mpwatch.model.snapshot import Hook, Process, Snapshot
from mpwatch.model.source_code import AddedTo, Decider, Mark, SourceLine, Statement
from tests.builders.snapshots import NOW_S, main, only, pid, process, snapshot_of, thread

FILE = "/home/me/train.py"
C10D = "torch/distributed/distributed_c10d.py"
LOOP = Decider(Statement(10, "while self.step < 500:"), 40, ("self.step",), ("self.step",))
EVERY = Decider(
    Statement(20, "if self.step % 100 == 0:"), 22, ("self.step", "self.every"), ("self.step",)
)
FOUND = Decider(Statement(30, "if found is not None:"), 32, ("found",))


def rank(number: int, call: str, line: int) -> Process:
    own = 300 + number
    stack = (f"{C10D}:{call}", f"train.py:fit:{line}")
    threads = [thread(own, *stack, still_s=60.0), thread(own + 50, name="gloo_tcp_loop")]
    return process(own, "rank", threads=threads, label=f"rank {number}", rank=number)


def number(name: str, value: int | bool | None) -> NameValue:
    kind = "NoneType" if value is None else type(value).__name__
    return NameValue(name, kind, value)


def read(number: int, *values: NameValue, at_s: float = NOW_S, function: str = "fit") -> ValuesRead:
    own = 300 + number
    frame = FrameValues(own, FILE, function, 1, values)
    return ValuesRead(pid(own), at_s, "hook", (frame,))


def lines(*numbers: int, deciders: Sequence[Decider]) -> tuple[SourceLine, ...]:
    return tuple(
        SourceLine(FILE, n, "fit", Statement(n, "call()"), deciders=tuple(deciders))
        for n in numbers
    )


def job(
    *values: ValuesRead, deciders: Sequence[Decider], at: tuple[int, int] = (21, 35)
) -> Snapshot:
    return snapshot_of(
        main(),
        rank(0, "all_gather", at[0]),
        rank(1, "all_reduce", at[1]),
        source=lines(*at, deciders=deciders),
        values=values,
    )


def differs(snapshot: Snapshot) -> Difference | None:
    return difference(Index(snapshot), snapshot.processes[1:])


def test_a_counter_that_differs_is_the_cause() -> None:
    values = read(0, number("self.step", 300)), read(1, number("self.step", 50))
    snapshot = job(*values, deciders=[LOOP, EVERY])

    finding = only(collective_mismatch.check, snapshot)

    shown = "self.step is 300 at rank 0 (300), 50 at rank 1 (301)"
    assert shown in finding.evidence
    assert finding.cause.startswith(
        f"{shown}, and `if self.step % 100 == 0:` at train.py:20 fit decides by it"
    )
    assert "begin with the same self.step" in finding.advice


def test_a_setting_with_the_name_of_a_counter_is_none() -> None:
    every = EVERY._replace(names=("args.step",), counts=("args.step",))
    values = read(0, number("args.step", 300)), read(1, number("args.step", 50))

    finding = only(collective_mismatch.check, job(*values, deciders=[LOOP, every]))

    assert "begun with different values" not in finding.cause


def test_a_state_that_each_rank_has_found_itself_is_named_where_a_counter_differs() -> None:
    values = read(0, number("self.step", 300)), read(1, number("self.step", 50))
    loads = Statement(49, "state.load_state_dict(torch.load(path))")
    mark = Mark("resumes-alone", "/home/me/saves.py", "resume", "45", loads)
    snapshot = replace(job(*values, deciders=[LOOP, EVERY]), marks=(mark,))

    finding = only(collective_mismatch.check, snapshot)

    assert "resumed a state that it found itself" in finding.cause
    assert f"`{loads.text}` at saves.py:49 resume" in finding.cause


def test_a_condition_on_the_rank_around_a_collective_comes_first() -> None:
    values = read(0, number("self.step", 300)), read(1, number("self.step", 50))
    snapshot = job(*values, deciders=[LOOP, EVERY])
    under = replace(snapshot.source[0], within=(Statement(19, "if self.rank == 0:"),))

    finding = only(collective_mismatch.check, replace(snapshot, source=(under, snapshot.source[1])))

    assert "self.step is 300 at rank 0 (300), 50 at rank 1 (301)" in finding.evidence
    assert finding.cause.startswith("Only some ranks call all_gather")


def test_a_rank_that_is_one_round_ahead_has_no_other_counter() -> None:
    values = read(0, number("self.step", 51)), read(1, number("self.step", 50))
    assert differs(job(*values, deciders=[LOOP, EVERY])) is None


def test_a_counter_by_which_no_rank_got_to_its_line_is_not_the_cause() -> None:
    values = read(0, number("self.step", 300)), read(1, number("self.step", 50))
    assert differs(job(*values, deciders=[LOOP, EVERY], at=(25, 35))) is None


def test_a_condition_that_only_some_ranks_meet_is_the_cause() -> None:
    text = NameValue("found", "str", length=7)
    values = read(0, text), read(1, number("found", None))

    found = differs(job(*values, deciders=[FOUND], at=(31, 35)))

    assert found is not None
    assert found.evidence == "found is a str at rank 0 (300), None at rank 1 (301)"
    assert "`if found is not None:` at train.py:30 fit" in found.cause


def test_a_loop_of_other_length_is_the_cause() -> None:
    loop = Decider(Statement(20, "for step in range(self.steps):"), 30, ("self.steps",), ("step",))
    steps = number("self.steps", 40), number("self.steps", 37)
    values = read(0, steps[0]), read(1, steps[1])

    found = differs(job(*values, deciders=[loop], at=(25, 35)))

    assert found is not None
    assert found.evidence == "self.steps is 40 at rank 0 (300), 37 at rank 1 (301)"
    assert "drop_last" in found.advice
    assert differs(job(*values, deciders=[loop], at=(25, 26))) is None


BEGUN = Decider(
    Statement(20, "for epoch in range(self.first, args.epochs):"),
    40,
    ("self.first", "args.epochs"),
    ("epoch",),
    starts=("self.first",),
)


def begun(first: tuple[int, int], last: tuple[int, int] | None, **more: Any) -> Difference | None:
    """Two ranks in one loop over a range, by what its first and last number are."""
    values = [
        read(
            n,
            number("self.first", first[n]),
            *([number("args.epochs", last[n])] if last else []),
        )
        for n in range(2)
    ]
    return differs(job(*values, deciders=[BEGUN._replace(**more)], at=(25, 35)))


def test_a_loop_that_begins_with_another_number_is_the_cause() -> None:
    for last in ((9, 9), None):
        found = begun((3, 2), last)
        assert found is not None
        assert found.evidence == "self.first is 3 at rank 0 (300), 2 at rank 1 (301)"
        assert "train.py:20 fit does not begin with the same number" in found.cause
        assert "all_gather_object" in found.advice


def test_a_loop_over_a_part_of_the_work_begins_where_that_part_does() -> None:
    assert begun((3, 3), (9, 9)) is None
    assert begun((0, 4), (4, 8)) is None
    assert begun((0, 4), None, names=("self.first", "stop")) is None
    assert begun((0, 4), (9, 9), starts=()) is None


def test_a_rank_that_has_not_come_to_the_loop_has_not_begun_it() -> None:
    values = read(0, number("self.first", 3)), read(1, number("self.first", 0))
    assert differs(job(*values, deciders=[BEGUN], at=(25, 15))) is None


def test_the_mode_of_a_module_is_not_the_cause() -> None:
    mode = Decider(Statement(30, "if self.training:"), 32, ("self.training",))
    values = read(0, number("self.training", True)), read(1, number("self.training", False))
    assert differs(job(*values, deciders=[mode], at=(31, 35))) is None


def test_growth_is_asked_for_only_where_a_hook_can_answer() -> None:
    line = SourceLine(FILE, 21, "fit", Statement(21, "call()"), added=(ROWS,))
    outside = rank(0, "all_gather", 21)
    grows = [finding("steady-growth", pid(300))]

    for each, count in ((outside, 0), (replace(outside, hook=Hook("ready")), 1)):
        snapshot = snapshot_of(main(), each, source=(line,))
        assert len(wanted_values(Index(snapshot), grows)) == count


@pytest.mark.parametrize(
    ("values", "at"),
    [
        (((NameValue("found", "str", length=7)), NameValue("found", "str", length=9)), (31, 35)),
        ((number("found", None), NameValue("found", "str", length=9)), (33, 35)),
        ((number("found", 3), number("found", 9)), (31, 35)),
    ],
    ids=["two texts", "both are behind it", "numbers of data"],
)
def test_what_does_not_part_ranks_is_not_the_cause(
    values: tuple[NameValue, NameValue], at: tuple[int, int]
) -> None:
    of_ranks = read(0, values[0]), read(1, values[1])
    assert differs(job(*of_ranks, deciders=[FOUND], at=at)) is None


def test_a_condition_on_the_rank_differs_by_design() -> None:
    on_rank = FOUND._replace(statement=Statement(30, "if rank == 0 and found is None:"))
    values = read(0, number("found", True)), read(1, number("found", None))
    assert differs(job(*values, deciders=[on_rank], at=(31, 35))) is None


def test_without_values_of_all_ranks_nothing_is_said() -> None:
    assert differs(job(read(0, number("self.step", 300)), deciders=[LOOP, EVERY])) is None
    assert differs(job(deciders=[LOOP, EVERY])) is None


# --- what is asked for ---------------------------------------------------------------------------


def finding(rule: str, process: ProcessId, resolved_s: float | None = None) -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.WARNING,
        summary="",
        evidence=(),
        cause="",
        advice="",
        process=process,
        resolved_s=resolved_s,
    )


def test_ranks_of_a_mismatch_are_asked_for_the_names_that_decide() -> None:
    snapshot = job(deciders=[LOOP, FOUND])

    found = wanted_values(Index(snapshot), [finding("collective-mismatch", pid(301))])

    assert {process.pid: [each.names for each in frames] for process, frames in found.items()} == {
        300: [("self.step", "found")],
        301: [("self.step", "found")],
    }


@pytest.mark.parametrize("rule", ["rank-stuck-in-collective", "standing-still"])
def test_ranks_in_one_collective_are_asked_for_the_rank_that_they_name(rule: str) -> None:
    ranks = rank(0, "broadcast", 21), rank(1, "broadcast", 21)
    source = SourceLine(FILE, 21, "fit", Statement(21, "dist.broadcast(p, src=self.src)"))
    index = Index(snapshot_of(main(), *ranks, source=(source,)))

    found = wanted_values(index, [finding(rule, pid(300))])

    assert {each.pid: [f.names for f in frames] for each, frames in found.items()} == {
        300: [("self.src",)],
        301: [("self.src",)],
    }
    assert wanted_values(index, [finding("standing-still", pid(100))]) == {}


def test_nothing_is_asked_without_a_finding_that_wants_it() -> None:
    snapshot = job(deciders=[LOOP])
    others = [
        finding("straggler-worker", pid(301)),
        finding("collective-mismatch", pid(301), resolved_s=NOW_S),
    ]
    assert wanted_values(Index(snapshot), others) == {}
    assert wanted_values(Index(snapshot), []) == {}


# --- growth --------------------------------------------------------------------------------------

ROWS = AddedTo("self.rows", FILE, "add", Statement(50, "self.rows.append(row)"), False)
STATE = AddedTo(
    "self.state", FILE, "step", Statement(60, "self.state = f(self.state)"), False, True
)


def growing(*values: NameValue, every_s: float = 5.0) -> Snapshot:
    reads = [read(0, each, at_s=NOW_S + n * every_s) for n, each in enumerate(values)]
    source = SourceLine(FILE, 21, "fit", Statement(21, "call()"), added=(ROWS, STATE))
    return snapshot_of(main(), rank(0, "all_gather", 21), source=(source,), values=tuple(reads))


def rows(length: int, has_graph: bool | None = None) -> NameValue:
    return NameValue("self.rows", "list", length=length, has_graph=has_graph)


def test_a_container_that_grows_has_its_rate() -> None:
    (found,) = grown(Index(growing(rows(100), rows(250), rows(400))), pid(300))
    assert (found.added, found.per_s, found.value.length) == (ROWS, 30.0, 400)


@pytest.mark.parametrize(
    "lengths",
    [
        (100, 250),
        (100, 250, 250),
        (100, 250, 200),
        (100, 101, 100 + LEAST - 1),
        (4, 4, 4),
    ],
    ids=["two readings", "it has reached its bound", "it was emptied", "hardly", "as long"],
)
def test_other_containers_do_not_grow(lengths: Sequence[int]) -> None:
    assert grown(Index(growing(*map(rows, lengths))), pid(300)) == ()


def test_a_global_container_that_grows_is_found_whatever_the_stacks_show() -> None:
    adds = Mark("registry", "/app/log.py", "enable", "known", Statement(33, "known[key] = handler"))
    frames = [
        ValuesRead(
            pid(300),
            NOW_S + 5.0 * n,
            "hook",
            (FrameValues(0, adds.file, "<module>", 0, (NameValue("known", "dict", length=each),)),),
        )
        for n, each in enumerate((100, 180, 260))
    ]
    hooked = replace(rank(0, "all_gather", 21), hook=Hook("ready"))
    index = Index(snapshot_of(main(), hooked, marks=(adds,), values=tuple(frames)))

    (found,) = grown(index, pid(300))
    asked = wanted_values(index, [finding("steady-growth", pid(300))])

    assert found.words == "`known` (dict, log.py:33 enable) has 260 entries, 16 a second more"
    assert asked == {pid(300): (WantedFrame(0, adds.file, "<module>", ("known",)),)}


def test_an_attribute_whose_graph_goes_on_is_found() -> None:
    state = NameValue("self.state", "Tensor", has_graph=True)
    (found,) = grown(Index(growing(*[state] * READINGS)), pid(300))
    assert found.added == STATE

    cut = state._replace(has_graph=False)
    assert grown(Index(growing(state, cut, state)), pid(300)) == ()


# --- rounds and loops ----------------------------------------------------------------------------


def test_ranks_in_one_round_are_known_to_be() -> None:
    same = read(0, number("self.step", 49)), read(1, number("self.step", 49))
    apart = read(0, number("self.step", 49)), read(1, number("self.step", 50))

    for values, words in ((same, "self.step is 49"), (apart, ""), ((), "")):
        snapshot = job(*values, deciders=[LOOP, EVERY])
        assert same_round(Index(snapshot), snapshot.processes[1:]) == words


WAITS = Decider(
    Statement(10, "while self.done < self.total:"), 14, ("self.done", "self.total"), ("self.done",)
)


def polling(*values: NameValue) -> Snapshot:
    return snapshot_of(
        main(),
        rank(0, "sleep", 12),
        source=lines(12, deciders=[WAITS]),
        values=(read(0, *values),),
    )


def test_the_condition_of_a_loop_has_its_values() -> None:
    snapshot = polling(number("self.done", 3), number("self.total", 4))
    assert loop_values(Index(snapshot), snapshot.processes[1]) == (
        "`while self.done < self.total:` of line 10: self.done is 3, self.total is 4"
    )


def test_a_loop_without_values_says_nothing() -> None:
    snapshot = polling()
    assert loop_values(Index(snapshot), snapshot.processes[1]) == ""
    assert loop_values(Index(snapshot), snapshot.processes[0]) == ""


def test_old_values_are_not_compared() -> None:
    snapshot = polling(number("self.done", 3))
    later = replace(snapshot, at_s=NOW_S + NEW_S + 1)
    assert loop_values(Index(later), later.processes[1]) == ""
