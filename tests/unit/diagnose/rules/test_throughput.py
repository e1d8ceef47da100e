from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.rules import (
    cpu_affinity_collapse,
    cpu_oversubscription,
    gil_bound_threads,
    loader_starvation,
    shared_file_offset,
    straggler_worker,
)
from mpwatch.diagnose.stillness import (
    mean_cpu_percent,
    quiet_s,
    wait_share,
    waiting_s,
    watched_s,
)
from mpwatch.model.findings import Severity
from mpwatch.model.history import History, Point, ProcessMetric
from mpwatch.model.samples import FdLink, WaitedOn
from mpwatch.model.snapshot import Loader, Process, Snapshot, WorkerLoad
from tests.unit.diagnose.worlds import (
    FETCHING_WORKER,
    MAIN,
    NOW_S,
    cgroup,
    fds,
    found,
    history,
    line,
    main,
    only,
    pid,
    process,
    thread,
    world,
)


def cpu(**loads: float) -> History:
    """CPU use over the last 30 s: `cpu(main=10, w200=95)`."""
    return history(
        {
            (MAIN if name == "main" else int(name[1:]), "cpu_percent"): line(load)
            for name, load in loads.items()
        }
    )


def waits(**shares: float) -> History:
    """How often each was found waiting at the last 30 looks, whole and half shares."""
    return history(
        {
            (MAIN if name == "main" else int(name[1:]), "loader_wait"): [
                Point(NOW_S - 30 + i, float(i % 10 < 10 * share)) for i in range(30)
            ]
            for name, share in shares.items()
        }
    )


def loader(**fields: Any) -> Loader:
    return Loader(pid(MAIN), 1, 2, **{"batches": 100, "wait_share": 0.89, **fields})


BUSY = cpu(main=5, w200=95, w201=90)


def two(*stack: str, still_s: float | None = 60.0) -> tuple[Process, ...]:
    return tuple(
        process(n, worker_id=n - 200, threads=[thread(n, *stack, still_s=still_s)])
        for n in (200, 201)
    )


def test_the_measured_share_of_waiting_is_told() -> None:
    job = world(main(), *two(*FETCHING_WORKER), loaders=(loader(outstanding=4, parked=0),))

    finding = only(loader_starvation.check, job, BUSY)

    assert finding.severity is Severity.INFO
    assert "waits for data 89% of the time" in finding.summary
    assert "4 batches outstanding, 0 ready" in finding.evidence
    assert any("2 of 2 in data.py:31 decode" in each for each in finding.evidence)


def test_without_the_hook_busy_workers_and_an_idle_main_tell_it() -> None:
    past = waits(main=0.9, w200=0.1, w201=0)
    finding = only(loader_starvation.check, world(main(), *two(still_s=0.5)), past)

    assert "all 2 workers are at work" in finding.summary
    assert finding.evidence == ("main was waiting for a batch at 90% of the looks at it",)


def test_workers_that_stand_are_not_at_work() -> None:
    past = waits(main=0.9, w200=0.1, w201=0)

    assert found(loader_starvation.check, world(main(), *two(still_s=9.0)), past) == []


def in_turns(*, of: int, waits: int) -> list[Point]:
    """Main that waits at most looks and trains at one in so many."""
    return [Point(NOW_S - 15 + i / 2, float(i % of < waits)) for i in range(31)]


def waits_for_a_disk(main_waits: list[Point]) -> History:
    """Two workers that hardly use cpu, often wake up, and never wait for work: a slow disk."""
    quiet: list[tuple[int, ProcessMetric]] = [(n, "cpu_percent") for n in (200, 201)]
    busy: list[tuple[int, ProcessMetric]] = [(n, "loader_wait") for n in (200, 201)]
    awake: list[tuple[int, ProcessMetric]] = [(n, "voluntary_switches") for n in (200, 201)]
    return history(
        {
            **dict.fromkeys(quiet, line(1.0)),
            **dict.fromkeys(busy, line(0.0, step_s=0.5)),
            **dict.fromkeys(awake, line(9_000, per_s=50)),
            (MAIN, "loader_wait"): main_waits,
        }
    )


def test_workers_that_wait_for_a_disk_starve_main_as_well() -> None:
    past = waits_for_a_disk(in_turns(of=5, waits=4))

    finding = only(loader_starvation.check, world(main(), *two(still_s=0.5)), past)

    assert finding.summary.endswith("all 2 workers are at work")
    assert "2 workers at 1 % cpu on average" in finding.evidence


