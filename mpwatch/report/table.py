"""Columns, wrapping and emphasis of text reports.

Widths are counted in terminal cells, because names may contain wide characters.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

Emphasis: TypeAlias = Literal["plain", "strong", "faint", "good", "warning", "bad"]

GAP = "  "
ELLIPSIS = "~"
"""Marks a cut; ASCII, since reports are piped through other programs."""

_SGR: Mapping[Emphasis, str] = {
    "strong": "1",
    "faint": "2",
    "good": "32",
    "warning": "33",
    "bad": "31;1",
}


class TextStyle(Struct, frozen=True):
    """Width and colour of a text report."""

    width: int = 80
    """Cells of a line."""
    has_colour: bool = False
    """For a terminal without NO_COLOR in the environment."""

    def paint(self, text: str, emphasis: Emphasis) -> str:
        """The text in the colour of an emphasis, or unchanged without colour."""
        code = _SGR.get(emphasis) if self.has_colour else None
        return f"\x1b[{code}m{text}\x1b[0m" if code and text else text

    def wrap(self, text: str, indent: str = "", hanging: str | None = None) -> list[str]:
        """Lines no wider than the width; words longer than a line are cut into pieces."""
        hanging = indent if hanging is None else hanging
        return textwrap.wrap(
            text, max(self.width, 20), initial_indent=indent, subsequent_indent=hanging
        ) or [indent.rstrip()]


PLAIN = TextStyle()
"""80 columns without emphasis."""


class Column(Struct, frozen=True):
    """One column of a table."""

    title: str
    is_number: bool = False
    """Right-aligned."""
    is_flexible: bool = False
    """Gives way when the table is wider than the text; at least `floor` cells stay."""
    floor: int = 12


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], style: TextStyle) -> list[str]:
    """Aligned lines, a title line first; flexible columns are cut to fit the width."""
    widths = [
        max([cell_width(column.title), *(cell_width(row[i]) for row in rows)])
        for i, column in enumerate(columns)
    ]
    _fit(columns, widths, style.width)
    titles = _line([column.title for column in columns], columns, widths)
    return [
        style.paint(titles, "strong"),
        *(_line(row, columns, widths) for row in rows),
    ]


def cell_width(text: str) -> int:
    """Cells the text takes on a terminal: wide characters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def cut(text: str, width: int) -> str:
    """The text in at most `width` cells, a cut marked at its end."""
    if cell_width(text) <= width:
        return text
    out: list[str] = []
    left = width - len(ELLIPSIS)
    for character in text:
        left -= _character_width(character)
        if left < 0:
            break
        out.append(character)
    return "".join(out) + ELLIPSIS[: max(0, width)]


def cut_start(text: str, width: int) -> str:
    """The end of a text in at most `width` cells, a cut marked at its start; for paths."""
    if cell_width(text) <= width:
        return text
    kept = cut(text[::-1], width)
    return kept[::-1]


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fit(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Narrow the flexible columns, the widest first, until the row fits."""
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while excess > 0:
        able = [i for i, c in enumerate(columns) if c.is_flexible and widths[i] > c.floor]
        if not able:
            return
        widest = max(able, key=lambda i: widths[i])
        widths[widest] -= 1
        excess -= 1


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        shown = cut(cell, width)
        blank = " " * (width - cell_width(shown))
        padded.append(blank + shown if column.is_number else shown + blank)
    return GAP.join(padded).rstrip()
