"""The lines around every page."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.snapshot import OwnCost, Process
from mpwatch.tui.elements import header
from mpwatch.tui.elements.styled_text import text_of
from mpwatch.tui.view_state import COMING_S, ViewState
from tests.tui import scripted
from tests.tui.scripted import loader_job


def test_an_ended_job_shows_the_exit_status_of_the_root_and_of_failed_processes() -> None:
    lines = [text_of(found) for found in header.over_lines(scripted.ended_job())]

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
def test_the_program_is_named_by_its_script_or_module(words: tuple[str, ...], name: str) -> None:
    assert header.program(with_cmdline(*words)) == name


def test_the_status_line_shows_the_mode_at_every_width() -> None:
    settings = header.ViewSettings("train.py", 1.0)
    for width in range(60, 201, 7):
        assert "LIVE 1/s" in text_of(header.header(loader_job(), settings, width))


def test_helpers_of_torch_are_not_counted_as_lacking_a_hook() -> None:
    assert text_of(header.hooks_line(loader_job())) == "hook 5/5"


def test_the_cost_of_hooks_includes_wrappers_where_it_is_known() -> None:
    settings = header.ViewSettings("train.py", 1.0)
    job = replace(loader_job(), own=OwnCost(0.6, None, 40_000.0))
    assert "hook threads 0.004%" in text_of(header.header(job, settings, 200))

    job = replace(job, own=OwnCost(0.6, None, 40_000.0, 1_000_000.0))
    assert "hooks ~0.1%" in text_of(header.header(job, settings, 200))


def test_lost_events_are_a_warning() -> None:
    job = loader_job()
    hook = replace(job.processes[0].hook, lost=7)
    changed = replace(job, processes=(replace(job.processes[0], hook=hook), *job.processes[1:]))

    assert header.lost_line(changed)[0] == ("lost 7", "warning")


def test_events_overwritten_before_the_start_are_not_counted_as_lost() -> None:
    job = loader_job()
    hook = replace(job.processes[0].hook, lost=900)
    old = replace(job, processes=(replace(job.processes[0], hook=hook), *job.processes[1:]))
    view_state = ViewState(scripted.ScriptedSource(), "train.py")
    view_state.arrived(old)
    more = replace(hook, lost=907)
    later = replace(
        old,
        at_s=old.at_s + 2 * COMING_S,
        processes=(replace(old.processes[0], hook=more), *old.processes[1:]),
    )
    view_state.arrived(later)

    assert "lost 7" in text_of(header.header(later, view_state.settings, 200))
