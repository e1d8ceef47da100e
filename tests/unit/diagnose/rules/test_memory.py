from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.growth.forecast import memory_headroom, severity_of_growth
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.throughput.account import advanced
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.memory import (
    compile_worker_pool,
    copy_on_write_growth,
    loader_iterator_leak,
    persistent_workers_leak,
    prefetch_memory_blowup,
)
from mpwatch.model.account import Account
from mpwatch.model.findings import Severity
from mpwatch.model.history import History, Point
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.samples import ThreadSample, WaitedOn
from mpwatch.model.snapshot import Loader, Process, Snapshot
from mpwatch.model.source_code import Mark, Statement
from tests.builders.accounts import COMPUTES, with_shares
from tests.builders.snapshots import (
    MAIN,
    MIB,
    NOW_S,
    WALL_S,
    cgroup,
    fds,
    found,
    history,
    line,
    main,
    maps,
    only,
    pid,
    process,
    segment,
    snapshot_of,
    space,
    thread,
)

GIB = 1024 * MIB


def forked(*numbers: int) -> list[Process]:
    return [process(number, start_method="fork") for number in numbers]


def copying(per_s: float = MIB, rss_per_s: float = 0.0, seconds: float = 30.0) -> History:
    made: dict[Any, Sequence[Point]] = {}
    for number in (200, 201):
        made[number, "private_dirty_bytes"] = line(80 * MIB, per_s, seconds, 3)
        made[number, "shared_dirty_bytes"] = line(200 * MIB, -per_s, seconds, 3)
        made[number, "rss_bytes"] = line(280 * MIB, per_s=rss_per_s)
    return history(made)


def test_pages_copied_by_reading_are_named_though_resident_memory_stands() -> None:
    job = snapshot_of(
        main(),
        *forked(200, 201),
        cgroup=cgroup(memory_bytes=GIB, memory_limit_bytes=GIB + 300 * MIB),
    )

    finding = only(copy_on_write_growth.check, job, copying())

    assert finding.severity is Severity.WARNING
    assert finding.eta_s == pytest.approx(150)
    assert "2 forked workers copy memory of main (100)" in finding.summary


@pytest.mark.parametrize("role", ["pool-worker", "spawned"])
def test_other_forked_children_copy_as_well(role: Role) -> None:
    children = [process(n, role, start_method="fork") for n in (200, 201)]

    finding = only(copy_on_write_growth.check, snapshot_of(main(), *children), copying())

    assert "2 forked processes copy memory of main (100)" in finding.summary
    assert "dataset" not in finding.cause
    assert (finding.process, finding.others) == (pid(MAIN), (pid(200), pid(201)))


@pytest.mark.parametrize(
    ("fields", "past", "why"),
    [
        ({"born_wall_s": WALL_S - 25}, {}, "within its start"),
        ({"born_wall_s": WALL_S - 45}, {}, "half of it within its start, and little after that"),
        ({}, {"rss_per_s": 0.3 * MIB}, "a third of the gain is memory of its own"),
        ({"threads": [thread(200, "<frozen importlib._bootstrap>:_find_and_load")]}, {}, "imports"),
    ],
)
def test_a_process_that_begins_does_not_copy_by_reading(
    fields: dict[str, Any], past: dict[str, float], why: str
) -> None:
    child = process(200, "rank", start_method="fork", **fields)

    assert found(copy_on_write_growth.check, snapshot_of(main(), child), copying(**past)) == [], why


