from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.idle_time import wait_share, waiting_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import workers_of_loaders
from mpwatch.diagnose.analysis.source.costs import with_copies
from mpwatch.diagnose.analysis.throughput.account import advanced
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.results import shared_file_offset
from mpwatch.diagnose.rules.throughput import loader_starvation, straggler_worker
from mpwatch.model.account import DECOMPRESSION, NO_CORE, SEEKING, Account, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, Point, ProcessMetric
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import FdLink, MapSample, ThreadSample, WaitedOn
from mpwatch.model.snapshot import Loader, Process, Snapshot, WorkerLoad
from mpwatch.model.source_code import EndlessLoop, Mark, SourceLine, Statement
from tests.builders.accounts import COMPUTES, answers_from, with_shares
from tests.builders.snapshots import (
    FETCHING_WORKER,
    IDLE_WORKER,
    MAIN,
    NO_HISTORY,
    NOW_S,
    WALL_S,
    cpu,
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


def waits(**shares: float) -> History:
    """The share of the last 30 readings in which each process was waiting."""
    return history(
        {
            (MAIN if name == "main" else int(name[1:]), "loader_wait"): [
                Point(NOW_S - 30 + i, float(i % 10 < 10 * share)) for i in range(30)
            ]
            for name, share in shares.items()
        }
    )


def loader(**fields: Any) -> Loader:
    known: dict[str, Any] = {"key": 1, "workers": 2, "batches": 100, "wait_share": 0.89}
    known |= fields
    return Loader(pid(MAIN), **({"process_wait_share": known["wait_share"]} | known))


BUSY = cpu(main=5, w200=95, w201=90)


def two(*stack: str, still_s: float | None = 60.0) -> tuple[Process, ...]:
    return tuple(
        process(n, worker_id=n - 200, threads=[thread(n, *stack, still_s=still_s)])
        for n in (200, 201)
    )


READS = Activity("sleeping", place="shards.py:41 samples")
FOR_BATCHES = Activity("waiting", "batches", "batch")
NO_WORK = Activity("idle", "work")
ITERATES = (
    "shards.py:samples:41",
    "shards.py:__iter__:61",
    "torch/utils/data/_utils/fetch.py:fetch:33",
)
DEALS = Mark("dealt", "/s.py", "mine", "", Statement(54, "urls = self.urls[i.id :: i.num_workers]"))


def reading(number: int, **more: Any) -> Process:
    return process(
        200 + number,
        worker_id=number,
        threads=[thread(200 + number, *ITERATES)],
        born_wall_s=WALL_S - 60,
        fds=fds(3, links=()),
        **more,
    )


EXITED = (pipe(7, 601, False), pipe(10, 602, True))
"""What a parent has of a child that has ended: its sentinel and the pipe it watches main by."""


def alone(
    *workers: Process, waits: float = 0.9, exited: bool = True, **does: dict[Activity, float]
) -> Snapshot:
    owner = main(fds=fds(12, links=EXITED if exited else ()))
    seen = snapshot_of(owner, *workers, marks=(DEALS,))
    return with_shares(seen, p100={FOR_BATCHES: waits, COMPUTES: 1 - waits}, **does)


def test_the_only_worker_that_still_has_something_to_read_is_named() -> None:
    finding = only(loader_starvation.check, alone(reading(2), p202={READS: 1.0}))

    assert finding.summary == (
        "main (100) waits for data 90% of the time: of its workers only "
        "loader-worker 202 (202) still has something to read, at shards.py:41 samples; 1 other "
        "worker has exited"
    )
    assert any(
        "`urls = self.urls[i.id :: i.num_workers]` at s.py:54 mine divides" in each
        for each in finding.evidence
    )
    assert "one worker reads alone" in finding.cause


def test_persistent_workers_that_have_nothing_left_are_idle() -> None:
    seen = alone(reading(0), reading(1), exited=False, p200={READS: 1.0}, p201={NO_WORK: 1.0})

    finding = only(loader_starvation.check, seen)

    assert finding.summary.endswith(
        "of its workers only loader-worker 200 (200) still has something to read, at shards.py:41 "
        "samples; loader-worker 201 (201) is idle"
    )


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(
            alone(reading(0), exited=False, p200={READS: 1.0}), id="the only one of its loader"
        ),
        pytest.param(alone(reading(2), waits=0.2, p202={READS: 1.0}), id="main does not wait"),
        pytest.param(
            alone(reading(1), reading(2), p201={READS: 1.0}, p202={READS: 0.5, NO_WORK: 0.5}),
            id="two have work",
        ),
        pytest.param(alone(reading(2), p202={NO_WORK: 0.6, READS: 0.4}), id="it waits for work"),
        pytest.param(
            alone(
                reading(2),
                reading(1, ended=exited(201, at_s=NOW_S - 3, exit_code=0)),
                p202={READS: 1.0},
            ),
            id="the other one has just exited",
        ),
        pytest.param(
            alone(
                replace(reading(0), threads=(thread(200, *FETCHING_WORKER),)),
                reading(1),
                p200={READS: 1.0},
                p201={NO_WORK: 1.0},
            ),
            id="batches in turn",
        ),
    ],
)
def test_workers_with_an_even_part_are_not_called_alone(seen: Snapshot) -> None:
    assert not any(
        "still has something to read" in each.summary
        for each in found(loader_starvation.check, seen)
    )


