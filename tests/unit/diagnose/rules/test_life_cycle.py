from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.exits.kinds import last_seen, violent_deaths_near
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.rules.exits import (
    pids_limit,
    pin_memory_thread_death,
    resource_tracker_leaks,
    shared_memory_tracker_unlink,
    sigchld_raises_anywhere,
    zombie_processes,
)
from mpwatch.model.events import Raised, WrittenError
from mpwatch.model.findings import Severity
from mpwatch.model.history import Point
from mpwatch.model.samples import Frame, ThreadSample, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import Mark, Statement
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    cgroup,
    dead_worker,
    exited,
    found,
    history,
    line,
    log,
    main,
    only,
    pid,
    process,
    segment,
    snapshot_of,
    thread,
)


def zombies(count: int, seconds: float = 30.0, per_s: float = 0.0) -> Any:
    return history(host={"zombies": line(count, per_s=per_s, seconds=seconds)})


def test_many_zombies_that_stay_are_named_with_their_parent() -> None:
    job = snapshot_of(main(), *(process(300 + i, "other", state="Z") for i in range(8)))

    finding = only(zombie_processes.check, job, zombies(8))

    assert finding.severity is Severity.INFO
    assert "main (100) has not reaped 8 exited child processes" in finding.summary


def test_ever_more_zombies_are_a_warning_with_the_pids_they_take() -> None:
    job = snapshot_of(main(), cgroup=cgroup(pids_current=40, pids_limit=100))

    finding = only(zombie_processes.check, job, zombies(40, per_s=1))

    assert finding.severity is Severity.WARNING
    assert "a process has not reaped 40" in finding.summary
    assert any("30 more within 30 s" in each for each in finding.evidence)
    assert any("40 of 100 pids" in each for each in finding.evidence)


@pytest.mark.parametrize(
    "past",
    [
        history(),
        zombies(2),
        zombies(8, seconds=3),
        history(host={"zombies": (*line(0, at_s=NOW_S - 2), Point(NOW_S, 9))}),
    ],
)
def test_a_few_or_young_zombies_are_ordinary(past: Any) -> None:
    assert found(zombie_processes.check, snapshot_of(main()), past) == []


def unjoined(number: int = 300, ago_s: float = 60.0, **how: Any) -> Process:
    """A child that had exited before its first reading, so that its role is unknown."""
    ended = exited(number, at_s=NOW_S - ago_s, **(how or {"signal": 9}))
    return process(number, "other", state="Z", ended=ended, label="python")


def test_a_child_that_was_killed_and_not_joined_is_named_with_its_parent() -> None:
    job = snapshot_of(main(threads=[thread(MAIN, still_s=60.0)]), unjoined(), unjoined(301, 50.0))

    finding = only(zombie_processes.check, job)

    assert finding.severity is Severity.WARNING
    assert finding.process == pid(300)
    assert "main (100) has not joined python (300) and python (301)" in finding.summary
    assert "python (300) ended: signal 9 (SIGKILL)" in finding.evidence
    assert "it waits for something" in finding.cause


def test_an_unjoined_child_is_information_while_its_parent_continues() -> None:
    job = snapshot_of(main(threads=[thread(MAIN, still_s=0.0)]), unjoined(exit_code=1))

    finding = only(zombie_processes.check, job)

    assert finding.severity is Severity.INFO
    assert "waits" not in finding.cause


def test_a_timer_that_ended_an_unjoined_child_is_reported_with_the_line_that_set_it() -> None:
    mark = Mark(
        "alarm",
        "/app/timeouts.py",
        "wrapper",
        "raise of 21",
        Statement(19, "signal.alarm(seconds)"),
    )
    job = snapshot_of(main(threads=[thread(MAIN, still_s=0.0)]), unjoined(signal=14), marks=(mark,))

    finding = only(zombie_processes.check, job)

    assert finding.cause.startswith("A timer that the process had set itself ran out")
    assert "wrapper cancels it only after line 21: an exception of that line" in finding.cause
    assert finding.advice.startswith("Cancel the timer in a finally block")


@pytest.mark.parametrize(
    "child",
    [
        unjoined(exit_code=0),
        unjoined(signal=15),
        unjoined(ago_s=2.0),
        process(300, "loader-worker", state="Z", ended=exited(300, signal=9, at_s=NOW_S - 60)),
        process(300, "other", state="S", ended=exited(300, signal=9, at_s=NOW_S - 60)),
    ],
)
def test_children_that_ended_as_asked_or_have_a_rule_of_their_own_are_quiet(
    child: Process,
) -> None:
    assert found(zombie_processes.check, snapshot_of(main(), child)) == []


