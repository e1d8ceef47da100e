from __future__ import annotations

from pathlib import Path

import pytest

from mpwatch.hook import wire
from mpwatch.report.autopsy import NO_EXIT, autopsies, autopsy_text, ended
from tests.conftest import Start

pytestmark = pytest.mark.slow

WAYS = {
    "kill": "signal 9 (SIGKILL)",
    "bus": "signal 7 (SIGBUS)",
    "stop": "signal 9 (SIGKILL)",
    "exit": "exit code 4",
}


def test_the_exit_and_last_events_of_each_dead_process_are_reported(
    start: Start, runtime_in_memory: Path
) -> None:
    program = start("hook_deaths.py", *WAYS)
    pids = {way: int(program.wait_for(way).split()[1]) for way in (*WAYS, "main")}
    assert program.wait() == -9

    (autopsy,) = autopsies(str(runtime_in_memory / "mpwatch"))

    dead = {one.files.process.pid: one for one in autopsy.dead}
    assert {way: ended(dead[pids[way]]).words for way in WAYS} == WAYS
    assert ended(dead[pids["main"]]).problem == NO_EXIT
    for way in WAYS:
        assert dead[pids[way]].files.events[-1].kind == wire.QUEUE_PUT
        assert dead[pids[way]].parent == dead[pids["main"]].files.process
    assert autopsies(str(pids["main"])) == (autopsy,)
    assert "ended       signal 7 (SIGBUS)" in autopsy_text([autopsy])
