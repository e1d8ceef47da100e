"""Calls of a function whose results another function of the same file keeps in a cache."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mpwatch.collect.source.syntax import FUNCTIONS, Found, last_name, own_nodes

_CACHES: Final = frozenset(("cache", "lru_cache"))


def cached_variants(functions: Sequence[ast.AST]) -> Mapping[str, str]:
    """Functions of a file by name, each with the one that returns its results from a cache.

    `kernel` and `cached_kernel` of `@lru_cache(maxsize=16) def cached_kernel(n): return kernel(n)`.
    """
    known = {each.name for each in functions if isinstance(each, FUNCTIONS)}
    return {
        name: each.name
        for each in functions
        if isinstance(each, FUNCTIONS) and any(map(_is_cache, each.decorator_list))
        for name in _returned(each)
        if name in known and name != each.name
    }


def find_past_caches(
    function: ast.AST, nodes: Sequence[ast.AST], variants: Mapping[str, str]
) -> Iterator[Found]:
    """Calls that pass over the cached variant of a function, and compute its result anew."""
    if not variants or not isinstance(function, FUNCTIONS):
        return
    if function.name in variants or any(map(_is_cache, function.decorator_list)):
        return
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in variants:
                yield "past-cache", f"{name}, {variants[name]}", node


def _is_cache(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return last_name(called) in _CACHES


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The function that it calls with its own arguments and nothing else, to return the result."""
    arguments = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    for node in own_nodes(function):
        call = node.value if isinstance(node, ast.Return) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords:
            given = [each.id if isinstance(each, ast.Name) else "" for each in call.args]
            if given == arguments:
                yield call.func.id
