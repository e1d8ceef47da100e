"""A job whose workers start and exit all the time: the memory of the dashboard stays bounded."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.tui.app import MpwatchApp
from tests.builders.screen_job import MAIN, NOW_S, loader_worker, main_process, process
from tests.tui.scripted import ScriptedSource, loader_job

TICKS = 2_000
WORKERS = 12
EPOCH_TICKS = 4
ENDED_SHOWN = 48
MEASURED = (699, TICKS - 1)
"""By the first of these all bounds are reached: 600 samples of a process, 48 ended processes."""
SLACK = 900
"""Objects that come and go by chance (timers, caches of styles): up to 630 were seen.

A leak of one object per snapshot would be 1,300, one per process that has ended 3,900.
"""
LOOKS = 3
"""Of so many counts the least is taken: what a timer holds for the moment does not count."""


def started(epoch: int, number: int) -> Process:
    identity = ProcessId(1_000 + (epoch * WORKERS + number) % 30_000, 10_000 + epoch * WORKERS)
    part = loader_worker(number)
    return process(replace(part, identity=identity, label=f"worker {number}"))


def snapshots() -> Iterator[Snapshot]:
    """One snapshot a second; every four seconds all workers exit and others start."""
    job, main = loader_job(), main_process()
    ended: deque[Process] = deque(maxlen=ENDED_SHOWN)
    workers: list[Process] = []
    for tick in range(TICKS):
        at_s = NOW_S + tick
        if tick % EPOCH_TICKS == 0:
            ended += (replace(p, ended=Ended(p.process, at_s, exit_code=0)) for p in workers)
            workers = [started(tick // EPOCH_TICKS, number) for number in range(WORKERS)]
        busy = tick % WORKERS
        workers[busy] = replace(workers[busy], cpu_percent=float(tick % 100))
        yield replace(job, at_s=at_s, wall_s=job.wall_s + tick, processes=(main, *workers, *ended))


def living_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.slow
async def test_memory_does_not_grow_while_processes_start_and_exit() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source, title="train.py")
    counts: list[int] = []
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for tick, snapshot in enumerate(snapshots()):
            source.push(snapshot)
            while app.view_state.view is None or app.view_state.view.snapshot is not snapshot:
                await asyncio.sleep(0)
            source.asked.clear()
            if tick % 300 == 0 or tick in MEASURED:
                # Hidden pages keep the snapshot they were last shown with: all of them the newest.
                await pilot.press("1", "4", "8", "0", "down")
            if tick in MEASURED:
                looks = []
                for _ in range(LOOKS):
                    await pilot.pause(0.1)
                    looks.append(living_objects())
                counts.append(min(looks))

    settled, at_the_end = counts
    assert at_the_end < settled + SLACK
    assert app.view_state.view is not None
    assert app.view_state.view.snapshot.at_s == NOW_S + TICKS - 1
    assert MAIN in app.view_state.view.by_id
