"""Births and ends of processes that multiprocessing starts, and how the hook gets into them."""

from __future__ import annotations

import os
import sys

from .. import wire
from ..checks.call_sites import place_here
from ..lifecycle.patcher import Point, attribute
from ..requests import start_method
from ..safe import foreign_exceptions
from ..safe.exact import attributes, full_name, in_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..lifecycle.patcher import Undo
    from ..session import Session

METHODS = {"fork": 1, "spawn": 2, "forkserver": 3}
"""`aux` of PROCESS_START."""
_WORKER_ID, _RESULT_QUEUE = 10, 3
"""Positions in the arguments of `_worker_loop`, torch 2.1 to 2.15."""


def _start(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now = session.record, session.system.monotonic_ns
    births, get_ident, here = session.births, session.system.get_ident, session.here
    handed, views = session.items.handed, session.items.views

    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        birth = _describe(self, session)
        ident = get_ident()
        births[ident] = birth
        own = here.own
        own.shares, own.burden = 0, None
        handed.start(self, birth)
        luggage = dict(attributes(self))
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            session.failed(
                wire.PROCESS_START,
                began_ns,
                error,
                target=birth["target"],
                storages=own.shares,
                path=own.burden,
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
        views.look(luggage)
        return result

    return start


def _join(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
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


class Stowaway:
    """An entry of the preparation data that brings the hook into the child that reads it.

    Its pickle is a call of `exec` with the text of `path_loader.py`, so the child needs to find
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


def _get_preparation_data(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    with open(f"{_directory()}/lifecycle/path_loader.py", encoding="utf-8") as file:
        text = file.read()

    def get_preparation_data(*args: Any, **kwargs: Any) -> Any:
        data = original(*args, **kwargs)
        birth = session.births.get(session.system.get_ident())
        # Without a birth this is the forkserver itself being started. Its children have its
        # environment and not their parent's, so what the parent forbids is looked at here.
        is_wanted = wire.disabled_by(os.environ) is None
        if birth is not None and session.state == "on" and is_wanted:
            data["mpwatch"] = Stowaway(text, birth["method"], birth)
        return data

    return get_preparation_data


def _describe(process: Any, session: Session) -> dict[str, Any]:
    """What parent and observer want to know about a process that is about to start."""
    known = attributes(process)
    target = known.get("_target")
    module, function = full_name(process if target is None else target)
    config, name = known.get("_config"), known.get("_name")
    birth = {
        "parent": session.identity.pid,
        "parent_start_ticks": session.identity.start_ticks,
        "name": name[:128] if type(name) is str else "",
        "target": f"{module}.{function}"[:256],
        # Without a method of its own it takes the default, which is forkserver since Python 3.14.
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


def _handed(module: ModuleType, session: Session) -> Undo:
    return session.items.handed.leave


POINTS = (
    Point("handed models", "multiprocessing.process", _handed),
    Point("Process.start", "multiprocessing.process", attribute("BaseProcess.start", _start)),
    Point("Process.join", "multiprocessing.process", attribute("BaseProcess.join", _join)),
    Point(
        "get_preparation_data",
        "multiprocessing.spawn",
        attribute("get_preparation_data", _get_preparation_data),
    ),
)
