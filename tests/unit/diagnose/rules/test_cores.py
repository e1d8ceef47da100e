from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.throughput import (
    cpu_affinity_collapse,
    cpu_oversubscription,
    gil_bound_threads,
    loader_starvation,
)
from mpwatch.model.account import IMPORTS, NO_CORE, Activity, ThreadAccount
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.ids import Role
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Loader, Process, Snapshot
from mpwatch.model.source_code import EndlessLoop, Mark, SourceLine, Statement
from tests.builders.accounts import COMPUTES, IN_A_CONDITION, JOINS, answers_from, with_shares
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    accounted,
    cgroup,
    cpu,
    found,
    history,
    line,
    main,
    maps,
    only,
    pid,
    process,
    snapshot_of,
    thread,
    ticked,
)


def crowd(
    number: int,
    threads: int = 4,
    percent: float = 20.0,
    *,
    role: Role = "loader-worker",
    omp_threads: str = "4",
) -> Process:
    busy = [thread(10 * number + i, state="R", cpu_percent=percent) for i in range(threads)]
    return process(number, role, threads=busy, environment={"OMP_NUM_THREADS": omp_threads})


RUNNABLE = history({(200, "involuntary_switches"): line(9000, per_s=250)}, {"runnable": line(9.0)})


def test_pools_of_threads_in_every_worker_are_named() -> None:
    job = snapshot_of(
        main(), crowd(200), crowd(201), usable_cpus=2, cgroup=cgroup(cpu_quota_cpus=2.0)
    )

    finding = only(cpu_oversubscription.check, job, RUNNABLE)

    assert "8 computing threads of 2 workers compete for 2 cpus" in finding.summary
    assert "OMP_NUM_THREADS=4" in finding.evidence
    assert "the control group's quota is 2 cpus" in finding.evidence
    assert any("interrupted +250/s" in each for each in finding.evidence)
    assert finding.cause.startswith("The libraries that started them are not known.")


def test_pools_of_two_threads_crowd_two_cores_where_they_compute_all_the_time() -> None:
    at = ("evaluator.py:forward:17",)

    def job(*helper: str, waits: float = 0.8) -> Snapshot:
        policies = [
            process(
                n,
                "spawned",
                threads=[
                    thread(n, *at, state="R", cpu_percent=17.0),
                    thread(10 * n, *helper, state="R", cpu_percent=16.0),
                ],
            )
            for n in range(200, 205)
        ]
        works = {NO_CORE: waits, COMPUTES: 0.17, IN_A_CONDITION: 0.83 - waits}
        seen = snapshot_of(main(), *policies, usable_cpus=2, cpu_count=2)
        return with_shares(seen, **{f"p{n}": works for n in range(200, 205)})

    busy = history({}, {"runnable": line(22.0)})
    alone = only(cpu_oversubscription.check, job(), history({}, {"runnable": line(9.0)}))
    among_others = only(cpu_oversubscription.check, job(), busy)

    assert "10 computing threads of 5 processes compete for 2 cpus" in alone.summary
    assert "Other programs" not in alone.cause
    assert "12 of them of other programs" in " ".join(among_others.evidence)
    assert "its 10 threads would still compete for 2 cpus" in among_others.cause
    # A thread of Python is no part of a pool, and a process that mostly waits does not want it.
    assert found(cpu_oversubscription.check, job("loop.py:read:9"), busy) == []
    assert found(cpu_oversubscription.check, job(waits=0.2), busy) == []


def called_by_own_threads(helper: str) -> Snapshot:
    """Workers whose own threads wait for each other in a library, and one thread of that library.

    Args:
        helper: The state of the library's thread all the time.
    """
    waits = WaitedOn("futex", "futex", ("futex 0x7f00",))

    def at(second: int) -> Snapshot:
        workers = []
        for n in (200, 201, 202):
            callers = [
                thread(10 * n + i, "data.py:whiten:35", waits=waits, cpu_percent=6.0)
                for i in range(4)
            ]
            of_library = thread(20 * n, state=helper, cpu_percent=20.0)
            asleep = thread(n, "data.py:__getitem__:32", waits=waits)
            ticks = {20 * n: 20 * second, **{10 * n + i: 6 * second for i in range(4)}}
            threads = [asleep, *callers, of_library]
            workers.append(ticked(process(n, "loader-worker", threads=threads), ticks))
        at_s = NOW_S - 40 + second
        return snapshot_of(main(), *workers, at_s=at_s, usable_cpus=2, cpu_count=2)

    return accounted(*map(at, range(41)))


