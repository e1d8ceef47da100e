from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mpwatch.diagnose.deaths import death_of
from mpwatch.diagnose.rules import (
    main_killed,
    orphaned_workers,
    worker_exited_unexpectedly,
    worker_oom_killed,
    worker_segfault,
)
from mpwatch.model.findings import Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, WaitedOn
from mpwatch.model.snapshot import GpuUse, Hook, Process
from tests.unit.diagnose.worlds import (
    MAIN,
    MIB,
    NOW_S,
    WAITING_MAIN,
    WALL_S,
    cgroup,
    fds,
    found,
    gone,
    history,
    line,
    log,
    main,
    maps,
    only,
    pid,
    process,
    thread,
    world,
)

RULES = (
    orphaned_workers.check,
    worker_exited_unexpectedly.check,
    worker_oom_killed.check,
    worker_segfault.check,
)


def dead_worker(at_s: float = NOW_S - 5, role: str = "loader-worker", **how: Any) -> Process:
    return process(
        200,
        role,  # type: ignore[arg-type]
        ended=Ended(pid(200), at_s, **how),
        maps=maps(900, libraries=("libcv2.so",)),
        threads=[thread(200, "data.py:decode:31")],
        more={"private_bytes": 412 * MIB},
    )


def dead_main(
    at_s: float = NOW_S - 4, threads: Any = (), hook: Hook | None = None, **how: Any
) -> Process:
    return main(ended=Ended(pid(MAIN), at_s, **how), threads=threads, hook=hook)


@pytest.mark.parametrize(
    ("how", "death"),
    [
        ({"signal": 11}, "crash"),
        ({"signal": 7}, "crash"),
        ({"signal": 15}, "shutdown"),
        ({"signal": 2}, "shutdown"),
        ({"signal": 9}, "killed"),
        ({"exit_code": 0}, "normal"),
        ({"exit_code": 1}, "failed"),
        ({"exit_code": 143}, "shutdown"),
        ({}, "unknown"),
    ],
)
def test_ends_are_told_apart(how: dict[str, Any], death: str) -> None:
    assert death_of(gone(1, **how)) == death


def test_nobody_is_blamed_when_a_job_ends_normally() -> None:
    over = world(dead_main(exit_code=0), dead_worker(exit_code=0), process(201, ended=gone(201)))

    assert [f for check in RULES for f in check(over, history())] == []


def test_nobody_is_blamed_when_a_job_is_asked_to_stop() -> None:
    over = world(dead_main(signal=15), dead_worker(signal=15))

    assert [f for check in RULES for f in check(over, history())] == []


def test_nobody_is_blamed_when_a_job_is_interrupted_and_its_children_fail_with_it() -> None:
    over = world(dead_main(signal=2), dead_worker(role="spawned", exit_code=1))

    assert [f for check in RULES for f in check(over, history())] == []


def test_workers_that_follow_a_killed_main_are_no_finding_of_their_own() -> None:
    over = world(dead_main(NOW_S - 20, signal=9), dead_worker(exit_code=1))

    assert found(worker_exited_unexpectedly.check, over) == []


def test_a_kill_of_the_whole_tree_is_no_finding() -> None:
    over = world(dead_main(signal=9), dead_worker(signal=9))

    assert [f for check in RULES for f in check(over, history())] == []


def test_a_crash_is_named_with_signal_and_libraries() -> None:
    finding = only(worker_segfault.check, world(main(), dead_worker(signal=11)))

    assert finding.severity is Severity.CRITICAL
    assert "SIGSEGV" in finding.summary
    assert any("libcv2.so" in each for each in finding.evidence)
    assert any("decode" in each for each in finding.evidence)


def test_a_crash_of_a_bare_process_is_named_as_well() -> None:
    dead = process(200, "spawned", ended=gone(200, signal=6))

    assert "SIGABRT" in only(worker_segfault.check, world(main(), dead)).summary


def test_a_crash_of_something_that_is_not_python_is_not_ours() -> None:
    other = process(200, "other", is_python=False, ended=gone(200, signal=11))

    assert found(worker_segfault.check, world(main(), other)) == []


