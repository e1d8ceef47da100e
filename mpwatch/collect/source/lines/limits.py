"""Where the time limit comes from that a statement gives to a wait.

For poll(2) and epoll_wait(2) a limit below zero is none, and what passes a number on to them (the
objects of `select`, pyzmq) leaves it so: what is left until a deadline, computed without max(0, ..)
once the deadline has passed, makes a wait that never ends. The methods of multiprocessing,
`threading` and `selectors` wait not at all then, or raise ValueError.

Names are followed backward through assignments, the arguments of calls and what functions return.
Nothing is run: this says how a limit is computed, not what it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from mpwatch.collect.source.call_graph import Function, Program, assignments, expressions_of
from mpwatch.collect.source.lines.leaves import reads_clock
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    ORDERS,
    argument_of,
    expression_text,
    first_line,
    last_name,
    own_nodes,
    quoted,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Origin, OriginStep

_LIMIT_AT: Final = {"poll": 0, "acquire": 1}
"""The place of the limit among the arguments."""
_ARGUMENTS: Final = 2
"""Of such a call at most; poll() of the C library has three, and the limit last."""
_CONVERTS: Final = frozenset(("ceil", "float", "floor", "int", "min", "round", "trunc"))
"""Calls whose result is below zero if what they are given is."""
_STEPS: Final = 8
_EXPRESSIONS: Final = 200
"""That are looked at for one statement."""
_WAYS: Final = 6
"""Limits kept of one statement, one for each way to it."""
_SETS: Final = 4
_CALLERS: Final = 8
_TEXT: Final = 80

_Kind: TypeAlias = Literal["left", "none", "unknown"]
"""`left`: a deadline from which a clock is subtracted. `none`: None, or a number below zero."""


class _At(NamedTuple):
    """A statement, and where it is."""

    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]


class _Step(NamedTuple):
    at: _At
    is_call: bool


class _Way(NamedTuple):
    """One way to a limit, from the statement that gives it."""

    steps: tuple[_Step, ...] = ()
    names: frozenset[tuple[str, int]] = frozenset()
    """The variables that it leads through, each with the id of the statement that has it."""

    def then(self, at: _At, *, is_call: bool = False) -> _Way:
        return self._replace(steps=(*self.steps, _Step(at, is_call)))

    @property
    def calls(self) -> tuple[ast.AST, ...]:
        """The statements of the calls that pass the limit on, the innermost first."""
        return tuple(each.at.statement for each in self.steps if each.is_call)


class _Limit(NamedTuple):
    kind: _Kind
    way: _Way
    value: ast.AST


def limits_given(
    program: Program, function: Function, statement: ast.AST, parents: tuple[ast.AST, ...]
) -> Iterator[Origin]:
    """How the limit is computed that a statement gives to a wait, each way to it one origin.

    Of kind `time-left`, or of none where that is not known; nothing for a number, or where the
    source shows that there may be no limit.
    """
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef, ast.Try)):
        return
    at = _At(function, statement, parents)
    for call in expressions_of(statement):
        name = last_name(call.func) if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or name not in _LIMIT_AT:
            continue
        if not isinstance(call.func, ast.Attribute) or len(call.args) > _ARGUMENTS:
            continue
        limit = argument_of(call, "timeout", _LIMIT_AT[name])
        if limit is None or isinstance(limit, ast.Constant):
            continue
        found = list(_Search(program).of(limit, at))
        if name != "poll":  # a lock takes no number below zero but -1
            found = [
                each._replace(kind="unknown") if each.kind == "left" else each for each in found
            ]
        yield from _origins(at, limit, found)
        return


def _origins(at: _At, limit: ast.expr, found: Sequence[_Limit]) -> Iterator[Origin]:
    missing = [each.way.calls for each in found if each.kind == "none"]
    told: set[tuple[str, tuple[ast.AST, ...]]] = set()
    for each in found:
        calls = each.way.calls
        may_be_none = any(_is_beginning(calls, other) for other in missing)
        is_left = each.kind == "left"
        key = each.kind, calls
        if each.kind == "none" or key in told or (may_be_none and not is_left):
            continue
        if len(told) == _WAYS:
            return
        told.add(key)
        yield Origin(
            at.function.file,
            quoted(at.function.module, at.statement),
            "time-left" if is_left else "",
            clean(expression_text(each.value if is_left else limit), _TEXT),
            tuple(
                OriginStep(
                    step.at.function.file,
                    clean(step.at.function.name, _TEXT),
                    quoted(step.at.function.module, step.at.statement),
                    step.is_call,
                )
                for step in each.way.steps
                if is_left or step.is_call
            ),
            not may_be_none,
            (clean(expression_text(limit), _TEXT),),
        )


def _is_beginning(one: Sequence[ast.AST], other: Sequence[ast.AST]) -> bool:
    """Whether one chain of calls is the beginning of the other."""
    return all(mine is its for mine, its in zip(one, other, strict=False))


class _Search:
    """Follows one limit."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._left = _EXPRESSIONS

    def of(self, limit: ast.expr, at: _At) -> Iterator[_Limit]:
        """The ways to a limit that a statement gives."""
        return self._value(limit, at, _Way())

    def _value(self, value: ast.AST, at: _At, way: _Way) -> Iterator[_Limit]:
        self._left -= 1
        if self._left < 0 or len(way.steps) > _STEPS:
            return
        if isinstance(value, ast.Constant):
            if value.value is None:
                yield _Limit("none", way, value)
        elif isinstance(value, ast.UnaryOp):
            if isinstance(value.op, ast.USub):
                yield _Limit("none", way, value)
        elif isinstance(value, ast.BinOp):
            yield from self._computed(value, at, way)
        elif isinstance(value, ast.IfExp):
            yield from self._conditional(value, at, way)
        elif isinstance(value, ast.NamedExpr):
            yield from self._value(value.value, at, way)
        elif isinstance(value, ast.BoolOp):
            for each in value.values:
                yield from self._value(each, at, way)
        elif isinstance(value, ast.Name):
            yield from self._name(value, at, way)
        elif isinstance(value, ast.Call):
            yield from self._call(value, at, way)
        elif isinstance(value, ast.Attribute) and (asked := self._property(value, at)) is not None:
            yield from self._returned(asked, way)
        else:
            yield _Limit("unknown", way, value)

    def _computed(self, value: ast.BinOp, at: _At, way: _Way) -> Iterator[_Limit]:
        if isinstance(value.op, ast.Sub):
            if not _is_time_left(value, at.function):
                yield _Limit("unknown", way, value)
            elif not _is_compared(value, at, way):
                yield _Limit("left", way, value)
        elif isinstance(value.op, ast.Mult | ast.Div | ast.FloorDiv):
            for each in (value.left, value.right):
                if not isinstance(each, ast.Constant):
                    yield from self._value(each, at, way)
        else:
            yield _Limit("unknown", way, value)

    def _conditional(self, value: ast.IfExp, at: _At, way: _Way) -> Iterator[_Limit]:
        """`None if limit is None else limit * 1000` is None where the limit is."""
        if _orders(value.test):
            return  # it is kept above zero, or to another bound
        of = _tested_for_none(value.test)
        for each in (value.body, value.orelse):
            is_none = isinstance(each, ast.Constant) and each.value is None
            if not is_none or of is None:
                yield from self._value(each, at, way)
        if of is not None:
            yield from self._missing(of, at, way)

    def _missing(self, value: ast.expr, at: _At, way: _Way) -> Iterator[_Limit]:
        """The ways by which an expression may be None."""
        return (each for each in self._value(value, at, way) if each.kind == "none")

    def _call(self, call: ast.Call, at: _At, way: _Way) -> Iterator[_Limit]:
        name = last_name(call.func)
        if name == "max":
            return
        if name in _CONVERTS and call.args:
            for each in call.args:
                if not isinstance(each, ast.Constant):
                    yield from self._value(each, at, way)
            return
        if name == "total_seconds" and isinstance(call.func, ast.Attribute):
            yield from self._value(call.func.value, at, way)
            return
        own = self._program.called_by(call.func, at.function)
        if len(own) != 1 or own[0].name == "__init__":
            yield _Limit("unknown", way, call)
        else:
            yield from self._returned(own[0], way)

    def _returned(self, called: Function, way: _Way) -> Iterator[_Limit]:
        for statement, parents in called.statements:
            if isinstance(statement, ast.Return) and statement.value is not None:
                at = _At(called, statement, parents)
                yield from self._value(statement.value, at, way.then(at))

    def _property(self, value: ast.Attribute, at: _At) -> Function | None:
        of = self._program.class_of(value.value, at.function)
        method = of.methods.get(value.attr) if of is not None else None
        if method is None or not isinstance(method.node, FUNCTIONS):
            return None
        names = {last_name(each) for each in method.node.decorator_list}
        return method if names & {"property", "cached_property"} else None

    # --- names ------------------------------------------------------------------------------------

    def _name(self, name: ast.Name, at: _At, way: _Way) -> Iterator[_Limit]:
        key = name.id, id(at.statement)
        if key in way.names:
            return
        way = way._replace(names=way.names | {key})
        found, is_set_before = _sets(name.id, at)
        for each, value in found:
            is_none = isinstance(value, ast.Constant) and value.value is None
            of = _none_around(each) if is_none else None
            if of is not None:  # `if limit is None: limit_ms = None`
                yield from self._missing(of, each, way.then(each))
            else:
                yield from self._value(value, each, way.then(each))
        if name.id in at.function.arguments and not is_set_before:
            yield from self._passed(name.id, at.function, way)
        elif not found:
            yield from self._outside(name, at, way)

    def _outside(self, name: ast.Name, at: _At, way: _Way) -> Iterator[_Limit]:
        """What a variable of a function around, or of the file, is given."""
        outer = at.function.outer
        if outer is None:
            values = self._program.globals.get((at.function.file, name.id), ())
            if not values or not all(isinstance(each, ast.Constant) for each in values):
                yield _Limit("unknown", way, name)
            for value in values:
                if isinstance(value, ast.Constant):
                    yield from self._value(value, at, way)
            return
        found, _ = _sets(name.id, _At(outer, at.function.node, ()))
        for each, given in found:
            yield from self._value(given, each, way.then(each))
        if not found and name.id in outer.arguments:
            yield from self._passed(name.id, outer, way)
        elif not found:
            yield _Limit("unknown", way, name)

    def _passed(self, name: str, function: Function, way: _Way) -> Iterator[_Limit]:
        """What the calls of a function give to a parameter."""
        place = function.arguments.index(name)
        sites = [each for each in function.callers if each.call is not None]
        if not sites or len(sites) > _CALLERS:
            yield _Limit("unknown", way, ast.Name(name))
            return
        for each in sites:
            given = argument_of(each.call, name, place) if each.call is not None else None
            at = _At(each.caller, each.statement, each.parents)
            if given is None:
                given = _default(function, name)
            if given is None:  # by `*args`
                yield _Limit("unknown", way.then(at, is_call=True), ast.Name(name))
            else:
                yield from self._value(given, at, way.then(at, is_call=True))


