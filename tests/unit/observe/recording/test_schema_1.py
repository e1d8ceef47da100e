"""A recording of each schema stays readable."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from mpwatch.model.collectives import NcclStatus
from mpwatch.model.events import (
    HookEvent,
    HookGauges,
    HookHello,
    HookNote,
    HookSlice,
    HookStatus,
    Input,
    WrittenErrors,
)
from mpwatch.model.host import HostSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import (
    Ended,
    Frame,
    ProcSample,
    StackSample,
    StacksTaken,
    ThreadSample,
    TreeSample,
    ValuesRead,
)
from mpwatch.model.source_code import SourceRead
from mpwatch.observe.recording.codec import KINDS
from mpwatch.observe.recording.file import Recording

SCHEMA_1 = Path(__file__).parents[3] / "data" / "recording-schema-1.mpw"

# What the file contains is written down here, and not in tests/builders/, which may change.
MAIN, WORKER = ProcessId(100, 7), ProcessId(101, 8)
START_S = 1000.0
EVENTS = tuple(
    HookEvent(n, int((START_S + 0.5) * 1e9), 1, WORKER.pid, 1000, 4096, 77 + n, 1, 0, 0)
    for n in range(2)
)


LATER = {NcclStatus, SourceRead, ValuesRead, WrittenErrors}
"""Kinds of inputs that were added to the schema after the file was written."""


def reading(at_s: float, cpu_ticks: int = 5) -> TreeSample:
    """A main process and one worker."""
    processes = tuple(
        ProcSample(
            process=process,
            at_s=at_s,
            parent_pid=1 if process == MAIN else MAIN.pid,
            name="python",
            cmdline=("python", "train.py"),
            state="S",
            role="main" if process == MAIN else "loader-worker",
            cpu_ticks=cpu_ticks,
            threads=(ThreadSample(process.pid, "MainThread", "S", cpu_ticks),),
        )
        for process in (MAIN, WORKER)
    )
    host = HostSample(at_s, at_s + 1e9, "node7", "6.18")
    return TreeSample(at_s, at_s + 1e9, MAIN, host, processes)


def inputs_of_schema_1() -> list[Input]:
    """The inputs in the file; never to be changed."""
    stack = StackSample(WORKER, WORKER.pid, "MainThread", (Frame("f", "a.py", 3),), "hook", START_S)
    changed = reading(START_S + 1, cpu_ticks=9)
    return [
        reading(START_S),
        HookHello(
            MAIN, START_S, 1, "3.11.7", "2.13.0", 100, "run", {"Queue.put": "gone"}, {"a": 1}
        ),
        HookStatus(MAIN, START_S, "ready", ""),
        HookSlice(WORKER, START_S + 0.5, EVENTS, lost=0),
        StacksTaken(WORKER, START_S + 0.6, "hook", (stack,), 0.001),
        HookGauges(MAIN, START_S + 0.7, {"shared_cache": {"entries": 4, "limit": 128}}),
        HookNote(WORKER, int((START_S + 0.8) * 1e9), "exception", {"text": "caf\u00e9 \ufffd"}),
        replace(changed, processes=(replace(changed.processes[0], state="R"),)),
        Ended(WORKER, START_S + 1.0, signal=9),
    ]


def test_a_recording_of_schema_1_reads_as_it_was_written() -> None:
    inputs = inputs_of_schema_1()
    assert {type(each) for each in inputs} == set(KINDS.values()) - LATER

    with Recording(str(SCHEMA_1)) as recording:
        assert recording.header.schema == 1
        assert recording.header.root == MAIN
        assert list(recording.inputs()) == inputs
        assert recording.problems == []
