"""Exceptions that end threads, where nobody else looks."""

from __future__ import annotations

from .. import errors
from ..patching import Point, attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..session import Session


def _excepthook(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def excepthook(args: Any, /) -> Any:
        error = args.exc_value
        if isinstance(error, BaseException):
            session.note(
                "thread-died",
                thread=str(getattr(args.thread, "name", ""))[:128],
                type=type(error).__name__,
                text=errors.text_of(error),
                frames=errors.frames_of(error),
                tid=session.system.get_native_id(),
            )
        return original(args)

    return excepthook


POINTS = (Point("threading.excepthook", "threading", attribute("excepthook", _excepthook)),)
