"""Columns and wrapping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpwatch.model.sanitize import clean
from mpwatch.report.table import Column, TextStyle, cell_width, cut, cut_start, table

TEXT = st.text(max_size=40).map(clean)


@given(TEXT, st.integers(1, 30))
def test_a_cut_text_fits(text: str, width: int) -> None:
    assert cell_width(cut(text, width)) <= width
    assert cell_width(cut_start(text, width)) <= width


@given(TEXT)
def test_a_text_that_fits_is_unchanged(text: str) -> None:
    assert cut(text, cell_width(text)) == text


def test_wide_characters_count_as_two_cells_and_marks_as_none() -> None:
    assert cell_width("\u8a13\u7df4.py") == 7
    assert cell_width("e\u0301") == 1


def test_columns_stay_aligned_below_wide_names() -> None:
    lines = table(
        [Column("NAME"), Column("N", is_number=True)],
        [["\u8a13\u7df4.py", "1"], ["main", "22"]],
        TextStyle(80),
    )

    assert {cell_width(line) for line in lines} == {11}


def test_only_flexible_columns_become_narrower_down_to_their_floor() -> None:
    columns = [Column("FIXED"), Column("FLEXIBLE", is_flexible=True, floor=10)]

    lines = table(columns, [["x" * 20, "y" * 50]], TextStyle(24))

    assert lines[1] == "x" * 20 + "  " + "y" * 9 + "~"


def test_a_table_without_rows_has_its_titles() -> None:
    assert table([Column("A"), Column("B")], [], TextStyle(80)) == ["A  B"]
