"""Values of names in frames: numbers, lengths and types, and never text of the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import StackSource

FRAMES_LIMIT = 8
"""Frames of a process that are asked for at a time."""
NAMES_LIMIT = 16
"""Names of a frame."""


class WantedFrame(NamedTuple):
    """The names to read in the innermost frame of a function of a thread."""

    tid: int
    """Kernel thread id, as the process sees it."""
    file: str
    function: str
    names: tuple[str, ...]
    """Dotted, as the source has them: `step`, `self.state.step`."""


class NameValue(NamedTuple):
    """What a name refers to."""

    name: str
    type: str
    """Name of its class; `nan`, `inf` or `-inf` for such a float."""
    number: int | float | bool | None = None
    """Of an int of at most 64 bits, a bool or a float."""
    length: int | None = None
    """Of a container of the standard library, a str or bytes."""
    has_graph: bool | None = None
    """Of a tensor, or of the last element of a list or tuple if that is one: whether it carries an
    autograd graph."""


class FrameValues(NamedTuple):
    """The values of names in one frame."""

    tid: int
    file: str
    function: str
    line: int
    """Where it was then."""
    values: tuple[NameValue, ...]

    def get(self, name: str) -> NameValue | None:
        """The value of a name, or `None`."""
        return next((each for each in self.values if each.name == name), None)


@dataclass(frozen=True, slots=True)
class ValuesRead:
    """An input: the values of names in some frames of one process."""

    process: ProcessId
    at_s: float
    source: StackSource
    frames: tuple[FrameValues, ...] = ()
