"""Frees what the interpreter keeps of the hook's modules and nothing reads in a training.

Most of the 1 MiB that the hook may take is code. Annotations are 27 KB of that, the docstrings of
modules and classes 16 KB, those of functions 40 KB (CPython 3.11).
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_IS_FUNCTION = 1
_HAS_DOCSTRING = 0x4000000 if sys.version_info >= (3, 14) else 0
"""Flags of code (CO_OPTIMIZED, CO_HAS_DOCSTRING). Before 3.14 the first constant of each function
with a name is its docstring, or `None`."""


def strip_package(package: ModuleType) -> None:
    """Drop docstrings and annotations in all modules of a package.

    The modules are found from the package itself: a search of all loaded modules would make a
    forked process copy 700 pages of the heap that it shares with its parent.
    """
    prefix = package.__name__ + "."
    for value in tuple(vars(package).values()):
        if isinstance(value, ModuleType) and value.__name__.startswith(prefix):
            strip(value)
            strip_package(value)


def strip(module: ModuleType) -> None:
    """Drop docstrings and annotations in one module."""
    module.__doc__ = None
    _strip_members(module, module.__name__)


def without_docstrings(code: CodeType) -> CodeType:
    """The same code, whose functions and those within them have no docstrings."""
    constants = [
        without_docstrings(each) if isinstance(each, CodeType) else each for each in code.co_consts
    ]
    is_function = code.co_flags & _IS_FUNCTION and not code.co_name.startswith("<")
    can_have_one = code.co_flags & _HAS_DOCSTRING == _HAS_DOCSTRING
    if is_function and can_have_one and constants and isinstance(constants[0], str):
        constants[0] = None
    return code.replace(co_consts=tuple(constants))


def _strip_members(holder: Any, module: str) -> None:
    for value in tuple(vars(holder).values()):
        function: Any = value
        if isinstance(value, property):
            function = value.fget
        elif isinstance(value, staticmethod | classmethod):
            function = value.__func__
        if isinstance(function, FunctionType) and function.__module__ == module:
            function.__annotations__ = None  # type: ignore[assignment]
            _drop_docstring(function)
        elif isinstance(value, type) and value.__module__ == module:
            value.__doc__ = None
            _strip_members(value, module)


def _drop_docstring(function: FunctionType) -> None:
    """Take the docstring out of the constants of a function's code, where it is the first."""
    code = function.__code__
    if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
        function.__doc__ = None
        function.__code__ = code.replace(co_consts=(None, *code.co_consts[1:]))
