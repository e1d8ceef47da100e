from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.engine import Engine
from mpwatch.diagnose.rules.exits import (
    main_killed,
    orphaned_workers,
    worker_oom_killed,
    zombie_processes,
)
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.events import Raised, WrittenError
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.ids import Role
from mpwatch.model.samples import Frame, PartOfJob, WaitedOn
from mpwatch.model.snapshot import GpuUse, Process, Snapshot
from tests.builders.snapshots import (
    MAIN,
    MIB,
    NOW_S,
    dead_main,
    dead_worker,
    exited,
    fds,
    found,
    history,
    line,
    main,
    only,
    pid,
    pipe,
    process,
    snapshot_of,
    thread,
)


def orphan(**keywords: Any) -> Process:
    return process(200, parent=None, original_parent=MAIN, **keywords)


def test_a_worker_that_outlives_its_parent_is_named_with_what_it_holds() -> None:
    stuck = thread(202, name="QueueFeederThread", waits=WaitedOn("pipe-write", "write"))
    survivor = orphan(threads=[stuck], more={"private_bytes": 91 * MIB, "shm_bytes": 8 * MIB})

    finding = only(orphaned_workers.check, snapshot_of(dead_main(NOW_S - 30, signal=9), survivor))

    assert finding.severity is Severity.WARNING
    assert "outlived main (100) by 30 s" in finding.summary
    assert any("91.0M of memory, 8.0M of shared memory" in each for each in finding.evidence)
    assert any("QueueFeederThread is blocked writing" in each for each in finding.evidence)
    assert "kill 200" in finding.advice


def test_the_cause_mentions_a_loader_only_where_there_is_one() -> None:
    call = thread(200, "torch/distributed/distributed_c10d.py:all_reduce", "train.py:step:4")
    rank = replace(orphan(threads=[call]), role="spawned")

    finding = only(orphaned_workers.check, snapshot_of(dead_main(NOW_S - 30, signal=9), rank))

    assert "DataLoader" not in finding.cause
    assert "last seen in all_reduce" in finding.cause
    assert "worker_init_fn" not in finding.advice


@pytest.mark.parametrize("holding", [{"fds": fds(20, gpu=3)}, {"more": {"gpus": (GpuUse(0, 1),)}}])
def test_a_survivor_that_holds_a_gpu_is_critical(holding: dict[str, object]) -> None:
    job = snapshot_of(dead_main(NOW_S - 30, signal=9), orphan(**holding))

    finding = only(orphaned_workers.check, job)

    assert finding.severity is Severity.CRITICAL
    assert any("a GPU" in each for each in finding.evidence)


def test_a_fresh_orphan_is_given_the_time_to_notice() -> None:
    assert (
        found(orphaned_workers.check, snapshot_of(dead_main(NOW_S - 4, signal=9), orphan())) == []
    )


def test_an_orphan_that_has_ended_or_waits_to_be_reaped_is_no_finding() -> None:
    dead = dead_main(NOW_S - 30, signal=9)

    assert found(orphaned_workers.check, snapshot_of(dead, orphan(ended=exited(200)))) == []
    assert found(orphaned_workers.check, snapshot_of(dead, orphan(state="Z"))) == []


@pytest.mark.parametrize(
    ("session", "code", "role", "is_named"),
    [
        (700, 0, "other", False),
        (50, 0, "other", True),
        (700, 1, "other", True),
        (700, 0, "spawned", True),
        (None, 0, "other", True),
    ],
)
def test_a_daemon_that_a_helper_has_forked_is_no_orphan(
    session: int | None, code: int, role: Any, is_named: bool
) -> None:
    helper = process(300, role, ended=exited(300, at_s=NOW_S - 30, exit_code=code))
    daemon = process(301, "spawned", parent=None, original_parent=300, session=session)

    findings = found(orphaned_workers.check, snapshot_of(main(session=50), helper, daemon))

    assert bool(findings) is is_named


