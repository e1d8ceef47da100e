"""Notes of the hook as lines people read."""

from __future__ import annotations

from collections.abc import Mapping

from mpwatch.model.text import clean

_FIELDS = ("what", "where", "type", "text", "message", "method", "child", "path", "reason", "site")


def note_words(kind: str, data: Mapping[str, object]) -> str:
    """One line about a note: its kind and the fields that say most, in a fixed order."""
    parts = [clean(str(data[name])) for name in _FIELDS if data.get(name) not in (None, "", [], {})]
    words = kind.replace("-", " ").replace("_", " ")
    return f"{words}: {'; '.join(parts)}" if parts else words
