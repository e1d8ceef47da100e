"""Statements that give SIGPIPE its default action, which ends the process that writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mpwatch.collect.source.syntax import Found, expression_text, last_name

_SIGNAL: Final = "SIGPIPE"
_OF_ALL: Final = frozenset(("NSIG", "Signals", "valid_signals"))
"""Names in an expression that gives the numbers of all signals."""


def find_default_sigpipe(
    nodes: Sequence[ast.AST], assigned: Mapping[str, ast.expr]
) -> Iterator[Found]:
    """`signal.signal(signal.SIGPIPE, signal.SIG_DFL)`, also in a loop over several signals.

    Args:
        nodes: The syntax of a function, or of the file.
        assigned: What the file gives to its variables and attributes.
    """
    loops = [each for each in nodes if isinstance(each, ast.For)]
    for call in (each for each in nodes if isinstance(each, ast.Call)):
        if last_name(call.func) not in ("signal", "sigaction") or len(call.args) != 2:
            continue
        which, action = call.args
        if last_name(action) != "SIG_DFL":
            continue
        if last_name(which) == _SIGNAL:
            yield "default-sigpipe", "", call
            continue
        for loop in loops:
            names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            is_its = names & {n.id for n in ast.walk(which) if isinstance(n, ast.Name)}
            is_inside = any(call is part for part in ast.walk(loop))
            if is_its and is_inside and not _leaves_out(loop) and _has(loop.iter, assigned):
                yield "default-sigpipe", "", call
                break


def _has(signals: ast.expr, assigned: Mapping[str, ast.expr]) -> bool:
    """Whether SIGPIPE is among the signals of an expression, or they are all."""
    for _ in range(len(assigned)):
        made = assigned.get(expression_text(signals))
        if made is None or made is signals:
            break
        signals = made
    parts = list(ast.walk(signals))
    if any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) for each in parts):
        return False  # a set without some of them
    if any(_is_sigpipe(each) for part in parts for each in _conditions(part)):
        return False
    if any(_is_sigpipe(each) for each in parts):
        return True
    names = {last_name(n) for n in parts if isinstance(n, ast.Name | ast.Attribute)}
    return not _OF_ALL.isdisjoint(names)


def _conditions(node: ast.AST) -> Iterator[ast.AST]:
    """What the conditions of a comprehension are made of."""
    for each in node.ifs if isinstance(node, ast.comprehension) else ():
        yield from ast.walk(each)


def _leaves_out(loop: ast.For) -> bool:
    """Whether a loop has a condition on SIGPIPE."""
    return any(
        _is_sigpipe(part)
        for each in loop.body
        for node in ast.walk(each)
        if isinstance(node, ast.If)
        for part in ast.walk(node.test)
    )


def _is_sigpipe(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value == _SIGNAL
    return isinstance(node, ast.Name | ast.Attribute) and last_name(node) == _SIGNAL
