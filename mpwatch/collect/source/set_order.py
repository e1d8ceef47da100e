"""Statements that go through a set where the order of its elements matters.

Texts have another hash in each interpreter (PYTHONHASHSEED, on since Python 3.3), so that two
processes go through equal sets of them in different orders, unless one is a fork of the other.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from typing import Final

from mpwatch.collect.source.syntax import FUNCTIONS, Found, expression_text, last_name, own_nodes

_MAKES: Final = frozenset(("set", "frozenset"))
_METHODS: Final = frozenset(("difference", "intersection", "symmetric_difference", "union"))
_OPERATORS: Final = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_DEPTH: Final = 8


def sets_of(tree: ast.AST) -> frozenset[str]:
    """The variables, attributes and functions of a file that are or give sets.

    Returns:
        `names`, `.names` and `names()`; not those that are also given something else.
    """
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name | ast.Attribute):
                    given.setdefault(_key(target), []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            given.setdefault(_key(node.target), []).append(node.value)
        elif isinstance(node, FUNCTIONS):
            returned = [each.value for each in own_nodes(node) if isinstance(each, ast.Return)]
            given.setdefault(f"{node.name}()", []).extend(
                each for each in returned if each is not None
            )
    found: set[str] = set()
    for _ in range(3):  # a set that is made of sets
        found |= {
            name
            for name, values in given.items()
            if name and values and all(_is_set(each, found) for each in values)
        }
    return frozenset(found)


def _is_set(node: ast.expr, names: Container[str], depth: int = 0) -> bool:
    if depth > _DEPTH:
        return False
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        # `-` and the others of what is no set are numbers
        return _is_set(node.left, names, depth + 1) or _is_set(node.right, names, depth + 1)
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if isinstance(node.func, ast.Name) and name in _MAKES:
            return True
        if isinstance(node.func, ast.Attribute) and name in _METHODS:
            return _is_set(node.func.value, names, depth + 1)
        return f"{name}()" in names and not node.args
    return isinstance(node, ast.Name | ast.Attribute) and _key(node) in names


def _key(node: ast.expr) -> str:
    """`names` for a variable, `.names` for an attribute of any object."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else last_name(node)


_WITHOUT_ORDER: Final = frozenset(
    ("all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum", "Counter")
)


def find_set_order(nodes: Sequence[ast.AST], sets: frozenset[str]) -> Iterator[Found]:
    """`for name in self.names:` and `{key: None for key in keys & known}`, of sets.

    Args:
        nodes: The syntax of one function.
        sets: Names of the file that are sets; see `sets_of`.
    """
    unordered = {
        id(each)
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) in _WITHOUT_ORDER
        for each in node.args
    }
    for node in nodes:
        if id(node) in unordered:
            continue
        if isinstance(node, ast.For):
            iterated = node.iter
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
            iterated = node.generators[0].iter
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("list", "tuple", "enumerate")
            and len(node.args) == 1
        ):
            iterated = node.args[0]
        else:
            continue
        if _is_set(iterated, sets):
            yield "set-order", expression_text(iterated), node
