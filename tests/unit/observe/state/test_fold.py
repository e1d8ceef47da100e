from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.hook import wire
from mpwatch.model.events import HookGauges, HookHello, HookNote, HookStatus, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import (
    Ended,
    Frame,
    MixedFrame,
    StackSample,
    StacksTaken,
    ThreadSample,
)
from mpwatch.model.source_code import (
    LINES_LIMIT,
    Coroutines,
    DroppedResult,
    Holder,
    SourceLine,
    SourceRead,
    Statement,
    UnsafeWake,
)
from mpwatch.observe.state.fold import ENDED_KEPT, Fold, NothingObserved
from tests.builders.samples import (
    MAIN,
    WORKER_0,
    WORKER_1,
    event,
    hook_slice,
    job,
    rebuilt,
    sample,
    segment_use,
    shared,
    tree,
)


def test_without_a_reading_there_is_no_snapshot() -> None:
    with pytest.raises(NothingObserved):
        Fold().snapshot()


def test_cpu_is_unknown_after_one_reading_and_a_rate_after_two() -> None:
    fold = Fold()
    fold.apply(job(10.0, cpu_ticks=100))
    assert fold.snapshot().processes[0].cpu_percent is None

    fold.apply(job(12.0, cpu_ticks=200))
    assert fold.snapshot().processes[0].cpu_percent == 50.0


def test_a_rate_is_taken_over_long_enough_a_time_that_one_tick_is_no_work() -> None:
    fold = Fold()
    ticks = {10.0: 0, 10.1: 0, 10.3: 0, 10.5: 1, 10.6: 1, 11.6: 21}
    rates = []
    for at_s, used in ticks.items():
        fold.apply(job(at_s, cpu_ticks=used))
        rates.append(fold.snapshot().processes[0].cpu_percent)

    assert rates == [None, 0, 0, pytest.approx(2.5), pytest.approx(2.0), pytest.approx(20.0)]


def test_a_clock_that_goes_back_leaves_rates_unknown_until_it_has_caught_up() -> None:
    fold = Fold()
    for at_s in (10.0, 11.0, *(5.0 + n / 10 for n in range(30))):
        fold.apply(job(at_s, cpu_ticks=int(at_s * 100)))

    assert fold.snapshot().processes[0].cpu_percent == pytest.approx(100.0)


def test_the_root_is_first_and_children_are_below_their_parents() -> None:
    child = ProcessId(103, 1003)
    fold = Fold()
    fold.apply(
        tree(
            1.0,
            sample(WORKER_1, 1.0, parent=100),
            sample(child, 1.0, parent=101),
            sample(MAIN, 1.0, role="main"),
            sample(WORKER_0, 1.0, parent=100),
        )
    )

    shown = [(p.pid, p.depth) for p in fold.snapshot().processes]

    assert shown == [(100, 0), (101, 1), (103, 2), (102, 1)]


def test_an_ended_process_stays_with_how_it_ended() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(Ended(WORKER_0, 1.5, signal=9))
    fold.apply(tree(2.0, sample(MAIN, 2.0, role="main"), sample(WORKER_1, 2.0, parent=100)))

    snapshot = fold.snapshot()
    worker = snapshot.get(WORKER_0)

    assert worker is not None
    assert worker.ended is not None
    assert worker.ended.words == "signal 9 (SIGKILL)"
    assert worker.doing == "ended: signal 9 (SIGKILL)"
    assert worker.cpu_percent is None
    assert [p.pid for p in snapshot.living()] == [100, 102]


def test_a_process_missing_from_a_sample_has_an_unknown_exit_until_it_is_known() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(tree(2.0, sample(MAIN, 2.0, role="main"), sample(WORKER_1, 2.0, parent=100)))
    gone = fold.snapshot().get(WORKER_0)
    assert gone is not None
    assert gone.ended is not None
    assert gone.ended.words.startswith("unknown")

    fold.apply(Ended(WORKER_0, 2.1, exit_code=1))

    known = fold.snapshot().get(WORKER_0)
    assert known is not None
    assert known.ended is not None
    assert known.ended.words == "exit code 1"


