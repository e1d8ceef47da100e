"""Figures of torch's CUDA allocator: asked of hooks on a key press, shown with their age."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import GpuUse, Snapshot
from mpwatch.observe.sources.source import ReadAllocators
from mpwatch.tui.app import MpwatchApp
from tests.builders.screen_job import GIB, MAIN, NOW_S, frames, worker_id
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, gpu_job, loader_job

pytestmark = pytest.mark.slow

SYNCHRONIZE = Frame("synchronize", "/usr/lib/python3.11/site-packages/torch/cuda/__init__.py", 954)


def requests(source: ScriptedSource) -> list[ReadAllocators]:
    return [command for command in source.asked if isinstance(command, ReadAllocators)]


def with_main_in_cuda(job: Snapshot) -> Snapshot:
    main = job.processes[0]
    stack = (SYNCHRONIZE, *frames(("step", "/home/ada/train/train.py", 57)))
    thread = replace(main.threads[0], stack=stack)
    changed = replace(main, threads=(thread, *main.threads[1:]))
    return replace(job, processes=(changed, *job.processes[1:]))


async def test_hooks_are_asked_once_per_press_and_only_for_processes_on_a_gpu() -> None:
    source = ScriptedSource(gpu_job())
    app = MpwatchApp(source)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("7")
        source.push(gpu_job())
        await pilot.pause()
        assert requests(source) == []

        await pilot.press("a")
        source.push(gpu_job())
        await pilot.pause()

        assert requests(source) == [ReadAllocators((MAIN, worker_id(3)))]


async def test_a_process_with_a_thread_in_a_cuda_call_is_left_out_with_the_reason() -> None:
    source = ScriptedSource(with_main_in_cuda(gpu_job()))
    app = MpwatchApp(source)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await pilot.press("7", "a")
        await pilot.pause()

        assert requests(source) == [ReadAllocators((worker_id(3),))]
        shown = screen_text(app)
        assert "Not asked" in shown
        assert "synchronize" in shown


async def test_where_every_process_may_wait_for_the_gpu_nothing_is_sent() -> None:
    job = with_main_in_cuda(gpu_job())
    gpu = job.gpus[0]  # type: ignore[index]
    source = ScriptedSource(replace(job, gpus=(replace(gpu, processes=gpu.processes[:1]),)))
    app = MpwatchApp(source)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await pilot.press("7", "a")
        await pilot.pause()

        assert requests(source) == []
        assert "synchronize" in screen_text(app)


async def test_the_key_works_on_the_gpu_page_of_a_running_job_only() -> None:
    live = ScriptedSource(gpu_job())
    replay = ScriptedSource(gpu_job(), is_live=False)
    for source, page in ((live, "1"), (replay, "7")):
        app = MpwatchApp(source)
        async with app.run_test(size=(120, 36)) as pilot:
            await pilot.press(page, "a")
            await pilot.pause()

        assert requests(source) == []


async def test_an_answer_is_shown_with_its_age() -> None:
    job = gpu_job()
    main = replace(job.processes[0], gpus=(GpuUse(0, 31 * GIB),))
    source = ScriptedSource(replace(job, processes=(main, *job.processes[1:])))
    app = MpwatchApp(source)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("7")
        await pilot.pause()
        assert "have not been read" in screen_text(app)

        source.push(job)
        await pilot.pause()

        shown = screen_text(app)
        assert "holds 29.0G of the GPU's memory, 24.0G of it in tensors; read 12 s ago" in shown


async def test_a_hook_that_cannot_read_the_allocator_says_why() -> None:
    job = gpu_job()
    reading = {"cuda": {"error": "RuntimeError: no driver"}}
    main = replace(job.processes[0], gpus=(GpuUse(0, 31 * GIB),), gauges=reading)
    app = MpwatchApp(ScriptedSource(replace(job, processes=(main, *job.processes[1:]))))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("7")
        await pilot.pause()

        assert "RuntimeError: no driver" in screen_text(app)


async def test_the_page_names_the_key_and_its_condition() -> None:
    app = MpwatchApp(ScriptedSource(gpu_job()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("7")
        await pilot.pause()

        assert "press a to ask the hooks; not while a kernel is stuck" in screen_text(app)


async def test_without_a_gpu_the_page_does_not_offer_the_figures() -> None:
    app = MpwatchApp(ScriptedSource(replace(loader_job(), gpus=(), at_s=NOW_S)))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("7")
        await pilot.pause()

        assert "press a" not in screen_text(app)
