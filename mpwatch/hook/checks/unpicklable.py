"""The part of an object that does not pickle."""

from __future__ import annotations

from types import FunctionType

from ..safe.exact import class_name, is_a, module_of_class
from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

walk: Callable[..., Iterator[tuple[str, Any]]] = load("object_walk").walk
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

    Nothing is pickled for this: that would call the program's methods again. Known are functions
    and classes that cannot be found by name, the types in `_NEVER`, and the type named in the text
    of the exception.

    Args:
        thing: The object that could not be pickled.
        text: The message of the exception.
    """
    if _is_refused(thing, text):
        return None
    for path, part in walk(thing):
        if _is_refused(part, text):
            return path
    return None


def _is_refused(part: Any, text: str) -> bool:
    """Whether pickle refuses this object itself, without its contents."""
    kind = type(part)
    if kind is FunctionType or is_a(part, type):
        name = part.__qualname__ if kind is FunctionType else class_name(part)
        return "<locals>" in name or "<lambda>" in name
    name = class_name(kind)
    full = f"{module_of_class(kind)}.{name}"
    return full in _NEVER or "<locals>" in name or f"'{name}' object" in text or f"'{full}'" in text
