"""Exceptions that a program keeps, with their tracebacks and all local variables of the frames."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator, Sequence
from typing import Final

from mpwatch.collect.source.kept import container_of, names_dropped_from, names_set
from mpwatch.collect.source.repetition import Repeatable, functions_of, loop_around
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    QUOTE_LIMIT,
    ParsedFile,
    calls_in,
    expression_text,
    first_line,
    last_line,
    last_name,
    own_nodes,
    quoted,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Mark

_ADDS: Final = frozenset(("add", "append", "appendleft", "extend", "insert", "setdefault"))
_CUTS: Final = frozenset(("clear_frames", "with_traceback"))
"""What takes the frames away from an exception."""
_GROUPS: Final = frozenset(("dict", "list", "partial", "set", "tuple"))


def kept_exceptions(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """`self.failures.append(Failure(page_id, error))` in `except ... as error:`.

    Only where nothing in the file removes anything from the container. One that is a variable of
    the function is looked at for the loops of that: it ends with the function.
    """
    texts = _classes_of_texts(module.tree)
    let_go: frozenset[str] | None = None
    for function, owner in functions_of(module.tree):
        nodes = list(own_nodes(function))
        own = getattr(function, "name", "<module>")
        by = owner.name if owner is not None and own == "__init__" else own
        for node, container in _found_in(nodes, texts):
            if let_go is None:
                let_go = frozenset(_let_go(module.tree))
            name = expression_text(container)
            if not name or container_of(name) in let_go:
                continue
            about = clean(name, QUOTE_LIMIT // 2)
            mark = Mark("keeps-exception", file, own, about, quoted(module, node))
            is_own = any(
                isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name
                for n in nodes
            )
            around = _outliving(nodes, name) if is_own else nodes
            loop = loop_around(file, function, around, node)
            yield Repeatable(mark, () if is_own else (by,), loop)


def _found_in(
    nodes: Sequence[ast.AST], texts: Container[str]
) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The statements of the `except` clauses of a function that keep exceptions."""
    for handler in (each for each in nodes if isinstance(each, ast.ExceptHandler)):
        inside = [part for each in handler.body for part in (each, *own_nodes(each))]
        kept = [] if _cuts(inside) else _kept_in(inside, handler.name or "", texts)
        yield from kept


def _outliving(nodes: Sequence[ast.AST], name: str) -> list[ast.AST]:
    """The loops of a function that do not make a variable anew in each round."""
    making = [first_line(each) for each in nodes if name in names_set(each)]
    return [
        each
        for each in nodes
        if isinstance(each, LOOPS)
        and not any(first_line(each) < line <= last_line(each) for line in making)
        and not _is_of_attempts(each)
    ]


_ATTEMPTS: Final = re.compile(r"attempt|retr(?:y|ies)|tries", re.IGNORECASE)


def _is_of_attempts(loop: ast.AST) -> bool:
    """`for attempt in range(3)`: few rounds."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return False
    is_number = all(isinstance(each, ast.Constant) for each in loop.iter.args)
    is_range = last_name(loop.iter.func) == "range"
    told = f"{expression_text(loop.target)} {expression_text(loop.iter)}"
    return is_range and (is_number or _ATTEMPTS.search(told) is not None)


def _let_go(tree: ast.Module) -> Iterator[str]:
    """The last names of containers from which a file removes, that it makes anew, or bounds."""
    for node in ast.walk(tree):
        yield from map(container_of, names_dropped_from(node))
        made = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(made, ast.Call) and last_name(made.func) == "deque":
            yield from map(container_of, names_set(node))
        if isinstance(node, FUNCTIONS) and node.name != "__init__":
            for each in own_nodes(node):
                yield from (
                    container_of(name)
                    for name in names_set(each)
                    if "." in name and "[" not in name
                )


def _kept_in(
    inside: Sequence[ast.AST], error: str, texts: Container[str]
) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The statements of an `except` clause that keep its exception, and the containers."""
    made = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign) and _holds(node.value, error, texts, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in inside:
        if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
            is_added = isinstance(call.func, ast.Attribute) and call.func.attr in _ADDS
            if is_added and any(_holds(each, error, texts, made) for each in call.args):
                yield node, call.func.value  # type: ignore[attr-defined]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            is_new = not isinstance(node.targets[0].slice, ast.Constant)
            if is_new and _holds(node.value, error, texts, made):
                yield node, node.targets[0].value
        elif isinstance(node, ast.AugAssign) and _holds(node.value, error, texts, made):
            yield node, node.target


def _holds(value: ast.expr, error: str, texts: Container[str], made: Container[str]) -> bool:
    """Whether an expression refers to the exception, itself or in an object made of it."""
    if isinstance(value, ast.Name):
        return (value.id == error and bool(error)) or value.id in made
    if isinstance(value, ast.Attribute):
        return value.attr == "__traceback__" and last_name(value.value) == error
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return any(_holds(each, error, texts, made) for each in value.elts)
    if isinstance(value, ast.Dict):
        return any(_holds(each, error, texts, made) for each in value.values)
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if name == "exc_info":
        return True
    # A function gives anything, such as a text; a class is written with a capital letter.
    if name not in _GROUPS and (not name.lstrip("_")[:1].isupper() or name in texts):
        return False
    given = [*value.args, *(each.value for each in value.keywords)]
    return any(_holds(each, error, texts, made) for each in given)


def _cuts(inside: Sequence[ast.AST]) -> bool:
    """Whether a clause takes the traceback off its exception."""
    for node in inside:
        if isinstance(node, ast.Expr) and any(last_name(c.func) in _CUTS for c in calls_in(node)):
            return True
        if isinstance(node, ast.Assign) and last_name(node.targets[0]) == "__traceback__":
            return True
    return False


def _classes_of_texts(tree: ast.Module) -> frozenset[str]:
    """The classes of a file whose objects keep nothing that they are given as it is."""
    found: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        init = next(
            (e for e in node.body if isinstance(e, FUNCTIONS) and e.name == "__init__"), None
        )
        if init is None:
            continue
        given = {each.arg for each in (*init.args.args[1:], *init.args.kwonlyargs)}
        kept = [
            each
            for each in own_nodes(init)
            if isinstance(each, ast.Assign)
            and given & {n.id for n in _parts(each.value) if isinstance(n, ast.Name)}
        ]
        # What is passed on may be kept by a base class.
        if not kept and not any(last_name(c.func) == "__init__" for c in calls_in(init)):
            found.add(node.name)
    return frozenset(found)


def _parts(value: ast.expr) -> Sequence[ast.expr]:
    """An expression, or the elements of a tuple or list."""
    return value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
