"""The replies of the hook: the hello, stacks and gauges of its process."""

from __future__ import annotations

import sys

from . import wire
from .points.processes import start_method
from .safe import one_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .session import Session


def hello(session: Session) -> dict[str, Any]:
    """The first frame; see `wire.HELLO`."""
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    return {
        "protocol": wire.PROTOCOL,
        "version": session.version,
        "release": wire.RELEASE,
        "pid": session.identity.pid,
        "start_ticks": session.identity.start_ticks,
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": str.__str__(version) if isinstance(version, str) else None,
        "started_by": session.identity.started_by,
        "since_ns": session.since_ns,
        "birth": session.identity.birth,
        "patched": session.patcher.installed(),
        "missing": dict(session.patcher.missing),
        "waiting": session.patcher.waiting(),
        "strategy": sharing_strategy(),
        "start_method": start_method(),
        "ring": session.ring.path or session.ring_copy.path,
        "ring_inode": session.ring.inode,
        "problems": [*session.problems.sentences(), *session.ring_copy.problems],
        "own": own_cost(session),
        "stock": session.stock,
    }


def sharing_strategy() -> str | None:
    """How tensors are shared, or `None` before `torch.multiprocessing` is loaded."""
    module = sys.modules.get("torch.multiprocessing")
    return getattr(module, "_sharing_strategy", None)


def own_cost(session: Session) -> dict[str, Any]:
    """The cost of the hook itself; see `wire.HELLO`."""
    return {
        "cpu_ns": session.server.cpu_ns(),
        "records": session.ring.handed_out(),
        "wrapper_ns": session.wrapper_ns,
        "slots": session.ring.slots,
    }


def answer(session: Session, request: dict[str, Any]) -> dict[str, Any] | None:
    """The reply to one request; to an unknown one, an error."""
    reply: dict[str, Any] = {"id": request.get("id")}
    asked = request.get("ask")
    if asked == "ping":
        reply["at_ns"] = session.system.monotonic_ns()
    elif asked == "stacks":
        began_ns = session.system.thread_time_ns()
        try:
            reply[wire.AS_TEXT] = {"threads": one_call.stacks_as_json()}
        except OSError as error:
            reply["error"] = f"stacks: {error.strerror or error}"
        reply["cpu_ns"] = session.system.thread_time_ns() - began_ns
    elif asked == "gauges":
        named = request.get("also")
        reply.update(gauges(session, named if isinstance(named, list) else []))
    elif asked == "detach":
        # The thread does this after it has sent the reply.
        session.jobs.append(lambda: session.leave("detach"))
        reply["detached"] = True
    else:
        reply["error"] = f"unknown request {str(asked)[:64]!r}; known are {', '.join(wire.ASKS)}"
    return reply


def gauges(session: Session, named: list[Any]) -> dict[str, Any]:
    """All gauges by name; one that fails is replaced by its reason.

    Args:
        session: The session of this process.
        named: Gauges wanted besides those that cannot disturb the program.
    """
    readings: dict[str, Any] = {"own": own_cost(session), "strategy": sharing_strategy()}
    also = [(name, session.on_request[name]) for name in session.on_request if name in named]
    for name, read in (*session.gauges.items(), *also):
        one_call.room.wait()
        try:
            reading = read()
        except Exception as error:  # noqa: BLE001 - the other gauges are still to be read
            reading = {"error": f"{type(error).__name__}: {error}"[:200]}
        if reading is not None:
            readings[name] = reading
    return readings
