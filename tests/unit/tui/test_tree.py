"""The process tree as rows."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, FdSample, MapSample
from mpwatch.model.snapshot import Hook, Process
from mpwatch.model.waits import WaitGraph
from mpwatch.tui.elements.page import Order, SnapshotView
from mpwatch.tui.elements.styled_text import cell, drawn, text_of
from mpwatch.tui.pages import tree
from tests.builders.screen_job import MAIN, worker, worker_id
from tests.tui import scripted
from tests.tui.scripted import loader_job


def test_the_tree_lists_children_below_their_parent_and_findings_first(view: SnapshotView) -> None:
    found = tree.nodes(view, Order())

    assert [(node.process.label, node.depth) for node in found][:3] == [
        ("main", 0),
        ("worker 3", 1),
        ("worker 0", 1),
    ]


def test_a_folded_branch_shows_the_number_of_hidden_processes(view: SnapshotView) -> None:
    (only,) = tree.nodes(view, Order(), folded=frozenset({MAIN}))

    assert only.is_folded
    assert only.children == 5


def test_siblings_sort_by_a_column_and_unknown_values_go_last(view: SnapshotView) -> None:
    found = tree.nodes(view, Order("SHM"))

    assert found[-1].process.label == "resource-tracker"


@pytest.mark.parametrize(
    ("width", "name"),
    [(20, "subproc… 3"), (27, "subproc_vec_en… 3"), (40, "subproc_vec_env._worker 3")],
)
def test_a_name_that_has_to_be_cut_keeps_its_number(width: int, name: str) -> None:
    job = loader_job()
    long = replace(job.processes[1], label="subproc_vec_env._worker 3")
    view = SnapshotView(replace(job, processes=(job.processes[0], long)))
    found = tree.nodes(view, Order())[1]

    shown = text_of(drawn(tree.PAGE.row(found, view).cells[0], width))

    assert shown.endswith(f" {name}")
    assert len(shown) <= width


BUSY = worker(7)


@pytest.mark.parametrize(
    "later",
    [
        replace(BUSY, label="rank 7"),
        replace(BUSY, ended=Ended(BUSY.process, 9.0, 1)),
        replace(BUSY, cpu_percent=93.0),
        replace(BUSY, private_bytes=77 << 30),
        replace(BUSY, shm_bytes=78 << 30),
        replace(BUSY, sample=replace(BUSY.sample, fds=FdSample(77, 1024, 4096))),
        replace(BUSY, sample=replace(BUSY.sample, fds=FdSample(64, 99, 4096))),
        replace(BUSY, sample=replace(BUSY.sample, maps=MapSample(7777, 65530))),
        replace(BUSY, sample=replace(BUSY.sample, maps=MapSample(420, 7777))),
        replace(BUSY, sample=replace(BUSY.sample, thread_count=77)),
        replace(BUSY, sample=replace(BUSY.sample, state="D")),
        replace(BUSY, hook=Hook("silent")),
        replace(BUSY, role="forkserver", hook=Hook()),
        replace(BUSY, doing="data.py:31 decode"),
        replace(BUSY, trends=replace(BUSY.trends, cpu_percent=(0.0, 90.0))),
        replace(BUSY, trends=replace(BUSY.trends, fds=(3.0, 90.0))),
    ],
)
def test_the_row_of_a_process_that_has_changed_is_that_of_a_first_view(later: Process) -> None:
    job = scripted.loader_job()
    before = SnapshotView(replace(job, processes=(job.processes[0], BUSY)))
    old = tree.PAGE.row(tree.nodes(before, Order())[1], before)
    changed = replace(job, processes=(job.processes[0], later))
    view, first_view = SnapshotView(changed, rows_before=before.rows), SnapshotView(changed)

    row = tree.PAGE.row(tree.nodes(view, Order())[1], view)

    assert row == tree.PAGE.row(tree.nodes(first_view, Order())[1], first_view)
    assert row != old


def test_a_process_that_turns_out_to_be_a_helper_of_torch_has_no_word_for_a_hook() -> None:
    job, without = scripted.loader_job(), replace(BUSY, hook=Hook())
    before = SnapshotView(replace(job, processes=(job.processes[0], without)))
    old = tree.PAGE.row(tree.nodes(before, Order())[1], before)
    helper = replace(without, role="forkserver")
    changed = replace(job, processes=(job.processes[0], helper))
    view = SnapshotView(changed, rows_before=before.rows)

    row = tree.PAGE.row(tree.nodes(view, Order())[1], view)

    changes = [pair for pair in zip(old.cells, row.cells, strict=True) if pair[0] != pair[1]]
    assert changes == [(cell("absent", tree.HOOK_TONES["absent"]), cell("-", "dim"))]


@pytest.mark.parametrize(
    "place", [{"depth": 3}, {"children": 2}, {"children": 2, "is_folded": True}]
)
def test_the_row_of_a_process_at_another_place_is_that_of_a_first_view(place: Any) -> None:
    job = scripted.loader_job()
    before, first_view = SnapshotView(job), SnapshotView(job)
    node = tree.nodes(before, Order())[1]
    old = tree.PAGE.row(node, before)
    later = replace(node, **place)

    row = tree.PAGE.row(later, SnapshotView(job, rows_before=before.rows))

    assert row == tree.PAGE.row(later, first_view)
    assert row != old


def test_a_new_finding_marks_the_row_of_an_unchanged_process() -> None:
    job = scripted.loader_job()
    before, view = SnapshotView(replace(job, findings=())), SnapshotView(job)
    nodes = {node.process.process: node for node in tree.nodes(view, Order())}
    marked = nodes[next(each.process for each in job.findings if each.process in nodes)]
    old = tree.PAGE.row(marked, before)

    view = SnapshotView(job, rows_before=before.rows)

    assert (old.mark.text, tree.PAGE.row(marked, view).mark.text != " ") == (" ", True)


def test_a_process_whose_parent_is_not_observed_is_still_shown() -> None:
    job = loader_job()
    orphan = replace(job.processes[1], parent=ProcessId(1, 0))
    found = tree.nodes(SnapshotView(replace(job, processes=(job.processes[0], orphan))), Order())

    assert [node.depth for node in found] == [0, 0]


def test_an_orphan_stays_below_its_former_parent() -> None:
    job = scripted.ended_job()
    orphans = tuple(replace(p, parent=None, original_parent=MAIN) for p in job.processes[1:])
    found = tree.nodes(SnapshotView(replace(job, processes=(job.processes[0], *orphans))), Order())

    assert [node.depth for node in found] == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("letter", "word"), [("R", "running"), ("D", "D sleep"), ("T", "stopped"), ("Z", "zombie")]
)
def test_the_state_letter_is_shown_as_a_word(letter: str, word: str, view: SnapshotView) -> None:
    process = view.snapshot.processes[1]
    changed = replace(process, sample=replace(process.sample, state=letter))

    assert view.state(changed) == word


def test_waiting_for_work_is_idle_and_waiting_for_a_batch_is_waiting(view: SnapshotView) -> None:
    assert view.state(view.by_id[worker_id(0)]) == "idle"
    assert view.state(view.by_id[MAIN]) == "waiting"


def test_a_sleeping_process_that_used_much_cpu_is_running(view: SnapshotView) -> None:
    bare = SnapshotView(replace(view.snapshot, waits=WaitGraph()))
    busy = replace(bare.snapshot.processes[1], cpu_percent=80.0)

    assert bare.state(busy) == "running"


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, "-"), (0, "0"), (9999, "9999"), (10_000, "10k"), (65_530, "66k"), (1_048_576, "1.0M")],
)
def test_counts_in_narrow_columns(count: int | None, words: str) -> None:
    assert tree.short_count(count) == words


def test_building_the_tree_creates_no_reference_cycles() -> None:
    gc.collect()
    gc.disable()
    try:
        view = SnapshotView(loader_job())
        assert len(tree.nodes(view, Order())) > 2
        gone = weakref.ref(view)
        del view
        assert gone() is None
    finally:
        gc.enable()


def test_the_start_method_of_main_is_that_of_its_children(view: SnapshotView) -> None:
    words = {
        node.process.label: text_of(tree.explained(node, view, 200)[0])
        for node in tree.nodes(view, Order())
    }

    assert "starts by fork" in words["main"]
    assert "started by fork" in words["worker 3"]
