"""Exceptions that end threads, services and children without reaching the program."""

from __future__ import annotations

import sys

from ..safe import foreign_exceptions
from ..safe.exact import attributes, is_a, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Install, Undo


def wrap_excepthook(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note each exception that ends a thread."""

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


class SysProxy:
    """Replaces `sys` in one module, and notes the exceptions that it passes to `sys.excepthook`.

    `sys.excepthook` itself is not replaced: programs compare it with `sys.__excepthook__` (the
    standard library's `code` does), and a replacement by the program is called as before.
    """

    def __init__(self, session: Context, where: str) -> None:
        self.__dict__["_session"] = session
        self.__dict__["_where"] = where

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(sys, name, value)

    def excepthook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Note an exception and pass it on."""
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


def note_uncaught_in(where: str, started_by: str | None = None) -> Install:
    """Note the exceptions that a module passes to `sys.excepthook`.

    Args:
        where: Name of the module in notes.
        started_by: Only in processes that were started by this method.
    """

    def install(module: ModuleType, session: Context) -> Undo:
        if module.sys is not sys:
            raise LookupError(f"{module.__name__} has another sys")
        if started_by is not None and session.identity.started_by != started_by:
            return nothing_to_undo
        ours = SysProxy(session, where)
        module.sys = ours  # type: ignore[attr-defined]

        def undo() -> None:
            if module.sys is ours:
                module.sys = sys  # type: ignore[attr-defined]

        return undo

    return install


def nothing_to_undo() -> None:
    """Undo a point that changed nothing in this process."""
