"""A recording of each schema is kept for ever: what could be read once can always be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mpwatch.model.events import HookGauges, HookHello, HookNote, HookStatus, Input
from mpwatch.model.samples import Ended, Frame, StackSample, StacksTaken
from mpwatch.observe.recording.codec import KINDS
from mpwatch.observe.recording.file import Recording
from tests.unit.observe.recording.trees import MAIN, START_S, WORKER, events, tree

SCHEMA_1 = Path(__file__).parents[3] / "data" / "recording-schema-1.mpw"


def inputs_of_schema_1() -> list[Input]:
    """What the file was made of; never to be changed."""
    stack = StackSample(WORKER, WORKER.pid, "MainThread", (Frame("f", "a.py", 3),), "hook", START_S)
    changed = tree(START_S + 1, cpu_ticks=9)
    return [
        tree(START_S),
        HookHello(
            MAIN, START_S, 1, "3.11.7", "2.13.0", 100, "run", {"Queue.put": "gone"}, {"a": 1}
        ),
        HookStatus(MAIN, START_S, "ready", ""),
        events(START_S + 0.5),
        StacksTaken(WORKER, START_S + 0.6, "hook", (stack,), 0.001),
        HookGauges(MAIN, START_S + 0.7, {"shared_cache": {"entries": 4, "limit": 128}}),
        HookNote(WORKER, int((START_S + 0.8) * 1e9), "exception", {"text": "caf\u00e9 \ufffd"}),
        replace(changed, processes=(replace(changed.processes[0], state="R"),)),
        Ended(WORKER, START_S + 1.0, signal=9),
    ]


def test_a_recording_of_schema_1_reads_as_it_was_written() -> None:
    inputs = inputs_of_schema_1()
    assert {type(each) for each in inputs} == set(KINDS.values())

    with Recording(str(SCHEMA_1)) as recording:
        assert recording.header.schema == 1
        assert recording.header.root == MAIN
        assert list(recording.inputs()) == inputs
        assert recording.problems == []