def test_the_measured_share_of_waiting_is_reported() -> None:
    job = snapshot_of(main(), *two(*FETCHING_WORKER), loaders=(loader(outstanding=4, parked=0),))

    finding = only(loader_starvation.check, job, BUSY)

    assert finding.severity is Severity.INFO
    assert finding.summary.endswith(
        "waits for data 89% of the time: its 2 workers work mostly at data.py:31 decode"
    )
    assert "Do less for each item at data.py:31 decode" in finding.advice
    assert "4 batches outstanding, 0 ready" in finding.evidence
    assert any("2 of 2 in data.py:31 decode" in each for each in finding.evidence)


def test_workers_that_were_last_seen_at_different_lines_have_none_in_common() -> None:
    apart = [
        process(n, worker_id=n - 200, threads=[thread(n, f"data.py:step_{n}", state="R")])
        for n in (200, 201, 202)
    ]

    finding = only(
        loader_starvation.check, snapshot_of(main(), *apart, loaders=(loader(),)), cpu(w200=50)
    )

    assert finding.summary.endswith("of the time")
    assert "Move work out of the workers" in finding.advice


@pytest.mark.parametrize(
    ("called", "is_told"), [("data.py:collate:33", True), ("data.py:__getitem__:12", False)]
)
def test_workers_that_are_in_the_collate_fn_of_the_program_are_reported(
    called: str, is_told: bool
) -> None:
    fetch = "/x/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py:fetch:54"
    seen = snapshot_of(main(), *two("audio.py:mel:44", called, fetch), loaders=(loader(),))

    finding = only(loader_starvation.check, seen, BUSY)

    in_collate = "they are in the collate_fn, data.py:33 collate, when they were seen"
    assert (in_collate in finding.evidence) == is_told
    assert ("The collate_fn is at data.py:33 collate" in finding.advice) == is_told


def test_without_the_hook_busy_workers_and_an_idle_main_are_evidence() -> None:
    past = waits(main=0.9, w200=0.1, w201=0)
    finding = only(loader_starvation.check, snapshot_of(main(), *two(still_s=0.5)), past)

    assert "all 2 workers are at work" in finding.summary
    assert finding.evidence == ("main was waiting for a batch in 90% of the samples",)


def skips_batches(elsewhere: float = 0.0, at: int = 54) -> Snapshot:
    """Main that waits at the loop over its loader, which begins with a skip in lines 55 to 57."""
    own = main(threads=[thread(100, "torch/data.py:__next__", f"train.py:fit:{at}")])
    job = snapshot_of(own, *two(*FETCHING_WORKER), loaders=(loader(outstanding=4, parked=0),))
    seen = {
        Activity("waiting", "batches", "batch"): 0.7 - elsewhere,
        Activity("computing", "unpickling", place="train.py:54 fit"): 0.2,
        Activity("computing", "imports", place="train.py:3 <module>"): 0.1,
        Activity("computing", "native code", place="model.py:9 forward"): elsewhere,
    }
    skip = Mark("passed-over", "/home/me/train.py", "fit", "54-57", Statement(55, "if left > 0:"))
    shown = with_shares(job, p100={each: share for each, share in seen.items() if share})
    return replace(shown, marks=(skip,))


def test_batches_that_are_fetched_and_passed_over_are_reported_first() -> None:
    finding = only(loader_starvation.check, skips_batches(), BUSY)

    assert finding.summary == (
        "main (100) waits for data 89% of the time that it likely does not use: `if left > 0:` at "
        "train.py:55 fit drops batches"
    )
    assert finding.evidence[0].startswith("50 readings have found main in the loop at train.py:54")
    assert "Skip indices in place of batches" in finding.advice


@pytest.mark.parametrize("job", [skips_batches(elsewhere=0.02), skips_batches(at=61)])
def test_batches_that_are_used_now_and_then_are_not_dropped(job: Snapshot) -> None:
    assert "drops batches" not in only(loader_starvation.check, job, BUSY).summary


def short_of_cores(*calls: str) -> Account:
    """Two workers that were ready to run at each of 20 readings and got half a core each."""
    found = Account()
    for second in range(20):
        at_s = NOW_S - 20 + second
        job = snapshot_of(main(), *(ready(n, 50 * second, calls) for n in (200, 201)), at_s=at_s)
        index = Index(job, NO_HISTORY)
        found = advanced(found, index, wait_graph(index))
    return found


