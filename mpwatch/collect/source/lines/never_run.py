"""Statements that a program never runs: under a parameter that none of its calls gives.

`if group is not None: dist.all_reduce(count, group=group)`, where `group` is None by default.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from mpwatch.collect.source.call_graph import Class, Function, Program
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LEAVES,
    argument_of,
    before,
    every_node,
    last_name,
)

PASSED: Final = 4
"""Functions, one calling the other, that hand a parameter on."""
CALLS: Final = 16
"""Calls of one function that are looked at."""
_UNKNOWN: Final = ast.Constant(Ellipsis)

AttributeSets: TypeAlias = Callable[[ast.Attribute, Function], Sequence[ast.expr] | None]
"""What an attribute is given in the program; `None` where not all of it is known."""


class NotGiven(NamedTuple):
    """A condition that is never met, as no call gives a parameter that it tests."""

    condition: ast.If
    parameter: str


class NeverRun:
    """Finds the condition that keeps a statement from being run, of one program."""

    def __init__(self, program: Program, attribute_sets: AttributeSets) -> None:
        self._program = program
        self._attribute_sets = attribute_sets
        self._mentioned: Counter[str] = Counter()
        """How often the files read a name, or set it as an attribute."""

    def condition_of(
        self,
        function: Function,
        inside: Sequence[ast.AST],
        entered: tuple[Function, ast.Call, Function] | None,
    ) -> NotGiven | None:
        """The condition by which a statement is not run; `None` where it may be.

        Args:
            function: That contains it.
            inside: The statements around it, outermost first, and the statement.
            entered: The function that was followed to it last, through which call, and the function
                of this; then no other call of it counts.
        """
        for outer, inner in pairwise(inside):
            if isinstance(outer, ast.If):
                is_met = self._is_met(outer.test, function, entered)
                if is_met is not None and inner not in (outer.body if is_met else outer.orelse):
                    return NotGiven(outer, self._parameter(outer.test, function, entered))
        for each in before(function.node, inside):
            leaves = isinstance(each, ast.If) and isinstance(each.body[-1], LEAVES)
            if isinstance(each, ast.If) and leaves and self._is_met(each.test, function, entered):
                return NotGiven(each, self._parameter(each.test, function, entered))
        return None

    def _is_met(
        self,
        test: ast.expr,
        function: Function,
        entered: tuple[Function, ast.Call, Function] | None,
    ) -> bool | None:
        """Whether a condition holds where parameters have their defaults; `None` if unknown."""
        if isinstance(test, ast.BoolOp):
            parts = [self._is_met(each, function, entered) for each in test.values]
            decides = isinstance(test.op, ast.Or)
            if decides in parts:
                return decides
            return None if None in parts else not decides
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            is_met = self._is_met(test.operand, function, entered)
            return None if is_met is None else not is_met
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left = self._default(test.left, function, entered, PASSED)
            right = test.comparators[0]
            if left is _UNKNOWN or not isinstance(right, ast.Constant):
                return None
            if isinstance(test.ops[0], ast.Is | ast.Eq):
                return left.value == right.value
            if isinstance(test.ops[0], ast.IsNot | ast.NotEq):
                return left.value != right.value
            return None
        value = self._default(test, function, entered, PASSED)
        return None if value is _UNKNOWN else bool(value.value)

    def _parameter(
        self,
        test: ast.expr,
        function: Function,
        entered: tuple[Function, ast.Call, Function] | None,
    ) -> str:
        """The name in a condition whose default decides it."""
        names = (each for each in ast.walk(test) if isinstance(each, ast.Name | ast.Attribute))
        known = (n for n in names if self._default(n, function, entered, PASSED) is not _UNKNOWN)
        found = next(known, None)
        return "" if found is None else last_name(found)

    def _default(
        self,
        value: ast.expr,
        function: Function,
        entered: tuple[Function, ast.Call, Function] | None,
        depth: int,
    ) -> ast.Constant:
        """None or False, which a parameter or an attribute has in every call; else `_UNKNOWN`."""
        if isinstance(value, ast.Attribute):
            return self._default_of_attribute(value, function, depth)
        if not isinstance(value, ast.Name) or value.id not in function.arguments:
            return _UNKNOWN
        default = _default_of(function, value.id)
        if default is _UNKNOWN or value.id in function.assigned or value.id in _bound(function):
            return _UNKNOWN
        place = function.arguments.index(value.id)
        calls = (
            [(entered[1], entered[2])]
            if entered is not None and entered[0] is function
            else self._calls(function)
        )
        for call, caller in calls:
            given = _given(call, value.id, place)
            if given is None:
                continue
            if isinstance(given, ast.Constant) and given.value is default.value:
                continue
            if depth <= 0 or self._default(given, caller, None, depth - 1).value != default.value:
                return _UNKNOWN
        return default if calls else _UNKNOWN

    def _default_of_attribute(
        self, value: ast.Attribute, function: Function, depth: int
    ) -> ast.Constant:
        """As `_default`, of `self.group`, which a method `__init__` sets to its parameter."""
        found = self._attribute_sets(value, function)
        owner = function.owner
        method = _init_of(self._program, owner) if owner is not None else None
        if not found or method is None or depth <= 0 or last_name(value.value) != "self":
            return _UNKNOWN
        defaults = [
            each if isinstance(each, ast.Constant) else self._default(each, method, None, depth - 1)
            for each in found
        ]
        is_off = all(each.value is None or each.value is False for each in defaults)
        return defaults[0] if is_off and len({each.value for each in defaults}) == 1 else _UNKNOWN

    def _calls(self, function: Function) -> list[tuple[ast.Call, Function]]:
        """All calls of a function; none where something else may call it."""
        sites = list(function.callers)
        name = function.name
        if name == "__init__" and function.owner is not None:
            classes = [function.owner, *self._program.with_derived(function.owner)]
            sites += [each for of in classes for each in of.made]
            name = function.owner.name
        calls = {id(e.call): (e.call, e.caller) for e in sites if e.call is not None}
        decorators = getattr(function.node, "decorator_list", ())
        is_known = len(calls) <= CALLS and not decorators and all(e.call for e in sites)
        if not self._mentioned:
            trees = {id(each.module.tree): each.module.tree for each in self._program.functions}
            self._mentioned = Counter(
                last_name(node)
                for tree in trees.values()
                for node in every_node(tree)
                if isinstance(node, ast.Name | ast.Attribute)
            )
        return list(calls.values()) if is_known and self._mentioned[name] <= len(calls) else []


def _init_of(program: Program, owner: Class) -> Function | None:
    found = (each.methods.get("__init__") for each in program.family(owner))
    return next((each for each in found if each is not None), None)


def _given(call: ast.Call, name: str, place: int) -> ast.expr | None:
    """What a call gives to a parameter; `None` for nothing, `_UNKNOWN` where that is not known."""
    is_spread = any(isinstance(each, ast.Starred) for each in call.args)
    if is_spread or any(each.arg is None for each in call.keywords):
        return _UNKNOWN
    return argument_of(call, name, place)


def _default_of(function: Function, name: str) -> ast.Constant:
    """The default of a parameter, if it is None or False; else `_UNKNOWN`."""
    if not isinstance(function.node, FUNCTIONS):
        return _UNKNOWN
    given = function.node.args
    plain = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    for parameter, default in pairs:
        if parameter.arg == name and isinstance(default, ast.Constant):
            return default if default.value is None or default.value is False else _UNKNOWN
    return _UNKNOWN


def _bound(function: Function) -> set[str]:
    """The names that the syntax of a function sets, also in other ways than by an assignment."""
    return {
        each.id
        for each in every_node(function.node)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    }
