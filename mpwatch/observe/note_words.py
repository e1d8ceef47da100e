"""Notes of the hook as lines people read."""

from __future__ import annotations

from collections.abc import Mapping

from mpwatch.model.text import clean

_FIELDS = ("what", "where", "type", "text", "message", "method", "child", "path", "reason", "site")
_WORDS: Mapping[str, Mapping[str, str]] = {
    "exit": {"code": "code {}", "how": "by {}"},
    "fork": {
        "threads": "{} threads alive",
        "python_threads": "{}",
        "torch_threads": "torch uses {}",
        "libraries": "{}",
    },
    "many-storages": {"storages": "{}", "path": "in {}", "object": "of {}"},
    "dangling-view": {"path": "{}", "dtype": "{}", "shape": "of shape {}"},
    "parameters-not-shared": {
        "what": "{}",
        "model": "of {}",
        "how": "{}",
        "processes": "{} processes",
    },
}
"""What is said of a note, where the general fields would not do, and in which words."""


def note_words(kind: str, data: Mapping[str, object]) -> str:
    """One line about a note: its kind and the fields that say most, in a fixed order."""
    worded = _WORDS.get(kind, dict.fromkeys(_FIELDS, "{}"))
    parts = [
        clean(words.format(_shown(data[name])))
        for name, words in worded.items()
        if data.get(name) not in (None, "", [], {})
    ]
    words = kind.replace("-", " ").replace("_", " ")
    return f"{words}: {'; '.join(parts)}" if parts else words


def _shown(value: object) -> str:
    """A value as text; names in a list stand beside each other."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return str(value)
