"""Healthy programs on loaded machines, in debuggers, at their start and at their end.

That each of them has no finding on an idle machine is tested with the demonstrations.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from tests import procfs
from tests.conftest import Program, Start
from tests.integration.on_demand import ON_DEMAND
from tests.programs.healthy_variants import command

pytestmark = pytest.mark.slow

WATCHED_S = 20.0
LOADED = (
    "dataloader fork persistent",
    "dataloader spawn persistent",
    "buffers sent back",
    "pinned",
)
WITH_GDB = pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb here")
RANKS = ("ddp mp.spawn", "ddp torchrun", "hogwild", "pool")

Disturb: TypeAlias = Callable[[Start, Program], Program | None]


def healthy(start: Start, name: str, *, hook: bool = False) -> Program:
    """A healthy program that runs longer than it is observed."""
    _, *argv = command(sys.executable, name, 8 * WATCHED_S)
    before = ["-m", "mpwatch", "run", "--headless"] if hook else []
    return start([sys.executable, *before, *argv])


def watching(job: Program, *arguments: str) -> subprocess.Popen[str]:
    """A health check that is running."""
    diagnose = [sys.executable, "-m", "mpwatch", "diagnose", str(job.pid), "--json"]
    return subprocess.Popen(
        [*diagnose, "--for", f"{WATCHED_S:g}", "--fail-on", "warning", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def warnings(check: subprocess.Popen[str]) -> list[tuple[str, str, list[str]]]:
    """All warnings of a health check, with their evidence."""
    out, err = check.communicate(timeout=5 * WATCHED_S)
    assert out, err
    return [
        (each["rule"], each["summary"], each["evidence"])
        for each in json.loads(out)["findings"]
        if each["severity"] != "info"
    ]


@pytest.fixture
def load() -> Iterator[None]:
    """Twice as many busy processes outside of the job as there are cpus."""
    count = 2 * (os.cpu_count() or 1)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    yield
    for each in busy:
        each.kill()
        each.wait()


@ON_DEMAND
@pytest.mark.usefixtures("load")
@pytest.mark.parametrize("names", [LOADED, RANKS], ids=["loaders", "ranks"])
@pytest.mark.parametrize("hook", [False, True], ids=["outside", "hook"])
def test_a_job_on_a_loaded_machine_has_no_warning(
    start: Start, names: tuple[str, ...], hook: bool
) -> None:
    jobs = [healthy(start, name, hook=hook) for name in names]
    for job in jobs:
        job.wait_for("ready", 200)

    checks = [watching(job) for job in jobs]

    assert [warnings(check) for check in checks] == [[] for _ in checks]


def stop_main(_start: Start, job: Program) -> None:
    os.kill(job.pid, signal.SIGSTOP)


def stop_workers(_start: Start, job: Program) -> None:
    for worker in procfs.children(job.pid):
        os.kill(worker, signal.SIGSTOP)


def hold_in_debugger(start: Start, job: Program) -> Program:
    """Hold a process in gdb without continuing it."""
    think = f"shell echo ready; sleep {4 * WATCHED_S:g}"
    guest = start(["gdb", "-p", str(job.pid), "-batch", "-ex", think])
    guest.wait_for("ready")
    return guest


@ON_DEMAND
@pytest.mark.parametrize(
    "disturb", [stop_main, stop_workers, pytest.param(hold_in_debugger, marks=WITH_GDB)]
)
def test_a_job_that_is_held_in_a_debugger_has_no_warning(start: Start, disturb: Disturb) -> None:
    job = healthy(start, "dataloader fork persistent")
    job.wait_for("ready", 200)

    guest = disturb(start, job)
    try:
        assert warnings(watching(job, "--no-hook")) == []
    finally:
        if guest is not None:
            guest.end()  # first: a traced process cannot be reaped before its tracer exits


@ON_DEMAND
@pytest.mark.parametrize("name", ["dataloader spawn persistent", "ddp torchrun"])
def test_a_job_that_has_just_been_started_has_no_warning(start: Start, name: str) -> None:
    assert warnings(watching(healthy(start, name))) == []


def test_a_job_that_ends_as_it_should_leaves_no_warning(start: Start) -> None:
    job = healthy(start, "ends normally")
    job.wait_for("ready", 200)

    check = watching(job)

    assert warnings(check) == []
    assert job.wait() == 0
