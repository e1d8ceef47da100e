from __future__ import annotations

from signal import SIGUSR1
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.consequences import with_causes
from mpwatch.diagnose.engine import Engine
from mpwatch.diagnose.rules.exits import (
    orphaned_workers,
    worker_exited_unexpectedly,
    worker_oom_killed,
    worker_segfault,
    zombie_processes,
)
from mpwatch.diagnose.rules.transport import producer_exits_before_get
from mpwatch.model.account import Activity
from mpwatch.model.events import Raised, WrittenError
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import Point
from mpwatch.model.ids import ProcessId, Role, SegmentId
from mpwatch.model.samples import Ended, FdLink, Frame, WaitedOn
from mpwatch.model.snapshot import Hook, LogEntry, Process
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.accounts import COMPUTES, IS_AHEAD, WAITS_IN_QUEUE, with_shares
from tests.builders.snapshots import (
    MAIN,
    MIB,
    NO_HISTORY,
    NOW_S,
    WAITING_MAIN,
    WALL_S,
    cgroup,
    dead_main,
    dead_worker,
    exited,
    fds,
    found,
    history,
    line,
    log,
    main,
    only,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    thread,
)

RULES = (
    orphaned_workers.check,
    worker_exited_unexpectedly.check,
    worker_oom_killed.check,
    worker_segfault.check,
)


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
        ({"exit_code": 15}, "shutdown"),
        ({}, "unknown"),
    ],
)
def test_exits_are_classified(how: dict[str, Any], death: str) -> None:
    assert death_of(exited(1, **how)) == death


def test_a_job_that_ends_normally_has_no_finding() -> None:
    over = snapshot_of(
        dead_main(exit_code=0), dead_worker(exit_code=0), process(201, ended=exited(201))
    )

    assert [f for check in RULES for f in check(Index(over, history()))] == []


def test_a_job_that_is_asked_to_stop_has_no_finding() -> None:
    over = snapshot_of(dead_main(signal=15), dead_worker(signal=15))

    assert [f for check in RULES for f in check(Index(over, history()))] == []


def test_a_job_that_is_interrupted_with_its_children_has_no_finding() -> None:
    over = snapshot_of(dead_main(signal=2), dead_worker(role="spawned", exit_code=1))

    assert [f for check in RULES for f in check(Index(over, history()))] == []


def test_workers_that_follow_a_killed_main_are_no_finding_of_their_own() -> None:
    over = snapshot_of(dead_main(NOW_S - 20, signal=9), dead_worker(exit_code=1))

    assert found(worker_exited_unexpectedly.check, over) == []


def test_a_kill_of_the_whole_tree_is_no_finding() -> None:
    over = snapshot_of(dead_main(signal=9), dead_worker(signal=9))

    assert [f for check in RULES for f in check(Index(over, history()))] == []


def test_a_hook_is_advised_only_where_there_was_none() -> None:
    """A hook that has reported no exception of a process would report none the next time."""
    dead = dead_worker(role="spawned", exit_code=2)
    hooked = replace(dead, hook=Hook(state="gone"))

    without = only(worker_exited_unexpectedly.check, snapshot_of(main(), dead))
    with_hook = only(worker_exited_unexpectedly.check, snapshot_of(main(), hooked))

    assert "attach the hook" in without.advice
    assert with_hook.advice.startswith("Read its standard error. A parent")


def test_a_crash_is_named_with_signal_and_libraries() -> None:
    finding = only(worker_segfault.check, snapshot_of(main(), dead_worker(signal=11)))

    assert finding.severity is Severity.CRITICAL
    assert "SIGSEGV" in finding.summary
    assert any("libcv2.so" in each for each in finding.evidence)
    assert any("decode" in each for each in finding.evidence)


VIEW = Mark(
    "unchecked-view",
    "/home/me/data.py",
    "windows",
    "rows; count, width",
    Statement(9, "return as_strided(rows, shape=(count, width), strides=steps)"),
)


def crashed(*stack: Frame, label: str = "reader 1", signal: int = 11) -> Process:
    at = [replace(thread(200), stack=stack)] if stack else []
    dead = process(200, "spawned", threads=at, ended=exited(200, signal=signal))
    return replace(dead, label=label)


def test_a_view_without_a_check_in_a_file_of_the_last_stack_is_the_cause_of_a_crash() -> None:
    at = Frame("moments", "/home/me/data.py", 21)
    finding = only(worker_segfault.check, snapshot_of(main(), crashed(at), marks=(VIEW,)))

    assert finding.cause.startswith(
        "Most likely it read beyond an array: `return as_strided(rows, shape=(count, width), "
        "strides=steps)` at data.py:9 windows makes a view whose shape is computed from count, "
        "width, and nothing in windows() compares that with the length of rows"
    )
    assert "(last seen at data.py:21 moments). Otherwise: Native code" in finding.cause
    assert finding.advice.startswith("Compute the shape from the array itself")
    assert "it crashes at the same input" in finding.advice
    for unlike in (
        snapshot_of(main(), crashed(at, signal=6), marks=(VIEW,)),
        snapshot_of(main(), crashed(Frame("f", "/away/other.py", 2)), marks=(VIEW,)),
        snapshot_of(main(), crashed(at), marks=(VIEW, VIEW._replace(function="other"))),
    ):
        other = only(worker_segfault.check, unlike)
        assert "beyond an array" not in other.cause
        assert "as_strided" not in other.advice + "".join(other.evidence)


def test_a_process_that_crashed_before_it_was_read_most_likely_ran_what_its_siblings_run() -> None:
    at = (Frame("moments", "/home/me/data.py", 21),)
    beside = [
        replace(process(n, "spawned", threads=[replace(thread(n), stack=at)]), label=f"reader {k}")
        for k, n in enumerate((199, 201))
    ]
    dead = crashed(label="spawned")
    finding = only(worker_segfault.check, snapshot_of(main(), *beside, dead, marks=(VIEW,)))

    told = "right after reader 0 (199): most likely it ran reader as well"
    assert any(each.endswith(told) for each in finding.evidence)
    assert finding.cause.startswith("Possible: it read beyond an array")
    elsewhere = crashed(Frame("start", "/home/me/train.py", 3), label="spawned")
    finding = only(worker_segfault.check, snapshot_of(main(), *beside, elsewhere, marks=(VIEW,)))
    assert finding.cause.startswith("Possible: it read beyond an array")
    several = [beside[0], replace(beside[1], label="writer")]
    finding = only(worker_segfault.check, snapshot_of(main(), *several, dead, marks=(VIEW,)))
    assert not any("most likely it ran" in each for each in finding.evidence)
    assert "beyond an array" not in finding.cause


@pytest.mark.parametrize("reaps", [0, 1, 2])
def test_what_takes_the_exit_status_of_any_child_is_named_beside_a_crash(reaps: int) -> None:
    text = "pid, _ = os.waitpid(-1, os.WNOHANG)"
    found = [
        Mark("reap", "/home/me/load.py", "on_child", "", Statement(42 + n, text))
        for n in range(reaps)
    ]

    finding = only(worker_segfault.check, snapshot_of(main(), crashed(), marks=tuple(found)))

    assert ("at load.py:42 on_child takes the exit status of any child" in finding.cause) is (
        reaps == 1
    )


def test_a_crash_of_a_bare_process_is_named_as_well() -> None:
    dead = process(200, "spawned", ended=exited(200, signal=6))

    assert "SIGABRT" in only(worker_segfault.check, snapshot_of(main(), dead)).summary


@pytest.mark.parametrize("role", ["spawned", "loader-worker"])
def test_only_crashed_loader_workers_get_advice_about_the_dataloader(role: str) -> None:
    finding = only(worker_segfault.check, snapshot_of(main(), dead_worker(role=role, signal=11)))

    words = finding.cause + finding.advice
    assert ("worker_init_fn" in words) is ("num_workers" in words) is (role == "loader-worker")


