"""Lines of source files, to show beside the frames of a stack."""

from __future__ import annotations

import os
import stat

from mpwatch.model.sanitize import clean

LARGEST_BYTES = 2 << 20
FILES_KEPT = 64
LINE_LIMIT = 160


class SourceLines:
    """Reads and caches source files, each once.

    Paths come from another process. Only regular Python files of reasonable size are opened:
    reading a pipe or a device could block the dashboard.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, ...]] = {}

    def __call__(self, path: str, number: int) -> str:
        """One line, cleaned and without indent; empty if the file is not readable."""
        lines = self._files.get(path)
        if lines is None:
            if len(self._files) >= FILES_KEPT:
                self._files.pop(next(iter(self._files)))
            lines = self._files[path] = _read(path)
        return clean(lines[number - 1].strip(), LINE_LIMIT) if 0 < number <= len(lines) else ""


def _read(path: str) -> tuple[str, ...]:
    if not (path.startswith("/") and path.endswith(".py")):
        return ()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return ()
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_BYTES:
            return ()
        return tuple(file.read(LARGEST_BYTES).decode("utf-8", "replace").splitlines())