def test_a_wait_for_a_disk_without_an_end_is_left_to_the_rules_for_stalls() -> None:
    past = waits_for_a_disk(in_turns(of=1, waits=1))

    assert waiting_s(main(), past) > 3
    assert found(loader_starvation.check, world(main(), *two(still_s=0.5)), past) == []


def test_workers_of_unknown_load_count_as_busy_where_waiting_is_measured() -> None:
    job = world(main(), *two(), loaders=(loader(),))

    assert only(loader_starvation.check, job).evidence == (
        "main waited 89% of the last minute in next(loader)",
    )


def worked_until(seconds_ago: float) -> History:
    """Main and two workers that were busy, and then none of them used any cpu."""
    busy = [Point(NOW_S - 20 + i, 95.0 if i < 20 - seconds_ago else 0.0) for i in range(21)]
    waiting = [Point(at_s, float(load == 0)) for at_s, load in busy]
    workers: list[tuple[int, ProcessMetric]] = [(n, "cpu_percent") for n in (200, 201)]
    return history({**dict.fromkeys(workers, busy), (MAIN, "loader_wait"): waiting})


def test_a_job_that_begins_to_hang_is_not_told_to_have_too_few_workers() -> None:
    waits_for_ever = loader(waiting_since_s=6.0)
    job = world(main(), *two(), loaders=(waits_for_ever,))

    assert found(loader_starvation.check, job, worked_until(6)) == []
    assert only(loader_starvation.check, job, BUSY).rule == "loader-starvation"


def test_without_the_hook_few_looks_at_the_beginning_of_a_hang_say_nothing() -> None:
    early = history({(MAIN, "loader_wait"): [Point(NOW_S - 5 + i / 2, 1.0) for i in range(11)]})

    assert wait_share(main(), early) is None
    assert wait_share(main(), waits(main=0.5)) == 0.5
    assert waiting_s(main(), worked_until(6)) == 6.0
    assert waiting_s(main(), history()) == 0.0


@pytest.mark.parametrize(
    ("loaders", "past"),
    [
        ((loader(wait_share=0.2),), BUSY),
        ((loader(batches=3),), BUSY),
        ((loader(),), cpu(main=1, w200=1, w201=1)),
        ((), waits(main=0.2, w200=0, w201=0)),
        ((), waits(main=0.9, w200=0, w201=0.5)),
        ((), waits(main=0.9, w200=0)),
        ((), history()),
    ],
)
def test_a_loader_that_keeps_up_is_quiet(loaders: tuple[Loader, ...], past: History) -> None:
    assert found(loader_starvation.check, world(main(), *two(), loaders=loaders), past) == []


def fetching(number: int, usual_s: float, **fields: Any) -> Process:
    load = WorkerLoad(number - 200, fetched=30, fetch_p50_s=usual_s, **fields)
    return process(number, threads=[thread(number, *FETCHING_WORKER)], more={"loader": load})


def test_a_worker_slower_than_the_others_is_named_with_what_waits_behind_it() -> None:
    job = world(
        main(),
        fetching(200, 0.1),
        fetching(201, 0.1),
        fetching(202, 0.42),
        loaders=(loader(parked=3, wait_share=0.5),),
    )

    finding = only(straggler_worker.check, job)

    assert finding.process == pid(202)
    assert finding.summary.endswith("3 finished batches wait behind it")
    assert "main waited 50% of the last minute" in finding.evidence
    assert "it is at data.py:31 decode" in finding.evidence


def test_a_worker_is_slow_in_its_first_task_already() -> None:
    load = WorkerLoad(2, fetched=1, fetch_p50_s=0.1, task_since_s=9.0)
    slow = process(202, more={"loader": load})
    job = world(main(), fetching(200, 0.1), fetching(201, 0.1), slow, loaders=(loader(),))

    assert "takes 9.0 s a batch" in only(straggler_worker.check, job).summary