def test_a_pool_that_own_threads_call_crowds_two_cores_as_well() -> None:
    finding = only(cpu_oversubscription.check, called_by_own_threads("R"), RUNNABLE)

    assert "6 computing threads of 3 workers compete for 2 cpus" in finding.summary
    assert found(cpu_oversubscription.check, called_by_own_threads("S"), RUNNABLE) == []
    # Other programs may be all that keeps the threads of the library from a core.
    among_others = history({}, {"runnable": line(22.0)})
    assert found(cpu_oversubscription.check, called_by_own_threads("R"), among_others) == []


def test_threads_that_wait_for_a_lock_of_a_library_are_not_bound_by_the_gil() -> None:
    past = cpu(**{f"p{n}": 44 for n in (200, 201, 202)})

    assert found(gil_bound_threads.check, called_by_own_threads("R"), past) == []


def test_the_line_at_which_the_crowded_threads_compute_is_in_the_title() -> None:
    ranks = [crowd(number, role="rank") for number in (200, 201)]
    computes = {Activity("computing", place="data.py:12 render"): 1.0}
    job = with_shares(snapshot_of(main(), *ranks, usable_cpus=2), p200=computes, p201=computes)

    finding = only(cpu_oversubscription.check, job, RUNNABLE)

    assert finding.summary == (
        "8 computing threads of 2 ranks compete for 2 cpus, mostly at data.py:12 render"
    )


def served(native: int) -> list[Process]:
    """Servers whose main thread sleeps, with threads of requests and threads of a library."""
    return [
        process(
            number,
            "spawned",
            threads=[
                thread(number, "web.py:run:88", state="S", cpu_percent=0.0),
                *(
                    thread(10 * number + n, "web.py:embed:25", state="R", cpu_percent=9.0)
                    for n in range(4)
                ),
                *(thread(20 * number + n, state="R", cpu_percent=9.0) for n in range(native)),
            ],
        )
        for number in (200, 201)
    ]


def test_threads_of_python_take_turns_and_are_no_pool_of_a_library() -> None:
    job = snapshot_of(main(), *served(native=0), usable_cpus=2)

    assert found(cpu_oversubscription.check, job, RUNNABLE) == []


def test_threads_of_the_program_are_not_taken_for_those_of_other_programs() -> None:
    job = snapshot_of(main(), *served(native=3), usable_cpus=2)
    runnable = history({}, {"runnable": line(15.0)})

    finding = only(cpu_oversubscription.check, job, runnable)

    assert (
        "15 threads of the machine are runnable at a time, about 1 of them" in finding.evidence[1]
    )


def test_the_line_of_a_main_thread_that_sleeps_is_not_where_other_threads_compute() -> None:
    job = snapshot_of(main(), *served(native=3), usable_cpus=2)
    asleep = {Activity("sleeping", place="web.py:88 run"): 1.0}
    job = with_shares(job, p200=asleep, p201=asleep)
    accounts = {
        each: replace(
            account,
            uncounted=(
                *account.uncounted,
                _computing_at("web.py:25 embed", 10 * each.pid, account.uncounted[0]),
            ),
            ticks=(0, 0),
        )
        for each, account in job.account.processes.items()
    }
    known = replace(job, account=replace(job.account, processes=accounts))

    (of_sleep,) = found(cpu_oversubscription.check, job, RUNNABLE)
    (of_work,) = found(cpu_oversubscription.check, known, RUNNABLE)

    assert "web.py:88" not in " ".join((of_sleep.summary, *of_sleep.evidence))
    assert of_work.summary.endswith(
        "8 computing threads of 2 processes compete for 2 cpus, mostly at web.py:25 embed"
    )


RUNS_CALLS = ("concurrent/futures/thread.py:_worker",)


def own_threads(
    cores: float, *, count: int = 12, found_ready: int = 10, below: tuple[str, ...] = RUNS_CALLS
) -> Snapshot:
    """A process whose own threads use so many cores together.

    Args:
        cores: What they use.
        count: How many there are.
        found_ready: In so many of ten readings each of them can run.
        below: The calls that lead to the line at which they compute.
    """
    waits = WaitedOn("pipe-read", "read", ("pipe:[9]",))

    def at(second: int) -> Snapshot:
        is_ready = second % 10 < found_ready
        each = 100 * cores / count
        state = {"state": "R", "cpu_percent": each} if is_ready else {"waits": waits}
        own = [
            thread(3000 + n, "resize.py:area:14", *below, stack_age_s=0.0, **state)
            for n in range(count)
        ]
        asleep = thread(200, "resize.py:run:40", waits=WaitedOn("futex", "futex"))
        ticks = {3000 + n: round(each * second) for n in range(count)}
        resizes = ticked(process(200, "spawned", threads=[asleep, *own]), ticks)
        return snapshot_of(main(), resizes, at_s=NOW_S - 40 + second, usable_cpus=4)

    return accounted(*map(at, range(41)))


CAN_RUN = history({}, {"runnable": line(13.0)})


