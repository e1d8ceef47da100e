"""The statements that frames are at and what they do (marks); quotes of them for evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark, MarkKind, SourceLine, Statement

QUOTES = 3
"""Lines quoted in one finding."""
_PLACE = re.compile(r"(?<![\w/.-])([\w.-]{1,80}\.py):(\d{1,6}) ([\w<>]{1,100})")


def source_of(index: Index, frame: Frame) -> SourceLine | None:
    """The statement that a frame is at; `None` if its file could not be read."""
    return _lines(index).get((frame.file, frame.line, frame.function))


def are_of_one_function(index: Index, one: Frame, other: Frame) -> bool:
    """Whether two frames are of one function, as far as known; a file may have several so named."""
    if (one.file, one.function) != (other.file, other.function):
        return False
    first, second = source_of(index, one), source_of(index, other)
    known = (first.defined, second.defined) if first and second else (0, 0)
    return not all(known) or known[0] == known[1]


def main_line(index: Index, process: Process) -> tuple[Frame, SourceLine] | None:
    """The frame of the program that a main thread is in, and its statement; `None` without either.

    Derived once for the rules that ask it of every process: half a dozen do.
    """
    return _main_line(index, process.process)


@derived
def _main_line(index: Index, identity: ProcessId) -> tuple[Frame, SourceLine] | None:
    process = index.snapshot.get(identity)
    thread = main_thread(process) if process is not None else None
    frame = user_frame(thread.stack) if thread is not None else None
    line = source_of(index, frame) if frame is not None else None
    return None if frame is None or line is None else (frame, line)


@derived
def _lines(index: Index) -> Mapping[tuple[str, int, str], SourceLine]:
    return {(each.file, each.line, each.function): each for each in index.snapshot.source}


@derived
def _by_place(index: Index) -> Mapping[str, SourceLine | None]:
    """Lines by the words that findings have for them; `None` where two files have one name."""
    found: dict[str, SourceLine | None] = {}
    for line in index.snapshot.source:
        place = f"{line.file.rpartition('/')[2]}:{line.line} {line.function}"
        known = found.get(place, line)
        found[place] = line if known is not None and known.file == line.file else None
    return found


def line_at(index: Index, place: str) -> SourceLine | None:
    """The statement at a place in words, `train.py:57 step`; `None` if it is not known."""
    return _by_place(index).get(place)


def stacks_at(index: Index, place: str) -> Iterator[tuple[Sequence[Frame], Sequence[Frame]]]:
    """The stacks of threads that the program has last entered at a place in words.

    Yields:
        The frames of libraries that its line has called, innermost first, and the program's own
        frames, that of the place first.
    """
    for process in index.snapshot.living():
        for thread in process.threads:
            frames = own_frames(thread.stack)
            inner = list(takewhile(is_library, frames))
            own = program_frames(frames)
            if own and frame_words(own[0]) == place:
                yield inner, own


def is_in_loop(headers: Sequence[Statement]) -> bool:
    """Whether one of the headers around a line is that of a loop."""
    return any(each.text.startswith(("while ", "for ")) for each in headers)


def marks(index: Index, kind: MarkKind, process: Process | None = None) -> Sequence[Mark]:
    """Statements of the program of one kind, in the order of files and lines.

    Args:
        index: The snapshot.
        kind: What they do.
        process: Only those in files that its main thread is in.
    """
    found = _marks_by_kind(index).get(kind, ())
    if process is None:
        return found
    thread = main_thread(process)
    files = {each.file for each in own_frames(thread.stack)} if thread is not None else set()
    return [each for each in found if each.file in files]


@derived
def _marks_by_kind(index: Index) -> Mapping[MarkKind, Sequence[Mark]]:
    """All of them, each once. Rules ask for those of some kinds for each line of each process."""
    found: dict[MarkKind, list[Mark]] = {}
    ordered = sorted(
        set(index.snapshot.marks), key=lambda mark: (mark.file, mark.statement.line, mark.about)
    )
    for mark in ordered:
        found.setdefault(mark.kind, []).append(mark)
    return found


def mark_place(mark: Mark) -> str:
    """The place of a mark as in findings: `consumer.py:26 next`."""
    return f"{mark.file.rpartition('/')[2]}:{mark.statement.line} {mark.function}"


def mark_words(mark: Mark) -> str:
    """``` `self.delay *= 2` at consumer.py:26 next ```, with the statement quoted."""
    return f"`{mark.statement.text}` at {mark_place(mark)}"


def quotes_for(index: Index, finding: Finding) -> tuple[str, ...]:
    """The source of the program's own lines that a finding names, as lines of its evidence."""
    if not index.snapshot.source:
        return ()
    texts = (finding.summary, *finding.evidence, finding.cause, finding.advice)
    known = _by_place(index)
    lines = (known.get(place) for place in dict.fromkeys(places_named(texts)))
    quotes = (_quote(line) for line in lines if line is not None)
    return tuple(dict.fromkeys(quotes))[:QUOTES]


def lines_named(index: Index, text: str) -> list[SourceLine]:
    """The program's own lines that a text names, as far as their source is known."""
    found = (line_at(index, place) for place in dict.fromkeys(places_named((text,))))
    return [line for line in found if line is not None]


def places_named(texts: Iterable[str]) -> Iterator[str]:
    """The places that texts name, as `train.py:57 step`."""
    for text in texts:
        for match in _PLACE.finditer(text):
            if match[3] != "<module>":
                yield match[0]


def _quote(line: SourceLine) -> str:
    """The statement at a line, with the condition before it or the loop around it."""
    name = line.file.rpartition("/")[2]
    text = f"{name}:{line.statement.line} is `{line.statement.text}`"
    if line.after:
        text += f", after `{line.after[-1].text}` in line {line.after[-1].line}"
    elif line.within:
        text += f", in `{line.within[-1].text}` of line {line.within[-1].line}"
    return text