def test_without_the_hook_the_only_one_that_works_is_named() -> None:
    job = world(main(), process(200), process(201))

    finding = only(straggler_worker.check, job, waits(main=0.9, w200=1, w201=0.1))

    assert finding.process == pid(201)
    assert "works alone" in finding.summary


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (world(main(), fetching(200, 0.1), fetching(201, 0.12), loaders=(loader(parked=3),)), BUSY),
        (world(main(), fetching(200, 0.1), fetching(201, 0.9)), BUSY),
        (
            world(main(), fetching(200, 0.001), fetching(201, 0.01), loaders=(loader(parked=3),)),
            BUSY,
        ),
        (
            world(
                main(),
                fetching(200, 0.03),
                process(201, more={"loader": WorkerLoad(1, fetched=4, fetch_p50_s=0.09)}),
                loaders=(loader(parked=3),),
            ),
            history(),
        ),
        (world(main(), fetching(200, 0.1), process(201)), waits(main=1, w200=1, w201=0)),
        (world(main(), process(200)), waits(main=1, w200=0)),
        (world(main(), *two()), waits(main=0.3, w200=1, w201=0)),
        (world(main(), *two()), waits(main=1, w200=0.4, w201=0)),
        (world(main(), *two()), history()),
        (world(main(), *two()), waits(main=1, w200=1)),
    ],
)
def test_workers_of_one_speed_or_unknown_speed_are_quiet(job: Snapshot, past: History) -> None:
    assert found(straggler_worker.check, job, past) == []


def crowd(number: int, threads: int = 4, percent: float = 20.0) -> Process:
    busy = [thread(10 * number + i, state="R", cpu_percent=percent) for i in range(threads)]
    return process(number, threads=busy, environment={"OMP_NUM_THREADS": "4"})


RUNNABLE = history({(200, "involuntary_switches"): line(9000, per_s=250)}, {"runnable": line(9.0)})


def test_pools_of_threads_in_every_worker_are_named() -> None:
    job = world(main(), crowd(200), crowd(201), usable_cpus=2, cgroup=cgroup(cpu_quota_cpus=2.0))

    finding = only(cpu_oversubscription.check, job, RUNNABLE)

    assert "8 computing threads of 2 workers compete for 2 cpus" in finding.summary
    assert "OMP_NUM_THREADS=4" in finding.evidence
    assert "the control group's quota is 2 cpus" in finding.evidence
    assert any("interrupted +250/s" in each for each in finding.evidence)


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (world(main(), crowd(200), crowd(201)), RUNNABLE),
        (world(main(), crowd(200), crowd(201), usable_cpus=2), history()),
        (world(main(), crowd(200), crowd(201), usable_cpus=16), RUNNABLE),
        (world(main(), crowd(200, 1), crowd(201, 1), usable_cpus=2), RUNNABLE),
        (world(main(), crowd(200), usable_cpus=2), RUNNABLE),
        (world(main(), crowd(200, percent=1.0), crowd(201, percent=1.0), usable_cpus=2), RUNNABLE),
        (world(main(), usable_cpus=2), RUNNABLE),
    ],
)
def test_many_workers_or_a_busy_machine_are_no_oversubscription(
    job: Snapshot, past: History
) -> None:
    assert found(cpu_oversubscription.check, job, past) == []


def pinned(*numbers: int, allowed: int = 1) -> list[Process]:
    return [process(number, cpus_allowed=allowed) for number in numbers]


def test_workers_that_share_one_cpu_are_named() -> None:
    job = world(main(cpus_allowed=1), *pinned(200, 201), cpu_count=8)

    finding = only(cpu_affinity_collapse.check, job, cpu(w200=50, w201=48))

    assert "2 workers of main (100) share one of 8 cpus" in finding.summary


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (world(main(), *pinned(200, 201), cpu_count=1), cpu(w200=50, w201=48)),
        (world(main(), *pinned(200, 201)), cpu(w200=50, w201=48)),
        (world(main(), *pinned(200), cpu_count=8), cpu(w200=100)),
        (world(main(), *pinned(200, 201, allowed=8), cpu_count=8), cpu(w200=50, w201=48)),
        (world(main(), *pinned(200, 201), cpu_count=8), cpu(w200=98, w201=95)),
        (world(main(), *pinned(200, 201), cpu_count=8), cpu(w200=99, w201=1)),
        (world(main(), *pinned(200, 201), cpu_count=8), cpu(w200=50)),
    ],
)
def test_workers_with_a_cpu_each_or_little_to_do_are_quiet(job: Snapshot, past: History) -> None:
    assert found(cpu_affinity_collapse.check, job, past) == []


def turns(count: int, percent: float, stack: tuple[str, ...] = (), **fields: Any) -> Process:
    own = [thread(100 + i, *stack, cpu_percent=percent, **fields) for i in range(count)]
    return main(threads=own, more={"cpu_percent": count * percent})


def test_threads_that_take_turns_on_one_core_are_information() -> None:
    job = world(turns(4, 25.0, ("train.py:tokenize:9",)), usable_cpus=8)

    finding = only(gil_bound_threads.check, job, cpu(main=100))

    assert "4 threads of main (100) share one core" in finding.summary
    assert "at train.py:9 tokenize" in finding.evidence


