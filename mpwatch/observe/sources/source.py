"""The interface of a source of snapshots: a live job, a recording, a script of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from mpwatch.model.commands import Command
from mpwatch.model.snapshot import Snapshot

Deliver: TypeAlias = Callable[[Snapshot], None]
"""Called on the source's own thread with each new snapshot; must return at once."""


class Source(Protocol):
    """A stream of snapshots of one job."""

    @property
    def is_live(self) -> bool:
        """Whether it observes running processes. A replay can be sought, a live source cannot."""
        ...

    def start(self, deliver: Deliver) -> None:
        """Begin; returns at once. Snapshots are delivered until `stop`."""
        ...

    def stop(self) -> None:
        """End and release everything; returns once no further snapshot will be delivered."""
        ...

    def ask(self, command: Command) -> str | None:
        """Ask for something.

        Returns:
            `None` if it will be done, else one sentence why this source cannot do it.
        """
        ...
