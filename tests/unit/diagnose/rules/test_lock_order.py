"""Two threads that wait for each other's lock in a process whose other threads go on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Snapshot, Thread
from mpwatch.model.source_code import SourceLine, Statement, TakenLock
from tests.builders.snapshots import MAIN, fds, found, main, snapshot_of, thread

SERVES = thread(
    MAIN,
    "selectors.py:select",
    "asyncio/base_events.py:_run_once",
    "train.py:main:90",
    waits=WaitedOn("poll", "epoll_wait", ("pipe:[1]",), timeout_s=0.5),
    still_s=0.1,
)


def locks(tid: int, *calls: str, address: int | None = None, still_s: float = 40.0) -> Thread:
    wait = WaitedOn("futex", "futex", (f"futex {tid:#x}",), address=address or tid, futex_command=9)
    return thread(tid, *calls, name=f"worker-{tid}", waits=wait, still_s=still_s)


def takes(number: int, function: str, inner: str, outer: str = "", owner: str = "") -> SourceLine:
    """A line of data.py that takes a lock, in the block of the line before."""
    statement, around = Statement(number, inner), Statement(number - 1, outer)
    taken = tuple(
        TakenLock(each.text.removeprefix("with ").removesuffix(":"), each, owner)
        for each in (statement, around)
        if each.text.startswith("with ")
    )
    within = (around,) if outer else ()
    return SourceLine("/home/me/data.py", number, function, statement, within, locks=taken)


def job(*threads: Thread, source: Sequence[SourceLine] = ()) -> Snapshot:
    """A server whose main thread, an event loop, goes on."""
    process = main(
        fds=fds(4, links=[]), segments=(), threads=[SERVES, *threads], thread_count=1 + len(threads)
    )
    return snapshot_of(process, source=tuple(source))


def told(*threads: Thread, source: Sequence[SourceLine]) -> list[Finding]:
    return found(standing_still.check, job(*threads, source=source))


INDEXES = takes(12, "index", "with self._mem_lock:", "with self._db_lock:", "Engine")
CLEANS = takes(42, "clean", "with self._db_lock:", "with self._mem_lock:", "Engine")


def test_two_threads_that_take_two_locks_in_opposite_order() -> None:
    (it,) = told(
        locks(101, "data.py:index:12"), locks(102, "data.py:clean:42"), source=(INDEXES, CLEANS)
    )

    assert it.severity is Severity.CRITICAL
    assert it.summary == (
        "Thread worker-101 and thread worker-102 of main (100) wait for each other's lock, at "
        "data.py:12 index and data.py:42 clean"
    )
    assert (
        "thread worker-101 took `self._db_lock` by `with self._db_lock:` (data.py:11, in index()) "
        "and waits at data.py:12 index for `self._mem_lock`"
    ) in it.cause
    assert "in one order everywhere: at data.py:42 clean" in it.advice


def test_locks_of_two_objects_are_told_by_their_classes() -> None:
    """`self._lock` of a class Db is `self.db.lock` elsewhere."""
    first = takes(12, "put", "self.index.add(key)", "with self._lock:", "Db")
    adds = takes(72, "add", "with self._lock:", owner="Index")
    second = takes(42, "clean", "with self.db.lock:", "with self._lock:", "Index")

    assert told(
        locks(101, "data.py:add:72", "data.py:put:12"),
        locks(102, "data.py:clean:42"),
        source=(first, adds, second),
    )


def test_a_lock_that_another_thread_has() -> None:
    """Both wait for one lock, of which a third thread makes use."""
    source = (INDEXES, takes(52, "scan", "with self._mem_lock:", "", "Engine"))

    assert not told(locks(101, "data.py:index:12"), locks(102, "data.py:scan:52"), source=source)


@pytest.mark.parametrize("still_s", [0.1, 4.0])
def test_contention_ends(still_s: float) -> None:
    waiting = [
        locks(101, "data.py:index:12", still_s=still_s),
        locks(102, "data.py:clean:42", still_s=still_s),
    ]

    assert not told(*waiting, source=(INDEXES, CLEANS))


def test_threads_that_wait_at_one_address_wait_for_one_lock() -> None:
    waiting = [
        locks(101, "data.py:index:12", address=7),
        locks(102, "data.py:clean:42", address=7),
    ]

    assert not told(*waiting, source=(INDEXES, CLEANS))


def test_locks_of_one_common_name_in_classes_that_are_not_known() -> None:
    first = takes(12, "put", "with self.index.lock:", "with self._lock:")
    second = takes(42, "clean", "with self.db.lock:", "with self._lock:")

    assert not told(
        locks(101, "data.py:put:12"), locks(102, "data.py:clean:42"), source=(first, second)
    )


MOVES = takes(12, "move", "with target.lock:", "with source.lock:")


def test_one_function_that_takes_the_locks_of_two_objects() -> None:
    (it,) = told(locks(101, "data.py:move:12"), locks(102, "data.py:move:12"), source=(MOVES,))

    assert "the same two objects in opposite order" in it.cause
    assert "sort the two" in it.advice


def test_one_function_for_whose_lock_another_thread_is_in_a_block() -> None:
    """That one has the lock for which both wait."""
    inside = takes(62, "write", "os.fsync(self.fd)", "with self.lock:", "Shard")
    writes = thread(103, "data.py:write:62", state="D", still_s=0.1)

    assert not told(
        locks(101, "data.py:move:12"),
        locks(102, "data.py:move:12"),
        writes,
        source=(MOVES, inside),
    )


def test_locks_of_other_objects_of_one_class_for_which_other_threads_are_in_blocks() -> None:
    """Each of those has the lock of one object, for which one of the two waits."""
    first = takes(12, "put", "self.index.add(key)", "with self._lock:", "Db")
    adds = takes(72, "add", "with self._lock:", owner="Index")
    second = takes(42, "clean", "with self.db.lock:", "with self._lock:", "Index")
    inside = takes(82, "scan", "os.fsync(self.fd)", "with self._lock:", "Index")
    scans = thread(103, "data.py:scan:82", state="D", still_s=0.1)

    assert not told(
        locks(101, "data.py:add:72", "data.py:put:12"),
        locks(102, "data.py:clean:42"),
        scans,
        source=(first, adds, second, inside),
    )


def test_where_no_other_thread_runs_the_chain_says_it() -> None:
    waits = WaitedOn("futex", "futex", ("futex 0x7f",), futex_command=9)
    joins = thread(MAIN, "threading.py:join", "train.py:main:95", waits=waits, still_s=40.0)
    process = main(
        fds=fds(4, links=[]),
        segments=(),
        signals_caught=0,
        threads=[joins, locks(101, "data.py:index:12"), locks(102, "data.py:clean:42")],
        thread_count=3,
    )

    (it,) = found(standing_still.check, snapshot_of(process, source=(INDEXES, CLEANS)))

    assert "wait for each other's lock" in it.summary
    assert "taken in opposite order" in it.cause