_ASSIGNS: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign)


def _given(statement: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement gives a value, each with that."""
    yield from assignments(statement)
    if isinstance(statement, ast.AugAssign):
        yield statement.target, ast.BinOp(statement.target, statement.op, statement.value)
    if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        for each in expressions_of(statement):
            if isinstance(each, ast.NamedExpr):
                yield each.target, each.value


def _sets(name: str, at: _At) -> tuple[list[tuple[_At, ast.expr]], bool]:
    """The statements that give a variable its value before a statement, or in a loop around both.

    Also whether one of them is on every way to it.
    """
    found = [
        (_At(at.function, statement, parents), value)
        for statement, parents in at.function.statements
        for target, value in _given(statement)
        if last_name(target) == name
    ]
    line, is_header = first_line(at.statement), not isinstance(at.statement, _ASSIGNS)
    earlier = [e for e in found if first_line(e[0].statement) < line + is_header]
    for number in reversed(range(len(earlier))):
        if all(parent in at.parents for parent in earlier[number][0].parents):
            return earlier[number:][:_SETS], True
    return (earlier or found)[:_SETS], False


def _default(function: Function, name: str) -> ast.expr | None:
    """What a parameter is where a call does not give it."""
    if not isinstance(function.node, FUNCTIONS):
        return None
    given = function.node.args
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    first = len(names) - len(given.defaults)
    if name in names[first:]:
        return given.defaults[names.index(name) - first]
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return next((value for each, value in pairs if each.arg == name), None)


def _none_around(at: _At) -> ast.expr | None:
    """What the innermost `if` around a statement compares with None."""
    around = at.parents[-1] if at.parents else None
    return _tested_for_none(around.test) if isinstance(around, ast.If) else None


def _tested_for_none(test: ast.expr) -> ast.expr | None:
    """`limit` of `limit is None` and of `limit is not None`."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Is | ast.IsNot):
        return None
    other = test.comparators[0]
    return test.left if isinstance(other, ast.Constant) and other.value is None else None


def _orders(test: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Compare) and any(isinstance(op, ORDERS) for op in each.ops)
        for each in ast.walk(test)
    )