def ready(number: int, ticks: int, calls: tuple[str, ...]) -> Process:
    own = thread(number, *calls, state="R", stack_age_s=0.5, cpu_percent=50.0)
    sample = (ThreadSample(number, "python", "R", ticks),)
    found = process(number, worker_id=number - 200, threads=[own])
    return replace(found, sample=replace(found.sample, threads=sample))


def test_workers_that_decompress_a_file_for_each_item_are_told_to_map_it() -> None:
    stack = ("zipfile.py:_read1", "numpy/lib/npyio.py:__getitem__", *FETCHING_WORKER)
    job = snapshot_of(main(), *two(*stack), loaders=(loader(wait_share=0.95),), usable_cpus=2)

    finding = only(
        loader_starvation.check,
        replace(job, account=short_of_cores(*stack)),
        cpu(w200=50, w201=50),
    )

    assert "They decompress a file for each item" in finding.cause
    assert "mapped at data.py:31 decode" in finding.advice
    assert "mmap_mode" in finding.advice


def test_a_worker_that_was_last_seen_idle_decompresses_all_the_same() -> None:
    stack = ("zipfile.py:_read1", "numpy/lib/npyio.py:__getitem__", *FETCHING_WORKER)
    fetches = process(200, worker_id=0, threads=[thread(200, *stack, state="R")])
    idle = process(201, worker_id=1, threads=[thread(201, *IDLE_WORKER)])
    job = snapshot_of(main(), fetches, idle, loaders=(loader(wait_share=0.95),), usable_cpus=2)
    unpacks = Activity("computing", DECOMPRESSION, place="data.py:31 decode")
    work = {unpacks: 0.7, Activity("idle", "work"): 0.3}

    def told(cpus: float) -> Finding:
        seen = with_shares(job, p200={unpacks: 0.76, NO_CORE: 0.24}, p201=work)
        return only(loader_starvation.check, seen, cpu(w200=cpus, w201=cpus))

    assert "They decompress a file for each item" in told(75).cause
    assert "mapped at data.py:31 decode" in told(75).advice
    assert "as many workers as cpus" in told(75).cause
    assert "as many workers as cpus" not in told(40).cause


def test_workers_that_read_the_table_of_an_archive_for_each_item_do_not_decompress() -> None:
    stack = ("zipfile.py:_RealGetContents", "zipfile.py:__init__", *FETCHING_WORKER)
    job = snapshot_of(main(), *two(*stack), loaders=(loader(wait_share=0.95),), usable_cpus=2)
    opens = Statement(31, "with zipfile.ZipFile(self.path) as z:")
    job = replace(
        job,
        account=short_of_cores(*stack),
        marks=(
            Mark(
                "slow", "/home/me/data.py", "decode", "archive: zipfile.ZipFile(self.path)", opens
            ),
        ),
        source=(SourceLine("/home/me/data.py", 31, "decode", opens),),
    )

    finding = only(loader_starvation.check, job, cpu(w200=50, w201=50))
    told = with_copies(Index(job), finding)

    assert "decompress" not in finding.cause
    assert "mmap_mode" not in finding.advice
    assert "data.py:31 decode: zipfile.ZipFile(self.path) opens the archive anew" in told.summary
    assert told.advice.startswith("Open the archive once in each process and keep it")


def test_the_workers_line_is_named_and_cores_that_are_short_are_no_reason_for_more_workers() -> (
    None
):
    spent = short_of_cores(*FETCHING_WORKER)
    job = snapshot_of(
        main(), *two(*FETCHING_WORKER), loaders=(loader(wait_share=0.95),), usable_cpus=2
    )

    finding = only(loader_starvation.check, replace(job, account=spent), cpu(w200=50, w201=50))

    assert finding.summary.endswith("its 2 workers work mostly at data.py:31 decode")
    assert "Do less for each item at data.py:31 decode" in finding.advice
    assert any("waiting for a free core" in each for each in finding.evidence)
    assert any(
        "wait for a free core" in each and "of 2 usable" in each for each in finding.evidence
    )
    assert "at most 20.0 times as fast" in " ".join(finding.evidence)
    assert "Use more workers" not in finding.advice
    assert "data.py:31 decode" in finding.advice


def test_workers_that_wait_for_one_process_are_not_advised_to_be_more() -> None:
    job = snapshot_of(
        main(),
        *two(*FETCHING_WORKER),
        process(300, "spawned", label="manager"),
        loaders=(loader(wait_share=0.95),),
        usable_cpus=8,
    )
    asks = {answers_from(300, "captions.py:27 __getitem__"): 0.6, COMPUTES: 0.2}

    finding = only(loader_starvation.check, with_shares(job, p200=asks, p201=asks), BUSY)

    assert finding.summary.endswith("its 2 workers wait mostly for manager (300)")
    assert "more workers would wait as well" in finding.cause
    assert "only for what is needed" in finding.advice