def test_the_cause_of_a_crash_names_its_signal_and_a_fork_only_where_there_was_one() -> None:
    dead = dead_worker(role="spawned", signal=11)
    forked = replace(dead, sample=replace(dead.sample, start_method="fork"))
    aborted = process(201, "spawned", ended=exited(201, signal=6))
    job = snapshot_of(main(), dead)

    assert "fork" not in only(worker_segfault.check, job).cause
    assert "libcv2.so" in only(worker_segfault.check, snapshot_of(main(), forked)).cause
    assert "abort()" in only(worker_segfault.check, snapshot_of(main(), aborted)).cause


@pytest.mark.parametrize(
    ("number", "said", "not_said"),
    [
        (6, ("systemd", "abort() itself prints nothing", "core dump"), ("dmesg",)),
        (4, ("ud2", "built for another CPU", "dmesg"), ("memory that is not its own",)),
        (8, ("divided", "dmesg"), ("memory that is not its own",)),
        (11, ("memory that is not its own", "kill -SEGV", "dmesg"), ()),
    ],
)
def test_a_crash_is_not_explained_by_what_another_signal_means(
    number: int, said: tuple[str, ...], not_said: tuple[str, ...]
) -> None:
    dead = process(201, "spawned", ended=exited(201, signal=number))

    finding = only(worker_segfault.check, snapshot_of(main(), dead))

    text = f"{finding.cause} {finding.advice}"
    assert [each for each in said if each not in text] == []
    assert [each for each in not_said if each in text] == []


def test_crashes_of_one_parents_workers_are_one_finding_that_names_the_first() -> None:
    crashed = [
        process(200 + each, "loader-worker", ended=exited(200 + each, at_s=NOW_S - each, signal=11))
        for each in (1, 3, 2)
    ]
    finding = only(worker_segfault.check, snapshot_of(main(), *crashed))

    assert finding.process == pid(203)
    assert "and 2 more crashed" in finding.summary


def test_a_crash_of_a_program_that_is_not_python_is_no_finding() -> None:
    other = process(200, "other", is_python=False, ended=exited(200, signal=11))

    assert found(worker_segfault.check, snapshot_of(main(), other)) == []


def test_a_bus_error_is_left_to_its_own_rule() -> None:
    assert found(worker_segfault.check, snapshot_of(main(), dead_worker(signal=7))) == []


def test_a_kill_at_the_memory_limit_has_the_limit_as_its_cause() -> None:
    big = main(more={"private_bytes": 900 * MIB})
    job = snapshot_of(
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
    assert any("counted 1 out-of-memory kill " in each for each in finding.evidence)
    assert any("of 1.0G" in each for each in finding.evidence)
    assert any("met 60 times" in each for each in finding.evidence)
    assert any("main (100), 900M" in each for each in finding.evidence)
    assert finding.summary.endswith("was killed because memory ran out")
    assert "prefetch_factor" in finding.advice
    assert found(worker_exited_unexpectedly.check, job, past) == []


def test_a_kill_at_the_limit_that_nothing_counted_is_only_probably_due_to_it() -> None:
    dead = dead_worker(role="spawned", signal=9)
    full = cgroup(memory_bytes=1000 * MIB, memory_limit_bytes=1024 * MIB)

    finding = only(worker_oom_killed.check, snapshot_of(main(), dead, cgroup=full))

    assert "probably" in finding.summary
    assert "chose this process" not in finding.cause
    assert "could not be read" in finding.cause
    assert "prefetch_factor" not in finding.advice
    counted = history(host={"cgroup_oom_kills": line(2)})
    none = only(worker_oom_killed.check, snapshot_of(main(), dead, cgroup=full), counted)
    assert "counted no such kill" in none.cause


def test_a_kill_with_free_memory_does_not_have_the_limit_as_its_cause() -> None:
    job = snapshot_of(
        main(),
        dead_worker(signal=9),
        cgroup=cgroup(memory_bytes=100 * MIB, memory_limit_bytes=1024 * MIB),
    )
    past = history(host={"cgroup_limit_hits": line(70, per_s=2)})

    assert found(worker_oom_killed.check, job, past) == []
    assert "SIGKILL" in only(worker_exited_unexpectedly.check, job, past).summary


def test_a_memory_limit_without_a_kill_is_no_finding() -> None:
    job = snapshot_of(main(), cgroup=cgroup(memory_bytes=99, memory_limit_bytes=100))

    assert found(worker_oom_killed.check, job) == []


def test_a_worker_that_fails_is_named_while_its_parent_lives() -> None:
    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), dead_worker(exit_code=3)))

    assert finding.severity is Severity.CRITICAL
    assert "exit code 3" in finding.summary
    assert any("main (100) still runs" in each for each in finding.evidence)


def in_a_row(count: int, *, first: int = 0) -> list[Process]:
    """Processes that are each started when the one before has exited."""
    return [
        process(
            200 + n,
            "spawned",
            start_method="fork",
            ended=exited(200 + n, at_s=NOW_S - 60 + 2 * n, exit_code=1),
            born_wall_s=WALL_S - 61 + 2 * n,
        )
        for n in range(first, first + count)
    ]


def test_a_parent_that_restarts_its_children_is_reported_once_and_stays_named() -> None:
    early = only(worker_exited_unexpectedly.check, snapshot_of(main(), *in_a_row(12)))
    late = only(worker_exited_unexpectedly.check, snapshot_of(main(), *in_a_row(12, first=8)))

    assert early.key == late.key
    assert late.process == pid(MAIN)
    assert "main (100) keeps starting processes that end unexpectedly: exit code 1" in late.summary
    assert late.evidence[0] == "12 recent processes ended this way; the last was spawned 219 (219)"


@pytest.mark.parametrize(
    ("signal", "exit_code", "severity"),
    [(9, None, Severity.INFO), (None, 1, Severity.WARNING), (None, 155, Severity.INFO)],
)
def test_a_parent_that_goes_on_after_it_has_killed_its_children_is_a_supervisor(
    signal: int | None, exit_code: int | None, severity: Severity
) -> None:
    """It ends programs that are over their time, again and again."""
    ended = [
        replace(
            each,
            ended=exited(each.pid, at_s=each.ended.at_s, signal=signal, exit_code=exit_code),
        )
        for each in in_a_row(12)
        if each.ended is not None
    ]

    next_one = process(900, "spawned", start_method="fork")

    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), *ended, next_one))

    assert finding.summary.startswith("main (100) keeps starting processes that end unexpectedly")
    assert finding.severity is severity
    is_supervisor = finding.advice.startswith("Nothing is wrong if main (100) ends them itself")
    assert is_supervisor is (signal is not None)
    assert ("one that the program has chosen" in finding.cause) is (exit_code == 155)


@pytest.mark.parametrize(("lived_s", "severity"), [(1.0, Severity.CRITICAL), (8.0, Severity.INFO)])
def test_a_parent_that_replaces_children_that_have_worked_for_a_while_is_a_supervisor(
    lived_s: float, severity: Severity
) -> None:
    """A session that is over, a lease that has expired: the next process goes on."""
    ended = [
        replace(each, sample=replace(each.sample, born_wall_s=born_s - lived_s + 1.0))
        for each in in_a_row(12)
        if (born_s := each.sample.born_wall_s) is not None
    ]

    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), *ended))

    assert finding.severity is severity
    assert ("starts a new process for each" in finding.advice) is (severity is Severity.INFO)


def test_processes_that_ended_before_their_first_reading_do_not_hide_repeated_exits() -> None:
    unread = [
        process(n, "spawned", ended=exited(n, exit_code=1), born_wall_s=None)
        for n in range(300, 340)
    ]

    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), *in_a_row(12), *unread))

    assert finding.process == pid(MAIN)


def test_a_pool_that_restarts_its_workers_is_named_as_a_pool() -> None:
    handler = thread(101, "multiprocessing/pool.py:_handle_workers", "threading.py:run")
    pool = main(threads=[thread(MAIN, "multiprocessing/pool.py:wait"), handler])

    finding = only(worker_exited_unexpectedly.check, snapshot_of(pool, *in_a_row(12)))

    assert "initializer" in finding.cause
    assert "standard error" in finding.advice


