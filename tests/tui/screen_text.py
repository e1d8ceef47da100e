"""The text on the screen."""

from __future__ import annotations

from typing import Any

from textual.app import App


def screen_text(app: App[Any]) -> str:
    """The screen as lines without trailing blanks."""
    # The compositor is the only place that knows the whole screen; it is private to Textual, so
    # this is the one line of the tests that reaches for it.
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
