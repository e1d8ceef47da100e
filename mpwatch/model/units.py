"""Numbers as text, the same in reports and on screens. `None` is a dash."""

from __future__ import annotations

import math
from collections.abc import Iterable

DASH = "-"
_STEPS = ("B", "K", "M", "G", "T", "P")


def bytes_text(count: float | None) -> str:
    """Three significant digits in powers of 1024: `0B`, `812K`, `1.2G`."""
    if count is None:
        return DASH
    value = float(abs(count))
    sign = "-" if count < 0 else ""
    step = 0
    while value >= 1000 and step < len(_STEPS) - 1:
        value /= 1024
        step += 1
    digits = 0 if step == 0 or value >= 99.95 else 1
    return f"{sign}{value:.{digits}f}{_STEPS[step]}"


def count_text(count: float | None) -> str:
    """A count in at most five characters: `842`, `9999`, `65.5k`, `1.2M`."""
    if count is None:
        return DASH
    if abs(count) < 10_000:
        return f"{count:.0f}"
    for factor, letter in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if abs(count) < factor * 999.5:
            value = count / factor
            return f"{value:.0f}{letter}" if abs(value) >= 99.95 else f"{value:.1f}{letter}"
    return f"{count:.1e}"


def percent_text(value: float | None) -> str:
    """A percentage without its sign: `0.4`, `31`."""
    if value is None:
        return DASH
    return f"{value:.0f}" if value >= 9.95 or value == 0 else f"{value:.1f}"


def seconds_text(seconds: float | None) -> str:
    """A duration in one or two units: `35 us`, `1.4 ms`, `2.3 s`, `84 s`, `6 min`, `2 h 5 min`.

    One that is not finite is unknown: a damaged recording has times that no difference can hold.
    """
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 0:
        return "-" + seconds_text(-seconds)
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else "1.0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def rate_text(per_s: float | None, unit: str = "") -> str:
    """A rate with its sign: `+24/s`, `+1.1M/s` for bytes (unit `B`)."""
    if per_s is None:
        return DASH
    value = bytes_text(abs(per_s)) if unit == "B" else count_text(abs(per_s))
    return f"{'-' if per_s < 0 else '+'}{value}{'' if unit == 'B' else unit}/s"


RUNS_SHOWN = 6


def processes_text(count: int) -> str:
    """`1 process`, `3 processes`."""
    return "1 process" if count == 1 else f"{count} processes"


def numbers_text(numbers: Iterable[int]) -> str:
    """Numbers with runs joined: `0-300, 302-1023`; of many runs the first ones."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    more = len(words) - RUNS_SHOWN
    return ", ".join(words[:RUNS_SHOWN]) + (f" and {more} more runs" if more > 0 else "")