@pytest.mark.parametrize(
    ("full_s", "words"),
    [
        (50.0, "main (100) keeps starting workers that end in their initializer: exit code 1"),
        (3.0, "main (100) keeps starting processes that end unexpectedly: exit code 1"),
    ],
    ids=["no task was taken", "tasks were taken until now"],
)
def test_workers_of_a_pool_that_take_no_task_end_in_their_initializer(
    full_s: float, words: str
) -> None:
    writes = WaitedOn("pipe-write", "write", ("pipe:[500]",))
    tasks = thread(102, "multiprocessing/pool.py:_handle_tasks", waits=writes, still_s=full_s)
    handler = thread(101, "multiprocessing/pool.py:_handle_workers")
    waits = thread(MAIN, "multiprocessing/pool.py:next", "train.py:main:52")
    pool = main(threads=[waits, handler, tasks])

    finding = only(worker_exited_unexpectedly.check, snapshot_of(pool, *in_a_row(12)))

    assert finding.summary == words
    assert "main (100) was last seen at train.py:52 main" in finding.evidence
    assert ("before they take their first task" in finding.cause) == (full_s > 10)
    assert ("with the same initargs" in finding.advice) == (full_s > 10)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_known_error_of_workers_that_end_again_and_again_is_the_cause(is_known: bool) -> None:
    text = "Cannot re-initialize CUDA in forked subprocess" if is_known else "no such file"
    workers = in_a_row(12)
    raised = [
        log("exception", each.pid, text, where="process start", type="RuntimeError", text=text)
        for each in workers
    ]
    job = snapshot_of(main(), *workers, log=tuple(raised))

    effect = only(worker_exited_unexpectedly.check, job)
    findings = Engine().diagnosed(job, NO_HISTORY).findings

    assert effect.effect_of == ("cuda-in-forked-child" if is_known else None)
    assert (findings[0].rule == "cuda-in-forked-child") is is_known


def test_a_few_replaced_workers_are_no_restart_loop() -> None:
    few = only(worker_exited_unexpectedly.check, snapshot_of(main(), *in_a_row(4)))
    ended = snapshot_of(main(ended=exited(MAIN, at_s=NOW_S - 1, exit_code=1)), *in_a_row(12))

    assert few.process == pid(200)
    assert few.summary == "spawned 200 (200) and 3 more ended unexpectedly: exit code 1"
    assert only(worker_exited_unexpectedly.check, ended).process == pid(200)


def test_workers_that_fail_in_the_same_way_are_one_finding() -> None:
    dead = [process(n, ended=exited(n, exit_code=1)) for n in (200, 201, 202)]
    other = process(203, ended=exited(203, exit_code=2))

    first, second = found(worker_exited_unexpectedly.check, snapshot_of(main(), *dead, other))

    assert first.summary == "loader-worker 200 (200) and 2 more ended unexpectedly: exit code 1"
    assert "loader-worker 202 (202)" in first.evidence[-1]
    assert second.process == pid(203)


@pytest.mark.parametrize("role", ["loader-worker", "spawned"])
def test_children_whose_work_was_done_when_they_failed_are_information(role: Role) -> None:
    dead = [process(n, role, ended=exited(n, exit_code=1)) for n in (200, 201)]
    notes = tuple(log("exit", n, "exits", code=1, how="", frames=[]) for n in (200, 201))
    job = snapshot_of(main(), *dead)

    after = only(worker_exited_unexpectedly.check, replace(job, log=notes))
    raised = log("exit", 200, "exits", code=1, how="SystemExit", frames=[])
    during = found(worker_exited_unexpectedly.check, replace(job, log=(raised, notes[1])))

    assert after.severity is Severity.INFO
    assert f"{role} 200 (200) and 1 more ended after the work was done" in after.summary
    assert f"so did 1 more: {role} 201 (201)" in after.evidence
    assert {each.summary.split(" ended ")[1][:12] for each in during} == {
        "after the wo",
        "unexpectedly",
    }


def test_a_worker_that_fails_just_before_its_parent_is_the_cause() -> None:
    job = snapshot_of(dead_main(exit_code=1), dead_worker(exit_code=3))

    finding = only(worker_exited_unexpectedly.check, job)

    assert any("main (100) ended 1.0 s later: exit code 1" in each for each in finding.evidence)


def test_a_worker_seen_to_end_after_its_failing_parent_is_information() -> None:
    job = snapshot_of(dead_main(NOW_S - 6, exit_code=1), dead_worker(exit_code=3))

    finding = only(worker_exited_unexpectedly.check, job)

    assert any("1.0 s earlier" in each for each in finding.evidence)


def test_an_exit_with_status_0_that_makes_its_parent_fail_is_named() -> None:
    waits = thread(MAIN, *WAITING_MAIN)
    job = snapshot_of(dead_main(NOW_S - 1, exit_code=1, threads=[waits]), dead_worker(exit_code=0))

    assert "without an error" in only(worker_exited_unexpectedly.check, job).cause


def test_an_exit_with_status_0_that_the_parents_hook_reported_is_named() -> None:
    down = dead_main(NOW_S - 1, exit_code=1, hook=Hook("gone"))
    text = "DataLoader worker (pid(s) 200) exited unexpectedly"
    heard = log("exception", MAIN, "RuntimeError in main", text=text)

    job = snapshot_of(down, dead_worker(exit_code=0))
    assert (
        len(found(worker_exited_unexpectedly.check, replace(job, log=(heard,), errors=(heard,))))
        == 1
    )
    assert found(worker_exited_unexpectedly.check, job) == []


def test_workers_shut_down_before_a_parent_exits_with_a_code_of_its_own_are_quiet() -> None:
    busy = dead_main(NOW_S - 3, exit_code=3, threads=[thread(MAIN, "train.py:<module>:12")])
    late = process(201, ended=None)
    waits = dead_main(NOW_S - 1, exit_code=3, threads=[thread(MAIN, *WAITING_MAIN)])
    next_epoch = replace(late, process=ProcessId(201, 9000), ended=exited(201, exit_code=0))

    assert (
        found(worker_exited_unexpectedly.check, snapshot_of(busy, dead_worker(exit_code=0))) == []
    )
    followed = snapshot_of(waits, dead_worker(exit_code=0), next_epoch)
    assert [f.process for f in found(worker_exited_unexpectedly.check, followed)] == [
        next_epoch.process
    ]


TWINS = (
    dead_worker(role="spawned", exit_code=1),
    process(201, "spawned", ended=exited(201, exit_code=1)),
)
SAVED = dead_main(NOW_S - 1, exit_code=0)


@pytest.mark.parametrize(
    ("more", "entries"),
    [
        ((), (log("exit", 200, code=1, how="KeyboardInterrupt"),)),
        ((), (log("exception", 100, type="KeyboardInterrupt"),)),
        ((process(202, ended=exited(202, exit_code=130)),), ()),
        ((process(202, ended=exited(202, signal=2)),), ()),
    ],
)
def test_children_of_an_interrupted_job_whose_parent_exits_normally_are_information(
    more: tuple[Process, ...], entries: tuple[LogEntry, ...]
) -> None:
    job = snapshot_of(SAVED, *TWINS, *more, log=entries)

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.severity is Severity.INFO
    assert "ctrl-c" in finding.cause


def test_a_ctrl_c_without_evidence_is_no_cause() -> None:
    finding = only(worker_exited_unexpectedly.check, snapshot_of(SAVED, *TWINS))

    assert finding.severity is Severity.INFO
    assert "ctrl-c" not in finding.cause
    assert "standard error" in finding.cause


