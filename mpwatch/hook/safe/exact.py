"""Reads of the program's objects that run none of the program's code.

`isinstance` reads `__class__` of an object, `getattr` calls `__getattribute__`, `__getattr__` and
properties, `in` and `==` call `__eq__`, and a truth test calls `__bool__` or `__len__`. The
functions here use the type of an object, the type's own table of base classes, and the descriptors
of the built-in types instead. What cannot be read that way is not read.
"""

from __future__ import annotations

import functools
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MethodType,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

bases_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
"""The base classes of a class, itself first; a metaclass cannot override this."""
_class_dict: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_class_module: Callable[[type], Any] = type.__dict__["__module__"].__get__
_class_qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__
key_of: Callable[[object], int] = object.__hash__
"""A number for an object, as `id`, but audit hooks are not told; 20 ns more (CPython 3.11)."""
ATOMS = (str, int, float, bool, bytes, type(None))
"""Types whose exact instances run no code of the program."""
_NOTHING: dict[str, Any] = {}


def is_a(thing: Any, base: type) -> bool:
    """Whether the type of an object derives from a class; `__class__` is not read."""
    return type.__subclasscheck__(base, type(thing))


def is_atom(thing: Any) -> bool:
    """Whether an object is exactly a string, number, bytes or None."""
    kind = type(thing)
    return any(kind is atom for atom in ATOMS)


def attributes(thing: Any) -> dict[str, Any]:
    """The dictionary of an object's own attributes; empty if it has none.

    The dictionary itself, not a copy. A class that replaces `__dict__` by a property has none.
    """
    for base in bases_of(type(thing)):
        descriptor = _class_dict(base).get("__dict__")
        if descriptor is None:
            continue
        if type(descriptor) is not GetSetDescriptorType:
            return _NOTHING
        found = descriptor.__get__(thing)
        return found if type(found) is dict else _NOTHING
    return _NOTHING


def in_class(thing: Any, name: str) -> Any:
    """The attribute of an object's classes with a name, unbound, or `None`."""
    for base in bases_of(type(thing)):
        found = _class_dict(base).get(name)
        if found is not None:
            return found
    return None


def class_name(kind: type) -> str:
    """Qualified name of a class; what a program has set may be of a class derived from `str`."""
    return str.__str__(_class_qualname(kind))


def placeholder(value: Any) -> str:
    """Text for a value that is not JSON: `repr` would run the program's code."""
    return f"<{class_name(type(value))}>"


def module_of_class(kind: type) -> str:
    """Name of the module that defines a class; empty if it is no string."""
    try:
        name = _class_module(kind)
    except AttributeError:  # a class without `__module__`
        return ""
    return name if type(name) is str else ""


def function_of(callable_object: Any) -> Any:
    """The function inside partials and bound methods; other objects unchanged."""
    for _ in range(8):
        kind = type(callable_object)
        if kind is functools.partial:
            callable_object = callable_object.func
        elif kind is MethodType:
            callable_object = callable_object.__func__
        else:
            break
    return callable_object


def code_of(callable_object: Any) -> Any:
    """The code object that a call runs, or `None` if it is not written in Python."""
    function = function_of(callable_object)
    if type(function) is not FunctionType:
        function = in_class(function, "__call__")
    return function.__code__ if type(function) is FunctionType else None


def full_name(callable_object: Any) -> tuple[str, str]:
    """Module and qualified name of a function or class; for other objects, of their class."""
    function = function_of(callable_object)
    kind = type(function)
    if kind is FunctionType or kind is BuiltinFunctionType:
        module, name = function.__module__, function.__qualname__
        return module if type(module) is str else "", str.__str__(name)
    if is_a(function, type):
        return module_of_class(function), class_name(function)
    return module_of_class(kind), class_name(kind)


def text(value: Any) -> str:
    """A string unchanged, another plain value as `repr` shows it, else the name of the class."""
    if type(value) is str:
        return value
    if is_a(value, str):
        return str.__str__(value)
    return repr(value) if is_atom(value) else f"<{class_name(type(value))}>"
