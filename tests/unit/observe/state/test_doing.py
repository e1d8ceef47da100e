from __future__ import annotations

import pytest

from mpwatch.model.samples import Ended, Frame, WaitedOn
from mpwatch.model.snapshot import Thread, WorkerLoad
from mpwatch.observe.state.process_builder import doing, stack_words, wait_words
from tests.builders.samples import MAIN

TORCH = "/opt/x/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py"


def test_a_stack_is_described_by_the_users_line_and_the_call_in_it() -> None:
    frames = (
        Frame("convert", "/x/site-packages/PIL/Image.py", 804),
        Frame("decode", "/home/u/data.py", 31),
        Frame("fetch", TORCH, 52),
    )

    assert stack_words(frames) == "data.py:31 decode -> Image.py:804 convert"


def test_a_stack_without_a_line_of_the_user_is_described_by_its_top() -> None:
    assert stack_words((Frame("fetch", TORCH, 52),)) == "fetch.py:52 fetch"


def test_a_system_call_is_described_by_its_target() -> None:
    waits_on = WaitedOn("pipe-read", "read", ("pipe:[18174]",))

    assert wait_words(waits_on) == "waits for data on pipe 18174"


def test_the_open_of_a_fifo_says_what_it_waits_for() -> None:
    target = "a process that opens /tmp/f for reading"

    assert wait_words(WaitedOn("unknown", "openat", (target,))) == f"waits for {target}"
    assert wait_words(WaitedOn("unknown", "openat", ())) == "in openat"


def test_the_state_reported_by_the_hook_takes_precedence_over_the_stack() -> None:
    thread = Thread(1, "python", "S", stack=(Frame("decode", "/home/u/data.py", 31),))
    load = WorkerLoad(worker_id=0, task=None)

    assert doing("loader-worker", "S", [thread], load, [], None) == "waits for work"


def test_a_stopped_or_exited_process_is_described_by_its_state() -> None:
    assert doing("other", "T", [], None, [], None) == "stopped by a signal"
    assert doing("other", "Z", [], None, [], None).startswith("zombie")
    assert doing("other", "S", [], None, [], Ended(MAIN, 1.0, exit_code=3)) == "ended: exit code 3"


def test_without_stack_and_call_the_state_is_shown() -> None:
    assert doing("other", "R", [], None, [], None) == "running"


LIBRARY = "/opt/x/lib/python3.11"
GET = (
    Frame("select", f"{LIBRARY}/selectors.py", 415),
    Frame("get", f"{LIBRARY}/multiprocessing/queues.py", 113),
)


@pytest.mark.parametrize(
    ("caller", "words"),
    [
        (
            Frame("_worker_loop", f"{LIBRARY}/site-packages/torch/utils/data/_utils/worker.py", 1),
            True,
        ),
        (Frame("worker", f"{LIBRARY}/multiprocessing/pool.py", 1), True),
        (Frame("_process_worker", f"{LIBRARY}/concurrent/futures/process.py", 1), True),
        (Frame("worker", "/home/u/serve.py", 7), False),
    ],
)
def test_a_worker_without_a_hook_that_reads_its_next_task_waits_for_work(
    caller: Frame, words: bool
) -> None:
    thread = Thread(1, "python", "S", stack=(*GET, caller))

    told = doing("pool-worker", "S", [thread], None, [], None)

    assert told == ("waits for work" if words else "serve.py:7 worker -> selectors.py:415 select")


def test_a_batch_that_the_hook_reports_is_not_called_a_wait_for_work() -> None:
    caller = Frame("_worker_loop", f"{LIBRARY}/site-packages/torch/utils/data/_utils/worker.py", 1)
    thread = Thread(1, "python", "S", stack=(*GET, caller))
    load = WorkerLoad(worker_id=0, task=12)

    told = doing("loader-worker", "S", [thread], load, [], None)

    assert told.startswith("batch 12")
    assert "waits for work" not in told


def test_the_file_that_is_waited_for_follows_the_line() -> None:
    frames = (Frame("decode", "/home/u/data.py", 31),)
    opens = WaitedOn("unknown", "openat", ("a process that opens /run/orders for writing",))
    locks = WaitedOn("unknown", "flock", ("/data/index.lock",))
    reads = WaitedOn("pipe-read", "read", ("pipe:[18174]",))
    words = {
        wait: doing(
            "main", "S", [Thread(1, "python", "S", stack=frames, waits_on=wait)], None, [], None
        )
        for wait in (opens, locks, reads)
    }

    assert words == {
        opens: "data.py:31 decode, waits for a process that opens /run/orders for writing",
        locks: "data.py:31 decode, waits for the lock on /data/index.lock",
        reads: "data.py:31 decode",
    }


def test_a_stack_from_before_the_thread_ran_is_not_used() -> None:
    frames = (Frame("decode", "/home/u/data.py", 31),)
    ran = Thread(1, "python", "R", stack=frames, stack_age_s=60.0, still_s=1.0)
    stands = Thread(1, "python", "S", stack=frames, stack_age_s=60.0, still_s=80.0)

    assert doing("main", "R", [ran], None, [], None) == "running"
    assert doing("main", "S", [stands], None, [], None) == "data.py:31 decode"
