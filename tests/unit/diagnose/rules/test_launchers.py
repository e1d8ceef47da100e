from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.distributed import (
    collective_mismatch,
    elastic_agent_wedged,
    rank_stuck_in_collective,
    torchrun_agent_killed_orphans,
    torchrun_root_cause_misread,
    torchrun_sighup,
)
from mpwatch.diagnose.rules.gpu import cuda_contexts_everywhere, cuda_ipc_counter_files_and_events
from mpwatch.model.findings import Severity
from mpwatch.model.samples import Ended, WaitedOn
from mpwatch.model.snapshot import Flow, GpuUse, Process, Snapshot
from tests.builders.snapshots import (
    MIB,
    NOW_S,
    exited,
    fds,
    found,
    log,
    main,
    only,
    pid,
    process,
    segment,
    snapshot_of,
    thread,
)

C10D = "torch/distributed/distributed_c10d.py"
AGENT = process(100, "launcher", parent=None, label="launcher")


def rank(number: int, call: str = "", still_s: float = 60.0, **fields: Any) -> Process:
    own = 300 + number
    stack = (f"{C10D}:{call}", "train.py:step:40") if call else ("train.py:save:80",)
    taken = {"label": f"rank {number}", "rank": number, **fields}
    return process(own, "rank", threads=[thread(own, *stack, still_s=still_s)], **taken)


def test_the_rank_that_is_elsewhere_is_named() -> None:
    job = snapshot_of(
        AGENT, rank(0, "all_reduce"), rank(1, "all_reduce"), rank(2, more={"doing": "saves"})
    )

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.process == pid(302)
    assert finding.severity is Severity.CRITICAL
    assert finding.summary == (
        "2 ranks wait in all_reduce for rank 2 (302), which is at train.py:80 save"
    )
    assert "not there: rank 2 (302), saves" in finding.evidence


def test_what_the_missing_rank_waits_for_is_reported() -> None:
    waits = WaitedOn("unknown", "openat", ("a process that opens /run/orders for writing",))
    opens = thread(302, "train.py:save:80", waits=waits, still_s=60.0)
    late = process(302, "rank", threads=[opens], label="rank 2", rank=2)
    job = snapshot_of(AGENT, rank(0, "all_reduce"), rank(1, "all_reduce"), late)

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.summary == (
        "2 ranks wait in all_reduce for rank 2 (302), which waits for a process that opens "
        "/run/orders for writing at train.py:80 save"
    )
    assert "when another process opens its other end; none has." in finding.cause


def test_a_rank_late_for_less_than_a_minute_is_a_warning() -> None:
    job = snapshot_of(AGENT, rank(0, "all_reduce", still_s=20.0), rank(1))

    assert only(rank_stuck_in_collective.check, job).severity is Severity.WARNING


def test_a_rank_that_is_gone_is_named() -> None:
    dead = rank(2, ended=exited(302, signal=9))
    job = snapshot_of(AGENT, rank(0, "all_reduce"), rank(1, "all_reduce"), dead)

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.process == pid(302)
    assert "SIGKILL" in finding.evidence[-1]


@pytest.mark.parametrize(
    "ranks",
    [
        (rank(0, "all_reduce"), rank(1, "all_reduce")),
        (rank(0, "all_reduce", still_s=1.0), rank(1)),
        (rank(0, "all_reduce", still_s=None), rank(1)),  # type: ignore[arg-type]
        (rank(0, "all_reduce"), rank(1, still_s=1.0), rank(2)),
        (rank(0, "all_reduce"), rank(1, still_s=15.0), rank(2, still_s=15.0)),
        (rank(0), rank(1)),
        (rank(0, "all_reduce"),),
        (rank(0, "all_reduce"), process(301, "rank", threads=[thread(301)])),
    ],
)
def test_ranks_that_meet_or_just_compute_are_quiet(ranks: tuple[Process, ...]) -> None:
    assert found(rank_stuck_in_collective.check, snapshot_of(AGENT, *ranks)) == []


def test_a_rank_that_waits_for_most_of_the_others_is_named_if_all_are_stalled() -> None:
    finding = only(
        rank_stuck_in_collective.check, snapshot_of(AGENT, rank(0, "broadcast"), rank(1), rank(2))
    )

    assert "rank 0 (300) waits in broadcast for rank 1 (301) and rank 2 (302)" in finding.summary
    assert any("train.py:80 save" in each for each in finding.evidence)


def in_backward(
    number: int, still_s: float, group: str = "gloo_tcp_loop", state: str = "S"
) -> Process:
    stack = ("torch/autograd/graph.py:_engine_run_backward", "train.py:step:40")
    own = 300 + number
    threads = [thread(own, *stack, state=state, still_s=still_s), thread(own + 50, name=group)]
    return process(own, "rank", threads=threads, label=f"rank {number}", rank=number)


