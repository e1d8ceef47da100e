"""Threads of mpwatch itself, which cannot be started where a limit of processes is reached."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

AT_LIMIT = (
    "mpwatch could not start a thread (a limit of processes, RLIMIT_NPROC or pids.max, is "
    "reached): what it reads on threads of its own, such as stacks, is missing or late."
)


class OwnThreads:
    """Starts daemon threads, and remembers which ones could not be started."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    @property
    def problem(self) -> str | None:
        """What to tell the user; `None` while each thread could be started in the end."""
        return AT_LIMIT if self._failed else None

    def start(
        self, target: Callable[..., object], name: str, *args: Any, **kwargs: Any
    ) -> threading.Thread | None:
        """Start one, or return `None` at a limit: whoever asks may ask again later.

        Args:
            target: What it runs.
            name: Its name.
            args: For `target`.
            kwargs: For `target`.
        """
        thread = threading.Thread(target=target, args=args, kwargs=kwargs, name=name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            self._failed.add(name)
            return None
        self._failed.discard(name)
        return thread