def test_children_that_raised_have_failed_whatever_exit_code_their_parent_reports() -> None:
    raised = log("exit", 200, code=1, how="RuntimeError", frames=[["work", "train.py", 5]])

    finding = only(worker_exited_unexpectedly.check, snapshot_of(SAVED, *TWINS, log=(raised,)))

    assert finding.severity is Severity.CRITICAL
    assert "ctrl-c" not in finding.cause


def test_children_that_failed_together_are_reported_once_their_parent_had_time_to_exit() -> None:
    just_now = dead_worker(NOW_S - 2, role="spawned", exit_code=1)
    first = dead_worker(NOW_S - 1, role="spawned", exit_code=1)
    working = process(201, "spawned")

    assert found(worker_exited_unexpectedly.check, snapshot_of(main(), first, working)) == []
    assert found(worker_exited_unexpectedly.check, snapshot_of(main(), just_now)) == []
    for job in (
        snapshot_of(main(), dead_worker(role="spawned", exit_code=1)),
        snapshot_of(main(), just_now, working),
    ):
        assert only(worker_exited_unexpectedly.check, job).severity is Severity.CRITICAL


def test_an_exit_with_status_0_beside_a_failed_sibling_is_no_second_failure() -> None:
    failed = process(201, ended=exited(201, exit_code=3))
    job = snapshot_of(dead_main(NOW_S - 1, exit_code=1), dead_worker(exit_code=0), failed)

    assert [f.process for f in found(worker_exited_unexpectedly.check, job)] == [pid(201)]


def test_memory_that_the_job_fills_is_forecast_before_the_kill() -> None:
    limited = cgroup(memory_bytes=800 * MIB, memory_limit_bytes=1024 * MIB)
    job = snapshot_of(main(), process(200, more={"private_bytes": 600 * MIB}), cgroup=limited)
    past = history(
        {(200, "rss_bytes"): line(700 * MIB, per_s=9 * MIB)},
        {"cgroup_memory_bytes": line(800 * MIB, per_s=10 * MIB)},
    )

    finding = only(worker_oom_killed.check, job, past)

    assert finding.severity is Severity.CRITICAL
    assert finding.eta_s == pytest.approx(22.4)
    assert "loader-worker 200 (200) 600M" in finding.evidence[-1]


def test_a_control_group_that_fills_with_page_cache_is_quiet() -> None:
    limited = cgroup(memory_bytes=800 * MIB, memory_limit_bytes=1024 * MIB)
    job = snapshot_of(main(), process(200), cgroup=limited)
    past = history(
        {(200, "rss_bytes"): line(100 * MIB)},
        {"cgroup_memory_bytes": line(800 * MIB, per_s=10 * MIB)},
    )

    assert found(worker_oom_killed.check, job, past) == []
    assert found(worker_oom_killed.check, job) == []


def test_a_worker_whose_shard_is_exhausted_may_exit() -> None:
    job = snapshot_of(main(), dead_worker(exit_code=0), process(201))

    assert found(worker_exited_unexpectedly.check, job) == []


def test_a_child_killed_by_an_unknown_sender_is_a_warning() -> None:
    job = snapshot_of(main(), dead_worker(role="spawned", signal=9))

    assert only(worker_exited_unexpectedly.check, job).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (9, "SIGKILL"),
        (10, "no handler for it"),
        (12, "no handler for it"),
        (13, "reader was gone"),
        (14, "timer"),
        (24, "RLIMIT_CPU"),
        (25, "RLIMIT_FSIZE"),
        (27, "timer"),
        (31, "seccomp"),
        (34, "Another process or the kernel"),
    ],
)
def test_the_cause_is_that_of_the_signal(number: int, words: str) -> None:
    finding = only(
        worker_exited_unexpectedly.check,
        snapshot_of(main(), dead_worker(role="spawned", signal=number)),
    )

    assert words in finding.cause
    assert ("out-of-memory" in finding.cause) is ("SIGKILL" in finding.cause) is (number == 9)


def test_a_parent_that_waits_for_the_exited_child_is_evidence() -> None:
    """Main reads from a pipe of which it alone holds the writing end since."""
    ends = [pipe(3, 500, False), pipe(4, 500, True)]
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    waiting = main(
        fds=fds(9, links=ends), segments=(), threads=[thread(MAIN, "train.py:recv:7", waits=reads)]
    )
    for check, signal in ((worker_segfault.check, 11), (worker_exited_unexpectedly.check, 9)):
        finding = only(check, snapshot_of(waiting, dead_worker(role="spawned", signal=signal)))

        assert any(
            "waits for data on pipe 500, train.py:7 recv: no living process can end" in each
            for each in finding.evidence
        )


def test_a_kill_with_the_end_of_a_parents_thread_may_be_the_signal_at_its_end() -> None:
    job = snapshot_of(main(), dead_worker(role="spawned", signal=9))
    before, after = Point(NOW_S - 6, 9.0), Point(NOW_S - 4, 8.0)
    lost = history({(MAIN, "threads"): [before, after]})
    kept = history({(MAIN, "threads"): [before, after._replace(value=9.0)]})

    few = history({(MAIN, "few_threads"): [Point(NOW_S - 90, 6.0), after._replace(value=5.0)]})

    assert "PR_SET_PDEATHSIG" in only(worker_exited_unexpectedly.check, job, lost).cause
    assert "PR_SET_PDEATHSIG" in only(worker_exited_unexpectedly.check, job, few).cause
    assert "PR_SET_PDEATHSIG" not in only(worker_exited_unexpectedly.check, job, kept).cause


KILLS = Mark(
    "kills",
    "/home/me/train.py",
    "run",
    "60, 47; poll, run; if used > limit: in line 50",
    Statement(51, "os.kill(child.pid, signal.SIGKILL)"),
)


ROUNDS = SourceLine(
    "/home/me/train.py", 54, "run", Statement(54, "sleep(1)"), (Statement(47, "while True:"),)
)


@pytest.mark.parametrize("number", [54, 48], ids=["below that line", "above it"])
def test_a_process_that_is_in_a_loop_that_kills_is_named_as_the_sender(number: int) -> None:
    watching = thread(MAIN + 1, f"train.py:run:{number}", name="monitor")
    watches = main(threads=[thread(MAIN), watching])
    dead = dead_worker(role="spawned", signal=9)

    at = replace(ROUNDS, line=number)
    job = snapshot_of(watches, dead, marks=(KILLS,), source=(at,))
    finding = only(worker_exited_unexpectedly.check, job)

    line = "`os.kill(child.pid, signal.SIGKILL)` at train.py:51 run"
    assert finding.summary.endswith(
        "SIGKILL), most likely by main (100), in its thread monitor at train.py:51 run"
    )
    assert finding.cause.startswith(
        f"Most likely main (100), in its thread monitor, ended it: {line} sends that signal, under "
        "`if used > limit:` in line 50. Otherwise: "
    )
    assert finding.advice.startswith(f"Look at the condition for {line} first.")


KILLS_GROUP = Mark(
    "kills-group",
    "/home/me/train.py",
    "score",
    "SIGKILL, 23",
    Statement(30, "os.killpg(os.getpgid(proc.pid), signal.SIGKILL)"),
)


@pytest.mark.parametrize(
    ("at", "number", "is_named"),
    [
        (("train.py:score:27",), 9, True),
        ((), 9, False),
        (("train.py:other:50",), 9, False),
    ],
    ids=["was there", "not seen", "elsewhere"],
)
def test_a_process_that_sends_a_signal_to_its_own_group_ends_itself(
    at: tuple[str, ...], number: int, is_named: bool
) -> None:
    dead = replace(dead_worker(role="spawned", signal=number), threads=(thread(200, *at),))

    finding = only(
        worker_exited_unexpectedly.check, snapshot_of(main(), dead, marks=(KILLS_GROUP,))
    )

    assert ("by train.py:30 score in the process itself" in finding.summary) is is_named
    assert ("the program that line 23 starts" in finding.cause) is is_named
    assert ("start_new_session=True" in finding.advice) is is_named