def test_a_zombie_is_shown_with_its_last_values() -> None:
    fold = Fold()
    threads = (ThreadSample(MAIN.pid, "python", "S", 0),)
    living = sample(MAIN, 1.0, segments=(segment_use(7),), fds=900, threads=threads)
    fold.apply(tree(1.0, living))
    for at_s in (2.0, 3.0):
        fold.apply(tree(at_s, sample(MAIN, at_s, state="Z", segments=(), fds=0)))

    main = fold.snapshot().processes[0]

    assert main.sample.state == "Z"
    assert main.sample.fds is not None
    assert main.sample.fds.used == 900
    assert main.shm_bytes == 4096
    assert [thread.tid for thread in main.threads] == [MAIN.pid]


def test_an_orphan_keeps_its_first_parent() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(tree(2.0, sample(WORKER_0, 2.0, parent=1)))

    orphan = fold.snapshot().get(WORKER_0)

    assert orphan is not None
    assert orphan.parent is None
    assert orphan.original_parent == MAIN
    assert any(entry.kind == "orphaned" for entry in fold.snapshot().log)


def test_a_reused_pid_is_another_process() -> None:
    again = ProcessId(101, 9999)
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(tree(2.0, sample(MAIN, 2.0, role="main"), sample(again, 2.0, parent=100)))

    snapshot = fold.snapshot()

    assert snapshot.get(WORKER_0) is not None
    assert snapshot.get(again) is not None
    assert snapshot.get(again) != snapshot.get(WORKER_0)


def test_ended_processes_are_bounded() -> None:
    fold = Fold()
    main = sample(MAIN, 1.0, role="main")
    for generation in range(ENDED_KEPT + 50):
        at_s = 1.0 + generation
        fold.apply(tree(at_s, main, sample(ProcessId(200, generation), at_s, parent=100)))

    assert len(fold.snapshot().processes) <= ENDED_KEPT + 2


def test_a_segment_is_one_row_however_many_hold_it() -> None:
    fold = Fold()
    fold.apply(
        tree(
            1.0,
            sample(MAIN, 1.0, role="main", segments=(segment_use(77, mapped=False),)),
            sample(WORKER_0, 1.0, parent=100, segments=(segment_use(77, allocated=4096),)),
        )
    )

    snapshot = fold.snapshot()
    (segment,) = snapshot.segments

    assert segment.creator == WORKER_0
    assert segment.mappers == (WORKER_0,)
    assert segment.holders == (MAIN,)
    assert segment.allocated_bytes == 4096
    assert segment.age_s(snapshot.wall_s) == 3.0


def test_records_of_both_sides_make_a_flow_and_are_counted() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(HookStatus(WORKER_0, 1.0, "ready"))
    fold.apply(hook_slice(WORKER_0, 1.1, shared(1.05, key=5)))
    fold.apply(hook_slice(MAIN, 1.1, rebuilt(1.06, key=5), lost=3))

    snapshot = fold.snapshot()
    worker, main = snapshot.get(WORKER_0), snapshot.get(MAIN)

    assert [(f.sender, f.receiver, f.tensors) for f in snapshot.flows] == [(WORKER_0, MAIN, 1)]
    assert worker is not None
    assert main is not None
    assert (worker.hook.state, worker.hook.events) == ("ready", 1)
    assert (main.hook.events, main.hook.lost) == (1, 3)


