from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from mpwatch.describe.waits import LOCK_OF_THREADS
from mpwatch.diagnose.rules.throughput.lock_contention import check
from mpwatch.model.account import Account, Activity
from mpwatch.model.findings import Severity
from mpwatch.model.samples import HeldLock
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.accounts import COMPUTES, SLEEPS, WAITS_IN_QUEUE, waits_for_lock, with_shares
from tests.builders.snapshots import fds, found, main, only, pid, process, snapshot_of, thread

LOCK = waits_for_lock(77)
FILE_LOCK = Activity("waiting", "the lock on /data/cache.db", "lock", (), "cache.py:12 put")


def job(works: float, lock: Activity = LOCK, count: int = 4, **more: Activity) -> Snapshot:
    """Main that sleeps and workers that work or wait for a lock."""
    numbers = range(200, 200 + count)
    shares = {
        f"p{n}": {COMPUTES: works, lock: 1 - works, **dict.fromkeys(more.values(), 0.3)}
        for n in numbers
    }
    processes = [process(n, "spawned") for n in numbers]
    return with_shares(snapshot_of(main(), *processes), p100={SLEEPS: 1.0}, **shares)


def at(number: int, function: str, text: str, *within: str) -> SourceLine:
    around = tuple(Statement(number - 4, each) for each in within)
    return SourceLine("/home/me/train.py", number, function, Statement(number, text), around)


def test_processes_that_work_one_at_a_time_under_one_lock_are_named() -> None:
    finding = only(check, job(works=0.25))

    assert finding.severity is Severity.WARNING
    assert finding.process == pid(200)
    assert finding.others == (pid(201), pid(202), pid(203))
    assert finding.summary == (
        "4 processes wait 75% of the time for one lock (semaphore 1b:77): one of them works at a "
        "time, at train.py:30 step"
    )
    assert finding.evidence[0] == (
        "spawned 200 (200): 75% waiting for it at train.py:34 run, 25% at work"
    )
    assert finding.evidence[-2].startswith("together they work as much as 1.0 processes would")
    assert "at most 4.0 times as fast" in finding.evidence[-1]
    assert "after train.py:34 run" in finding.advice


def test_a_lock_on_a_file_is_called_one() -> None:
    finding = only(check, job(works=0.5, lock=FILE_LOCK, count=2))

    assert "2 processes wait 50% of the time for the lock on /data/cache.db" in finding.summary


def in_turn(*work: str, text: str = "with store.session() as db:") -> Snapshot:
    """Two processes of which one has the lock that `save` takes in its line 48, through `put`."""
    taken = job(0.4, FILE_LOCK._replace(place="train.py:12 put"), count=2)
    waits = thread(200, "train.py:put:12", "train.py:save:48", "train.py:run:70", still_s=0.1)
    works = thread(201, *work, "train.py:save:52", "train.py:run:70", still_s=0.1)
    threads = {200: (waits,), 201: (works,)}
    processes = [replace(p, threads=threads.get(p.pid, p.threads)) for p in taken.processes]
    source = (at(52, "save", "score(rows)", text), at(60, "add", "db.executemany(SQL, rows)"))
    return replace(taken, processes=tuple(processes), source=source)


def test_work_inside_of_the_block_that_takes_the_lock_is_named_with_the_block() -> None:
    finding = only(check, in_turn("train.py:score:31"))

    assert (
        "`with store.session() as db:` at train.py:48 save takes it, and what takes long is "
        "inside: train.py:31 score, called at train.py:52 save." in finding.cause
    )
    assert finding.advice.startswith(
        "Do what takes long at train.py:31 score before `with store.session() as db:` at "
        "train.py:48 save"
    )


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param(in_turn("train.py:add:60"), id="a statement of the database"),
        pytest.param(in_turn("train.py:score:31", text="if rows:"), id="no block around it"),
    ],
)
def test_work_is_not_told_to_be_inside_of_a_block_that_no_stack_shows(healthy: Snapshot) -> None:
    assert "inside:" not in only(check, healthy).cause


