from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.hook import wire
from tests.conftest import PROGRAMS
from tests.integration.hook.client import Client, sockets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("gevent") is None, reason="gevent is not installed"
    ),
]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_gevent_program_forks_and_answers_while_its_hub_is_blocked(
    when: str, runtime: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(PROGRAMS / "hook_gevent.py"), when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            lines = []
            while (line := program.stdout.readline().strip()) not in ("ready", ""):
                lines.append(line)
            assert lines == ["codes [3, 3, 3, 3, 3]", "answer", "code 0", "ticks [0, 1, 2, 3, 4]"]
            with Client(sockets(runtime)[program.pid]) as client:
                assert client.hello()["problems"] == []
                threads = client.ask("stacks")["threads"]
                kinds = [record[2] for record in client.records]
            rest, _ = program.communicate("\n", timeout=30)
        finally:
            program.kill()

    assert "main" in [frame[0] for thread in threads for frame in thread["frames"]]
    assert kinds.count(wire.FORKED) == 6
    assert kinds.count(wire.PROCESS_START) == 1
    assert (rest, program.returncode) == ("end\n", 0)
    assert list((runtime / "mpwatch").glob("*.sock")) == []
