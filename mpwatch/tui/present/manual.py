"""Help texts: what a page shows and which keys do what, as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpwatch.tui.present.cells import Line, cell, line

EVERYWHERE = (
    "Green, yellow and red always come with a word or a letter: C critical, w warning, i info.",
    "A dash is a number that could not be read, never zero.",
    "Rows keep their order while keys are pressed; the cursor stays on its process.",
)
_KEY_WIDTH = 16


class KeyHelp(NamedTuple):
    """Keys and what they do."""

    keys: str
    words: str


MOVING = (
    KeyHelp("up down  k j", "move the cursor; page up, page down, home g, end G"),
    KeyHelp("left right  h l", "fold and unfold in the tree; sideways in text"),
    KeyHelp("enter", "open what is under the cursor; a second click does the same"),
    KeyHelp("tab", "between the findings on top and the tree"),
)


def manual(title: str, about: Sequence[str], keys: Sequence[KeyHelp]) -> tuple[Line, ...]:
    """The help of one screen."""
    lines: list[Line] = [line((f"mpwatch: {title}", "title")), cell("")]
    lines += [cell(words) for words in about]
    lines += [cell(""), line(("Keys", "title"))]
    lines += [_key_line(key) for key in (*MOVING, *keys)]
    lines += [cell(""), line(("Everywhere", "title"))]
    lines += [cell(words) for words in EVERYWHERE]
    lines += [cell(""), cell("esc leads back", "dim")]
    return tuple(lines)


def _key_line(key: KeyHelp) -> Line:
    return line((f"  {key.keys:<{_KEY_WIDTH}} ", "accent"), key.words)
