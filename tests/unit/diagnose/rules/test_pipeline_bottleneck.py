"""A stage that works while the others wait for it, and jobs that only look like one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.throughput.pipeline_bottleneck import check
from mpwatch.model.account import IMPORTS, NO_CORE, Activity
from mpwatch.model.findings import Severity
from mpwatch.model.history import History, Point, ProcessMetric
from mpwatch.model.ids import Role
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.accounts import (
    COMPUTES,
    IS_AHEAD,
    JOINS,
    SLEEPS,
    WAITS_IN_QUEUE,
    waits_for_lock,
    with_shares,
)
from tests.builders.snapshots import (
    NOW_S,
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
from tests.builders.waits import reads

GETS = ("multiprocessing/connection.py:_recv", "multiprocessing/queues.py:get", "train.py:main:44")


def learner(waits: float = 0.98, works: float = 0.95, since_s: float = 0.1) -> Snapshot:
    """Main that reads a pipe to which two actors write, which sleep in a simulator."""
    reads = WaitedOn("pipe-read", "read", ("pipe:[77]",), (4,))
    gets = thread(100, *GETS, waits=reads, waits_s=since_s, still_s=since_s, stack_age_s=0.0)
    sleeps = WaitedOn("timer", "clock_nanosleep")
    actors = [
        process(
            number,
            "spawned",
            threads=[thread(number, "env.py:step:24", waits=sleeps, still_s=0.4, stack_age_s=0.0)],
            fds=fds(9, links=[pipe(5, 77, True)]),
        )
        for number in (200, 201)
    ]
    job = snapshot_of(main(threads=[gets], fds=fds(9, links=[pipe(4, 77, False)])), *actors)
    rest = {WAITS_IN_QUEUE: 1 - works}
    return with_shares(
        job,
        p100={WAITS_IN_QUEUE: waits, COMPUTES: 1 - waits},
        p200={SLEEPS: works, **rest},
        p201={SLEEPS: works, **rest},
    )


def feeder(works: float = 0.97, waits: float = 0.95, role: Role = "spawned") -> Snapshot:
    """Main that computes, and two children that wait for an item of its queue."""
    computes = thread(100, "train.py:step:30", state="R", stack_age_s=0.0)
    reads = WaitedOn("pipe-read", "read", ("pipe:[77]",), (4,))
    encoders = [
        process(
            number,
            role,
            threads=[thread(number, *GETS, waits=reads, waits_s=0.1, still_s=0.1, stack_age_s=0.0)],
            fds=fds(9, links=[pipe(4, 77, False)]),
        )
        for number in (200, 201)
    ]
    own = main(threads=[computes], fds=fds(9, links=[pipe(5, 77, True)]))
    share = {WAITS_IN_QUEUE: waits, COMPUTES: 1 - waits}
    mine = {COMPUTES: works, WAITS_IN_QUEUE: 1 - works}
    return with_shares(snapshot_of(own, *encoders), p100=mine, p200=share, p201=share)


COMPUTES_IN_ENV = Activity("computing", "Python code", place="env.py:24 step")


def test_producers_that_do_not_keep_up_with_their_consumer_are_named() -> None:
    works = {COMPUTES_IN_ENV: 0.95, WAITS_IN_QUEUE: 0.05}
    busy = with_shares(
        learner(), p100={WAITS_IN_QUEUE: 0.98, COMPUTES: 0.02}, p200=works, p201=works
    )

    finding = only(check, busy)

    assert finding.severity is Severity.INFO
    assert finding.process == pid(200)
    assert finding.others == (pid(201),)
    assert finding.summary == (
        "main (100) waits 98% of the time for spawned 200 (200) and spawned 201 (201), which work "
        "all the time at env.py:24 step"
    )
    assert "main (100) would be at most 50 times as fast" in finding.evidence[-1]
    assert finding.advice.startswith("Start more processes of that kind than 2")
    assert "nothing is wrong" in finding.advice


def gateway(long_s: float = 0.1, has_client: bool = False) -> Snapshot:
    """Main that sleeps beside clients, two workers that compute, and a model that waits for them.

    The model has a feeder thread for each client, which waits for long. With a client in a thread
    of main, main has the ends of all pipes and waits for the model, which may wait for main.
    """
    moved = {"waits_s": None, "still_s": None, "cpu_percent": 12.0}
    still = moved if has_client and long_s < 1 else {"waits_s": long_s, "still_s": long_s}
    gets = thread(202, *GETS, waits=reads(77), stack_age_s=0.0, **still)
    idle = ("threading.py:wait", "multiprocessing/queues.py:_feed")
    feeder = thread(299, *idle, waits=WaitedOn("futex", "futex"), waits_s=40.0, stack_age_s=0.0)
    workers = [
        process(
            number,
            "spawned",
            label=f"preprocess {number}",
            threads=[thread(number, "env.py:step:24", state="R", stack_age_s=0.0)],
            fds=fds(9, links=[pipe(5, 77, True)]),
        )
        for number in (200, 201)
    ]
    sleeps = thread(100, "train.py:main:119", waits=WaitedOn("timer", "clock_nanosleep"))
    model = process(
        202,
        "spawned",
        label="model",
        threads=[gets, feeder],
        fds=fds(9, links=[pipe(4, 77, False), pipe(6, 88, True)]),
    )
    works = {COMPUTES_IN_ENV: 0.95, WAITS_IN_QUEUE: 0.05}
    own = main(threads=[sleeps])
    if has_client:
        reply = WaitedOn("pipe-read", "read", ("pipe:[88]",), (7,))
        asks = thread(101, *GETS, waits=reply, waits_s=5.0, still_s=5.0, stack_age_s=0.0)
        ends = [pipe(4, 77, False), pipe(5, 77, True), pipe(7, 88, False), pipe(8, 88, True)]
        own = main(threads=[sleeps, asks], fds=fds(9, links=ends))
    return with_shares(
        snapshot_of(own, *workers, model),
        p100={Activity("sleeping", place="train.py:119 main"): 1.0},
        p200=works,
        p201=works,
        p202={WAITS_IN_QUEUE: 0.82, COMPUTES: 0.18},
    )


@pytest.mark.parametrize("has_client", [False, True])
def test_workers_that_a_model_waits_for_are_named_beside_a_main_that_sleeps(
    has_client: bool,
) -> None:
    finding = only(check, gateway(has_client=has_client))

    assert finding.summary == (
        "model (202) waits 82% of the time for preprocess 200 (200) and preprocess 201 (201), "
        "which work all the time at env.py:24 step"
    )
    assert "100% of their work whose line is known is in step()" in finding.evidence
    assert "model (202) would be at most 5.6 times as fast" in finding.evidence[-1]
    assert found(check, gateway(30.0, has_client)) == []


def lately(job: Snapshot, buckets: int) -> Snapshot:
    """The job, watched for so many buckets of its account."""
    processes = {
        identity: replace(
            account,
            uncounted=tuple(
                each._replace(buckets=each.buckets[-buckets:]) for each in account.uncounted
            ),
        )
        for identity, account in job.account.processes.items()
    }
    return replace(job, account=replace(job.account, processes=processes))


@pytest.mark.parametrize(("since_s", "is_told"), [(9.7, False), (3.0, True)])
def test_processes_that_have_made_no_item_yet_are_no_stage(since_s: float, is_told: bool) -> None:
    """Main waits in `ready.recv()` for children that build their models."""
    job = lately(learner(since_s=since_s), buckets=2)

    assert bool(found(check, job)) == is_told


def test_imports_show_a_start_before_much_is_known() -> None:
    imports = Activity("computing", IMPORTS, place="main.py:7 <module>")
    starts = {NO_CORE: 0.7, imports: 0.3}
    computes = {NO_CORE: 0.7, COMPUTES_IN_ENV: 0.3}
    waits = {WAITS_IN_QUEUE: 0.98, COMPUTES: 0.02}

    for does, is_told in ((starts, False), (computes, True)):
        job = lately(with_shares(learner(), p100=waits, p200=does, p201=does), buckets=2)
        assert bool(found(check, job)) == is_told


def test_sleep_is_reported_as_such_on_a_loaded_machine_and_after_imports() -> None:
    imports = Activity("computing", IMPORTS, place="main.py:7 <module>")
    loaded = {SLEEPS: 0.42, NO_CORE: 0.43, imports: 0.15}

    waits = {WAITS_IN_QUEUE: 0.98, COMPUTES: 0.02}
    finding = only(check, with_shares(learner(), p100=waits, p200=loaded, p201=loaded))

    assert "which sleep 42% of the time" in finding.summary
    assert finding.summary.endswith(" and wait for a free core 43%")
    assert "without a pause" not in finding.cause
    assert finding.is_doubtful


def test_a_process_that_works_and_sleeps_is_not_said_to_work_without_a_pause() -> None:
    mixed = {SLEEPS: 0.5, COMPUTES_IN_ENV: 0.5}

    waits = {WAITS_IN_QUEUE: 0.98, COMPUTES: 0.02}
    finding = only(check, with_shares(learner(), p100=waits, p200=mixed, p201=mixed))

    assert "which work or sleep (50%) all the time" in finding.summary
    assert finding.is_doubtful
    assert finding.cause.startswith(
        "These processes work or sleep by their own code all the time, and the"
    )


def test_producers_that_sleep_are_not_said_to_work() -> None:
    finding = only(check, learner())

    assert finding.summary == (
        "main (100) waits 98% of the time for spawned 200 (200) and spawned 201 (201), which sleep "
        "95% of the time at env.py:24 step"
    )
    assert "without a pause" not in finding.cause
    assert "more processes" not in finding.advice
    assert finding.advice.startswith("Nothing is wrong if that pace is meant")
    assert finding.is_doubtful


NEXT = SourceLine(
    "/home/me/env.py",
    24,
    "step",
    Statement(24, "time.sleep(self.delay)"),
    within=(Statement(20, "while True:"), Statement(23, "except queue.Empty:")),
)
GROWS = Mark(
    "backoff", "/home/me/env.py", "step", "self.delay", Statement(25, "self.delay *= 1.25")
)


def sleeps_of(*lasting_s: float) -> History:
    """What the sleeps of both actors had left, one each second."""
    points = [Point(NOW_S - len(lasting_s) + n, each) for n, each in enumerate(lasting_s)]
    return history({(200, "sleep_left_s"): points, (201, "sleep_left_s"): points})


GROWING = sleeps_of(*(0.2 * n for n in range(1, 31)))


def test_a_look_for_items_with_sleeps_that_only_get_longer_is_a_warning() -> None:
    job = replace(learner(since_s=20.0), source=(NEXT,), marks=(GROWS,))

    finding = only(check, job, GROWING)

    assert finding.severity is Severity.WARNING
    assert "single sleeps get longer: up to 2.0 s at first, up to 6.0 s lately" in finding.evidence
    assert "`self.delay *= 1.25` at env.py:25 step makes each sleep longer" in finding.cause
    assert "set self.delay back to its first value" in finding.advice


def test_a_look_for_items_with_equal_sleeps_is_information() -> None:
    job = replace(learner(), source=(NEXT,), marks=(GROWS,))

    finding = only(check, job, sleeps_of(*(1.0, 0.3, 0.6) * 10))

    assert finding.severity is Severity.INFO
    assert "single sleeps last up to 1.0 s, as far as seen" in finding.evidence


def idle_job(main_computes: float, *marks: Mark) -> Snapshot:
    """Two workers that look for tasks and sleep, and a main process that looks for results."""
    sleeps = WaitedOn("timer", "clock_nanosleep")
    own = thread(100, "train.py:run:49", waits=sleeps, still_s=0.1, stack_age_s=0.0)
    workers = [
        process(
            number,
            "spawned",
            threads=[thread(number, "env.py:step:24", waits=sleeps, still_s=0.4, stack_age_s=0.0)],
        )
        for number in (200, 201)
    ]
    polls = Activity("sleeping", "", place="train.py:49 run")
    job = with_shares(
        snapshot_of(main(threads=[own]), *workers),
        p100={polls: 1 - main_computes, COMPUTES: main_computes},
        p200={SLEEPS: 0.9, COMPUTES: 0.1},
        p201={SLEEPS: 0.9, COMPUTES: 0.1},
    )
    return replace(job, marks=marks, source=(replace(NEXT, within=NEXT.within[:1]),))


def test_pauses_that_only_get_longer_are_named_where_nothing_works() -> None:
    finding = only(check, idle_job(0.02, GROWS), GROWING)

    assert finding.severity is Severity.INFO
    assert finding.is_doubtful
    assert finding.summary == (
        "spawned 200 (200) and spawned 201 (201) sleep 90% of the time at env.py:24 step, in "
        "pauses that are never made short again, and nothing else in the job works"
    )
    assert finding.cause.startswith("`self.delay *= 1.25` at env.py:25 step makes each pause")
    assert finding.advice.startswith("Set self.delay back to where it began")


@pytest.mark.parametrize(
    ("job", "sleeps"),
    [
        (idle_job(0.02), GROWING),
        (idle_job(0.5, GROWS), GROWING),
        (idle_job(0.02, GROWS), sleeps_of(*(0.1, 0.3, 0.6) * 10)),
    ],
    ids=["a constant pause", "another works", "short pauses"],
)
def test_a_job_that_rests_by_pauses_is_nothing_to_tell(job: Snapshot, sleeps: History) -> None:
    assert found(check, job, sleeps) == []


@pytest.mark.parametrize(
    ("items", "words"), [(1.0, "1 item waits in queues"), (7.0, "7 items wait in queues")]
)
def test_the_items_that_wait_while_others_sleep_are_counted(items: float, words: str) -> None:
    job = replace(learner(), source=(NEXT,), marks=(GROWS,))

    finding = only(check, job, history({(200, "queue_backlog"): line(items)}))

    assert f"{words} of the job meanwhile" in finding.evidence
    assert finding.cause.startswith("Each checks for an item, sleeps when there is none")


def test_a_parent_that_cannot_feed_its_children_is_named() -> None:
    finding = only(check, feeder())

    assert finding.process == pid(100)
    assert finding.summary.startswith(
        "spawned 200 (200) and spawned 201 (201) wait 95% of the time for main (100), which works "
        "all the time at train.py:30 step"
    )
    assert "sleep" not in finding.cause
    assert finding.advice.startswith(
        "Move work of main (100) at train.py:30 step into the processes"
    )


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(learner(waits=0.5), id="the consumer keeps up"),
        pytest.param(learner(works=0.6), id="the producers wait, too"),
        pytest.param(learner(since_s=30.0), id="nothing comes any more: rules for hangs"),
        pytest.param(feeder(works=0.8), id="the parent waits for its children, too"),
        pytest.param(feeder(waits=0.75), id="the children work much of the time"),
        pytest.param(feeder(role="rank"), id="ranks"),
        pytest.param(feeder(role="loader-worker"), id="workers of a DataLoader"),
        pytest.param(
            with_shares(feeder(), p100={JOINS: 1.0}, p200={COMPUTES: 1.0}, p201={COMPUTES: 1.0}),
            id="a parent that joins children that work",
        ),
    ],
)
def test_other_jobs_have_no_slow_stage(job: Snapshot) -> None:
    assert found(check, job) == []


IDLE = Activity("idle", "something to do")
NO_STACK = waits_for_lock(9, place="")


def test_a_parent_that_works_while_its_pool_is_idle_is_named() -> None:
    share = {IDLE: 0.6, NO_STACK: 0.35, COMPUTES: 0.05}
    job = with_shares(
        feeder(role="pool-worker"), p100={COMPUTES: 0.97, JOINS: 0.03}, p200=share, p201=share
    )

    finding = only(check, job)

    assert finding.process == pid(100)
    assert "wait 95% of the time for main (100)" in finding.summary
    item = Activity("waiting", "an item of a queue", "queue")
    share = {item: 0.4, NO_STACK: 0.5, COMPUTES: 0.1}
    takes = with_shares(job, p100={COMPUTES: 1.0}, p200=share, p201=share)
    assert "wait 90% of the time" in only(check, takes).summary
    busy = with_shares(job, p100={COMPUTES: 1.0}, p200={IDLE: 0.5, COMPUTES: 0.5}, p201=share)
    assert found(check, busy) == []


@pytest.mark.parametrize(("slept", "is_told"), [(0.02, True), (0.4, False)])
def test_a_pool_whose_owner_rests_between_its_tasks_is_idle_by_design(
    slept: float, is_told: bool
) -> None:
    job = with_shares(
        feeder(role="pool-worker"),
        p100={COMPUTES: 1 - slept, SLEEPS: slept},
        p200={IDLE: 1.0},
        p201={IDLE: 1.0},
    )

    assert bool(found(check, job)) is is_told


def sleeper(
    waits: Activity = IS_AHEAD, fd: int = 5, asleep_s: float = 0.1, left_s: float = 0.4
) -> Snapshot:
    """Main that sleeps again and again, and a child that waits for it to take something."""
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=left_s)
    writes = WaitedOn("pipe-write", "write", ("pipe:[77]",), fds=(fd,))
    own = main(
        threads=[thread(100, "train.py:poll:9", waits=sleeps, still_s=asleep_s, stack_age_s=0.0)],
        fds=fds(9, links=[pipe(4, 77, False)]),
    )
    actor = process(
        200,
        "spawned",
        threads=[thread(200, "env.py:step:24", waits=writes, still_s=0.1, stack_age_s=0.0)],
        fds=fds(9, links=[pipe(fd, 77, True)]),
    )
    return with_shares(snapshot_of(own, actor), p100={SLEEPS: 1.0}, p200={waits: 1.0})


def test_a_consumer_that_sleeps_while_its_queue_is_full_is_named() -> None:
    finding = only(check, sleeper())

    assert finding.process == pid(100)
    assert finding.summary == (
        "main (100) sleeps 100% of the time at env.py:24 step, while spawned 200 (200) waits for "
        "room in a full queue"
    )
    assert finding.severity is Severity.INFO
    assert found(check, sleeper(JOINS)) == []
    assert found(check, sleeper(asleep_s=35.0)) == []  # it may read nothing at all
    assert found(check, sleeper(left_s=3591.0)) == []


def test_output_that_is_not_read_is_no_queue_of_items() -> None:
    assert found(check, sleeper(fd=4)) != []
    assert found(check, sleeper(fd=1)) == []


def outrun(
    mine: dict[Activity, float], share: dict[Activity, float], *, read_s: float = 1.0
) -> tuple[Snapshot, History]:
    """Main that takes items from a bounded queue, and two actors that fill it."""
    computes = thread(100, "learn.py:step:27", state="R", stack_age_s=0.0)
    writes = WaitedOn("pipe-write", "write", ("pipe:[77]",), fds=(5,))
    actors = [
        process(
            number,
            "spawned",
            threads=[thread(number, "act.py:run:12", waits=writes, waits_s=for_s, still_s=for_s)],
            fds=fds(9, links=[pipe(5, 77, True)]),
        )
        for number, for_s in ((200, 22.0), (201, 0.1))
    ]
    job = snapshot_of(main(threads=[computes], fds=fds(9, links=[pipe(4, 77, False)])), *actors)
    times: dict[tuple[int, ProcessMetric], list[Point]] = {
        (100, "main_read_bytes"): [Point(NOW_S - 60, 0), Point(NOW_S - read_s, 1 << 20)],
        (100, "written_bytes"): [Point(NOW_S - 60, 0)],
    }
    return with_shares(job, p100=mine, p200=share, p201=share), history(times)


def test_a_consumer_that_computes_while_its_queue_is_full_is_named() -> None:
    finding = only(check, *outrun({COMPUTES: 0.97, JOINS: 0.03}, {IS_AHEAD: 0.95, COMPUTES: 0.05}))

    assert finding.severity is Severity.INFO
    assert finding.process == pid(100)
    assert finding.summary == (
        "spawned 200 (200) and spawned 201 (201) wait 95% of the time for room in a full queue, "
        "for main (100), which works all the time at train.py:30 step"
    )
    assert "takes items more slowly than" in finding.cause
    assert "Faster or more producers change nothing" in finding.advice


def test_children_that_are_ahead_of_a_parent_need_not_be_starving() -> None:
    """They wait for room: of children that wait for items less than that is usual."""
    short = {NO_CORE: 0.53, COMPUTES: 0.35, WAITS_IN_QUEUE: 0.12}

    finding = only(check, *outrun(short, {IS_AHEAD: 0.8, SLEEPS: 0.2}))

    assert finding.process == pid(100)
    assert "for room in a full queue, for main (100)" in finding.summary


def test_a_bottleneck_that_waits_for_a_core_is_named_with_the_share_of_that() -> None:
    short = {NO_CORE: 0.81, COMPUTES: 0.17, JOINS: 0.02}

    finding = only(check, *outrun(short, {IS_AHEAD: 0.6, NO_CORE: 0.35, COMPUTES: 0.05}))

    assert finding.summary.endswith(
        "for main (100), which works or waits for a free core (81%) all the time at "
        "train.py:30 step"
    )
    assert finding.cause.startswith(
        "This process works or waits for a free core all the time, and takes items more slowly"
    )
    assert finding.cause.endswith("The machine has more to run than cores.")
    assert "without a pause" not in finding.cause
    assert finding.advice.startswith("Do less for each item at train.py:30 step")
    assert "it also helps to end what else runs on it" in finding.advice


def test_processes_before_and_behind_the_slow_stage_are_distinguished() -> None:
    job, times = outrun({COMPUTES: 0.97, JOINS: 0.03}, {IS_AHEAD: 0.9, COMPUTES: 0.1})
    behind = with_shares(
        job,
        p100={COMPUTES: 0.97, JOINS: 0.03},
        p200={IS_AHEAD: 0.9, COMPUTES: 0.1},
        p201={WAITS_IN_QUEUE: 0.9, COMPUTES: 0.1},
    )

    assert only(check, behind, times).summary.startswith(
        "spawned 201 (201) waits 90% of the time, and spawned 200 (200) waits 90% of the time for "
        "room in a full queue, for main (100)"
    )


@pytest.mark.parametrize(
    ("mine", "share", "read_s"),
    [
        pytest.param({COMPUTES: 1.0}, {IS_AHEAD: 1.0}, 50.0, id="main takes no item any more"),
        pytest.param({COMPUTES: 0.97}, {IS_AHEAD: 0.6, COMPUTES: 0.4}, 1.0, id="actors work, too"),
        pytest.param({WAITS_IN_QUEUE: 0.5, COMPUTES: 0.5}, {IS_AHEAD: 1.0}, 1.0, id="main waits"),
        pytest.param({COMPUTES: 1.0}, {NO_CORE: 0.9, IS_AHEAD: 0.1}, 1.0, id="all want a core"),
    ],
)
def test_producers_that_hardly_wait_or_wait_for_ever_are_not_ahead(
    mine: dict[Activity, float], share: dict[Activity, float], read_s: float
) -> None:
    assert found(check, *outrun(mine, share, read_s=read_s)) == []


def test_consumers_that_want_a_core_as_well_are_found_to_wait() -> None:
    starved = {WAITS_IN_QUEUE: 0.6, NO_CORE: 0.35, COMPUTES: 0.05}
    job = with_shares(feeder(), p100={NO_CORE: 0.8, COMPUTES: 0.2}, p200=starved, p201=starved)

    assert only(check, job).summary.startswith(
        "spawned 200 (200) and spawned 201 (201) wait 60% of the time for main (100), which works "
        "or waits for a free core (80%)"
    )


def test_a_process_that_computes_is_named_without_those_that_sleep_beside_it() -> None:
    """Only the replay process writes to the pipe that the learner reads."""
    job = learner()
    reads = WaitedOn("pipe-read", "read", ("pipe:[78]",), (4,))
    computes = thread(202, "replay.py:sample:37", state="R", stack_age_s=0.0)
    gets = thread(100, *GETS, waits=reads, waits_s=0.1, still_s=0.1, stack_age_s=0.0)
    replay = process(202, "spawned", threads=[computes], fds=fds(9, links=[pipe(5, 78, True)]))
    own = main(threads=[gets], fds=fds(9, links=[pipe(4, 78, False)]))
    actors = [each for each in job.processes if each.pid in (200, 201)]
    shares = {
        "p100": {WAITS_IN_QUEUE: 0.98, COMPUTES: 0.02},
        "p200": {SLEEPS: 1.0},
        "p201": {SLEEPS: 1.0},
        "p202": {COMPUTES: 0.97, WAITS_IN_QUEUE: 0.03},
    }

    finding = only(check, with_shares(snapshot_of(own, *actors, replay), **shares))

    assert finding.process == pid(202)
    assert finding.others == ()
    assert "sleep" not in finding.summary
