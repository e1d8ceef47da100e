"""Which lines are read, and when."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StackSample, StacksTaken
from mpwatch.model.source_code import SourceRead
from mpwatch.observe.sources.source_reads import SourceReads
from tests.builders.snapshots import process, snapshot_of

OWN = ProcessId(os.getpid(), 5000 + os.getpid())


def stacks(*frames: Frame) -> StacksTaken:
    return StacksTaken(
        OWN, 1.0, "py-spy", (StackSample(OWN, OWN.pid, "MainThread", frames, "py-spy", 1.0),)
    )


def test_each_line_of_the_program_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def step():\n    pool.apply_async(f)\n    wait()\n")
    frame = Frame("step", str(file), 3)
    library = Frame("get", "/usr/lib/python3.11/queue.py", 1)
    job = snapshot_of(process(OWN.pid, born_wall_s=time.time()))
    found: list[SourceRead] = []
    reads = SourceReads(found.append)
    try:
        for _ in range(2):
            reads.received(stacks(library, frame))
            reads.start_due(job)
            reads.wait(10)
    finally:
        reads.stop()

    assert len(found) == 1
    assert [line.statement.text for line in found[0].lines] == ["wait()"]
    assert [each.line for each in found[0].dropped] == [2]
