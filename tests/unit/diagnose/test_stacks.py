from __future__ import annotations

import pytest

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.stack_merge import merge, ranges
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    has_stacks,
    innermost,
    main_shape,
    main_thread,
    shape_of,
    transfer_of,
    user_frame,
)
from mpwatch.model.account import COPYING, PICKLING, RECEIVING, SHARING, UNPICKLING
from mpwatch.model.snapshot import Process
from tests.builders.snapshots import (
    FETCHING_WORKER,
    IDLE_FEEDER,
    IDLE_WORKER,
    WAITING_MAIN,
    frames,
    main,
    process,
    thread,
)

INHERITED = (
    "multiprocessing/popen_fork.py:_launch",
    "multiprocessing/process.py:start",
    "torch/utils/data/dataloader.py:__init__",
    "torch/utils/data/dataloader.py:_try_get_data",
    "train.py:<module>:57",
)


def worker(number: int, *calls: str) -> Process:
    return process(200 + number, threads=[thread(200 + number, *calls)], worker_id=number)


def test_frames_of_the_parent_below_a_fork_are_cut() -> None:
    assert shape_of(frames(*IDLE_WORKER, *INHERITED)) == "worker-idle"
    assert own_frames(frames(*IDLE_WORKER, *INHERITED)) == frames(*IDLE_WORKER)


def test_the_bootstrap_of_a_thread_does_not_end_the_stack() -> None:
    stack = frames("a.py:f", "threading.py:_bootstrap", "b.py:g")

    assert own_frames(stack) == stack


@pytest.mark.parametrize(
    ("stack", "shape"),
    [
        (IDLE_WORKER, "worker-idle"),
        (FETCHING_WORKER, "worker-fetching"),
        (
            (
                "torch/utils/data/_utils/collate.py:default_collate",
                "torch/utils/data/_utils/fetch.py:fetch",
                "torch/utils/data/_utils/worker.py:_worker_loop",
            ),
            "worker-collating",
        ),
        (WAITING_MAIN, "waits-for-batch"),
        (IDLE_FEEDER, "feeder-idle"),
        (
            ("connection.py:_send", "multiprocessing/queues.py:_feed"),
            "feeder-sending",
        ),
        (("torch/distributed/distributed_c10d.py:all_reduce", "train.py:step"), "collective"),
        (("threading.py:join", "multiprocessing/queues.py:_finalize_join"), "joins-queue"),
        (("multiprocessing/synchronize.py:__enter__", "train.py:f"), "lock-between-processes"),
        (("multiprocessing/synchronize.py:notify", "train.py:f"), "event-between-processes"),
        (
            ("popen_fork.py:poll", "multiprocessing/process.py:join"),
            "joins-process",
        ),
        (("pdb.py:cmdloop", "train.py:f"), "debugger"),
        (("multiprocessing/queues.py:get", "multiprocessing/pool.py:worker"), "pool-idle"),
        (("train.py:step",), ""),
        ((), ""),
    ],
)
def test_stacks_are_recognised(stack: tuple[str, ...], shape: str) -> None:
    assert shape_of(frames(*stack)) == shape


def test_names_qualified_by_a_class_are_recognised() -> None:
    stack = frames("multiprocessing/queues.py:Queue.get", "x/worker.py:_worker_loop")

    assert shape_of(stack) == "worker-idle"


def test_order_matters_and_gaps_do_not() -> None:
    stack = frames("a.py:inner", "b.py:middle", "c.py:outer")

    assert calls(stack, ":inner", "c.py:")
    assert not calls(stack, ":outer", ":inner")


def test_the_innermost_match_is_found() -> None:
    stack = frames("a.py:f:1", "a.py:f:2")

    assert innermost(stack, "a.py:f") == stack[0]
    assert innermost(stack, "z.py:f") is None


REBUILDS = (
    "torch/multiprocessing/reductions.py:rebuild_storage_fd",
    "multiprocessing/queues.py:get",
)


