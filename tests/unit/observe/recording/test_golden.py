"""A recording of each dialect of schema 1 is kept: what could be read once can always be read.

Each file is a DataLoader job of two workers with the hook, recorded by the writer of its time:

- `first-lines`: a change has whole lists of segments and descriptors;
- `unnumbered-notes`: a change has splices of these lists, and notes have no numbers;
- `numbered-notes`: notes have numbers.

The snapshot at the end is compared with the JSON beside the file. Findings, problems and wordings
are left out: new rules run on old files, and wordings may become better.
`MPWATCH_WRITE_GOLDEN=1` writes the JSON anew; read the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mpwatch.observe.recording.file import NotARecording, Recording
from mpwatch.observe.recording.timeline import Timeline
from mpwatch.observe.sources.replay import replay_to_end
from mpwatch.report.json import snapshot_json, text_of

DATA = Path(__file__).parents[3] / "data"
DIALECTS = ("first-lines", "unnumbered-notes", "numbered-notes")


def path_of(dialect: str) -> Path:
    return DATA / f"recording-schema-1-{dialect}.mpw"


def compared(document: Any) -> Any:
    """The JSON of a snapshot without what may change for old recordings."""
    left_out = ("findings", "problems", "waits")
    kept = {key: value for key, value in document.items() if key not in left_out}
    for process in kept["processes"]:
        del process["doing"], process["problems"]
    return kept


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_old_recording_ends_with_the_snapshot_kept_beside_it(dialect: str) -> None:
    path = path_of(dialect)
    shown = compared(json.loads(text_of(snapshot_json(replay_to_end(str(path)), with_stacks=True))))
    golden = path.with_suffix(".json")
    if os.environ.get("MPWATCH_WRITE_GOLDEN"):
        golden.write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    assert shown == json.loads(golden.read_text(encoding="utf-8"))
    assert [process["role"] for process in shown["processes"]] == [
        "main",
        "loader-worker",
        "loader-worker",
    ]
    assert shown["flows"]
    assert shown["segments"]


def test_the_notes_of_process_starts_in_old_recordings_have_their_present_kind() -> None:
    kinds = {
        entry.kind
        for dialect in DIALECTS
        for entry in replay_to_end(str(path_of(dialect))).log
        if entry.words.startswith(("birth", "start:"))
    }

    assert kinds == {"start"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_line_of_an_old_recording_is_decoded_and_can_be_sought(dialect: str) -> None:
    with Recording(str(path_of(dialect))) as recording:
        timeline = Timeline(recording)
        timeline.advance(float("inf"))
        end = timeline.snapshot()
        timeline.approach(0.0)
        timeline.advance(0.0)
        timeline.approach(recording.length_s)
        timeline.advance(recording.length_s)

        assert recording.problems == []
        assert timeline.problems == []
        assert timeline.snapshot() == end


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_old_recording_that_is_cut_anywhere_is_read_as_far_as_it_goes(
    dialect: str, tmp_path: Path
) -> None:
    whole = path_of(dialect).read_bytes()
    cut = tmp_path / "cut.mpw"
    step = max(1, len(whole) // 60)
    for end in (*range(0, 200, 7), *range(200, len(whole), step), len(whole) - 1):
        cut.write_bytes(whole[:end])
        try:
            said = [each for each in replay_to_end(str(cut)).problems if str(cut) in each]
        except NotARecording as error:
            said = [str(error)]
        assert said or _ends_with_a_member(cut), end
        assert all(each.endswith(".") and "\n" not in each for each in said)


def _ends_with_a_member(path: Path) -> bool:
    with Recording(str(path)) as recording:
        last = recording.members[-1]
    return last.offset + last.length == path.stat().st_size
