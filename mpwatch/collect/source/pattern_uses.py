"""Which ambiguous regular expressions a variable can be at the line that uses it.

`for pattern, to in RULES: text = pattern.sub(to, text)` names no pattern: all that the variable can
be, as the file shows, are looked at. Variables are followed through lists, tuples and dicts,
attributes, fields of simple classes, and arguments of functions that the same file calls.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from mpwatch.collect.source.ambiguous_patterns import matches_in_many_ways
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    Found,
    every_node,
    first_line,
    last_name,
    own_nodes,
)

_PATTERN_METHODS: Final = frozenset(
    ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")
)
_MODULES: Final = frozenset(("re", "regex"))
_STEPS: Final = 2000
"""Of the search for one use; what is not found until then counts as harmless."""
_CALLERS: Final = 4
"""A function with more calls is not followed to its arguments."""
_SHOWN: Final = 3
_PASSES_ON: Final = frozenset(
    (
        "MappingProxyType",
        "OrderedDict",
        "deque",
        "dict",
        "frozenset",
        "iter",
        "list",
        "reversed",
        "set",
        "sorted",
        "tuple",
    )
)
"""Calls whose elements are those of their first argument."""
_ADDS_ONE: Final = frozenset(("add", "append", "appendleft"))

_Step: TypeAlias = int | Literal["element", "value"]
"""From a container to what is in it: at a position, any element, or any value of a dict."""


class _Given(NamedTuple):
    """What a name is given: an expression, and the way from it to the value."""

    node: ast.expr
    way: tuple[_Step, ...] = ()


class _Place(NamedTuple):
    """An expression and the function in which its names are looked up; `None`: the file."""

    node: ast.expr
    scope: ast.AST | None


class PatternUses:
    """The uses of ambiguous patterns in one file."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._is_needed = any(_compiles(node) for node in every_node(tree)) or any(
            isinstance(node, ast.Import | ast.ImportFrom)
            and any(alias.name in _MODULES for alias in node.names)
            for node in every_node(tree)
        )
        self._names: dict[ast.AST, Mapping[str, Sequence[_Given]]] = {}
        self._attributes: dict[str, list[tuple[_Given, ast.AST | None]]] | None = None
        self._functions = [each for each in every_node(tree) if isinstance(each, FUNCTIONS)]
        self._left = 0

    def find(self, function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
        """The calls in a function of which an ambiguous pattern that is named elsewhere is used.

        Args:
            function: The function, or the file.
            nodes: The syntax of it.
        """
        if not self._is_needed:
            return
        scope = function if isinstance(function, FUNCTIONS) else None
        for call in nodes:
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr not in _PATTERN_METHODS:
                continue
            owner = call.func.value
            is_module = isinstance(owner, ast.Name) and owner.id in _MODULES
            if is_module and (not call.args or isinstance(call.args[0], ast.Constant)):
                continue  # the pattern is at the call itself
            self._left = _STEPS
            start = _Place(call.args[0] if is_module else owner, scope)
            found = dict.fromkeys(self._patterns(start, is_text=is_module))
            wide = [each for each in found if matches_in_many_ways(each[1])]
            for line, pattern in wide[:_SHOWN]:
                yield "uses-wide-pattern", f"{line}, {pattern}", call

    def _patterns(self, start: _Place, *, is_text: bool) -> Iterator[tuple[int, str]]:
        """The literal patterns that an expression can be, with their lines."""
        for node, scope in self._values(start, frozenset()):
            if _compiles(node) and isinstance(node, ast.Call) and node.args:
                yield from self._patterns(_Place(node.args[0], scope), is_text=True)
            elif is_text and isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield first_line(node), node.value

    def _values(self, place: _Place, seen: frozenset[int]) -> Iterator[_Place]:
        """What an expression can be, of literals and calls."""
        self._left -= 1
        node, scope = place
        if self._left < 0 or id(node) in seen:
            return
        seen |= {id(node)}
        if isinstance(node, ast.Name):
            for given, where in self._given(node.id, scope):
                yield from self._along(_Place(given.node, where), given.way, seen)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node, scope, seen)
        elif isinstance(node, ast.Subscript):
            yield from self._subscript(node, scope, seen)
        elif isinstance(node, ast.IfExp):
            for each in (node.body, node.orelse):
                yield from self._values(_Place(each, scope), seen)
        elif isinstance(node, ast.BoolOp):
            for each in node.values:
                yield from self._values(_Place(each, scope), seen)
        elif isinstance(node, ast.NamedExpr):
            yield from self._values(_Place(node.value, scope), seen)
        elif _is_method(node, ("get", "pop")) and isinstance(node, ast.Call):
            yield from self._along(_Place(_receiver(node), scope), ("value",), seen)
        else:
            yield place

    def _along(
        self, place: _Place, way: tuple[_Step, ...], seen: frozenset[int]
    ) -> Iterator[_Place]:
        """What is reached from an expression by a way through containers."""
        if not way:
            yield from self._values(place, seen)
            return
        for inner in self._inside(place, way[0], seen):
            yield from self._along(inner, way[1:], seen)

    def _inside(self, place: _Place, step: _Step, seen: frozenset[int]) -> Iterator[_Place]:
        """What is in a container by one step."""
        for node, scope in self._values(place, seen):
            if isinstance(node, ast.List | ast.Tuple | ast.Set):
                yield from self._elements(node, scope, step, seen)
            elif isinstance(node, ast.Dict) and step in ("element", "value"):
                found = node.values if step == "value" else node.keys
                yield from (_Place(each, scope) for each in found if each is not None)
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
                yield _Place(node.elt, scope)
            elif isinstance(node, ast.DictComp) and step in ("element", "value"):
                yield _Place(node.value if step == "value" else node.key, scope)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                for each in (node.left, node.right):
                    yield from self._inside(_Place(each, scope), step, seen)
            elif isinstance(node, ast.Call):
                yield from self._of_call(node, scope, step, seen)

    def _elements(
        self,
        node: ast.List | ast.Tuple | ast.Set,
        scope: ast.AST | None,
        step: _Step,
        seen: frozenset[int],
    ) -> Iterator[_Place]:
        has_stars = any(isinstance(each, ast.Starred) for each in node.elts)
        if isinstance(step, int) and not has_stars and not isinstance(node, ast.Set):
            yield from (_Place(each, scope) for each in node.elts[step : step + 1])
            return
        for each in node.elts:
            if isinstance(each, ast.Starred):
                yield from self._inside(_Place(each.value, scope), "element", seen)
            else:
                yield _Place(each, scope)

    def _of_call(
        self, call: ast.Call, scope: ast.AST | None, step: _Step, seen: frozenset[int]
    ) -> Iterator[_Place]:
        """What a call of a container, or of what passes its elements on, has inside."""
        if _is_method(call, ("values",)):
            yield from self._inside(_Place(_receiver(call), scope), "value", seen)
        elif _is_method(call, ("keys",)):
            yield from self._inside(_Place(_receiver(call), scope), "element", seen)
        elif _is_method(call, ("copy",)):
            yield from self._inside(_Place(_receiver(call), scope), step, seen)
        elif last_name(call.func) in _PASSES_ON and call.args:
            yield from self._inside(_Place(call.args[0], scope), step, seen)

    def _given(self, name: str, scope: ast.AST | None) -> Iterator[tuple[_Given, ast.AST | None]]:
        """What a name is given where it is used: in the function, by its callers or in the file."""
        if scope is not None:
            own = self._bound(scope).get(name)
            if own is not None:
                yield from ((each, scope) for each in own)
                return
            if isinstance(scope, FUNCTIONS) and name in _parameters(scope):
                yield from self._arguments(scope, name)
                return
        yield from ((each, None) for each in self._bound(self._tree).get(name, ()))

    def _arguments(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str
    ) -> Iterator[tuple[_Given, ast.AST | None]]:
        """What the calls of a function in this file give to one of its parameters."""
        calls = [
            (call, caller)
            for caller in (self._tree, *self._functions)
            for call in own_nodes(caller)
            if isinstance(call, ast.Call) and last_name(call.func) == function.name
        ]
        if len(calls) > _CALLERS:
            return
        names = _parameters(function)
        is_bound = names[:1] in (["self"], ["cls"])
        for call, caller in calls:
            place = names.index(name) - (1 if is_bound else 0)
            where = caller if isinstance(caller, FUNCTIONS) else None
            argument = _argument(call, name, place)
            if argument is not None:
                yield _Given(argument), where

    def _attribute(
        self, node: ast.Attribute, scope: ast.AST | None, seen: frozenset[int]
    ) -> Iterator[_Place]:
        """What an attribute can be: of `self` or a class, or a field of what a class has made."""
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            for given, where in self._of_attribute(node.attr):
                yield from self._along(_Place(given.node, where), given.way, seen)
            return
        for made, where in self._values(_Place(node.value, scope), seen):
            if isinstance(made, ast.Call) and (fields := self._fields(last_name(made.func))):
                place = fields.index(node.attr) if node.attr in fields else -1
                field = _argument(made, node.attr, place)
                if field is not None:
                    yield from self._values(_Place(field, where), seen)

    def _of_attribute(self, name: str) -> Sequence[tuple[_Given, ast.AST | None]]:
        """What an attribute of this name is given anywhere in the file, also in a class."""
        if self._attributes is None:
            self._attributes = defaultdict(list)
            for function in self._functions:
                for target, given in _bindings(own_nodes(function)):
                    if isinstance(target, ast.Attribute):
                        self._attributes[target.attr].append((given, function))
            for each, found in self._bound(self._tree).items():
                self._attributes[each] += [(given, None) for given in found]
        return self._attributes.get(name, ())

    def _subscript(
        self, node: ast.Subscript, scope: ast.AST | None, seen: frozenset[int]
    ) -> Iterator[_Place]:
        """What is at an index or a key; any of all where that is no literal."""
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        for held, where in self._values(_Place(node.value, scope), seen):
            here = _Place(held, where)
            if isinstance(held, ast.Dict):
                for name, value in zip(held.keys, held.values, strict=True):
                    is_other = isinstance(name, ast.Constant) and name.value != key
                    if key is None or not is_other:
                        yield from self._values(_Place(value, where), seen)
            elif isinstance(key, int) and not isinstance(key, bool) and key >= 0:
                yield from self._along(here, (key,), seen)
            else:
                is_dict = isinstance(held, ast.DictComp)
                yield from self._along(here, ("value" if is_dict else "element",), seen)

    def _fields(self, name: str) -> list[str]:
        """The fields of a simple class of this file, or the parameters of its `__init__`."""
        for node in every_node(self._tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                for each in node.body:
                    if isinstance(each, FUNCTIONS) and each.name == "__init__":
                        return _parameters(each)[1:]
                return [
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                ]
        return []

    def _bound(self, scope: ast.AST) -> Mapping[str, Sequence[_Given]]:
        """What each name of a function, or of the file, is given."""
        if scope not in self._names:
            found: defaultdict[str, list[_Given]] = defaultdict(list)
            for target, given in _bindings(own_nodes(scope)):
                if isinstance(target, ast.Name):
                    found[target.id].append(given)
            self._names[scope] = found
        return self._names[scope]


def _compiles(node: ast.AST) -> bool:
    """Whether it is `re.compile(...)`."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "compile":
        return False
    func = node.func
    return (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id in _MODULES
    )


def _is_method(node: ast.AST, names: Sequence[str]) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
    )


def _receiver(call: ast.Call) -> ast.expr:
    """`rules` of `rules.values()`."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    """What a call gives to a parameter, by its name or its place."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    return call.args[place] if 0 <= place < len(call.args) else None


def _bindings(nodes: Iterator[ast.AST]) -> Iterator[tuple[ast.expr, _Given]]:
    """The names and attributes that statements give something to, and what."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _unpacked(target, node.value, ())
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            if node.value is not None:
                yield node.target, _Given(node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield from _of_loop(node.target, node.iter)
        elif _is_method(node, tuple(_ADDS_ONE)) and isinstance(node, ast.Call) and node.args:
            yield _receiver(node), _Given(ast.Tuple(elts=[node.args[0]], ctx=ast.Load()))
        elif _is_method(node, ("extend", "update")) and isinstance(node, ast.Call) and node.args:
            yield _receiver(node), _Given(node.args[0])


def _of_loop(target: ast.expr, source: ast.expr) -> Iterator[tuple[ast.expr, _Given]]:
    """What the variables of a loop are given."""
    name = last_name(source.func) if isinstance(source, ast.Call) else ""
    if isinstance(source, ast.Call) and isinstance(target, ast.Tuple):
        pair = target.elts
        if name == "enumerate" and source.args and len(pair) == 2:
            yield from _of_loop(pair[1], source.args[0])
            return
        if name == "items" and isinstance(source.func, ast.Attribute) and len(pair) == 2:
            yield from _unpacked(pair[0], source.func.value, ("element",))
            yield from _unpacked(pair[1], source.func.value, ("value",))
            return
        if name == "zip" and len(pair) == len(source.args):
            for each, argument in zip(pair, source.args, strict=True):
                yield from _of_loop(each, argument)
            return
    yield from _unpacked(target, source, ("element",))


def _unpacked(
    target: ast.expr, value: ast.expr, way: tuple[_Step, ...]
) -> Iterator[tuple[ast.expr, _Given]]:
    """The names of a target, each with the way to what it is given."""
    if isinstance(target, ast.Tuple | ast.List):
        if not any(isinstance(each, ast.Starred) for each in target.elts):
            for place, each in enumerate(target.elts):
                yield from _unpacked(each, value, (*way, place))
    else:
        yield target, _Given(value, way)