@pytest.mark.parametrize(
    ("age_s", "imported_ago_s", "is_told"),
    [(25, 20, True), (25, 5, False), (120, 4, False), (120, 25, True), (120, 200, True)],
)
def test_a_start_lasts_until_the_imports_are_done(
    age_s: float, imported_ago_s: float, *, is_told: bool
) -> None:
    """However long they take: 25 s after its start one process computes, another still imports."""
    child = process(200, "rank", start_method="fork", born_wall_s=WALL_S - age_s)
    job = with_shares(snapshot_of(main(), child), p200={COMPUTES: 1.0})
    account = job.account.processes[pid(200)]
    imported_in = int((NOW_S - imported_ago_s) // BUCKET_S)
    seen = replace(
        account, uncounted=(account.uncounted[0]._replace(buckets=(), imported_in=imported_in),)
    )
    job = replace(job, account=replace(job.account, processes={pid(200): seen}))

    assert bool(found(copy_on_write_growth.check, job, copying(3 * MIB))) == is_told


def test_a_start_that_comes_near_a_limit_is_told() -> None:
    job = snapshot_of(
        main(),
        process(200, "rank", start_method="fork", born_wall_s=WALL_S - 25),
        cgroup=cgroup(memory_bytes=GIB, memory_limit_bytes=GIB + 100 * MIB),
    )

    finding = only(copy_on_write_growth.check, job, copying())

    assert finding.severity is Severity.WARNING


def test_copying_without_a_limit_in_sight_is_information() -> None:
    job = snapshot_of(main(), *forked(200, 201))

    finding = only(copy_on_write_growth.check, job, copying())

    assert (finding.severity, finding.eta_s) == (Severity.INFO, None)


def test_no_more_is_copied_than_is_shared_now() -> None:
    job = snapshot_of(
        main(),
        *forked(200, 201),
        cgroup=cgroup(memory_bytes=GIB, memory_limit_bytes=GIB + 500 * MIB),
    )

    finding = only(copy_on_write_growth.check, job, copying())

    assert (finding.severity, finding.eta_s) == (Severity.INFO, None)
    assert "at most 400M more can be copied: that is shared now" in finding.evidence


@pytest.mark.parametrize(("free", "is_doubtful"), [(60 * GIB, True), (10 * GIB, False)])
def test_copying_that_ends_far_below_the_memory_that_is_left_is_doubtful(
    free: int, is_doubtful: bool
) -> None:
    job = snapshot_of(
        main(),
        *forked(200, 201),
        cgroup=cgroup(memory_bytes=GIB, memory_limit_bytes=GIB + free),
    )

    finding = only(copy_on_write_growth.check, job, copying())

    assert finding.severity is Severity.INFO
    assert finding.is_doubtful is is_doubtful


def test_copying_that_is_nearly_complete_has_no_forecast() -> None:
    made: dict[Any, Sequence[Point]] = {}
    copied = (22.6, 74.6, 97.2, 107.0)
    times = [NOW_S - 18 + 6 * i for i in range(4)]
    made[200, "private_dirty_bytes"] = [
        Point(at_s, x * MIB) for at_s, x in zip(times, copied, strict=True)
    ]
    made[200, "shared_dirty_bytes"] = [
        Point(at_s, (254 - x) * MIB) for at_s, x in zip(times, copied, strict=True)
    ]
    made[200, "rss_bytes"] = line(275 * MIB)

    finding = only(copy_on_write_growth.check, snapshot_of(main(), *forked(200)), history(made))

    assert (finding.severity, finding.eta_s) == (Severity.INFO, None)
    assert "it slows down" in finding.evidence


@pytest.mark.parametrize(
    ("workers", "past"),
    [
        (forked(200, 201), copying(per_s=MIB / 10)),
        (forked(200, 201), copying(rss_per_s=MIB)),
        (forked(200, 201), copying(per_s=MIB, seconds=6)),
        (forked(200, 201), history({(200, "private_dirty_bytes"): line(80 * MIB, per_s=MIB)})),
        ([process(200, start_method="spawn")], copying()),
        (forked(200, 201), history()),
    ],
)
def test_small_or_other_growth_is_not_copying(workers: list[Process], past: History) -> None:
    assert found(copy_on_write_growth.check, snapshot_of(main(), *workers), past) == []


def test_the_objects_of_every_python_process_are_no_dataset() -> None:
    made: dict[Any, Sequence[Point]] = {}
    copied = (20, 50, 55, 56)
    times = [NOW_S - 18 + 6 * i for i in range(4)]
    for metric, values in (
        ("private_dirty_bytes", copied),
        ("shared_dirty_bytes", [254 - x for x in copied]),
    ):
        made[200, metric] = [Point(at, x * MIB) for at, x in zip(times, values, strict=True)]
    made[200, "rss_bytes"] = line(275 * MIB)

    assert found(copy_on_write_growth.check, snapshot_of(main(), *forked(200)), history(made)) == []


def leaking(*numbers: int, per_s: float = MIB) -> History:
    made: dict[Any, Sequence[Point]] = {}
    for number in numbers:
        made[number, "rss_bytes"] = line(180 * MIB, per_s=per_s, seconds=45)
        made[number, "private_bytes"] = line(100 * MIB, per_s=per_s, seconds=45, step_s=9)
    return history(made)


def test_a_cache_without_a_bound_in_the_program_is_named_with_its_line() -> None:
    fills = Mark(
        "cache", "/home/me/safe.py", "__call__", "self.cache", Statement(16, "self.cache[k] = f(k)")
    )
    job = snapshot_of(main(), *forked(200, 201), marks=(fills,))

    finding = only(persistent_workers_leak.check, job, leaking(200, 201))

    assert (
        "`self.cache[k] = f(k)` at safe.py:16 __call__ fills self.cache, which nothing in that "
        "file bounds"
    ) in finding.evidence
    assert finding.advice.startswith("Look at `self.cache[k] = f(k)` at safe.py:16 __call__ first")


def test_what_itertools_cycle_keeps_is_named_with_its_line() -> None:
    cycles = Mark(
        "cycle", "/home/me/data.py", "__iter__", "Rows(self)", Statement(51, "return cycle(Rows())")
    )
    job = snapshot_of(main(), *forked(200, 201), marks=(cycles,))

    finding = only(persistent_workers_leak.check, job, leaking(200, 201))

    assert finding.cause.startswith("Most likely `return cycle(Rows())` at data.py:51 __iter__")
    assert "while True: yield from Rows(self)" in finding.advice


OFF = Mark("gc-off", "/home/me/train.py", "fit", "", Statement(35, "gc.disable()"))
OF_MAIN = Mark("gc-on", "/home/me/train.py", "fit", "collect", Statement(50, "gc.collect()"))
INNER = Mark(
    "self-reference", "/home/me/trees.py", "flat", "walk", Statement(10, "def walk(node):")
)


def test_workers_that_inherit_a_collector_that_is_off_are_named_with_that_line() -> None:
    trains = main(threads=[thread(MAIN, "train.py:fit:51")])
    job = snapshot_of(trains, *forked(200, 201), marks=(OFF, OF_MAIN, INNER))

    finding = only(persistent_workers_leak.check, job, leaking(200, 201))

    assert finding.cause.startswith(
        "Most likely objects in reference cycles are never freed there: `gc.disable()` at "
        "train.py:35 fit was called before main (100) forked it, which it inherits. "
        "`def walk(node):` at trees.py:10 flat makes such a cycle each time that flat() is called"
    )
    assert "make walk a function of its module" in finding.advice


@pytest.mark.parametrize(
    ("marks", "start_method"),
    [
        ((OFF,), "spawn"),
        ((OFF, OF_MAIN._replace(about="enable")), "fork"),
        ((OFF, OF_MAIN._replace(file="/o.py", function="__getitem__")), "fork"),
        ((OFF._replace(file="/o.py"),), "fork"),
        ((INNER,), "fork"),
    ],
)
def test_a_collector_that_may_run_in_the_workers_is_not_the_cause(
    marks: tuple[Mark, ...], start_method: str
) -> None:
    trains = main(threads=[thread(MAIN, "train.py:fit:51")])
    workers = [replace(each, start_method=start_method) for each in forked(200, 201)]

    finding = only(
        persistent_workers_leak.check,
        snapshot_of(trains, *workers, marks=marks),
        leaking(200, 201),
    )

    assert "reference cycles" not in finding.cause


def test_workers_that_only_grow_are_named() -> None:
    job = snapshot_of(
        main(),
        *forked(200, 201),
        memory_total_bytes=4 * GIB,
        memory_available_bytes=GIB // 2,
    )

    finding = only(persistent_workers_leak.check, job, leaking(200, 201))

    assert finding.severity is Severity.WARNING
    assert "grow by +2.0M/s" in finding.summary
    assert "512M of the machine's memory left" in finding.evidence


def test_the_line_at_which_growing_workers_work_is_named() -> None:
    account = Account()
    calls = ("data.py:render:12", "train.py:load:9")
    for second in range(31):
        at_s = NOW_S - 30 + second
        works = thread(200, *calls, waits=WaitedOn("timer", "clock_nanosleep"))
        works = replace(works, stack_at_s=at_s, stack_age_s=0.0)
        seen = snapshot_of(main(), process(200, threads=[works]), at_s=at_s)
        index = Index(seen, History())
        account = advanced(account, index, wait_graph(index))

    finding = only(
        persistent_workers_leak.check,
        replace(snapshot_of(main(), *forked(200)), account=account),
        leaking(200),
    )

    assert "100% of their work whose line is known: data.py:12 render" in finding.evidence
    assert finding.summary.endswith("; most of their work is at data.py:12 render")
    assert finding.advice.startswith("Look at what data.py:12 render stores")


def test_a_bounded_cache_and_the_heap_around_it_are_no_leak() -> None:
    # Resident MiB of a worker with a cache of 10 MiB, every 3 s, as it was measured.
    measured = [156, 167, 166, 175, 175, 176, 181, 182, 182, 182, 182]
    for count in range(6, len(measured) + 1):
        points = [
            Point(NOW_S - 3 * (count - i), each * MIB) for i, each in enumerate(measured[:count])
        ]
        past = history({(200, "rss_bytes"): points, (200, "private_bytes"): points})
        assert found(persistent_workers_leak.check, snapshot_of(main(), *forked(200)), past) == []


@pytest.mark.parametrize(("grown", "is_named"), [((200,), False), ((200, 201), True)])
def test_a_leak_shows_in_most_workers(grown: tuple[int, ...], is_named: bool) -> None:
    job = snapshot_of(main(), *forked(200, 201, 202))

    assert bool(found(persistent_workers_leak.check, job, leaking(*grown))) == is_named


def test_growth_is_named_where_memory_is_unknown() -> None:
    finding = only(persistent_workers_leak.check, snapshot_of(main(), *forked(200)), leaking(200))

    assert (finding.severity, len(finding.evidence)) == (Severity.INFO, 1)


@pytest.mark.parametrize(
    ("workers", "past"),
    [
        (forked(200), leaking(200, per_s=MIB / 10)),
        (forked(200, 201, 202), leaking(200)),
        (forked(200, 201), copying(rss_per_s=MIB)),
        (forked(200), history({(200, "rss_bytes"): line(180 * MIB, per_s=MIB)})),
        (forked(200), history()),
        ([process(200, born_wall_s=1_700_000_000.0 - 10)], leaking(200)),
    ],
)
def test_small_single_young_or_copied_growth_is_no_leak(
    workers: list[Process], past: History
) -> None:
    assert found(persistent_workers_leak.check, snapshot_of(main(), *workers), past) == []


def test_the_nearest_limit_of_memory_counts() -> None:
    both = snapshot_of(
        main(),
        memory_total_bytes=8 * GIB,
        memory_available_bytes=GIB,
        cgroup=cgroup(memory_bytes=GIB, memory_limit_bytes=2 * GIB),
    )
    wide = snapshot_of(
        main(),
        memory_total_bytes=8 * GIB,
        memory_available_bytes=GIB,
        cgroup=cgroup(memory_bytes=GIB, memory_limit_bytes=64 * GIB),
    )

    assert memory_headroom(both) == (GIB, 2 * GIB, "the control group's memory")
    assert memory_headroom(wide) == (GIB, 8 * GIB, "the machine's memory")
    assert memory_headroom(snapshot_of(main())) is None


@pytest.mark.parametrize(
    ("per_s", "gained", "severity"),
    [
        (GIB / 10, GIB / 100, Severity.CRITICAL),
        (GIB / 100, GIB / 5, Severity.WARNING),
        (GIB / 100, GIB / 20, Severity.INFO),
        (GIB / 10_000, GIB / 5, Severity.INFO),
    ],
)
def test_the_severity_of_a_growth_follows_the_time_left_and_what_was_seen_of_it(
    per_s: float, gained: float, severity: Severity
) -> None:
    job = snapshot_of(main(), memory_total_bytes=8 * GIB, memory_available_bytes=GIB)

    assert severity_of_growth(memory_headroom(job), per_s, gained)[0] is severity


def test_constant_memory_and_distant_limits_have_no_forecast() -> None:
    job = snapshot_of(main(), memory_total_bytes=8 * GIB, memory_available_bytes=GIB)

    assert severity_of_growth(memory_headroom(job), 0, GIB) == (Severity.INFO, None)
    assert severity_of_growth(memory_headroom(job), 10, GIB) == (Severity.INFO, None)


RECEIVER = main(maps=maps(90))


def flying_of(size_bytes: int, count: int) -> tuple[Any, ...]:
    return tuple(
        segment(i, 200, size_bytes=size_bytes, allocated_bytes=8 * MIB) for i in range(count)
    )


def flying(count: int) -> tuple[Any, ...]:
    return tuple(segment(i, 200, allocated_bytes=8 * MIB) for i in range(count))


def test_batches_that_fill_much_of_dev_shm_are_named() -> None:
    loader = Loader(pid(MAIN), 1, 2, prefetch=6)
    job = snapshot_of(
        RECEIVER, *forked(200), segments=flying(7), shm=space(64 * MIB, 0), loaders=(loader,)
    )

    finding = only(prefetch_memory_blowup.check, job)

    assert finding.severity is Severity.WARNING
    assert "2 workers with prefetch_factor 6: up to 12 batches in flight" in finding.evidence
    assert "each of its loaders" not in finding.cause
    both = replace(job, loaders=(loader, replace(loader, key=2)))
    assert "each of its loaders" in only(prefetch_memory_blowup.check, both).cause


def test_batches_that_take_a_part_of_memory_are_a_warning() -> None:
    limited = cgroup(memory_bytes=MIB, memory_limit_bytes=100 * MIB)
    job = snapshot_of(
        RECEIVER, *forked(200), segments=flying(3), cgroup=limited, memory_total_bytes=GIB
    )

    assert "100M of the control group's memory" in only(prefetch_memory_blowup.check, job).summary


def test_half_of_dev_shm_is_information() -> None:
    job = snapshot_of(RECEIVER, *forked(200), segments=flying(5), shm=space(64 * MIB, 0))

    assert only(prefetch_memory_blowup.check, job).severity is Severity.INFO


def test_very_many_batches_of_one_size_are_information_whatever_the_room() -> None:
    job = snapshot_of(RECEIVER, *forked(200), segments=flying_of(12 * MIB, 10))

    finding = only(prefetch_memory_blowup.check, job)

    assert finding.severity is Severity.INFO
    assert "hold 80.0M of shared memory" in finding.summary


def test_a_small_prefetch_and_one_that_still_rises_are_quiet() -> None:
    modest = snapshot_of(RECEIVER, *forked(200), segments=flying(2), shm=space(64 * MIB, 0))
    kept = snapshot_of(RECEIVER, *forked(200), segments=flying(7), shm=space(64 * MIB, 0))
    past = history(host={"segment_bytes": line(56 * MIB, per_s=MIB)})

    assert found(prefetch_memory_blowup.check, modest) == []
    assert found(prefetch_memory_blowup.check, kept, past) == []


def test_batches_that_main_has_received_and_keeps_are_not_ahead_of_it() -> None:
    kept = tuple(replace(each, mappers=(pid(MAIN),)) for each in flying(7))
    large = tuple(replace(each, mappers=(pid(MAIN),)) for each in flying_of(12 * MIB, 10))
    full = space(64 * MIB, 0)

    for segments, owner in ((kept, RECEIVER), (large, RECEIVER), (flying(7), main())):
        job = snapshot_of(owner, *forked(200), segments=segments, shm=full)
        assert found(prefetch_memory_blowup.check, job) == []


def sets(count: int) -> Snapshot:
    workers = [process(1000 * n + k) for n in range(1, count + 1) for k in range(2)]
    feeders = tuple(ThreadSample(i, "QueueFeederThre", "S", 0) for i in range(2 * count))
    owner = main(fds=fds(100, file=5))
    owner = replace(owner, sample=replace(owner.sample, threads=feeders))
    return snapshot_of(owner, *workers, loaders=(Loader(pid(MAIN), 1, 2),))


def test_iterators_that_pile_up_are_counted() -> None:
    past = history({(MAIN, "children"): line(10, per_s=0.2)})

    finding = only(loader_iterator_leak.check, sets(5), past)

    assert "keeps 5 DataLoader iterators" in finding.summary
    assert "10 queue feeder threads in main (100)" in finding.evidence
    assert "1 live iterator, by the hook's count" in finding.evidence
    assert any("6 more children" in each for each in finding.evidence)


def test_very_many_sets_of_workers_are_named_without_a_history() -> None:
    assert "8 sets" in only(loader_iterator_leak.check, sets(8)).evidence[0]


def test_sets_made_in_quick_succession_are_distinguished_by_the_feeders_between_them() -> None:
    started = [1000, 1001, 1050, 1051, 1100, 1101, 1150, 1151]
    workers = [replace(process(n), process=ProcessId(n, n)) for n in started]
    job = snapshot_of(main(fds=fds(100, file=5)), *workers)
    past = history({(MAIN, "children"): line(8, per_s=0.2)})

    def with_feeders(*starts: int) -> Snapshot:
        feeders = tuple(ThreadSample(n, "python", "S", 0, start_ticks=n) for n in starts)
        owner = replace(job.processes[0], sample=replace(job.processes[0].sample, threads=feeders))
        return replace(job, processes=(owner, *workers))

    one_loader = with_feeders(1020, 1152, 1153)
    assert found(loader_iterator_leak.check, one_loader, past) == []
    four = only(loader_iterator_leak.check, with_feeders(*(n + 2 for n in started)), past)
    assert "keeps 4 DataLoader iterators" in four.summary


def test_three_persistent_loaders_are_ordinary() -> None:
    past = history({(MAIN, "children"): line(6)})

    assert found(loader_iterator_leak.check, sets(3), past) == []
    assert found(loader_iterator_leak.check, sets(5), past) == []


def compilers(count: int, still_s: float = 60.0) -> list[Process]:
    return [
        process(
            700 + i,
            "compile-worker",
            threads=[thread(700 + i, still_s=still_s)],
            more={"private_bytes": 100 * MIB},
        )
        for i in range(count)
    ]


def test_idle_compilers_are_information_or_worse_by_what_they_hold() -> None:
    small = snapshot_of(main(), *compilers(8))
    large = snapshot_of(
        main(), *compilers(8), memory_total_bytes=4 * GIB, memory_available_bytes=GIB
    )

    finding = only(compile_worker_pool.check, small)
    assert finding.summary == "8 idle compile workers of main (100) hold 800M"
    assert (finding.severity, finding.process) == (Severity.INFO, pid(MAIN))
    assert only(compile_worker_pool.check, large).severity is Severity.WARNING


def test_few_or_busy_compilers_are_ordinary() -> None:
    assert found(compile_worker_pool.check, snapshot_of(main(), *compilers(2))) == []
    assert found(compile_worker_pool.check, snapshot_of(main(), *compilers(8, still_s=1.0))) == []


def test_the_end_of_a_series_is_now() -> None:
    assert line(1.0)[-1].at_s == NOW_S


def test_batches_in_flight_are_no_leak_of_their_worker() -> None:
    flying = {**leaking(200).processes, (pid(200), "shm_bytes"): line(90 * MIB, per_s=MIB)}
    settled = {**leaking(200).processes, (pid(200), "shm_bytes"): line(90 * MIB)}
    job = snapshot_of(main(), *forked(200))

    assert found(persistent_workers_leak.check, job, History(flying)) == []
    assert only(persistent_workers_leak.check, job, History(settled)).severity is Severity.INFO
