"""Styled text, tables of it, and numbers drawn with characters.

A tone names the meaning of a style; the theme maps it to a colour. The same information is always
in the text as well.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size

Tone: TypeAlias = Literal[
    "",
    "title",
    "dim",
    "good",
    "accent",
    "trend",
    "chosen",
    "warning",
    "critical",
    "block",
    "block-other",
]
_LEVELS = "▁▂▃▄▅▆▇█"
UNREAD = "·"
"""Drawn for a value that could not be read."""


class Span(NamedTuple):
    """A piece of one line in one tone."""

    text: str
    tone: Tone = ""


Line: TypeAlias = tuple[Span, ...]
"""One line of a screen, left to right."""

NOTHING: Line = ()


def cell(text: str, tone: Tone = "") -> Line:
    """A line of one piece."""
    return (Span(text, tone),)


def line(*pieces: str | tuple[str, Tone]) -> Line:
    """A line of several pieces: plain text, or text with its tone."""
    return tuple(Span(p) if isinstance(p, str) else Span(*p) for p in pieces)


def gauge(share: float | None, width: int, tone: Tone = "") -> Line:
    """A share from 0 to 1 as a bar; the free part is dim."""
    used, free = bar(share, width)
    return (Span(used, tone or "trend"), Span(free, "dim"))


def headed(head: str, tone: Tone, text: str, width: int) -> tuple[Line, ...]:
    """A toned head followed by wrapped text; continuation lines are aligned with the text."""
    taken = cell_len(head)
    lines = wrapped(text, max(20, width - taken)) or (NOTHING,)
    return (
        (Span(head, tone), *lines[0]),
        *((Span(" " * taken), *each) for each in lines[1:]),
    )


def width_of(content: Iterable[Span]) -> int:
    """The width of a line in terminal cells; wide characters take two."""
    return sum(cell_len(span.text) for span in content)


def text_of(content: Iterable[Span]) -> str:
    """The line without its tones."""
    return "".join(span.text for span in content)


def cut(content: Line, width: int) -> Line:
    """The line in at most `width` cells; a cut is marked with an ellipsis."""
    if width_of(content) <= width:
        return content
    kept: list[Span] = []
    left = width - 1
    for span in content:
        size = cell_len(span.text)
        if size > left:
            kept.append(Span(set_cell_size(span.text, max(0, left)) + "…", span.tone))
            break
        kept.append(span)
        left -= size
    return tuple(kept) if width > 0 else NOTHING


def wrapped(text: str, width: int, tone: Tone = "", indent: str = "") -> tuple[Line, ...]:
    """Text wrapped to lines of at most `width` cells, all but the first indented."""
    lines: list[Line] = []
    current = ""
    for word in text.split():
        start = indent if lines else ""
        candidate = f"{current} {word}" if current else start + word
        if current and cell_len(candidate) > width:
            lines.append(cell(current, tone))
            current = indent + word
        else:
            current = candidate
    if current:
        lines.append(cell(current, tone))
    return tuple(lines)


_WORDS = re.compile(r"\s+|\S+")
HEAD_LINES = 2
"""The first lines, which are wrapped before all others: they say what the rest is about."""


def wrapped_line(content: Line, width: int) -> tuple[Line, ...]:
    """A line in lines of at most `width` cells, cut at spaces; further ones are indented.

    A word that is longer than a line stays as long as it is.
    """
    if width_of(content) <= width:
        return (content,)
    text = text_of(content)
    indent = Span(" " * (len(text) - len(text.lstrip()) + 2))
    lines: list[Line] = []
    current: list[Span] = []
    gap: Line = ()
    has_word = False
    for word in _words(content):
        if text_of(word).isspace():
            gap = (*gap, *word)
            continue
        if has_word and width_of((*current, *gap, *word)) > width:
            lines.append(tuple(current))
            current, gap = [indent], ()
        current += (*gap, *word)
        gap, has_word = (), True
    return (*lines, tuple(current))


def _words(content: Line) -> list[Line]:
    """Words and the gaps between them; a word may have several tones."""
    found: list[list[Span]] = []
    was_gap = True
    for span in content:
        for text in _WORDS.findall(span.text):
            is_gap = text.isspace()
            if is_gap or was_gap or not found:
                found.append([])
            found[-1].append(Span(text, span.tone))
            was_gap = is_gap
    return [tuple(spans) for spans in found]


def filled(lines: Sequence[Line], width: int, height: int) -> tuple[Line, ...]:
    """Lines with the long ones wrapped, the first ones first, while there are rows for it.

    Args:
        lines: Top to bottom.
        width: Cells of the page.
        height: Visible rows. Where they are few, the first lines are cut, and the others stay as
            long as they are: the details scroll sideways.
    """
    spare = height - len(lines)
    found: list[Line] = []
    for index, content in enumerate(lines):
        is_head = index < HEAD_LINES
        limit = max(spare, height - 2 * HEAD_LINES if is_head else 0)
        # Most lines of a deep stack have no room to be wrapped.
        parts = wrapped_line(content, width) if limit > 0 else ()
        if not parts or len(parts) - 1 > limit:
            found.append(cut(content, width) if is_head else content)
        else:
            spare -= len(parts) - 1
            found += parts
    return tuple(found)


class StatusPart(NamedTuple):
    """A piece of a status line that may be omitted; the least important is omitted first."""

    content: Line
    importance: int


_GAP = 3
"""Spaces between the pieces of a line."""


def fitted(left: Sequence[StatusPart], right: Sequence[StatusPart], width: int) -> Line:
    """One line with pieces at both ends; pieces that do not fit are omitted.

    Args:
        left: Pieces from the left edge.
        right: Pieces that end at the right edge.
        width: Cells of the line.
    """
    chosen = [*left, *right]
    while len(chosen) > 1 and _needed(chosen) > width:
        chosen.remove(min(chosen, key=lambda part: part.importance))
    lefts = _joined([part for part in left if part in chosen])
    rights = _joined([part for part in right if part in chosen])
    space = width - width_of(lefts) - width_of(rights)
    return cut((*lefts, Span(" " * max(0, space)), *rights), width)


def _needed(parts: Sequence[StatusPart]) -> int:
    return sum(width_of(part.content) for part in parts) + _GAP * (len(parts) - 1)


def _joined(parts: Sequence[StatusPart]) -> Line:
    spans: list[Span] = []
    for part in parts:
        if spans:
            spans.append(Span(" " * _GAP))
        spans.extend(part.content)
    return tuple(spans)


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """One column of a table."""

    name: str
    width: int
    """Cells; the minimum for a column that grows."""
    align: Literal["left", "right"] = "left"
    keep: int = 9
    """Importance: on narrow screens the lowest values are omitted first."""
    most: int = 0
    """Grows first, up to this many cells."""
    spreads: int = 0
    """Grows up to this many cells once growing columns have `ROOMY` spare cells."""
    grows: bool = False
    """Takes the remaining width."""
    letter: str = ""
    """Key that sorts by this column."""


class PlacedColumn(NamedTuple):
    """A column that fits on the screen."""

    column: int
    """Its index among all columns."""
    width: int


ROOMY = 42


def place(columns: Sequence[ScreenColumn], width: int) -> tuple[PlacedColumn, ...]:
    """Choose the columns that fit and distribute the remaining width."""
    chosen = list(range(len(columns)))
    while len(chosen) > 1 and _taken(columns, chosen) > width:
        chosen.remove(min(chosen, key=lambda i: (columns[i].keep, -i)))
    sizes = {i: columns[i].width for i in chosen}
    spare = max(0, width - _taken(columns, chosen))
    for i in chosen:
        extra = min(spare, max(0, columns[i].most - columns[i].width))
        sizes[i] += extra
        spare -= extra
    spreading = [i for i in chosen if columns[i].spreads > sizes[i]]
    for n, i in enumerate(spreading):
        share = max(0, spare - ROOMY) // (len(spreading) - n)
        extra = min(share, columns[i].spreads - sizes[i])
        sizes[i] += extra
        spare -= extra
    growing = [i for i in chosen if columns[i].grows]
    for n, i in enumerate(growing):
        share = spare // (len(growing) - n)
        sizes[i] += share
        spare -= share
    return tuple(PlacedColumn(i, sizes[i]) for i in chosen)


def _taken(columns: Sequence[ScreenColumn], chosen: Sequence[int]) -> int:
    return sum(columns[i].width + 1 for i in chosen) - 1


@dataclass(frozen=True, slots=True)
class Trend:
    """Numbers drawn as a trend at the width of their column."""

    values: Sequence[float | None]
    """Oldest first."""
    top: float | None = None
    """The value of a full block; `None` draws from the smallest value shown to the largest."""
    least_span: float = 0.0
    """Without a top: a smaller range of values is drawn on a scale of this span."""

    def looks_like(self, other: Trend, width: int) -> bool:
        """Whether both draw the same values at this width."""
        return (
            self.values[-width:] == other.values[-width:]
            and self.top == other.top
            and self.least_span == other.least_span
        )

    def drawn(self, width: int) -> Line:
        """The newest values as blocks."""
        if self.top is not None:
            return cell(trend(self.values, width, top=self.top), "trend")
        return cell(drift(self.values, width, self.least_span), "trend")


@dataclass(frozen=True, slots=True)
class Numbered:
    """A name with a number at its end, which tells it from others when it has to be cut."""

    before: Line
    name: str
    """With its number: `subproc_vec_env._worker 3`."""
    after: Line = NOTHING
    tone: Tone = ""

    def drawn(self, width: int) -> Line:
        """The line; where it is too long, with an ellipsis in the name before the number."""
        spare = width - width_of(self.before) - width_of(self.after)
        stem, _, number = self.name.rpartition(" ")
        left = spare - cell_len(number) - 2
        name = self.name
        if cell_len(name) > spare and left > 0:
            name = f"{set_cell_size(stem, left)}… {number}"
        return (*self.before, Span(name, self.tone), *self.after)


Cell: TypeAlias = Line | Trend | Numbered


def name_cell(name: str, tone: Tone = "") -> Cell:
    """The name of a process: `worker 0 of rank 3` keeps its numbers where it has to be cut."""
    is_numbered = name.rpartition(" ")[2].isdecimal()
    return Numbered(NOTHING, name, tone=tone) if is_numbered else cell(name, tone)


def drawn(content: Cell, width: int) -> Line:
    """A cell as text."""
    return content if isinstance(content, tuple) else content.drawn(width)


def looks_alike(old: Cell, new: Cell, width: int) -> bool:
    """Whether two cells draw the same text."""
    if isinstance(old, Trend) and isinstance(new, Trend) and old.looks_like(new, width):
        return True
    return old == new or drawn(old, width) == drawn(new, width)


NO_MARK = Span(" ")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its key and its cells."""

    key: Hashable
    cells: tuple[Cell, ...]
    tone: Tone = ""
    """Tone of spans without their own tone."""
    mark: Span = NO_MARK
    """One letter before the row."""


