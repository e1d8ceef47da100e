"""Why a round of a loop sleeps in place of its work: what chooses the work has chosen nothing.

`batch = schedule()` and `if not batch: time.sleep(0.001)`: the value is followed to the function
that fills it, and there to the condition that leaves before anything is added. Which condition has
held is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from mpwatch.collect.source.call_graph import ORDINARY, expressions_of
from mpwatch.collect.source.syntax import (
    LEAVES,
    LOOPS,
    ORDERS,
    FunctionNode,
    ParsedFile,
    adds_to,
    before,
    before_in_round,
    bindings,
    calls_in,
    condition,
    expression_text,
    first_line,
    functions_in,
    last_name,
    of_file,
    quoted,
    within,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import IdleRound, OriginStep

_NAME_LENGTH: Final = 80
_ADDING: Final = 16
"""Statements of one function that add to its result."""
_WAYS: Final = 32
_TAKES: Final = frozenset(("get", "get_nowait", "heappop", "pop", "popleft", "remove"))
_COPIES: Final = frozenset(("enumerate", "iter", "list", "reversed", "sorted", "tuple"))


class _Where(NamedTuple):
    """A function of the program, or a file outside of its functions."""

    file: str
    module: ParsedFile
    node: ast.AST


class _Way(NamedTuple):
    """A condition that leaves a function or a round before it adds to its result."""

    unless: ast.If
    adds: ast.AST
    first: ast.AST | None
    """What takes the first of a container and leaves it there; `None` where that does not show."""
    container: str


def idle_round(
    file: str,
    module: ParsedFile,
    function: ast.AST,
    inside: Sequence[ast.AST],
    files: Iterable[tuple[str, ParsedFile]],
) -> IdleRound | None:
    """What leaves a round without work, where the last statement sleeps for want of it.

    Args:
        file: The file of the line.
        module: It.
        function: The function of the line, or the file.
        inside: The statements of the function around the line, outermost first, and it.
        files: All files that were read, in which the function that chooses may be.
    """
    calls = [each for each in expressions_of(inside[-1]) if isinstance(each, ast.Call)]
    if not any(last_name(each.func) == "sleep" for each in calls):
        return None
    own, known = _Where(file, module, function), list(files)
    for asking, asked in _asked(function, inside):
        found = _chosen(own, inside[: inside.index(asking) + 1], asked, known)
        if found is not None:
            where, given, ways = found
            way = max(ways, key=_rank)
            because = _because(where, way, known)
            return IdleRound(
                quoted(module, asking),
                quoted(module, given),
                where.file,
                clean(getattr(where.node, "name", "<module>"), _NAME_LENGTH),
                quoted(where.module, way.adds),
                condition(where.module, way.unless),
                None if way.first is None else quoted(where.module, way.first),
                way.container,
                because,
            )
    return None


def _asked(function: ast.AST, inside: Sequence[ast.AST]) -> Iterator[tuple[ast.If, ast.expr]]:
    """The conditions around a statement, innermost first, with what has to be empty for it."""
    for node, inner in zip(inside[-2::-1], inside[:0:-1], strict=True):
        if isinstance(node, LOOPS):
            return
        if isinstance(node, ast.If):
            empty = _empty(node.test, is_true=inner in node.body)
            if empty is not None:
                yield node, empty


def _empty(test: ast.expr, *, is_true: bool) -> ast.expr | None:
    """What is empty, or none, where a condition is true or false; `None` if it says no such."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is is_true:
        found = (_empty(each, is_true=is_true) for each in test.values)
        return next((each for each in found if each is not None), None)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _empty(test.operand, is_true=not is_true)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared_with_none(test, is_true=is_true)
    is_value = isinstance(test, ast.Name | ast.NamedExpr | ast.Call)
    return test if is_value and not is_true else None


def _compared_with_none(test: ast.Compare, *, is_true: bool) -> ast.expr | None:
    """`batch` of `batch is None`, `len(batch) == 0` and, where that is false, `len(batch) > 0`."""
    other, compared = test.comparators[0], test.left
    number = other.value if isinstance(other, ast.Constant) else ...
    if number is not None and number != 0:
        return None
    if isinstance(compared, ast.Call) and last_name(compared.func) == "len" and compared.args:
        compared = compared.args[0]
    says_none = isinstance(test.ops[0], ast.Is | ast.Eq)
    says_some = isinstance(test.ops[0], ast.IsNot | ast.NotEq | ast.Gt)
    return compared if (says_none and is_true) or (says_some and not is_true) else None


