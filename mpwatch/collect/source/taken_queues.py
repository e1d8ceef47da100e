"""Functions that empty a queue in a loop, themselves or by others of the same file."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    Found,
    expression_text,
    first_line,
    last_line,
    last_name,
    own_nodes,
    receiver_of,
)

_CALLS: Final = 3
"""Calls that are followed, one inside of the other."""


class Takers(NamedTuple):
    """What functions of a file take items out of, by their names."""

    queues: Mapping[str, frozenset[str]]
    """The queues, as they are written there; `self.queue` is the same in all methods of a class."""


def takers_of(tree: ast.Module) -> Takers:
    """The functions that take items out of a queue, or call one of the file that does."""
    functions = [each for each in ast.walk(tree) if isinstance(each, FUNCTIONS)]
    names = Counter(each.name for each in functions)
    single = [each for each in functions if names[each.name] == 1]
    found = {
        each.name: {text for node in own_nodes(each) for text in taken_by(node)} for each in single
    }
    if not any(found.values()):
        return Takers({})
    for _ in range(_CALLS):
        for each in single:
            for name in _called_in(each):
                # What another function calls its own variable is not known here.
                found[each.name] |= {q for q in found.get(name, ()) if "." in q}
    return Takers({name: frozenset(queues) for name, queues in found.items() if queues})


def find_emptying(function: ast.AST, takers: Takers) -> Iterator[Found]:
    """The loops of a function in whose rounds items are taken out of a queue."""
    queues = takers.queues.get(getattr(function, "name", ""), frozenset())
    nodes = list(own_nodes(function)) if queues else []
    for loop in (each for each in nodes if isinstance(each, LOOPS)):
        inside = [n for n in nodes if first_line(loop) <= first_line(n) <= last_line(loop)]
        taken = {text for node in inside for text in taken_by(node)}
        for node in inside:
            if isinstance(node, ast.Call):
                taken |= takers.queues.get(last_name(node.func), frozenset())
        for queue in sorted(taken & queues):
            yield "empties", queue, loop


def _called_in(function: ast.AST) -> Iterator[str]:
    """The functions of its own object, or of the file, that a function calls."""
    for node in own_nodes(function):
        if isinstance(node, ast.Call) and receiver_of(node) in ("", "self"):
            yield last_name(node.func)


def taken_by(node: ast.AST) -> Iterator[str]:
    """The queue of `queue.get()`, `get(timeout=1)` and `iter(queue.get, None)`."""
    if not isinstance(node, ast.Call):
        return
    name = last_name(node.func)
    if name == "iter" and len(node.args) == 2 and isinstance(node.args[0], ast.Attribute):
        if node.args[0].attr in ("get", "get_nowait"):
            yield expression_text(node.args[0].value)
    elif name in ("get", "get_nowait") and isinstance(node.func, ast.Attribute):
        # get() of a dict has a key.
        is_flag = all(isinstance(getattr(each, "value", None), bool) for each in node.args[:1])
        if is_flag and all(each.arg in ("timeout", "block") for each in node.keywords):
            yield expression_text(node.func.value)