def test_a_lock_that_one_process_keeps_is_left_to_the_rules_for_hangs() -> None:
    def stuck(still_s: float) -> Snapshot:
        taken = job(works=0.25)
        stopped = [
            replace(each, threads=(thread(each.pid, "train.py:step", still_s=still_s),))
            for each in taken.processes
        ]
        return replace(taken, processes=tuple(stopped))

    assert len(found(check, stuck(4.0))) == 1
    assert found(check, stuck(12.0)) == []


def test_a_lock_that_always_the_same_other_process_had_is_no_contention() -> None:
    file = FILE_LOCK._replace(what="the lock on /data/cache.lock")
    held_by_main = file._replace(providers=(pid(100),))
    held_in_turn = file._replace(providers=(pid(200), pid(201)))

    assert found(check, job(works=0.5, lock=held_by_main, count=2)) == []
    assert len(found(check, job(works=0.5, lock=held_in_turn, count=2))) == 1


def held_database(*stack: str, has_it: bool = True, works: float = 0.1) -> Snapshot:
    """Two processes that wait for a database while main has it locked."""
    lock = HeldLock("/data/cache.db-shm", "fcntl", True, 100)
    taken = job(works, FILE_LOCK._replace(providers=(pid(100),)), count=2)
    opened = replace(fds(9), locks=(lock,) if has_it else ())
    holder = main(threads=[thread(100, *stack, state="R", still_s=0.0)], fds=opened)
    source = (
        at(31, "pack", "tar.add(folder)", "with tar:"),
        at(52, "save", "pack()", "with store.session() as db:"),
        at(60, "add", "db.executemany(SQL, rows)"),
    )
    return replace(taken, processes=(holder, *taken.processes[1:]), source=source)


def test_the_holder_of_a_locked_database_that_does_something_else_is_named_with_the_block() -> None:
    finding = only(check, held_database("train.py:pack:31", "train.py:save:52", "train.py:run:70"))

    assert finding.severity is Severity.WARNING
    assert finding.process == pid(100)
    assert finding.summary == (
        "spawned 200 (200) and spawned 201 (201) wait 90% of the time for the lock on "
        "/data/cache.db, which main (100) has meanwhile: it is at train.py:31 pack"
    )
    assert (
        "main (100) is inside of `with store.session() as db:` (train.py:52 save) and is busy with "
        "something else than the database there: train.py:31 pack." in finding.cause
    )
    assert "Keep transactions short at train.py:52 save" in finding.advice


def test_a_statement_of_a_database_that_takes_long_is_no_other_work() -> None:
    finding = only(check, held_database("train.py:add:60"))

    assert "It runs `db.executemany(SQL, rows)` there" in finding.cause
    assert "busy with something else" not in finding.cause
    assert finding.advice.startswith("Write fewer rows in one transaction")


def test_what_a_holder_does_is_not_reported_where_it_has_no_lock_now() -> None:
    finding = only(check, held_database("train.py:pack:31", "train.py:save:52", has_it=False))

    assert finding.severity is Severity.INFO
    assert "train.py:31" not in finding.summary + finding.cause


def test_a_lock_that_costs_less_than_half_of_the_time_is_information() -> None:
    assert only(check, job(works=0.62, count=2)).severity is Severity.INFO


def at_database(asleep: float, tries: float = 0.25, elsewhere: float = 0.0) -> Snapshot:
    """Two processes that wait for a database, and sleep between attempts and at another line."""
    again, pauses = (Activity("sleeping", place=each) for each in ("cache.py:12 put", "a.py:9 f"))
    works = 1 - asleep - tries - elsewhere
    seen = {COMPUTES: works, FILE_LOCK: tries, again: asleep, pauses: elsewhere}
    taken = (process(n, "spawned") for n in (200, 201))
    return with_shares(snapshot_of(main(), *taken), p100={SLEEPS: 1.0}, p200=seen, p201=seen)


