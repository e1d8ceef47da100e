"""A recording of very many processes is read to its end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mpwatch.model.ids import ProcessId, Role
from mpwatch.observe.recording.codec import SCHEMA, Header, LineEncoder
from mpwatch.observe.recording.file import pack
from tests.builders.samples import MAIN, START_S, sample, small_job

COUNT = 3000
SAMPLES = 2
WITHIN_S = 600.0
"""It takes a second; where each process is compared with each other one, hours."""
MEMORY_BYTES_LIMIT = 1 << 29
READER = """
import sys
from mpwatch.observe.sources.replay import replay_to_end
snapshot = replay_to_end(sys.argv[1])
with open("/proc/self/status") as file:
    peak = next(line.split()[1] for line in file if line.startswith("VmHWM"))
print(len(snapshot.processes), int(peak) * 1024)
"""
PARENTS: dict[str, tuple[Role, Callable[[int], int]]] = {
    "children of one": ("loader-worker", lambda pid: MAIN.pid),
    "each a child of the one before": ("spawned", lambda pid: pid - 1),
    "without a parent": ("other", lambda pid: 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", PARENTS)
def test_a_recording_of_very_many_processes_is_read_to_its_end(family: str, tmp_path: Path) -> None:
    role, parent = PARENTS[family]
    path = tmp_path / "many.mpw"
    header = LineEncoder().header(Header(SCHEMA, "1.0", "box", MAIN, START_S, 1.8e9))
    members = [pack(header, START_S, START_S, is_key=False)]
    for at_s in (START_S + number for number in range(SAMPLES)):
        first = 1000 + int(at_s - START_S) * COUNT
        children = (
            sample(ProcessId(pid, pid), at_s, parent=parent(pid), role=role)
            for pid in range(first, first + COUNT)
        )
        processes = (sample(MAIN, at_s, role="main"), *children)
        line = LineEncoder().line(replace(small_job(at_s), processes=processes))
        members.append(pack(line, at_s, at_s, is_key=True))
    path.write_bytes(b"".join(members))

    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)], capture_output=True, text=True, timeout=WITHIN_S
    )

    assert done.returncode == 0, done.stderr
    count, memory_bytes = map(int, done.stdout.split())
    assert count > COUNT
    assert memory_bytes < MEMORY_BYTES_LIMIT
