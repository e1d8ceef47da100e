"""The share of its time that a rank waits in collectives, from made-up readings."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.habits import with_habits
from mpwatch.model.collectives import RankHabit
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Thread
from mpwatch.nodes.across.ranks import PACE_PERCENT, WAITING_PERCENT
from mpwatch.nodes.agent.rank_waits import (
    READINGS_LEAST,
    READINGS_USUAL,
    RankWaits,
    Turn,
    WaitSample,
    note_reading,
    share_of,
    wait_sample,
)
from mpwatch.nodes.wire.summary import WAITS_ENOUGH
from tests.builders.progress import source
from tests.builders.snapshots import NOW_S, pid, process, snapshot_of, thread, ticked

RANK = 70
LOCK = WaitedOn("futex", "futex", ("futex 0x7f",), address=0x7F, futex_command=9)
SLEEP = WaitedOn("timer", "clock_nanosleep", ())
ALL_REDUCE = ("torch/distributed/distributed_c10d.py:all_reduce", "train.py:step:48")
TAKES = ("threading.py:acquire", "train.py:load:12")
LOADS = ("train.py:load:12", "train.py:step:40")


def rank(*calls: str, waits: WaitedOn | None = None, ticks: int = 0, **more: Any) -> Process:
    main = thread(RANK, *calls, waits=waits, state="S" if waits else "R", **more)
    gloo = thread(RANK + 1, name="gloo_tcp_loop")
    return ticked(process(RANK, "rank", threads=(main, gloo)), {RANK: ticks})


def read(known: RankWaits, ranks: Iterator[Process] | list[Process], **more: Any) -> RankWaits:
    """The waits after snapshots, one each second, with two samples of the main thread before."""
    habits: Mapping[ProcessId, RankHabit] = {}
    for second, each in enumerate(ranks):
        at_s = NOW_S + second
        main = next((t for t in each.threads if known.thread == (each.pid, t.tid)), None)
        ticks = {t.tid: t.cpu_ticks or 0 for t in each.sample.threads or ()}
        if main is not None:
            for _ in range(2):
                known.add(WaitSample(main.waits_on is LOCK, ticks[main.tid]))
        taken_s = at_s - 0.5
        stacks = tuple(replace(t, stack_at_s=taken_s if t.stack else None) for t in each.threads)
        snapshot = snapshot_of(replace(each, threads=stacks), at_s=at_s)
        habits = with_habits(habits, snapshot)
        known.see(snapshot.processes[0], replace(snapshot, habits=habits), **more)
    return known


def steps(count: int, *readings: Process) -> list[Process]:
    """So many steps, each with some cpu time and these readings."""
    return [ticked(each, {RANK: step}) for step in range(count) for each in readings]


def test_a_share_needs_no_stack() -> None:
    known = read(RankWaits(), steps(60, rank(waits=LOCK), rank()))

    assert (known.percent, known.waits) == (50, WAITS_ENOUGH)


def test_a_rank_that_computes_or_sleeps_does_not_wait() -> None:
    known = read(RankWaits(), steps(60, rank(), rank(waits=SLEEP)))

    assert (known.percent, known.waits) == (0, 0)


def test_a_share_of_few_readings_is_not_sent() -> None:
    assert read(RankWaits(), steps(READINGS_LEAST // 2 - 1, rank())).percent is None


def test_a_wait_that_a_stack_shows_to_be_another_one_does_not_count() -> None:
    shown = rank(*TAKES, waits=LOCK, stack_age_s=0.0)
    known = read(RankWaits(), steps(60, rank(waits=LOCK), shown, rank()))

    assert (known.percent or 0) <= 10  # two samples, before the first stack
    assert known.line == "train.py:12 load"


def test_a_wait_that_a_stack_shows_to_be_a_collective_counts_again() -> None:
    other, shown = (rank(*each, waits=LOCK, stack_age_s=0.0) for each in (TAKES, ALL_REDUCE))
    known = read(RankWaits(), [other, *steps(60, shown, rank(waits=LOCK))])

    assert (known.percent or 0) > 90


def test_a_process_without_a_process_group_waits_for_its_own_threads() -> None:
    main = thread(RANK, waits=LOCK)
    alone = process(RANK, "rank", threads=(main,))

    assert read(RankWaits(), steps(60, alone)).percent == 0


def test_of_a_worker_of_ray_train_the_thread_that_trains_counts() -> None:
    trains = (
        "ray/train/v2/_internal/execution/worker_group/thread_runner.py:_run_target",
        "train.py:step:48",
    )
    waits = thread(RANK, waits=LOCK)
    gloo = thread(RANK + 1, name="gloo_tcp_loop")
    works = thread(RANK + 2, *trains, state="R")
    unknown = process(RANK, "ray-worker", threads=(waits, gloo))
    known = process(RANK, "ray-worker", threads=(waits, gloo, works))

    assert read(RankWaits(), steps(60, unknown)).percent is None
    assert read(RankWaits(), steps(60, known)).percent == 0


def test_one_long_wait_is_no_share_of_the_steps() -> None:
    # The others wait once for a rank that prepares the data, and in each step for a moment.
    first = [rank(waits=LOCK)] * 200
    known = read(RankWaits(), [*first, *steps(30, rank(waits=LOCK), rank(), rank(), rank())])

    assert (known.percent or 0) <= 40


def test_a_wait_is_counted_once_however_long_it_is() -> None:
    known = read(RankWaits(), [rank(waits=LOCK)] * 100)

    assert known.waits == 1


def test_the_line_is_that_of_most_stacks_outside_of_collectives() -> None:
    stacks = [replace(rank(*LOADS), threads=(_at(second, *LOADS),)) for second in range(3)] + [
        replace(rank(*ALL_REDUCE), threads=(_at(second, *ALL_REDUCE),)) for second in range(3, 9)
    ]

    assert read(RankWaits(), stacks).line == "train.py:12 load"


def test_the_stack_of_a_collective_that_was_left_has_not_the_line_of_the_sleep() -> None:
    sleeps = rank(*ALL_REDUCE, waits=SLEEP, stack_age_s=0.5)

    assert read(RankWaits(), [sleeps] * 3).line == ""
    assert read(RankWaits(), [sleeps, rank(*LOADS, waits=SLEEP, stack_age_s=0.0)]).line == (
        "train.py:12 load"
    )


def test_a_line_that_came_first_gives_way_to_one_that_is_clearly_more_frequent() -> None:
    loads, computes = (
        rank(each, "train.py:step:40", stack_age_s=0.0)
        for each in ("train.py:load:12", "train.py:compute:30")
    )
    rarer = [computes] * 6 + [loads] * 8
    known = read(RankWaits(), rarer)

    assert known.line == "train.py:30 compute"
    assert read(known, [loads]).line == "train.py:12 load"


def _at(second: int, *calls: str) -> Thread:
    return replace(thread(RANK, *calls, state="R"), stack_at_s=NOW_S + second, stack_age_s=0.0)


def test_the_time_of_a_step_is_that_of_a_batch() -> None:
    batches = source(0.5, 80, begin_s=NOW_S - 20, process=pid(RANK))
    known = read(RankWaits(), steps(60, rank()), progress=[batches])

    assert known.step_of == "batch"
    assert known.step_ms == pytest.approx(2000, rel=0.15)


def test_the_time_of_a_long_step_is_known_too() -> None:
    batches = source(0.025, 320, begin_s=NOW_S - 260, process=pid(RANK))
    known = read(RankWaits(), steps(60, rank()), progress=[batches])

    assert known.step_ms == pytest.approx(40_000, rel=0.25)


def test_a_share_that_changes_little_is_not_sent_again() -> None:
    sent: list[int | None] = []
    known = RankWaits()
    chance = random.Random(1)
    for second in range(400):
        read(known, [ticked(rank(waits=LOCK if chance.random() < 0.5 else None), {RANK: second})])
        sent.append(known.percent)

    assert sum(one != other for one, other in pairwise(sent)) < 20


def test_a_thread_that_waits_for_a_lock_is_distinguished_from_one_that_sleeps() -> None:
    lock, tids = threading.Lock(), []
    lock.acquire()

    def note(wait: Callable[[], object]) -> None:
        tids.append(threading.get_native_id())
        wait()

    waiters = [
        threading.Thread(target=note, args=(wait,), daemon=True)
        for wait in (lock.acquire, lambda: time.sleep(60))
    ]
    for each in waiters:
        each.start()
    while len(tids) < 2 or any(wait_sample(os.getpid(), tid) is None for tid in tids):
        time.sleep(0.01)
    end_s = time.monotonic() + 30
    found: list[WaitSample | None] = []
    while [sample.waits for sample in found if sample] != [True, False]:
        assert time.monotonic() < end_s
        found = [wait_sample(os.getpid(), tid) for tid in tids]
    lock.release()


def test_nothing_is_seen_of_a_thread_that_has_ended() -> None:
    assert wait_sample(os.getpid(), 1) is None


Own = Callable[[random.Random, int], float]
"""Seconds that a rank needs for a step."""


def samples(ranks: int, own_s: Own, network_s: float, hours: float = 1.0) -> Iterator[set[int]]:
    """The slow ranks at each sample of a training in steps, empty where none is named."""
    chance = random.Random(ranks)
    turns = [deque[Turn](maxlen=READINGS_USUAL) for _ in range(ranks)]
    at_s = sample_s = 0.0
    count = 0
    while at_s < hours * 3600:
        own = [own_s(chance, number) for number in range(ranks)]
        end_s, waiting = at_s + max(own) + network_s, [False] * ranks
        while sample_s < end_s:
            for number, each in enumerate(turns):
                is_inside = sample_s - at_s >= own[number]
                note_reading(each, is_inside=is_inside, is_same=waiting[number])
                waiting[number] = is_inside
            sample_s += chance.uniform(0.25, 0.75)
            count += 1
            if count >= READINGS_LEAST and count % 40 == 0:
                yield _slow(turns)
        at_s = end_s


def _slow(turns: list[deque[Turn]]) -> set[int]:
    shares = [share_of(each) for each in turns]
    slow = {n for n, each in enumerate(shares) if 100 * each.share <= PACE_PERCENT}
    fast = [
        n
        for n, each in enumerate(shares)
        if n not in slow and 100 * each.share >= WAITING_PERCENT and each.has_enough
    ]
    return slow if len(slow) <= len(fast) and len(slow) + len(fast) == len(shares) else set()


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("step_s", [0.3, 2.0, 10.0, 40.0])
def test_equal_ranks_whose_steps_differ_are_never_called_slow(ranks: int, step_s: float) -> None:
    for network in (0.05, 0.5):
        found = samples(
            ranks, lambda chance, _: step_s * chance.lognormvariate(0, 0.7), step_s * network
        )
        assert all(slow == set() for slow in found)


def test_equal_steps_as_long_as_the_mean_interval_show_as_they_are() -> None:
    assert all(slow == set() for slow in samples(4, lambda *_: 0.25, 0.25))


@pytest.mark.parametrize("step_s", [0.3, 2.0, 10.0])
def test_a_slow_rank_is_named_from_some_minutes_on(step_s: float) -> None:
    def own_s(chance: random.Random, number: int) -> float:
        return step_s * chance.lognormvariate(0, 0.1) * (1.0 if number == 1 else 0.4)

    found = list(samples(8, own_s, 0.03 * step_s, hours=0.5))

    first = found.index({1})
    assert first < len(found) / 3
    assert found.count({1}) > 0.9 * (len(found) - first)


@pytest.mark.parametrize("step_s", [30.0, 90.0])
def test_a_slow_rank_of_long_equal_steps_is_named_after_few_of_them(step_s: float) -> None:
    def own_s(chance: random.Random, number: int) -> float:
        return step_s * chance.lognormvariate(0, 0.05) * (1.0 if number == 1 else 0.4)

    found = list(samples(8, own_s, 0.03 * step_s))

    first = found.index({1})
    assert first * 40 * 0.5 < 12 * step_s
    assert found.count({1}) > 0.9 * (len(found) - first)


def test_time_before_the_first_step_is_no_work_of_a_step() -> None:
    prepares = [rank()] * 600
    known = read(RankWaits(), [*prepares, *steps(9, *[rank()] * 10, *[rank(waits=LOCK)] * 20)])

    assert (known.percent or 0) >= WAITING_PERCENT
    assert known.has_enough
