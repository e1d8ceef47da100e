"""Recordings made on the fly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from mpwatch.model.events import Input
from mpwatch.observe.recording.codec import moment_of
from mpwatch.observe.recording.file import RecordingWriter
from tests.builders.samples import MAIN, START_S

Recorded: TypeAlias = Callable[[Sequence[Input]], str]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    def record(inputs: Sequence[Input]) -> str:
        path = str(tmp_path / "job.mpw")
        now_s = START_S

        def clock() -> float:
            return now_s

        writer = RecordingWriter(path, MAIN, clock=clock, wall_clock=lambda: 1.8e9)
        for each in inputs:
            now_s = moment_of(each)
            writer.write(each)
        writer.close()
        return path

    return record