def test_threads_of_the_program_that_compute_at_once_are_told_as_its_own() -> None:
    finding = only(cpu_oversubscription.check, own_threads(3.8), CAN_RUN)

    assert (finding.severity, finding.subject) == (Severity.INFO, "own threads")
    assert finding.summary == (
        "12 threads that spawned 200 (200) has started compute at the same time and compete for 4 "
        "cpus, mostly at resize.py:14 area"
    )
    assert "12 threads of a ThreadPoolExecutor use 3.8 cores together" in finding.evidence[0]
    assert "max_workers=4 (" in finding.advice
    assert "library that" not in finding.cause


@pytest.mark.parametrize(
    ("below", "words"),
    [
        (("multiprocessing/pool.py:worker",), "processes=4 ("),
        (("threading.py:run",), "4 threads that take their work from a queue ("),
    ],
)
def test_own_threads_are_limited_where_they_are_started(below: tuple[str, ...], words: str) -> None:
    finding = only(cpu_oversubscription.check, own_threads(3.8, below=below), CAN_RUN)

    assert words in finding.advice


@pytest.mark.parametrize(
    ("job", "runnable"),
    [
        (own_threads(1.05), 13.0),
        (own_threads(3.8, found_ready=4), 13.0),
        (own_threads(3.8, count=4), 13.0),
        (own_threads(3.8), 4.0),
    ],
    ids=[
        "they take turns with the GIL",
        "they mostly wait",
        "as many as there are cpus",
        "the cpus are enough",
    ],
)
def test_own_threads_that_do_not_compete_for_cpus_are_not_told(
    job: Snapshot, runnable: float
) -> None:
    past = history({}, {"runnable": line(runnable)})

    assert found(cpu_oversubscription.check, job, past) == []


def _computing_at(place: str, tid: int, of: ThreadAccount) -> ThreadAccount:
    """The account of a thread that computes at a line, for as long as another one was observed."""
    computes = Activity("computing", place=place)
    buckets = tuple(
        each._replace(
            tally=each.tally._replace(
                cpu_s=each.tally.observed_s, seen={computes: each.tally.observed_s}
            )
        )
        for each in of.buckets
    )
    return of._replace(tid=tid, now=computes, buckets=buckets)


def test_more_threads_than_cores_in_one_process_were_asked_for_by_the_program() -> None:
    crowded = [
        replace(p, sample=replace(p.sample, torch_loaded=True))
        for p in (crowd(number, 16, role="pool-worker") for number in (200, 201))
    ]

    own = only(
        cpu_oversubscription.check,
        snapshot_of(main(), *crowded, usable_cpus=4, cpu_count=4),
        RUNNABLE,
    )
    default = only(
        cpu_oversubscription.check,
        snapshot_of(main(), *crowded, usable_cpus=4, cpu_count=32),
        RUNNABLE,
    )

    assert "computes with 16 threads, and the machine has 4 cores" in own.cause
    assert "torch.set_num_threads(2)" in own.advice
    assert "has asked for more" not in default.cause
    assert "torch.set_num_threads(1)" in default.advice
    assert "cv2" not in own.advice + default.advice


def test_a_limit_that_is_set_is_not_advised_again() -> None:
    crowded = [crowd(number, omp_threads="1") for number in (200, 201)]

    finding = only(
        cpu_oversubscription.check, snapshot_of(main(), *crowded, usable_cpus=2), RUNNABLE
    )

    assert finding.advice.startswith("OMP_NUM_THREADS=1 does not limit these threads")


def test_only_loader_workers_get_advice_about_the_dataloader() -> None:
    crowded = [crowd(number, role="pool-worker") for number in (200, 201)]

    finding = only(
        cpu_oversubscription.check, snapshot_of(main(), *crowded, usable_cpus=2), RUNNABLE
    )

    assert "DataLoader" not in finding.cause
    assert "worker_init_fn" not in finding.advice


def test_the_cause_names_only_libraries_and_quotas_that_were_read() -> None:
    crowded = [crowd(number, role="spawned") for number in (200, 201)]
    loaded = [
        replace(p, sample=replace(p.sample, maps=maps(900, libraries=("libopenblas.so.0",))))
        for p in crowded
    ]
    limited = cgroup(cpu_quota_cpus=2.0)

    known = only(cpu_oversubscription.check, snapshot_of(main(), *loaded, usable_cpus=2), RUNNABLE)
    job = snapshot_of(main(), *crowded, usable_cpus=2, cgroup=limited)
    unknown = only(cpu_oversubscription.check, job, RUNNABLE)

    assert "OpenBLAS" in known.cause
    assert "OpenCV" not in known.cause
    assert "quota" not in known.cause
    assert "OpenCV" in unknown.cause
    assert "quota" in unknown.cause


THREAD = ("threading.py:run", "threading.py:_bootstrap_inner", "threading.py:_bootstrap")