def test_sleep_between_attempts_is_part_of_the_wait_for_a_lock_on_a_file() -> None:
    finding = only(check, at_database(asleep=0.35))

    assert finding.severity is Severity.WARNING
    assert "2 processes wait 60% of the time for the lock on /data/cache.db" in finding.summary
    assert "locks the whole file until its commit is on the disk" in finding.cause
    assert "Commit once for many rows" in finding.advice
    assert found(check, at_database(asleep=0.74)) == []  # none of them gets a turn


def test_processes_that_sleep_under_a_lock_in_turn_are_information() -> None:
    assert only(check, at_database(0.35, elsewhere=0.3)).severity is Severity.INFO


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param(job(works=0.8), id="the lock is held for short times"),
        pytest.param(job(works=0.6), id="several work at a time: a semaphore with a count"),
        pytest.param(job(works=0.25, lock=waits_for_lock(77, "")), id="no stack shows a lock"),
        pytest.param(
            job(works=0.1, lock=waits_for_lock(77, ""), queue=WAITS_IN_QUEUE),
            id="the lock of a queue's readers",
        ),
        pytest.param(job(works=0.0), id="nobody works: a deadlock has other rules"),
        pytest.param(job(works=0.25, count=1), id="one process"),
    ],
)
def test_other_waits_for_semaphores_are_not_contention(healthy: Snapshot) -> None:
    assert found(check, healthy) == []


TAKES = Statement(48, "with self.lock:")
LIMITER = "/home/me/train.py"
WAITS_TO_TAKE = Activity(
    "waiting", "semaphore 1b:77 between processes", "lock", (), "train.py:48 take"
)
PAUSES = Activity("sleeping", place="train.py:44 pause")


def limiter(sleep: str = "time.sleep(wait)", inside: tuple[Statement, ...] = (TAKES,)) -> Snapshot:
    """Two processes that wait for a lock, and one that sleeps under it."""
    waiting = [process(n, "spawned", threads=[thread(n, "train.py:take:48")]) for n in (200, 201)]
    stack = ("train.py:pause:44", "train.py:take:49")
    holder = process(202, "spawned", threads=[thread(202, *stack)])
    source = (
        SourceLine(LIMITER, 44, "pause", Statement(44, sleep)),
        SourceLine(LIMITER, 48, "take", TAKES),
        SourceLine(LIMITER, 49, "take", Statement(49, "self.pause(bucket)"), inside),
    )
    seen = {WAITS_TO_TAKE: 0.9, COMPUTES: 0.1}
    taken = snapshot_of(main(), *waiting, holder, source=source)
    shares = {"p200": seen, "p201": seen, "p202": {PAUSES: 0.9, COMPUTES: 0.1}}
    return with_shares(taken, p100={SLEEPS: 1.0}, **shares)


def test_a_lock_that_is_held_during_a_sleep_is_named_with_the_sleep() -> None:
    finding = only(check, limiter())

    assert finding.severity is Severity.INFO
    assert (finding.process, finding.others) == (pid(202), (pid(200), pid(201)))
    assert finding.summary == (
        "spawned 200 (200) and spawned 201 (201) wait 90% of the time for the lock of "
        "`with self.lock:` at train.py:48 take, inside of which spawned 202 (202) sleeps"
    )
    assert finding.evidence[-1] == (
        "spawned 202 (202) is in a sleep at train.py:44 pause, called at train.py:49 take; such "
        "sleeps take 90% of the time"
    )
    assert "sleep without it" in finding.advice


def test_a_sleep_elsewhere_holds_no_lock() -> None:
    assert found(check, limiter(inside=())) == []
    assert found(check, limiter(sleep="return fetch(bucket)")) == []


