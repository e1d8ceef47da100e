"""Processes whose owner forbids the hook, by every way in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.attach.inject import inject
from mpwatch.attach.outcomes import Attached
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import run as hook_run
from mpwatch.hook.wire import DISABLING
from tests import interpreters, procfs
from tests.integration.on_demand import cases

from .conftest import Start

pytestmark = pytest.mark.slow

INSTRUMENTING = """\
import mpwatch, sys
print(mpwatch.instrument(), any("mpwatch" in name for name in open("/proc/self/maps")))
"""
IDLE = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)"
RENAMED = """\
import ctypes
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[45]), int(fields[48])  # of the arguments, of the environment behind them
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, b"train", 5)
assert open("/proc/self/cmdline").read().rstrip("\\0") == "train"
assert not open("/proc/self/environ").read().strip("\\0")
"""
STATE = """\
import sys
hook = sys.modules.get("_mpwatch_hook")
print(bool(hook and hook.current() and hook.current().state != "off"), flush=True)
"""
CHILDREN = """\
import multiprocessing, os, sys

def child(queue):
    hook = sys.modules.get("_mpwatch_hook")
    queue.put(bool(hook and hook.current() and hook.current().state != "off"))

if __name__ == "__main__":
    import mpwatch
    assert mpwatch.instrument()
    context = multiprocessing.get_context(sys.argv[1])
    for value in (None, "1"):
        if value:
            os.environ[sys.argv[2]] = value
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(queue.get())
        process.join()
"""


CHILD_CASES = [
    f"{name} {method}" for name in DISABLING for method in ("fork", "spawn", "forkserver")
]
OTHER_PYTHONS = [
    f"{python} {by}" for by in (*DISABLING, "-X") for python in interpreters.other_versions()
]


@pytest.mark.parametrize("name", DISABLING)
def test_nothing_is_injected_where_the_environment_forbids_it(start: Start, name: str) -> None:
    running = start("attach_plain", "idle", variables={name: "1"})

    attached = inject(running.process)

    assert (attached.state, attached.method) == ("absent", "")
    assert name in attached.reason
    assert len(procfs.threads(running.pid)) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["-X", "disable_remote_debug"],
        ["-X", "disable-remote-debug=1"],
        ["-BX", "disable-remote-debug"],
        ["--check-hash-based-pycs", "default", "-Xdisable-remote-debug"],
    ],
)
def test_nothing_is_injected_where_the_interpreters_option_forbids_it(options: list[str]) -> None:
    attached = _injected_into(options, IDLE, dict(os.environ))

    assert (attached.state, attached.method) == ("absent", "")
    assert "-X disable-remote-debug" in attached.reason


@pytest.mark.parametrize("case", cases(OTHER_PYTHONS, OTHER_PYTHONS[-1:]))
def test_nothing_is_injected_into_another_version_of_python_where_it_is_forbidden(
    runtime: Path, case: str
) -> None:
    python, by = case.split()
    options = ["-X", "disable-remote-debug"] if by == "-X" else []
    variables = {} if by == "-X" else {by: "1"}
    environment = {"XDG_RUNTIME_DIR": str(runtime), **variables}

    attached = _injected_into(options, IDLE, environment, python)

    assert (attached.state, attached.method) == ("absent", "")
    assert by in attached.reason
    assert list(runtime.iterdir()) == []


def test_the_environment_is_read_to_its_end(runtime: Path) -> None:
    """The kernel takes 2 MiB of arguments and environment, or more (execve(2))."""
    filling = {f"FILLING_{number}": "x" * 100_000 for number in range(12)}
    variables = {"XDG_RUNTIME_DIR": str(runtime), "MPWATCH_DISABLE": "1"}

    attached = _injected_into([], IDLE, {**os.environ, **filling, **variables})

    assert (attached.state, attached.method) == ("absent", "")
    assert "MPWATCH_DISABLE" in attached.reason


@pytest.mark.parametrize("forbids", ["variable", "option"])
def test_no_hook_is_loaded_where_a_new_title_hides_from_outside_that_it_is_forbidden(
    forbids: str,
) -> None:
    """setproctitle(3) overwrites the memory that procfs shows as arguments and environment."""
    options = ["-X", "disable-remote-debug"] if forbids == "option" else []
    variables = {"PYTHON_DISABLE_REMOTE_DEBUG": "1"} if forbids == "variable" else {}
    environment = {**os.environ, "XDG_RUNTIME_DIR": "", **variables}

    attached = _injected_into(options, RENAMED + IDLE, environment)

    assert (attached.state, attached.method) == ("absent", "pending call")
    assert "the hook could not be loaded" in attached.reason
    assert ("-X disable-remote-debug" if options else DISABLING[1]) in attached.reason


def _injected_into(
    options: list[str], program: str, environment: dict[str, str], python: str = sys.executable
) -> Attached:
    """The result of an injection into a program with these options of the interpreter."""
    arguments = [python, *options, "-c", program]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as popen:
        try:
            assert popen.stdout is not None
            assert popen.stdout.readline() == b"ready\n"
            return inject(stat_of(popen.pid).process)
        finally:
            popen.kill()


def test_a_value_of_zero_or_nothing_forbids_nothing(start: Start) -> None:
    variables = {"MPWATCH_DISABLE": "0", "PYTHON_DISABLE_REMOTE_DEBUG": ""}
    running = start("attach_plain", "idle", variables=variables)

    assert inject(running.process, timeout_s=30).state == "ready"


@pytest.mark.parametrize("forbids", [*DISABLING, "option"])
@pytest.mark.parametrize("way", ["instrument", "run"])
def test_a_program_that_would_load_the_hook_itself_runs_without_it(
    tmp_path: Path, forbids: str, way: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(INSTRUMENTING if way == "instrument" else STATE)
    command = [sys.executable, str(program)]
    if way == "run":
        command = hook_run.command([str(program)])

    def printed(environment: dict[str, str], *options: str) -> str:
        words = [command[0], *options, *command[1:]]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()[0]

    repository = str(Path(__file__).parents[3])
    usual = {**os.environ, "PYTHONPATH": repository, "XDG_RUNTIME_DIR": str(tmp_path)}
    assert printed(usual) == "True"
    if forbids == "option":
        assert printed(usual, "-X", "disable-remote-debug") == "False"
    else:
        assert printed({**usual, forbids: "1"}) == "False"


@pytest.mark.parametrize("case", cases(CHILD_CASES, CHILD_CASES[:4]))
def test_children_started_after_the_program_forbade_it_have_no_hook(
    tmp_path: Path, case: str
) -> None:
    name, method = case.split()
    program = tmp_path / "program.py"
    program.write_text(CHILDREN)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }

    done = subprocess.run(
        [sys.executable, str(program), method, name],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert done.stdout.split() == ["True", "False"]