@pytest.mark.parametrize(
    "helper",
    [
        {"name": "QueueFeederThre"},
        {"name": "gloo_runloop"},
        {"name": "grpcpp_sync_ser"},
        {
            "stack": (
                "multiprocessing/connection.py:_send",
                "multiprocessing/queues.py:_feed",
                *THREAD,
            )
        },
        {"stack": ("multiprocessing/resource_sharer.py:_serve", *THREAD)},
    ],
)
def test_threads_that_send_and_receive_do_not_count_as_computing(helper: dict[str, Any]) -> None:
    def worker(number: int) -> Process:
        first = thread(10 * number, state="R", cpu_percent=20.0)
        stack = helper.get("stack", ())
        name = helper.get("name", "python")
        others = [
            thread(10 * number + i, *stack, name=name, state="R", cpu_percent=20.0)
            for i in range(1, 4)
        ]
        return process(number, "spawned", threads=[first, *others])

    job = snapshot_of(main(), worker(200), worker(201), usable_cpus=2)

    assert found(cpu_oversubscription.check, job, RUNNABLE) == []


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (snapshot_of(main(), crowd(200), crowd(201)), RUNNABLE),
        (snapshot_of(main(), crowd(200), crowd(201), usable_cpus=2), history()),
        (snapshot_of(main(), crowd(200), crowd(201), usable_cpus=16), RUNNABLE),
        (snapshot_of(main(), crowd(200, 1), crowd(201, 1), usable_cpus=2), RUNNABLE),
        (snapshot_of(main(), crowd(200), usable_cpus=2), RUNNABLE),
        (
            snapshot_of(main(), crowd(200, percent=1.0), crowd(201, percent=1.0), usable_cpus=2),
            RUNNABLE,
        ),
        (snapshot_of(main(), usable_cpus=2), RUNNABLE),
    ],
)
def test_many_workers_or_a_busy_machine_are_no_oversubscription(
    job: Snapshot, past: History
) -> None:
    assert found(cpu_oversubscription.check, job, past) == []


def pinned(*numbers: int, allowed: int = 1) -> list[Process]:
    return [process(number, cpus_allowed=allowed) for number in numbers]


def test_workers_that_share_one_cpu_are_named() -> None:
    job = snapshot_of(main(cpus_allowed=1), *pinned(200, 201), cpu_count=8)

    finding = only(cpu_affinity_collapse.check, job, cpu(w200=50, w201=48))

    assert "2 workers of main (100) share one of 8 cpus" in finding.summary


def binding(about: str, function: str, line: int) -> Mark:
    call = Statement(line, "os.sched_setaffinity(0, cpus)")
    return Mark("sets-affinity", "/home/me/runtime.py", function, about, call)


SHARED = cpu(w200=50, w201=48)
ENVIRONMENT = "An OpenMP runtime (GOMP_CPU_AFFINITY"


def test_the_line_of_the_program_that_sets_the_affinity_is_named() -> None:
    job = snapshot_of(main(cpus_allowed=1), *pinned(200, 201), cpu_count=8)
    marked = replace(job, marks=(binding("", "reset", 40), binding("one", "apply", 27)))

    bare = only(cpu_affinity_collapse.check, job, SHARED)
    told = only(cpu_affinity_collapse.check, marked, SHARED)

    assert ENVIRONMENT in bare.cause
    assert "taskset -p" in bare.advice
    assert "`os.sched_setaffinity(0, cpus)` at runtime.py:27 apply sets it, most" in told.cause
    assert "main (100) has the same affinity, and its children inherit it" in told.cause
    assert ENVIRONMENT not in told.cause
    assert "runtime.py:40" not in told.cause
    assert "only after its workers have started" in told.advice
    assert "save os.sched_getaffinity(0) before runtime.py:27 apply" in told.advice


@pytest.mark.parametrize(("waits", "is_named"), [(0.7, True), (0.2, False)])
def test_workers_that_share_one_cpu_with_other_programs_wait_for_it(
    waits: float, is_named: bool
) -> None:
    job = snapshot_of(main(cpus_allowed=1), *pinned(200, 201, 202), cpu_count=8)
    shares = {NO_CORE: waits, COMPUTES: 1 - waits}
    job = with_shares(job, p200=shares, p201=shares, p202=shares)

    findings = found(cpu_affinity_collapse.check, job, cpu(w200=15, w201=16, w202=15))

    assert bool(findings) is is_named
    assert not findings or "they wait for a free core 7" in findings[0].evidence[-1]


