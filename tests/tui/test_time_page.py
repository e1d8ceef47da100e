"""The account of time: the page that `w` opens."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.account import Account, Activity, ProcessAccount, ThreadAccount
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.tui.app import MpwatchApp
from tests.builders.progress import source as progress_source
from tests.builders.screen_job import MAIN, NOW_S, worker_id
from tests.tui.golden_text import check_golden
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, ended_job, loader_job, without_hook

pytestmark = pytest.mark.slow

SIZES = ((80, 24), (200, 60))
BATCHES = Activity("waiting", "batches", "batch", (worker_id(3),))
STEP = Activity("computing", "Python code", place="train.py:57 step")
DECODE = Activity("computing", "native code", place="data.py:31 decode")
FILE = Activity("waiting", "/data/shard-3.tar (a disk or file server)", "file")
WORK = Activity("idle", "work")


def thread(tid: int, name: str, *did: tuple[Activity, int]) -> ThreadAccount:
    """A thread over 100 s: each activity for some seconds; computing takes all of its cpu."""
    at_s, ticks = NOW_S - 100.0, 0
    found = ThreadAccount(tid, name, did[0][0], at_s, 0, 0)
    for number, (activity, seconds) in enumerate(did, start=1):
        at_s += seconds
        ticks += 100 * seconds if activity.kind == "computing" else 0
        # As many readings as seconds.
        found = found._replace(now=activity, counted_readings=number - seconds)
        found = found.counted(at_s, number, ticks, 100)
    return found


def process(identity: ProcessId, *threads: ThreadAccount) -> ProcessAccount:
    ticks = tuple(each.counted_ticks for each in threads)
    return ProcessAccount(identity, NOW_S, threads[0].counted_readings, threads, ticks)


def accounted(job: Snapshot) -> Snapshot:
    """The job with an account of 100 seconds."""
    main = (
        thread(MAIN.pid, "MainThread", *[(BATCHES, 15), (STEP, 5)] * 5),
        thread(MAIN.pid + 900, "pt_data_pin", (Activity("idle", "something to do"), 100)),
    )
    accounts = [process(MAIN, *main)]
    accounts += [
        process(
            worker_id(n), thread(worker_id(n).pid, "MainThread", *[(WORK, 18), (DECODE, 2)] * 5)
        )
        for n in range(3)
    ]
    slow = thread(worker_id(3).pid, "MainThread", *[(FILE, 14), (DECODE, 6)] * 5)
    accounts.append(process(worker_id(3), slow))
    account = Account(MAIN, NOW_S - 100.0, NOW_S, 200, {each.process: each for each in accounts})
    batches = progress_source(12.0, 160, 3.0, 100, begin_s=NOW_S - 260.0, process=MAIN)
    tensors = progress_source(24.0, 219, begin_s=NOW_S - 260.0, process=MAIN)
    return replace(job, account=account, progress=(batches, tensors._replace(kind="tensors")))


async def shown(job: Snapshot, *keys: str, size: tuple[int, int] = (120, 36)) -> str:
    app = MpwatchApp(ScriptedSource(job), title="train.py")
    async with app.run_test(size=size) as pilot:
        await pilot.press("w", *keys)
        await pilot.pause()
        return screen_text(app)


async def shown_after(job: Snapshot, *keys: str) -> list[str]:
    """The screen of one dashboard after each key."""
    texts = []
    app = MpwatchApp(ScriptedSource(job), title="train.py")
    async with app.run_test(size=(120, 36)) as pilot:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
            texts.append(screen_text(app))
    return texts


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_page_matches_its_golden_text(size: tuple[int, int]) -> None:
    text = await shown(accounted(loader_job()), size=size)

    check_golden(f"time-{size[0]}x{size[1]}", text)


async def test_a_process_of_several_shows_its_own_progress() -> None:
    job = accounted(loader_job())
    other = progress_source(2.0, 260, begin_s=NOW_S - 260.0, process=worker_id(0))

    text = await shown(replace(job, progress=(*job.progress, other)), size=(130, 40))
    alone = await shown(job, size=(130, 40))

    assert "batches of 2 processes" in text
    assert text.count("3.0/s for 100 s") == 1  # of main alone; together they are 5.0
    assert "5.0/s for 100 s, 14/s before that" in text
    assert " progress" not in alone


async def test_without_the_hook_progress_is_unknown() -> None:
    job = accounted(without_hook())

    assert "Progress is unknown without the hook." in await shown(replace(job, progress=()))


async def test_right_shows_the_threads_of_a_process_and_left_hides_them() -> None:
    before, unfolded, folded = await shown_after(accounted(loader_job()), "w", "right", "left")

    assert "pt_data_pin" not in before
    assert "pt_data_pin" in unfolded
    assert "pt_data_pin" not in folded


async def test_the_filter_finds_what_a_process_waits_for() -> None:
    text = await shown(accounted(loader_job()), "slash", *"shard-3", "enter")

    assert "worker 3" in text
    assert "worker 1" not in text


async def test_the_rows_sort_by_a_share() -> None:
    natural, by_cpu = await shown_after(accounted(loader_job()), "w", "greater_than_sign")

    assert natural.index("+ main") < natural.index("worker 3  ")
    assert by_cpu.index("worker 3  ") < by_cpu.index("+ main")


async def test_an_empty_page_says_why() -> None:
    text = await shown(loader_job())

    assert "No account of time yet." in text
    assert "begins with the first reading" in text


async def test_a_job_that_has_ended_keeps_its_account() -> None:
    text = await shown(accounted(ended_job()))

    assert "75%" in text
    assert "waiting for batches" in text


async def test_enter_opens_the_process() -> None:
    text = await shown(accounted(loader_job()), "enter")

    assert str(MAIN.pid) in text
    assert "LAST MINUTE" not in text


async def test_a_digit_leads_to_that_page_of_the_dashboard() -> None:
    on_time, on_files, on_waits = await shown_after(accounted(loader_job()), "w", "3", "6")

    assert "LAST MINUTE" in on_time
    assert "esc back" in on_time.splitlines()[-1]
    assert "LAST MINUTE" not in on_files
    assert on_files.splitlines()[-1].startswith(" 0 Job  1 Threads")
    assert on_waits != on_files


async def test_zero_leads_from_a_process_to_the_overview() -> None:
    on_process, on_overview = await shown_after(accounted(loader_job()), "enter", "0")

    assert "7 Flame" in on_process.splitlines()[-1]
    assert on_overview.splitlines()[-1].startswith(" 0 Job  1 Threads")
