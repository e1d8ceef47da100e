"""What the hook cannot keep is counted, sent and shown: with a real hook, socket and report."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.transport.notes import LIMIT
from tests.integration.hook.guest import Guest

pytestmark = pytest.mark.slow


def hook_of(pid: int) -> dict[str, Any]:
    """What a report says of the hook of a process."""
    command = [sys.executable, "-m", "mpwatch", "dump", str(pid), "--json", "--no-stacks"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    (found,) = (each for each in json.loads(said)["processes"] if each["pid"] == pid)
    return dict(found["hook"])


def lost_by(pid: int, expected: int) -> int:
    """What reports say is lost, until they say what is expected.

    A report waits 0.4 s for the hook and its events; on a loaded machine they may come later.
    """
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        found = hook_of(pid)
        if found["state"] == "ready" and found["lost"] == expected:
            break
    lost: int = found["lost"]
    return lost


@pytest.mark.usefixtures("runtime")
def test_records_and_notes_that_were_overwritten_are_shown_as_lost() -> None:
    with Guest("listen") as guest:
        assert guest.hear() == "ready"
        guest.tell(f"{LIMIT} notes")
        assert guest.hear() == "wrote"
        assert lost_by(guest.process.pid, 0) == 0
        guest.tell("44 notes")
        assert guest.hear() == "wrote"
        assert lost_by(guest.process.pid, 44) == 44
        guest.tell(str(wire.DEFAULT_SLOTS + 5))
        assert guest.hear() == "wrote"
        assert lost_by(guest.process.pid, 44 + 5) == 44 + 5
        guest.tell("end")
        assert guest.finish() == (0, "")


def test_files_of_dead_processes_count_the_notes_that_had_no_room(runtime_in_memory: Path) -> None:
    with Guest("listen") as guest:
        assert guest.hear() == "ready"
        guest.tell("5000 notes")
        assert guest.hear() == "wrote"
        guest.process.kill()
        guest.process.wait()
        (file,) = (runtime_in_memory / "mpwatch").glob("*.notes")

    notes = [json.loads(line) for line in file.read_text().splitlines()]
    assert [note["n"] for note in notes[:-1]] == list(range(len(notes) - 1))
    assert notes[-1]["text"] == "the file of notes is full: of later notes only the exit is in it"