def test_a_semaphore_inside_of_which_several_sleep_is_no_lock() -> None:
    taken = limiter()
    stack = taken.get(pid(202)).threads[0].stack  # type: ignore[union-attr]
    first = taken.processes[1]
    inside = replace(first, threads=(replace(first.threads[0], stack=stack),))
    several = replace(taken, processes=(taken.processes[0], inside, *taken.processes[2:]))
    account = {**taken.account.processes}
    asleep = account[pid(202)].uncounted[0]._replace(tid=200)
    account[pid(200)] = replace(account[pid(200)], uncounted=(asleep,))
    several = replace(several, account=replace(taken.account, processes=account))

    assert [each.subject for each in found(check, several)] == []


def test_threads_of_one_process_are_named_as_threads() -> None:
    stacks = {1: ("train.py:take:48",), 2: ("train.py:pause:44", "train.py:take:49")}
    threads = [
        thread(200, "train.py:run:9"),
        *(thread(200 + n, *stack, name=f"fetch-{n}") for n, stack in stacks.items()),
    ]
    taken = replace(limiter(), processes=(main(), process(200, "spawned", threads=threads)))
    account = taken.account.processes[pid(200)]
    waiting = account.uncounted[0]._replace(tid=201)
    asleep = taken.account.processes[pid(202)].uncounted[0]._replace(tid=202)
    of_main = taken.account.processes[pid(100)].uncounted[0]._replace(tid=200)
    of_all = replace(account, uncounted=(of_main, waiting, asleep), ticks=(None,) * 3)
    taken = replace(taken, account=replace(taken.account, processes={pid(200): of_all}))

    finding = only(check, taken)

    assert finding.summary == (
        "1 thread of spawned 200 (200) waits 90% of the time for the lock of `with self.lock:` at "
        "train.py:48 take, inside of which thread fetch-2 sleeps"
    )
    assert finding.evidence[0] == "thread fetch-1: 90% of the time waiting for it"


# --- threads that work inside of a lock ----------------------------------------------------------

AT_LOCK = Activity("waiting", LOCK_OF_THREADS, "lock", (), "train.py:48 take")
ASKS = Activity("waiting", "data on socket 77", "socket", (), "train.py:44 pause")
ELSEWHERE = Activity("waiting", "an item of a queue", "queue", place="train.py:60 run")


def threads_in_turn(
    *shares: Mapping[Activity, float],
    stack: Sequence[str] = ("train.py:pause:44", "train.py:take:49"),
    text: str = "return requests.post(url)",
    taken: str = "with self.lock:",
) -> Snapshot:
    """Threads of a process, of which all but the last are at line 48, that is inside of it."""
    taking = Statement(48, taken)
    stacks = [*[("train.py:take:48",)] * (len(shares) - 1), tuple(stack)]
    threads = [
        thread(200 + number, *each, name=f"fetch-{number}") for number, each in enumerate(stacks)
    ]
    source = (
        SourceLine(LIMITER, 44, "pause", Statement(44, text)),
        SourceLine(LIMITER, 48, "take", taking),
        SourceLine(LIMITER, 49, "take", Statement(49, "self.pause(bucket)"), (taking,)),
    )
    of_each = {f"p{200 + number}": each for number, each in enumerate(shares)}
    single = snapshot_of(*(process(200 + n, "spawned") for n in range(len(shares))))
    accounts = with_shares(single, **of_each).account.processes
    parts = [accounts[pid(200 + n)].uncounted[0] for n in range(len(shares))]
    of_all = replace(
        accounts[pid(200)],
        uncounted=tuple(e._replace(tid=200 + n) for n, e in enumerate(parts)),
        ticks=(None,) * len(shares),
    )
    job = snapshot_of(process(200, "spawned", threads=threads), source=source)
    return replace(job, account=Account(pid(200), 0.0, job.at_s, 60, {pid(200): of_all}))


TURN = {AT_LOCK: 0.66, ASKS: 0.33}