@pytest.mark.parametrize("loop", [(), (Statement(9, "while self.jobs:"),)], ids=["once", "often"])
def test_a_process_in_a_function_that_leads_to_it_is_named_where_a_loop_calls_that(
    loop: tuple[Statement, ...],
) -> None:
    watches = main(threads=[thread(MAIN, "train.py:poll:20", "train.py:main:12")])
    lines = (
        SourceLine("/home/me/train.py", 20, "poll", Statement(20, "ready = wait(conns, 1)")),
        SourceLine("/home/me/train.py", 12, "main", Statement(12, "pool.poll()"), loop),
    )
    dead = dead_worker(role="spawned", signal=9)
    job = snapshot_of(watches, dead, marks=(KILLS,), source=lines)

    cause = only(worker_exited_unexpectedly.check, job).cause

    assert ("main (100) ended it" in cause) is bool(loop)


def test_a_process_in_a_loop_that_calls_what_kills_is_named_as_the_sender() -> None:
    watches = main(threads=[thread(MAIN, "train.py:serve:64")])
    loop = (Statement(60, "while self.jobs:"),)
    at = SourceLine("/home/me/train.py", 64, "serve", Statement(64, "sleep(1)"), loop)
    job = snapshot_of(watches, dead_worker(role="spawned", signal=9), marks=(KILLS,), source=(at,))

    assert "main (100) ended it: `os.kill(child.pid, signal.SIGKILL)` at train.py:51 run" in (
        only(worker_exited_unexpectedly.check, job).cause
    )


@pytest.mark.parametrize(
    ("place", "signal", "loop"),
    [("train.py:start:9", 9, 47), ("train.py:run:54", 15, 47), ("train.py:run:54", 9, 52)],
    ids=["away", "SIGTERM", "in a later loop"],
)
def test_a_process_that_is_elsewhere_is_not_the_sender(place: str, signal: int, loop: int) -> None:
    watches = main(threads=[thread(MAIN, place)])
    dead = dead_worker(role="spawned", signal=signal)
    at = replace(ROUNDS, within=(Statement(loop, "while True:"),))
    job = snapshot_of(watches, dead, marks=(KILLS,), source=(at,))

    assert not any(
        "train.py:51" in each.cause for each in found(worker_exited_unexpectedly.check, job)
    )


def test_a_signal_that_the_source_asks_for_at_the_end_of_the_parent_is_reported_with_its_line() -> (
    None
):
    asks = Statement(19, "libc.prctl(PR_SET_PDEATHSIG, 9)")
    mark = Mark("death-signal", "/app/actor.py", "die_with_parent", "", asks)
    job = replace(snapshot_of(main(), dead_worker(role="spawned", signal=9)), marks=(mark,))
    before, after = Point(NOW_S - 6, 9.0), Point(NOW_S - 4, 8.0)

    seen = only(
        worker_exited_unexpectedly.check, job, history({(MAIN, "threads"): [before, after]})
    )
    unseen = only(worker_exited_unexpectedly.check, job)

    words = "`libc.prctl(PR_SET_PDEATHSIG, 9)` at actor.py:19 die_with_parent"
    assert seen.cause.startswith(f"Most likely: {words} asks the kernel")
    assert unseen.cause.startswith(f"Possible: {words} asks the kernel")
    assert "keep the thread that starts them alive" in unseen.advice


def test_a_worker_of_an_unknown_parent_is_judged_by_its_end_alone() -> None:
    lost = process(200, parent=None, ended=exited(200, exit_code=3))

    assert only(worker_exited_unexpectedly.check, snapshot_of(main(), lost)).evidence


@pytest.mark.parametrize(
    ("still_s", "state", "severity"),
    [(0.4, "S", Severity.INFO), (60.0, "S", Severity.CRITICAL), (0.4, "Z", Severity.CRITICAL)],
    ids=["goes on", "stands still", "has not looked"],
)
def test_a_child_whose_parent_reads_its_status_and_continues_is_information(
    still_s: float, state: str, severity: Severity
) -> None:
    parent = main(threads=[thread(MAIN, "train.py:next_trial:7", still_s=still_s)])
    dead = process(200, "spawned", state=state, ended=exited(200, at_s=NOW_S - 9, exit_code=2))

    assert only(worker_exited_unexpectedly.check, snapshot_of(parent, dead)).severity is severity


def test_a_child_in_whose_place_its_parent_has_started_another_is_information() -> None:
    dead = process(200, "spawned", ended=exited(200, at_s=NOW_S - 9, exit_code=2))
    check = worker_exited_unexpectedly.check

    replaced = snapshot_of(main(), dead, process(900, "spawned"))
    beside = snapshot_of(main(), dead, process(201, "spawned"))

    assert only(check, replaced).severity is Severity.INFO
    assert only(check, beside).severity is Severity.CRITICAL


def test_a_rank_that_its_launcher_has_started_again_is_information() -> None:
    agent = process(MAIN, "launcher", parent=None)
    failed = process(200, "rank", rank=1, ended=exited(200, exit_code=1))
    again = process(300, "rank", rank=1)
    ended = replace(again, ended=exited(300, exit_code=1))
    check = worker_exited_unexpectedly.check

    assert only(check, snapshot_of(agent, failed, again)).severity is Severity.INFO
    assert only(check, snapshot_of(agent, failed)).severity is Severity.CRITICAL
    assert only(check, snapshot_of(agent, failed, ended)).severity is Severity.CRITICAL


def test_workers_that_a_failing_program_kills_are_not_its_cause() -> None:
    raised = log("exception", MAIN, where="main", type="MemoryError", text="")
    lost = log("exception", MAIN, where="main", type="BrokenProcessPool", text="")
    failed = dead_main(NOW_S - 0.2, exit_code=1)
    killed = dead_worker(NOW_S - 0.5, role="pool-worker", signal=9)
    check = worker_exited_unexpectedly.check

    own = only(check, snapshot_of(failed, killed, log=(raised,)))

    assert (own.process, own.severity) == (pid(MAIN), Severity.WARNING)
    assert own.summary == "main (100) ended by an uncaught MemoryError"
    assert only(check, snapshot_of(failed, killed, log=(lost,))).process == killed.process


@pytest.mark.parametrize(
    ("shell", "severity", "words"),
    [
        (exited(150, exit_code=0), Severity.WARNING, "its exit status was lost"),
        (None, Severity.INFO, "and the job continues"),
    ],
)
def test_a_program_that_failed_while_the_job_continues_is_reported(
    shell: Ended | None, severity: Severity, words: str
) -> None:
    raised = log("exception", 200, where="main", type="KeyError", text="'x'")
    failed = process(200, "other", label="tokenize.py", ended=exited(200, exit_code=1))
    failed = replace(failed, original_parent=pid(150))
    starter = process(150, "other", label="sh", ended=shell)
    check = worker_exited_unexpectedly.check

    finding = only(check, snapshot_of(main(), starter, failed, log=(raised,)))

    assert finding.severity is severity
    assert finding.summary.startswith("tokenize.py (200) ended by an uncaught KeyError")
    assert words in finding.summary
    ended = dead_main(NOW_S - 0.2, exit_code=0)
    assert found(check, snapshot_of(ended, starter, failed, log=(raised,))) == []


def test_the_process_that_sent_the_signal_is_named_by_its_hook() -> None:
    killed = process(200, "spawned", ended=exited(200, signal=9))
    sent = log("kill", MAIN, pid=200, signal=9, site="guard.py:25")
    other = replace(sent, details={"pid": 201, "signal": 9, "site": "guard.py:25"})

    known = only(worker_exited_unexpectedly.check, snapshot_of(main(), killed, log=(sent,)))
    unknown = only(worker_exited_unexpectedly.check, snapshot_of(main(), killed, log=(other,)))

    assert "main (100) at guard.py:25 has sent it that signal, as its hook reports" in (
        known.evidence
    )
    assert known.cause.startswith("main (100) at guard.py:25 ended it")
    assert "dmesg" not in known.advice
    assert "dmesg" in unknown.advice
    for finding in (known, unknown):
        assert "neither kill() nor terminate() lets" in finding.advice