def tracker(**fields: Any) -> Process:
    return process(300, "resource-tracker", **fields)


def test_a_tracker_that_outlives_a_killed_main_is_a_symptom() -> None:
    dead = main(ended=exited(MAIN, at_s=NOW_S - 9, signal=9))
    left = segment(1, kind="semaphore", is_linked=True)

    finding = only(
        resource_tracker_leaks.check,
        snapshot_of(dead, tracker(parent=None, original_parent=MAIN), segments=(left,)),
    )

    assert finding.severity is Severity.INFO
    assert "1 named semaphore left" in finding.evidence


def test_a_tracker_at_work_or_after_a_normal_end_is_ordinary() -> None:
    assert found(resource_tracker_leaks.check, snapshot_of(main(), tracker())) == []
    over = snapshot_of(main(ended=exited(MAIN, exit_code=0)), tracker())
    assert found(resource_tracker_leaks.check, over) == []


def block(**fields: Any) -> Any:
    return segment(5, kind="psm", path="/dev/shm/psm_1 (deleted)", **fields)


def test_a_block_removed_under_its_users_is_named() -> None:
    job = snapshot_of(main(), process(200), segments=(block(mappers=(pid(100), pid(200))),))

    assert only(shared_memory_tracker_unlink.check, job).severity is Severity.INFO


def unattached(text: str = "'/psm_1'") -> WrittenError:
    """A traceback in the log of a job, of a program that has attached to a block."""
    frames = (
        Frame("__init__", "/usr/lib/python3.11/multiprocessing/shared_memory.py", 104),
        Frame("attach", "/home/me/frames.py", 18),
    )
    raised = Raised("FileNotFoundError", f"[Errno 2] No such file or directory: {text}", frames)
    return WrittenError(
        "/home/me/log", 9, raised, script="/home/me/runner.py", writers=(pid(100), pid(300))
    )


def replaced(error: WrittenError) -> Snapshot:
    """A job whose main thread sleeps, and that has not joined a runner which has failed."""
    asleep = thread(MAIN, still_s=60.0, waits=WaitedOn("timer", "clock_nanosleep"))
    runner = replace(unjoined(exit_code=1), label="runner.py")
    job = snapshot_of(
        main(threads=[asleep]),
        process(200),
        runner,
        segments=(block(mappers=(pid(100), pid(200))),),
    )
    return replace(job, written=(error,))


def test_a_process_that_ended_as_its_block_was_gone_is_told_with_the_block() -> None:
    removed = only(shared_memory_tracker_unlink.check, replaced(unattached()))
    failed = only(zombie_processes.check, replaced(unattached()))

    assert (removed.severity, removed.others) == (Severity.WARNING, (pid(300),))
    assert removed.summary.endswith(
        "was removed, so that runner.py (300) could not attach to it at frames.py:18 attach and "
        "ended"
    )
    assert "Another one that is started in its place ends the same way" in removed.cause
    assert failed.effect_of == "shared-memory-tracker-unlink"
    assert failed.severity is Severity.INFO


def test_a_process_that_its_pid_names_is_told_only_if_it_has_ended() -> None:
    handled = replace(unattached(), script="", process=pid(200), writers=(pid(300),))

    removed = only(shared_memory_tracker_unlink.check, replaced(handled))
    ended = only(shared_memory_tracker_unlink.check, replaced(replace(handled, process=pid(300))))

    assert (removed.others, ended.others) == ((), (pid(300),))


@pytest.mark.parametrize(
    "error",
    [
        replace(unattached(), writers=()),
        replace(unattached(), writers=(pid(100), pid(200))),
        replace(unattached(), script="/home/me/other.py"),
    ],
)
def test_a_process_that_may_not_have_written_the_traceback_is_not_named(
    error: WrittenError,
) -> None:
    removed = only(shared_memory_tracker_unlink.check, replaced(error))
    failed = only(zombie_processes.check, replaced(error))

    assert (removed.severity, removed.others) == (Severity.WARNING, ())
    assert removed.summary.endswith(
        "was removed, and an attach to it has failed at frames.py:18 attach"
    )
    assert "ended" not in removed.summary + removed.cause
    assert failed.effect_of is None


