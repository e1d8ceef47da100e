"""A page as data: a table, lines above it, details of the row under the cursor, text to copy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from mpwatch.model.ids import ProcessId
from mpwatch.tui.elements.snapshot_view import SnapshotView
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, drawn, text_of

T = TypeVar("T")


def _no_lines(view: SnapshotView, width: int) -> tuple[Line, ...]:
    return ()


def _no_details(item: object, view: SnapshotView, width: int) -> tuple[Line, ...]:
    return ()


def _no_process(item: object) -> ProcessId | None:
    return None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page as data; every function in it is pure."""

    name: str
    title: str
    short: str
    """Title for narrow screens."""
    columns: tuple[ScreenColumn, ...]
    items: Callable[[SnapshotView], Sequence[T]]
    """In the natural order of the page."""
    key: Callable[[T], Hashable]
    row: Callable[[T, SnapshotView], Row]
    text: Callable[[T, SnapshotView], str]
    """The text that the filter searches."""
    empty: Callable[[SnapshotView], tuple[str, ...]]
    """Why the page is empty, and what would fill it."""
    above: Callable[[SnapshotView, int], tuple[Line, ...]] = _no_lines
    details: Callable[[T, SnapshotView, int], tuple[Line, ...]] = _no_details
    """Lines about the item under the cursor."""
    details_share: float = 0.0
    """Part of the page's height for the details; zero is two lines."""
    process: Callable[[T], ProcessId | None] = _no_process
    """The process of an item; `enter` opens it."""
    sorts: Mapping[str, Callable[[T], float | str | None]] = field(default_factory=dict)
    """By column name. Numbers sort largest first, words in order, unknown values last."""
    arrange: Callable[[SnapshotView, Order], list[T]] | None = None
    """Replaces plain sorting where that would lose structure, as in a tree."""
    goes_on: bool = False
    """Whether new items appear on top; a cursor on the top row then stays on the top row."""
    help: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """The sort order of a table as chosen by the user."""

    column: str | None = None
    """`None` is the natural order."""
    is_reversed: bool = False

    def clicked(self, column: str) -> Order:
        """The order after a click on a column: sorted, then reversed, then natural again."""
        if self.column != column:
            return Order(column)
        return Order() if self.is_reversed else Order(column, is_reversed=True)


def ordered(page: Page[T], items: Sequence[T], order: Order) -> list[T]:
    """The items in the given order; equal items keep their natural order."""
    measure = page.sorts.get(order.column or "")
    if measure is None:
        return list(items)[::-1] if order.is_reversed else list(items)
    known = [(value, item) for item in items if (value := measure(item)) is not None]
    unknown = [item for item in items if measure(item) is None]
    is_number = bool(known) and not isinstance(known[0][0], str)
    known.sort(key=lambda pair: pair[0], reverse=is_number != order.is_reversed)
    return [item for _, item in known] + unknown


def in_shown_order(page: Page[T], items: Sequence[T], before: Sequence[Hashable]) -> list[T]:
    """The items in the order they had on screen; new ones at the end.

    Rows must not move under the cursor while the user moves through the table.
    """
    position = {key: index for index, key in enumerate(before)}
    return sorted(items, key=lambda item: position.get(page.key(item), len(position)))


def filtered(page: Page[T], items: Sequence[T], view: SnapshotView, wanted: str) -> list[T]:
    """The items whose text holds every word of the filter; case does not matter.

    A word that begins with `-` must not occur.
    """
    words = wanted.lower().split()
    if not words:
        return list(items)
    return [item for item in items if _matches(page.text(item, view).lower(), words)]


def _matches(text: str, words: Sequence[str]) -> bool:
    for word in words:
        if word.startswith("-") and len(word) > 1:
            if word[1:] in text:
                return False
        elif word not in text:
            return False
    return True


def without_column(page: Page[T], name: str) -> Page[T]:
    """The page without the named column, for a scope where all its cells are equal."""
    index = next(n for n, column in enumerate(page.columns) if column.name == name)

    def row(item: T, view: SnapshotView) -> Row:
        found = page.row(item, view)
        return replace(found, cells=(*found.cells[:index], *found.cells[index + 1 :]))

    columns = (*page.columns[:index], *page.columns[index + 1 :])
    return replace(page, columns=columns, row=row)


_WIDE = 400
_TREND_WIDTH = 20


def tab_separated(
    page: Page[T], items: Sequence[T], view: SnapshotView, *, with_details: bool = False
) -> str:
    """Column names and rows, separated by tabs; details as lines below."""
    used = [index for index, column in enumerate(page.columns) if column.name]
    lines = ["\t".join(page.columns[index].name for index in used)]
    for item in items:
        cells = page.row(item, view).cells
        lines.append(
            "\t".join(text_of(drawn(cells[index], _TREND_WIDTH)).strip() for index in used)
        )
        if with_details:
            lines += [text_of(found).rstrip() for found in page.details(item, view, _WIDE)]
    return "\n".join(lines) + "\n"
