"""The pages of waits, events and threads."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import SourceLine, Statement
from mpwatch.model.waits import WaitGraph
from mpwatch.observe.sources.source import TakeStacks
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import text_of
from mpwatch.tui.pages import events, waits
from mpwatch.tui.pages.stacks import merged, threads
from mpwatch.tui.view_state import ViewState
from tests.builders.screen_job import MAIN, NOW_S, worker_id
from tests.tui.scripted import ScriptedSource, loader_job
from tests.unit.tui.rows import row_text


def test_a_chain_of_waits_ends_with_its_verdict(view: SnapshotView) -> None:
    found = waits.PAGE.items(view)

    assert [step.depth for step in found] == [0, 1, 2]
    assert "DEAD END" in row_text(waits.PAGE, found[-1], view)


def test_ordinary_waits_are_omitted_and_counted_on_an_empty_page() -> None:
    job = loader_job()
    idle = SnapshotView(replace(job, waits=WaitGraph(job.waits.edges[1:])))

    assert waits.PAGE.items(idle) == []
    assert "3 ordinary waits" in " ".join(waits.PAGE.empty(idle))


def test_events_are_newest_first(view: SnapshotView) -> None:
    assert [entry.sequence for entry in events.PAGE.items(view)] == [3, 2, 1]


def test_late_events_of_a_hook_are_sorted_by_their_time(view: SnapshotView) -> None:
    log = view.snapshot.log
    late = replace(log[-1], at_s=log[0].at_s - 5, sequence=log[-1].sequence + 1)
    told = SnapshotView(replace(view.snapshot, log=(*log, late)))

    assert [entry.sequence for entry in events.PAGE.items(told)] == [3, 2, 1, late.sequence]


def test_the_event_under_the_cursor_is_shown_in_full(view: SnapshotView) -> None:
    words = " ".join(f"word{n}" for n in range(40))
    entry = replace(view.snapshot.log[0], words=words, details={"text": words, "line": "  a"})

    lines = [text_of(each) for each in events.details(entry, view, 60)]

    assert max(map(len, lines)) <= 60
    assert sum(each.count("word39") for each in lines) == 2
    assert lines[-1].endswith("    a")


def test_a_page_of_one_process_does_not_say_that_the_job_has_no_events() -> None:
    job = SnapshotView(replace(loader_job(), log=()))

    assert events.PAGE.empty(job)[0] == "No events since mpwatch was started."
    assert events.PAGE.empty(job.scoped(worker_id(0)))[0] == (
        "No events of this process since mpwatch was started."
    )


def test_dropped_events_are_mentioned() -> None:
    dropped = SnapshotView(replace(loader_job(), log_dropped=12))

    assert "12 older events" in text_of(events.above(dropped, 80)[0])


def test_threads_show_the_programs_own_frame_and_the_innermost_one(view: SnapshotView) -> None:
    (item,) = [i for i in threads.items(view) if i.process.process == worker_id(3)]
    inner = Frame("convert", "/usr/lib/python3.11/site-packages/PIL/Image.py", 804)
    thread = replace(item.thread, stack=(inner, *item.thread.stack))

    words = row_text(threads.PAGE, threads.ThreadRow(item.process, thread), view)

    assert "data.py:31 decode -> convert" in words


def test_source_lines_and_locals_are_shown_beside_their_frames() -> None:
    frame = Frame("decode", "/home/ada/data.py", 31, (("path", "'a.png'"),))

    lines = threads.stack_lines((frame,), 100, {("/home/ada/data.py", 31): "img = open(path)"})

    assert "img = open(path)" in text_of(lines[0])
    assert "path = 'a.png'" in text_of(lines[1])


def test_the_lines_that_were_read_of_the_running_program_are_shown(view: SnapshotView) -> None:
    """They are also there in a replay, and of a process on another machine."""
    (item,) = [i for i in threads.items(view) if i.process.process == worker_id(3)]
    frame = item.thread.stack[0]
    statement = Statement(frame.line, "img = Image.open(path)")
    read = SourceLine(frame.file, frame.line, frame.function, statement)
    shown = SnapshotView(replace(view.snapshot, source=(read,)))

    lines = threads.PAGE.details(item, shown, 120)

    assert "img = Image.open(path)" in "\n".join(map(text_of, lines))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("train.py:5", "train.py:5"),
        ("/home/ada/train/data.py:31", "/home/ada/train/data.py:31"),
        ("/home/ada/projects/a/train/data.py:31", "…/ada/projects/a/train/data.py:31"),
        ("/a_very_long_file_name_of_a_program.py:31", "…long_file_name_of_a_program.py:31"),
    ],
)
def test_a_long_path_of_a_frame_is_cut_at_a_folder(path: str, shown: str) -> None:
    assert threads.shortened_path(path, 34) == shown


def test_merged_stacks_name_each_worker_and_say_when_their_stacks_are_old() -> None:
    job = loader_job()
    later_s = 70.0
    ranks = [
        replace(job.processes[0], process=ProcessId(50 + n, 1), label=f"rank {n}", role="rank")
        for n in (0, 1)
    ]
    busy, idle = job.processes[4], job.processes[1]
    workers = [
        replace(
            like,
            process=ProcessId(60 + n, 1),
            parent=ranks[n % 2].process,
            label=f"worker {number}",
            sample=replace(like.sample, worker_id=number),
            threads=tuple(replace(thread, still_s=0.0) for thread in like.threads),
        )
        for n, (like, number) in enumerate(((busy, 0), (busy, 0), (idle, 0), (idle, 1)))
    ]
    view = SnapshotView(replace(job, at_s=job.at_s + later_s, processes=(*ranks, *workers)))

    rows = "\n".join(row_text(merged.PAGE, each, view, 60) for each in merged.PAGE.items(view))
    above = " ".join(text_of(each) for each in merged.PAGE.above(view, 200))

    assert "worker 0 60, worker 0 of rank 1 in data.py:31 decode" in rows
    assert "worker 0 62, worker 1 wait for work in Queue.get" in rows
    assert "rank 0, rank 1 " in rows
    assert above.endswith("; the oldest stack was taken 70 s ago")
    assert "oldest" not in text_of(merged.PAGE.above(SnapshotView(job), 200)[-1])


def test_variables_stay_as_long_as_the_calls_are_the_same() -> None:
    bare = (Frame("step", "/home/u/train.py", 57),)
    shown = (bare[0]._replace(locals=(("x", "<Tensor at 0x7f>"), ("n", "3"))),)
    state = ViewState(ScriptedSource(loader_job()), "train.py")
    state.ask(TakeStacks(MAIN, locals=True))

    def details(stack: tuple[Frame, ...], at_s: float) -> list[str]:
        job = loader_job()
        main, *others = job.processes
        first = replace(main.threads[0], stack=stack, stack_at_s=at_s)
        main = replace(main, threads=(first, *main.threads[1:]))
        state.arrived(replace(job, processes=(main, *others)))
        assert state.view is not None
        process = state.view.by_id[MAIN]
        row = threads.ThreadRow(process, process.threads[0])
        return [text_of(each) for each in threads.PAGE.details(row, state.view, 120)]

    taken = details(shown, NOW_S - 2)
    later = details(bare, NOW_S)
    elsewhere = details((bare[0]._replace(line=58),), NOW_S)

    assert any("x = <Tensor at 0x7f>" in each for each in taken)
    assert any("of 1 of these variables py-spy reads type and address alone" in x for x in later)
    assert any("n = 3" in each for each in later)
    assert "variables 2.0 s ago" in later[0]
    assert not any("n = 3" in each for each in elsewhere)