def test_a_wait_for_workers_that_share_one_cpu_is_an_effect_without_a_cause_of_its_own() -> None:
    """Their code is not what makes them slow, nor is their number."""
    waits = Loader(pid(MAIN), 1, 2, batches=100, wait_share=0.9, process_wait_share=0.9)
    job = snapshot_of(
        main(cpus_allowed=1), *pinned(200, 201), cpu_count=8, usable_cpus=1, loaders=(waits,)
    )
    job = with_shares(job, p200={NO_CORE: 0.5, COMPUTES: 0.5}, p201={NO_CORE: 0.6, COMPUTES: 0.4})

    finding = only(loader_starvation.check, job, SHARED)

    assert finding.cause.startswith("The workers wait for that cpu 55% of the time on average")
    assert finding.effect_of == "cpu-affinity-collapse"
    assert finding.summary == (
        "main (100) waits for data 90% of the time: its 2 workers take turns on one of 8 cpus"
    )
    assert "more workers would not help" not in finding.cause
    assert finding.advice.startswith("Let the workers use the other cpus first")


@pytest.mark.parametrize("shares", [{}, {NO_CORE: 0.1, COMPUTES: 0.9}])
def test_workers_on_one_cpu_are_not_said_to_wait_for_it_where_they_hardly_do(
    shares: Mapping[Activity, float],
) -> None:
    waits = Loader(pid(MAIN), 1, 2, batches=100, wait_share=0.9, process_wait_share=0.9)
    job = snapshot_of(main(cpus_allowed=1), *pinned(200, 201), cpu_count=8, loaders=(waits,))
    seen = with_shares(job, p200=shares, p201=shares) if shares else job

    finding = only(loader_starvation.check, seen, SHARED)

    assert finding.effect_of != "cpu-affinity-collapse"
    assert "for that cpu" not in finding.cause


def test_an_affinity_that_the_workers_set_themselves_is_not_said_to_be_inherited() -> None:
    job = snapshot_of(main(cpus_allowed=8), *pinned(200, 201), cpu_count=8)
    marked = replace(job, marks=(binding("one", "init_worker", 9),))

    told = only(cpu_affinity_collapse.check, marked, SHARED)

    assert "in each worker, to the same cpu" in told.cause
    assert "inherit" not in told.cause
    assert "by the number of the worker" in told.advice


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (snapshot_of(main(), *pinned(200, 201), cpu_count=1), cpu(w200=50, w201=48)),
        (snapshot_of(main(), *pinned(200, 201)), cpu(w200=50, w201=48)),
        (snapshot_of(main(), *pinned(200), cpu_count=8), cpu(w200=100)),
        (snapshot_of(main(), *pinned(200, 201, allowed=8), cpu_count=8), cpu(w200=50, w201=48)),
        (snapshot_of(main(), *pinned(200, 201), cpu_count=8), cpu(w200=98, w201=95)),
        (snapshot_of(main(), *pinned(200, 201), cpu_count=8), cpu(w200=99, w201=1)),
        (snapshot_of(main(), *pinned(200, 201), cpu_count=8), cpu(w200=50)),
    ],
)
def test_workers_with_a_cpu_each_or_little_to_do_are_quiet(job: Snapshot, past: History) -> None:
    assert found(cpu_affinity_collapse.check, job, past) == []


def turns(count: int, percent: float, stack: tuple[str, ...] = (), **fields: Any) -> Process:
    own = [thread(100 + i, *stack, cpu_percent=percent, **fields) for i in range(count)]
    return main(threads=own, more={"cpu_percent": count * percent})


def test_threads_that_take_turns_on_one_core_are_information() -> None:
    job = snapshot_of(turns(4, 25.0, ("train.py:tokenize:9",)), usable_cpus=8)

    finding = only(gil_bound_threads.check, job, cpu(main=100))

    assert finding.summary == (
        "4 threads of main (100) share one core, so that one runs at a time, most of them at "
        "train.py:9 tokenize"
    )
    assert "4 threads at train.py:9 tokenize" in finding.evidence


def test_the_threads_of_a_manager_that_serve_its_clients_are_not_the_programs() -> None:
    busy = turns(4, 25.0, ("train.py:tokenize:9",))

    assert (
        found(
            gil_bound_threads.check,
            snapshot_of(replace(busy, label="manager"), usable_cpus=8),
            cpu(main=100),
        )
        == []
    )


def test_on_a_busy_machine_stacks_tell_python_from_native_threads() -> None:
    python = snapshot_of(turns(4, 10.0, ("train.py:tokenize:9",)), usable_cpus=2)
    native = snapshot_of(turns(4, 10.0), usable_cpus=2)

    assert only(gil_bound_threads.check, python, cpu(main=40)).process == pid(MAIN)
    assert found(gil_bound_threads.check, native, cpu(main=40)) == []


