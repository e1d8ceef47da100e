"""The replies of the hook: the hello, stacks and gauges of its process."""

from __future__ import annotations

import sys

from . import checks, wire
from .points.cuda import ON_REQUEST
from .points.processes import start_method
from .safe import foreign_exceptions, one_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from .lifecycle.patcher import Patcher
    from .safe.unpatched import System
    from .transport.notes import Notes, Problems
    from .transport.process_files import Files, Identity
    from .transport.ring import Ring
    from .transport.server import Server

    class Answering(Protocol):
        """What replies tell of the hook, and what they ask of it."""

        system: System
        identity: Identity
        ring: Ring
        notes: Notes
        files: Files
        patcher: Patcher
        server: Server
        gauges: dict[str, Callable[[], Any]]
        problems: Problems
        version: str | None
        stock: dict[str, Any] | None
        wrapper_ns: int | None
        jobs: list[Callable[[], None]]

        def leave(self, reason: str) -> None:
            """Detach the hook."""


def hello(hook: Answering) -> dict[str, Any]:
    """The first frame of a connection; see `wire.HELLO`."""
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    identity, files = hook.identity, hook.files
    return {
        "protocol": wire.PROTOCOL,
        "version": hook.version,
        "release": wire.RELEASE,
        "pid": identity.pid,
        "start_ticks": identity.start_ticks,
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": str.__str__(version) if isinstance(version, str) else None,
        "started_by": identity.started_by,
        "since_ns": identity.since_ns,
        "birth": identity.birth,
        "patched": hook.patcher.installed(),
        "missing": dict(hook.patcher.missing),
        "waiting": hook.patcher.waiting(),
        "strategy": sharing_strategy(),
        "start_method": start_method(),
        "ring": hook.ring.path or files.copy.path,
        "ring_inode": hook.ring.inode,
        "problems": [*hook.problems.sentences(), *files.copy.problems],
        "own": {**own_cost(hook), "notes": hook.notes.count()},
        "stock": hook.stock,
    }


def answer(hook: Answering, request: dict[str, Any]) -> dict[str, Any] | None:
    """The reply to one request; to an unknown one, an error."""
    reply: dict[str, Any] = {"id": request.get("id")}
    asked = request.get("ask")
    if asked == "ping":
        reply["at_ns"] = hook.system.monotonic_ns()
    elif asked == "stacks":
        began_ns = hook.system.thread_time_ns()
        try:
            reply[wire.AS_TEXT] = {"threads": one_call.stacks_as_json()}
        except OSError as error:
            reply["error"] = f"stacks: {error.strerror or error}"
        reply["cpu_ns"] = hook.system.thread_time_ns() - began_ns
    elif asked == "values":
        values = checks.load_on_hook_thread("values")
        try:
            reply[wire.AS_TEXT] = {"frames": values.read(request.get("frames"))}
        except (OSError, AttributeError, LookupError, TypeError, ValueError) as error:
            # No descriptor is left, or the request is of another form.
            reply["error"] = f"values: {type(error).__name__}"
    elif asked == "gauges":
        named = request.get("also")
        reply.update(read_gauges(hook, named if isinstance(named, list) else []))
    elif asked == "detach":
        # The thread does this after it has sent the reply.
        hook.jobs.append(lambda: hook.leave("detach"))
        reply["detached"] = True
    else:
        known = ", ".join(wire.ASKS)
        reply["error"] = f"unknown request {str(asked)[:64]!r}; known are {known}"
    return reply


def read_gauges(hook: Answering, named: list[Any]) -> dict[str, Any]:
    """All gauges by name; one that fails is replaced by its reason.

    Args:
        hook: The hook of this process.
        named: Gauges wanted besides those that cannot disturb the program.
    """
    readings: dict[str, Any] = {"own": own_cost(hook), "strategy": sharing_strategy()}
    for name in tuple(hook.gauges):
        if name in ON_REQUEST and name not in named:
            continue
        one_call.reserve.wait()
        reading = read_gauge(hook, name)
        if reading is not None:
            readings[name] = reading
    return readings


def read_gauge(hook: Answering, name: str) -> Any:
    """One gauge; `None` if there is none of this name, or it has nothing to show."""
    try:
        read = hook.gauges.get(name)
        return read and read()
    except BaseException as error:
        if foreign_exceptions.signal_behind(error) is not None:
            raise
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def own_cost(hook: Answering) -> dict[str, Any]:
    """The cost of the hook itself; see `wire.HELLO`."""
    return {
        "cpu_ns": hook.server.cpu_ns(),
        "records": hook.ring.handed_out(),
        "wrapper_ns": hook.wrapper_ns,
        "slots": hook.ring.slots,
    }


def sharing_strategy() -> str | None:
    """How tensors are shared, or `None` before `torch.multiprocessing` is loaded."""
    module = sys.modules.get("torch.multiprocessing")
    return getattr(module, "_sharing_strategy", None)
