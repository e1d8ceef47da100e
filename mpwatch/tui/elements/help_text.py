"""Help texts of pages and keys, as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from mpwatch.tui.elements.styled_text import Line, ScreenColumn, cell, headed, line, wrapped

EVERYWHERE = (
    "Top line: job, mode, processes with the hook ready of those that can have it, hook events",
    "  overwritten before they were read, and the cpu used by mpwatch and by its hooks.",
    "Green, yellow and red always come with a word or a letter: C critical, w warning, i info.",
    "A dash is a number that could not be read, never zero.",
    "Rows keep their order while keys are pressed; the cursor stays on its process.",
)
_KEY_WIDTH = 16


class KeyHelp(NamedTuple):
    """Keys and their action."""

    keys: str
    words: str


def column_keys(columns: Sequence[ScreenColumn]) -> list[KeyHelp]:
    """The letters that sort by a column, in one line; empty if no column has one."""
    found = [column for column in columns if column.letter]
    if not found:
        return []
    letters = " ".join(column.letter for column in found)
    names = ", ".join(column.name for column in found)
    return [KeyHelp(letters, f"Sort by {names}; again: reverse the order")]


MOVING = (
    KeyHelp("up down  k j", "move the cursor; page up, page down, home g, end G"),
    KeyHelp("left right  h l", "fold and unfold in the tree; sideways in text"),
    KeyHelp("enter", "open what is under the cursor; a second click does the same"),
    KeyHelp("tab", "to the findings on top, the rows, or the text below if it is cut"),
)


class HelpText(NamedTuple):
    """The help of one screen."""

    title: str
    about: Sequence[str]
    keys: Sequence[KeyHelp]

    def lines(self, width: int) -> tuple[Line, ...]:
        """The whole help text, wrapped to the width."""
        lines: list[Line] = [line((f"mpwatch: {self.title}", "title")), cell("")]
        lines += _paragraphs(self.about, width)
        lines += [cell(""), line(("Keys", "title"))]
        for key in (*MOVING, *self.keys):
            lines += headed(f"  {key.keys:<{_KEY_WIDTH}} ", "accent", key.words, width)
        lines += [cell(""), line(("Everywhere", "title"))]
        lines += _paragraphs(EVERYWHERE, width)
        lines += [cell(""), cell("esc goes back", "dim")]
        return tuple(lines)


def _paragraphs(texts: Sequence[str], width: int) -> list[Line]:
    """Wrapped sentences; continuation lines are aligned with the text after the term."""
    lines: list[Line] = []
    for text in texts:
        if cell_len(text) <= width:
            lines.append(cell(text))
            continue
        words = text.lstrip()
        gap = words.find("  ") if words == text else 0
        head = text[: len(text) - len(words[gap:].lstrip())] if 0 <= gap <= _KEY_WIDTH else ""
        lines += (
            headed(head, "", text[len(head) :], width)
            if head
            else wrapped(text, width, indent="  ")
        )
    return lines