def test_a_rank_stalled_in_its_backward_pass_waits_for_the_missing_rank() -> None:
    finding = only(
        rank_stuck_in_collective.check, snapshot_of(AGENT, rank(0), in_backward(1, 60.0))
    )

    assert finding.process == pid(300)
    assert "rank 1 (301) waits in the backward pass for rank 0 (300)" in finding.summary


@pytest.mark.parametrize(
    "other", [in_backward(1, 0.5), in_backward(1, 60.0, group="python"), in_backward(1, 3.0)]
)
def test_a_rank_that_computes_its_gradients_or_has_no_group_does_not_wait(other: Process) -> None:
    assert found(rank_stuck_in_collective.check, snapshot_of(AGENT, rank(0), other)) == []


def test_a_rank_that_computes_its_gradients_is_the_one_the_others_wait_for() -> None:
    job = snapshot_of(AGENT, rank(0, "all_reduce"), in_backward(1, 0.5, state="R"))

    assert only(rank_stuck_in_collective.check, job).process == pid(301)


def test_a_rank_that_wakes_up_for_a_moment_in_its_backward_pass_is_not_elsewhere() -> None:
    job = snapshot_of(AGENT, rank(0, "all_reduce"), in_backward(1, 0.5))

    assert found(rank_stuck_in_collective.check, job) == []


def test_ranks_of_mp_spawn_are_ranks_too() -> None:
    ranks = [
        process(300, "spawned", threads=[thread(300, f"{C10D}:barrier")]),
        process(301, "spawned", threads=[thread(301, "train.py:load")]),
    ]

    assert only(rank_stuck_in_collective.check, snapshot_of(main(), *ranks)).process == pid(301)


def test_ranks_in_different_collectives_are_named() -> None:
    job = snapshot_of(AGENT, rank(0, "all_reduce"), rank(1, "all_reduce"), rank(2, "broadcast"))

    finding = only(collective_mismatch.check, job)

    assert finding.process == pid(302)
    assert "2 in all_reduce, 1 in broadcast" in finding.summary
    assert found(rank_stuck_in_collective.check, job) == []


def test_ranks_that_overtake_each_other_are_quiet() -> None:
    job = snapshot_of(AGENT, rank(0, "all_reduce"), rank(1, "broadcast", still_s=0.5))

    assert found(collective_mismatch.check, job) == []


def ended(number: int, at_s: float, **how: Any) -> Process:
    return rank(number, ended=Ended(pid(300 + number), at_s, **how))


def test_the_rank_that_failed_first_is_named() -> None:
    job = snapshot_of(
        AGENT,
        ended(0, NOW_S - 4, signal=15),
        ended(1, NOW_S - 6, signal=9),
        ended(2, NOW_S - 3, signal=15),
    )

    finding = only(torchrun_root_cause_misread.check, job)

    assert finding.process == pid(301)
    assert "2 others were ended" in finding.summary
    assert "rank 0 (300) 2.0 s later: signal 15 (SIGTERM)" in finding.evidence


@pytest.mark.parametrize(
    "job",
    [
        snapshot_of(AGENT, ended(0, NOW_S, signal=15), ended(1, NOW_S, signal=15)),
        snapshot_of(AGENT, ended(0, NOW_S, exit_code=1)),
        snapshot_of(AGENT, ended(0, NOW_S, exit_code=1), ended(1, NOW_S, exit_code=1)),
        snapshot_of(AGENT, ended(0, NOW_S - 90, signal=9), ended(1, NOW_S, signal=15)),
        snapshot_of(main(), ended(0, NOW_S - 6, signal=9), ended(1, NOW_S, signal=15)),
        snapshot_of(ended(0, NOW_S - 6, signal=9), ended(1, NOW_S, signal=15)),
    ],
)
def test_ends_without_a_first_failure_are_quiet(job: Snapshot) -> None:
    assert found(torchrun_root_cause_misread.check, job) == []


ELASTIC = {"RANK": "0", "TORCHELASTIC_RUN_ID": "x"}


def left(number: int = 0, **fields: Any) -> Process:
    taken = {"parent": None, "original_parent": 100, "session": number, "environment": ELASTIC}
    return rank(number, **{**taken, **fields})


def dead_agent(seconds: float = 20) -> Process:
    return process(100, "launcher", parent=None, ended=Ended(pid(100), NOW_S - seconds, signal=9))


def test_ranks_without_their_agent_are_named_together() -> None:
    finding = only(torchrun_agent_killed_orphans.check, snapshot_of(dead_agent(), left(0), left(1)))

    assert "2 ranks still run after their launcher exited" in finding.summary
    assert any("20 s ago: signal 9" in each for each in finding.evidence)
    assert any("in 2 sessions" in each for each in finding.evidence)
    assert "kill 300 301" in finding.advice