def test_an_exception_that_has_ended_a_thread_alone_ended_no_process() -> None:
    of_thread = replace(unattached(), thread_name="Thread-1 (attach)")

    assert only(shared_memory_tracker_unlink.check, replaced(of_thread)).others == ()


def test_a_failed_attach_to_another_block_is_another_story() -> None:
    job = replaced(unattached("'/psm_2'"))

    removed = only(shared_memory_tracker_unlink.check, job)
    failed = only(zombie_processes.check, job)

    assert (removed.severity, removed.others) == (Severity.INFO, ())
    assert failed.effect_of is None
    # A process that sleeps waits for nothing of its child.
    assert "it waits for something" not in failed.cause


def test_a_failed_attach_makes_it_a_warning() -> None:
    entry = log("exception", 200, "FileNotFoundError: No such file or directory: '/psm_1'")
    job = snapshot_of(main(), process(200), segments=(block(mappers=(pid(100),)),), log=(entry,))

    finding = only(shared_memory_tracker_unlink.check, job)

    assert finding.severity is Severity.WARNING
    assert "psm_1" in finding.evidence[-1]


def test_a_block_with_its_name_or_without_users_is_ordinary() -> None:
    named = block(is_linked=True, mappers=(pid(100), pid(200)))
    unused = block()

    job = snapshot_of(main(), process(200), segments=(named, unused, segment(6)))
    assert found(shared_memory_tracker_unlink.check, job) == []


def test_the_handler_on_top_of_innocent_code_is_named() -> None:
    stack = ("torch/utils/data/_utils/signal_handling.py:handler", "train.py:save:80")
    quiet = thread(101, "train.py:f")
    job = snapshot_of(main(threads=[quiet, thread(MAIN, *stack)]), dead_worker(signal=9))

    assert "train.py:80 save" in only(sigchld_raises_anywhere.check, job).evidence[0]


@pytest.mark.parametrize("role", ["spawned", "pool-worker"])
def test_the_handler_says_nothing_of_a_child_that_is_no_worker_of_a_loader(role: str) -> None:
    stack = ("torch/utils/data/_utils/signal_handling.py:handler", "train.py:save:80")
    job = snapshot_of(main(threads=[thread(MAIN, *stack)]), dead_worker(role=role, signal=9))

    assert found(sigchld_raises_anywhere.check, job) == []


def test_the_handler_alone_is_at_an_unknown_line() -> None:
    stack = ("torch/utils/data/_utils/signal_handling.py:handler",)
    job = snapshot_of(main(threads=[thread(MAIN, *stack)]), dead_worker(signal=9))

    assert "an unknown line" in only(sigchld_raises_anywhere.check, job).evidence[0]


PINNED = ("threading.py:wait", "queue.py:get", "torch/utils/data/dataloader.py:_try_get_data")


def test_a_main_that_waits_for_pinned_batches_without_a_pin_thread_is_named() -> None:
    job = snapshot_of(main(threads=[thread(MAIN, *PINNED)]), process(200))

    finding = only(pin_memory_thread_death.check, job)

    assert "for 60 s" in finding.evidence[0]


def test_a_wait_of_unknown_length_is_named_without_it() -> None:
    job = snapshot_of(main(threads=[thread(MAIN, *PINNED, still_s=None)]), process(200))

    assert only(pin_memory_thread_death.check, job).evidence[0].endswith("called by the DataLoader")


@pytest.mark.parametrize(
    "other",
    [
        thread(101, name="pt_data_pin"),
        thread(101, name="Thread-1 (_pin_memory_loop)"),
        thread(101, "torch/utils/data/_utils/pin_memory.py:_pin_memory_loop"),
    ],
)
def test_a_living_pin_thread_is_recognised_by_name_or_stack(other: Any) -> None:
    job = snapshot_of(main(threads=[thread(MAIN, *PINNED), other]), process(200))

    assert found(pin_memory_thread_death.check, job) == []


def test_a_main_that_does_something_else_needs_no_pin_thread() -> None:
    assert found(pin_memory_thread_death.check, snapshot_of(main(), process(200))) == []
    busy = main(threads=[thread(MAIN, "train.py:step")])
    assert found(pin_memory_thread_death.check, snapshot_of(busy, process(200))) == []


