"""Rows of pages as text."""

from __future__ import annotations

from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import drawn, text_of


def row_text(page: object, item: object, view: SnapshotView, width: int = 8) -> str:
    row = page.row(item, view)  # type: ignore[attr-defined]
    return " ".join(text_of(drawn(found, width)).strip() for found in row.cells)
