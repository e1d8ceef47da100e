"""Names of processes outside the tree."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Hook, Loader, Process, WorkerLoad
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import text_of
from mpwatch.tui.pages import loader
from tests.builders.screen_job import main_process, worker
from tests.tui.scripted import loader_job
from tests.unit.tui.rows import row_text


def named(*processes: Process) -> list[str]:
    view = SnapshotView(replace(loader_job(), processes=processes))
    return [view.name(process.process) for process in processes]


def rank(number: int) -> Process:
    main = main_process()
    return replace(main, process=ProcessId(100 + number, 1), label=f"rank {number}")


def worker_of(parent: Process, number: int, pid: int) -> Process:
    return replace(worker(number), process=ProcessId(pid, 1), parent=parent.process)


def test_a_unique_label_is_the_name() -> None:
    main = main_process()
    assert named(main, worker_of(main, 0, 7), worker_of(main, 1, 8)) == [
        "main", "worker 0", "worker 1",
    ]  # fmt: skip


def test_workers_of_several_ranks_have_the_rank_in_their_name() -> None:
    ranks = rank(0), rank(1)
    workers = [worker_of(each, 0, 7 + n) for n, each in enumerate(ranks)]
    assert named(*ranks, *workers) == [
        "rank 0", "rank 1", "worker 0 of rank 0", "worker 0 of rank 1",
    ]  # fmt: skip


def test_the_loader_page_shows_the_rank_of_workers() -> None:
    ranks = rank(0), rank(1)
    workers = [worker_of(each, 0, 7 + n) for n, each in enumerate(ranks)]
    view = SnapshotView(replace(loader_job(), processes=(*ranks, *workers)))

    assert [row_text(loader.PAGE, each, view, 11)[:11] for each in workers] == [
        "0 of rank 0", "0 of rank 1",
    ]  # fmt: skip
    assert [row_text(loader.PAGE, each, view, 9)[:9] for each in workers] == [
        "0 of r… 0", "0 of r… 1",
    ]  # fmt: skip


def test_the_loader_page_lists_the_workers_of_one_rank_below_each_other() -> None:
    ranks = rank(0), rank(1)
    workers = [worker_of(ranks[n % 2], n // 2, 7 + n) for n in range(4)]
    view = SnapshotView(replace(loader_job(), processes=(*ranks, *workers), loaders=()))

    assert [view.name(each.process) for each in loader.items(view)] == [
        "worker 0 of rank 0", "worker 1 of rank 0", "worker 0 of rank 1", "worker 1 of rank 1",
    ]  # fmt: skip


def test_the_loader_page_says_which_figures_need_the_hook() -> None:
    main = main_process()
    unknown = replace(worker_of(main, 0, 7), loader=None)
    job = replace(loader_job(), loaders=(), processes=(main, unknown))

    bare = replace(job, processes=tuple(replace(each, hook=Hook()) for each in job.processes))

    (said,) = loader.above(SnapshotView(bare), 80)
    assert text_of(said) == (
        " Fetch times, queues and waiting need the hook: press i to inject the hook."
    )
    (said,) = loader.above(SnapshotView(job), 80)
    assert text_of(said).endswith("need the hook; they appear with the next batches.")
    assert len(loader.above(SnapshotView(loader_job()), 80)) == 2
    assert loader.above(SnapshotView(replace(job, processes=(main,))), 80) == ()


def test_workers_of_two_loaders_have_the_pid_in_their_name() -> None:
    main = main_process()
    workers = [worker_of(main, 0, 7), worker_of(main, 0, 8)]
    assert named(main, *workers)[1:] == ["worker 0 7", "worker 0 8"]


def test_an_ended_worker_does_not_change_the_name_of_a_running_one() -> None:
    main = main_process()
    ended = replace(worker_of(main, 0, 7), ended=Ended(ProcessId(7, 1), 1.0))
    assert named(main, ended, worker_of(main, 0, 8))[1:] == ["worker 0 7", "worker 0"]


def test_other_children_with_one_label_have_the_pid_in_their_name() -> None:
    spawned = [
        replace(main_process(), process=ProcessId(pid, 1), label="spawned") for pid in (7, 8)
    ]
    assert named(*spawned) == ["spawned 7", "spawned 8"]


def test_loaders_of_one_process_are_told_apart_on_their_page() -> None:
    main = main_process()
    train, val = (
        replace(worker_of(main, 0, pid), loader=WorkerLoad(0, loader=key), label="worker 0")
        for pid, key in ((7, 3), (8, 5))
    )
    facts = {"place": "train.py:76", "dataset": "Pictures", "batch_size": 32}
    loaders = (
        Loader(main.process, 3, 1, 2, process_wait_share=0.2, wait_share=0.15, data=facts),
        Loader(main.process, 5, 1, 2, process_wait_share=0.2, wait_share=0.05, parked=2),
    )
    view = SnapshotView(replace(loader_job(), processes=(main, train, val), loaders=loaders))

    said = [text_of(each) for each in loader.above(view, 100)]

    assert said == [
        " DataLoader 1 of main at train.py:76  Pictures, batches of 32  1 worker  prefetch 2",
        "   main waited 15% of the last minute",
        " DataLoader 2 of main  1 worker  prefetch 2",
        "   main waited 5% of the last minute  out of order 2",
    ]
    assert [row_text(loader.PAGE, each, view, 11)[:11] for each in loader.items(view)] == [
        "0 loader 1 ", "0 loader 2 ",
    ]  # fmt: skip