def test_threads_without_python_code_do_not_share_the_lock_of_the_interpreter() -> None:
    """As those of autograd and of NCCL beside the one that trains."""
    native = turns(4, 25.0)
    trains = thread(100, "train.py:step:9", cpu_percent=25.0)

    seen = snapshot_of(replace(native, threads=(trains, *native.threads[1:])), usable_cpus=8)
    unseen = snapshot_of(native, usable_cpus=8)

    assert found(gil_bound_threads.check, seen, cpu(main=100)) == []
    assert len(found(gil_bound_threads.check, unseen, cpu(main=100))) == 1


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (snapshot_of(turns(4, 25.0)), cpu(main=100)),
        (snapshot_of(turns(4, 25.0), usable_cpus=1), cpu(main=100)),
        (snapshot_of(turns(2, 50.0), usable_cpus=8), cpu(main=100)),
        (snapshot_of(turns(4, 60.0), usable_cpus=8), cpu(main=240)),
        (snapshot_of(turns(4, 10.0), usable_cpus=8), cpu(main=100)),
        (snapshot_of(turns(4, 25.0), usable_cpus=8), history()),
        (
            snapshot_of(turns(4, 25.0, ("train.py:step:9",), state="R"), usable_cpus=8),
            cpu(main=100),
        ),
        (
            snapshot_of(turns(4, 25.0, waits=WaitedOn("timer", "nanosleep")), usable_cpus=8),
            cpu(main=100),
        ),
        (
            snapshot_of(
                turns(4, 25.0), process(300, "spawned", more={"cpu_percent": 100.0}), usable_cpus=2
            ),
            cpu(main=100),
        ),
    ],
)
def test_parallel_few_or_crowded_threads_are_quiet(job: Snapshot, past: History) -> None:
    assert found(gil_bound_threads.check, job, past) == []


def with_poller(
    waits: float, computes: float, text: str = "return requests.get_nowait()"
) -> Snapshot:
    """A process whose main thread waits for the GIL that another thread of it has."""
    gil = Activity("waiting", "the GIL", "gil", (), "train.py:30 forward")
    polls = Activity("computing", "Python code", place="data.py:29 next_request")
    idle = Activity("waiting", "an item of a queue", "queue")
    stack = ("data.py:next_request:29", "threading.py:run")
    own = main(threads=[thread(MAIN, "train.py:run:9"), thread(101, *stack, name="generate")])
    job = with_shares(
        replace(
            snapshot_of(own, process(101, "spawned"), usable_cpus=8),
            source=(SourceLine("/home/me/data.py", 29, "next_request", Statement(29, text)),),
        ),
        p100={gil: waits, idle: 1 - waits},
        p101={polls: computes, idle: 1 - computes},
    )
    accounts = job.account.processes
    one, other = accounts[pid(MAIN)], accounts[pid(101)]
    generate = other.uncounted[0]._replace(name="generate")
    both = replace(one, uncounted=(*one.uncounted, generate), ticks=(*one.ticks, *other.ticks))
    return replace(job, account=replace(job.account, processes={pid(MAIN): both}))


def test_a_thread_that_polls_while_another_waits_for_the_gil_is_named_with_its_line() -> None:
    finding = only(gil_bound_threads.check, with_poller(0.16, 0.4))
    computing = only(gil_bound_threads.check, with_poller(0.16, 0.4, "return sum(rows)"))

    assert finding.summary == (
        "thread generate of main (100) asks again and again whether there is something to do at "
        "data.py:29 next_request, and the main thread waits for the GIL 16% of the time"
    )
    assert "get() with a timeout" in finding.advice
    assert "generate of main (100) computes at data.py:29" in computing.summary
    assert "process of its own" in computing.advice
    assert found(gil_bound_threads.check, with_poller(0.04, 0.4)) == []
    assert found(gil_bound_threads.check, with_poller(0.16, 0.1)) == []


STATISTICS = Activity("computing", "Python code", place="data.py:31 <genexpr>")
FOR_GIL = Activity("waiting", "the GIL", "gil", (), "train.py:38 serve")
OF_IMPORTS = Activity("computing", IMPORTS, place="data.py:31 <genexpr>")


