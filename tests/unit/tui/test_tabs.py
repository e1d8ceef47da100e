"""The bottom line with the pages."""

from __future__ import annotations

import pytest

from mpwatch.tui.elements.header import Tab, tab_line
from mpwatch.tui.elements.styled_text import text_of, width_of
from mpwatch.tui.screens.base import in_replay

NAMES = ("Overview", "Threads", "Shared memory", "Files", "Loader", "Flows", "Waits", "Events")
TABS = [Tab(str(n), name, name[:4]) for n, name in enumerate(NAMES)]
HINTS = (("?", "help"), ("/", "filter"))


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_page_has_its_digit_and_help_is_shown_at_every_width(width: int) -> None:
    content, ranges = tab_line(TABS, "6", HINTS, width)

    words = text_of(content)
    assert width_of(content) <= width
    assert [words[each.start] for each in ranges] == [tab.digit for tab in TABS]
    assert "6 Wait" in words
    assert "? help" in words


def test_a_replay_has_its_own_keys_after_the_way_back_and_no_output_of_the_job() -> None:
    keys = [key for key, _ in in_replay((("?", "help"), ("esc", "back"), ("o", "output")))]

    assert keys == ["?", "esc", "[ ]", ", .", "+ -"]