def test_threads_that_wait_while_one_asks_a_server_inside_of_the_lock_are_named() -> None:
    finding = only(check, threads_in_turn(TURN, TURN, TURN))

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        "3 threads of spawned 200 (200) wait at least 67% of the time for the lock of `with "
        "self.lock:` at train.py:48 take, inside of which one thread at a time waits for an answer "
        "by a socket at train.py:44 pause"
    )
    assert finding.evidence[-2:] == (
        "thread fetch-2 has it and is at train.py:44 pause, called at train.py:49 take; at lines "
        "inside of it one of them waits for an answer by a socket at least 100% of the time",
        "together they do as much as 1.0 threads would that never wait",
    )


def test_an_answer_to_what_was_sent_is_no_wait_for_the_next_request() -> None:
    receives = threads_in_turn(TURN, TURN, TURN, text="return self.connection.recv(64)")
    assert found(check, receives) == []

    sent = Statement(43, "self.connection.sendall(question)")
    line = replace(receives.source[0], asked=sent)
    only(check, replace(receives, source=(line, *receives.source[1:])))


def computing(what: str) -> Snapshot:
    turn = {AT_LOCK: 0.66, Activity("computing", what, place="train.py:44 pause"): 0.34}
    return threads_in_turn(turn, turn, turn)


def test_computing_inside_of_a_lock_counts_where_the_gil_is_not_the_limit() -> None:
    assert "one thread at a time computes" in only(check, computing("native code")).summary
    assert found(check, computing("Python code")) == []


@pytest.mark.parametrize(
    "healthy",
    [
        # Most of the work is outside of the lock.
        threads_in_turn(*[{AT_LOCK: 0.35, ASKS: 0.35, SLEEPS: 0.3}] * 3),
        # It is held shortly.
        threads_in_turn(*[{AT_LOCK: 0.2, ASKS: 0.1, ELSEWHERE: 0.7}] * 3),
        # One thread looks for the next request for all.
        threads_in_turn(TURN, TURN, TURN, text="request, _ = self.listener.accept()"),
        # All are idle: the one inside waits for an item.
        threads_in_turn(*[{AT_LOCK: 0.66, ELSEWHERE: 0.34}] * 3),
        # The one inside waits for a condition, and so has released it.
        threads_in_turn(TURN, TURN, TURN, stack=("threading.py:wait", "train.py:take:49")),
        # The work is not inside of the block.
        threads_in_turn(TURN, TURN, TURN, stack=("train.py:pause:44",)),
        # Waits for the GIL are another reason.
        threads_in_turn(
            *[{AT_LOCK: 0.4, ASKS: 0.33, Activity("waiting", "the GIL", "gil"): 0.27}] * 3
        ),
        # One thread alone waits.
        threads_in_turn({AT_LOCK: 0.66, ASKS: 0.33}, {ASKS: 1.0}),
    ],
)
def test_threads_that_take_turns_otherwise_are_not_named(healthy: Snapshot) -> None:
    assert found(check, healthy) == []


def released_in(file: str, text: str = "self.credits.acquire()") -> Snapshot:
    """Processes that wait at train.py:34, of which the source is known, and who releases."""
    mark = Mark("releases", file, "collect", "credits", Statement(60, "self.credits.release()"))
    return replace(job(works=0.25), source=(at(34, "run", text),), marks=(mark,))


def test_permits_that_another_file_gives_back_are_no_lock() -> None:
    assert found(check, released_in("/home/me/main.py")) == []


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(released_in("/home/me/train.py"), id="a wrapper around a lock"),
        pytest.param(released_in("/home/me/main.py", "with self.credits:"), id="a block"),
        pytest.param(released_in("/home/me/main.py", "self.lock.acquire()"), id="another name"),
    ],
)
def test_a_lock_is_told_where_its_own_file_may_release_it(snapshot: Snapshot) -> None:
    assert len(found(check, snapshot)) == 1
