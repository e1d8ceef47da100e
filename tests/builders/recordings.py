"""Recordings as tests read them."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.model.events import Input
from mpwatch.observe.recording.file import Recording


def read_recording(path: str) -> Iterator[Input]:
    """All inputs of a recording in order; of a cut one as many as are complete."""
    with Recording(path) as recording:
        yield from recording.inputs()
