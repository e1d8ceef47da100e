"""Text from other processes, made harmless: called where such text enters, and nowhere else.

Names, paths, command lines, exception messages and stack lines are whatever another process wants
them to be: control characters, terminal escapes, invalid UTF-8, megabytes. What leaves here is one
line of printable text of bounded length. Markup needs no escaping, because nothing downstream
interprets any.
"""

from __future__ import annotations

import re
import unicodedata

NAME_LIMIT = 256
MESSAGE_LIMIT = 4096

# A CSI, OSC or two-byte escape sequence, whole, so that its parameters do not remain as noise.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
# Cc control, Cf format (bidi overrides, zero width), Cs surrogates, Co private use, Cn unassigned.
_UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def clean(raw: str | bytes, limit: int = NAME_LIMIT) -> str:
    """One printable line of at most `limit` characters; a cut is marked with an ellipsis.

    Args:
        raw: Text as it came; bytes are read as UTF-8, what is invalid becomes U+FFFD.
        limit: Characters kept, the ellipsis included.
    """
    # Twelve times the limit holds the longest useful prefix even if it is full of escapes.
    head = raw[: limit * 12]
    text = head.decode("utf-8", "replace") if isinstance(head, bytes) else head
    if text.isascii() and text.isprintable():
        out = text
    else:
        text = _ESCAPES.sub("", text)
        out = "".join(map(_printable, text))
    if len(out) > limit or len(head) < len(raw):
        out = out[: max(0, limit - 1)] + "…"
    return out


def clean_lines(raw: str | bytes, limit: int = MESSAGE_LIMIT) -> tuple[str, ...]:
    """Several lines, each cleaned, together at most `limit` characters."""
    head = raw[: limit * 2]
    text = head.decode("utf-8", "replace") if isinstance(head, bytes) else head
    lines: list[str] = []
    left = limit
    for line in text.splitlines():
        if left <= 0:
            lines.append("…")
            break
        lines.append(clean(line, left))
        left -= len(lines[-1]) + 1
    return tuple(lines)


def _printable(character: str) -> str:
    """The character itself, a space for white space, U+FFFD for what must not reach a terminal."""
    if character in "\t\n\r":
        return " "
    if unicodedata.category(character) in _UNPRINTABLE:
        return "\ufffd"
    return character