@pytest.mark.parametrize("left", ["39", ""])
def test_a_worker_that_a_timer_has_killed_is_reported_with_the_line_that_sets_it(left: str) -> None:
    sets = Mark("alarm", "/home/me/staging.py", "fetch", left, Statement(37, "signal.alarm(5)"))
    job = snapshot_of(main(), dead_worker(role="spawned", signal=14), marks=(sets,))

    finding = only(worker_exited_unexpectedly.check, job)

    assert "a timer is set by `signal.alarm(5)` at staging.py:37 fetch" in finding.evidence
    assert ("returns in line 39 before it is cancelled" in finding.cause) is bool(left)


@pytest.mark.parametrize("limit", ["RLIMIT_CPU", "RLIMIT_AS"])
def test_a_worker_that_its_own_limit_has_killed_is_reported_with_the_line_that_sets_it(
    limit: str,
) -> None:
    sets = Mark("limit", "/home/me/run.py", "apply", limit, Statement(33, "setrlimit(CPU, 2)"))
    job = snapshot_of(main(), dead_worker(role="spawned", signal=24), marks=(sets,))

    finding = only(worker_exited_unexpectedly.check, job)

    is_told = "that limit is set by `setrlimit(CPU, 2)` at run.py:33 apply" in finding.evidence
    assert is_told is (limit == "RLIMIT_CPU")
    assert ("Most likely it has set that limit itself" in finding.cause) is is_told


def test_a_worker_that_sigpipe_has_ended_is_told_with_the_line_that_sets_its_action() -> None:
    sets = Mark(
        "default-sigpipe", "/home/me/child.py", "reset", "", Statement(15, "signal.signal(s, DFL)")
    )
    by_pipe = dead_worker(role="spawned", signal=13)
    by_timer = dead_worker(role="spawned", signal=14)

    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), by_pipe, marks=(sets,)))
    other = only(worker_exited_unexpectedly.check, snapshot_of(main(), by_timer, marks=(sets,)))

    words = "`signal.signal(s, DFL)` at child.py:15 reset"
    assert f"that action is set by {words}" in finding.evidence
    assert f"Most likely that action was set by {words}" in finding.cause
    assert finding.advice.startswith("Leave SIGPIPE out at child.py:15 reset")
    assert words not in str(other)


def with_member(number: int, *stack: str) -> Process:
    """A process that waits for room in a queue, or does something else."""
    at_bound = WaitedOn("semaphore", "futex", ("sem",), segment=SegmentId(9, 77), value=0)
    waits = at_bound if stack[0].startswith("multiprocessing") else None
    threads = [thread(number, *stack, waits=waits, still_s=30.0)]
    return process(number, "spawned", threads=threads, fds=fds(9), segments=())


MEMBER_PUTS = ("multiprocessing/queues.py:put", "train.py:step:50")


@pytest.mark.parametrize(
    ("stack", "takes", "is_told"),
    [
        (MEMBER_PUTS, {"p200": {WAITS_IN_QUEUE: 1.0}}, True),
        (MEMBER_PUTS, {"p200": {COMPUTES: 1.0}}, False),
        (MEMBER_PUTS, {"p200": {WAITS_IN_QUEUE: 1.0}, "p100": {WAITS_IN_QUEUE: 1.0}}, False),
        (("train.py:step:50",), {"p200": {WAITS_IN_QUEUE: 1.0}}, False),
        (MEMBER_PUTS, {"p300": {IS_AHEAD: 1.0}}, True),  # it ended before the job was watched
    ],
)
def test_those_that_fill_the_queue_of_a_worker_that_has_ended_are_named(
    stack: tuple[str, ...], takes: dict[str, dict[Activity, float]], is_told: bool
) -> None:
    queue = segment(77, kind="semaphore", mappers=(pid(MAIN), pid(300)))
    ended = process(200, "spawned", ended=exited(200, signal=13))
    job = snapshot_of(main(), ended, with_member(300, *stack), segments=(queue,))

    finding = only(worker_exited_unexpectedly.check, with_shares(job, **takes))

    is_seen = "p200" in takes
    words = "It also emptied a queue" if is_seen else "Most likely it emptied a queue as well"
    assert is_told is (words in finding.cause)
    assert is_told is ("put(timeout=...) raises" in finding.advice)


def test_those_that_waited_for_room_until_the_job_ended_are_named_as_well() -> None:
    ended = process(200, "spawned", ended=exited(200, signal=13, at_s=NOW_S - 40))
    member = process(300, "spawned", ended=exited(300, signal=2))
    job = snapshot_of(main(), ended, member)
    told = with_shares(job, p200={WAITS_IN_QUEUE: 1.0}, p300={IS_AHEAD: 1.0})

    finding = only(worker_exited_unexpectedly.check, told)

    assert "waited in put() for room in that" in finding.cause


def test_an_exception_known_from_its_traceback_alone_is_most_likely_the_reason() -> None:
    told = log(
        "exception",
        200,
        "most likely its traceback in train.log: KeyError: 3",
        type="KeyError",
        text="3",
        frames=[["load", "/app/load.py", 7]],
        log="/tmp/train.log",
        is_certain=False,
    )
    job = snapshot_of(main(), dead_worker(role="spawned", exit_code=1), log=(told,))

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.summary.endswith("exit code 1, most likely by KeyError at load.py:7 load")
    assert finding.cause.startswith("Most likely KeyError at load.py:7 load ended it")
    assert "train.log" in finding.cause


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        ("/home/me/train.py", "has caught ValueError at data.py:3 load, and ended the process at "),
        ("/usr/lib/python3/spawn.py", "An uncaught ValueError at data.py:3 load ended it. "),
    ],
)
def test_an_exit_in_the_handler_of_an_exception_is_no_uncaught_one(file: str, cause: str) -> None:
    raised = log("exception", 300, type="ValueError", frames=[["load", "/home/me/data.py", 3]])
    left = log("exit", 300, how="SystemExit", code=2, frames=[["work", file, 10]])
    failed = process(300, "spawned", ended=exited(300, exit_code=2))

    finding = only(
        worker_exited_unexpectedly.check, snapshot_of(main(), failed, log=(raised, left))
    )

    assert cause in finding.cause


WRITTEN = WrittenError(
    "/tmp/train.log",
    0,
    Raised("KeyError", "3", (Frame("load", "/app/load.py", 7),)),
    process_name="indexer-7",
    is_of_job=True,
)


def test_a_child_that_is_gone_is_known_by_what_it_has_written() -> None:
    waits = main()
    job = snapshot_of(waits, written=(WRITTEN,))

    finding = only(worker_exited_unexpectedly.check, job)

    assert finding.severity is Severity.INFO  # nothing has come to a dead end
    assert (
        finding.summary == "indexer-7, a process that is gone, ended by KeyError at load.py:7 load"
    )
    assert "Its parent has read that since" in finding.cause
    ended = exited(300, at_s=NOW_S - 9.0, exit_code=1)
    zombie = process(300, "other", state="Z", ended=ended, label="python")
    beside = found(worker_exited_unexpectedly.check, replace(job, processes=(waits, zombie)))
    assert ["has read that" in each.cause for each in beside] == [False]
    old = replace(WRITTEN, is_of_job=False)
    assert found(worker_exited_unexpectedly.check, snapshot_of(waits, written=(old,))) == []
    ending = process(
        200, "spawned", threads=[thread(200, "multiprocessing/util.py:_exit_function:1")]
    )
    assert (
        found(worker_exited_unexpectedly.check, snapshot_of(waits, ending, written=(WRITTEN,)))
        == []
    )


