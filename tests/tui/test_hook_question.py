"""The question whether to inject the hook: the top line, its keys, and their effects."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.screen import Screen

from mpwatch.model.injection import InjectionPlan, PlannedInjection
from mpwatch.model.samples import Ended, ProcSample, WaitedOn
from mpwatch.model.snapshot import Snapshot, Thread
from mpwatch.observe.sources.source import InjectHook
from mpwatch.tui import hook_question
from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.elements.styled_text import text_of
from mpwatch.tui.hook_question import HookQuestion, blocked_in_c, plan_lines, question_line
from mpwatch.tui.screens.dashboard import ProcessScreen
from mpwatch.tui.screens.texts import FindingScreen, InjectionScreen
from tests.builders.screen_job import fd_finding
from tests.tui import scripted
from tests.tui.screen_text import screen_text

pytestmark = pytest.mark.slow


def job_without_hook() -> Snapshot:
    job = scripted.healthy_job()
    processes = tuple(
        replace(
            each,
            hook=replace(each.hook, state="absent"),
            sample=replace(each.sample, is_python=True),
        )
        for each in job.processes
    )
    return replace(job, processes=processes)


def plan(samples: Iterable[ProcSample], *, refused: int = 2, passes: bool = False) -> InjectionPlan:
    found = []
    for number, sample in enumerate(samples):
        planned = PlannedInjection(
            sample.process, sample.name, sample.role, "pending call", writes=("752 bytes",)
        )
        if number < refused:
            planned = replace(planned, method="", reason="it is sandboxed by seccomp", writes=())
            planned = replace(planned, passes=passes)
        found.append(planned)
    return InjectionPlan(tuple(found), ("os: os._exit",))


def dashboard(
    *, asks: bool = True, refused: int = 2, readonly: bool = False
) -> tuple[MpwatchApp, scripted.ScriptedSource]:
    source = scripted.ScriptedSource(job_without_hook())
    question = HookQuestion(lambda samples: plan(samples, refused=refused), asks=asks)
    app = MpwatchApp(
        source, title="train.py", readonly=readonly, question=None if readonly else question
    )
    return app, source


@pytest.fixture(autouse=True)
def _readable_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_question, "READABLE_AFTER_S", 0.0)


async def settled(app: MpwatchApp, pilot: Pilot[int]) -> str:
    """The top line, once the plan has been made."""
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()
    return screen_text(app).splitlines()[0]


@pytest.mark.parametrize("key", ["y", "enter"])
async def test_the_question_is_on_the_top_line_and_yes_injects(key: str) -> None:
    app, source = dashboard()
    async with app.run_test(size=(120, 30)) as pilot:
        asked = await settled(app, pilot)
        assert asked.strip() == (
            "inject the hook into 4 processes? 2 are left out: it is sandboxed by seccomp. "
            "y or enter yes, n no, d what it does"
        )
        assert InjectHook() not in source.asked

        await pilot.press(key)
        await pilot.pause()

        assert source.asked.count(InjectHook()) == 1
        assert "inject the hook into" not in screen_text(app).splitlines()[0]


@pytest.mark.parametrize(
    ("key", "opened"),
    [
        ("down", ProcessScreen),
        ("tab", FindingScreen),
        ("9", ProcessScreen),
    ],
)
async def test_enter_opens_what_the_user_has_moved_to_and_injects_nothing(
    key: str, opened: type[Screen[None]]
) -> None:
    job = replace(job_without_hook(), findings=(fd_finding(),))
    source = scripted.ScriptedSource(job)
    question = HookQuestion(lambda samples: plan(samples), asks=True)
    app = MpwatchApp(source, title="train.py", question=question)
    async with app.run_test(size=(120, 30)) as pilot:
        assert "y or enter yes" in await settled(app, pilot)

        await pilot.press(key)
        top = await settled(app, pilot)
        assert "y yes, n no" in top
        assert "enter" not in top

        await pilot.press("enter")
        await pilot.pause()
        assert InjectHook() not in source.asked
        assert type(app.screen) is opened

        while app.screen is not app.dashboard:
            await pilot.press("escape")
        await pilot.press("y")
        await pilot.pause()
        assert source.asked.count(InjectHook()) == 1, "y is yes as long as the question is shown"


async def test_a_click_on_a_row_takes_enter_for_that_row() -> None:
    app, source = dashboard()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await pilot.click(offset=(20, 5))
        assert "y yes, n no" in await settled(app, pilot)

        await pilot.press("enter")
        await pilot.pause()
        assert InjectHook() not in source.asked
        assert isinstance(app.screen, ProcessScreen)


async def test_enter_after_the_plan_was_read_does_not_inject_by_habit() -> None:
    app, source = dashboard()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("d")
        await pilot.pause()
        await pilot.press("enter")  # closes the plan
        assert "y yes, n no" in await settled(app, pilot)

        await pilot.press("enter")
        await pilot.pause()
        assert InjectHook() not in source.asked


async def test_a_question_that_the_user_asked_for_is_answered_by_enter_again() -> None:
    app, source = dashboard(asks=False)
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("down", "i")
        assert "y or enter yes" in await settled(app, pilot)

        await pilot.press("enter")
        await pilot.pause()
        assert source.asked.count(InjectHook()) == 1


def test_a_process_that_could_not_get_the_hook_is_asked_about_once_it_can() -> None:
    now_s = 100.0
    question = HookQuestion(lambda samples: plan(samples), asks=True, clock=lambda: now_s)
    job = job_without_hook()
    samples = [each.sample for each in job.living()]
    assert question.wants_plan(job)
    question.planned(plan(samples, refused=len(samples), passes=True))
    assert not question.is_shown

    now_s += 5.0
    assert not question.wants_plan(job)

    now_s += 10.0
    assert question.wants_plan(job)
    question.planned(plan(samples, refused=0))
    assert question.is_shown
    now_s += 60.0
    assert not question.wants_plan(job)


def test_no_plan_is_made_again_for_a_reason_that_stays() -> None:
    now_s = 100.0
    question = HookQuestion(lambda samples: plan(samples), asks=True, clock=lambda: now_s)
    job = job_without_hook()
    assert question.wants_plan(job)
    question.planned(plan([each.sample for each in job.living()]))

    now_s += 3600.0
    assert not question.wants_plan(job)


async def test_no_injects_nothing_and_i_asks_again() -> None:
    app, source = dashboard()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("n")
        source.push(job_without_hook())
        assert "inject" not in await settled(app, pilot)
        assert InjectHook() not in source.asked

        await pilot.press("i")
        assert "inject the hook into 4 processes?" in await settled(app, pilot)
        await pilot.press("y")
        await pilot.pause()
        assert InjectHook() in source.asked


async def test_d_shows_the_plan_and_the_question_can_be_answered_there() -> None:
    app, source = dashboard()
    async with app.run_test(size=(100, 50)) as pilot:
        await settled(app, pilot)
        await pilot.press("d")
        await pilot.pause()
        assert isinstance(app.screen, InjectionScreen)
        text = screen_text(app)
        assert "left out: it is sandboxed by seccomp" in text
        assert "inject, by pending call" in text
        assert "752 bytes" in text
        assert "os (os._exit)" in text
        assert text.splitlines()[-1].split() == [
            "y",
            "inject",
            "n",
            "do",
            "not",
            "esc",
            "back",
            "without",
            "an",
            "answer",
            "?",
            "help",
        ]

        await pilot.press("escape")
        assert "inject the hook into" in await settled(app, pilot)
        await pilot.press("d")
        await pilot.pause()
        await pilot.press("y")
        await pilot.pause()
        assert InjectHook() in source.asked


async def test_without_the_question_the_keys_have_their_usual_meaning() -> None:
    app, source = dashboard(asks=False)
    async with app.run_test(size=(120, 30)) as pilot:
        assert "inject" not in await settled(app, pilot)
        for key in ("y", "n", "d"):
            await pilot.press(key)
        await pilot.press("enter")
        await pilot.pause()
        assert InjectHook() not in source.asked
        assert not isinstance(app.screen, InjectionScreen)
        assert app.screen is not app.dashboard, "enter opens the process under the cursor"


async def test_typing_into_the_filter_does_not_answer_the_question() -> None:
    app, source = dashboard()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("slash", "y", "n", "enter")
        await pilot.pause()
        assert app.view_state.settings.filter == "yn"
        assert InjectHook() not in source.asked


async def test_a_key_pressed_before_the_question_could_be_read_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hook_question, "READABLE_AFTER_S", 3600.0)
    app, source = dashboard()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("y", "enter")
        await pilot.pause()
        assert InjectHook() not in source.asked


async def test_a_read_only_dashboard_neither_asks_nor_injects() -> None:
    app, source = dashboard(readonly=True)
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        assert "inject" not in await settled(app, pilot)
        await pilot.press("i")
        await pilot.pause()
        assert "This dashboard is read-only: it injects nothing." in screen_text(app)
        await pilot.press("y")
        await pilot.pause()
        assert InjectHook() not in source.asked


async def test_where_nothing_can_be_injected_the_reason_is_shown_and_no_question() -> None:
    app, source = dashboard(refused=99)
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        assert "inject the hook into" not in await settled(app, pilot)
        assert "cannot be injected" in screen_text(app)
        await pilot.press("y")
        assert InjectHook() not in source.asked


def ended(job: Snapshot) -> Snapshot:
    processes = tuple(
        replace(each, ended=Ended(each.process, job.at_s, exit_code=1)) for each in job.processes
    )
    return replace(job, processes=processes, mode="ended")


async def test_the_question_goes_with_the_processes_that_it_is_about() -> None:
    app, source = dashboard()
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        assert "inject the hook into" in await settled(app, pilot)

        source.push(ended(job_without_hook()))
        top = await settled(app, pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert "inject" not in top
        assert "ENDED" in top
        assert InjectHook() not in source.asked

        await pilot.press("escape", "i")
        await pilot.pause()
        assert "no process without the hook" in screen_text(app)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_question_and_its_keys_fit_into_any_width(width: int) -> None:
    samples = [each.sample for each in job_without_hook().processes]

    shown = text_of(question_line(plan(samples), width, enter_is_yes=True))

    assert len(shown) <= width
    assert "enter" in shown
    assert "enter" not in text_of(question_line(plan(samples), width, enter_is_yes=False))
    assert "inject the hook into 4 processes?" in shown
    assert "y" in shown.split("?")[1]
    assert ("2 are left out" in shown) == (width >= 80)
    assert ("sandboxed by seccomp" in shown) == (width >= 120)


def test_the_question_says_where_the_hook_is_of_no_use_at_once() -> None:
    job = job_without_hook()
    samples = [each.sample for each in job.processes]
    main, *others = job.processes
    limited = WaitedOn("poll", "poll", ("pipe:[7]",), timeout_s=5.0)
    waits = (WaitedOn("futex", "futex", ("futex 0x7f",)), limited)
    stuck, polls = (
        replace(each, threads=(Thread(each.pid, "python", "S", still_s=9.0, waits_on=wait),))
        for each, wait in zip((main, others[0]), waits, strict=True)
    )
    blocked = blocked_in_c(replace(job, processes=(stuck, polls, *others[1:])))

    assert set(blocked) == {main.process}
    shown = text_of(question_line(plan(samples, refused=0), 80, enter_is_yes=True, blocked=blocked))
    assert "inject the hook into 6 processes (useful at once in 5)?" in shown
    plan_text = " ".join(
        text_of(each).strip() for each in plan_lines(plan(samples, refused=0), blocked, 80)
    )
    assert "that thread is blocked in a call" in plan_text
    assert f"  {main.pid} " in "".join(
        map(text_of, plan_lines(plan(samples, refused=0), blocked, 80))
    )


async def test_the_plan_has_help() -> None:
    app, _ = dashboard()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("d", "question_mark")
        await pilot.pause()
        assert "nothing of it has been done yet" in screen_text(app)


async def test_a_read_only_dashboard_gives_no_advice_to_press_i() -> None:
    app, source = dashboard(readonly=True)
    async with app.run_test(size=(100, 30)) as pilot:
        bare = [replace(each, loader=None) for each in job_without_hook().processes]
        source.push(replace(job_without_hook(), loaders=(), processes=tuple(bare)))
        await pilot.pause()
        await pilot.press("4")
        await pilot.pause()
        text = screen_text(app)
    assert "need the hook: run mpwatch attach" in text
    assert "press i" not in text
