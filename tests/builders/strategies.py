"""Hypothesis strategies for every input there is, made from the types themselves."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct

from mpwatch.model.events import Input
from mpwatch.model.sanitize import clean

TEXT = st.text(max_size=12).map(clean)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: TEXT,
    Any: JSON_VALUES,
    object: JSON_VALUES,
    type(None): st.none(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type as the model uses them: structs, named tuples, unions, literals."""
    if hint in SIMPLE:
        return SIMPLE[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, args))
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is Mapping:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=2)
    if issubclass(hint, Struct) or hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        return st.builds(hint, **{name: st.deferred(_later(hints[name])) for name in hints})
    raise TypeError(f"no strategy for {hint}")


def _later(hint: Any) -> Any:
    return lambda: values_of(hint)


INPUTS: dict[type, st.SearchStrategy[Any]] = {kind: values_of(kind) for kind in get_args(Input)}
"""A strategy for each kind of input."""
