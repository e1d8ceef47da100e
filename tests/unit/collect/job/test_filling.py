"""A segment that is being filled: its allocated bytes are never much older than the free space."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import shared_memory

import pytest

from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.identify import identify

MIB = 1 << 20
SIZE = 16 * MIB
LAG_S = 3.0
"""Seconds by which the size of a file that is written may be out of date."""

# Writes a MiB for each line it reads, and sleeps in between: an idle process to all counters.
WRITER = """
import sys
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *_: None
segment = shared_memory.SharedMemory(sys.argv[1])
print("ready", flush=True)
for n, _ in enumerate(sys.stdin):
    segment.buf[n << 20 : n + 1 << 20] = bytes([1]) * (1 << 20)
    print(n, flush=True)
"""


@pytest.fixture
def segment() -> Iterator[shared_memory.SharedMemory]:
    made = shared_memory.SharedMemory(create=True, size=SIZE)
    yield made
    made.close()
    made.unlink()


def test_the_allocated_bytes_of_a_segment_are_read_while_it_is_filled(
    segment: shared_memory.SharedMemory,
) -> None:
    now_s = [1000.0]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, segment.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        root = identify(writer.pid)
        tree = TreeCollector(root, clock=lambda: now_s[0])
        lags = []
        try:
            for _ in range(SIZE // MIB - 2):
                writer.stdin.write("more\n")
                assert writer.stdout.readline()
                now_s[0] += 1.0
                reading = tree.collect(ReadRequest())
                assert reading is not None
                uses = reading.processes[0].segments or ()
                (told,) = [u.allocated_bytes for u in uses if u.path.endswith(segment.name)] or [0]
                held = os.stat(f"/dev/shm/{segment.name}").st_blocks * 512
                lags.append((held - (told or 0)) / MIB)
        finally:
            writer.stdin.close()
    assert max(lags[3:]) <= LAG_S
