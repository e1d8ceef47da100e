"""The pages of segments, descriptors, flows and loaders."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdLink
from mpwatch.model.snapshot import Flow, Trends
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import drawn, text_of
from mpwatch.tui.pages import files, flows, loader, shm
from mpwatch.tui.pages.process import memory_growth
from tests.builders.screen_job import MAIN, worker_id
from tests.tui.scripted import loader_job
from tests.unit.tui.rows import row_text


def test_segments_are_grouped_by_maker_and_line(view: SnapshotView) -> None:
    found = shm.PAGE.items(view)

    assert [len(made.segments) for made in found] == [6, 6, 6, 6]
    assert "collate.py:44 torch.stack" in row_text(shm.PAGE, found[0], view)


def test_a_named_segment_that_no_process_holds_is_counted_as_orphaned(view: SnapshotView) -> None:
    first, *rest = view.snapshot.segments
    orphan = replace(first, mappers=(), holders=(), is_linked=True)
    changed = SnapshotView(replace(view.snapshot, segments=(orphan, *rest)))

    assert "orphaned 1" in text_of(shm.above(changed, 120)[1])


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("pipe:[18174]", "pipe"),
        ("/dev/shm/torch_41827_3171_9 (deleted)", "torch segments made by worker 1"),
        ("/dev/shm/torch_99_3171_9 (deleted)", "torch segments made by pid 99"),
        ("/data/train.bin", "/data/train.bin"),
    ],
)
def test_descriptors_are_grouped_by_their_target(
    target: str, words: str, view: SnapshotView
) -> None:
    assert files.pointed_to(FdLink(3, "other", target, None, None), view, {}) == words


@pytest.mark.parametrize(
    ("peer", "address", "words"),
    [
        (8, "unix", "unix, to worker 3"),
        (9, "unix", "unix"),
        (8, "tcp 10.0.0.1:40 > 10.0.0.1:29500", "tcp 10.0.0.1:40 > 10.0.0.1:29500, to worker 3"),
        (None, "tcp listens on *:29500", "tcp listens on *:29500"),
    ],
)
def test_sockets_show_the_process_at_the_other_end(
    peer: int | None, address: str, words: str, view: SnapshotView
) -> None:
    socket = FdLink(3, "socket", "socket:[7]", 7, None, peer=peer, address=address)

    assert files.pointed_to(socket, view, {8: "worker 3"}) == words


def test_leaked_descriptors_are_listed_first(view: SnapshotView) -> None:
    lines = files.details(view.by_id[MAIN], view, 120)

    assert "150  torch  torch segments made by worker 0" in text_of(lines[1])


def test_a_worker_much_slower_than_the_median_is_marked(view: SnapshotView) -> None:
    slow = loader.PAGE.row(view.by_id[worker_id(3)], view)
    normal = loader.PAGE.row(view.by_id[worker_id(0)], view)

    assert drawn(slow.cells[2], 9)[0].tone == "warning"
    assert drawn(normal.cells[2], 9)[0].tone == ""


def test_the_batch_that_main_waits_for_is_marked(view: SnapshotView) -> None:
    assert "main waits" in row_text(loader.PAGE, view.by_id[worker_id(3)], view)


@pytest.mark.parametrize(
    ("together", "picture"),
    [
        (1, ["────▶ "]),
        (2, ["──┬─▶ ", "──┘   "]),
        (3, ["──┐   ", "──┼─▶ ", "──┘   "]),
        (5, ["──┐   ", "──┤   ", "──┼─▶ ", "──┤   ", "──┘   "]),
    ],
)
def test_senders_are_joined_at_their_receiver(together: int, picture: list[str]) -> None:
    assert [flows.bracket(n, together) for n in range(together)] == picture


def test_flows_to_one_receiver_are_adjacent() -> None:
    there, back = Flow(worker_id(0), MAIN, 1, 1, 0), Flow(MAIN, worker_id(1), 1, 1, 0)
    other = Flow(worker_id(2), MAIN, 1, 1, 0)
    found = flows.PAGE.items(SnapshotView(replace(loader_job(), flows=(there, back, other))))

    assert [arrow.flow.receiver for arrow in found] == [MAIN, MAIN, worker_id(1)]


def test_a_low_rate_is_not_shown_as_zero() -> None:
    job = loader_job()
    seldom = tuple(replace(flow, tensors_per_s=0.2) for flow in job.flows)
    view = SnapshotView(replace(job, flows=seldom))

    words = row_text(flows.PAGE, flows.PAGE.items(view)[0], view)

    assert " 0.2 " in words


def test_the_page_of_one_process_counts_its_own_segments_only(view: SnapshotView) -> None:
    nobody = replace(view.snapshot.processes[-1], process=ProcessId(9, 9))
    job = replace(view.snapshot, processes=(*view.snapshot.processes, nobody))
    mine = SnapshotView(job).scoped(nobody.process)

    assert shm.PAGE.items(mine) == []
    assert text_of(shm.above(mine, 120)[1]).startswith(" segments 0,")
    assert text_of(shm.above(view, 120)[1]).startswith(" segments 24,")


def test_growth_of_memory_is_told_with_its_readings_and_not_below_a_mebibyte() -> None:
    process = loader_job().processes[0]

    def grown(*mebibytes: float) -> str:
        values = [each * (1 << 20) for each in mebibytes]
        return memory_growth(replace(process, trends=Trends(private_bytes=values)))

    assert grown(10, 11, 12, 15) == "+5.0M in 4 readings"
    assert grown(10, 10.1, 10.2, 10.3) == ""
    assert grown(10, 12, 11, 15) == ""
