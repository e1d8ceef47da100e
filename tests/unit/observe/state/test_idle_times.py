"""What the fold keeps so that rules can distinguish stalled from waiting processes."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s
from mpwatch.model.events import HookGauges
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import StacksTaken, ThreadSample, WaitedOn
from mpwatch.model.snapshot import Thread
from mpwatch.observe.state.fold import Fold
from mpwatch.observe.state.history import HistoryKeeper
from tests.builders.samples import MAIN, sample, tree

PIPE = WaitedOn("poll", "poll", ("pipe:[7]",), timeout_s=5.0)
LOCK = WaitedOn("futex", "futex", ("futex 0x7f",))
SEMAPHORE = WaitedOn("semaphore", "futex", ("sem 1:2",), segment=SegmentId(1, 2))
FLOCK = WaitedOn("unknown", "flock", ("/tmp/a.lock",), (3,))
SLEEP = WaitedOn("timer", "clock_nanosleep", timeout_s=1.0)


def waited(*waits: WaitedOn | None, state: str = "S") -> Thread:
    """The main thread after readings with these waits, one a second."""
    fold = Fold()
    for second, wait in enumerate(waits):
        thread = ThreadSample(100, "python", state if wait is waits[-1] else "S", 9, waits_on=wait)
        fold.apply(tree(float(second), sample(MAIN, float(second), threads=(thread,))))
    return fold.snapshot().processes[0].threads[0]


def test_a_wait_lasts_as_long_as_it_is_for_the_same_thing() -> None:
    assert waited(PIPE, PIPE, PIPE).waits_s == 2.0
    assert waited(SLEEP, SLEEP, SLEEP, SEMAPHORE, SEMAPHORE).waits_s == 1.0


def test_a_wait_missing_in_one_sample_continues() -> None:
    assert waited(PIPE, LOCK, None, PIPE).waits_s == 3.0


def test_processes_that_take_turns_at_a_file_lock_do_not_wait_all_the_time() -> None:
    assert waited(SLEEP, FLOCK, SLEEP, FLOCK, FLOCK).waits_s == 1.0
    assert waited(FLOCK, FLOCK, SLEEP).waits_s == 0.0


def test_a_thread_that_runs_or_waits_for_a_private_lock_has_no_other_wait() -> None:
    assert waited(PIPE, None).waits_s is None
    assert waited(PIPE, PIPE, state="R").waits_s is None
    assert waited(LOCK, LOCK).waits_s is None


def test_a_private_lock_on_the_way_to_something_else_has_a_time_of_its_own() -> None:
    known = replace(LOCK, address=0x7F)

    just = waited(PIPE, PIPE, PIPE, known)
    longer = waited(PIPE, known, known, known)

    assert (just.waits_s, just.futex_s, blocked_for_s(just)) == (3.0, 0.0, 0.0)
    assert (longer.waits_s, longer.futex_s, blocked_for_s(longer)) == (3.0, 2.0, 2.0)
    assert waited(PIPE, known, PIPE).futex_s is None
    limited = waited(PIPE, PIPE, replace(known, timeout_s=5.0))
    assert blocked_for_s(limited) == 2.0, "one with a limit is that of a loop"


def test_stops_by_py_spy_are_in_the_history_and_stacks_of_a_hook_are_not() -> None:
    fold = Fold()
    fold.apply(tree(1.0, sample(MAIN, 1.0)))
    fold.apply(StacksTaken(MAIN, 1.2, "hook"))
    fold.apply(StacksTaken(MAIN, 2.2, "py-spy", has_stopped=False))
    fold.apply(StacksTaken(MAIN, 3.2, "py-spy", problem="it was busy"))

    assert [point.at_s for point in fold.history().of(MAIN, "stack_stops")] == [3.2]


def test_stops_by_py_spy_are_forgotten_with_the_process() -> None:
    keeper = HistoryKeeper()
    keeper.add_point(MAIN, "stack_stops", 1.0, 1)
    keeper.forget(MAIN)

    assert keeper.history().of(MAIN, "stack_stops") == ()


def test_cuda_tensors_that_are_not_released_are_remembered_as_the_hook_counts_them() -> None:
    fold = Fold()
    fold.apply(tree(1.0, sample(MAIN, 1.0)))
    for second, reading in enumerate(({"unreleased": 3}, {"unreleased": "x"}, {"unreleased": 9})):
        fold.apply(HookGauges(MAIN, 2.0 + second, {"cuda_lent": reading}))

    line = fold.history().of(MAIN, "cuda_unreleased")
    assert [(point.at_s, point.value) for point in line] == [(2.0, 3), (4.0, 9)]


def test_the_idle_time_continues_while_a_sample_is_carried_over() -> None:
    fold = Fold()
    thread = ThreadSample(100, "python", "S", 9, waits_on=PIPE)
    quiet = []
    for second in range(8):
        at_s = float(second)
        read_at_s = min(at_s, 3.0)
        fold.apply(tree(at_s, sample(MAIN, read_at_s, threads=(thread,))))
        snapshot = fold.snapshot()
        quiet.append(quiet_s(snapshot.processes[0], Index(snapshot, fold.history())))

    assert quiet[2:] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_a_futex_that_turns_out_to_be_a_semaphore_was_waited_for_all_the_time() -> None:
    """The mappings that tell it are read after the first system calls."""
    not_known = WaitedOn("futex", "futex", ("futex 0x7f",), address=0x7F)
    known = replace(SEMAPHORE, address=0x7F)

    assert waited(not_known, not_known, known, known).waits_s == 3.0
    assert waited(not_known, replace(known, address=0x80)).waits_s == 0.0


def read_late(*samples: ThreadSample) -> Thread:
    """The main thread after readings in the seconds 500, 501 and so on."""
    fold = Fold()
    for second, thread in enumerate(samples, 500):
        fold.apply(tree(float(second), sample(MAIN, float(second), threads=(thread,))))
    return fold.snapshot().processes[0].threads[0]


def test_a_wait_that_began_before_the_first_reading_lasts_since_the_thread_last_ran() -> None:
    known = replace(LOCK, address=0x7F)
    asleep = ThreadSample(100, "python", "S", 9, waits_on=PIPE, ran_at_s=120.0)
    locked = replace(asleep, waits_on=known)

    first, later = read_late(asleep), read_late(asleep, asleep, replace(asleep, ran_at_s=None))
    lock = read_late(locked)

    assert (first.still_s, first.waits_s) == (380.0, 380.0)
    assert (later.still_s, later.waits_s) == (382.0, 382.0)
    assert (lock.still_s, lock.futex_s, blocked_for_s(lock)) == (380.0, 380.0, 380.0)


def test_a_thread_that_runs_again_is_still_from_then_on() -> None:
    asleep = ThreadSample(100, "python", "S", 9, waits_on=PIPE, ran_at_s=120.0)
    ran = replace(asleep, cpu_ticks=12, ran_at_s=None)

    assert read_late(asleep, ran).still_s is None
    assert read_late(asleep, ran, ran, ran).still_s == 2.0


def test_a_thread_that_is_first_read_later_has_its_own_beginning() -> None:
    fold = Fold()
    main = ThreadSample(100, "python", "S", 9, waits_on=PIPE)
    other = ThreadSample(101, "python", "S", 3, waits_on=PIPE, ran_at_s=490.0)
    fold.apply(tree(500.0, sample(MAIN, 500.0, threads=(main,))))
    fold.apply(tree(501.0, sample(MAIN, 501.0, threads=(main, other))))

    threads = fold.snapshot().processes[0].threads
    assert [(each.still_s, each.waits_s) for each in threads] == [(1.0, 1.0), (11.0, 11.0)]