def _chosen(
    own: _Where,
    inside: Sequence[ast.AST],
    asked: ast.expr,
    files: Sequence[tuple[str, ParsedFile]],
) -> tuple[_Where, ast.AST, Sequence[_Way]] | None:
    """What fills a value, the statement that calls or begins it, and the ways past that."""
    given: ast.AST = inside[-1]
    value: ast.expr | None = asked
    if isinstance(value, ast.NamedExpr):
        value = value.value
    if isinstance(value, ast.Name):
        found = _set_before(own.node, inside, value.id)
        if found is None:
            return None
        name, (given, value) = value.id, found
        if isinstance(value, ast.List | ast.Dict | ast.Set):
            between = range(first_line(given), first_line(inside[-1]))
            fills = (each for each in _fills(own.node, {name}) if first_line(each[0]) in between)
            ways = list(islice(_ways(own.node, islice(fills, _ADDING), {name}), _WAYS))
            return (own, given, ways) if ways else None
    where = _called(value, files) if isinstance(value, ast.Call) else None
    if where is None:
        return None
    names = set(_returned(where.node))
    adding = islice(_fills(where.node, names) if names else _gives(where.node), _ADDING)
    ways = list(islice(_ways(where.node, adding, names), _WAYS))
    return (where, given, ways) if ways else None


def _set_before(
    function: ast.AST, inside: Sequence[ast.AST], name: str
) -> tuple[ast.AST, ast.expr] | None:
    """The last statement before another one that gives a variable a value, and that value."""
    found = None
    for statement, _ in within(list(before(function, inside))):
        for target, value in bindings(statement):
            if isinstance(target, ast.Name) and target.id == name:
                found = statement, value
    return found


def _called(call: ast.Call, files: Sequence[tuple[str, ParsedFile]]) -> _Where | None:
    """The function of the program that a call runs, if only one has that name."""
    name = last_name(call.func)
    if not name or name in ORDINARY:
        return None
    found = [
        _Where(file, module, each)
        for file, module in files
        for each in of_file(module.tree, _by_name).get(name, ())
    ]
    return found[0] if len(found) == 1 else None


def _by_name(tree: ast.Module) -> Mapping[str, Sequence[FunctionNode]]:
    found: dict[str, list[FunctionNode]] = {}
    for each in functions_in(tree):
        found.setdefault(each.name, []).append(each)
    return found


def _returned(function: ast.AST) -> Iterator[str]:
    """The containers that a function returns, or of which it returns elements."""
    for statement, _ in within(getattr(function, "body", [])):
        value = statement.value if isinstance(statement, ast.Return) else None
        for part in value.elts if isinstance(value, ast.Tuple) else [value]:
            given: ast.AST | None = part
            if isinstance(given, ast.ListComp):
                given = given.generators[0].iter
            elif isinstance(given, ast.Call) and last_name(given.func) in _COPIES and given.args:
                given = given.args[0]
            if isinstance(given, ast.Name | ast.Attribute):
                yield expression_text(given)


def _fills(function: ast.AST, names: set[str]) -> Iterator[tuple[ast.AST, Sequence[ast.AST]]]:
    """The statements that add to containers of these names, with those around each."""
    for statement, parents in within(getattr(function, "body", [])):
        call = statement.value if isinstance(statement, ast.Expr) else None
        target: ast.expr | None = None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and adds_to(call):
            target = call.func.value
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
            target = statement.target
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
            target = statement.targets[0].value
        if target is not None and expression_text(target) in names:
            yield statement, parents


def _gives(function: ast.AST) -> Iterator[tuple[ast.AST, Sequence[ast.AST]]]:
    """The statements by which a function returns something, with those around each."""
    for statement, parents in within(getattr(function, "body", [])):
        is_return = isinstance(statement, ast.Return) and statement.value is not None
        if is_return and not _is_nothing(statement):
            yield statement, parents


def _is_nothing(statement: ast.AST) -> bool:
    """Whether it returns `None`, `False`, 0 or an empty container."""
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Return) or value is None:
        return isinstance(statement, ast.Return)
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return not value.elts
    is_empty = isinstance(value, ast.Dict) and not value.keys
    return is_empty or (isinstance(value, ast.Constant) and not value.value)


def _ways(
    function: ast.AST, adding: Iterable[tuple[ast.AST, Sequence[ast.AST]]], names: set[str]
) -> Iterator[_Way]:
    """The conditions that leave before something is added, in the same round of what repeats it.

    Args:
        function: The function that fills the result.
        adding: Its statements that add to it, with those around each.
        names: What it is called there. Whether it is full is never why it is empty.
    """
    for adds, parents in adding:
        inside = (*parents, adds)
        round_of = next((each for each in reversed(parents) if isinstance(each, LOOPS)), None)
        for each in before_in_round(function, inside, lambda node: isinstance(node, LOOPS)):
            if not isinstance(each, ast.If) or not isinstance(each.body[-1], LEAVES):
                continue
            if _asks(each.test) and not _is_full(each.test, names):
                first, container = _first_of(round_of, each)
                yield _Way(each, adds, first, container)


