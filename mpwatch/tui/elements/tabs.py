"""The bottom line: the pages with their digits, and the keys that work everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpwatch.tui.elements.styled_text import Line, Span, width_of


class Tab(NamedTuple):
    """The digit and names of a page in the bottom line."""

    digit: str
    title: str
    short: str


class TabRange(NamedTuple):
    """The range of clickable cells of a page."""

    start: int
    end: int
    digit: str


def tab_line(
    tabs: Sequence[Tab], current: str, hints: Sequence[tuple[str, str]], width: int
) -> tuple[Line, tuple[TabRange, ...]]:
    """The line and its clickable ranges.

    Args:
        tabs: The pages, in order.
        current: Digit of the page shown.
        hints: Keys with their action, most useful first; hints that do not fit are omitted.
        width: Cells of the line.
    """
    names = [tab.title for tab in tabs]
    if _width(tabs, names, 2) + 10 > width:
        names = [tab.short for tab in tabs]
    first = sum(map(len, hints[0])) + 4 if hints else 0
    if _width(tabs, names, 1) + first > width:
        names = [
            name if tab.digit == current else "" for tab, name in zip(tabs, names, strict=True)
        ]
    gap = 2 if _width(tabs, names, 2) + 10 <= width else 1
    spans: list[Span] = [Span(" ")]
    ranges = []
    at = 1
    for tab, name in zip(tabs, names, strict=True):
        text = f"{tab.digit} {name}".rstrip()
        ranges.append(TabRange(at, at + len(text), tab.digit))
        is_current = tab.digit == current
        spans.append(Span(f"{tab.digit} " if name else tab.digit, "accent"))
        if name:
            spans.append(Span(name, "chosen" if is_current else ""))
        spans.append(Span(" " * gap))
        at += len(text) + gap
    room = width - width_of(spans) - 1
    for key, words in hints:
        text = f"  {key} {words}"
        if len(text) <= room:
            spans += [Span(f"  {key}", "accent"), Span(f" {words}", "dim")]
            room -= len(text)
    return tuple(spans), tuple(ranges)


def _width(tabs: Sequence[Tab], names: Sequence[str], gap: int) -> int:
    return 1 + sum(
        len(tab.digit) + 1 + len(name) + gap for tab, name in zip(tabs, names, strict=True)
    )
