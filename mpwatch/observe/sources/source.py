"""The interface of a source of snapshots, and the commands that it accepts.

A source is a live job, a recording, or a script of a test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot


class TakeStacks(Struct, frozen=True):
    """Take stacks now, of one process or of all."""

    process: ProcessId | None = None
    native: bool = False
    locals: bool = False


class Follow(Struct, frozen=True):
    """Take stacks of one process twice a second; `None` stops it."""

    process: ProcessId | None


class Focus(Struct, frozen=True):
    """Take stacks of the process under the cursor, at intervals by their cost; `None` ends it."""

    process: ProcessId | None


class SetRefresh(Struct, frozen=True):
    """Set the number of samples per second."""

    hz: float


class Pause(Struct, frozen=True):
    """Keep the last snapshot on screen, or show new ones again; sampling continues."""

    paused: bool


class StartRecording(Struct, frozen=True):
    """Write all inputs to a file; `None` stops it."""

    path: str | None


class Seek(Struct, frozen=True):
    """Replay only: move to a time, in seconds from the start of the recording."""

    at_s: float


class SetSpeed(Struct, frozen=True):
    """Replay only: set the seconds of recording per second."""

    factor: float


class Step(Struct, frozen=True):
    """Replay only: pause and move by a number of samples, backwards if negative."""

    readings: int = 1


class InjectHook(Struct, frozen=True):
    """Live only: inject the hook into the job and into processes that it starts later."""


class StopInjecting(Struct, frozen=True):
    """Live only: begin no further injection of the hook, until `InjectHook`."""


class ReadAllocators(Struct, frozen=True):
    """Live only: ask the hooks of these processes once for the figures of torch's CUDA allocator.

    The hook takes the allocator's lock for this. Behind a kernel that never ends it would wait for
    the lock for ever, so these figures are read on request only.
    """

    processes: tuple[ProcessId, ...]


Command: TypeAlias = (
    Focus
    | Follow
    | InjectHook
    | Pause
    | ReadAllocators
    | Seek
    | SetRefresh
    | SetSpeed
    | StartRecording
    | Step
    | StopInjecting
    | TakeStacks
)

Deliver: TypeAlias = Callable[[Snapshot], None]
"""Called on the source's own thread with each new snapshot; must return at once."""


Delivered = TypeVar("Delivered")


class DeliveringThread(Generic[Delivered]):
    """The thread of a source, and what it delivers to.

    Attributes:
        deliver: Takes what the source makes; before `start` it is dropped.
    """

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self.deliver: Callable[[Delivered], None] = _drop
        self._thread = threading.Thread(target=run, name=name, daemon=True)

    def start(self, deliver: Callable[[Delivered], None]) -> None:
        """Begin to run and to deliver."""
        self.deliver = deliver
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for its end, unless it was never started or calls this itself."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)


def _drop(_made: object) -> None:
    """Take nothing."""


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
