from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.throughput.account import EVERY_S, MANY
from mpwatch.diagnose.engine import (
    CALM_S,
    LINGER_LIMIT_S,
    LINGER_S,
    RETURNS_S,
    RULE_FAILED,
    RULES,
    SHARES_LINGER_S,
    SHOWN_RESOLVED_S,
    STEADY_S,
    Engine,
    Rule,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import LogEntry, Snapshot
from mpwatch.model.source_code import SourceLine, Statement
from mpwatch.model.waits import WaitEdge, WaitGraph
from tests.builders.snapshots import (
    MAIN,
    NO_HISTORY,
    NOW_S,
    exited,
    main,
    pid,
    process,
    snapshot_of,
)

PARENT, CHILD = pid(MAIN), pid(301)


def finding(rule: str, severity: Severity = Severity.WARNING, **more: object) -> Finding:
    return Finding(rule, severity, "summary", ("seen",), "cause", "advice", **more)  # type: ignore[arg-type]


class Script:
    """A rule that yields the findings that the test sets."""

    def __init__(self, *looks: Iterable[Finding]) -> None:
        self._looks = iter(looks)

    def __call__(self, index: Index) -> Iterator[Finding]:
        yield from next(self._looks, ())


def engine(*looks: Iterable[Finding]) -> Engine:
    return Engine((Rule("scripted", Script(*looks)),))


def findings(engine: Engine, snapshot: Snapshot) -> tuple[Finding, ...]:
    return engine.diagnosed(snapshot, NO_HISTORY).findings


def look(engine: Engine, after_s: float) -> tuple[Finding, ...]:
    return findings(engine, snapshot_of(main(), at_s=NOW_S + after_s))


def test_what_was_derived_of_a_reading_is_freed_without_the_garbage_collector() -> None:
    indexes: list[object] = []

    def remember(index: Index) -> Iterator[Finding]:
        indexes.append(id(index))
        yield from ()

    one = Engine((*RULES, Rule("remembers", remember)))
    gc.disable()
    try:
        one.diagnosed(snapshot_of(main(), process(200), process(201)), NO_HISTORY)
        left = {id(each) for each in gc.get_objects() if isinstance(each, Index)}
    finally:
        gc.enable()

    assert indexes
    assert left.isdisjoint(indexes)


def test_a_large_job_is_due_again_after_a_while_and_at_once_after_an_exit() -> None:
    workers = [process(200 + number) for number in range(MANY)]
    ran: list[float] = []

    def note(index: Index) -> Iterator[Finding]:
        ran.append(index.snapshot.at_s)
        yield from ()

    watched = Engine((Rule("notes", note),))
    due: list[float] = []
    for after_s, shown in ((0.0, MANY), (1.0, MANY), (2.0, MANY - 1), (3.0, MANY - 1), (6.0, 1)):
        snapshot = snapshot_of(main(), *workers[:shown], at_s=NOW_S + after_s)
        if watched.is_due(snapshot):
            due.append(snapshot.at_s)
        watched.diagnosed(snapshot, NO_HISTORY)

    assert due == ran == [NOW_S, NOW_S + 2.0, NOW_S + 6.0]
    assert watched.is_due(snapshot_of(main(), at_s=NOW_S)), "an older snapshot is of another watch"


def test_a_healthy_job_with_every_role_has_no_finding() -> None:
    workers = [process(200 + i) for i in range(3)]
    others = [process(300, "resource-tracker"), process(301, "forkserver"), process(302, "rank")]

    assert findings(Engine(), snapshot_of(main(), *workers, *others)) == ()


def test_every_rule_has_its_own_id() -> None:
    ids = [rule.id for rule in RULES]

    assert len(set(ids)) == len(ids)


def test_a_finding_remembers_when_it_was_first_seen() -> None:
    watched = engine([finding("a")], [finding("a")])

    look(watched, 0)

    assert [f.first_seen_s for f in look(watched, 5)] == [NOW_S]


def test_a_finding_missed_once_does_not_flicker() -> None:
    watched = engine([finding("a")], [], [finding("a")])

    look(watched, 0)

    assert [f.resolved_s for f in look(watched, 1)] == [None]
    assert [f.first_seen_s for f in look(watched, 2)] == [NOW_S]


def test_what_was_said_of_a_stall_at_first_sight_goes_once_more_is_known() -> None:
    """A job that has stood still for hours is judged before its stacks are read."""
    rough, exact = finding("no-progress", process=PARENT), finding("no-progress", process=CHILD)
    watched = engine([rough], [exact], [exact], [rough, exact])

    seen = [{each.process for each in look(watched, after_s)} for after_s in (0, 1, 2, 3)]

    assert seen == [{PARENT}, {CHILD}, {CHILD}, {PARENT, CHILD}]


def test_a_stall_that_was_known_for_longer_or_alone_stays_for_a_moment() -> None:
    known, other = finding("no-progress", process=PARENT), finding("no-progress", process=CHILD)
    lasting = engine([known], [known], [other])
    alone = engine([known], [], [finding("fd-exhaustion", process=CHILD)])

    for after_s in (0, LINGER_S):
        look(lasting, after_s)
        look(alone, after_s / 4)

    assert {each.process for each in look(lasting, LINGER_S + 1)} == {PARENT, CHILD}
    assert PARENT in {each.process for each in look(alone, LINGER_S - 1)}


def test_a_finding_that_is_gone_is_resolved_then_dropped() -> None:
    watched = engine([finding("a", eta_s=4.0)])
    look(watched, 0)
    look(watched, 1)

    (resolved,) = look(watched, LINGER_S)

    assert resolved.resolved_s == NOW_S + LINGER_S
    assert resolved.eta_s is None
    assert len(look(watched, LINGER_S + SHOWN_RESOLVED_S - 1)) == 1
    assert look(watched, LINGER_S + SHOWN_RESOLVED_S) == ()


def test_a_finding_about_a_process_that_is_no_longer_kept_goes_with_it() -> None:
    found = finding("scripted", process=pid(200))
    whose = engine([found], [], [found])

    findings(whose, snapshot_of(main(), process(200)))
    assert findings(whose, snapshot_of(main(), at_s=NOW_S + 1)) == ()
    assert len(findings(whose, snapshot_of(main(), at_s=NOW_S + 2))) == 1


def test_a_finding_that_one_late_reading_misses_is_not_resolved() -> None:
    watched = engine([finding("a")], [])
    look(watched, 0)

    seen = [
        f.resolved_s for after_s in (3 * LINGER_S, 3 * LINGER_S + 1) for f in look(watched, after_s)
    ]

    assert seen == [None, NOW_S + 3 * LINGER_S + 1]


def test_a_finding_that_comes_back_is_new() -> None:
    watched = engine([finding("a")], [], [], [finding("a")])
    for after_s in (0, 5, 10):
        look(watched, after_s)

    (again,) = look(watched, 20)

    assert (again.first_seen_s, again.resolved_s) == (NOW_S + 20, None)


def wavering(*more: Finding) -> Engine:
    """A share that was over its threshold for 20 s, and then no longer; and other findings."""
    slow = finding("bottleneck-process", Severity.INFO)
    watched = engine([slow], [slow], [slow], *([list(more)] * 20))
    for after_s in (0, 10, 20):
        look(watched, after_s)
    return watched


def present(found: Iterable[Finding]) -> set[str]:
    return {each.rule for each in found if each.resolved_s is None}


def test_where_the_time_goes_is_told_only_where_nothing_else_is() -> None:
    spot = finding("hot-spot", Severity.INFO, is_doubtful=True)
    other = finding("lock-contention", Severity.INFO)
    watched = engine([spot], [spot, other], *([[other]] * 60))

    assert present(look(watched, 0)) == {"hot-spot"}
    assert present(look(watched, 1)) == {"lock-contention"}
    later = [look(watched, after_s) for after_s in range(2, 50)]
    assert {each.rule for found in later for each in found} == {"lock-contention"}


def test_what_wastes_time_is_told_beside_other_findings_and_before_files_that_may_be_output() -> (
    None
):
    spot = finding("hot-spot", Severity.INFO)
    files = finding(
        "steady-growth",
        Severity.INFO,
        is_doubtful=True,
        subject="temporary files",
        eta_s=5400.0,
    )
    memory = replace(files, subject="memory")
    innocent = replace(spot, is_doubtful=True)

    def told(*given: Finding) -> list[str]:
        return [each.subject or each.rule for each in look(engine(given), 0)]

    assert told(spot, files) == ["hot-spot", "temporary files"]
    assert told(innocent, files) == ["hot-spot", "temporary files"]
    assert told(spot, memory) == ["hot-spot", "memory"]
    assert told(innocent, memory) == ["memory"]


def test_a_share_that_held_for_most_of_the_time_does_not_vanish_at_the_last_moment() -> None:
    watched = wavering()

    seen = [present(look(watched, after_s)) for after_s in (22, 25, 28, 35, 39, 40)]

    assert seen == [{"bottleneck-process"}] * 5 + [set()]


def test_a_share_that_was_seen_only_briefly_stays_for_a_while() -> None:
    share = finding("pickling-cost", Severity.INFO)
    watched = engine(*([share] for _ in range(6)), *([] for _ in range(40)))
    present = [present_of(look(watched, second)) for second in range(40)]

    assert all(present[: 5 + int(SHARES_LINGER_S)])
    assert not present[-1]


def present_of(found: Iterable[Finding]) -> bool:
    return any(each.resolved_s is None for each in found)


def test_readings_far_apart_resolve_no_share_of_time() -> None:
    slow = finding("bottleneck-process", Severity.INFO)
    watched = engine([slow])
    look(watched, 0)

    seen = [present(look(watched, after_s)) for after_s in (5, 10, 15, 20)]

    assert seen == [{"bottleneck-process"}] * 3 + [set()]


def test_a_share_of_time_says_nothing_of_a_job_that_has_failed_since() -> None:
    stuck = wavering(finding("worker-died", Severity.CRITICAL))
    doubtful = wavering(finding("worker-died", Severity.WARNING))

    assert present(look(stuck, 21)) == {"worker-died", "bottleneck-process"}
    assert present(look(stuck, 22)) == {"worker-died"}  # nothing moves at any pace
    look(doubtful, 21)
    assert present(look(doubtful, 22)) == {"worker-died", "bottleneck-process"}
    assert present(look(doubtful, 20 + LINGER_S)) == {"worker-died"}


def test_a_share_of_time_goes_once_its_process_is_known_to_stay_in_a_loop() -> None:
    """The account of a minute still has what was so before."""
    slow = finding("straggler-worker", Severity.INFO, process=PARENT)
    stuck = finding("rank-stuck-in-collective", Severity.INFO, process=PARENT, says_why=True)
    others = [stuck, replace(stuck, says_why=False), replace(stuck, process=None)]
    seen = []
    for each in others:
        watched = engine([slow], [slow], [slow], *([[each]] * 4))
        times = (0, 10, 20, 21, 22, 23, 20 + LINGER_S)
        seen.append([present(look(watched, at)) for at in times][-2:])

    both = {slow.rule, stuck.rule}
    assert seen == [[{stuck.rule}] * 2, [both, {stuck.rule}], [both, both]]


def test_a_finding_about_one_more_process_is_the_same_finding() -> None:
    of_one = finding("grows", process=pid(201), subject="memory")
    of_two = finding("grows", process=pid(200), others=(pid(201),), subject="memory")
    of_another = finding("grows", process=pid(202), subject="memory")
    told = engine([of_one], [of_two, of_another], [of_one, of_another])

    look(told, 0)
    more = look(told, 1)
    fewer = look(told, 2)

    assert {(each.process, each.first_seen_s) for each in more} == {
        (pid(200), NOW_S),
        (pid(202), NOW_S + 1),
    }
    assert {each.process for each in fewer} == {pid(201), pid(202)}


def test_severity_falls_only_after_it_has_been_lower_for_a_while() -> None:
    low, high = [finding("a", Severity.WARNING)], [finding("a", Severity.CRITICAL)]
    watched = engine(low, high, low, low)

    seen = [look(watched, after_s)[0].severity for after_s in (0, 1, 2, 12)]

    assert seen == [Severity.WARNING, Severity.CRITICAL, Severity.CRITICAL, Severity.WARNING]


def test_the_most_severe_and_soonest_comes_first() -> None:
    watched = engine(
        [
            finding("a", Severity.INFO),
            finding("b", Severity.CRITICAL, eta_s=50.0),
            finding("c", Severity.CRITICAL, eta_s=5.0),
            finding("d"),
        ]
    )

    assert [f.rule for f in look(watched, 0)] == ["c", "b", "d", "a"]


def test_a_job_that_is_blocked_is_reported_before_its_results_are_wrong() -> None:
    results, stuck = finding("numpy-rng-identical"), finding("stuck-worker-io")
    slow = [results, finding("loader-starvation")]
    watched = engine([results], [results, stuck], slow, slow)

    assert look(watched, 0)[0].rule == "numpy-rng-identical"
    assert [f.rule for f in look(watched, 1)] == ["stuck-worker-io", "numpy-rng-identical"]
    look(watched, 60)
    assert look(watched, 90)[0].rule == "numpy-rng-identical"


def test_a_growth_without_a_known_limit_comes_before_what_merely_sleeps() -> None:
    sleeps = finding("no-progress", Severity.INFO, is_doubtful=True)
    grows = finding("steady-growth", Severity.INFO, is_doubtful=True)
    watched = engine([sleeps], [sleeps, grows])

    assert [f.rule for f in look(watched, 0)] == ["no-progress"]
    assert [f.rule for f in look(watched, 1)] == ["steady-growth", "no-progress"]


def test_what_costs_time_or_reaches_a_limit_soon_comes_before_what_merely_waits() -> None:
    growth = finding("steady-growth", Severity.INFO, is_doubtful=True, eta_s=2600.0)
    far = finding("grows", Severity.INFO, is_doubtful=True, eta_s=36_000.0)
    told = engine(
        [
            finding("no-progress", Severity.INFO, is_doubtful=True),
            far,
            finding("disk-waits", Severity.INFO),
            growth,
        ],
        [finding("no-progress", Severity.WARNING), growth],
    )

    assert [f.rule for f in look(told, 0)] == [
        "disk-waits",
        "steady-growth",
        "no-progress",
        "grows",
    ]
    assert look(told, 1)[0].rule == "no-progress"


def test_a_growth_whose_limit_is_far_comes_before_the_pace_of_sleeps() -> None:
    pace = finding("pipeline-bottleneck", Severity.INFO, is_doubtful=True)
    growth = finding("steady-growth", Severity.INFO, is_doubtful=True, eta_s=3780.0)
    watched = engine([pace, growth], [replace(pace, is_doubtful=False), growth])

    assert [f.rule for f in look(watched, 0)] == ["steady-growth", "pipeline-bottleneck"]
    assert look(watched, 1)[0].rule == "pipeline-bottleneck"


def test_a_queue_that_grows_is_shown_below_the_consumer_that_slows_down() -> None:
    queue = finding(
        "steady-growth", Severity.INFO, is_doubtful=True, subject="queue", process=pid(MAIN)
    )
    slows = finding("bottleneck-process", Severity.INFO, subject="rounds", process=pid(300))
    shown = look(engine([queue, slows]), 0)

    assert [each.rule for each in shown] == ["bottleneck-process", "steady-growth"]
    assert shown[1].effect_of == "bottleneck-process"


def test_of_equal_findings_what_costs_most_of_the_time_comes_first() -> None:
    little = finding("pickling-cost", Severity.INFO, costs=0.2)
    unknown = finding("disk-waits", Severity.INFO)
    most = finding("lock-contention", Severity.INFO, costs=0.87)
    watched = engine([little, unknown], [little, unknown, most])

    assert [each.rule for each in look(watched, 0)] == ["disk-waits", "pickling-cost"]
    assert [each.rule for each in look(watched, 1)] == [
        "lock-contention",
        "disk-waits",
        "pickling-cost",
    ]


def test_a_growth_that_ends_far_below_any_limit_comes_after_what_costs_time() -> None:
    ends = finding("copy-on-write-growth", Severity.INFO, is_doubtful=True)
    waits = finding("loader-starvation", Severity.INFO, costs=0.87)
    watched = engine([ends], [ends, waits], [replace(ends, is_doubtful=False), waits])

    assert [each.rule for each in look(watched, 0)] == ["copy-on-write-growth"]
    assert look(watched, 1)[0].rule == "loader-starvation"
    assert look(watched, 2)[0].rule == "copy-on-write-growth"


def test_a_limit_that_is_hours_away_comes_after_what_is_wrong_now() -> None:
    watched = engine(
        [finding("grows", eta_s=36_000.0), finding("lost"), finding("soon", eta_s=60.0)]
    )

    assert [f.rule for f in look(watched, 0)] == ["soon", "lost", "grows"]


def test_effects_are_listed_below_their_cause_however_severe_they_are() -> None:
    watched = engine(
        [
            finding("other", Severity.WARNING),
            finding("feeder-thread-drops-batch", Severity.CRITICAL),
            finding("shm-full-enospc", Severity.WARNING),
        ]
    )

    seen = look(watched, 0)

    assert [(f.rule, f.effect_of) for f in seen] == [
        ("shm-full-enospc", None),
        ("feeder-thread-drops-batch", "shm-full-enospc"),
        ("other", None),
    ]


def test_an_effect_without_its_cause_is_a_finding_of_its_own() -> None:
    (alone,) = look(engine([finding("feeder-thread-drops-batch")]), 0)

    assert alone.effect_of is None


def test_a_stalled_job_is_one_finding_if_another_rule_explains_it() -> None:
    both = [finding("standing-still"), finding("fork-openmp")]

    assert [f.rule for f in look(engine(both), 0)] == ["fork-openmp"]
    assert [f.rule for f in look(engine(both[:1]), 0)] == ["standing-still"]


def test_processes_that_try_to_connect_to_one_that_has_ended_are_reported_below_its_end() -> None:
    ended = finding("worker-exited-unexpectedly")
    waits, connects = finding("no-progress"), finding("no-progress", subject="connects")

    assert [f.rule for f in look(engine([ended, waits]), 0)] == [ended.rule]
    assert [f.subject for f in look(engine([ended, connects]), 0)] == ["", "connects"]


def test_a_rule_may_name_the_cause_itself() -> None:
    watched = engine([finding("x"), finding("y", Severity.CRITICAL, effect_of="x")])

    assert [(f.rule, f.effect_of) for f in look(watched, 0)] == [("x", None), ("y", "x")]


def test_a_named_cause_that_is_absent_does_not_hide_its_effect() -> None:
    assert len(look(engine([finding("y", effect_of="nowhere")]), 0)) == 1


def test_a_rule_that_raises_is_a_finding_and_the_others_continue() -> None:
    def broken(index: Index) -> Iterator[Finding]:
        yield finding("half")
        raise KeyError("fds")

    watched = Engine((Rule("broken", broken), Rule("fine", Script([finding("a")]))))

    seen = {f.rule: f for f in look(watched, 0)}

    assert set(seen) == {"half", "a", RULE_FAILED}
    assert seen[RULE_FAILED].subject == "broken"
    assert seen[RULE_FAILED].severity is Severity.INFO
    assert "KeyError: 'fds'" in seen[RULE_FAILED].evidence


def test_waits_that_cannot_be_derived_are_a_finding_and_the_rules_continue() -> None:
    def broken(index: Index) -> WaitGraph:
        raise RecursionError("too deep")

    watched = Engine((Rule("fine", Script([finding("a")])),), broken)

    diagnosed = watched.diagnosed(snapshot_of(main()), NO_HISTORY)
    assert diagnosed.waits == WaitGraph()
    seen = {f.rule: f for f in diagnosed.findings}
    assert set(seen) == {"a", RULE_FAILED}
    assert seen[RULE_FAILED].subject == "waits"


def test_the_finding_about_waits_is_resolved_once_they_can_be_derived_again() -> None:
    graphs = iter((ValueError(), WaitGraph(), WaitGraph()))

    def sometimes(index: Index) -> WaitGraph:
        graph = next(graphs)
        if isinstance(graph, ValueError):
            raise graph
        return graph

    watched = Engine((), sometimes)
    look(watched, 0)
    look(watched, 5)

    (passed,) = look(watched, 10)
    assert passed.resolved_s is not None


STALL = ("rank-stuck-in-collective", Severity.CRITICAL)


def after_a_death(**ends: int) -> tuple[Finding, ...]:
    """What is found 12 s after a worker was killed, while main was said to be stalled."""
    told = replace(finding(*STALL), process=pid(MAIN))
    one = engine([told], [told], [], [], [], [])
    for after_s in (0.0, 2.0):
        findings(one, snapshot_of(main(), process(200, "rank"), at_s=NOW_S + after_s))
    killed = process(200, "rank", ended=exited(200, at_s=NOW_S + 3, signal=9))
    top = main(ended=exited(MAIN, at_s=NOW_S + 4, **ends)) if ends else main()
    for after_s in (4.0, 8.0, 12.0):
        found = findings(one, snapshot_of(top, killed, at_s=NOW_S + after_s))
    return found


@pytest.mark.parametrize("ends", [{}, {"signal": 15}, {"exit_code": 1}])
def test_a_stall_that_was_known_before_a_death_stays_as_what_was_before(
    ends: dict[str, int],
) -> None:
    (stays,) = after_a_death(**ends)

    assert stays.resolved_s is None
    assert stays.summary.endswith(" (200) ended, summary")
    assert stays.summary.startswith("before ")
    assert stays.effect_of is None


def test_what_was_before_is_told_once_and_as_it_was_before() -> None:
    told = replace(finding(*STALL), process=pid(MAIN), summary="3 ranks wait")
    fewer, general = (
        replace(told, summary="2 ranks wait"),
        finding("no-progress", process=pid(MAIN)),
    )
    one = engine([told, general], [told, general], [fewer, general], [], [], [])
    killed = process(200, "rank", ended=exited(200, at_s=NOW_S + 3, signal=9))
    ended = main(ended=exited(MAIN, at_s=NOW_S + 5, exit_code=1))
    for after_s, *job in (
        (0.0, main(), process(200)),
        (2.0, main(), process(200)),
        (4.0, main(), killed),
        (8.0, ended, killed),
    ):
        findings(one, snapshot_of(*job, at_s=NOW_S + after_s))
    (stays,) = findings(one, snapshot_of(ended, killed, at_s=NOW_S + 12))

    assert stays.summary.endswith("(200) ended, 3 ranks wait")


def test_a_stall_that_ends_without_a_failure_is_resolved() -> None:
    told = replace(finding(*STALL), process=pid(MAIN))
    one = engine([told], [told], [], [], [], [])
    for after_s in (0.0, 2.0, 4.0, 8.0):
        findings(one, snapshot_of(main(), at_s=NOW_S + after_s))
    (gone,) = findings(one, snapshot_of(main(), at_s=NOW_S + 12))

    assert gone.resolved_s is not None
    assert gone.summary == "summary"


def test_another_job_starts_without_findings() -> None:
    watched = engine([finding("a")])
    look(watched, 0)

    assert findings(watched, snapshot_of(main(7), root=pid(7))) == ()


def test_a_replay_sought_backwards_starts_without_findings() -> None:
    watched = engine([finding("a")])
    look(watched, 100)

    assert look(watched, 50) == ()


def looks_at(engine: Engine, count: int, *moments_s: float) -> list[tuple[Finding, ...]]:
    processes = [main(), *(process(1000 + number) for number in range(1, count))]
    snapshots = [snapshot_of(*processes, at_s=NOW_S + at_s) for at_s in moments_s]
    return [findings(engine, each) for each in snapshots]


def counting_rules(count: int) -> tuple[list[int], tuple[Rule, ...]]:
    """Rules that note each time they run."""
    asked: list[int] = []

    def rule(number: int) -> Rule:
        def check(index: Index) -> Iterator[Finding]:
            asked.append(number)
            yield finding(f"rule-{number}")

        return Rule(f"rule-{number}", check)

    return asked, tuple(map(rule, range(count)))


def test_rules_of_many_processes_run_on_every_third_reading() -> None:
    asked, rules = counting_rules(3)
    looks_at(Engine(rules), MANY, 0.0, 1.0, 2.0)
    assert asked == [0, 1, 2]
    asked.clear()
    looks_at(Engine(rules), MANY, *map(float, range(7)))
    assert asked == [0, 1, 2] * 3


def test_waits_of_many_processes_are_derived_when_the_rules_run() -> None:
    derived: list[float] = []

    def waits(index: Index) -> WaitGraph:
        derived.append(index.snapshot.at_s - NOW_S)
        return WaitGraph((WaitEdge(pid(MAIN), MAIN, "child", "exit", (pid(1000 + len(derived)),)),))

    watched = Engine((), waits)
    processes = [main(), *(process(1000 + number) for number in range(1, MANY))]
    job = snapshot_of(*processes)
    shown = []
    for second in range(5):
        snapshot = watched.diagnosed(replace(job, at_s=NOW_S + second), NO_HISTORY)
        shown.append(snapshot.waits.edges[0].providers[0].pid)

    assert derived == [0, 3]
    assert shown == [1001, 1001, 1001, 1002, 1002]
    assert watched.preview(job, NO_HISTORY, all_rules=True).waits.edges[0].providers[0].pid == 1003


def test_rules_run_at_once_after_an_error_or_a_process_start() -> None:
    asked, rules = counting_rules(1)
    engine = Engine(rules)
    processes = [main(), *(process(1000 + number) for number in range(1, MANY))]
    quiet = snapshot_of(*processes)
    told = replace(quiet, log=(LogEntry(1, NOW_S, 5e9, "exception", None, "it raised"),))
    joined = replace(told, processes=(*told.processes, process(3000)))
    for second, each in enumerate((quiet, quiet, told, told, joined, joined)):
        findings(engine, replace(each, at_s=NOW_S + second))
        asked.append(-second)

    assert asked == [0, 0, -1, 0, -2, -3, 0, -4, -5]


def test_findings_of_a_rule_are_kept_while_it_does_not_run() -> None:
    _, rules = counting_rules(2)

    for found in looks_at(Engine(rules), MANY, *map(float, range(9))):
        assert [each.rule for each in found if each.resolved_s is None] == ["rule-0", "rule-1"]


def test_every_rule_runs_for_few_processes_and_after_a_pause() -> None:
    asked, rules = counting_rules(2)
    looks_at(Engine(rules), MANY - 1, 0.0, 1.0, 2.0)
    assert asked == [0, 1] * 3
    asked.clear()
    looks_at(Engine(rules), MANY, 0.0, EVERY_S + 0.1, 10.0)
    assert asked == [0, 1] * 3


def calm_runs(severity: Severity, *, joins: bool = False) -> tuple[list[float], list[float]]:
    """When the rules ran after `STEADY_S`, and when time was accounted for, each from 0 on."""
    ran: list[float] = []

    def note(index: Index) -> Iterator[Finding]:
        ran.append(index.snapshot.at_s - NOW_S)
        yield finding("notes", severity)

    watched, accounted = Engine((Rule("notes", note),)), []
    processes = [main(), *(process(1000 + number) for number in range(1, MANY))]
    for second in map(float, range(60)):
        if joins and second == STEADY_S + 2:
            processes.append(process(3000))
        seen = watched.diagnosed(snapshot_of(*processes, at_s=NOW_S + second), NO_HISTORY)
        accounted.append(seen.account.at_s - NOW_S)
        assert [each.rule for each in seen.findings if each.resolved_s is None] == ["notes"]
    return [at_s for at_s in ran if at_s >= STEADY_S], sorted({*accounted})


def test_rules_run_half_as_often_in_a_large_calm_job_and_time_is_counted_as_often() -> None:
    ran, accounted = calm_runs(Severity.INFO)

    assert ran == [33.0, 39.0, 45.0, 51.0, 57.0]
    assert accounted == [float(at_s) for at_s in range(0, 60, 3)]


def test_rules_run_as_often_as_before_while_a_finding_is_a_warning() -> None:
    assert calm_runs(Severity.WARNING)[0] == [float(at_s) for at_s in range(30, 60, 3)]


def test_rules_run_at_once_and_as_often_as_before_after_a_start_in_a_calm_job() -> None:
    ran, _ = calm_runs(Severity.INFO, joins=True)

    assert ran == [32.0, *(float(at_s) for at_s in range(35, 60, 3))]


def test_a_preview_does_not_affect_later_findings() -> None:
    _, rules = counting_rules(2)
    watched, other = Engine(rules), Engine(rules)
    processes = [main(), *(process(1000 + number) for number in range(1, MANY))]
    for second in range(9):
        snapshot = snapshot_of(*processes, at_s=NOW_S + second)
        between = snapshot_of(*processes, at_s=NOW_S + second + 0.5)
        seen = watched.diagnosed(snapshot, NO_HISTORY)
        watched.preview(between, NO_HISTORY)
        watched.preview(between, NO_HISTORY, all_rules=True)
        assert watched.preview(snapshot, NO_HISTORY) == seen
        assert watched.diagnosed(snapshot, NO_HISTORY) == seen
        assert seen == other.diagnosed(snapshot, NO_HISTORY)


def test_a_preview_of_all_rules_runs_those_that_are_not_due() -> None:
    asked, rules = counting_rules(1)
    watched = Engine(rules)
    looks_at(watched, MANY, 0.0)
    asked.clear()
    processes = [main(), *(process(1000 + number) for number in range(1, MANY))]

    watched.preview(snapshot_of(*processes, at_s=NOW_S + 1), NO_HISTORY)
    assert asked == []
    watched.preview(snapshot_of(*processes, at_s=NOW_S + 1), NO_HISTORY, all_rules=True)
    assert asked == [0]


def test_what_may_be_innocent_comes_after_what_costs_time_now() -> None:
    info = Severity.INFO
    growth = finding("a", info, eta_s=900.0, is_doubtful=True)
    slow, near = finding("loader-starvation", info), finding("b", info, eta_s=8000.0)
    watched = engine([growth, slow, near])

    assert [f.rule for f in look(watched, 0)] == ["b", "loader-starvation", "a"]


def test_a_doubtful_finding_that_is_more_severe_stays_first() -> None:
    watched = engine([finding("a", is_doubtful=True), finding("b", Severity.INFO)])

    assert [f.rule for f in look(watched, 0)] == ["a", "b"]


def test_the_source_of_the_lines_that_a_finding_names_is_evidence() -> None:
    said = replace(
        finding("a"), cause="it waits at train.py:9 save, called from main.py:3 <module>"
    )
    save = SourceLine(
        "/home/me/train.py",
        9,
        "save",
        Statement(9, "dist.barrier()"),
        within=(Statement(4, "for epoch in epochs:"),),
        after=(Statement(6, "if self.rank: return"),),
    )
    module = SourceLine("/home/me/main.py", 3, "<module>", Statement(3, "main()"))
    job = snapshot_of(main(), source=(save, module))
    two_of_a_name = replace(job, source=(save, replace(save, file="/home/you/train.py")))

    (quoted,) = findings(engine([said]), job)
    (unquoted,) = findings(engine([said]), two_of_a_name)

    assert quoted.evidence == (
        "seen",
        "train.py:9 is `dist.barrier()`, after `if self.rank: return` in line 6",
    )
    assert unquoted.evidence == ("seen",)


# --- findings over time, whatever the rules find in each reading ----------------------------------

SEVERITIES = st.none() | st.sampled_from(Severity)
"""Severity that a rule finds in one reading; `None` for no finding."""
STEPS_S = st.sampled_from([0.1, 0.5, 1.0, 2.0])


def shown(found: list[Severity | None], step_s: float) -> list[tuple[float, Finding | None]]:
    """The findings shown after each reading, with the time."""
    watched = engine(*([] if each is None else [finding("a", each)] for each in found))
    out: list[tuple[float, Finding | None]] = []
    for number in range(len(found)):
        at_s = round(number * step_s, 3)
        seen = look(watched, at_s)
        assert len(seen) <= 1
        out.append((at_s, seen[0] if seen else None))
    return out


def is_present(one: Finding | None) -> bool:
    return one is not None and one.resolved_s is None


@given(st.lists(SEVERITIES, max_size=60), STEPS_S)
def test_a_finding_is_shown_at_once_and_at_least_as_severe_as_the_rule_says(
    found: list[Severity | None], step_s: float
) -> None:
    for said, (_, one) in zip(found, shown(found, step_s), strict=True):
        if said is not None:
            assert one is not None
            assert one.resolved_s is None
            assert one.severity >= said


@given(st.lists(SEVERITIES, max_size=60), STEPS_S)
def test_a_finding_is_resolved_only_after_it_was_missing_for_long_enough(
    found: list[Severity | None], step_s: float
) -> None:
    last_seen_s = 0.0
    for said, (at_s, one) in zip(found, shown(found, step_s), strict=True):
        last_seen_s = at_s if said is not None else last_seen_s
        if one is not None and one.resolved_s is not None:
            assert at_s - last_seen_s >= LINGER_S


@given(st.lists(SEVERITIES, max_size=60), STEPS_S)
def test_the_first_time_is_kept_while_a_finding_lasts_and_severity_falls_slowly(
    found: list[Severity | None], step_s: float
) -> None:
    worst_at_s = 0.0
    for (_, before), (at_s, now) in pairwise(shown(found, step_s)):
        if before is None or now is None or not (is_present(before) and is_present(now)):
            worst_at_s = at_s
            continue
        assert now.first_seen_s == before.first_seen_s
        if now.severity < before.severity:
            assert at_s - worst_at_s >= CALM_S - step_s
        if now.severity != before.severity:
            worst_at_s = at_s


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(2, 25), STEPS_S)
def test_a_finding_that_comes_and_goes_is_held(gap: int, step_s: float) -> None:
    every = [Severity.WARNING, *[None] * (gap - 1)]
    found = (every * 400)[: int(200 / step_s)]
    if gap * step_s > LINGER_LIMIT_S:
        return

    states = [is_present(one) for _, one in shown(found, step_s)]

    changes = [index for index, (a, b) in enumerate(pairwise(states)) if a != b]
    assert len(changes) <= 6  # at most three times, then it is held


def test_a_finding_that_comes_back_at_once_is_the_same() -> None:
    found = [Severity.INFO, None, None, None, Severity.INFO]

    times = [one.first_seen_s for _, one in shown(found, 1.0) if one is not None]

    assert len(set(times)) == 1
    assert RETURNS_S > 1.0
