"""The message about interpreters that cannot get the hook of `mpwatch run`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mpwatch.collect.hook import discovery
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.identify import identify
from mpwatch.hook.startup import sitecustomize

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("is_run", [True, False])
@pytest.mark.parametrize("option", ["-I", "-E", "-S", "-B"])
def test_the_option_that_keeps_the_hook_out_is_named(option: str, is_run: bool) -> None:
    command = [sys.executable, option, "-c", "print(flush=True); input()"]
    value = sitecustomize.added("/a") if is_run else "/a"
    environment = {**os.environ, "PYTHONPATH": value, "MPWATCH_DISABLE": "1"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        tree = TreeCollector(identify(process.pid)).collect(ReadRequest.processes_only())
        assert tree is not None
        with pytest.raises(discovery.NoHook) as refused:
            discovery.connect(tree.processes[0])
        process.communicate(b"\n")

    is_named = is_run and option != "-B"
    wanted = f"Python was started with {option}, which ignores what mpwatch run passes on"
    assert str(refused.value) == (wanted if is_named else discovery.NO_HOOK)
