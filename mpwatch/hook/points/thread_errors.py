"""Exceptions that end threads or services, where nobody else looks."""

from __future__ import annotations

import sys

from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions
from ..safe.exact import attributes, is_a, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType
    from typing import Any

    from ..lifecycle.patcher import Install, Undo
    from ..session import Session


def _excepthook(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def excepthook(args: Any, /) -> Any:
        error = args.exc_value
        if is_a(error, BaseException):
            session.note(
                "thread-died",
                thread=text(attributes(args.thread).get("_name", ""))[:128],
                type=type(error).__name__,
                text=foreign_exceptions.text_of(error),
                frames=foreign_exceptions.frames_of(error),
                tid=session.system.get_native_id(),
            )
        return original(args)

    return excepthook


class Told:
    """Stands in for `sys` in one module, and hears what that module tells `sys.excepthook`.

    `sys.excepthook` itself stays what it is: programs compare it with `sys.__excepthook__` (the
    standard library's `code` does), and whoever replaces it later is asked as before.
    """

    def __init__(self, session: Session, where: str) -> None:
        self.__dict__["_session"] = session
        self.__dict__["_where"] = where

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(sys, name, value)

    def excepthook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Note an exception and hand it on."""
        session, where = self.__dict__["_session"], self.__dict__["_where"]
        session.note(
            "exception",
            where=where,
            type=kind.__name__,
            text=foreign_exceptions.text_of(error),
            frames=foreign_exceptions.frames_of(error),
            tid=session.system.get_native_id(),
        )
        if where == "main":
            session.is_crashed = True
        sys.excepthook(kind, error, trace)


def _told(where: str, born: str | None = None) -> Install:
    """Hear what a module tells `sys.excepthook`.

    Args:
        where: What the module is to call itself in notes.
        born: Only in processes that came about like this.
    """

    def install(module: ModuleType, session: Session) -> Undo:
        if module.sys is not sys:
            raise LookupError(f"{module.__name__} has another sys")
        if born is not None and session.identity.started_by != born:
            return nothing_to_undo
        ours = Told(session, where)
        module.sys = ours  # type: ignore[attr-defined]

        def undo() -> None:
            if module.sys is ours:
                module.sys = sys  # type: ignore[attr-defined]

        return undo

    return install


def nothing_to_undo() -> None:
    """Undo a point that was not needed here."""


POINTS = (
    Point("threading.excepthook", "threading", attribute("excepthook", _excepthook)),
    Point("resource sharer", "multiprocessing.resource_sharer", _told("resource sharer")),
    # What a child cannot unpickle, or import, is reported by the server's loop it still stands in.
    Point("forkserver child", "multiprocessing.forkserver", _told("main", "forkserver")),
)
