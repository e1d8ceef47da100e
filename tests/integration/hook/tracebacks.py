"""Tracebacks as a program prints them, for comparing runs with and without the hook."""

from __future__ import annotations

import re

# The line of a wrapper has its source line below it; Python 3.10 prints no carets.
_WRAPPER = re.compile(
    r'^ *File "[^"]*/mpwatch/hook/[^"]*", line \w+, in .*\n(?: {4}.*\n)?', re.MULTILINE
)
# A syntax error has no traceback lines, and then no heading.
_EMPTY = re.compile(
    r'^Traceback \(most recent call last\):\n(?= *File "[^"]*", line \w+\n)', re.MULTILINE
)


def without_wrappers(text: str, version: str) -> str:
    """Leave out the lines of the hook on Python 3.10, where a traceback may show them.

    Args:
        text: What a program printed.
        version: Version of its Python, `3.10.13`.
    """
    if not version.startswith("3.10."):
        return text
    return _EMPTY.sub("", _WRAPPER.sub("", text))