@pytest.mark.parametrize(
    ("text", "used", "count"),
    [
        ("filedescriptor out of range in select()", 1021, 1),
        ("filedescriptor out of range in select()", 40, 0),  # read long before it ended
        ("bad shard", 1021, 0),
    ],
)
def test_the_descriptors_of_a_process_that_select_has_failed_are_told(
    text: str, used: int, count: int
) -> None:
    raised = log("exception", 200, type="ValueError", text=text)
    links = [FdLink(n, "file", f"/tmp/items/{n:05}.f32", None, None) for n in range(8, 1000)]
    failed = process(200, "spawned", ended=exited(200, exit_code=1))
    had = fds(used, 8192, links, file=992, socket=8)
    failed = replace(failed, sample=replace(failed.sample, fds=had))

    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), failed, log=(raised,)))

    kinds = "of 1000 that were looked at 992 files, 8 sockets"
    words = f"when last read it had 1021 descriptors open, {kinds}"
    assert finding.evidence.count(words) == count


LOST = WrittenError(
    "/tmp/train.log",
    0,
    Raised(
        "FileNotFoundError",
        "[Errno 2] No such file or directory: '/tmp/parts-yd5l78at/part-5.npy'",
        (Frame("load", "/home/me/data.py", 7), Frame("<module>", "/home/me/data.py", 20)),
    ),
    script="/home/me/data.py",
    is_of_job=True,
)
FORKED = (
    Mark("forked-exit", "/app/detach.py", "run", "11", Statement(16, "sys.exit(0)")),
    Mark(
        "removes-folder",
        "/app/scratch.py",
        "__init__",
        "exit; parts-????????; shutil.rmtree(self.path) in line 19",
        Statement(16, "atexit.register(self.remove)"),
    ),
)


def test_a_program_that_is_gone_is_known_by_what_it_has_written() -> None:
    check, waits = worker_exited_unexpectedly.check, main()
    one = only(check, snapshot_of(waits, written=(LOST,)))
    assert one.severity is Severity.INFO
    assert one.summary.startswith("data.py, a program that is gone, most likely ended by FileN")
    seen = process(200, "other", label="reader.py", ended=exited(200, exit_code=1))
    seen = replace(seen, sample=replace(seen.sample, cmdline=("python", "data.py")))
    sure = only(check, snapshot_of(waits, seen, written=(LOST,)))
    assert sure.summary.startswith("reader.py (200) ended by FileNotFoundError at data.py:7 load")
    handled = replace(LOST, offset=9, raised=LOST.raised._replace(type="ImportError"))
    again = only(check, snapshot_of(waits, seen, written=(LOST, handled)))
    assert again.summary == sure.summary  # one has ended, of two tracebacks
    raised = log(
        "exception", 200, type="FileNotFoundError", text=LOST.raised.text, where="main", frames=[]
    )
    told = found(check, snapshot_of(waits, seen, written=(LOST,), log=(raised,)))
    assert ["uncaught" in each.summary for each in told] == [True]  # told by its hook, once


@pytest.mark.parametrize(
    "error",
    [
        replace(LOST, is_of_job=False),
        replace(LOST, script="/usr/lib/python3.11/site-packages/x/__init__.py"),
        replace(LOST, script="/app/train.py"),  # of the root process, which goes on
        replace(LOST, raised=LOST.raised._replace(type="ModuleNotFoundError")),
    ],
)
def test_a_traceback_that_may_be_logged_is_no_end_of_a_program(error: WrittenError) -> None:
    waits = main()
    waits = replace(waits, sample=replace(waits.sample, cmdline=("python", "train.py")))
    assert found(worker_exited_unexpectedly.check, snapshot_of(waits, written=(error,))) == []


@pytest.mark.parametrize(("around", "count"), [((), 1), ((Statement(19, "try:"),), 0), (None, 0)])
def test_a_program_of_which_another_process_lives_is_told_if_it_catches_nothing(
    around: tuple[Statement, ...] | None, count: int
) -> None:
    reads = process(200, "other", threads=[thread(200, "data.py:<module>:20")])
    lines = (
        ()
        if around is None
        else (SourceLine("/home/me/data.py", 20, "<module>", Statement(20, "main()"), around),)
    )
    job = snapshot_of(main(), reads, written=(LOST,), source=lines)

    assert len(found(worker_exited_unexpectedly.check, job)) == count


def test_a_forked_child_that_removes_the_files_of_its_parent_is_the_likely_cause() -> None:
    check = worker_exited_unexpectedly.check
    finding = only(check, snapshot_of(main(), written=(LOST,), marks=FORKED))

    assert finding.severity is Severity.WARNING
    assert "Most likely a forked child has removed /tmp/parts-yd5l78at while" in finding.cause
    assert "The child leaves by `sys.exit(0)` at detach.py:16 run" in finding.cause
    assert "which calls `shutil.rmtree(self.path)` in line 19" in finding.cause
    assert "with os._exit(0)" in finding.advice
    raised = log("exception", 200, where="main", type=LOST.raised.type, text=LOST.raised.text)
    failed = process(200, "other", label="reader.py", ended=exited(200, exit_code=1))
    hooked = only(check, snapshot_of(main(), failed, log=(raised,), marks=FORKED))
    assert "Most likely a forked child" in hooked.cause
    child = process(200, "spawned", ended=exited(200, exit_code=1))
    spawned = only(check, snapshot_of(main(), child, log=(raised,), marks=FORKED))
    assert "Most likely a forked child" in spawned.cause
    assert spawned.severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("marks", "path"),
    [
        (FORKED[:1], "/tmp/parts-yd5l78at/part-5.npy"),
        (FORKED[1:], "/tmp/parts-yd5l78at/part-5.npy"),
        (FORKED, "/data/parts/part-5.npy"),
        (FORKED, "/tmp/other-yd5l78at/part-5.npy"),
        (
            (FORKED[0], FORKED[1]._replace(about="block; parts-????????; ")),
            "/tmp/parts-yd5l78at/part-5.npy",
        ),
    ],
)
def test_another_missing_file_is_no_work_of_a_forked_child(
    marks: tuple[Mark, ...], path: str
) -> None:
    error = replace(LOST, raised=LOST.raised._replace(text=f"[Errno 2] No such file: '{path}'"))
    finding = only(
        worker_exited_unexpectedly.check, snapshot_of(main(), written=(error,), marks=marks)
    )

    assert finding.severity is Severity.INFO
    assert "forked" not in finding.cause


def test_a_receiver_whose_sender_had_gone_is_reported_by_its_traceback() -> None:
    frames = (
        Frame("SocketClient", "/usr/lib/python3.11/multiprocessing/connection.py", 646),
        Frame("detach", "/usr/lib/python3.11/multiprocessing/resource_sharer.py", 57),
        Frame("index_writer", "/app/index_writer.py", 24),
    )
    raised = Raised("FileNotFoundError", "[Errno 2] No such file or directory", frames)
    job = snapshot_of(main(), written=(replace(WRITTEN, raised=raised),))

    cause = only(producer_exits_before_get.check, job)
    effect = only(worker_exited_unexpectedly.check, job)

    assert "indexer-7 could not receive a tensor at index_writer.py:24 index_writer" in (
        cause.summary
    )
    assert "removed its socket in a normal exit" in cause.cause
    assert with_causes([effect, cause]) == {effect: producer_exits_before_get.RULE}
    other = snapshot_of(main(), written=(WRITTEN,))
    assert found(producer_exits_before_get.check, other) == []


GIVES_UP = Mark(
    "gives-up",
    "/home/me/train.py",
    "run",
    "`except IndexError as exc:` in line 51, logged in line 52",
    Statement(55, 'raise RuntimeError("Rollout batch failed")'),
)