def serving(
    held_up: Mapping[Activity, float],
    computes: Mapping[Activity, float],
    clients: float = 0.0,
    root: Activity = JOINS,
) -> Snapshot:
    """A server whose main thread waits for the GIL, beside two processes that may wait for it."""
    stack = ("data.py:<genexpr>:31", "data.py:cell:31", "data.py:refresh:42", "threading.py:run")
    threads = [thread(300, "train.py:serve:38"), thread(301, *stack, name="stats")]
    endless = Statement(36, "while True:")
    rounds = SourceLine(
        "/home/me/data.py",
        42,
        "refresh",
        Statement(42, "visits[self.cell(row)] += 1"),
        within=(endless, Statement(41, "for row in rows:")),
        endless=EndlessLoop(endless),
    )
    job = replace(
        snapshot_of(
            main(threads=[thread(MAIN, "train.py:run:9")]),
            process(300, "spawned", label="server", threads=threads),
            process(301, "spawned"),
            *(process(number, "spawned") for number in (400, 401)),
            usable_cpus=8,
        ),
        source=(rounds,),
    )
    # The main process has the server's end of each connection by inheritance.
    asks = answers_from(300)._replace(providers=(pid(MAIN), pid(300)))
    job = with_shares(
        job,
        p100={root: 1.0},
        p300=held_up,
        p301=computes,
        p400={asks: clients, COMPUTES: 1 - clients},
        p401={asks: clients, COMPUTES: 1 - clients},
    )
    accounts = dict(job.account.processes)
    one, other = accounts[pid(300)], accounts.pop(pid(301))
    second = other.uncounted[0]._replace(name="stats")
    accounts[pid(300)] = replace(
        one, uncounted=(*one.uncounted, second), ticks=(*one.ticks, *other.ticks)
    )
    return replace(job, account=replace(job.account, processes=accounts))


def test_a_thread_that_waits_for_the_gil_where_cores_are_short_is_found() -> None:
    waits = {FOR_GIL: 0.52, NO_CORE: 0.26, COMPUTES: 0.08, IN_A_CONDITION: 0.14}
    computes = {STATISTICS: 0.53, NO_CORE: 0.38, IN_A_CONDITION: 0.09}

    finding = only(gil_bound_threads.check, serving(waits, computes))

    assert "thread stats of server (300) computes at data.py:31 <genexpr>" in finding.summary
    assert finding.severity is Severity.INFO
    taking_turns = {FOR_GIL: 0.45, NO_CORE: 0.3, COMPUTES: 0.25}
    assert found(gil_bound_threads.check, serving(taking_turns, taking_turns)) == []
    a_little_more = {FOR_GIL: 0.4, NO_CORE: 0.35, COMPUTES: 0.25}
    assert found(gil_bound_threads.check, serving(taking_turns, a_little_more)) == []


def test_the_loops_of_a_thread_that_has_the_gil_are_told() -> None:
    finding = only(gil_bound_threads.check, serving({FOR_GIL: 0.6, COMPUTES: 0.1}, {STATISTICS: 1}))

    loops = "`for row in rows:` (data.py:41 refresh), in `while True:` (data.py:36 refresh)"
    assert f"thread stats is in {loops}" in finding.evidence
    assert "`while True:` (data.py:36) has no wait in it" in finding.cause
    rests = serving({FOR_GIL: 0.6, COMPUTES: 0.1}, {STATISTICS: 0.5, IN_A_CONDITION: 0.5})
    assert "without a pause" not in only(gil_bound_threads.check, rests).cause


def test_a_process_that_the_gil_holds_up_while_others_wait_for_it_sets_their_pace() -> None:
    waits = {FOR_GIL: 0.6, COMPUTES: 0.1, IN_A_CONDITION: 0.3}

    finding = only(gil_bound_threads.check, serving(waits, {STATISTICS: 1}, clients=0.8))
    served = only(gil_bound_threads.check, serving(waits, {STATISTICS: 1}, clients=0.3))
    little = {FOR_GIL: 0.15, COMPUTES: 0.2, IN_A_CONDITION: 0.65}
    other = only(gil_bound_threads.check, serving(little, {STATISTICS: 1}, clients=0.8))

    assert finding.severity is Severity.WARNING
    assert finding.summary.endswith("wait for that process 80% of their time")
    assert "spawned 400 (400): 80% waiting for server (300)" in finding.evidence
    assert served.severity is other.severity is Severity.INFO
    assert "of their time" not in served.summary + other.summary
    by_either = serving(waits, {STATISTICS: 1}, clients=0.8, root=COMPUTES)
    assert only(gil_bound_threads.check, by_either).severity is Severity.INFO


def test_imports_of_one_thread_are_no_finding_about_the_gil() -> None:
    waits = {FOR_GIL: 0.2, IN_A_CONDITION: 0.8}

    imports = {OF_IMPORTS: 0.35, STATISTICS: 0.1, IN_A_CONDITION: 0.55}
    assert found(gil_bound_threads.check, serving(waits, imports)) == []
    assert found(gil_bound_threads.check, serving(waits, {**imports, STATISTICS: 0.3})) != []


def test_a_native_thread_that_polls_waits_for_no_gil() -> None:
    """NCCL's watchdog waits in short steps like a thread that wants the GIL; no stack shows it."""
    short = WaitedOn("futex", "futex", timeout_s=0.005, futex_command=9)
    busy = thread(MAIN, "train.py:step:9", state="R", cpu_percent=100.0, stack_age_s=0.0)
    python = thread(102, "data.py:read:3", waits=short, stack_age_s=0.0)
    native = thread(101, name="pt_nccl_watchdg", waits=short)

    own = main(threads=[busy, native, python])
    account = accounted(*(snapshot_of(own, at_s=NOW_S + n) for n in range(4))).account

    targets = {each.tid: each.now.target for each in account.processes[pid(MAIN)].uncounted}
    assert (targets[101], targets[102]) == ("lock", "gil")