def test_a_bus_error_is_left_to_its_own_rule() -> None:
    assert found(worker_segfault.check, world(main(), dead_worker(signal=7))) == []


def test_a_kill_at_the_memory_limit_is_put_down_to_it() -> None:
    big = main(more={"private_bytes": 900 * MIB})
    job = world(
        big,
        dead_worker(signal=9),
        cgroup=cgroup(memory_bytes=500 * MIB, memory_limit_bytes=1024 * MIB),
    )
    past = history(
        host={
            "cgroup_memory_bytes": line(1000 * MIB),
            "cgroup_oom_kills": line(1, per_s=1 / 30),
            "cgroup_limit_hits": line(70, per_s=2),
        }
    )

    finding = only(worker_oom_killed.check, job, past)

    assert finding.severity is Severity.CRITICAL
    assert any("counted 1 out-of-memory kills" in each for each in finding.evidence)
    assert any("of 1.0G" in each for each in finding.evidence)
    assert any("met 60 times" in each for each in finding.evidence)
    assert any("main (100): 900M" in each for each in finding.evidence)
    assert found(worker_exited_unexpectedly.check, job, past) == []


def test_a_kill_with_memory_to_spare_is_not_put_down_to_it() -> None:
    job = world(
        main(),
        dead_worker(signal=9),
        cgroup=cgroup(memory_bytes=100 * MIB, memory_limit_bytes=1024 * MIB),
    )
    past = history(host={"cgroup_limit_hits": line(70, per_s=2)})

    assert found(worker_oom_killed.check, job, past) == []
    assert "SIGKILL" in only(worker_exited_unexpectedly.check, job, past).summary


def test_memory_without_a_kill_is_no_kill() -> None:
    job = world(main(), cgroup=cgroup(memory_bytes=99, memory_limit_bytes=100))

    assert found(worker_oom_killed.check, job) == []


def test_a_worker_that_fails_is_named_while_its_parent_lives() -> None:
    finding = only(worker_exited_unexpectedly.check, world(main(), dead_worker(exit_code=3)))

    assert finding.severity is Severity.CRITICAL
    assert "exit code 3" in finding.summary
    assert any("main (100) still runs" in each for each in finding.evidence)


def in_a_row(count: int, *, first: int = 0) -> list[Process]:
    """Processes of which each is started when the one before has ended."""
    return [
        process(
            200 + n,
            "spawned",
            start_method="fork",
            ended=gone(200 + n, at_s=NOW_S - 60 + 2 * n, exit_code=1),
            born_wall_s=WALL_S - 61 + 2 * n,
        )
        for n in range(first, first + count)
    ]


def test_a_parent_that_starts_them_again_and_again_is_told_once_and_stays_the_one_named() -> None:
    early = only(worker_exited_unexpectedly.check, world(main(), *in_a_row(12)))
    late = only(worker_exited_unexpectedly.check, world(main(), *in_a_row(12, first=8)))

    assert early.key == late.key
    assert late.process == pid(MAIN)
    assert "main (100) keeps starting processes that end unexpectedly: exit code 1" in late.summary
    assert late.evidence[0] == "12 of those still known ended so, the last spawned 219 (219)"


def test_those_that_ended_before_they_could_be_read_hide_no_row_of_ends() -> None:
    unread = [
        process(n, "spawned", ended=gone(n, exit_code=1), born_wall_s=None) for n in range(300, 340)
    ]

    finding = only(worker_exited_unexpectedly.check, world(main(), *in_a_row(12), *unread))

    assert finding.process == pid(MAIN)


def test_a_pool_that_starts_its_workers_again_is_said_to_be_one() -> None:
    handler = thread(101, "multiprocessing/pool.py:_handle_workers", "threading.py:run")
    pool = main(threads=[thread(MAIN, "multiprocessing/pool.py:wait"), handler])

    finding = only(worker_exited_unexpectedly.check, world(pool, *in_a_row(12)))

    assert "initializer" in finding.cause
    assert "standard error" in finding.advice