def test_the_first_exception_of_a_chain_is_the_cause_of_an_exit() -> None:
    first = {"type": "IndexError", "text": "index 128", "frames": [["f", "/app/engine.py", 27]]}
    chain = {"type": "RuntimeError", "text": "failed", "frames": [["run", "/app/a.py", 5]]}
    job = snapshot_of(main(), dead_worker(role="spawned", exit_code=1))

    def finding(**of_chain: object) -> Finding:
        raised = log("exception", 200, "exception: RuntimeError", **chain, **of_chain)
        return only(worker_exited_unexpectedly.check, replace(job, log=(raised,)))

    raised_from = finding(first={**first, "is_from": True})
    handled = finding(first={**first, "is_from": False})
    alone = finding()

    place = "IndexError at engine.py:27 f"
    assert raised_from.cause.startswith(f"It began with {place}; the RuntimeError that ended")
    assert "was raised from it" in raised_from.cause
    assert "was raised while it was handled" in handled.cause
    assert any("IndexError: index 128, at engine.py:27 f" in each for each in handled.evidence)
    assert handled.advice.startswith("Fix the code at engine.py:27 f.")
    assert "began with" not in alone.cause


def test_exceptions_that_a_loop_has_caught_before_it_gave_up_are_the_cause_of_an_exit() -> None:
    raised = log("exception", 200, type="RuntimeError", frames=[["run", "/home/me/train.py", 55]])
    other = log("exception", 200, type="RuntimeError", frames=[["run", "/home/me/train.py", 40]])
    in_loop = thread(200, "engine.py:generate:24", "train.py:run:48")
    dead = dead_worker(role="spawned", exit_code=1)

    def finding(*notes: LogEntry, of: Process = dead, marks: tuple[Mark, ...] = (GIVES_UP,)) -> Any:
        job = replace(snapshot_of(main(), of), log=notes, marks=marks)
        return only(worker_exited_unexpectedly.check, job)

    seen, guessed = finding(raised), finding(of=replace(dead, threads=(in_loop,)))
    unseen = finding(of=replace(dead, threads=()))

    assert "`except IndexError as exc:` in line 51, logged in line 52" in seen.cause
    assert seen.cause.startswith("It ended by `raise RuntimeError")
    assert guessed.cause.startswith("Likely it ended by `raise RuntimeError")
    assert unseen.cause.startswith("Possible: it ended by `raise RuntimeError")
    assert "more attempts do not help" in seen.advice
    for unlike in (
        finding(other),
        finding(),
        finding(of=replace(dead, threads=(in_loop,)), marks=(GIVES_UP, replace_line(GIVES_UP))),
    ):
        assert "line 51" not in unlike.cause
        assert "more attempts" not in unlike.advice


def replace_line(mark: Mark) -> Mark:
    return mark._replace(statement=Statement(90, "raise OSError()"))


def test_processes_that_handle_the_signal_that_ended_another_one_are_reported() -> None:
    bit = 1 << (SIGUSR1 - 1)
    own = main()
    handles = replace(own, sample=replace(own.sample, signals_caught=bit))
    dead = dead_worker(role="spawned", signal=SIGUSR1)

    told = only(worker_exited_unexpectedly.check, snapshot_of(handles, dead))
    alone = only(worker_exited_unexpectedly.check, snapshot_of(own, dead))

    assert any("main (100) handles or ignores that signal" in each for each in told.evidence)
    assert not any("handles or ignores" in each for each in alone.evidence)


SENDS = Mark(
    "sends-signal", "/home/me/train.py", "tell", "SIGUSR1", Statement(53, "os.kill(pid, SIGUSR1)")
)


def test_the_only_statement_that_sends_such_a_signal_is_reported() -> None:
    dead = dead_worker(role="spawned", signal=SIGUSR1)
    other = SENDS._replace(statement=Statement(90, "os.kill(first, SIGUSR1)"))

    told = only(worker_exited_unexpectedly.check, snapshot_of(main(), dead, marks=(SENDS,)))
    several = [SENDS, other], [SENDS._replace(about="SIGUSR2")]

    assert "`os.kill(pid, SIGUSR1)` at train.py:53 tell sends that signal" in told.evidence
    assert told.cause.startswith("Most likely it was sent by `os.kill(pid, SIGUSR1)`")
    for marks in several:
        job = snapshot_of(main(), dead, marks=tuple(marks))
        assert "os.kill" not in only(worker_exited_unexpectedly.check, job).cause


def test_an_unread_exit_by_a_signal_that_others_handle_is_about_that_signal() -> None:
    own = main()
    handles = replace(own, sample=replace(own.sample, signals_caught=1 << (SIGUSR1 - 1)))
    dead = dead_worker(NOW_S - 30, role="other", signal=SIGUSR1)
    dead = replace(dead, parent=pid(MAIN), sample=replace(dead.sample, state="Z"))

    told = only(zombie_processes.check, snapshot_of(handles, dead, marks=(SENDS,)))
    alone = only(zombie_processes.check, snapshot_of(own, dead))

    assert "did not handle a signal that ended it: signal 10 (SIGUSR1)" in told.summary
    assert told.severity is Severity.WARNING
    assert any("main (100) handles or ignores that signal" in each for each in told.evidence)
    assert "Most likely it was sent by `os.kill(pid, SIGUSR1)`" in told.cause
    assert "ignore the signal (signal.SIG_IGN)" in told.advice
    assert alone.severity is Severity.INFO
    assert "has not joined" in alone.summary


def test_a_parent_that_waits_for_what_only_the_ended_process_released_is_critical() -> None:
    at = WaitedOn("semaphore", "futex", segment=SegmentId(9, 77))
    own = main(threads=[thread(MAIN, "train.py:main:79", waits=at)])
    takes = SourceLine("/home/me/train.py", 79, "main", Statement(79, "slots.acquire()"))
    gives = Mark(
        "releases", "/home/me/data.py", "record", "slots", Statement(33, "slots.release()")
    )
    away = dead_worker(role="spawned", signal=10)
    dead = replace(away, threads=(thread(200, "data.py:record:26"),))
    there = process(201, "spawned", threads=[thread(201, "data.py:record:26")])
    elsewhere = process(201, "spawned", threads=[thread(201, "data.py:read:18")])

    def finding(
        *others: Process, marks: tuple[Mark, ...] = (gives,), of: Process = dead
    ) -> Finding:
        job = replace(snapshot_of(own, of, *others), source=(takes,), marks=marks)
        return only(worker_exited_unexpectedly.check, job)

    told = finding(elsewhere)

    assert told.severity is Severity.CRITICAL
    assert any(
        "waits for that at train.py:79 main: `slots.release()` at data.py:33 record" in each
        for each in told.evidence
    )
    for unlike in (
        finding(there),
        finding(elsewhere, marks=()),
        finding(elsewhere, of=away),  # it was seen in another function
    ):
        assert unlike.severity is Severity.WARNING
        assert not any("would release it" in each for each in unlike.evidence)


def test_a_watchdog_that_ends_its_process_is_named_where_no_exception_is_known() -> None:
    arms = Mark(
        "exits-late",
        "/job/worker.py",
        "evaluate",
        "self.stall_s; 1; ; ",
        Statement(52, "faulthandler.dump_traceback_later(self.stall_s, exit=True)"),
    )
    gone = process(200, "spawned", ended=exited(200, exit_code=1))

    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), gone, marks=(arms,)))

    assert finding.summary.endswith(
        "exit code 1, most likely by its own watchdog at worker.py:52 evaluate"
    )
    assert "ends the process after self.stall_s with exit code 1" in finding.cause
    assert finding.advice.startswith("Arm the watchdog again in each round")
    assert "to standard error first" in finding.cause
    left = arms._replace(about="self.stall_s; 1; trace_file; 57")
    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), gone, marks=(left,)))
    assert "evaluate cancels it, but returns at worker.py:57 before that" in finding.cause
    assert "given there as file=trace_file first, and not to standard error" in finding.cause
    assert finding.advice.startswith("Cancel the watchdog on every way out of evaluate(): in a")
    assert "A longer limit or a new start of the process does not help" in finding.advice
    other = process(200, "spawned", ended=exited(200, exit_code=2))
    finding = only(worker_exited_unexpectedly.check, snapshot_of(main(), other, marks=(arms,)))
    assert "watchdog" not in f"{finding.summary} {finding.cause} {finding.advice}"
