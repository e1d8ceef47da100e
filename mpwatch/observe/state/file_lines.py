"""Lines of the program that make files, from stacks that were taken while they did, and from hooks.

Stacks are taken a few times a second in the whole job. A line in which its process spends a
hundredth of the time is found within half a minute, one that takes microseconds is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.describe.frames import frame_words, is_library
from mpwatch.model.events import HookNote
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StackSample
from mpwatch.model.snapshot import FileLine

LINES_LIMIT = 32
"""Of the whole job; the line that was not seen for longest is dropped."""
DEPTH = 16
"""Frames within which the call has to be."""
MAKERS = {
    "tempfile.py": frozenset(
        ("_mkstemp_inner", "mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryFile")
    ),
    "shared_memory.py": frozenset(("__init__",)),
    "shutil.py": frozenset(("copyfileobj", "copyfile", "copy", "copy2")),
    "pathlib.py": frozenset(("write_bytes", "write_text")),
    "zipfile.py": frozenset(("write", "writestr", "_write_end_record")),
    "npyio.py": frozenset(("save", "savez", "savez_compressed", "_savez", "savetxt")),
    "_npyio_impl.py": frozenset(("save", "savez", "savez_compressed", "_savez", "savetxt")),
    "serialization.py": frozenset(("save", "_save", "_legacy_save")),
    "Image.py": frozenset(("save",)),
    "feather_format.py": frozenset(("to_feather",)),
    "parquet.py": frozenset(("to_parquet",)),
    "core.py": frozenset(("imwrite", "mimwrite")),
}
"""Functions that make a file, by the module: CPython 3.10 to 3.15, numpy 1.2x to 2.x, torch 2.x,
Pillow, pandas, imageio 2."""


class FileLines:
    """Counts how often each line was seen to make a file."""

    def __init__(self) -> None:
        self._lines: dict[tuple[ProcessId, str, int | None], FileLine] = {}

    def add_stacks(self, stacks: Sequence[StackSample]) -> None:
        """Note the lines of the program from which stacks lead into making a file."""
        for stack in stacks:
            place = _making(stack.frames)
            if place is not None:
                self._add(FileLine(stack.process, place, 1, None))

    def add_note(self, note: HookNote) -> None:
        """Note the line of a `call-site`: one that made a segment of so many bytes."""
        site, size = note.data.get("site"), note.data.get("bytes")
        if isinstance(site, str) and isinstance(size, int):
            self._add(FileLine(note.process, site, 1, size))

    def lines(self) -> tuple[FileLine, ...]:
        """The lines, those seen most often first."""
        return tuple(sorted(self._lines.values(), key=lambda line: -line.times))

    def _add(self, line: FileLine) -> None:
        key = (line.process, line.place, line.size_bytes)
        known = self._lines.pop(key, None)
        self._lines[key] = line if known is None else line._replace(times=known.times + 1)
        if len(self._lines) > LINES_LIMIT:
            del self._lines[next(iter(self._lines))]


def _making(frames: Sequence[Frame]) -> str | None:
    """The line of the program that makes a file at this moment; `None` if none does."""
    makes = False
    for frame in frames[:DEPTH]:
        if not is_library(frame):
            return frame_words(frame) if makes else None
        makers = MAKERS.get(frame.file.rpartition("/")[2])
        makes = makes or (makers is not None and frame.function in makers)
    return None
