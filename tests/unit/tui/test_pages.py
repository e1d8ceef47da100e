"""What pages say about a moment, without any screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdLink, Frame
from mpwatch.model.snapshot import Flow, Process, Snapshot
from mpwatch.model.waits import WaitGraph
from mpwatch.tui.present import (
    compare,
    endings,
    events,
    files,
    findings,
    flame,
    flows,
    gpu,
    loader,
    shm,
    status,
    threads,
    tree,
    waits,
)
from mpwatch.tui.present.cells import drawn, text_of
from mpwatch.tui.present.moment import Moment
from mpwatch.tui.present.page import Order, filtered, held, ordered
from tests.tui import scripted
from tests.tui.scripted import MAIN, NOW_S, loader_job, worker_id

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


@pytest.fixture
def moment() -> Moment:
    return Moment(loader_job())


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
def test_every_row_has_a_cell_for_every_column_and_a_key_of_its_own(page, world) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    moment = Moment(world())
    items = page.items(moment)

    rows = [page.row(item, moment) for item in items]

    assert {len(row.cells) for row in rows} <= {len(page.columns)}
    assert len({page.key(item) for item in items}) == len(items)
    assert [row.key for row in rows] == [page.key(item) for item in items]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_a_page_with_nothing_to_show_says_why_in_words(page) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    bare = replace(scripted.without_hook(), processes=(), gpus=None)

    first, *rest = page.empty(Moment(bare))

    assert first.endswith((".", "found"))
    assert all(words for words in rest)


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_every_page_explains_itself(page) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    assert page.help
    assert {column.letter for column in page.columns if column.letter}.isdisjoint("EG")
    assert set(page.sorts) <= {column.name for column in page.columns}


def row_text(page: object, item: object, moment: Moment) -> str:
    row = page.row(item, moment)  # type: ignore[attr-defined]
    return " ".join(text_of(drawn(found, 8)).strip() for found in row.cells)


# --- the tree ------------------------------------------------------------------------------------


def test_the_tree_puts_children_below_their_parents_and_trouble_first(moment: Moment) -> None:
    found = tree.nodes(moment, Order())

    assert [(node.process.label, node.depth) for node in found][:3] == [
        ("main", 0),
        ("worker 3", 1),
        ("worker 0", 1),
    ]


def test_a_folded_branch_counts_what_it_hides(moment: Moment) -> None:
    (only,) = tree.nodes(moment, Order(), folded=frozenset({MAIN}))

    assert only.is_folded
    assert only.children == 5


def test_siblings_sort_by_a_column_and_unknown_values_go_last(moment: Moment) -> None:
    found = tree.nodes(moment, Order("SHM"))

    assert found[-1].process.label == "resource-tracker"


def test_a_process_whose_parent_is_not_observed_is_still_shown() -> None:
    job = loader_job()
    orphan = replace(job.processes[1], parent=ProcessId(1, 0))
    found = tree.nodes(Moment(replace(job, processes=(job.processes[0], orphan))), Order())

    assert [node.depth for node in found] == [0, 0]


def test_an_orphan_stays_below_the_parent_it_had() -> None:
    job = scripted.ended_job()
    orphans = tuple(replace(p, parent=None, original_parent=MAIN) for p in job.processes[1:])
    found = tree.nodes(Moment(replace(job, processes=(job.processes[0], *orphans))), Order())

    assert [node.depth for node in found] == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("letter", "word"), [("R", "running"), ("D", "disk"), ("T", "stopped"), ("Z", "zombie")]
)
def test_the_kernels_letter_is_shown_as_a_word(letter: str, word: str, moment: Moment) -> None:
    process = moment.snapshot.processes[1]
    changed = replace(process, sample=replace(process.sample, state=letter))

    assert moment.state(changed) == word


def test_waiting_for_work_is_idle_and_waiting_for_a_batch_is_waiting(moment: Moment) -> None:
    assert moment.state(moment.by_id[worker_id(0)]) == "idle"
    assert moment.state(moment.by_id[MAIN]) == "waiting"


def test_a_sleeper_that_used_much_cpu_is_at_work(moment: Moment) -> None:
    bare = Moment(replace(moment.snapshot, waits=WaitGraph()))
    busy = replace(bare.snapshot.processes[1], cpu_percent=80.0)

    assert bare.state(busy) == "running"


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, "-"), (0, "0"), (9999, "9999"), (10_000, "10k"), (65_530, "66k"), (1_048_576, "1.0M")],
)
def test_counts_in_narrow_columns(count: int | None, words: str) -> None:
    assert tree.short_count(count) == words


# --- order and filter ----------------------------------------------------------------------------


def test_numbers_sort_largest_first_and_words_in_order(moment: Moment) -> None:
    made = files.PAGE.items(moment)

    by_number = ordered(files.PAGE, made, Order("USED"))
    by_word = ordered(files.PAGE, made, Order("PROCESS"))

    assert by_number[0].label == "main"
    assert [p.label for p in by_word] == sorted(p.label for p in made)


def test_choosing_a_column_again_reverses_and_a_third_time_restores() -> None:
    order = Order().clicked("CPU")
    again = order.clicked("CPU")

    assert order == Order("CPU")
    assert again == Order("CPU", is_reversed=True)
    assert again.clicked("CPU") == Order()


def test_held_rows_keep_their_places_and_new_ones_come_last(moment: Moment) -> None:
    items = files.PAGE.items(moment)
    before = [files.PAGE.key(item) for item in reversed(items[1:])]

    found = held(files.PAGE, items, before)

    assert [files.PAGE.key(item) for item in found] == [*before, files.PAGE.key(items[0])]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [("", 6), ("worker", 5), ("WORKER idle", 3), ("worker -idle", 2), ("nowhere", 0)],
)
def test_a_filter_wants_every_word_and_none_with_a_minus(
    wanted: str, count: int, moment: Moment
) -> None:
    nodes = tree.nodes(moment, Order())

    assert len(filtered(tree.PAGE, nodes, moment, wanted)) == count


# --- findings ------------------------------------------------------------------------------------


def finding(rule: str, severity: Severity = Severity.WARNING, **changes: object) -> Finding:
    values = {"summary": rule, "evidence": ("seen",), "cause": "c", "advice": "a"}
    return Finding(rule=rule, severity=severity, **{**values, **changes})  # type: ignore[arg-type]


def test_effects_stand_below_their_cause_and_resolved_findings_last() -> None:
    cause = finding("fd-exhaustion-receiver", Severity.CRITICAL)
    effect = finding("worker-exited-unexpectedly", effect_of="fd-exhaustion-receiver")
    resolved = finding("straggler-worker", resolved_s=5.0)

    found = findings.with_effects([resolved, effect, cause])

    assert [f.rule for f in found] == [cause.rule, effect.rule, resolved.rule]


def test_an_effect_whose_cause_is_not_reported_stands_for_itself() -> None:
    effect = finding("worker-exited-unexpectedly", effect_of="fd-exhaustion-receiver")

    assert findings.with_effects([effect]) == [effect]


def test_findings_that_no_longer_hold_are_not_on_the_first_screen() -> None:
    job = replace(loader_job(), findings=(finding("x", resolved_s=5.0),))

    assert findings.standing(job) == []


def test_advice_is_shown_where_there_is_room_for_it() -> None:
    job = loader_job()

    assert [brief.is_advice for brief in findings.briefs(job, 2)] == [False, False]
    assert [brief.is_advice for brief in findings.briefs(job, 3)] == [False, True, False]


def test_without_any_hook_health_says_how_little_was_seen() -> None:
    words = text_of(findings.health(Moment(scripted.without_hook())))

    assert "seen from outside only" in words


# --- the other pages -----------------------------------------------------------------------------


def test_segments_are_grouped_by_maker_and_line(moment: Moment) -> None:
    found = shm.PAGE.items(moment)

    assert [len(made.segments) for made in found] == [6, 6, 6, 6]
    assert "collate.py:44 torch.stack" in row_text(shm.PAGE, found[0], moment)


def test_a_named_segment_that_nobody_holds_is_counted_as_orphaned(moment: Moment) -> None:
    first, *rest = moment.snapshot.segments
    orphan = replace(first, mappers=(), holders=(), is_linked=True)
    changed = Moment(replace(moment.snapshot, segments=(orphan, *rest)))

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
def test_descriptors_are_told_by_what_they_point_to(
    target: str, words: str, moment: Moment
) -> None:
    assert files.pointed_to(FdLink(3, "other", target, None, None), moment) == words


def test_the_descriptors_of_a_leak_stand_on_top(moment: Moment) -> None:
    lines = files.details(moment.by_id[MAIN], moment, 120)

    assert "150  torch  torch segments made by worker 0" in text_of(lines[1])


def test_a_worker_much_slower_than_the_middle_one_is_toned(moment: Moment) -> None:
    slow = loader.PAGE.row(moment.by_id[worker_id(3)], moment)
    normal = loader.PAGE.row(moment.by_id[worker_id(0)], moment)

    assert drawn(slow.cells[2], 9)[0].tone == "warning"
    assert drawn(normal.cells[2], 9)[0].tone == ""


def test_the_batch_everybody_waits_for_is_marked(moment: Moment) -> None:
    assert "main waits for it" in row_text(loader.PAGE, moment.by_id[worker_id(3)], moment)


@pytest.mark.parametrize(
    ("together", "picture"),
    [
        (1, ["────▶ "]),
        (2, ["──┬─▶ ", "──┘   "]),
        (3, ["──┐   ", "──┼─▶ ", "──┘   "]),
        (5, ["──┐   ", "──┤   ", "──┼─▶ ", "──┤   ", "──┘   "]),
    ],
)
def test_senders_meet_at_their_receiver(together: int, picture: list[str]) -> None:
    assert [flows.bracket(n, together) for n in range(together)] == picture


def test_flows_to_one_receiver_stand_together() -> None:
    there, back = Flow(worker_id(0), MAIN, 1, 1, 0), Flow(MAIN, worker_id(1), 1, 1, 0)
    other = Flow(worker_id(2), MAIN, 1, 1, 0)
    found = flows.PAGE.items(Moment(replace(loader_job(), flows=(there, back, other))))

    assert [arrow.flow.receiver for arrow in found] == [MAIN, MAIN, worker_id(1)]


def test_a_chain_of_waits_ends_with_its_verdict(moment: Moment) -> None:
    found = waits.PAGE.items(moment)

    assert [step.depth for step in found] == [0, 1, 2]
    assert "DEAD END" in row_text(waits.PAGE, found[-1], moment)


def test_ordinary_waits_are_left_out_and_counted_where_nothing_else_waits() -> None:
    job = loader_job()
    idle = Moment(replace(job, waits=WaitGraph(job.waits.edges[1:])))

    assert waits.PAGE.items(idle) == []
    assert "3 ordinary waits" in " ".join(waits.PAGE.empty(idle))


def test_events_are_newest_first(moment: Moment) -> None:
    assert [entry.sequence for entry in events.PAGE.items(moment)] == [3, 2, 1]


def test_a_dropped_part_of_the_log_is_said() -> None:
    dropped = Moment(replace(loader_job(), log_dropped=12))

    assert "12 older events" in text_of(events.above(dropped, 80)[0])


def test_threads_show_the_users_own_frame_and_what_it_called(moment: Moment) -> None:
    (item,) = [i for i in threads.items(moment) if i.process.process == worker_id(3)]
    inner = Frame("convert", "/usr/lib/python3.11/site-packages/PIL/Image.py", 804)
    thread = replace(item.thread, stack=(inner, *item.thread.stack))

    words = row_text(threads.PAGE, threads.InProcess(item.process, thread), moment)

    assert "decode train/data.py:31 -> convert" in words


def test_source_lines_and_locals_stand_beside_their_frames() -> None:
    frame = Frame("decode", "/home/ada/data.py", 31, (("path", "'a.png'"),))

    lines = threads.stack_lines((frame,), 100, lambda path, number: "img = open(path)")

    assert "img = open(path)" in text_of(lines[0])
    assert "path = 'a.png'" in text_of(lines[1])


# --- endings, status, comparing, flame -----------------------------------------------------------


def test_a_job_that_is_over_says_how_the_root_and_the_failed_ended() -> None:
    lines = [text_of(found) for found in endings.over_lines(scripted.ended_job())]

    assert "main (41823): signal 7 (SIGBUS)" in lines[0]
    assert lines[1].strip() == "worker 3 (41829): exit code 1"
    assert len(lines) == 2


def with_cmdline(*words: str) -> Process:
    main = loader_job().processes[0]
    return replace(main, sample=replace(main.sample, cmdline=words))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("python", "/home/ada/train.py", "--lr", "0.1"), "train.py"),
        (("python", "-u", "train.py"), "train.py"),
        (("python", "-m", "train.main"), "-m train.main"),
        (("python", "-c", "import x"), "-c"),
        (("python3", "/x/mpwatch/hook/run.py", "/home/ada/train.py"), "train.py"),
        ((), "python"),
    ],
)
def test_the_program_is_named_as_people_name_it(words: tuple[str, ...], name: str) -> None:
    assert status.program(with_cmdline(*words)) == name


def test_the_status_line_says_the_mode_at_every_width() -> None:
    viewing = status.Viewing("train.py", 1.0)
    for width in range(60, 201, 7):
        assert "LIVE 1/s" in text_of(status.header(loader_job(), viewing, width))


def test_helpers_of_torch_are_not_counted_as_lacking_a_hook() -> None:
    assert text_of(status.hooks_line(loader_job())) == "hook 5/5"


def test_lost_events_are_a_warning() -> None:
    job = loader_job()
    hook = replace(job.processes[0].hook, lost=7)
    changed = replace(job, processes=(replace(job.processes[0], hook=hook), *job.processes[1:]))

    assert status.lost_line(changed)[0] == ("lost 7", "warning")


def test_comparing_tells_growth_newcomers_and_those_that_went() -> None:
    before = loader_job()
    kept = before.processes[:-1]
    newcomer = replace(kept[1], process=ProcessId(50000, 1))
    after = replace(before, at_s=NOW_S + 30, processes=(*kept, newcomer))

    found = {pair.process: pair for pair in compare.pairs(before, after)}

    assert found[ProcessId(50000, 1)].before is None
    assert found[ProcessId(41840, 940)].after is None
    assert "30 s earlier, processes" not in text_of(compare.head(before, after))
    assert "processes came 1, went 1" in text_of(compare.head(before, after))


@pytest.mark.parametrize(("value", "words"), [(None, "-"), (0, "="), (5, "+5"), (-5, "-5")])
def test_changes_carry_their_sign(value: int | None, words: str) -> None:
    assert compare.signed(value) == words


def sampled(*names: str, at_s: float = 0.0) -> flame.Sampled:
    return flame.Sampled(at_s, tuple(Frame(name, f"/x/{name}.py", 1) for name in reversed(names)))


def test_the_flame_is_as_wide_as_its_shares() -> None:
    samples = [sampled("run", "load")] * 3 + [sampled("run", "train")]

    lines = [text_of(found) for found in flame.picture(samples, 80)]

    assert lines[-1].index("train 25%") == 61
    assert " load 75%" in lines[-1]


def test_the_hottest_function_is_the_one_most_samples_were_innermost_in() -> None:
    samples = [sampled("run", "load")] * 3 + [sampled("run", "train", "load")]

    found = flame.hottest(samples)

    assert (found[0].place.function, found[0].own, found[0].total) == ("load", 4, 4)
    assert (found[1].place.function, found[1].own, found[1].total) == ("run", 0, 4)


def test_a_recursive_function_is_counted_once_a_sample() -> None:
    found = flame.hottest([sampled("walk", "walk", "walk")])

    assert found[0].total == 1


def test_snapshots_of_one_scope_hold_that_process_only() -> None:
    snapshot: Snapshot = loader_job()
    scoped = Moment(snapshot).scoped(worker_id(1))

    assert [p.label for p in scoped.processes] == ["worker 1"]
    assert {arrow.flow.sender for arrow in flows.PAGE.items(scoped)} == {worker_id(1)}