@pytest.mark.parametrize("init", ["systemd", "tini", "docker-init", "init(Ubuntu)"])
def test_ranks_found_without_any_agent_are_named(init: str) -> None:
    lone = left(0, original_parent=None, session=300)

    finding = only(torchrun_agent_killed_orphans.check, snapshot_of(lone, init=init))

    assert finding.summary == "1 rank still runs after its launcher exited"
    assert "no launcher is among its ancestors" in finding.evidence


def test_a_rank_whose_agent_was_seen_and_is_forgotten_is_named() -> None:
    assert only(torchrun_agent_killed_orphans.check, snapshot_of(left(0))).process == pid(300)


@pytest.mark.parametrize("init", [None, "torchrun", "python", "pt_main_thread", "sh"])
def test_a_rank_whose_launcher_may_be_process_1_is_quiet(init: str | None) -> None:
    job = snapshot_of(left(0, original_parent=None, session=300), init=init)

    assert found(torchrun_agent_killed_orphans.check, job) == []


@pytest.mark.parametrize(
    "job",
    [
        snapshot_of(AGENT, rank(0, environment=ELASTIC)),
        snapshot_of(dead_agent(1), left(0)),
        snapshot_of(dead_agent(), left(0, state="Z")),
        snapshot_of(left(0, original_parent=None, environment={"RANK": "0"})),
        snapshot_of(main(), process(300, "spawned", parent=None, environment={"RANK": "0"})),
        snapshot_of(
            rank(0, environment=ELASTIC, ended=Ended(pid(300), NOW_S - 20, signal=9)),
            process(400, parent=None, original_parent=300, environment=ELASTIC),
        ),
        snapshot_of(process(400, parent=None, environment=ELASTIC), init="systemd"),
    ],
)
def test_ranks_with_an_agent_or_meant_to_run_alone_are_quiet(job: Snapshot) -> None:
    assert found(torchrun_agent_killed_orphans.check, job) == []


def test_ranks_that_a_program_of_the_user_has_started_are_not_said_to_be_of_torchrun() -> None:
    dead = process(100, "main", parent=None, ended=Ended(pid(100), NOW_S - 20, exit_code=1))
    lone = left(0, environment={"RANK": "0"})

    finding = only(torchrun_agent_killed_orphans.check, snapshot_of(dead, lone))

    assert "torchrun" not in finding.cause
    assert "agent" not in finding.advice


def launcher(**fields: Any) -> Process:
    return process(100, "launcher", parent=None, **fields)


def test_a_launcher_on_a_terminal_is_information() -> None:
    job = snapshot_of(launcher(tty=34816, signals_caught=0x4003))

    assert only(torchrun_sighup.check, job).severity is Severity.INFO


@pytest.mark.parametrize(
    ("tty", "words"),
    [
        (34816, "/dev/pts/0"),
        (0x001088FF, "/dev/pts/511"),
        (0x8905, "/dev/pts/261"),
        (1027, "/dev/tty3"),
        (1089, "/dev/ttyS1"),
        (0x0501, "device 5:1"),
        (0x80008800 - (1 << 32), "/dev/pts/524288"),
    ],
)
def test_the_terminal_of_a_launcher_is_named_by_its_path(tty: int, words: str) -> None:
    job = snapshot_of(launcher(tty=tty, signals_caught=0x4003))

    finding = only(torchrun_sighup.check, job)

    assert f"its controlling terminal is {words}" in finding.evidence


def test_a_launcher_that_died_of_a_hang_up_is_named() -> None:
    job = snapshot_of(launcher(ended=exited(100, signal=1)))

    assert only(torchrun_sighup.check, job).severity is Severity.CRITICAL


def test_a_hang_up_without_a_terminal_was_sent_by_a_process_and_is_one_finding() -> None:
    dead = [
        process(300 + n, "rank", rank=n, tty=0, ended=exited(300 + n, signal=1)) for n in range(2)
    ]
    agent = process(200, "launcher", tty=0, ended=exited(200, exit_code=1))
    ranks = [replace(each, parent=agent.process) for each in dead]
    job = snapshot_of(
        main(), agent, *ranks, log=(log("exception", 200, "SignalException: got signal: 1"),)
    )

    finding = only(torchrun_sighup.check, job)

    assert finding.process == agent.process
    assert "a SIGHUP that another process sent" in finding.summary
    assert any("main (100), which has started it, still runs" in e for e in finding.evidence)
    assert "terminal" not in finding.cause