def _is_time_left(value: ast.BinOp, function: Function) -> bool:
    """`deadline - time.monotonic()`, `limit - (time.time() - began)`, and not `now - began`."""
    return _has_clock(value.right, function) and not _is_now(value.left, function)


def _has_clock(value: ast.expr, function: Function) -> bool:
    return any(
        reads_clock(each)
        or (
            isinstance(each, ast.Name)
            and any(reads_clock(n) for v in function.assigned.get(each.id, ()) for n in ast.walk(v))
        )
        for each in ast.walk(value)
    )


def _is_now(value: ast.expr, function: Function) -> bool:
    """Whether it is the time that a clock shows, or showed."""
    given = function.assigned.get(value.id, ()) if isinstance(value, ast.Name) else ()
    return reads_clock(value) or any(map(reads_clock, given))


def _is_compared(value: ast.BinOp, at: _At, way: _Way) -> bool:
    """Whether a function on the way looks whether time is left, before or after."""
    names = {*(name for name, _ in way.names), *map(expression_text, _named(value))}
    functions = {id(f): f for f in (at.function, *(each.at.function for each in way.steps))}
    return any(
        isinstance(node, ast.Compare)
        and any(isinstance(op, ORDERS) for op in node.ops)
        and not names.isdisjoint(map(expression_text, _named(node)))
        for function in functions.values()
        for node in own_nodes(function.node)
    )


def _named(value: ast.AST) -> Iterator[ast.expr]:
    """The variables and attributes in an expression, without the functions that it calls."""
    if isinstance(value, ast.Name | ast.Attribute):
        yield value
        return
    called = value.func if isinstance(value, ast.Call) else None
    for each in ast.iter_child_nodes(value):
        if each is not called:
            yield from _named(each)
