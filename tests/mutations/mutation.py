"""A change of one function of the package, which tests have to notice."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from typing import NamedTuple


class Mutation(NamedTuple):
    """A change of a function, and the tests that must fail with it.

    The code to change is compared as a syntax tree, so line breaks, comments and quotes of the
    function do not matter.
    """

    invariant: int
    what: str
    """The fault that the mutation introduces."""
    file: str
    function: str
    """`Class.method` or `outer.inner`; empty for the module itself."""
    before: str
    """An expression or statements that occur once in the function."""
    after: str
    """The replacement, of the same kind; statements are removed if it is empty."""
    tests: tuple[str, ...]


class _Place(NamedTuple):
    """A range of the source, by line and by offset in bytes within it."""

    begin: tuple[int, int]
    end: tuple[int, int]


def mutate(text: str, mutation: Mutation) -> str:
    """The text of the file with the mutation.

    Raises:
        LookupError: The function does not exist, or does not contain the code exactly once.
    """
    scope = _function(ast.parse(text), mutation)
    is_expression = _is_expression(mutation.before) and _is_expression(mutation.after)
    find = _expressions if is_expression else _statements
    places = list(find(scope, mutation.before))
    if len(places) != 1:
        where = f"{mutation.file}, {mutation.function or 'the module'}"
        raise LookupError(f"{where}: {mutation.before!r} occurs {len(places)} times, not once")
    return _replaced(text, places[0], mutation.after or "pass", is_statement=not is_expression)


def _function(tree: ast.AST, mutation: Mutation) -> ast.AST:
    for name in filter(None, mutation.function.split(".")):
        named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = [each for each in _own_nodes(tree) if isinstance(each, named) and each.name == name]
        if len(found) != 1:
            raise LookupError(f"{mutation.file} has {mutation.function} {len(found)} times")
        tree = found[0]
    return tree


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope; of functions and classes in it only the definition."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _own_nodes(child)


def _is_expression(code: str) -> bool:
    try:
        ast.parse(code, mode="eval")
    except SyntaxError:
        return False
    return True


def _expressions(scope: ast.AST, before: str) -> Iterator[_Place]:
    wanted = ast.dump(ast.parse(before, mode="eval").body)
    for node in ast.walk(scope):
        if isinstance(node, ast.expr) and ast.dump(node) == wanted:
            yield _place(node, node)


def _statements(scope: ast.AST, before: str) -> Iterator[_Place]:
    """The places of consecutive statements."""
    wanted = [ast.dump(node) for node in ast.parse(textwrap.dedent(before)).body]
    for node in ast.walk(scope):
        for _, block in ast.iter_fields(node):
            if not isinstance(block, list) or not all(isinstance(each, ast.stmt) for each in block):
                continue
            dumps = [ast.dump(each) for each in block]
            for first in range(len(block) - len(wanted) + 1):
                if dumps[first : first + len(wanted)] == wanted:
                    yield _place(block[first], block[first + len(wanted) - 1])


def _place(first: ast.expr | ast.stmt, last: ast.expr | ast.stmt) -> _Place:
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    return _Place((first.lineno, first.col_offset), (last.end_lineno, last.end_col_offset))


def _replaced(text: str, place: _Place, after: str, *, is_statement: bool) -> str:
    lines = text.encode().splitlines(keepends=True)
    (first, column), (last, end) = place
    if is_statement:
        after = textwrap.indent(textwrap.dedent(after), " " * column).lstrip().rstrip("\n")
    head, tail = lines[first - 1][:column], lines[last - 1][end:]
    lines[first - 1 : last] = [head + after.encode() + tail]
    return b"".join(lines).decode()