def _asks(test: ast.expr) -> bool:
    """Whether a condition calls or compares something: not whether an element is a sign to end."""
    return any(
        isinstance(each, ast.Call)
        or (isinstance(each, ast.Compare) and isinstance(each.ops[0], ORDERS))
        for each in ast.walk(test)
    ) or isinstance(_empty(test, is_true=True), ast.Name)


def _is_full(test: ast.expr, names: set[str]) -> bool:
    """Whether a condition holds only once there is something in the result."""
    if isinstance(test, ast.BoolOp):
        parts = [_is_full(each, names) for each in test.values]
        return all(parts) if isinstance(test.op, ast.Or) else any(parts)
    if expression_text(test) in names:
        return True
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Gt | ast.GtE):
        return False
    if not isinstance(test.left, ast.Call) or last_name(test.left.func) != "len":
        return False
    return any(expression_text(each) in names for each in test.left.args[:1])


def _first_of(round_of: ast.AST | None, leaves: ast.If) -> tuple[ast.AST | None, str]:
    """What takes the first of a container in each round, and only takes it out after a condition.

    The next time it is the same element, as long as the condition holds: those behind it have to
    wait. So have the elements of `for request in waiting:` behind one at which it breaks.
    """
    if not isinstance(leaves.body[-1], ast.Break | ast.Return):
        return None, ""
    if isinstance(round_of, ast.For):
        made = round_of.iter
        while isinstance(made, ast.Call) and last_name(made.func) in _COPIES and made.args:
            made = made.args[0]
        name = expression_text(made) if isinstance(made, ast.Name | ast.Attribute) else ""
        return (round_of if name else None), clean(name, _NAME_LENGTH)
    body = round_of.body if isinstance(round_of, ast.While) else []
    for statement in body:
        if first_line(statement) >= first_line(leaves):
            break
        for _, value in bindings(statement):
            is_first = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant)
            if isinstance(value, ast.Subscript) and is_first and value.slice.value == 0:  # type: ignore[attr-defined]
                name = expression_text(value.value)
                taken = [s for s in body if any(_takes(c, name) for c in calls_in(s))]
                if taken and all(first_line(s) > first_line(leaves) for s in taken):
                    return statement, clean(name, _NAME_LENGTH)
    return None, ""


def _takes(call: ast.Call, name: str) -> bool:
    """Whether a call takes an element out of a container."""
    if last_name(call.func) not in _TAKES:
        return False
    texts = [expression_text(each) for each in call.args[:1]]
    if isinstance(call.func, ast.Attribute):
        texts.append(expression_text(call.func.value))
    return name in texts


def _rank(way: _Way) -> tuple[bool, bool]:
    return bool(way.container), isinstance(way.unless.body[-1], ast.Break | ast.Return)


def _because(
    where: _Where, way: _Way, files: Sequence[tuple[str, ParsedFile]]
) -> OriginStep | None:
    """The condition in a function which a condition asks, under which its answer leaves."""
    test: ast.expr | None = _empty(way.unless.test, is_true=True)
    is_nothing = test is not None
    is_none = isinstance(way.unless.test, ast.Compare) and isinstance(
        way.unless.test.ops[0], ast.Is
    )
    if isinstance(test, ast.Name):
        path = next((p for s, p in within(getattr(where.node, "body", [])) if s is way.unless), ())
        found = _set_before(where.node, (*path, way.unless), test.id)
        test = None if found is None else found[1]
    elif test is None:
        test = way.unless.test
    asked = _called(test, files) if isinstance(test, ast.Call) else None
    for statement, _ in within(getattr(asked.node, "body", [])) if asked is not None else ():
        last = statement.body[-1] if isinstance(statement, ast.If) else None
        is_way = isinstance(last, ast.Return) and _is_nothing(last) is is_nothing
        value = last.value if isinstance(last, ast.Return) else None
        if is_none and value is not None:
            is_way &= isinstance(value, ast.Constant) and value.value is None
        if asked is not None and isinstance(statement, ast.If) and is_way:
            name = clean(getattr(asked.node, "name", ""), _NAME_LENGTH)
            return OriginStep(asked.file, name, condition(asked.module, statement))
    return None