def test_workers_of_one_start_and_a_few_replaced_ones_are_named_as_ever() -> None:
    few = only(worker_exited_unexpectedly.check, world(main(), *in_a_row(4)))
    ended = world(main(ended=gone(MAIN, at_s=NOW_S - 1, exit_code=1)), *in_a_row(12))

    assert few.process == pid(200)
    assert few.summary == "spawned 200 (200) and 3 more ended unexpectedly: exit code 1"
    assert only(worker_exited_unexpectedly.check, ended).process == pid(200)


def test_workers_that_fail_alike_are_told_together() -> None:
    dead = [process(n, ended=gone(n, exit_code=1)) for n in (200, 201, 202)]
    other = process(203, ended=gone(203, exit_code=2))

    first, second = found(worker_exited_unexpectedly.check, world(main(), *dead, other))

    assert first.summary == "loader-worker 200 (200) and 2 more ended unexpectedly: exit code 1"
    assert "loader-worker 202 (202)" in first.evidence[-1]
    assert second.process == pid(203)


def test_a_worker_that_fails_just_before_its_parent_is_the_cause() -> None:
    job = world(dead_main(exit_code=1), dead_worker(exit_code=3))

    finding = only(worker_exited_unexpectedly.check, job)

    assert any("main (100) ended 1.0 s later: exit code 1" in each for each in finding.evidence)


def test_a_worker_seen_to_end_after_its_failing_parent_is_worth_a_look() -> None:
    job = world(dead_main(NOW_S - 6, exit_code=1), dead_worker(exit_code=3))

    finding = only(worker_exited_unexpectedly.check, job)

    assert any("1.0 s earlier" in each for each in finding.evidence)


def test_a_quiet_end_that_brings_its_parent_down_is_named() -> None:
    waits = thread(MAIN, *WAITING_MAIN)
    job = world(dead_main(NOW_S - 1, exit_code=1, threads=[waits]), dead_worker(exit_code=0))

    assert "without an error" in only(worker_exited_unexpectedly.check, job).cause


def test_a_quiet_end_that_the_parents_hook_complained_of_is_named() -> None:
    down = dead_main(NOW_S - 1, exit_code=1, hook=Hook("gone"))
    text = "DataLoader worker (pid(s) 200) exited unexpectedly"
    heard = log("exception", MAIN, "RuntimeError in main", text=text)

    job = world(down, dead_worker(exit_code=0))
    assert len(found(worker_exited_unexpectedly.check, replace(job, log=(heard,)))) == 1
    assert found(worker_exited_unexpectedly.check, job) == []


def test_workers_shut_down_before_a_parent_exits_with_a_code_of_its_own_are_quiet() -> None:
    busy = dead_main(NOW_S - 3, exit_code=3, threads=[thread(MAIN, "train.py:<module>:12")])
    late = process(201, ended=None)
    waits = dead_main(NOW_S - 1, exit_code=3, threads=[thread(MAIN, *WAITING_MAIN)])
    next_epoch = replace(late, process=ProcessId(201, 9000), ended=gone(201, exit_code=0))

    assert found(worker_exited_unexpectedly.check, world(busy, dead_worker(exit_code=0))) == []
    followed = world(waits, dead_worker(exit_code=0), next_epoch)
    assert [f.process for f in found(worker_exited_unexpectedly.check, followed)] == [
        next_epoch.process
    ]


def test_children_that_a_ctrl_c_may_have_ended_with_a_content_parent_are_information() -> None:
    interrupted = dead_worker(role="spawned", exit_code=1)
    twin = process(201, "spawned", ended=gone(201, exit_code=1))
    saved = dead_main(NOW_S - 1, exit_code=0)

    finding = only(worker_exited_unexpectedly.check, world(saved, interrupted, twin))

    assert finding.severity is Severity.INFO
    assert "ctrl-c" in finding.cause