def test_helpers_that_outlive_main_are_no_orphans() -> None:
    dead = dead_main(NOW_S - 30, signal=9)
    tracker = process(300, "resource-tracker", parent=None, original_parent=MAIN)

    assert found(orphaned_workers.check, snapshot_of(dead, tracker)) == []


def test_a_root_attached_to_directly_is_no_orphan() -> None:
    root = process(200, parent=None, original_parent=7)

    assert found(orphaned_workers.check, snapshot_of(root)) == []


ENTRY = "multiprocessing/process.py:_bootstrap:314"


def left_over(number: int, *stack: str, role: Role = "spawned", **more: Any) -> Process:
    """A child of multiprocessing that process 1 has adopted, and that waits for its parent."""
    reads = WaitedOn("pipe-read", "read", (f"pipe:[{number}]",))
    ends = (pipe(5, number, False), pipe(6, number, True))
    waits = thread(number, *stack, waits=reads, still_s=84.0, waits_s=84.0)
    return process(
        number,
        role,
        parent=None,
        label=f"serve {number}",
        threads=(waits,),
        fds=fds(20, links=ends),
        segments=(),
        **more,
    )


GETS = ("multiprocessing/queues.py:get", "data.py:serve:57", ENTRY)


def left_job(*processes: Process, **more: Any) -> Snapshot:
    return replace(snapshot_of(*processes), root=processes[0].process, **more)


def test_a_program_that_was_gone_before_is_said_above_what_its_children_wait_for() -> None:
    job = left_job(
        left_over(200, *GETS, start_method="spawn"), left_over(201, *GETS, start_method="spawn")
    )

    (finding,) = Engine().diagnosed(job, history({})).findings

    assert finding.rule == "orphaned-workers"
    assert finding.severity is Severity.CRITICAL
    assert finding.summary == (
        "the process that started serve 200 (200) and serve 201 (201) has exited; they still run"
    )
    assert "serve 201 waits for data on pipe 201, data.py:57 serve" in finding.evidence
    assert "They wait for what it would have sent" in finding.cause
    assert "kill 200 201" in finding.advice


def test_a_traceback_of_a_child_is_the_effect_of_a_program_that_is_gone() -> None:
    frames = (Frame("serve", "/app/service.py", 57),)
    raised = Raised("ConnectionResetError", "[Errno 104] Connection reset by peer", frames)
    written = WrittenError("/tmp/a.log", 0, raised, process_name="model-0", is_of_job=True)
    job = left_job(left_over(200, *GETS, start_method="spawn"), written=(written,))

    first, second = Engine().diagnosed(job, history({})).findings

    assert first.rule == "orphaned-workers"
    assert "model-0, a process that is gone" in second.summary
    assert second.effect_of == "orphaned-workers"


def test_a_forked_child_of_a_program_that_is_gone_is_known_by_its_stack() -> None:
    child = left_over(200, *GETS, role="main")
    program = left_over(200, "multiprocessing/queues.py:get", "data.py:serve:57", role="main")

    finding = only(orphaned_workers.check, left_job(child))

    assert "the process that started serve 200 (200) has exited; it still runs" in finding.summary
    assert found(orphaned_workers.check, left_job(program)) == []


def test_a_process_below_a_living_program_is_not_left() -> None:
    child = left_over(200, *GETS, start_method="spawn")
    part = PartOfJob(pid(MAIN), "train.py", "spawned")
    inside = left_over(200, *GETS, start_method="spawn")
    inside = replace(inside, sample=replace(inside.sample, parent_pid=0))

    assert found(orphaned_workers.check, left_job(child, part_of=part)) == []
    assert found(orphaned_workers.check, left_job(inside)) == []  # its parent is hidden


def test_a_loader_worker_of_a_program_that_is_gone_is_given_the_time_to_notice() -> None:
    fetches = ("data.py:__getitem__:3", ENTRY)
    job = left_job(left_over(200, *fetches, role="loader-worker", start_method="fork"))

    assert found(orphaned_workers.check, job, History({}, {}, NOW_S - 4)) == []
    assert only(orphaned_workers.check, job, History({}, {}, NOW_S - 9)).process == pid(200)


