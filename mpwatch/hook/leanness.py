"""Lets go of what the interpreter keeps of the hook's modules and nobody reads in a training.

A mebibyte is all that the hook may take, and most of it is code. Annotations are 27 KB of that, the
docstrings of modules and classes 16 KB, those of functions 40 KB (CPython 3.11).
"""

from __future__ import annotations

from types import FunctionType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def be_lean(package: ModuleType) -> None:
    """Drop them in all modules of a package; where that cannot be done they stay.

    They are found from the package itself: to look for them among all modules would have a forked
    process copy 700 pages of the heap that it shares with its parent.
    """
    inside = package.__name__ + "."
    for value in tuple(vars(package).values()):
        if isinstance(value, ModuleType) and value.__name__.startswith(inside):
            value.__doc__ = None
            _strip(value, value.__name__)
            be_lean(value)


def _strip(holder: Any, module: str) -> None:
    for value in tuple(vars(holder).values()):
        function: Any = value
        if isinstance(value, property):
            function = value.fget
        elif isinstance(value, staticmethod | classmethod):
            function = value.__func__
        if isinstance(function, FunctionType) and function.__module__ == module:
            function.__annotations__ = None  # type: ignore[assignment]
            _forget_docstring(function)
        elif isinstance(value, type) and value.__module__ == module:
            value.__doc__ = None
            _strip(value, module)


def _forget_docstring(function: FunctionType) -> None:
    """Take it out of the constants of its code, where it is the first."""
    code = function.__code__
    if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
        function.__doc__ = None
        function.__code__ = code.replace(co_consts=(None, *code.co_consts[1:]))