def trend(
    values: Sequence[float | None], width: int, top: float | None = None, bottom: float = 0.0
) -> str:
    """The last values as blocks, oldest first, padded on the left.

    Args:
        values: Oldest first; `None` was not read.
        width: Characters.
        top: The value of a full block; by default the largest shown.
        bottom: The value of the lowest block.
    """
    shown = list(values[-width:]) if width > 0 else []
    known = [value for value in shown if value is not None]
    if not known:
        return " " * width
    top = max(known) if top is None else top
    return "".join(_block(value, bottom, top) for value in shown).rjust(width)


def drift(values: Sequence[float | None], width: int, least_span: float) -> str:
    """Like `trend`, but drawn from the smallest value: for numbers whose change matters.

    Args:
        values: Oldest first.
        width: Characters.
        least_span: A smaller range of values is drawn on a scale of this span.
    """
    known = [value for value in values[-width:] if value is not None] if width > 0 else []
    if not known:
        return " " * width
    low = min(known)
    return trend(values, width, top=max(max(known), low + least_span), bottom=low)


def _block(value: float | None, bottom: float, top: float) -> str:
    if value is None:
        return UNREAD
    if top <= bottom:
        return _LEVELS[0]
    share = (value - bottom) / (top - bottom)
    return _LEVELS[max(0, min(len(_LEVELS) - 1, round(share * (len(_LEVELS) - 1))))]


def bar(share: float | None, width: int) -> tuple[str, str]:
    """A share from 0 to 1 as the used and the free part of a bar.

    An unknown share is drawn as `????????`.
    """
    if share is None:
        return "?" * width, ""
    # Any use is visible, and a limit that is not reached is not drawn as full.
    filled = round(max(0.0, min(1.0, share)) * width)
    if share > 0:
        filled = max(1, filled)
    if share < 1:
        filled = min(width - 1, filled)
    return "━" * filled, "─" * (width - filled)