def test_stacks_are_cut_where_a_forked_child_begins() -> None:
    frames = (
        Frame("_worker_loop", "/x/torch/utils/data/_utils/worker.py", 349),
        Frame("run", "/usr/lib/python3.11/multiprocessing/process.py", 108),
        Frame("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
        Frame("__iter__", "/x/torch/utils/data/dataloader.py", 494),
        Frame("main", "/home/u/train.py", 12),
    )
    thread = ThreadSample(101, "pt_data_worker", "S", 5)
    stack = StackSample(WORKER_0, 101, "MainThread", frames, "py-spy", 1.2)
    fold = Fold()
    fold.apply(tree(1.0, sample(WORKER_0, 1.0, threads=(thread,))))
    fold.apply(StacksTaken(WORKER_0, 1.2, "py-spy", (stack,)))

    worker = fold.snapshot().get(WORKER_0)

    assert worker is not None
    assert [f.function for f in worker.threads[0].stack] == ["_worker_loop", "run", "_bootstrap"]
    assert "train.py" not in worker.doing


def test_the_stack_of_a_remote_call_is_that_of_a_thread_for_remote_calls() -> None:
    """The hook does not know the ids of threads that native code has started."""
    run = Frame("_run_function", "/x/site-packages/torch/distributed/rpc/internal.py", 209)
    call = (Frame("push", "/home/u/server.py", 73), run)
    other = (Frame("callback", "/home/u/server.py", 90),)
    named = (Frame("serve", "/home/u/server.py", 12),)
    threads = [ThreadSample(100, "python", "S", 5)]
    threads += [ThreadSample(tid, "pt_thread_pool", "S", 5) for tid in (101, 102)]
    threads.append(ThreadSample(103, "TP_UV_loop", "S", 5))
    stacks = [
        StackSample(MAIN, None, "", call, "hook", 1.2),
        StackSample(MAIN, None, "", other, "hook", 1.2),
        StackSample(MAIN, 101, "", named, "hook", 1.2),
    ]
    fold = Fold()
    fold.apply(tree(1.0, sample(MAIN, 1.0, threads=tuple(threads))))
    fold.apply(StacksTaken(MAIN, 1.2, "hook", tuple(stacks)))

    main = fold.snapshot().processes[0]

    assert {each.tid: each.stack for each in main.threads} == {
        100: (),
        101: named,
        102: call,
        103: (),
    }


def test_frames_of_the_hooks_own_wrappers_are_not_shown() -> None:
    frames = (
        Frame("poll", "/usr/lib/python3.11/multiprocessing/connection.py", 257),
        Frame("get", "/opt/x/site-packages/mpwatch/hook/points/queues.py", 44),
        Frame("main", "/home/u/train.py", 12),
    )
    thread = ThreadSample(100, "python", "S", 5)
    stack = StackSample(MAIN, 100, "MainThread", frames, "hook", 1.2)
    fold = Fold()
    fold.apply(tree(1.0, sample(MAIN, 1.0, threads=(thread,))))
    fold.apply(StacksTaken(MAIN, 1.2, "hook", (stack,)))

    main = fold.snapshot().processes[0]

    assert [frame.function for frame in main.threads[0].stack] == ["poll", "main"]
    assert main.doing == "train.py:12 main -> connection.py:257 poll"


def test_native_frames_are_shown_and_not_taken_for_what_the_process_does() -> None:
    poll = Frame("poll", "/usr/lib/libc.so.6", 0)
    loop = Frame("_worker_loop", "/x/torch/utils/data/_utils/worker.py", 349)
    bootstrap = Frame("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)
    copied = Frame("main", "/home/u/train.py", 12)
    mixed = tuple(
        MixedFrame(each, each is poll) for each in (poll, loop, poll, bootstrap, copied, poll)
    )
    thread = ThreadSample(101, "python", "S", 5)
    frames = (loop, bootstrap, copied)
    stack = StackSample(WORKER_0, 101, "MainThread", frames, "py-spy", 1.2, mixed=mixed)
    fold = Fold()
    fold.apply(tree(1.0, sample(WORKER_0, 1.0, threads=(thread,))))
    fold.apply(StacksTaken(WORKER_0, 1.2, "py-spy", (stack,)))

    worker = fold.snapshot().processes[0]

    assert worker.threads[0].stack == (loop, bootstrap)
    assert worker.threads[0].shown_stack == (poll, loop, poll, bootstrap)
    assert worker.doing == "worker.py:349 _worker_loop"


def test_a_failed_stack_dump_is_a_problem_and_keeps_the_last_stack() -> None:
    thread = ThreadSample(101, "python", "S", 5)
    frames = (Frame("f", "/home/u/t.py", 1),)
    fold = Fold()
    fold.apply(tree(1.0, sample(WORKER_0, 1.0, threads=(thread,))))
    stack = StackSample(WORKER_0, 101, "MainThread", frames, "py-spy", 1.2)
    fold.apply(StacksTaken(WORKER_0, 1.2, "py-spy", (stack,)))
    fold.apply(StacksTaken(WORKER_0, 2.2, "py-spy", problem="not permitted"))

    worker = fold.snapshot().get(WORKER_0)

    assert worker is not None
    assert worker.threads[0].stack == frames
    assert "stacks: not permitted" in worker.problems


def test_a_thread_that_uses_no_cpu_is_idle_since_its_last_use() -> None:
    fold = Fold()
    for at_s, ticks in ((1.0, 5), (2.0, 9), (3.0, 9), (6.0, 9)):
        thread = ThreadSample(100, "python", "S", ticks)
        fold.apply(tree(at_s, sample(MAIN, at_s, threads=(thread,))))

    assert fold.snapshot().processes[0].threads[0].still_s == 4.0


def test_the_activity_of_a_worker_is_its_fetch() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    begin = event(wire.LOADER_FETCH_BEGIN, 1.0, key2=0, aux=417)
    fold.apply(hook_slice(WORKER_0, 3.8, begin))

    worker = fold.snapshot().get(WORKER_0)

    assert worker is not None
    assert worker.loader is not None
    assert worker.loader.task == 417
    assert worker.doing.startswith("batch 417, 2.8 s")


def test_a_process_that_fetches_batches_is_a_worker() -> None:
    fold = Fold()
    fold.apply(tree(10.0, sample(MAIN, 10.0), sample(WORKER_0, 10.0, parent=100, role="spawned")))
    fold.apply(hook_slice(WORKER_0, 10.1, event(wire.LOADER_FETCH_BEGIN, 10.1, key2=3)))

    worker = fold.snapshot().processes[1]

    assert (worker.role, worker.label) == ("loader-worker", "worker 3")


@pytest.mark.parametrize(
    ("cmdline", "label"),
    [
        (("python", "-u", "tools/evaluate.py", "--all"), "evaluate.py"),
        (("python", "-m", "lm.score"), "-m lm.score"),
        (("python", "-c", "import os"), "python"),
        (("python",), "python"),
    ],
)
def test_another_program_is_called_by_its_name(cmdline: tuple[str, ...], label: str) -> None:
    tool = replace(sample(WORKER_0, 10.0, parent=100), cmdline=cmdline, is_python=True)
    fold = Fold()
    fold.apply(tree(10.0, sample(MAIN, 10.0, role="main"), tool))

    assert [process.label for process in fold.snapshot().processes] == ["main", label]


def test_the_activity_of_main_is_the_batch_and_the_worker_that_it_waits_for() -> None:
    fold = Fold()
    fold.apply(job(100.0))
    reading = {
        "key": 1,
        "workers": 2,
        "rcvd": 417,
        "outstanding": 4,
        "parked": 3,
        "owner": 1,
        "waiting_since_ns": int(16e9),
    }
    fold.apply(HookGauges(MAIN, 100.0, {"loaders": [reading]}))

    snapshot = fold.snapshot()

    assert snapshot.loaders[0].parked == 3
    assert snapshot.processes[0].doing == "waits for batch 417 from worker 1, 84 s"


def test_gauges_of_a_wrong_type_are_ignored() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(HookGauges(MAIN, 1.0, {"loaders": "x", "shared_cache": [1], "cuda": 3, "own": None}))

    main = fold.snapshot().processes[0]

    assert fold.snapshot().loaders == ()
    assert main.shared_cache is None
    assert main.gpus == ()


def test_a_call_site_note_names_the_line_that_made_a_segment() -> None:
    fold = Fold()
    note = HookNote(WORKER_0, 1, "call-site", {"inode": 77, "device": 26, "site": "train.py:57"})
    fold.apply(note)
    fold.apply(tree(1.0, sample(WORKER_0, 1.0, segments=(segment_use(77),))))

    assert fold.snapshot().segments[0].call_site == "train.py:57"


def test_the_line_of_a_removed_segment_is_not_kept_for_its_inode() -> None:
    fold = Fold()
    site = {"inode": 77, "device": 26, "site": "train.py:57"}
    fold.apply(HookNote(WORKER_0, int(1e9), "call-site", site))
    fold.apply(tree(2.0, sample(WORKER_0, 2.0, segments=(segment_use(77),))))
    assert fold.snapshot().segments[0].call_site == "train.py:57"

    fold.apply(tree(20.0, sample(WORKER_0, 20.0, segments=())))
    fold.apply(tree(21.0, sample(WORKER_0, 21.0, segments=(segment_use(77),))))

    assert fold.snapshot().segments[0].call_site is None


def test_starts_exits_and_hook_changes_are_logged() -> None:
    fold = Fold()
    fold.apply(tree(1.0, sample(MAIN, 1.0, role="main")))
    fold.apply(job(2.0))
    fold.apply(HookStatus(WORKER_0, 2.1, "ready"))
    fold.apply(HookStatus(WORKER_0, 2.2, "ready"))
    fold.apply(Ended(WORKER_0, 2.5, exit_code=0))

    words = [entry.words for entry in fold.snapshot().log]

    assert words == [
        "worker 0 101 was started",
        "worker 1 102 was started",
        "hook of 101 is ready",
        "worker 0 101 ended: exit code 0",
    ]


def test_the_hello_has_versions_and_missing_hook_points() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(
        HookHello(MAIN, 1.0, 1, "3.11.7", "2.13.0", 100, "run", {"SharedCache.get": "no such"})
    )

    hook = fold.snapshot().processes[0].hook

    assert (hook.torch, hook.python) == ("2.13.0", "3.11.7")
    assert hook.missing == {"SharedCache.get": "no such"}


def test_the_same_inputs_give_the_same_snapshots() -> None:
    inputs: list[Input] = [
        job(1.0),
        HookStatus(WORKER_0, 1.0, "ready"),
        hook_slice(WORKER_0, 1.1, shared(1.05, key=5)),
        hook_slice(MAIN, 1.1, rebuilt(1.06, key=5)),
        job(2.0, cpu_ticks=50),
        Ended(WORKER_1, 2.5, exit_code=1),
    ]
    one, two = Fold(), Fold()
    for each in inputs:
        one.apply(each)
        two.apply(each)

    assert one.snapshot() == two.snapshot()


def test_source_lines_of_a_recording_are_bounded() -> None:
    fold = Fold()
    fold.apply(job(1000.0))
    statement = Statement(1, "wait()")
    for number in range(3):
        lines = tuple(
            SourceLine("/a.py", number * LINES_LIMIT + line, "f", statement)
            for line in range(LINES_LIMIT - 1)
        )
        dropped = tuple(DroppedResult("/a.py", each.line, "submit", statement) for each in lines)
        fold.apply(SourceRead(1000.0, lines, dropped))

    snapshot = fold.snapshot()

    assert len(snapshot.source) == LINES_LIMIT
    assert len(snapshot.dropped) == LINES_LIMIT


def test_containers_of_a_later_reading_take_the_place_of_earlier_ones() -> None:
    fold = Fold()
    fold.apply(job(1000.0))
    added = Statement(9, "self.rows.append(row)")
    one = Holder("self.rows", "Store", "/a.py", "add", added, 1, False, False, False, ())
    fold.apply(SourceRead(1000.0, holders=(one,)))
    fold.apply(SourceRead(1001.0))

    assert fold.snapshot().holders == (one,)
    fold.apply(SourceRead(1002.0, holders=()))
    assert fold.snapshot().holders == ()


def test_what_a_later_reading_shows_of_coroutines_takes_the_place_of_the_earlier() -> None:
    fold = Fold()
    fold.apply(job(1000.0))
    set_it = Statement(9, "done.set()")
    wake = UnsafeWake(
        "Event", "done", "set", "/a.py", "run", set_it, False, "/a.py", "main", set_it, False
    )
    fold.apply(SourceRead(1000.0, coroutines=Coroutines((wake,))))
    fold.apply(SourceRead(1001.0))

    assert fold.snapshot().coroutines.unsafe == (wake,)
    fold.apply(SourceRead(1002.0, coroutines=Coroutines()))
    assert fold.snapshot().coroutines.unsafe == ()


def test_a_zombie_that_loses_its_parent_is_no_orphan() -> None:
    fold = Fold()
    fold.apply(job(1.0))
    fold.apply(tree(2.0, sample(WORKER_0, 2.0, parent=1, state="Z")))

    assert not any(entry.kind == "orphaned" for entry in fold.snapshot().log)
