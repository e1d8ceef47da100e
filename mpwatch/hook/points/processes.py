"""Starts and joins of processes by multiprocessing, and how the hook is loaded in spawned ones."""

from __future__ import annotations

import os
import sys
import zlib

from .. import wire
from ..safe import foreign_exceptions
from ..safe.exact import attributes, full_name, in_class
from ..state.call_sites import place_here
from .start_method import start_method

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

METHODS = {"fork": 1, "spawn": 2, "forkserver": 3}
"""`aux` of PROCESS_START."""
_WORKER_ID, _RESULT_QUEUE = 10, 3
"""Positions in the arguments of `_worker_loop`, torch 2.1 to 2.15."""


def wrap_start(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record and note the start of a process, with what was shared for it."""
    record, now = session.record, session.system.monotonic_ns
    births, get_ident, here = session.births, session.system.get_ident, session.here
    handed, views = session.items.handed, session.items.views

    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        birth = _describe(self, session)
        ident = get_ident()
        births[ident] = birth
        own = here.own
        own.shares, own.storages_path = 0, None
        handed.start(self, birth)
        attributes_before = dict(attributes(self))
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            session.failed(
                wire.PROCESS_START,
                began_ns,
                error,
                target=birth["target"],
                storages=own.shares,
                path=own.storages_path,
                site=place_here(),
            )
            foreign_exceptions.unframe(error)
            raise
        finally:
            births.pop(ident, None)
        popen = attributes(self).get("_popen")
        method = getattr(popen, "method", "")
        pid = getattr(popen, "pid", 0)
        record(wire.PROCESS_START, began_ns, 0, 0, pid, 0, METHODS.get(method, 0))
        fds = getattr(popen, "_fds", None)
        count = None if fds is None else len(fds)
        session.note(
            "birth", pid=pid, fds=count, storages=own.shares, **{**birth, "method": method}
        )
        views.find_left_behind(attributes_before)
        return result

    return start


def wrap_join(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record each join, with the exit code."""
    record, now = session.record, session.system.monotonic_ns

    def join(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        popen = attributes(self).get("_popen")
        code = getattr(popen, "returncode", None)
        aux = 0 if code is None else wire.EXIT_BASE + code
        record(wire.PROCESS_JOIN, began_ns, 0, 0, getattr(popen, "pid", 0), 0, aux)
        return result

    return join


class HookLoader:
    """An entry of the preparation data that loads the hook in the child that reads it.

    Its pickle is a call of `exec` with the text of `path_loader.py`, so the child has to import
    neither mpwatch nor this class.
    """

    __slots__ = ("_birth", "_method", "_text")

    def __init__(self, text: str, method: str, birth: dict[str, Any]) -> None:
        self._text = text
        self._method = method
        self._birth = birth

    def __reduce__(self) -> tuple[Any, ...]:
        arrival = (_directory(), self._method, self._birth)
        return exec, (self._text, {"__name__": "mpwatch_path_loader", "arrival": arrival})


def wrap_get_preparation_data(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Add to the preparation data of a child an entry that loads the hook there."""
    with open(f"{_directory()}/lifecycle/path_loader.py", encoding="utf-8") as file:
        text = zlib.compress(file.read().encode())

    def get_preparation_data(*args: Any, **kwargs: Any) -> Any:
        data = original(*args, **kwargs)
        birth = session.births.get(session.system.get_ident())
        # Without an entry in `births`, the forkserver itself is being started. Its children have
        # its environment and not their parent's, so the parent's is tested here.
        is_wanted = wire.disabled_by(os.environ) is None
        if birth is not None and session.state == "on" and is_wanted:
            data["mpwatch"] = HookLoader(zlib.decompress(text).decode(), birth["method"], birth)
        return data

    return get_preparation_data


def _describe(process: Any, session: Context) -> dict[str, Any]:
    """The `birth` of a process that is about to start; see `wire.HELLO`."""
    known = attributes(process)
    target = known.get("_target")
    module, function = full_name(process if target is None else target)
    config, name = known.get("_config"), known.get("_name")
    birth = {
        "parent": session.identity.pid,
        "parent_start_ticks": session.identity.start_ticks,
        "name": name[:128] if type(name) is str else "",
        "target": f"{module}.{function}"[:256],
        # A process without a method of its own uses the default, forkserver since Python 3.14.
        "method": in_class(process, "_start_method") or start_method() or _default(),
        "daemon": type(config) is dict and config.get("daemon") is True,
        "worker_id": None,
        "loader": None,
    }
    arguments = known.get("_args")
    if function == "_worker_loop" and type(arguments) is tuple and len(arguments) > _WORKER_ID:
        birth["worker_id"] = arguments[_WORKER_ID]
        birth["loader"] = session.loaders.of_queue(arguments[_RESULT_QUEUE]).key
    return birth


def _default() -> str:
    return "fork" if sys.version_info < (3, 14) else "forkserver"


def _directory() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def stop_model_checks(module: ModuleType, session: Context) -> Undo:
    """Remove the hook of optimizers that `checks.shared_parameters` adds."""
    return session.items.handed.leave