def test_children_that_failed_together_wait_for_their_parents_fate_for_a_moment() -> None:
    just_now = dead_worker(NOW_S - 2, role="spawned", exit_code=1)
    working = process(201, "spawned")

    assert found(worker_exited_unexpectedly.check, world(main(), just_now)) == []
    for job in (
        world(main(), dead_worker(role="spawned", exit_code=1)),
        world(main(), just_now, working),
    ):
        assert only(worker_exited_unexpectedly.check, job).severity is Severity.CRITICAL


def test_a_quiet_end_beside_a_failed_sibling_is_no_second_failure() -> None:
    failed = process(201, ended=gone(201, exit_code=3))
    job = world(dead_main(NOW_S - 1, exit_code=1), dead_worker(exit_code=0), failed)

    assert [f.process for f in found(worker_exited_unexpectedly.check, job)] == [pid(201)]


def test_memory_that_the_job_fills_is_foretold_before_the_kill() -> None:
    limited = cgroup(memory_bytes=800 * MIB, memory_limit_bytes=1024 * MIB)
    job = world(main(), process(200, more={"private_bytes": 600 * MIB}), cgroup=limited)
    past = history(
        {(200, "rss_bytes"): line(700 * MIB, per_s=9 * MIB)},
        {"cgroup_memory_bytes": line(800 * MIB, per_s=10 * MIB)},
    )

    finding = only(worker_oom_killed.check, job, past)

    assert finding.severity is Severity.CRITICAL
    assert finding.eta_s == pytest.approx(22.4)
    assert "loader-worker 200 (200): 600M" in finding.evidence[-1]


def test_a_control_group_that_fills_with_page_cache_is_quiet() -> None:
    limited = cgroup(memory_bytes=800 * MIB, memory_limit_bytes=1024 * MIB)
    job = world(main(), process(200), cgroup=limited)
    past = history(
        {(200, "rss_bytes"): line(100 * MIB)},
        {"cgroup_memory_bytes": line(800 * MIB, per_s=10 * MIB)},
    )

    assert found(worker_oom_killed.check, job, past) == []
    assert found(worker_oom_killed.check, job) == []


def test_a_worker_whose_shard_has_run_out_may_leave() -> None:
    job = world(main(), dead_worker(exit_code=0), process(201))

    assert found(worker_exited_unexpectedly.check, job) == []


def test_a_child_killed_by_an_unknown_hand_is_a_warning_only() -> None:
    job = world(main(), dead_worker(role="spawned", signal=9))

    assert only(worker_exited_unexpectedly.check, job).severity is Severity.WARNING


def test_a_worker_of_an_unknown_parent_is_judged_by_its_end_alone() -> None:
    lost = process(200, parent=None, ended=gone(200, exit_code=3))

    assert only(worker_exited_unexpectedly.check, world(main(), lost)).evidence


def orphan(**keywords: Any) -> Process:
    return process(200, parent=None, original_parent=MAIN, **keywords)


def test_a_worker_that_outlives_its_parent_is_named_with_what_it_holds() -> None:
    stuck = thread(202, name="QueueFeederThread", waits=WaitedOn("pipe-write", "write"))
    survivor = orphan(threads=[stuck], more={"private_bytes": 91 * MIB, "shm_bytes": 8 * MIB})

    finding = only(orphaned_workers.check, world(dead_main(NOW_S - 30, signal=9), survivor))

    assert finding.severity is Severity.WARNING
    assert "outlived main (100) by 30 s" in finding.summary
    assert any("91.0M of memory, 8.0M of shared memory" in each for each in finding.evidence)
    assert any("QueueFeederThread is blocked writing" in each for each in finding.evidence)
    assert "kill 200" in finding.advice


@pytest.mark.parametrize("holding", [{"fds": fds(20, gpu=3)}, {"more": {"gpus": (GpuUse(0, 1),)}}])
def test_a_survivor_that_holds_a_gpu_is_critical(holding: dict[str, object]) -> None:
    job = world(dead_main(NOW_S - 30, signal=9), orphan(**holding))

    finding = only(orphaned_workers.check, job)

    assert finding.severity is Severity.CRITICAL
    assert any("a GPU" in each for each in finding.evidence)


