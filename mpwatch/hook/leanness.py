"""Lets go of what the interpreter keeps of the hook's modules and nobody reads in a training.

A mebibyte is all that the hook may take, and most of it is code. Annotations are 27 KB of that, the
docstrings of modules and classes 16 KB (CPython 3.11); those of functions are part of their code.
"""

from __future__ import annotations

import sys
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def be_lean(package: str) -> None:
    """Drop them in all modules of a package; where that cannot be done they stay."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(package + ".") and module is not None:
            module.__doc__ = None
            _strip(module, name)


def _strip(holder: Any, module: str) -> None:
    for value in tuple(vars(holder).values()):
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and function.__module__ == module:
            function.__annotations__ = None  # type: ignore[assignment]
        elif isinstance(value, type) and value.__module__ == module:
            value.__doc__ = None
            _strip(value, module)
