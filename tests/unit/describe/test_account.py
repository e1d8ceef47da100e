from __future__ import annotations

from msgspec.structs import replace

from mpwatch.describe.account import (
    TOGETHER,
    account_rows,
    activity_words,
    certainty_words,
    process_words,
    sentence,
    share_text,
)
from mpwatch.model.account import (
    NOTHING,
    PICKLING,
    Account,
    Activity,
    ProcessAccount,
    Share,
    ThreadAccount,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from tests.builders.snapshots import MAIN, NOW_S, main, pid, process, snapshot_of, thread

BATCHES = Activity("waiting", "batches", "batch", (pid(202),))
NAMES = {pid(202): "worker 2"}
SLEEPS = Activity("sleeping")


def at(place: str, code: str = "") -> Activity:
    return Activity("computing", code, place=place)


def one(identity: ProcessId, *seconds: tuple[Activity, int], cores: float = 0.0) -> ThreadAccount:
    """A thread that did this, a reading a second."""
    total = sum(each for _, each in seconds)
    at_s, readings = NOW_S - total, 0
    found = ThreadAccount(identity.pid, "python", seconds[0][0], at_s, 0, 0)
    for activity, each in seconds:
        for _ in range(each):
            at_s, readings = at_s + 1, readings + 1
            ticks = int(100 * cores * readings)
            found = found._replace(now=activity).counted(at_s, readings, ticks, 100)
    return found


def account(*threads: ThreadAccount, of: int = MAIN) -> ProcessAccount:
    ticks = tuple(each.counted_ticks for each in threads)
    return ProcessAccount(pid(of), NOW_S, threads[0].counted_readings, threads, ticks)


def job(*accounts: ProcessAccount, processes: tuple[Process, ...]) -> Snapshot:
    longest_s = max((each.main.whole().observed_s for each in accounts), default=0.0)
    readings = max((each.readings for each in accounts), default=0)
    known = {each.process: each for each in accounts}
    return replace(
        snapshot_of(*processes),
        account=Account(pid(MAIN), NOW_S - longest_s, NOW_S, readings, known),
    )


def test_a_sentence_names_the_largest_shares_and_sums_the_rest() -> None:
    shares = (
        Share(BATCHES, 0.71),
        Share(at("train.py:57 step"), 0.22),
        Share(SLEEPS, 0.05),
        Share(Activity("stopped", "by a signal"), 0.01),
        Share(Activity("idle", "work"), 0.01),
    )

    assert sentence(shares, NAMES) == (
        "71% waiting for batches from worker 2, 22% computing at train.py:57 step, 5% sleeping,"
        " 2% other"
    )


def test_the_places_of_one_activity_are_one_part_with_the_largest_named() -> None:
    shares = (Share(at("a.py:1 f"), 0.5), Share(at("b.py:2 g"), 0.3), Share(at(""), 0.2))

    assert sentence(shares, {}) == "100% computing (50% at a.py:1 f, 30% at b.py:2 g)"


def test_one_place_stands_for_most_of_an_activity() -> None:
    shares = (Share(at("a.py:1 f", "Python code"), 0.6), Share(at(""), 0.4))

    assert sentence(shares, {}) == "100% computing, mostly at a.py:1 f"


def test_a_place_of_a_small_part_is_not_named() -> None:
    shares = (Share(at(""), 0.9), Share(at("a.py:1 f"), 0.1))

    assert sentence(shares, {}) == "100% computing"


def test_code_is_named_where_most_stacks_show_it() -> None:
    shares = (Share(at("a.py:1 f", "native code"), 1.0),)

    assert sentence(shares, {}) == "100% computing in native code at a.py:1 f"


def test_without_shares_nothing_was_observed() -> None:
    assert sentence((), {}) == "not observed yet"


def test_every_kind_of_activity_has_words() -> None:
    assert activity_words(Activity("idle", "work"), {}) == "idle (waits for work)"
    assert activity_words(Activity("stopped", "by a signal"), {}) == "stopped by a signal"
    assert activity_words(Activity("spinning"), {}) == "polling without pause"
    assert activity_words(Activity("unknown", "hidden"), {}) == "unknown (hidden)"


def test_a_small_share_is_not_zero() -> None:
    assert [share_text(share) for share in (0.0, 0.001, 0.5, 1.0)] == [
        "0%",
        "<1%",
        "50%",
        "100%",
    ]


def test_other_threads_are_shown_if_they_compute() -> None:
    waits = one(pid(MAIN), (BATCHES, 20))
    busy = one(pid(901), (at(""), 20), cores=0.8)

    words = process_words(account(waits, busy, busy), NAMES)

    assert words == (
        "100% waiting for batches from worker 2; 2 other threads computed for 160% of a core"
    )


def test_idle_threads_are_not_shown() -> None:
    waits = one(pid(MAIN), (BATCHES, 20))

    assert ";" not in process_words(account(waits, one(pid(901), (SLEEPS, 20))), NAMES)


def test_each_process_has_a_row_and_the_whole_time_where_it_is_longer() -> None:
    shown = job(
        account(one(pid(MAIN), (BATCHES, 80), (SLEEPS, 80))),
        account(one(pid(200), (SLEEPS, 20)), of=200),
        processes=(main(threads=[thread(MAIN)]), process(200, label="worker 0")),
    )

    rows = account_rows(shown)

    assert [row.name for row in rows] == ["main", "worker 0"]
    assert rows[0].recent == "100% sleeping"
    assert rows[0].whole.startswith("50% sleeping, 50% waiting for batches")
    assert rows[0].whole.endswith("; over 3 min")
    assert rows[1].whole == ""


def test_many_workers_share_a_row() -> None:
    workers = [process(200 + n, label=f"worker {n}") for n in range(TOGETHER)]
    accounts = [
        account(one(each.process, (SLEEPS if n else BATCHES, 10)), of=each.pid)
        for n, each in enumerate(workers)
    ]

    rows = account_rows(job(*accounts, processes=(main(), *workers)))

    assert [row.name for row in rows] == [f"{TOGETHER} workers, on average"]
    assert rows[0].recent.startswith("86% sleeping, 14% waiting")


def test_the_error_of_a_share_follows_from_the_readings() -> None:
    words = certainty_words(
        job(account(one(pid(MAIN), (SLEEPS, 40))), processes=(main(threads=[thread(MAIN)]),))
    )

    assert words.startswith("Watched for 40 s, 40 readings.")
    assert "off by 15 percentage points" in words
    assert "Without stacks the lines of the program are unknown." in words


def test_a_single_reading_is_said_to_be_no_share_of_time() -> None:
    single = ThreadAccount(MAIN, "python", SLEEPS, NOW_S, 0, 0)
    found = ProcessAccount(pid(MAIN), NOW_S, 1, (single,), (0,))

    assert "not a share of time" in certainty_words(job(found, processes=(main(),)))


def test_without_an_account_there_is_nothing_to_be_sure_of() -> None:
    assert certainty_words(job(processes=(main(),))) == ""
    assert NOTHING.shares() == ()


def test_passing_objects_on_is_no_other_computing() -> None:
    shares = [
        Share(Activity("computing", PICKLING, place="a.py:5 f"), 0.5),
        Share(Activity("computing", "Python code", place="a.py:9 g"), 0.3),
        Share(Activity("computing"), 0.2),
    ]

    words = sentence(shares, NAMES)

    assert words.startswith("50% pickling at a.py:5 f, 50% computing, mostly at a.py:9 g")


def test_a_wait_for_a_queue_has_one_name_whether_its_stack_is_new_or_not() -> None:
    place = "service.py:76 main"
    shares = (
        Share(Activity("waiting", "data on pipe 9", "pipe", (pid(202),), place), 0.35),
        Share(Activity("waiting", "an item of a queue", "queue", (), place), 0.13),
        Share(Activity("waiting", "data on pipe 9", "pipe", (), "other.py:1 f"), 0.12),
    )

    said = sentence(shares, NAMES)

    assert said.startswith(f"48% waiting for an item of a queue at {place}, 12% waiting for data")
