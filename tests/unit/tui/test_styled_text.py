"""Lines, columns, trends and bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mpwatch.tui.elements.styled_text import (
    ScreenColumn,
    Span,
    StatusPart,
    bar,
    cell,
    cut,
    drift,
    filled,
    fitted,
    line,
    place,
    text_of,
    trend,
    width_of,
    wrapped,
    wrapped_line,
)


def test_a_line_that_fits_is_not_cut() -> None:
    assert cut(line("one ", ("two", "dim")), 7) == line("one ", ("two", "dim"))


def test_a_cut_is_marked_with_an_ellipsis() -> None:
    assert text_of(cut(line("one ", ("twofold", "dim")), 7)) == "one tw…"


@given(st.text(alphabet="ab 日本é", max_size=40), st.integers(1, 30))
def test_a_cut_line_is_never_wider_than_the_limit(text: str, width: int) -> None:
    assert width_of(cut(cell(text), width)) <= width


@given(st.text(alphabet="ab 日本", max_size=80), st.integers(8, 40))
def test_wrapping_keeps_every_word_in_order(text: str, width: int) -> None:
    lines = wrapped(text, width)

    assert " ".join(text_of(found) for found in lines).split() == text.split()


def test_the_least_important_part_is_omitted_first() -> None:
    parts = [
        StatusPart(cell("program"), 9),
        StatusPart(cell("python 3.11"), 1),
        StatusPart(cell("4242"), 5),
    ]

    assert text_of(fitted(parts, [], 22)).strip() == "program   4242"


def test_right_hand_parts_end_at_the_edge() -> None:
    found = fitted([StatusPart(cell("left"), 1)], [StatusPart(cell("right"), 1)], 20)

    assert text_of(found) == "left           right"


COLUMNS = (
    ScreenColumn("A", 10, keep=9),
    ScreenColumn("B", 5, keep=1),
    ScreenColumn("C", 5, keep=5, most=8),
    ScreenColumn("D", 10, keep=9, grows=True),
)


def test_the_least_important_column_is_omitted_first() -> None:
    assert [placed.column for placed in place(COLUMNS, 30)] == [0, 2, 3]
    assert [placed.column for placed in place(COLUMNS, 22)] == [0, 3]


@given(st.integers(10, 300))
def test_columns_fill_the_width_and_never_exceed_it(width: int) -> None:
    placed = place(COLUMNS, width)
    taken = sum(found.width + 1 for found in placed) - 1

    assert taken == width if len(placed) > 1 else taken <= width


def test_a_column_with_a_maximum_grows_before_unlimited_ones() -> None:
    assert [placed.width for placed in place(COLUMNS, 43)] == [10, 5, 8, 17]


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ((0.0, 50.0, 100.0), " ▁▅█"),
        ((), "    "),
        ((None, 100.0), "  ·█"),
        ((1.0, 2.0, 3.0, 4.0, 100.0, 100.0), "▁▁██"),
    ],
)
def test_a_trend_against_a_fixed_top(values: tuple[float | None, ...], drawn: str) -> None:
    assert trend(values, 4, top=100.0) == drawn


def test_a_constant_number_is_drawn_flat_and_low() -> None:
    assert drift((400.0,) * 4, 4, least_span=16) == "▁▁▁▁"


def test_growth_is_visible_at_any_height() -> None:
    assert drift((40_000.0, 40_050.0, 40_100.0), 3, least_span=16) == "▁▅█"


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0.0, "────"), (0.01, "━───"), (0.5, "━━──"), (0.99, "━━━─"), (1.0, "━━━━")],
)
def test_a_bar_shows_the_first_use_and_is_full_only_at_the_limit(share: float, drawn: str) -> None:
    assert "".join(bar(share, 4)) == drawn


def test_an_unknown_share_is_not_an_empty_bar() -> None:
    assert "".join(bar(None, 4)) == "????"


def test_a_span_is_plain_unless_toned() -> None:
    assert line("a", ("b", "warning")) == (Span("a"), Span("b", "warning"))


def test_a_long_line_wraps_at_spaces_and_keeps_its_tones_and_indent() -> None:
    content = line("   ", ("name", "title"), (" (rank 0)", "dim"), " waits for a key in the store")

    lines = wrapped_line(content, 24)

    assert [text_of(each) for each in lines] == [
        "   name (rank 0) waits",
        "     for a key in the",
        "     store",
    ]
    assert lines[0][1].tone == "title"
    assert {span.tone for span in lines[0] if "rank" in span.text} == {"dim"}
    assert wrapped_line(content, 80) == (content,)


@given(st.text(alphabet="ab \u4e2d", max_size=60), st.integers(8, 30))
def test_wrapping_loses_no_word(text: str, width: int) -> None:
    lines = wrapped_line(cell(text), width)

    assert " ".join(map(text_of, lines)).split() == text.split()
    fitting = all(
        cell_len(word) + len(text) - len(text.lstrip()) + 2 <= width for word in text.split()
    )
    if fitting:
        assert max(map(width_of, lines)) <= width


def test_first_lines_are_wrapped_before_others_and_cut_where_there_are_two_rows() -> None:
    long = "a word and another word and more"
    lines = (cell(long), cell("short"), cell(long), cell(long))

    assert [text_of(each) for each in filled(lines[:2], 20, 2)] == ["a word and another …", "short"]
    assert [text_of(each) for each in filled(lines, 20, 6)] == [
        "a word and another",
        "  word and more",
        "short",
        "a word and another",
        "  word and more",
        long,
    ]
