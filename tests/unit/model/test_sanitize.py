from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpwatch.model.sanitize import clean


@given(st.one_of(st.text(), st.binary()), st.integers(min_value=1, max_value=50))
def test_the_result_is_one_printable_line_of_bounded_length(raw: str | bytes, limit: int) -> None:
    out = clean(raw, limit)

    assert len(out) <= limit
    assert out.isprintable()


def test_plain_text_is_unchanged() -> None:
    assert clean("train.py --lr 0.1 [bold] é 数据") == "train.py --lr 0.1 [bold] é 数据"


def test_terminal_escapes_are_removed() -> None:
    assert clean(b"\x1b[31mred\x1b[0m\x1b]0;title\x07 end") == "red end"


def test_invalid_utf8_and_bidirectional_overrides_are_replaced() -> None:
    assert clean(b"a\xffb\xe2\x80\xaec") == "a\ufffdb\ufffdc"


def test_every_kind_of_space_becomes_a_plain_one() -> None:
    assert clean("a\xa0b\u2003c\u3000d\te") == "a b c d e"


def test_a_megabyte_is_cut() -> None:
    assert clean("x" * 10**6, 10) == "xxxxxxxxx…"