@pytest.mark.parametrize(("age_s", "told"), [(600, 1), (10, 0)])
def test_a_loader_of_few_slow_batches_is_starved_once_its_workers_have_worked(
    age_s: float, told: int
) -> None:
    workers = [
        process(n, worker_id=n - 200, born_wall_s=WALL_S - age_s, threads=[thread(n, state="R")])
        for n in (200, 201)
    ]
    job = snapshot_of(main(), *workers, loaders=(loader(batches=3, waiting_since_s=8.0),))
    job = replace(job, account=short_of_cores(*FETCHING_WORKER))

    assert len(found(loader_starvation.check, job, cpu(w200=7, w201=7))) == told


def epochs(*ages_s: float, living: int = 1) -> list[Process]:
    """Sets of two workers of which all but the last have exited, each so many seconds old."""
    found = []
    for number, age in enumerate(ages_s):
        last = number + living >= len(ages_s)
        for worker in range(2):
            pid_number = 200 + 10 * number + worker
            each = process(
                pid_number,
                worker_id=worker,
                born_wall_s=WALL_S - age,
                ended=None if last else exited(pid_number),
            )
            found.append(replace(each, process=ProcessId(pid_number, round(1e6 - 100 * age))))
    return found


def first_batches(*starts: float, wait_s: float) -> History:
    """Main waits for so long after each start of workers, and at no other time."""
    points = [
        Point(NOW_S - 60 + i, float(any(0 <= i - 60 + age < wait_s for age in starts)))
        for i in range(61)
    ]
    return history({(MAIN, "loader_wait"): points})


def test_workers_started_for_each_epoch_are_reported_with_the_cost_of_their_start() -> None:
    job = snapshot_of(main(), *epochs(50, 40, 30, 20, 10))

    finding = only(loader_starvation.check, job, first_batches(50, 40, 30, 20, 10, wait_s=6))

    assert "starts its 2 workers again and again" in finding.summary
    assert "60% of the time" in finding.summary
    assert "workers were started 5 times in the last 50 s" in finding.evidence
    assert "persistent_workers=True" in finding.advice


def test_a_first_batch_that_no_reading_found_awaited_is_not_one_after_no_time() -> None:
    """Main may be busy handing a large dataset to the worker, which waits in no queue."""
    iterates = ("torch/utils/data/dataloader.py:__next__", "train.py:run_epoch:36")
    job = snapshot_of(main(threads=[thread(MAIN, *iterates)]), *epochs(50, 40, 30, 20, 1))

    past = first_batches(50, 30, 20, 1, wait_s=7).of(pid(MAIN), "loader_wait")
    awake = [p._replace(value=0.0) if p.at_s == NOW_S - 27 else p for p in past]

    finding = only(loader_starvation.check, job, history({(MAIN, "loader_wait"): awake}))

    assert finding.summary == (
        "main (100) starts its 2 workers again and again at train.py:36 run_epoch, and waits for "
        "their first batch at least 44% of the time"
    )
    assert (
        "main waited after each start until it had a batch: 7.0 s, not seen, 7.0 s, 7.0 s, "
        "1.0 s so far" in finding.evidence
    )


@pytest.mark.parametrize(
    ("ages", "wait_s"),
    [((50,), 40), ((50, 40, 30, 20, 10), 1), ((90, 70), 30)],
    ids=["started once", "quick starts", "started before the watch"],
)
def test_workers_that_cost_little_to_start_are_quiet(
    ages: tuple[float, ...], wait_s: float
) -> None:
    past = first_batches(*ages, wait_s=wait_s)

    findings = found(loader_starvation.check, snapshot_of(main(), *epochs(*ages)), past)

    assert [each for each in findings if each.subject == "start-up"] == []


def spawning(*ages_s: float) -> Snapshot:
    """Sets of spawned workers; those of the last have no name yet, because they still import."""
    workers = [replace(each, start_method="spawn") for each in epochs(*ages_s)]
    starting = [replace(each, role="spawned", label=f"spawned {each.pid}") for each in workers[-2:]]
    job = snapshot_of(main(), *workers[:-2], *starting)
    found = {f"p{each.pid}": {IMPORTING: 1.0} for each in starting}
    return with_shares(job, **found)


IMPORTING = Activity("computing", "imports", place="main.py:5 <module>")


def test_spawned_workers_replaced_in_each_epoch_are_seen_while_they_import() -> None:
    """Two sets: the first began before the watch, the second has imported from its start."""
    finding = only(loader_starvation.check, spawning(70, 25), first_batches(25, wait_s=26))

    assert "starts its 2 workers again and again" in finding.summary
    assert "56% of the time" in finding.summary
    assert "workers were started by spawn 2 times in the last 70 s" in finding.evidence
    assert "workers import modules at main.py:5 <module>" in finding.evidence
    assert "imports torch and the modules of the program again" in finding.cause
    assert "each item" not in finding.advice


