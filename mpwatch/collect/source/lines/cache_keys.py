"""Where the keys come from that fill a cache: one call above the function that stores them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from mpwatch.collect.source.call_graph import assignments
from mpwatch.collect.source.syntax import (
    CONTAINER_METHODS,
    FUNCTIONS,
    QUOTE_LIMIT,
    ParsedFile,
    first_line,
    functions_in,
    last_name,
    names_in,
    own_nodes,
    parameters,
    quoted,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Mark

ORIGINS = 2
"""Lines that are named for one cache."""


def key_origins(cache: Mark, files: Iterable[tuple[str, ParsedFile]]) -> tuple[Mark, ...]:
    """The statements that take the keys of a cache out of a message, request or item.

    Only where the key is what the function of the cache is given, and the program has one function
    of that name, which is none of a method of containers: `OPTIONS.get(name)` would be taken for a
    call of it.

    Args:
        cache: A statement that stores under a key, in a function that looks for it before.
        files: The program.
    """
    if cache.function in CONTAINER_METHODS:
        return ()
    parsed = list(files)
    named = [
        (file, each)
        for file, module in parsed
        for each in functions_in(module.tree)
        if each.name == cache.function
    ]
    if len(named) != 1 or named[0][0] != cache.file:
        return ()
    function = named[0][1]
    given = _given_key(function, cache.statement.line)
    if given is None:
        return ()
    place = f"{cache.file.rpartition('/')[2]}:{cache.statement.line}"
    found: dict[tuple[str, int], Mark] = {}
    for file, module in parsed:
        for caller in functions_in(module.tree):
            for node in _origins(caller, cache.function, given):
                about = clean(f"{place}, {cache.function}", QUOTE_LIMIT)
                mark = Mark("cache-key", file, caller.name, about, quoted(module, node))
                found.setdefault((file, first_line(node)), mark)
    return tuple(found.values())[:ORIGINS]


def _given_key(function: ast.AST, line: int) -> slice | None:
    """Which positional arguments of a call are the key at a line; `None` if it is made there."""
    if not isinstance(function, FUNCTIONS):
        return None
    stored = next(
        (e for e in own_nodes(function) if isinstance(e, ast.Assign) and first_line(e) == line),
        None,
    )
    keys = {
        target.slice.id
        for target in (stored.targets if stored is not None else ())
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Name)
    }
    names = [each for each in parameters(function) if each not in ("self", "cls")]
    several = function.args.vararg.arg if function.args.vararg is not None else ""
    if several in keys:
        plain = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
        return slice(len(plain), None)
    place = next((number for number, name in enumerate(names) if name in keys), None)
    return None if place is None else slice(place, place + 1)


def _origins(caller: ast.AST, called: str, given: slice) -> Iterator[ast.AST]:
    """The assignments by which a function takes a part of an argument that it gives as a key."""
    if not isinstance(caller, FUNCTIONS):
        return
    nodes = own_nodes(caller)
    keys = [
        argument.id
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) == called
        for argument in _positional(node)[given]
        if isinstance(argument, ast.Name)
    ]
    arguments = set(parameters(caller)) - {"self", "cls"}
    for node in nodes if keys else ():
        for target, value in assignments(node):
            is_part = isinstance(value, ast.Attribute | ast.Subscript | ast.Call)
            is_key = isinstance(target, ast.Name) and target.id in keys
            if is_key and is_part and not names_in(value).isdisjoint(arguments):
                yield node


def _positional(call: ast.Call) -> Sequence[ast.expr]:
    """The arguments of a call by their place; none where some are spread."""
    return [] if any(isinstance(each, ast.Starred) for each in call.args) else call.args