def test_a_fresh_orphan_is_given_the_time_to_notice() -> None:
    assert found(orphaned_workers.check, world(dead_main(NOW_S - 4, signal=9), orphan())) == []


def test_an_orphan_that_has_ended_or_waits_to_be_reaped_is_no_finding() -> None:
    dead = dead_main(NOW_S - 30, signal=9)

    assert found(orphaned_workers.check, world(dead, orphan(ended=gone(200)))) == []
    assert found(orphaned_workers.check, world(dead, orphan(state="Z"))) == []


def test_helpers_that_outlive_main_are_no_orphans() -> None:
    dead = dead_main(NOW_S - 30, signal=9)
    tracker = process(300, "resource-tracker", parent=None, original_parent=MAIN)

    assert found(orphaned_workers.check, world(dead, tracker)) == []


def test_a_root_attached_to_directly_is_no_orphan() -> None:
    root = process(200, parent=None, original_parent=7)

    assert found(orphaned_workers.check, world(root)) == []


def test_a_worker_whose_parent_was_never_seen_to_end_is_no_orphan() -> None:
    assert found(orphaned_workers.check, world(main(), orphan())) == []
    assert found(orphaned_workers.check, world(main(), process(200, parent=None))) == []


def killed_main(**fields: Any) -> Process:
    return main(ended=gone(MAIN, signal=9), more={"private_bytes": 300 * MIB}, **fields)


def test_a_main_process_that_was_killed_is_a_remark_and_nobody_is_accused() -> None:
    over = world(
        killed_main(threads=[thread(MAIN, "train.py:step:57")]),
        dead_worker(signal=9),
        memory_total_bytes=64 << 30,
        memory_available_bytes=30 << 30,
    )
    past = history(host={"cgroup_oom_kills": line(4)})

    finding = only(main_killed.check, over, past)

    assert finding.severity is Severity.INFO
    assert finding.process == pid(MAIN)
    assert "who sent it is unknown" in finding.summary
    assert "its control group counted no out-of-memory kill meanwhile" in finding.evidence
    assert "30.0G of the machine's 64.0G of memory were available" in finding.evidence
    assert "1 more of its processes were killed at the same time" in finding.evidence
    assert any("train.py:57" in each for each in finding.evidence)


def test_where_nobody_counts_kills_that_is_said() -> None:
    finding = only(main_killed.check, world(killed_main(), process(200)))

    assert "out-of-memory kills of its control group could not be read" in finding.evidence
    assert any("1 of its processes lived on" in each for each in finding.evidence)


def test_a_kill_on_a_machine_without_memory_is_a_warning() -> None:
    over = world(killed_main(), memory_total_bytes=64 << 30, memory_available_bytes=1 << 30)

    assert only(main_killed.check, over).severity is Severity.WARNING


@pytest.mark.parametrize("how", [{"signal": 15}, {"signal": 2}, {"exit_code": 0}, {"signal": 11}])
def test_a_main_process_that_ends_otherwise_was_not_killed(how: dict[str, Any]) -> None:
    assert found(main_killed.check, world(dead_main(**how))) == []


def test_a_kill_of_main_that_the_control_group_counted_is_put_down_to_memory() -> None:
    counted = replace(gone(MAIN, signal=9), oom_kills=5)
    over = world(main(ended=counted))
    past = history(host={"cgroup_oom_kills": line(4)})

    finding = only(worker_oom_killed.check, over, past)

    assert finding.process == pid(MAIN)
    assert "the control group counted 1 out-of-memory kills meanwhile" in finding.evidence
    assert found(main_killed.check, over, past) == []


def test_kills_before_the_job_was_watched_do_not_count() -> None:
    over = world(main(ended=replace(gone(MAIN, signal=9), oom_kills=4)))

    assert found(worker_oom_killed.check, over, history(host={"cgroup_oom_kills": line(4)})) == []
