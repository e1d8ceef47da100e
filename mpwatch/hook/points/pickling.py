"""Objects on their way into spawned children: why one does not pickle, and what it holds."""

from __future__ import annotations

import pickle
from types import FunctionType

from ..checks.object_walk import heaviest, walk
from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions
from ..safe.exact import class_name, is_a, module_of_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..session import Session

MANY = 200
"""Storages in one object worth a look: forkserver refuses 252, and each is a mapping."""
_NEVER = frozenset(
    (
        "_io.BufferedRandom",
        "_io.BufferedReader",
        "_io.BufferedWriter",
        "_io.FileIO",
        "_io.TextIOWrapper",
        "_thread.RLock",
        "_thread._local",
        "_thread.lock",
        "_ctypes.CFuncPtr",
        "builtins.async_generator",
        "builtins.code",
        "builtins.coroutine",
        "builtins.frame",
        "builtins.generator",
        "builtins.memoryview",
        "builtins.module",
        "builtins.traceback",
        "select.epoll",
        "sqlite3.Connection",
        "weakref.ReferenceType",
    )
)
"""Types that pickle refuses, CPython 3.10 to 3.15."""


def path_to_unpicklable(thing: Any, text: str) -> str | None:
    """The path to the nearest part of an object that pickle refuses, or None if none is known.

    Nothing is pickled to find out: that would call the program's methods once more. Known are
    functions and classes that no name leads to, the types in `_NEVER`, and the type that the text
    of the exception names.

    Args:
        thing: What could not be pickled.
        text: The message of the exception.
    """
    if _is_refused(thing, text):
        return None
    for path, part in walk(thing):
        if _is_refused(part, text):
            return path
    return None


def _is_refused(part: Any, text: str) -> bool:
    """Whether pickle refuses this object, whatever it contains."""
    kind = type(part)
    if kind is FunctionType or is_a(part, type):
        name = part.__qualname__ if kind is FunctionType else class_name(part)
        return "<locals>" in name or "<lambda>" in name
    name = class_name(kind)
    full = f"{module_of_class(kind)}.{name}"
    return full in _NEVER or "<locals>" in name or f"'{name}' object" in text or f"'{full}'" in text


def _dump(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    here, noted = session.here, Burden(session)

    def dump(thing: Any, *args: Any, **kwargs: Any) -> Any:
        own = here.own
        own.shares, own.burden = 0, None
        try:
            result = original(thing, *args, **kwargs)
        except BaseException as error:
            _note_unpicklable(session, thing, error)
            noted.weigh(thing)
            foreign_exceptions.unframe(error)
            raise
        noted.weigh(thing)
        return result

    return dump


def _note_unpicklable(session: Session, thing: Any, error: BaseException) -> None:
    """Note which part of an object could not be pickled; never raises."""
    if not any(is_a(error, kind) for kind in (pickle.PicklingError, TypeError, AttributeError)):
        return
    try:
        text = foreign_exceptions.text_of(error)
        session.note(
            "unpicklable",
            path=path_to_unpicklable(thing, text),
            object=class_name(type(thing)),
            type=class_name(type(error)),
            text=text,
        )
    except Exception as failure:
        if not foreign_exceptions.is_ours(failure):
            raise


class Burden:
    """Notes where in an object the many storages are that had to be shared for a new process."""

    __slots__ = ("_known", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: tuple[str, int, str] | None = None

    def weigh(self, thing: Any) -> None:
        """Look where they are if they are many; workers that get the same are noted once."""
        own = self._session.here.own
        if own.shares < MANY:
            return
        kind, shared = class_name(type(thing)), own.shares
        try:
            if self._known is None or self._known[:2] != (kind, shared):
                self._known = kind, shared, heaviest(thing)[0]
                self._session.note(
                    "many-storages", path=self._known[2], object=kind, storages=shared
                )
            own.burden = self._known[2]
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise


POINTS = (Point("reduction.dump", "multiprocessing.reduction", attribute("dump", _dump)),)
