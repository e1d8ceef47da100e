"""Processes whose owner forbids the hook, by every way in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.attach.inject import inject
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import run as hook_run
from mpwatch.hook.wire import DISABLING
from tests import procfs

from .conftest import Start

pytestmark = pytest.mark.slow

INSTRUMENTING = """\
import mpwatch, sys
print(mpwatch.instrument(), any("mpwatch" in name for name in open("/proc/self/maps")))
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
            os.environ["MPWATCH_DISABLE"] = value
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(queue.get())
        process.join()
"""


@pytest.mark.parametrize("name", DISABLING)
def test_nothing_is_injected_where_the_environment_forbids_it(start: Start, name: str) -> None:
    running = start("attach_plain", "idle", variables={name: "1"})

    attached = inject(running.process)

    assert (attached.state, attached.method) == ("absent", "")
    assert name in attached.reason
    assert len(procfs.threads(running.pid)) == 1


def test_nothing_is_injected_where_the_interpreters_option_forbids_it() -> None:
    program = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)"
    arguments = [sys.executable, "-X", "disable_remote_debug", "-c", program]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as popen:
        try:
            assert popen.stdout is not None
            popen.stdout.readline()
            attached = inject(stat_of(popen.pid).process)
        finally:
            popen.kill()

    assert attached.state == "absent"
    assert "-X disable-remote-debug" in attached.reason


def test_a_value_of_zero_or_nothing_forbids_nothing(start: Start) -> None:
    variables = {"MPWATCH_DISABLE": "0", "PYTHON_DISABLE_REMOTE_DEBUG": ""}
    running = start("attach_plain", "idle", variables=variables)

    assert inject(running.process).state == "ready"


@pytest.mark.parametrize("name", DISABLING)
@pytest.mark.parametrize("way", ["instrument", "run"])
def test_a_program_that_would_load_the_hook_itself_runs_without_it(
    tmp_path: Path, name: str, way: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(INSTRUMENTING if way == "instrument" else STATE)
    command = [sys.executable, str(program)]
    if way == "run":
        command = hook_run.command([str(program)])

    def printed(environment: dict[str, str]) -> str:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()[0]

    repository = str(Path(__file__).parents[3])
    usual = {**os.environ, "PYTHONPATH": repository, "XDG_RUNTIME_DIR": str(tmp_path)}
    assert printed(usual) == "True"
    assert printed({**usual, name: "1"}) == "False"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_started_after_the_program_forbade_it_have_no_hook(
    tmp_path: Path, method: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILDREN)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }

    done = subprocess.run(
        [sys.executable, str(program), method],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert done.stdout.split() == ["True", "False"]
