"""Recordings with arbitrary inputs can be replayed and reported; a broken one may come from another
user."""

from __future__ import annotations

import json
import os
import tempfile

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mpwatch.model.events import HookNote, Input, WrittenErrors
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import TreeSample
from mpwatch.model.source_code import SourceRead
from mpwatch.observe.recording.file import RecordingWriter
from mpwatch.observe.sources.replay import replay_course
from mpwatch.report.html import report_html
from mpwatch.report.json import diagnose_json, snapshot_json, text_of
from mpwatch.report.prometheus import exposition
from mpwatch.report.text import diagnose_text, dump_text
from mpwatch.report.trace import trace_events
from tests.builders.samples import MAIN, WORKER_0
from tests.builders.strategies import INPUTS

pytestmark = pytest.mark.slow

NO_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]
"""A counterexample of this size takes minutes to shrink."""
FEW = st.sampled_from([MAIN, WORKER_0, ProcessId(102, 9)])


def about_few(each: Input, process: ProcessId) -> Input:
    """The input about one of a few processes, so that inputs meet."""
    if isinstance(each, HookNote):
        return replace(each, process=process, at_ns=each.at_ns % 10**15)
    each = replace(each, at_s=each.at_s % 1e6)
    if isinstance(each, SourceRead | WrittenErrors):
        return each
    if isinstance(each, TreeSample):
        samples = [
            replace(s, process=process, parent_pid=s.parent_pid % 110) for s in each.processes
        ]
        return replace(each, root=MAIN, ticks_per_s=100, processes=tuple(samples))
    return replace(each, process=process)


def lines_of(text: str) -> list[str]:
    """The lines of an output; the page indents by em spaces."""
    return text.replace("\u2003", " ").split("\n")


ANYTHING = st.builds(about_few, st.one_of(*INPUTS.values()), FEW)
TREE = st.builds(about_few, INPUTS[TreeSample], FEW)


@settings(
    max_examples=60,
    phases=NO_SHRINKING,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(TREE, st.lists(ANYTHING, max_size=8))
def test_inputs_in_any_order_can_be_replayed_and_reported(
    tree: TreeSample, inputs: list[Input]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "job.mpw")
        writer = RecordingWriter(path, MAIN, clock=lambda: 0.0, wall_clock=lambda: 1.8e9)
        for each in (tree, *inputs):
            writer.write(each)
        writer.close()
        snapshot, course = replay_course(path)

    assert writer.problem is None
    assert [p for p in snapshot.problems if p.startswith("A part of the recording")] == []
    assert json.loads(text_of(snapshot_json(snapshot, with_stacks=True)))["schema"] == 1
    assert json.loads(text_of(diagnose_json(snapshot)))["schema"] == 1
    for text in (
        dump_text(snapshot),
        diagnose_text(snapshot),
        exposition(snapshot),
        report_html(snapshot, course),
    ):
        assert [line for line in lines_of(text) if not line.isprintable()] == []
    assert text_of({"events": list(trace_events((tree, *inputs), 0.0))})