def wanting(percent: float, state: str = "R") -> Snapshot:
    """Four threads of main in Python code over some seconds, each with a part of a core."""
    waits = None if state == "R" else WaitedOn("timer", "clock_nanosleep", timeout_s=1.0)
    threads = [
        thread(
            MAIN + n,
            "train.py:prepare:5",
            state=state,
            waits=waits,
            cpu_percent=percent,
            stack_age_s=0.0,
        )
        for n in range(4)
    ]
    made = [
        snapshot_of(
            ticked(main(threads=threads), {MAIN + n: round(percent * second) for n in range(4)}),
            at_s=NOW_S - 20 + second,
            usable_cpus=4,
        )
        for second in range(21)
    ]
    return accounted(*made)


def test_on_a_loaded_machine_threads_that_take_turns_are_known_by_what_they_want() -> None:
    """All of them together get an eighth of a core."""
    finding = only(gil_bound_threads.check, wanting(3.0))

    assert f"4 threads of main ({MAIN}) share one core" in finding.summary
    assert found(gil_bound_threads.check, wanting(3.0, state="S")) == []
    assert found(gil_bound_threads.check, wanting(90.0)) == []


POLL = Activity("computing", "Python code", place="train.py:33 work")
UNPICKLES = POLL._replace(what="unpickling")
ASKS = SourceLine(
    "/home/me/train.py",
    33,
    "work",
    Statement(33, "index = index_queue.get(timeout=0)"),
    within=(Statement(31, "while True:"),),
)


def polling(
    doing: dict[Activity, float], main_waits: float = 0.8, source: SourceLine = ASKS
) -> Snapshot:
    """Main that computes, and two processes that take its cores."""
    numbers = (300, 301)
    seen = {**doing, NO_CORE: 1 - sum(doing.values())}
    job = with_shares(
        snapshot_of(main(), *(process(n, "spawned") for n in numbers), usable_cpus=2),
        p100={COMPUTES: 1 - main_waits, NO_CORE: main_waits},
        **{f"p{n}": seen for n in numbers},
    )
    return replace(job, source=(source,))


def test_processes_that_poll_on_a_part_of_a_core_each_are_named_with_those_that_wait() -> None:
    finding = only(cpu_oversubscription.check, polling({POLL: 0.3, UNPICKLES: 0.05}))

    assert finding.severity is Severity.WARNING
    assert finding.process == pid(300)
    assert finding.summary == (
        "spawned 300 (300) and spawned 301 (301) poll index_queue without a pause at train.py:33 "
        "work, while main (100) waits up to 80% of the time for a free core"
    )
    assert "these polls take 0.6 of 2 usable cores, 67% of the cpu time" in finding.evidence[2]
    assert "`index = index_queue.get(timeout=0)` returns at once" in finding.cause


def test_the_clause_in_which_a_poll_has_found_nothing_is_part_of_it() -> None:
    goes_on = replace(
        ASKS,
        line=35,
        statement=Statement(35, "continue"),
        within=(*ASKS.within, Statement(34, "except queue.Empty:")),
    )
    job = polling({POLL: 0.1, POLL._replace(place="train.py:35 work"): 0.05})
    seen = replace(job, source=(*job.source, goes_on))
    starts = with_shares(job, p301={NO_CORE: 1.0}).account.processes
    accounts = {**job.account.processes, pid(301): starts[pid(301)]}  # it polls as well, later
    less = replace(seen, account=replace(job.account, processes=accounts))

    both = only(cpu_oversubscription.check, seen)
    assert both.others == (pid(301),)
    assert "15% of a core for polls at train.py:33 work" in both.evidence[0]
    assert "while main (100) waits" in only(cpu_oversubscription.check, less).summary


@pytest.mark.parametrize(
    "job",
    [
        polling({POLL: 0.3}, main_waits=0.1),
        polling({POLL: 0.1, UNPICKLES: 0.2}),
        polling({POLL: 0.2, COMPUTES: 0.1}),
        polling({}),
        polling({POLL: 0.3}, source=replace(ASKS, statement=Statement(33, "q.get(timeout=1)"))),
        polling({POLL: 0.3}, source=replace(ASKS, within=())),
    ],
    ids=[
        "no one waits",
        "it takes items",
        "it computes",
        "it gets no core",
        "it waits in get",
        "no loop",
    ],
)
def test_what_takes_items_or_holds_up_no_one_is_no_polling(job: Snapshot) -> None:
    assert found(cpu_oversubscription.check, job) == []