def test_children_of_unknown_purpose_are_no_workers_while_main_waits_for_no_batch() -> None:
    assert found(loader_starvation.check, spawning(70, 25), first_batches(70, wait_s=30)) == []


def test_a_set_that_has_crashed_or_that_lives_on_is_not_replaced_for_a_new_epoch() -> None:
    numbers = first_batches(25, wait_s=26)
    crashed = [
        replace(each, ended=exited(each.process.pid, exit_code=1)) if each.is_gone else each
        for each in epochs(70, 25)
    ]
    for workers in (crashed, epochs(70, 25, living=2), [*epochs(90, 70, 25, living=2)]):
        findings = found(loader_starvation.check, snapshot_of(main(), *workers), numbers)
        assert [each for each in findings if each.subject == "start-up"] == []


def test_the_line_of_a_module_is_no_line_of_each_item() -> None:
    """Workers that still import have made no batch that could be made faster."""
    job = snapshot_of(main(), *two(*FETCHING_WORKER, still_s=0.1))
    job = with_shares(job, **{f"p{n}": {IMPORTING: 1.0} for n in (200, 201)})

    finding = only(loader_starvation.check, job, waits(main=0.9, w200=0.1, w201=0))

    assert finding.summary.endswith("its 2 workers still import modules at main.py:5 <module>")
    assert "Python of its own" not in finding.cause
    assert "each item" not in finding.advice
    assert "more workers" not in (finding.cause + finding.advice).lower()


def asking(number: int) -> Process:
    wait = WaitedOn("pipe-read", "read", (f"pipe:[{900 + number}]",))
    own = thread(number, *FETCHING_WORKER, waits=wait, still_s=0.1)
    links = fds(9, links=[pipe(7, 900 + number, False)])
    return process(number, worker_id=number - 200, threads=[own], fds=links)


def test_more_workers_are_advised_only_where_nothing_else_limits_them() -> None:
    past = BUSY
    some = snapshot_of(main(), *two(*FETCHING_WORKER), loaders=(loader(),), usable_cpus=8)
    all_cpus = snapshot_of(main(), *two(*FETCHING_WORKER), loaders=(loader(),), usable_cpus=2)

    assert "Use more workers" in only(loader_starvation.check, some, past).advice
    full = only(loader_starvation.check, all_cpus, past)
    assert "Use more workers" not in full.advice
    assert "the workers use 1.9 of 2 usable cpus" in full.evidence
    assert "GPU" not in full.cause + full.advice


IDLE = Activity("idle", "work")


def test_more_workers_are_not_advised_where_some_are_idle() -> None:
    """One worker has all expensive samples, and batches are returned in order."""
    job = snapshot_of(main(), *two(*FETCHING_WORKER), loaders=(loader(),), usable_cpus=8)
    uneven = with_shares(job, p200={IDLE: 0.95, COMPUTES: 0.05}, p201={COMPUTES: 0.9, IDLE: 0.1})

    finding = only(loader_starvation.check, uneven, BUSY)

    assert finding.summary == (
        "main (100) waits for data 89% of the time: loader-worker 201 (201) works mostly "
        "at train.py:30 step, while 1 other worker is idle"
    )
    assert "More workers would be idle as well" in finding.cause
    assert "workers together" not in finding.cause
    assert "in_order=False" in finding.advice
    assert "Use more workers" not in finding.advice


def test_workers_that_all_wait_for_one_process_are_not_too_few() -> None:
    answers = fds(9, links=[pipe(7, 1100, True), pipe(8, 1101, True)])
    manager = process(300, "spawned", label="manager", fds=answers)
    job = snapshot_of(
        main(fds=fds(3, links=[])), asking(200), asking(201), manager, loaders=(loader(),)
    )

    finding = only(loader_starvation.check, job)

    assert "2 of 2 workers wait for manager (300)" in finding.evidence
    assert "Use more workers" not in finding.advice
    assert "manager (300)" in finding.advice


def test_stalled_workers_are_not_busy() -> None:
    past = waits(main=0.9, w200=0.1, w201=0)

    assert found(loader_starvation.check, snapshot_of(main(), *two(still_s=9.0)), past) == []


def in_turns(*, of: int, waits: int) -> list[Point]:
    """Main that waits in most readings and trains in one of so many."""
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

    finding = only(loader_starvation.check, snapshot_of(main(), *two(still_s=0.5)), past)

    assert finding.summary.endswith("all 2 workers are at work")
    assert "2 workers at 1% cpu on average" in finding.evidence


def test_a_wait_for_a_disk_without_an_end_is_left_to_the_rules_for_stalls() -> None:
    past = waits_for_a_disk(in_turns(of=1, waits=1))

    assert waiting_s(main(), past) > 3
    assert found(loader_starvation.check, snapshot_of(main(), *two(still_s=0.5)), past) == []