@pytest.mark.parametrize(
    ("stack", "work"),
    [
        (("multiprocessing/reduction.py:dumps", "multiprocessing/queues.py:_feed"), PICKLING),
        (("train.py:__getstate__", "multiprocessing/reduction.py:dumps"), PICKLING),
        (("joblib/externals/loky/backend/reduction.py:dumps",), PICKLING),
        (("multiprocessing/queues.py:get", "multiprocessing/pool.py:worker"), UNPICKLING),
        (("multiprocessing/connection.py:recv", "train.py:ask"), UNPICKLING),
        (("data.py:__setstate__", "multiprocessing/queues.py:get"), UNPICKLING),
        (("multiprocessing/connection.py:_send", "multiprocessing/pool.py:_handle_tasks"), COPYING),
        (("multiprocessing/connection.py:_recv", "multiprocessing/connection.py:recv"), COPYING),
        (REBUILDS, RECEIVING),
        (("multiprocessing/connection.py:_recv", *REBUILDS), RECEIVING),
        (
            (
                "torch/multiprocessing/reductions.py:reduce_storage",
                "multiprocessing/reduction.py:dumps",
            ),
            SHARING,
        ),
        (("multiprocessing/connection.py:poll", "multiprocessing/queues.py:get"), ""),
        (("multiprocessing/synchronize.py:__enter__", "multiprocessing/queues.py:get"), ""),
        (("train.py:get", "train.py:<module>"), ""),
        (("train.py:reduce_tensor",), ""),
        (("http/connection.py:recv", "train.py:ask"), ""),
        ((), ""),
    ],
)
def test_the_work_of_passing_objects_on_is_recognised(stack: tuple[str, ...], work: str) -> None:
    assert transfer_of(frames(*stack)) == work


def test_the_users_own_line_is_distinguished_from_libraries() -> None:
    stack = frames("selectors.py:select", "train.py:step:9")

    frame = user_frame(stack)

    assert frame is not None
    assert frame_words(frame) == "train.py:9 step"


def test_the_main_thread_is_the_one_with_the_id_of_the_process() -> None:
    two = main(threads=[thread(101), thread(100, *WAITING_MAIN)])

    assert main_shape(two) == "waits-for-batch"
    assert has_stacks(two)


def test_a_process_without_threads_has_no_shape() -> None:
    assert main_thread(main()) is None
    assert main_shape(main()) == ""
    assert not has_stacks(main())


def test_two_of_sixty_four_are_named() -> None:
    workers = [worker(i, *(FETCHING_WORKER if i in (3, 17) else IDLE_WORKER)) for i in range(64)]

    merged = merge(workers)

    assert merged.total == 64
    assert merged.sentence == (
        "62 of 64 wait for work in Queue.get; workers 3 and 17 in data.py:31 decode"
    )
    assert [group.names for group in merged.groups if group.is_outlier] == ["3 and 17"]
    assert merged.groups[0].names == "0-2, 4-16 and 18-63"


def test_the_users_line_names_a_group() -> None:
    stuck = main(threads=[thread(100, "PIL/Image.py:load", "data.py:decode:31")])

    assert merge([stuck]).sentence == "1 of 1 in data.py:31 decode -> load"


def test_two_halves_are_no_outliers() -> None:
    workers = [worker(i, *(FETCHING_WORKER if i % 2 else IDLE_WORKER)) for i in range(4)]

    assert not any(group.is_outlier for group in merge(workers).groups)


def test_ranks_in_different_collectives_are_two_groups() -> None:
    c10d = "torch/distributed/distributed_c10d.py"
    ranks = [
        process(
            300 + i,
            "rank",
            rank=i,
            threads=[thread(300 + i, f"{c10d}:{'broadcast' if i == 2 else 'all_reduce'}")],
        )
        for i in range(4)
    ]

    assert merge(ranks).sentence == "3 of 4 in all_reduce; rank 2 in broadcast"


def test_of_one_process_the_verb_is_singular() -> None:
    get = ("multiprocessing/queues.py:get", "torch/utils/data/_utils/worker.py:_worker_loop")
    calls = (get, ("data.py:load",))
    workers = [
        process(200 + i, worker_id=i, threads=[thread(200 + i, *each)])
        for i, each in enumerate(calls)
    ]

    assert merge(workers).sentence == (
        "worker 0 waits for work in Queue.get; worker 1 in data.py:1 load"
    )


def test_processes_without_numbers_go_by_their_labels() -> None:
    spawned = [
        process(i, "spawned", label=f"child {i}", threads=[thread(i, "a.py:f")]) for i in range(8)
    ]

    assert merge(spawned).groups[0].names == (
        "child 0, child 1, child 2, child 3, child 4, child 5 and 2 more"
    )


def test_processes_without_stacks_are_left_out() -> None:
    assert merge([main(), process(200, threads=[thread(200)])]).groups == ()
    assert merge([]).sentence == ""


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([], ""),
        ([3], "3"),
        ([3, 17], "3 and 17"),
        ([0, 1], "0 and 1"),
        ([0, 1, 2], "0-2"),
        ([0, 1, 2, 5, 7, 8, 9], "0-2, 5 and 7-9"),
    ],
)
def test_runs_of_numbers_are_joined(numbers: list[int], words: str) -> None:
    assert ranges(numbers) == words
