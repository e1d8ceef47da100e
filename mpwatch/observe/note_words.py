"""Notes of the hook as lines people read."""

from __future__ import annotations

from collections.abc import Mapping

from mpwatch.model.text import clean

_FIELDS = ("what", "where", "type", "text", "message", "method", "child", "path", "reason", "site")
_WORDS: Mapping[str, Mapping[str, str]] = {
    "birth": {
        "name": "{}",
        "pid": "process {}",
        "method": "by {}",
        "target": "{}",
    },
    "generators": {"dataset": "of {}", "hashes": "{}"},
    "first-samples": {"dataset": "of {}", "parts": "{}"},
    "foreign-shutdown": {"owner": "of the DataLoader of process {}"},
    "thread-died": {"thread": "{}", "type": "{}", "text": "{}"},
    "lost-item": {"item": "{}", "type": "{}", "text": "{}"},
    "unpicklable": {"path": "{}", "object": "of {}", "type": "{}", "text": "{}"},
    "ticket-failed": {"address": "at {}", "type": "{}", "text": "{}"},
    "cuda-init": {"frames": "{}"},
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

CALLS = 6
"""How many calls of a stack are told in one line."""


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
    """A value as text: names in a list stand beside each other, calls from the innermost out."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    if not isinstance(value, list):
        return str(value)
    calls = [each for each in value if isinstance(each, list) and len(each) == 3]
    if value and len(calls) == len(value):
        return " < ".join(f"{name} {_file(path)}:{line}" for name, path, line in calls[:CALLS])
    return ", ".join(map(str, value))


def _file(path: object) -> str:
    return str(path).rpartition("/")[2]