def test_a_worker_whose_parent_was_never_seen_to_end_is_no_orphan() -> None:
    assert found(orphaned_workers.check, snapshot_of(main(), orphan())) == []
    assert found(orphaned_workers.check, snapshot_of(main(), process(200, parent=None))) == []


def killed_main(**fields: Any) -> Process:
    return main(ended=exited(MAIN, signal=9), more={"private_bytes": 300 * MIB}, **fields)


def test_a_main_process_that_was_killed_is_information_and_names_no_sender() -> None:
    over = snapshot_of(
        killed_main(threads=[thread(MAIN, "train.py:step:57")]),
        dead_worker(signal=9),
        memory_total_bytes=64 << 30,
        memory_available_bytes=30 << 30,
    )
    past = history(host={"cgroup_oom_kills": line(4)})

    finding = only(main_killed.check, over, past)

    assert finding.severity is Severity.INFO
    assert finding.process == pid(MAIN)
    assert "the sender is unknown" in finding.summary
    assert "out-of-memory killer" not in finding.cause  # the control group counted no kill
    assert "out-of-memory killer" in only(main_killed.check, over).cause
    assert "its control group counted no out-of-memory kill meanwhile" in finding.evidence
    assert "30.0G of the machine's 64.0G of memory were available" in finding.evidence
    assert "1 more of its processes was killed at the same time" in finding.evidence
    assert any("train.py:57" in each for each in finding.evidence)


def test_a_missing_count_of_kills_is_evidence() -> None:
    finding = only(main_killed.check, snapshot_of(killed_main(), process(200)))

    assert "out-of-memory kills of its control group could not be read" in finding.evidence
    assert any("1 of its processes kept running" in each for each in finding.evidence)


def test_a_kill_on_a_machine_short_of_memory_is_a_warning() -> None:
    over = snapshot_of(killed_main(), memory_total_bytes=64 << 30, memory_available_bytes=1 << 30)

    assert only(main_killed.check, over).severity is Severity.WARNING


@pytest.mark.parametrize("how", [{"signal": 15}, {"signal": 2}, {"exit_code": 0}, {"signal": 11}])
def test_a_main_process_that_ends_otherwise_was_not_killed(how: dict[str, Any]) -> None:
    assert found(main_killed.check, snapshot_of(dead_main(**how))) == []


def test_a_kill_of_main_that_the_control_group_counted_is_put_down_to_memory() -> None:
    counted = replace(exited(MAIN, signal=9), oom_kills=5)
    over = snapshot_of(main(ended=counted))
    past = history(host={"cgroup_oom_kills": line(4)})

    finding = only(worker_oom_killed.check, over, past)

    assert finding.process == pid(MAIN)
    assert "the control group counted 1 out-of-memory kill meanwhile" in finding.evidence
    assert found(main_killed.check, over, past) == []


def test_kills_before_the_job_was_watched_do_not_count() -> None:
    over = snapshot_of(main(ended=replace(exited(MAIN, signal=9), oom_kills=4)))

    assert found(worker_oom_killed.check, over, history(host={"cgroup_oom_kills": line(4)})) == []


def test_a_kill_with_the_cpu_time_used_up_is_put_down_to_the_limit() -> None:
    over = killed_main(cpu_limit_s=6, cpu_ticks=590)
    within = killed_main(cpu_limit_s=600, cpu_ticks=590)

    finding = only(main_killed.check, snapshot_of(over))

    assert finding.summary == "main (100) was ended by SIGKILL at its limit of cpu time"
    assert "RLIMIT_CPU" in finding.evidence[1]
    assert "sender is unknown" in only(main_killed.check, snapshot_of(within)).summary


COMMUNICATES = ("selectors.py:select", "subprocess.py:_communicate", "train.py:run_proc:72")


def reader(still_s: float = 35.0) -> Process:
    """Main in communicate(), for both outputs of a command."""
    waits = WaitedOn("poll", "poll", ("pipe:[500]", "pipe:[501]"))
    return main(
        threads=[thread(MAIN, *COMMUNICATES, waits=waits, still_s=still_s)],
        fds=fds(9, links=[pipe(5, 500, False), pipe(6, 501, False)]),
        segments=(),
    )