@pytest.mark.parametrize("loop", ["while True:", "for path in self.paths:", "if self.files:"])
def test_a_file_that_is_opened_anew_in_each_round_is_reported(loop: str) -> None:
    opens = Statement(23, "with open(path) as f:")
    reads = SourceLine(
        "/home/me/data.py",
        25,
        "_examples",
        Statement(25, "record = json.loads(line)"),
        within=(opens, Statement(24, "for line in f:")),
    )
    calls = SourceLine(
        "/home/me/data.py",
        36,
        "__iter__",
        Statement(36, "rows = self._window(path, position)"),
        within=(Statement(35, loop),),
    )
    workers = two("data.py:_examples:25", "data.py:__iter__:36")
    job = snapshot_of(main(), *workers, loaders=(loader(),), source=(reads, calls))

    finding = only(loader_starvation.check, job, BUSY)

    told = [each for each in finding.evidence if "with open(path) as f:` at data.py:23" in each]
    assert bool(told) is not loop.startswith("if")
    assert ("read one file again and again" in finding.cause) is loop.startswith("while")
    assert finding.advice.startswith("Keep the file") is loop.startswith("while")


def test_workers_of_unknown_load_count_as_busy_where_waiting_is_measured() -> None:
    job = snapshot_of(main(), *two(), loaders=(loader(),))

    assert only(loader_starvation.check, job).evidence == (
        "main waited 89% of the last minute in next(loader)",
        "without this wait main would be at most 9.1 times as fast",
    )


def worked_until(seconds_ago: float) -> History:
    """Main and two workers that were busy until a time, and then used no cpu."""
    busy = [Point(NOW_S - 20 + i, 95.0 if i < 20 - seconds_ago else 0.0) for i in range(21)]
    waiting = [Point(at_s, float(load == 0)) for at_s, load in busy]
    workers: list[tuple[int, ProcessMetric]] = [(n, "cpu_percent") for n in (200, 201)]
    return history({**dict.fromkeys(workers, busy), (MAIN, "loader_wait"): waiting})


def test_a_job_that_begins_to_hang_has_no_finding_about_too_few_workers() -> None:
    waits_for_ever = loader(waiting_since_s=6.0)
    job = snapshot_of(main(), *two(), loaders=(waits_for_ever,))

    assert found(loader_starvation.check, job, worked_until(6)) == []
    assert only(loader_starvation.check, job, BUSY).rule == "loader-starvation"


def test_without_the_hook_few_readings_at_the_beginning_of_a_hang_prove_nothing() -> None:
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
    assert found(loader_starvation.check, snapshot_of(main(), *two(), loaders=loaders), past) == []


def fetching(number: int, usual_s: float, **fields: Any) -> Process:
    load = WorkerLoad(number - 200, fetched=30, fetch_p50_s=usual_s, **fields)
    return process(number, threads=[thread(number, *FETCHING_WORKER)], more={"loader": load})


def test_a_worker_slower_than_the_others_is_named_with_what_waits_behind_it() -> None:
    job = snapshot_of(
        main(),
        fetching(200, 0.1),
        fetching(201, 0.1),
        fetching(202, 0.42),
        loaders=(loader(parked=3, wait_share=0.5),),
    )

    finding = only(straggler_worker.check, job)

    assert finding.process == pid(202)
    assert finding.summary.endswith("3 finished batches wait behind it")
    assert "main waited for its batches 50% of the last minute" in finding.evidence
    assert "it is at data.py:31 decode" in finding.evidence


def test_waits_for_another_loader_do_not_make_a_slow_worker_matter() -> None:
    workers = (fetching(200, 0.1, loader=1), fetching(201, 0.42, loader=1))
    other = loader(key=2, wait_share=0.5)
    job = snapshot_of(
        main(), *workers, loaders=(loader(wait_share=0.02, process_wait_share=0.52), other)
    )

    assert found(straggler_worker.check, job) == []

    waits = replace(job, loaders=(loader(wait_share=0.3, process_wait_share=0.52), other))
    evidence = only(straggler_worker.check, waits).evidence
    assert "main waited for its batches 30% of the last minute" in evidence


def test_the_waits_for_all_loaders_of_a_process_are_added_up() -> None:
    loaders = [loader(key=key, wait_share=0.3, process_wait_share=0.6) for key in (1, 2)]
    job = snapshot_of(main(), *two(), loaders=tuple(loaders), usable_cpus=4)

    assert only(loader_starvation.check, job, BUSY).costs == 0.6


