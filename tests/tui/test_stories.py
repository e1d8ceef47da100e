"""Keys and clicks of a user, and what the dashboard shows then."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from textual.pilot import Pilot
from textual.screen import Screen

from mpwatch.model.findings import Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Playback, Snapshot
from mpwatch.observe.sources.source import Pause
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.screens.base import PagesScreen, TooSmallScreen
from mpwatch.tui.screens.dashboard import Dashboard, ProcessScreen
from mpwatch.tui.screens.texts import FindingScreen, HelpScreen
from mpwatch.tui.view_state import ViewState
from tests.builders.screen_job import MAIN, NOW_S, fd_finding, straggler_finding, worker_id
from tests.tui import scripted
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, loader_job


def dashboard(*snapshots: Snapshot, is_live: bool = True) -> tuple[MpwatchApp, ScriptedSource]:
    source = ScriptedSource(*(snapshots or (loader_job(),)), is_live=is_live)
    return MpwatchApp(source, title="train.py"), source


def front(app: MpwatchApp) -> Screen[Any]:
    return app.screen


async def push(pilot: Pilot[int], source: ScriptedSource, snapshot: Snapshot) -> None:
    source.push(snapshot)
    await pilot.pause()


async def test_the_overview_shows_each_finding_its_process_and_the_fix() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        text = screen_text(app)

    assert "CRITICAL main reaches its limit of 1024 fds in 38 s" in text
    assert "fix  Keep copies (batch.clone())" in text
    assert "waits for batch 417" in text


async def test_before_the_first_snapshot_the_screen_says_that_it_is_waiting() -> None:
    source = ScriptedSource()
    app = MpwatchApp(source, title="train.py")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "waiting for the first sample" in screen_text(app)
        await push(pilot, source, loader_job())
        assert "41823 main" in screen_text(app)


async def test_a_job_without_findings_is_shown_as_healthy() -> None:
    app, _ = dashboard(scripted.healthy_job())
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()

        assert "healthy nothing wrong found" in screen_text(app)


async def test_a_job_is_not_called_healthy_before_it_was_watched_for_long_enough() -> None:
    early = replace(scripted.healthy_job(), account=scripted.watched_for(8.0))
    app, _ = dashboard(early)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        text = screen_text(app)

    assert "watching nothing wrong found yet   watched for 8 s" in text
    assert "healthy" not in text


async def test_processes_with_findings_are_listed_before_their_siblings() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        keys = app.dashboard.overview.table.keys

    assert keys[:3] == (MAIN, worker_id(3), worker_id(0))


async def test_the_cursor_follows_its_process_when_rows_move() -> None:
    app, source = dashboard(scripted.healthy_job())
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("down", "down", "down", "down")
        assert app.dashboard.current_process == worker_id(3)
        app.dashboard.overview.table.last_input_s = float("-inf")
        await push(pilot, source, loader_job())

        assert app.dashboard.current_process == worker_id(3)
        assert app.dashboard.overview.table.cursor_index == 1


async def test_rows_do_not_move_while_keys_are_pressed() -> None:
    app, source = dashboard(scripted.healthy_job())
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("down")
        table = app.dashboard.overview.table
        assert table.last_input_s > float("-inf")
        # However slow the machine is: as if the key were pressed all the time.
        table.last_input_s = float("inf")
        before = table.keys
        await push(pilot, source, loader_job())

        assert table.keys == before


async def test_the_cursor_moves_to_the_neighbour_of_a_removed_process() -> None:
    app, source = dashboard(scripted.healthy_job())
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("down", "down")
        job = scripted.healthy_job()
        kept = tuple(p for p in job.processes if p.process != worker_id(1))
        await push(pilot, source, replace(job, processes=kept))

        assert app.dashboard.current_process == worker_id(2)


async def test_pause_freezes_a_live_screen_and_resuming_shows_the_newest_snapshot() -> None:
    app, source = dashboard(scripted.healthy_job())
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("space")
        await push(pilot, source, loader_job())
        paused = screen_text(app)
        await pilot.press("space")
        await pilot.pause()
        going = screen_text(app)

    assert "PAUSED" in paused
    assert "CRITICAL" not in paused
    assert "LIVE" in going
    assert "CRITICAL" in going
    assert not [asked for asked in source.asked if isinstance(asked, Pause)]


async def test_pause_in_a_replay_is_sent_to_the_source() -> None:
    at = Playback(at_s=62.0, length_s=600.0, speed=2.0)
    job = replace(loader_job(), mode="replay", playback=at)
    app, source = dashboard(job, is_live=False)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert "REPLAY 1:02 of 10:00 x2" in screen_text(app)
        await pilot.press("space")

    assert source.asked == [Pause(True)]


async def test_the_page_of_findings_opens_at_the_worst_one_and_marks_it() -> None:
    launcher = replace(straggler_finding(), severity=Severity.INFO, process=MAIN, rule="sighup")
    worst = replace(fd_finding(), process=worker_id(3))
    app, _ = dashboard(replace(loader_job(), findings=(worst, launcher)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert app.dashboard.current_process == MAIN
        await pilot.press("9")
        await pilot.pause()
        text = screen_text(app)
        assert "C>CRITICAL" in text
        assert "fix        Keep copies" in text

        await pilot.press("down")
        await pilot.press("6", "9")
        await pilot.pause()
        assert "C>CRITICAL" in screen_text(app)


async def test_details_have_the_rows_that_the_list_leaves_but_the_list_comes_first() -> None:
    job = loader_job()
    app, source = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("9")
        await pilot.pause()
        page_view = app.dashboard.page_view
        assert page_view.details.size.height == 22 - 1 - len(job.findings)

        many = tuple(replace(fd_finding(), rule=f"rule-{n}") for n in range(30))
        source.push(replace(job, findings=many))
        await pilot.pause()
        assert page_view.details.size.height == 12
        assert page_view.table.size.height == 10


async def test_a_filter_keeps_rows_that_contain_every_word() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("slash", *"worker", "space", *"idle", "enter")
        await pilot.pause()
        shown = app.dashboard.overview.table.keys
        text = screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        cleared = app.dashboard.overview.table.keys

    assert shown == (worker_id(0), worker_id(1), worker_id(2))
    assert "filter worker idle" in text
    assert len(cleared) == 6


async def test_a_filter_stays_with_its_screen_and_leaves_no_row_out_of_place() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        before = app.dashboard.overview.table.keys
        await pilot.press("slash", *"idle", "enter", "enter")
        await pilot.pause()
        assert isinstance(front(app), ProcessScreen)
        assert "matches the filter" not in screen_text(app)
        assert "pt_data_worker" in screen_text(app)

        await pilot.press("escape")
        await pilot.pause()
        assert "filter idle" in screen_text(app)
        assert len(app.dashboard.overview.table.keys) == 3

        await pilot.press("escape")
        await pilot.pause()
        assert app.dashboard.overview.table.keys == before


async def test_sorting_goes_through_the_columns_that_are_on_the_screen() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.press("less_than_sign")
        await pilot.pause()

        assert " FDSv " in screen_text(app)


async def test_a_page_has_the_same_digit_in_a_process() -> None:
    of_job = app_digits(Dashboard(ViewState(ScriptedSource(), "")))
    of_process = app_digits(ProcessScreen(ViewState(ScriptedSource(), ""), MAIN))

    both = of_job.keys() & of_process.keys()
    assert both == {"threads", "shm", "files", "flows", "waits", "events", "findings"}
    assert {name: of_job[name] for name in both} == {name: of_process[name] for name in both}


def app_digits(screen: PagesScreen) -> dict[str, str]:
    return {page.name: digit for digit, page in screen.pages.items()}


async def test_f_says_where_stacks_are_followed_before_it_stops_anything() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await pilot.press("f")
        await pilot.pause()

        assert "No longer following" not in screen_text(app)
        assert app.view_state.follows


async def test_a_filter_that_matches_nothing_says_so() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("slash", *"nosuchthing", "enter")
        await pilot.pause()

        assert "Nothing on this page matches the filter `nosuchthing`" in screen_text(app)


async def test_enter_opens_a_process_and_escape_goes_back() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("down", "enter")
        await pilot.pause()
        assert isinstance(front(app), ProcessScreen)
        assert "41829 worker 3" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert front(app) is app.dashboard


async def test_enter_on_a_finding_shows_evidence_cause_and_fix() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        app.dashboard.overview.findings_table.focus()
        await pilot.press("home", "enter")
        await pilot.pause()
        assert isinstance(front(app), FindingScreen)
        text = screen_text(app)

    assert "598 of them torch segments" in text
    assert "cause" in text
    assert "batch.clone()" in text


async def test_a_click_moves_the_cursor_and_a_second_click_opens() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        table = app.dashboard.overview.table
        await pilot.click(table, offset=(10, 3))
        assert app.dashboard.current_process == worker_id(0)
        await pilot.click(table, offset=(10, 3), times=2)
        await pilot.pause()
        assert isinstance(front(app), ProcessScreen)


async def test_a_click_on_a_tab_opens_its_page() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.click("#tabs", offset=(16, 0))
        await pilot.pause()

        assert app.dashboard.page_view.page.name == "threads"


async def test_a_click_on_a_header_sorts_and_a_second_reverses() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        table = app.dashboard.overview.table
        text = screen_text(app).splitlines()
        x = next(row for row in text if "PRIVATE" in row).index("PRIVATE") + 2
        await pilot.click(table, offset=(x, 0))
        await pilot.pause()
        largest_first = table.keys
        await pilot.click(table, offset=(x, 0))
        await pilot.pause()
        smallest_first = table.keys

    assert largest_first[1] == worker_id(3)
    assert smallest_first[1] == ProcessId(41840, 940)


async def test_a_column_letter_sorts_by_it() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("C")
        await pilot.pause()

        assert "CPUv" in screen_text(app)
        assert app.dashboard.overview.table.keys[1] == worker_id(3)


async def test_a_branch_folds_and_unfolds() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("left")
        await pilot.pause()
        folded = screen_text(app)
        await pilot.press("right")
        await pilot.pause()
        unfolded = screen_text(app)

    assert "> 41823 main +5" in folded
    assert "worker 0" not in folded.split("PROCESS")[1].split("main (41823)")[0]
    assert "v 41823 main" in unfolded


async def test_left_on_a_worker_goes_to_its_parent() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("down", "down", "left")

        assert app.dashboard.current_process == MAIN


async def test_an_ended_job_shows_its_exit_status_and_last_state() -> None:
    app, source = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await push(pilot, source, scripted.ended_job())
        text = screen_text(app)

    assert "ENDED main (41823): signal 7 (SIGBUS)" in text
    assert "worker 3 (41829): exit code 1" in text
    assert "exit code 0" in text
    assert "642/1024" in text


async def test_ended_processes_can_be_hidden() -> None:
    job = loader_job()
    gone = replace(job.processes[1], ended=Ended(worker_id(0), NOW_S - 5, exit_code=0))
    job = replace(job, processes=(job.processes[0], gone, *job.processes[2:]))
    app, _ = dashboard(job)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert worker_id(0) in app.dashboard.overview.table.keys
        await pilot.press("E")
        await pilot.pause()

        assert worker_id(0) not in app.dashboard.overview.table.keys


async def test_another_page_opens_with_the_cursor_on_the_same_process() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("down", "1")
        await pilot.pause()

        assert app.dashboard.current_process == worker_id(3)


async def test_empty_pages_say_why_and_what_would_fill_them() -> None:
    app, _ = dashboard(scripted.without_hook())
    wanted = {
        "2": "They appear when a tensor is sent through a queue",
        "5": "call mpwatch.instrument()",
        "6": "No overdue waits",
        "7": "there is no libnvidia-ml.so.1",
        "8": "Process starts and exits",
        "9": "No findings",
    }
    async with app.run_test(size=(120, 36)) as pilot:
        for digit, words in wanted.items():
            await pilot.press(digit)
            await pilot.pause()
            assert words in screen_text(app)


async def test_help_is_about_the_current_page_and_the_usual_keys_close_it() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("2", "question_mark")
        await pilot.pause()
        assert isinstance(front(app), HelpScreen)
        assert "orphaned segments have a name and no process maps them" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert front(app) is app.dashboard


async def test_a_terminal_of_40x10_shows_one_sentence_until_it_grows() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        assert isinstance(front(app), TooSmallScreen)
        assert "mpwatch needs 60x15 characters" in screen_text(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert front(app) is app.dashboard
        assert "41823 main" in screen_text(app)


async def test_hostile_names_are_shown_as_text_and_not_interpreted() -> None:
    job = loader_job()
    odd = replace(job.processes[1], label="[bold red]x[/]", doing="日本語 [link=http://x]y")
    app, _ = dashboard(replace(job, processes=(job.processes[0], odd)))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        text = screen_text(app)

    assert "[bold red]x[/]" in text
    assert "日本語 [link=http" in text


async def test_wide_characters_do_not_shift_the_columns() -> None:
    job = loader_job()
    wide = replace(job.processes[1], label="データ")
    app, _ = dashboard(replace(job, processes=(job.processes[0], wide, job.processes[2])))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        table = app.dashboard.overview.table
        strips = [table.render_line(y) for y in (1, 2, 3)]

    assert {strip.cell_length for strip in strips} == {120}


async def test_quitting_stops_the_source() -> None:
    app, source = dashboard()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")

    assert source.is_stopped
