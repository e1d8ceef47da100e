"""Properties of every page."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.snapshot import Snapshot
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.pages import events, files, findings, flows, gpu, loader, shm, tree, waits
from mpwatch.tui.pages.stacks import threads
from tests.builders.screen_job import worker_id
from tests.tui import scripted
from tests.tui.scripted import loader_job

ALL_PAGES = (
    tree.PAGE,
    threads.PAGE,
    shm.PAGE,
    files.PAGE,
    loader.PAGE,
    flows.PAGE,
    waits.PAGE,
    gpu.PAGE,
    events.PAGE,
    findings.PAGE,
)
WORLDS = (scripted.loader_job, scripted.ended_job, scripted.without_hook, scripted.healthy_job)


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
def test_every_row_has_a_cell_for_every_column_and_a_key_of_its_own(page, world) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    view = SnapshotView(world())
    items = page.items(view)

    rows = [page.row(item, view) for item in items]

    assert {len(row.cells) for row in rows} <= {len(page.columns)}
    assert len({page.key(item) for item in items}) == len(items)
    assert [row.key for row in rows] == [page.key(item) for item in items]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_an_empty_page_says_why(page) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    bare = replace(scripted.without_hook(), processes=(), gpus=None)

    first, *rest = page.empty(SnapshotView(bare))

    assert first.endswith((".", "found"))
    assert all(words for words in rest)


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_every_page_has_help(page) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    assert page.help
    assert {column.letter for column in page.columns if column.letter}.isdisjoint("EG")
    assert set(page.sorts) <= {column.name for column in page.columns}


def test_a_view_limited_to_a_process_contains_only_that_process() -> None:
    snapshot: Snapshot = loader_job()
    scoped = SnapshotView(snapshot).scoped(worker_id(1))

    assert [p.label for p in scoped.processes] == ["worker 1"]
    assert {arrow.flow.sender for arrow in flows.PAGE.items(scoped)} == {worker_id(1)}