def test_workers_of_two_loaders_are_not_compared() -> None:
    """Batches of validation are larger: each loader has a pace of its own."""
    of_training = (fetching(200, 0.04, loader=1), fetching(201, 0.04, loader=1))
    of_validation = (fetching(202, 0.2, loader=2), fetching(203, 0.8, loader=2))
    loaders = (loader(key=1), loader(key=2, wait_share=0.5))

    slow_in_one = snapshot_of(main(), *of_training, *of_validation, loaders=loaders)

    assert only(straggler_worker.check, slow_in_one).summary.startswith(
        "loader-worker 203 (203) takes 800 ms a batch, the others 200 ms"
    )
    even = snapshot_of(main(), *of_training, of_validation[0], loaders=loaders)
    assert found(straggler_worker.check, even) == []


def test_without_the_hook_workers_that_were_started_later_are_those_of_another_loader() -> None:
    job = snapshot_of(main(), process(200), process(201, born_wall_s=WALL_S - 580))
    past = waits(main=0.9, w200=0, w201=0.95)

    assert found(straggler_worker.check, job, past) == []
    together = snapshot_of(main(), process(200), process(201), loaders=(loader(),))
    unknown = replace(together, loaders=(loader(key=1), loader(key=2)))
    assert [each[1] for each in workers_of_loaders(Index(together, past))] == [loader()]
    assert [each[1] for each in workers_of_loaders(Index(unknown, past))] == [None]


def test_a_worker_is_slow_in_its_first_task_already() -> None:
    load = WorkerLoad(2, fetched=1, fetch_p50_s=0.1, task_since_s=9.0)
    slow = process(202, more={"loader": load})
    job = snapshot_of(main(), fetching(200, 0.1), fetching(201, 0.1), slow, loaders=(loader(),))

    assert "takes 9.0 s a batch" in only(straggler_worker.check, job).summary


def test_a_worker_that_got_slow_in_the_middle_of_its_data_is_judged_by_its_last_fetches() -> None:
    slow_of_late = fetching(201, 0.1, recent_s=(0.1,) * 20 + (2.0,) * 10)
    others = [fetching(n, 0.1, recent_s=(0.1,) * 30) for n in (200, 202)]
    was_slow = fetching(201, 0.1, recent_s=(2.0,) * 20 + (0.1,) * 10)
    waiting = (loader(wait_share=0.8),)

    finding = only(
        straggler_worker.check, snapshot_of(main(), slow_of_late, *others, loaders=waiting)
    )

    assert finding.process == pid(201)
    assert "takes 2.0 s a batch, the others 100 ms" in finding.summary
    past = snapshot_of(main(), was_slow, *others, loaders=waiting)
    assert found(straggler_worker.check, past) == []


def test_without_the_hook_the_only_one_that_works_is_named() -> None:
    job = snapshot_of(main(), process(200), process(201))

    finding = only(straggler_worker.check, job, waits(main=0.9, w200=1, w201=0.1))

    assert finding.process == pid(201)
    assert "the only busy worker" in finding.summary
    assert "look at" not in finding.advice


def test_a_worker_that_waits_for_a_lock_all_the_time_is_not_called_busy() -> None:
    takes = WaitedOn("semaphore", "futex", segment=SegmentId(1, 77))
    stuck = thread(201, "data.py:decode:31", waits=takes, still_s=30.0)
    job = snapshot_of(main(), process(200), process(201, threads=[stuck]))

    assert found(straggler_worker.check, job, waits(main=0.9, w200=1, w201=0.1)) == []


def test_the_line_of_the_slow_worker_is_in_the_title() -> None:
    job = with_shares(
        snapshot_of(main(), process(200), process(201)),
        p201={Activity("computing", place="data.py:31 decode"): 1.0},
    )

    finding = only(straggler_worker.check, job, waits(main=0.9, w200=1, w201=0.1))

    assert finding.summary.endswith("the only busy worker, mostly at data.py:31 decode")
    assert "look at data.py:31 decode, and split" in finding.advice


@pytest.mark.parametrize(("loop", "is_endless"), [("while True:", True), ("while files:", False)])
def test_a_worker_in_a_loop_without_an_end_is_no_slow_one(loop: str, is_endless: bool) -> None:
    worker = process(201, threads=[thread(201, "data.py:__iter__:30")])
    shuffle, around = Statement(30, "shuffle(files)"), (Statement(29, loop),)
    source = (SourceLine("/home/me/data.py", 30, "__iter__", shuffle, within=around),)
    job = snapshot_of(main(), process(200), worker, source=source)

    finding = only(straggler_worker.check, job, waits(main=1, w200=1, w201=0))

    assert ("in a loop without an end at data.py:30 __iter__" in finding.summary) is is_endless
    assert ("`while True:` in line 29" in finding.cause) is is_endless
    assert ("in_order=False" in finding.advice) is not is_endless