def test_nearly_all_pids_in_use_is_named_with_the_process_that_has_most() -> None:
    job = snapshot_of(
        main(thread_count=8),
        process(200, thread_count=70),
        cgroup=cgroup(pids_current=95, pids_limit=100),
    )

    finding = only(pids_limit.check, job)

    assert finding.severity is Severity.WARNING
    assert "most threads: loader-worker 200 (200) 70, main (100) 8" in finding.evidence
    assert "78 threads in 2 processes" in finding.evidence[0]


def test_a_refused_thread_is_put_down_to_the_control_group_only_near_its_limit() -> None:
    said = (log("exception", MAIN, "RuntimeError: can't start new thread"),)
    near = snapshot_of(main(), cgroup=cgroup(pids_current=99, pids_limit=100), log=said)
    far = snapshot_of(main(), cgroup=cgroup(pids_current=9, pids_limit=100), log=said)

    assert "ulimit -u" not in only(pids_limit.check, near).cause
    assert "ulimit -u" in only(pids_limit.check, far).cause


def test_thread_limits_are_advised_only_where_threads_are_many_and_they_are_not_set() -> None:
    def advice(threads: int, **environment: str) -> str:
        crowded = main(thread_count=threads, environment=environment)
        near = cgroup(pids_current=95, pids_limit=100)
        return only(pids_limit.check, snapshot_of(crowded, cgroup=near, usable_cpus=8)).advice

    assert "OMP_NUM_THREADS=1" in advice(90)
    assert "OMP_NUM_THREADS" not in advice(90, OMP_NUM_THREADS="1")
    assert "OMP_NUM_THREADS" not in advice(3)


def test_pids_that_rise_to_the_limit_are_forecast() -> None:
    job = snapshot_of(main(), cgroup=cgroup(pids_current=60, pids_limit=100))
    past = history(host={"cgroup_pids": line(60, per_s=1)})

    assert only(pids_limit.check, job, past).eta_s == pytest.approx(40)


def test_pids_to_spare_or_without_a_limit_are_quiet() -> None:
    assert found(pids_limit.check, snapshot_of(main())) == []
    spare = snapshot_of(main(), cgroup=cgroup(pids_current=10, pids_limit=100))
    assert found(pids_limit.check, spare) == []


def test_a_place_is_known_only_from_a_stack() -> None:
    assert last_seen(process(200)) == ()
    assert last_seen(process(200, threads=[thread(200, "data.py:f:3")])) == (
        "last seen at data.py:3 f",
    )


def test_violent_deaths_are_those_of_children_and_siblings() -> None:
    killed = process(201, ended=exited(201, signal=9))
    polite = process(202, ended=exited(202, signal=15))
    cousin = process(301, parent=300, ended=exited(301, signal=9))
    other = process(300, "spawned")
    job = snapshot_of(main(), process(200), killed, polite, other, cousin)

    assert violent_deaths_near(Index(job), job.processes[1]) == (killed,)
    assert violent_deaths_near(Index(job), main()) == (killed,)


def test_old_threads_of_a_process_are_no_pin_threads() -> None:
    owner = main(threads=[thread(MAIN, *PINNED)])
    sample = replace(owner.sample, threads=(ThreadSample(101, "pt_data_pin", "S", 0),))

    job = snapshot_of(replace(owner, sample=sample), process(200))
    assert found(pin_memory_thread_death.check, job) == []


def actors(*, ended_s: float = 20.0, code: int = 0, still_s: float = 0.5) -> Snapshot:
    """Three equal processes, of which the first has ended; main has not joined it."""
    gone = process(
        200, "spawned", state="Z", ended=exited(200, at_s=NOW_S - ended_s, exit_code=code)
    )
    works = [
        process(number, "spawned", threads=[thread(number, "train.py:act:9", still_s=still_s)])
        for number in (201, 202)
    ]
    return snapshot_of(main(), gone, *works)


def test_one_of_several_equal_processes_that_ended_with_status_0_is_information() -> None:
    finding = only(zombie_processes.check, actors())

    assert finding.severity is Severity.INFO
    assert finding.summary.startswith("spawned 200 (200) has ended with exit code 0, while ")
    assert "catches its own exceptions" in finding.cause


@pytest.mark.parametrize(
    "job",
    [
        actors(ended_s=3.0),  # the others may end, too
        actors(code=1),  # another rule tells
        actors(still_s=60.0),  # nobody works any more
        replace(actors(), processes=actors().processes[:3]),  # one of two
    ],
)
def test_an_end_that_may_be_one_of_all_is_not_reported(job: Snapshot) -> None:
    assert [f for f in found(zombie_processes.check, job) if f.subject == "left the others"] == []
