"""Children that died and are not joined stay zombies: their exit and notes are one event each."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mpwatch.model.events import HookNote
from mpwatch.model.samples import Ended, TreeSample
from tests.builders.recordings import read_recording

from .commands import diagnosed, mpwatch, rules

pytestmark = pytest.mark.slow

PROGRAM = """
import multiprocessing, os, signal, time

def by_exception():
    raise RuntimeError("cannot go on")

def by_kill():
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=end) for end in (by_exception, by_kill)]
    for child in children:
        child.start()
    for child in children:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    print(os.getpid(), flush=True)
    time.sleep(120)
"""


def test_each_exit_and_each_note_is_recorded_once(tmp_path: Path) -> None:
    script, file = tmp_path / "script.py", tmp_path / "job.mpw"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "mpwatch", "run", "--headless", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        try:
            assert job.stdout is not None
            pid = int(job.stdout.readline())
            done = mpwatch("record", str(pid), "-o", file, "--for", "4")
            assert done.returncode == 0, done.stderr
        finally:
            job.send_signal(signal.SIGTERM)

    inputs = list(read_recording(str(file)))
    exits = Counter(each.process for each in inputs if isinstance(each, Ended))
    notes = [each for each in inputs if isinstance(each, HookNote)]
    readings = sum(isinstance(each, TreeSample) for each in inputs)

    assert len(exits) >= 2
    assert set(exits.values()) == {1}
    assert "exit" in {note.kind for note in notes}
    assert max(Counter((note.process, note.number) for note in notes).values()) == 1
    assert readings <= 4 / 0.5 + 4  # the job is calm: the exits cause no early readings
    assert "worker-exited-unexpectedly" in rules(diagnosed(file))
