"""What threads or coroutines of one process hand to each other, as far as a file shows.

The statements that wake up another one, containers that are emptied later than they are read, and
permits of which a second one is taken while the first is kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    ADDS,
    CONTAINERS,
    FUNCTIONS,
    Found,
    FunctionNode,
    are_apart,
    expression_text,
    first_line,
    functions_by_name,
    functions_in,
    last_line,
    last_name,
    own_nodes,
    receiver_of,
)

_WAKES: Final = frozenset(("notify", "notify_all", "set"))
_COPIES: Final = frozenset(("copy", "items", "keys", "values"))
_MAKES_COPY: Final = frozenset(("dict", "list", "set", "sorted", "tuple"))
_ADDS: Final = ADDS | {"update"}
_PERMITS: Final = re.compile(
    r"\w*(?:acquire|borrow|checkout|claim|connection|lease|limit|permit|reserve|slot)\w*"
)
_CALLS_LIMIT: Final = 3
"""Functions of the file between the block that takes a permit and the one that takes another."""


class Handing(NamedTuple):
    """What the whole of a file shows for this."""

    added: Mapping[str, tuple[str, ...]]
    """The functions that add to each container: `self.samples`."""
    functions: Mapping[str, FunctionNode]
    """See `functions_by_name`."""


def handing_of(tree: ast.Module) -> Handing:
    """Gather what `find_handing` needs of a file."""
    added: dict[str, dict[str, None]] = {}
    for function in functions_in(tree):
        for name in _added_in(function):
            added.setdefault(name, {})[function.name] = None
    return Handing({name: tuple(found) for name, found in added.items()}, functions_by_name(tree))


def _added_in(function: ast.AST) -> Iterator[str]:
    """The attributes of an object to whose container a function adds."""
    for node in own_nodes(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute):
                    yield expression_text(target.value)
        elif isinstance(node, ast.Call) and last_name(node.func) in _ADDS:
            receiver = receiver_of(node)
            if "." in receiver:
                yield receiver


def find_handing(function: ast.AST, nodes: Sequence[ast.AST], known: Handing) -> Iterator[Found]:
    """The statements of this kind in one function, or in a file outside of its functions."""
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in _WAKES:
            receiver = receiver_of(node)
            # `set(values)` and `torch.manual_seed` are no wake-ups.
            if receiver and not node.args:
                yield "wakes", receiver, node
    if isinstance(function, FUNCTIONS):
        yield from _emptied_late(function, nodes, known.added)
        yield from _taken_again(nodes, known.functions)


def _emptied_late(
    function: FunctionNode, nodes: Sequence[ast.AST], added: Mapping[str, tuple[str, ...]]
) -> Iterator[Found]:
    """`batch = list(self.items)`, then a call, then `self.items = []`: what came between is lost.

    Not where one `with` block contains both: it keeps those that add out.
    """
    for node in nodes:
        name = _emptied(node)
        others = [each for each in added.get(name, ()) if each not in (function.name, "__init__")]
        if not name or not others:
            continue
        line = first_line(node)
        reads = [
            last_line(each)
            for each in _copies(nodes, name)
            if last_line(each) < line and not are_apart(nodes, each, node)
        ]
        if not reads:
            continue
        last = max(reads)
        calls = [
            each for each in nodes if isinstance(each, ast.Call) and last < first_line(each) < line
        ]
        if calls and not _are_in_one_block(nodes, last, line):
            yield "emptied-late", f"{name}, {last}, {', '.join(others)}", node


def _are_in_one_block(nodes: Sequence[ast.AST], first: int, last: int) -> bool:
    return any(
        first_line(each) <= first and last <= last_line(each)
        for each in nodes
        if isinstance(each, ast.With | ast.AsyncWith)
    )


def _emptied(node: ast.AST) -> str:
    """The attribute that a statement empties, or gives an empty container; empty for others."""
    if isinstance(node, ast.Call) and last_name(node.func) == "clear":
        return receiver_of(node)
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return ""
    target, value = node.targets[0], node.value
    is_empty = (isinstance(value, ast.List | ast.Tuple) and not value.elts) or (
        isinstance(value, ast.Dict) and not value.keys
    )
    is_empty |= (
        isinstance(value, ast.Call) and not value.args and last_name(value.func) in CONTAINERS
    )
    return expression_text(target) if is_empty and isinstance(target, ast.Attribute) else ""


def _copies(nodes: Sequence[ast.AST], name: str) -> Iterator[ast.expr]:
    """The expressions that go through all of a container, or copy it."""
    for node in nodes:
        if isinstance(node, ast.comprehension) and expression_text(node.iter) == name:
            yield node.iter
        elif isinstance(node, ast.Call):
            is_own = last_name(node.func) in _COPIES and receiver_of(node) == name
            is_made = last_name(node.func) in _MAKES_COPY and len(node.args) > 0
            if is_own or (is_made and expression_text(node.args[0]) == name):
                yield node


def _taken_again(
    nodes: Sequence[ast.AST], functions: Mapping[str, FunctionNode | None]
) -> Iterator[Found]:
    """`async with self.pool.acquire():` around the call of a coroutine that does so as well."""
    for block in (each for each in nodes if isinstance(each, ast.AsyncWith)):
        for taken in _permits(block):
            inner = _inner(block, taken, functions, _CALLS_LIMIT)
            if inner is not None:
                call, function, line = inner
                about = f"{taken}, {first_line(block)}, {function}, {line}"
                yield "takes-again", about, call


def _permits(block: ast.AsyncWith) -> Iterator[str]:
    """What a block takes and gives back: the text of its items, without arguments."""
    for item in block.items:
        node = item.context_expr
        if isinstance(node, ast.Call):
            if _PERMITS.fullmatch(last_name(node.func)):
                yield f"{expression_text(node.func)}()"
        elif isinstance(node, ast.Attribute):
            yield expression_text(node)


def _inner(
    block: ast.AST, taken: str, functions: Mapping[str, FunctionNode | None], calls_left: int
) -> tuple[ast.AST, str, int] | None:
    """The statement in a block that takes the same again, itself or by a call.

    Returns:
        That statement or call, the function that takes it, empty for the same one, and its line.
    """
    for node in own_nodes(block):
        if isinstance(node, ast.AsyncWith) and taken in _permits(node):
            return node, "", first_line(node)
        if (
            not isinstance(node, ast.Await)
            or not isinstance(node.value, ast.Call)
            or not calls_left
        ):
            continue
        called = functions.get(last_name(node.value.func))
        if called is None or receiver_of(node.value) not in ("", "self"):
            continue
        found = _inner(called, taken, functions, calls_left - 1)
        if found is not None:
            return node.value, found[1] or called.name, found[2]
    return None
