"""Sanitize text from other processes.

Names, paths, command lines, exception messages and stack lines may contain anything: control
characters, terminal escapes, invalid UTF-8, megabytes. The result is one line of printable text of
bounded length. It is called where such text enters mpwatch, and again where text is joined that may
have come another way: errors of the system and of TOML with a path in them, notes of a hook, files
of a recording. Markup is not escaped, because no code of mpwatch interprets markup.
"""

from __future__ import annotations

import re
import unicodedata

NAME_LIMIT = 256
MESSAGE_LIMIT = 4096

# A whole CSI, OSC or two-byte escape sequence, so that its parameters do not remain as text.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
# Cc control, Cf format (bidi overrides, zero width), Cs surrogates, Co private use, Cn unassigned.
_UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def clean(raw: str | bytes, limit: int = NAME_LIMIT) -> str:
    """One printable line of at most `limit` characters; a cut is marked with an ellipsis.

    Args:
        raw: The text; bytes are decoded as UTF-8, invalid ones become U+FFFD.
        limit: Characters of the result, including the ellipsis.
    """
    if isinstance(raw, str) and len(raw) <= limit and raw.isascii() and raw.isprintable():
        return raw  # nearly all text, in a third of the time
    # Twelve times the limit contains the longest useful prefix, even among many escapes.
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


def _printable(character: str) -> str:
    """The character itself, a space for white space, U+FFFD for other control characters."""
    if character.isprintable():
        return character
    category = unicodedata.category(character)
    if category == "Zs" or character in "\t\n\r":
        return " "
    if category in _UNPRINTABLE:
        return "\ufffd"
    return character
