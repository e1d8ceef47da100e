"""Parsed source files of a program, and their statements as words of a finding."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Statement

QUOTE_LIMIT: Final = 100
"""Characters of a quoted statement."""
ROWS: Final = 8
"""Lines of a quoted statement."""


class Module(NamedTuple):
    """A parsed file and its lines."""

    rows: tuple[str, ...]
    tree: ast.Module


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.While, ast.AsyncFor)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def children(node: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.ExceptHandler | ast.match_case]]:
    """The statements directly in a statement, each with the name of the block that it is in."""
    for block in BLOCKS:
        for child in getattr(node, block, ()):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield block, child


def last_line(node: ast.AST) -> int:
    """The number of its last line."""
    return getattr(node, "end_lineno", None) or first_line(node)


def first_line(node: ast.AST) -> int:
    """The number of its first line; 0 for what has none."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    return getattr(node, "lineno", 0)


def within(
    body: Sequence[ast.AST], parents: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """The statements of a block and of those in it, in order, with the statements around each."""
    for node in body:
        yield node, parents
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield from within([child for _, child in children(node)], (*parents, node))


def condition(module: Module, node: ast.If) -> Statement:
    """`if step > 9: break`, with the statement that leaves."""
    header, last = quoted(module, node), quoted(module, node.body[-1])
    return Statement(header.line, clean(f"{header.text} {last.text}", QUOTE_LIMIT))


def quoted(module: Module, node: ast.AST) -> Statement:
    """A statement in one line; of a compound one its header."""
    first, last = first_line(node), last_line(node)
    body = getattr(node, "body", None)
    rows = list(module.rows[first - 1 : first + ROWS - 1])
    if isinstance(body, list) and body:
        last = first_line(body[0]) - 1
        if last < first:  # `if done: break`
            rows[0] = rows[0].encode()[: body[0].col_offset].decode()
            last = first
    rows = [row.partition("  #")[0] for row in rows[: last - first + 1]]
    return Statement(first, clean(" ".join(" ".join(rows).split()), QUOTE_LIMIT))


def last_name(node: ast.expr) -> str:
    """`pool` of `self.pool`; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The syntax of a function, without that of functions defined in it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
