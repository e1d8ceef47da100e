"""Loops that take items until their own one comes, and drop those of others.

`while True: number, answer = self.answers.get()`, `if number == own: return answer`. Where two take
from one queue like this, one of them takes what the other waits for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from mpwatch.collect.source.repetition import taken_by
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    Found,
    expression_text,
    last_name,
    names_in,
)

_LOGS: Final = frozenset(
    ("critical", "debug", "error", "exception", "info", "log", "print", "warn", "warning")
)
_RECEIVES: Final = frozenset(("recv", "recv_pyobj"))


def find_own_answers(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """The statements that take an item in such loops.

    Args:
        nodes: The syntax of one function.
    """
    for loop in nodes:
        if isinstance(loop, ast.While):
            for statement in _of_block(loop.body):
                source = _taken(statement)
                if source and isinstance(statement, ast.Assign):
                    items = set().union(*map(names_in, statement.targets))
                    own = _own(loop, statement, items)
                    if own:
                        yield "takes-own", f"{source}, {own}", statement


def _of_block(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop, also of a `try` or `with` in it."""
    for each in body:
        if isinstance(each, ast.Try | ast.With):
            yield from _of_block(each.body)
        else:
            yield each


def _taken(statement: ast.stmt) -> str:
    """The queue or connection out of which a statement takes one item; empty for others."""
    call = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(call, ast.Call):
        return ""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _RECEIVES:
        return expression_text(call.func.value)
    return next(taken_by(call), "")


def _own(loop: ast.While, taken: ast.stmt, items: set[str]) -> str:
    """What the item is compared with, where the loop drops all that are not equal to it."""
    if (own := _compared(loop.test, items, ast.NotEq)) and not _uses(loop.body, items, taken):
        return own
    block = list(_of_block(loop.body))
    after = block[block.index(taken) + 1 :]
    for place, each in enumerate(after):
        if not isinstance(each, ast.If):
            if _uses([each], items):
                return ""
            continue
        if own := _compared(each.test, items, ast.Eq):
            rest = [*each.orelse, *after[place + 1 :]]
            is_end = isinstance(each.body[-1], ast.Return | ast.Break)
            return own if is_end and not _uses(rest, items) else ""
        if own := _compared(each.test, items, ast.NotEq):
            goes_on = isinstance(each.body[-1], ast.Continue)
            return own if goes_on and not _uses(each.body, items) and _leaves(after) else ""
        if _uses(each.body, items):
            return ""
    return ""


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the loop ends with its own item: not one that goes on to the next."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Break)


def _compared(test: ast.expr, items: set[str], how: type[ast.cmpop]) -> str:
    """The variable with which a part of an item is compared; empty for a constant."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], how):
        return ""
    sides = (test.left, test.comparators[0])
    for one, other in (sides, sides[::-1]):
        name = last_name(other)
        is_variable = bool(name) and not name.isupper() and not names_in(other) & items
        if is_variable and names_in(one) & items:
            return expression_text(other)
    return ""


def _uses(body: Sequence[ast.stmt], items: set[str], besides: ast.stmt | None = None) -> bool:
    """Whether statements do more with an item than to log it."""
    waiting: list[ast.AST] = [each for each in body if each is not besides]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and last_name(node.func) in _LOGS:
            continue
        if isinstance(node, ast.Name) and node.id in items:
            return True
        if node is not besides and not isinstance(node, FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
    return False