def killed_shell(**how: Any) -> Process:
    ended = exited(200, at_s=NOW_S - 40, **(how or {"signal": 9}))
    return process(200, "other", label="sh", state="Z", ended=ended)


def left_server(number: int = 300, parent: int | None = None, **keywords: Any) -> Process:
    """A server that the shell has started, with the outputs of the shell."""
    return process(
        number,
        "other",
        parent=parent,
        label="service.py",
        fds=fds(5, links=[pipe(1, 500, True), pipe(2, 501, True)]),
        segments=(),
        threads=[thread(number, "data.py:serve:21", waits=WaitedOn("accept", "accept"))],
        **keywords,
    )


@pytest.mark.parametrize("seen_below", [200, None])
def test_those_that_keep_an_output_open_after_their_shell_was_killed_are_named(
    seen_below: int | None,
) -> None:
    """Whether they were seen below the shell, or only after its end."""
    solver = left_server(301, original_parent=seen_below)
    job = snapshot_of(reader(), killed_shell(), left_server(original_parent=seen_below), solver)

    finding = only(no_progress.check, job)

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "main (100) has waited 35 s at train.py:72 run_proc for the end of the output of sh (200), "
        "which has ended: service.py (300) and service.py (301) still have it open"
    )
    assert any("sh (200) ended: signal 9 (SIGKILL)" in each for each in finding.evidence)
    assert any("service.py (300) is at data.py:21 serve" in each for each in finding.evidence)
    assert "ends only the process itself" in finding.cause
    assert "os.killpg" in finding.advice

    [zombie] = found(zombie_processes.check, job)
    assert zombie.effect_of == "no-progress"
    assert zombie.severity is Severity.INFO


@pytest.mark.parametrize(
    ("how", "severity"),
    [({"signal": 9}, Severity.WARNING), ({"exit_code": 0}, Severity.INFO)],
    ids=["killed", "ended by itself"],
)
def test_an_output_of_a_killed_command_that_is_kept_open_is_a_warning_early(
    how: dict[str, int], severity: Severity
) -> None:
    """What a command has left by itself may be meant to end soon."""
    finding = only(no_progress.check, snapshot_of(reader(12.0), killed_shell(**how), left_server()))

    assert finding.severity is severity


def test_the_output_of_a_command_that_runs_is_kept_open_by_nobody_else() -> None:
    shell = process(200, "other", label="sh", fds=fds(5, links=[pipe(1, 500, True)]), segments=())
    below = left_server(parent=200)

    for each in found(no_progress.check, snapshot_of(reader(), shell, below)):
        assert "still ha" not in each.summary


def test_a_short_wait_for_an_output_that_is_kept_open_is_no_finding() -> None:
    job = snapshot_of(reader(6.0), killed_shell(), left_server())

    assert found(no_progress.check, job) == []


def test_one_in_the_background_that_works_on_is_information() -> None:
    """`sh -c "train.py &"` has ended well, and its caller gets the output as it is meant."""
    at_work = thread(300, "train.py:step:9", state="R", still_s=0.0)
    worker = replace(left_server(), threads=(at_work,))

    finding = only(no_progress.check, snapshot_of(reader(), killed_shell(exit_code=0), worker))

    assert finding.severity is Severity.INFO


def test_messages_of_a_process_that_has_detached_itself_are_not_read_to_their_end() -> None:
    """No child is known to have ended, and the main thread is not in communicate()."""
    reads = WaitedOn("pipe-read", "read", ("pipe:[500]",))
    own = thread(MAIN, "train.py:next_message:72", waits=reads, still_s=35.0)
    receiver = replace(reader(), threads=(own,))

    job = snapshot_of(receiver, left_server())

    assert not any("still ha" in each.summary for each in found(no_progress.check, job))
    with_child = snapshot_of(receiver, killed_shell(), left_server())
    assert any("still ha" in each.summary for each in found(no_progress.check, with_child))
