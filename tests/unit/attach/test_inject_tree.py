from __future__ import annotations

from dataclasses import replace

import pytest

from mpwatch.attach.inject_tree import why_not
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import ProcSample


def sample(role: Role = "other", state: str = "S", is_python: bool = True) -> ProcSample:
    return ProcSample(
        process=ProcessId(7, 1),
        at_s=0.0,
        parent_pid=1,
        name="python",
        cmdline=(),
        state=state,
        role=role,
        is_python=is_python,
    )


@pytest.mark.parametrize(
    "role", ["main", "loader-worker", "spawned", "rank", "launcher", "pool-worker", "other"]
)
def test_processes_that_run_the_program_get_the_hook(role: Role) -> None:
    assert why_not(sample(role)) is None


@pytest.mark.parametrize(
    ("role", "word"),
    [
        ("resource-tracker", "resource tracker"),
        ("forkserver", "children load the hook"),
        ("shm-manager", "torch_shm_manager"),
        ("compile-worker", "compile workers"),
    ],
)
def test_helper_processes_are_excluded_with_a_reason(role: Role, word: str) -> None:
    assert word in str(why_not(sample(role)))


def test_processes_without_python_and_exited_ones_are_excluded() -> None:
    assert why_not(sample(is_python=False)) == "it is not a Python process"
    assert why_not(sample(state="Z")) == "the process has ended"


@pytest.mark.parametrize(
    ("cmdline", "is_ours"),
    [
        (("python", "-m", "mpwatch", "record", "7"), True),
        (("/venv/bin/python", "/venv/bin/mpwatch", "attach", "7"), True),
        (("python", "/lib/mpwatch/hook/run.py", "train.py"), False),
        (("python", "-m", "mpwatch.demo.programs.worker_oom_killed"), False),
    ],
)
def test_an_observer_is_excluded_and_a_program_that_it_runs_is_not(
    cmdline: tuple[str, ...], is_ours: bool
) -> None:
    reason = why_not(replace(sample(), cmdline=cmdline))

    assert reason == ("it is mpwatch itself" if is_ours else None)
