"""Rows as text for the clipboard or a file, not cut to a width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mpwatch.tui.elements.page import Page
from mpwatch.tui.elements.snapshot_view import Moment
from mpwatch.tui.elements.styled_text import drawn, text_of

T = TypeVar("T")
_WIDE = 400
_TREND_WIDTH = 20


def copied(page: Page[T], items: Sequence[T], moment: Moment, *, with_details: bool = False) -> str:
    """Column names and rows, separated by tabs; details as lines below."""
    used = [index for index, column in enumerate(page.columns) if column.name]
    lines = ["\t".join(page.columns[index].name for index in used)]
    for item in items:
        cells = page.row(item, moment).cells
        lines.append(
            "\t".join(text_of(drawn(cells[index], _TREND_WIDTH)).strip() for index in used)
        )
        if with_details:
            lines += [text_of(found).rstrip() for found in page.details(item, moment, _WIDE)]
    return "\n".join(lines) + "\n"