def test_on_a_busy_machine_stacks_tell_python_from_native_threads() -> None:
    python = world(turns(4, 10.0, ("train.py:tokenize:9",)), usable_cpus=2)
    native = world(turns(4, 10.0), usable_cpus=2)

    assert only(gil_bound_threads.check, python, cpu(main=40)).process == pid(MAIN)
    assert found(gil_bound_threads.check, native, cpu(main=40)) == []


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (world(turns(4, 25.0)), cpu(main=100)),
        (world(turns(4, 25.0), usable_cpus=1), cpu(main=100)),
        (world(turns(2, 50.0), usable_cpus=8), cpu(main=100)),
        (world(turns(4, 60.0), usable_cpus=8), cpu(main=240)),
        (world(turns(4, 10.0), usable_cpus=8), cpu(main=100)),
        (world(turns(4, 25.0), usable_cpus=8), history()),
        (world(turns(4, 25.0, ("train.py:step:9",), state="R"), usable_cpus=8), cpu(main=100)),
        (world(turns(4, 25.0, waits=WaitedOn("timer", "nanosleep")), usable_cpus=8), cpu(main=100)),
        (
            world(
                turns(4, 25.0), process(300, "spawned", more={"cpu_percent": 100.0}), usable_cpus=2
            ),
            cpu(main=100),
        ),
    ],
)
def test_parallel_few_or_crowded_threads_are_quiet(job: Snapshot, past: History) -> None:
    assert found(gil_bound_threads.check, job, past) == []


def opens(fd: int, path: str, position: int | None = 4096, is_writable: bool = False) -> Any:
    return fds(9, links=[FdLink(fd, "file", path, None, is_writable, position)])


def sharing(path: str = "/data/train.bin", number: int = 5, **link: Any) -> Snapshot:
    workers = [process(n, start_method="fork", fds=opens(number, path, **link)) for n in (200, 201)]
    return world(main(fds=opens(5, path, **link)), *workers)


def test_a_file_opened_before_the_fork_is_named() -> None:
    finding = only(shared_file_offset.check, sharing())

    assert finding.severity is Severity.INFO
    assert "descriptor 5 is /data/train.bin" in finding.evidence[0]


@pytest.mark.parametrize(
    "job",
    [
        sharing("/var/job/run.log"),
        sharing("/usr/share/fonts/a.ttf"),
        sharing(number=6),
        sharing(position=0),
        sharing(position=None),
        sharing(is_writable=True),
        world(main(fds=opens(5, "/d/x.bin")), process(200, fds=opens(5, "/d/x.bin"))),
        world(main(), process(200, start_method="fork"), process(201, start_method="fork")),
    ],
)
def test_logs_own_files_and_unread_ones_are_quiet(job: Snapshot) -> None:
    assert found(shared_file_offset.check, job) == []


def test_a_tick_now_and_then_is_not_moving() -> None:
    ticks = list(line(0.0))
    ticks[15] = ticks[15]._replace(value=1.0)
    past = history({(200, "cpu_percent"): ticks})

    assert quiet_s(process(200), past) == pytest.approx(30)


def test_work_ends_a_quiet_time() -> None:
    worked = list(line(0.0))
    worked[15] = worked[15]._replace(value=40.0)
    past = history({(200, "cpu_percent"): worked})

    assert quiet_s(process(200), past) == pytest.approx(15)


def test_a_thread_that_often_wakes_up_is_moving_whatever_cpu_it_uses() -> None:
    past = history(
        {
            (200, "cpu_percent"): line(0.0),
            (200, "voluntary_switches"): line(900, per_s=3),
            (201, "cpu_percent"): line(0.0),
            (201, "voluntary_switches"): line(900, per_s=0.2),
        }
    )

    assert quiet_s(process(200), past) == 1
    assert quiet_s(process(201), past) == 30


def test_without_a_history_the_thread_says_how_still_it_was() -> None:
    assert quiet_s(process(200, threads=[thread(200, still_s=7.0)]), history()) == 7.0
    assert quiet_s(process(200), history()) is None


def test_a_mean_needs_half_of_its_time() -> None:
    short = history({(200, "cpu_percent"): line(50.0, seconds=3)})

    assert mean_cpu_percent(process(200), short) is None
    assert mean_cpu_percent(process(200), cpu(w200=50)) == pytest.approx(50)


def test_watching_began_at_some_time_or_never() -> None:
    assert watched_s(world(main()), history(started_at_s=NOW_S - 9)) == 9
    assert watched_s(world(main()), History()) == 0
