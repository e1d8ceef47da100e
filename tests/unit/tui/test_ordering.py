"""Sorting, holding and filtering rows."""

from __future__ import annotations

import pytest

from mpwatch.tui.elements.page import Order, SnapshotView, filtered, in_shown_order, ordered
from mpwatch.tui.pages import files, tree


def test_numbers_sort_largest_first_and_words_in_order(view: SnapshotView) -> None:
    made = files.PAGE.items(view)

    by_number = ordered(files.PAGE, made, Order("USED"))
    by_word = ordered(files.PAGE, made, Order("PROCESS"))

    assert by_number[0].label == "main"
    assert [p.label for p in by_word] == sorted(p.label for p in made)


def test_choosing_a_column_again_reverses_and_a_third_time_restores() -> None:
    order = Order().clicked("CPU")
    again = order.clicked("CPU")

    assert order == Order("CPU")
    assert again == Order("CPU", is_reversed=True)
    assert again.clicked("CPU") == Order()


def test_rows_in_shown_order_keep_their_places_and_new_ones_come_last(view: SnapshotView) -> None:
    items = files.PAGE.items(view)
    before = [files.PAGE.key(item) for item in reversed(items[1:])]

    found = in_shown_order(files.PAGE, items, before)

    assert [files.PAGE.key(item) for item in found] == [*before, files.PAGE.key(items[0])]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [("", 6), ("worker", 5), ("WORKER idle", 3), ("worker -idle", 2), ("nowhere", 0)],
)
def test_a_filter_requires_every_word_and_excludes_words_with_a_minus(
    wanted: str, count: int, view: SnapshotView
) -> None:
    nodes = tree.nodes(view, Order())

    assert len(filtered(tree.PAGE, nodes, view, wanted)) == count
