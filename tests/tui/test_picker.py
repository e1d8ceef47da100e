"""Choosing a job from those that run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mpwatch.collect.job.jobs import Job, JobProcess
from mpwatch.model.ids import ProcessId
from mpwatch.tui.picker import PickerApp
from tests.tui.screen_text import screen_text


def job(pid: int, program: str) -> Job:
    root = JobProcess(
        process=ProcessId(pid, 100 + pid),
        parent_pid=1,
        role="main",
        name="python",
        cmdline=("python", program, "--lr", "0.1"),
        state="S",
        uid=0,
        rss_bytes=300 << 20,
        born_wall_s=1000.0,
        has_torch=True,
    )
    worker = replace(root, process=ProcessId(pid + 1, 101 + pid), role="loader-worker")
    return Job(root, (root, worker))


class Finder:
    def __init__(self, *jobs: Job) -> None:
        self.jobs: Sequence[Job] = jobs

    def __call__(self) -> Sequence[Job]:
        return self.jobs


async def test_the_chosen_job_is_what_the_picker_returns() -> None:
    app = PickerApp(Finder(job(4242, "train.py"), job(5000, "eval.py")), wall_clock=lambda: 1084.0)
    async with app.run_test(size=(100, 20)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        text = screen_text(app)
        await pilot.press("down", "enter")

    assert "2 torch jobs on this machine" in text
    assert "train.py" in text
    assert "84 s" in text
    assert app.return_value == ProcessId(4242, 4342)


async def test_an_empty_picker_says_why_and_what_would_fill_it() -> None:
    finder = Finder()
    app = PickerApp(finder, wall_clock=lambda: 1084.0)
    async with app.run_test(size=(100, 20)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        empty = screen_text(app)
        finder.jobs = (job(4242, "train.py"),)
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        filled = screen_text(app)

    assert "No torch job that this user may read" in empty
    assert "mpwatch run train.py" in empty
    assert "4242" in filled


async def test_the_cursor_stays_on_its_job_when_another_starts() -> None:
    finder = Finder(job(4242, "train.py"), job(5000, "eval.py"))
    app = PickerApp(finder, wall_clock=lambda: 1084.0)
    async with app.run_test(size=(100, 20)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press("down")
        finder.jobs = (job(9000, "new.py"), *finder.jobs)
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press("enter")

    assert app.return_value == ProcessId(4242, 4342)


async def test_quitting_the_picker_chooses_nothing() -> None:
    app = PickerApp(Finder(job(4242, "train.py")), wall_clock=lambda: 1084.0)
    async with app.run_test(size=(100, 20)) as pilot:
        await pilot.press("q")

    assert app.return_value is None


async def test_a_failed_search_is_explained() -> None:
    def fail() -> Sequence[Job]:
        raise PermissionError("/proc is hidden")

    app = PickerApp(fail)
    async with app.run_test(size=(100, 20)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()

        assert "/proc is hidden" in screen_text(app)


async def test_the_newest_torch_job_is_first_with_its_own_name_its_state_and_age() -> None:
    old, new, plain = job(4242, "train.py"), job(5000, "eval.py"), job(6000, "tool.py")
    command = ("python", "-m", "torch.distributed.run", "--nproc_per_node", "4", "ddp_train.py")
    launcher = replace(new.root, cmdline=command, role="launcher", has_torch=False)
    rank = replace(new.processes[1], role="rank", state="R")
    no_torch = tuple(replace(each, has_torch=False) for each in plain.processes)
    jobs = (old, Job(launcher, (launcher, rank)), Job(no_torch[0], no_torch))
    app = PickerApp(Finder(*jobs), wall_clock=lambda: 1084.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        rows = screen_text(app).splitlines()

    assert [line.split()[1] if line[0] == ">" else line.split()[0] for line in rows[2:5]] == [
        "5000",
        "4242",
        "6000",
    ]
    assert rows[2].split()[2:6] == ["ddp_train.py", "running", "84", "s"]
    assert "  ddp_train.py, by torch.distributed.run" in rows


async def test_a_spawned_process_without_its_parent_is_named_by_its_role() -> None:
    alone = job(4242, "train.py").root
    code = "from multiprocessing.spawn import spawn_main; spawn_main()"
    alone = replace(alone, cmdline=("python", "-c", code), role="spawned")
    app = PickerApp(Finder(Job(alone, (alone,))), wall_clock=lambda: 1084.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()

        assert screen_text(app).splitlines()[2].split()[1:4] == ["4242", "spawned", "sleeping"]
