"""Waits for the result of a task that come right after the statement that starts the task.

Such a function has one task under way at a time, however many workers its pool has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from mpwatch.collect.source.syntax import (
    BLOCKS,
    FUNCTIONS,
    Found,
    calls_in,
    expression_text,
    last_name,
    receiver_of,
)

_STARTS: Final = frozenset(("submit", "apply_async"))
"""Methods that start one task; `map_async` starts many."""
_AWAITS: Final = frozenset(("result", "get", "wait"))
_POOL: Final = re.compile(r"pool|worker|proc", re.IGNORECASE)
"""In the name of what is no data frame, which has a method `apply`, too."""


def find_awaited_tasks(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """Statements of a function that wait for a task, and none of its tasks runs beside that one.

    `pool.submit(f, x).result()`, `pool.apply(f, (x,))`, and `task.get()` after
    `task = pool.apply_async(f, (x,))` in the same block, with no other task started in between.

    Args:
        function: The function, or the file.
        nodes: Its own syntax.
    """
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    for call in calls:
        if (start := _started_by(call)) is not None:
            yield "awaits-task", _about(start), call
    if not any(map(_starts, calls)):
        return
    for node in (function, *(each for each in nodes if not isinstance(each, FUNCTIONS))):
        for block in BLOCKS:
            body = getattr(node, block, None)
            if isinstance(body, list):
                yield from _in_block(body)


def _started_by(call: ast.Call) -> ast.Call | None:
    """The call that starts the task for which another call waits at once; it may be the same."""
    if not isinstance(call.func, ast.Attribute):
        return None
    inner = call.func.value
    if call.func.attr in _AWAITS and isinstance(inner, ast.Call) and _starts(inner):
        return inner
    is_pool = call.func.attr == "apply" and _POOL.search(last_name(call.func.value))
    return call if is_pool and call.args else None


def _starts(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in _STARTS and bool(node.args)


def _in_block(body: Sequence[ast.AST]) -> Iterator[Found]:
    """Waits for tasks that are assigned to a name, later in the same block."""
    for number, node in enumerate(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        name = expression_text(target) if isinstance(target, ast.Name | ast.Attribute) else ""
        if name and isinstance(node.value, ast.Call) and _starts(node.value):
            wait = _wait_for(name, body[number + 1 :])
            if wait is not None:
                yield "awaits-task", _about(node.value), wait


def _wait_for(name: str, rest: Sequence[ast.AST]) -> ast.Call | None:
    """The first wait for a task of this name; `None` if another task may be started before it."""
    for node in rest:
        found = list(calls_in(node))
        for call in found:
            if last_name(call.func) in _AWAITS and receiver_of(call) == name:
                return call
        if any(map(_starts, found)):
            return None
    return None


def _about(start: ast.Call) -> str:
    return f"{start.lineno}, {last_name(start.func)}"
