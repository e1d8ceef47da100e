from __future__ import annotations

from msgspec.structs import replace

from mpwatch.diagnose.consequences import CAUSES_OF, with_causes
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId


def finding(rule: str) -> Finding:
    return Finding(rule, Severity.WARNING, rule, ("seen",), "cause", "advice")


def test_the_likeliest_cause_present_is_chosen() -> None:
    effect = finding("worker-exited-unexpectedly")

    chosen = with_causes([effect, finding("shm-full-enospc"), finding("worker-segfault")])

    assert chosen[effect] == "worker-segfault"


def test_causes_never_form_a_cycle() -> None:
    rules = sorted({*CAUSES_OF, *(cause for causes in CAUSES_OF.values() for cause in causes)})
    chosen = {f.rule: cause for f, cause in with_causes(map(finding, rules)).items()}

    for rule in rules:
        seen = set()
        at: str | None = rule
        while at is not None:
            assert at not in seen
            seen.add(at)
            at = chosen.get(at)


def test_a_rank_with_more_to_compute_explains_that_the_others_wait_for_it_in_a_collective() -> None:
    waits, slow = finding("rank-stuck-in-collective"), finding("straggler-worker")

    assert with_causes([waits, slow]) == {waits: "straggler-worker"}
    assert with_causes([replace(waits, says_why=True), slow]) == {}


def test_a_dead_end_that_keeps_a_rank_is_the_cause_of_the_wait_in_the_collective() -> None:
    still = finding("standing-still")
    waits = replace(finding("rank-stuck-in-collective"), effect_of="standing-still")

    assert with_causes([waits, still]) == {waits: "standing-still"}
    assert with_causes([waits]) == {}
    other = replace(waits, effect_of=None)
    assert with_causes([other, still]) == {still: "rank-stuck-in-collective"}


def test_a_finding_that_is_left_out_stands_for_its_own_cause() -> None:
    still, lock = finding("standing-still"), finding("fork-with-threads-lock")
    waits = replace(finding("rank-stuck-in-collective"), effect_of="standing-still")

    chosen = with_causes([waits, still, lock])

    assert chosen == {waits: "fork-with-threads-lock", still: "fork-with-threads-lock"}


def test_a_process_that_slows_down_explains_that_others_wait_for_it() -> None:
    one, other = ProcessId(1, 1), ProcessId(2, 1)
    stage = replace(finding("pipeline-bottleneck"), process=one)
    slows = replace(finding("bottleneck-process"), process=one)

    assert with_causes([stage, slows]) == {stage: "bottleneck-process"}
    assert with_causes([stage, replace(slows, process=other)]) == {}


def test_a_consumer_that_slows_down_explains_a_queue_of_which_only_numbers_are_known() -> None:
    one, other = ProcessId(1, 1), ProcessId(2, 1)
    queue = replace(finding("steady-growth"), process=one, subject="queue", is_doubtful=True)
    slows = replace(finding("bottleneck-process"), process=other, subject="rounds")

    assert with_causes([queue, slows]) == {queue: "bottleneck-process"}
    assert with_causes([queue, replace(slows, process=one)]) == {}
    assert with_causes([queue, replace(slows, subject="line")]) == {}
    assert with_causes([replace(queue, is_doubtful=False), slows]) == {}
    assert with_causes([replace(queue, subject="memory"), slows]) == {}
