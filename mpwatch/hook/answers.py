"""What the hook says about its process: the hello, stacks and gauges."""

from __future__ import annotations

import sys

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .session import Session

_STACK_FRAMES = 128


def hello(session: Session) -> dict[str, Any]:
    """The first frame; see `wire.HELLO`."""
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    return {
        "protocol": wire.PROTOCOL,
        "version": session.version,
        "pid": session.identity.pid,
        "start_ticks": session.identity.start_ticks,
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": None if version is None else str(version),
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
        "problems": [*session.problems.tell(), *session.ring_copy.problems],
        "own": own_cost(session),
        "stock": None if session.stock is None else session.stock.summary,
    }


def sharing_strategy() -> str | None:
    """How tensors are shared, or `None` before `torch.multiprocessing` is loaded."""
    module = sys.modules.get("torch.multiprocessing")
    return getattr(module, "_sharing_strategy", None)


def start_method() -> str | None:
    """The start method in force, or `None` while nobody chose or needed one.

    The attribute is read directly: asking `get_start_method` would fix the default.
    """
    context = sys.modules.get("multiprocessing.context")
    actual = getattr(getattr(context, "_default_context", None), "_actual_context", None)
    return getattr(actual, "_name", None)


def own_cost(session: Session) -> dict[str, Any]:
    """What the hook itself takes; see `wire.HELLO`."""
    return {
        "cpu_ns": session.server.cpu_ns(),
        "records": session.ring.handed_out(),
        "wrapper_ns": session.wrapper_ns,
        "slots": session.ring.slots,
    }


def answer(session: Session, request: dict[str, Any]) -> dict[str, Any] | None:
    """The reply to one request; an unknown one gets an error, not silence."""
    reply: dict[str, Any] = {"id": request.get("id")}
    asked = request.get("ask")
    if asked == "ping":
        reply["at_ns"] = session.system.monotonic_ns()
    elif asked == "stacks":
        began_ns = session.system.thread_time_ns()
        reply["threads"] = stacks(session)
        reply["cpu_ns"] = session.system.thread_time_ns() - began_ns
    elif asked == "gauges":
        reply.update(gauges(session))
    elif asked == "detach":
        # Done by the thread once this reply is on its way.
        session.jobs.append(lambda: session.leave("detach"))
        reply["detached"] = True
    else:
        reply["error"] = f"unknown request {str(asked)[:64]!r}; known are {', '.join(wire.ASKS)}"
    return reply


def stacks(session: Session) -> list[dict[str, Any]]:
    """The Python frames of all threads but our own."""
    own = session.system.get_ident()
    names = _thread_names()
    threads = []
    for ident, frame in sys._current_frames().items():
        if ident == own:
            continue
        name, tid = names.get(ident, ("", None))
        frames: list[list[Any]] = []
        step: Any = frame
        while step is not None and len(frames) < _STACK_FRAMES:
            frames.append([step.f_code.co_name, step.f_code.co_filename, step.f_lineno])
            step = step.f_back
        threads.append({"tid": tid, "name": name, "frames": frames})
    return threads


def gauges(session: Session) -> dict[str, Any]:
    """All readings; one that fails gives its reason under its name."""
    readings: dict[str, Any] = {"own": own_cost(session), "strategy": sharing_strategy()}
    for name, read in tuple(session.gauges.items()):
        try:
            reading = read()
        except Exception as error:  # noqa: BLE001 - one gauge must not take the others along
            reading = {"error": f"{type(error).__name__}: {error}"[:200]}
        if reading is not None:
            readings[name] = reading
    return readings


def _thread_names() -> dict[int, tuple[str, int | None]]:
    """Name and native id by ident, from `threading`'s own table, which is read without its lock."""
    threading = sys.modules.get("threading")
    active: dict[int, Any] = getattr(threading, "_active", {})
    return {
        ident: (str(thread._name), getattr(thread, "_native_id", None))
        for ident, thread in tuple(active.items())
    }