def test_a_rank_that_a_hang_up_ended_before_its_launcher_is_reported_after_a_while() -> None:
    def job(at_s: float) -> Snapshot:
        ended = process(300, "rank", rank=0, ended=exited(300, at_s=at_s, signal=1))
        return snapshot_of(launcher(), ended)

    assert found(torchrun_sighup.check, job(NOW_S - 5)) == []
    assert only(torchrun_sighup.check, job(NOW_S - 60)).process == pid(300)


def test_an_error_of_an_unknown_process_is_not_reported() -> None:
    job = snapshot_of(launcher(), log=(log("exception", 999, "SignalException: got signal: 1"),))

    assert found(torchrun_sighup.check, job) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"tty": 0, "signals_caught": 0x4003},
        {"tty": 34816, "signals_caught": 0x4002},
        {"tty": 34816},
        {"ended": exited(100, exit_code=0)},
    ],
)
def test_a_launcher_without_terminal_or_handler_is_quiet(fields: dict[str, Any]) -> None:
    assert found(torchrun_sighup.check, snapshot_of(launcher(**fields))) == []


def wedged(still_s: float = 60.0, stuck_s: float = 60.0, exit_code: int = 1) -> Snapshot:
    agent = launcher(threads=[thread(100, still_s=still_s)])
    stuck = process(
        301,
        "rank",
        label="rank 1",
        state="D",
        threads=[thread(301, state="D", still_s=stuck_s, wchan="nfs_wait")],
    )
    return snapshot_of(agent, rank(0, ended=exited(300, exit_code=exit_code)), stuck)


def test_an_agent_that_waits_for_an_unkillable_rank_is_named() -> None:
    finding = only(elastic_agent_wedged.check, wedged())

    assert "rank 1 (301)" in finding.summary
    assert "kernel wait channels: nfs_wait" in finding.evidence

    assert "SIGKILL ends the wait only where the kernel allows that" in finding.cause


@pytest.mark.parametrize(
    "job",
    [
        wedged(still_s=5.0),
        wedged(exit_code=0),
        wedged(stuck_s=0.5),
        snapshot_of(*(replace(each, ended=None) for each in wedged().processes)),
    ],
    ids=["waits for a moment", "normal end of a rank", "reads a disk", "no rank has ended"],
)
def test_an_agent_is_not_wedged_by_a_normal_end_or_a_moment_in_state_d(job: Snapshot) -> None:
    assert found(elastic_agent_wedged.check, job) == []


def on_gpu(number: int, *uses: GpuUse, role: Any = "rank") -> Process:
    return process(number, role, more={"gpus": uses})


GIB = 1024 * MIB


def test_workers_on_a_gpu_and_second_contexts_are_named() -> None:
    worker = on_gpu(200, GpuUse(0, GIB // 2), role="loader-worker")
    stray = on_gpu(300, GpuUse(0, GIB // 2), GpuUse(1, 20 * GIB))

    workers, strays = found(cuda_contexts_everywhere.check, snapshot_of(main(), worker, stray))

    assert "1 DataLoader worker holds 512M of GPU memory" in workers.summary
    assert strays.process == pid(300)


def test_a_rank_on_its_own_gpu_or_with_real_memory_on_two_is_quiet() -> None:
    own = on_gpu(300, GpuUse(0, 20 * GIB))
    both = on_gpu(301, GpuUse(0, 20 * GIB), GpuUse(1, 20 * GIB))
    unknown = on_gpu(302, GpuUse(0, None), GpuUse(1, 20 * GIB))

    assert found(cuda_contexts_everywhere.check, snapshot_of(main(), own, both, unknown)) == []


def counters(number: int) -> Any:
    return segment(number, 300, kind="torch-named", is_linked=True, size_bytes=80_064)


def test_many_counter_files_are_named() -> None:
    sender = on_gpu(300, GpuUse(0, GIB), role="spawned")
    files = tuple(counters(n) for n in range(3))

    finding = only(
        cuda_ipc_counter_files_and_events.check, snapshot_of(main(), sender, segments=files)
    )

    assert "3 files of 10,000 reference counters each" in finding.evidence


def test_many_sends_in_flight_are_named() -> None:
    sender = process(300, "spawned", fds=fds(9, gpu=2))
    flow = Flow(pid(300), pid(100), 1, 1, 0, in_flight=1500)
    job = snapshot_of(main(), sender, segments=(counters(1),), flows=(flow,))

    assert only(cuda_ipc_counter_files_and_events.check, job).process == pid(300)


def test_a_sender_with_one_file_or_without_a_gpu_is_quiet() -> None:
    sender = on_gpu(300, GpuUse(0, GIB), role="spawned")
    files = tuple(counters(n) for n in range(3))

    assert found(cuda_ipc_counter_files_and_events.check, snapshot_of(main(), sender)) == []
    plain = snapshot_of(main(), process(300, "spawned"), segments=files)
    assert found(cuda_ipc_counter_files_and_events.check, plain) == []
