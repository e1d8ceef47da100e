"""Rows of pages as text."""

from __future__ import annotations

from mpwatch.tui.present.cells import drawn, text_of
from mpwatch.tui.present.moment import Moment


def row_text(page: object, item: object, moment: Moment) -> str:
    row = page.row(item, moment)  # type: ignore[attr-defined]
    return " ".join(text_of(drawn(found, 8)).strip() for found in row.cells)
