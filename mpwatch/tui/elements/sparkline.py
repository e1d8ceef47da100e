"""Numbers drawn with characters: trends and bars."""

from __future__ import annotations

from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"
UNREAD = "·"
"""Drawn for a value that could not be read."""


def trend(
    values: Sequence[float | None], width: int, top: float | None = None, bottom: float = 0.0
) -> str:
    """The last values as blocks, oldest first, padded on the left.

    Args:
        values: Oldest first; `None` was not read.
        width: Characters.
        top: The value of a full block; by default the largest shown.
        bottom: The value of the lowest block.
    """
    shown = list(values[-width:]) if width > 0 else []
    known = [value for value in shown if value is not None]
    if not known:
        return " " * width
    top = max(known) if top is None else top
    return "".join(_block(value, bottom, top) for value in shown).rjust(width)


def drift(values: Sequence[float | None], width: int, least_span: float) -> str:
    """Like `trend`, but drawn from the smallest value: for numbers whose change matters.

    Args:
        values: Oldest first.
        width: Characters.
        least_span: A smaller range of values is drawn on a scale of this span.
    """
    known = [value for value in values[-width:] if value is not None] if width > 0 else []
    if not known:
        return " " * width
    low = min(known)
    return trend(values, width, top=max(max(known), low + least_span), bottom=low)


def _block(value: float | None, bottom: float, top: float) -> str:
    if value is None:
        return UNREAD
    if top <= bottom:
        return _LEVELS[0]
    share = (value - bottom) / (top - bottom)
    return _LEVELS[max(0, min(len(_LEVELS) - 1, round(share * (len(_LEVELS) - 1))))]


def bar(share: float | None, width: int) -> tuple[str, str]:
    """A share from 0 to 1 as the used and the free part of a bar.

    An unknown share is drawn as `????????`.
    """
    if share is None:
        return "?" * width, ""
    # Any use is visible, and a limit that is not reached is not drawn as full.
    filled = round(max(0.0, min(1.0, share)) * width)
    if share > 0:
        filled = max(1, filled)
    if share < 1:
        filled = min(width - 1, filled)
    return "━" * filled, "─" * (width - filled)