def test_a_sample_that_is_drawn_until_it_passes_is_named_by_the_condition_that_ends_its_loop() -> (
    None
):
    worker = process(201, threads=[thread(201, "data.py:__getitem__:30")])
    loop = EndlessLoop(Statement(29, "while True:"), ends=(Statement(33, "if keep.any(): break"),))
    source = SourceLine(
        "/home/me/data.py",
        30,
        "__getitem__",
        Statement(30, "keep = draw()"),
        within=(Statement(29, "while True:"),),
        endless=loop,
    )
    job = snapshot_of(main(), process(200), worker, source=(source,))

    finding = only(straggler_worker.check, job, waits(main=1, w200=1, w201=0))

    assert "It ends only by `if keep.any(): break` (line 33)" in finding.cause
    assert "Count the rounds" in finding.advice
    assert "shard" not in finding.cause + finding.advice


@pytest.mark.parametrize(
    ("job", "past"),
    [
        (
            snapshot_of(
                main(), fetching(200, 0.1), fetching(201, 0.12), loaders=(loader(parked=3),)
            ),
            BUSY,
        ),
        (snapshot_of(main(), fetching(200, 0.1), fetching(201, 0.9)), BUSY),
        (
            snapshot_of(
                main(), fetching(200, 0.001), fetching(201, 0.01), loaders=(loader(parked=3),)
            ),
            BUSY,
        ),
        (
            snapshot_of(
                main(),
                fetching(200, 0.03),
                process(201, more={"loader": WorkerLoad(1, fetched=4, fetch_p50_s=0.09)}),
                loaders=(loader(parked=3),),
            ),
            history(),
        ),
        (snapshot_of(main(), fetching(200, 0.1), process(201)), waits(main=1, w200=1, w201=0)),
        (snapshot_of(main(), process(200)), waits(main=1, w200=0)),
        (snapshot_of(main(), *two()), waits(main=0.3, w200=1, w201=0)),
        (snapshot_of(main(), *two()), waits(main=1, w200=0.4, w201=0)),
        (snapshot_of(main(), *two()), history()),
        (snapshot_of(main(), *two()), waits(main=1, w200=1)),
    ],
)
def test_workers_of_one_speed_or_unknown_speed_are_quiet(job: Snapshot, past: History) -> None:
    assert found(straggler_worker.check, job, past) == []


def opens(fd: int, path: str, position: int | None = 4096, is_writable: bool = False) -> Any:
    return fds(9, links=[FdLink(fd, "file", path, None, is_writable, position)])


def sharing(path: str = "/data/train.bin", number: int = 5, **link: Any) -> Snapshot:
    workers = [process(n, start_method="fork", fds=opens(number, path, **link)) for n in (200, 201)]
    return snapshot_of(main(fds=opens(5, path, **link)), *workers)


def test_a_file_that_main_only_maps_is_quiet() -> None:
    job = sharing()
    mapped = MapSample(90, None, files=("/data/train.bin",))
    owner = replace(job.processes[0], sample=replace(job.processes[0].sample, maps=mapped))

    assert (
        found(shared_file_offset.check, replace(job, processes=(owner, *job.processes[1:]))) == []
    )


def seeking(part: float, waits: float = 0.6, no_core: float = 0.0) -> Snapshot:
    """Two workers that compute half of the time, and wait for a core in the other half.

    Args:
        part: Of what they compute, the part in seeks.
        waits: The share of the time in which main waits for their batches.
        no_core: That in which it waits for a core.
    """
    seeks = Activity("computing", SEEKING, place="data.py:45 __getitem__")
    seen = {seeks: part / 2, COMPUTES: (1 - part) / 2, NO_CORE: 0.5}
    workers = [process(n, label=f"worker {n}") for n in (200, 201)]
    own = {
        Activity("waiting", "batches", "batch"): waits,
        NO_CORE: no_core,
        COMPUTES: 1 - waits - no_core,
    }
    return with_shares(snapshot_of(main(), *workers), p100=own, p200=seen, p201=seen)


def test_workers_that_seek_in_a_compressed_file_are_named_with_the_line() -> None:
    finding = only(loader_starvation.check, seeking(0.9))

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "worker 200 (200) and worker 201 (201) of main (100) spend 90% of the time decompressing a "
        "file up to the place of each sample at data.py:45 __getitem__"
    )
    assert "keep an index of them" in finding.advice
    assert found(loader_starvation.check, seeking(0.2)) == []


def test_seeks_are_reported_only_where_main_waits_for_the_batches_or_for_a_core() -> None:
    short = only(loader_starvation.check, seeking(0.9, waits=0.02, no_core=0.6))
    little = only(loader_starvation.check, seeking(0.9, waits=0.2))

    assert [each.severity for each in (short, little)] == [Severity.INFO, Severity.INFO]
    assert found(loader_starvation.check, seeking(0.9, waits=0.02)) == []


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
        snapshot_of(main(fds=opens(5, "/d/x.bin")), process(200, fds=opens(5, "/d/x.bin"))),
        snapshot_of(main(), process(200, start_method="fork"), process(201, start_method="fork")),
    ],
)
def test_logs_own_files_and_unread_ones_are_quiet(job: Snapshot) -> None:
    assert found(shared_file_offset.check, job) == []
