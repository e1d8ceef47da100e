"""What hook points and checks may use of the hook in their process.

For type checkers only: nothing imports it while a program runs. `session.Session` has all of it.
"""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .safe.unpatched import System
    from .state.call_sites import CallSites
    from .state.loader_state import LoaderStates
    from .state.queue_sampling import QueueSampling
    from .state.start_checks import StartChecks
    from .state.thread_state import Here, Worker
    from .transport.process_files import Identity
    from .transport.server import Server


class Context(Protocol):
    """The hook of one process, as hook points and checks know it."""

    # What wrappers write to. None of these raises.
    record: Callable[..., None]
    """Adds a record to the ring: kind, ns of the beginning, flags, bytes, key, key2, aux."""

    def note(self, kind: str, **fields: Any) -> None:
        """Add an event with text."""

    def failed(self, kind: int, began_ns: int, error: BaseException, **fields: Any) -> None:
        """Record and note an exception that passes a wrapper."""

    problems: Any
    """Sentences that say what of the hook is missing, and why."""
    gauges: dict[str, Callable[[], Any]]
    """Readings for observers, taken on the hook's thread."""

    def drop_gauges(self, *names: str) -> None:
        """Remove readings."""

    def itself(self) -> Context:
        """This object; through a proxy, the object behind it."""

    # What wrappers remember between two calls.
    system: System
    identity: Identity
    here: Here
    worker: Worker
    loaders: LoaderStates
    items: QueueSampling
    start_checks: StartChecks
    origins: CallSites
    births: dict[int, dict[str, Any]]
    patcher: Any
    """`lifecycle.patcher.Patcher`: points that cannot be set go to its `missing`."""

    # The life cycle, for the points at which processes fork and end.
    state: str
    is_crashed: bool

    server: Server
    forks: Any
    """`lifecycle.fork.ForkSteps`: forks, and other calls, during which the hook has no thread."""

    def wake(self) -> None:
        """Get files, socket and thread, in a forked child that has none yet."""

    def save_now(self) -> None:
        """Write everything out: the process is about to end without exit functions."""

    def note_end(self) -> None:
        """Note the exception that ended the main thread, if one did."""

    def close(self, reason: str) -> None:
        """End the hook with the process."""
