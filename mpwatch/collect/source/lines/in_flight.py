"""The limit on what is under way that a statement keeps: a count, or permits, given back elsewhere.

`while self.sent < limit: self.requests.put(request)` sends nothing any more once as many requests
as the limit were sent and not given back. Whether they were is not known: this says which
statements decide it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from mpwatch.collect.source.call_graph import expressions_of
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LEAVES,
    LOOPS,
    ORDERS,
    FunctionNode,
    ParsedFile,
    adds_to,
    before,
    children,
    condition,
    every_node,
    expression_text,
    first_line,
    functions_in,
    last_line,
    last_name,
    own_nodes,
    parameters,
    quoted,
    receiver_of,
    within,
)
from mpwatch.model.source_code import InFlight, LeftOut

_RECEIVES: Final = frozenset(
    (
        *("as_completed", "drain", "get", "get_nowait", "poll", "recv", "recv_bytes"),
        *("recv_multipart", "recv_pyobj", "result", "select", "wait"),
    )
)
_REMOVES: Final = frozenset(("discard", "pop", "popitem", "popleft", "remove"))
_Change: TypeAlias = Literal["rises", "falls", "set", ""]


class _Guard(NamedTuple):
    """A condition under which a statement is reached, and what is reached under it."""

    node: ast.If | ast.While
    region: Sequence[ast.AST]


class _Count(NamedTuple):
    name: str
    less: str = ""
    """What is subtracted from it, which rises in its place: `self.sent - self.received`."""


class _Fall(NamedTuple):
    function: FunctionNode
    statement: ast.AST


def limit_kept(
    module: ParsedFile,
    function: ast.AST,
    inside: Sequence[ast.AST],
    files: Iterable[tuple[str, ParsedFile]],
) -> InFlight | None:
    """The limit on what is under way that a statement which sends keeps; `None` without one.

    A count with a limit, or a container with one, that only a function which receives lowers; or a
    permit that only such a function releases. None where a statement sets the count anew.

    Args:
        module: The file of the statement.
        function: Its function.
        inside: The statements of the function around it, outermost first, and it.
        files: All files that were read.
    """
    if not isinstance(function, FUNCTIONS):
        return None
    for guard in _guards(function, inside):
        for count in _compared(guard.node.test):
            rises = next((e for e in guard.region if _change(e, count.name) == "rises"), None)
            fall = _first_fall(module, function, count, guard.region) if rises else None
            if rises is not None and fall is not None:
                return InFlight(
                    count.name,
                    quoted(module, guard.node),
                    quoted(module, rises),
                    fall.function.name,
                    quoted(module, fall.statement),
                    by_content=_is_by_content(fall.statement),
                    left_out=_left_out(fall.statement, files),
                )
    return _permit(module, function, inside)


def _guards(function: FunctionNode, inside: Sequence[ast.AST]) -> Iterator[_Guard]:
    """The conditions around a statement, innermost first, and those before it that leave."""
    for node, inner in zip(inside[-2::-1], inside[:0:-1], strict=True):
        is_condition = isinstance(node, ast.If | ast.While) and inner in node.body
        if is_condition and isinstance(node, ast.If | ast.While):
            yield _Guard(node, [each for each, _ in within(node.body)])
    every = [each for each, _ in within(function.body)]
    for node in before(function, inside):
        if isinstance(node, ast.If) and isinstance(node.body[-1], LEAVES):
            yield _Guard(node, [e for e in every if first_line(e) > last_line(node)])


def _compared(test: ast.expr) -> Iterator[_Count]:
    """What a condition compares with a limit: `self.sent` of `self.sent + 2 <= self.most`."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ORDERS):
            for each in (*ast.walk(node.left), *ast.walk(node.comparators[0])):
                if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub):
                    yield _Count(expression_text(each.left), expression_text(each.right))
                elif isinstance(each, ast.Attribute | ast.Name) and expression_text(each) != "self":
                    yield _Count(expression_text(each))


def _change(statement: ast.AST, name: str) -> _Change:
    """What a statement does to a count or a container of that name."""
    if isinstance(statement, ast.AugAssign) and expression_text(statement.target) == name:
        return _by_operator(statement.op)
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if expression_text(target) == name:
                value = statement.value
                is_own = isinstance(value, ast.BinOp) and expression_text(value.left) == name
                return _by_operator(value.op) if is_own and isinstance(value, ast.BinOp) else "set"
            if isinstance(target, ast.Subscript) and expression_text(target.value) == name:
                return "rises"
    if isinstance(statement, ast.Delete):
        parts = [e.value for e in statement.targets if isinstance(e, ast.Subscript)]
        return "falls" if any(expression_text(each) == name for each in parts) else ""
    for call in expressions_of(statement):
        if isinstance(call, ast.Call) and receiver_of(call) == name:
            if adds_to(call):
                return "rises"
            method = last_name(call.func)
            return "falls" if method in _REMOVES else "set" if method == "clear" else ""
    return ""


def _by_operator(operator: ast.operator) -> _Change:
    if isinstance(operator, ast.Add):
        return "rises"
    return "falls" if isinstance(operator, ast.Sub) else "set"


def _first_fall(
    module: ParsedFile, function: FunctionNode, count: _Count, region: Sequence[ast.AST]
) -> _Fall | None:
    """The first statement that lowers a count again, if a function that receives has it."""
    found: _Fall | None = None
    for where in _sharing(module, function, count.name):
        for statement, _ in within(where.body):
            if statement in region:
                continue
            change = _change(statement, count.name)
            if change == "set" and _is_again(where, function, statement, region):
                return None
            if count.less and _change(statement, count.less) == "rises":
                change = "falls"
            if change == "falls" and found is None and _receives(where):
                found = _Fall(where, statement)
    return found


def _is_again(
    where: FunctionNode, function: FunctionNode, statement: ast.AST, region: Sequence[ast.AST]
) -> bool:
    """Whether a statement sets a count anew, and not only before the first round."""
    is_first = where is function and bool(region) and first_line(statement) < first_line(region[0])
    return not is_first or any(
        isinstance(each, LOOPS) and first_line(each) < first_line(statement) <= last_line(each)
        for each in own_nodes(where)
    )


def _sharing(module: ParsedFile, function: FunctionNode, name: str) -> Sequence[FunctionNode]:
    """The functions that may change a count: that of a variable, or the methods of the class."""
    if "." not in name:
        return [function]
    classes = [
        each
        for each in every_node(module.tree)
        if isinstance(each, ast.ClassDef) and function in each.body
    ]
    own = [e for c in classes for _, e in children(c) if isinstance(e, FUNCTIONS)]
    return [each for each in own or functions_in(module.tree) if each.name != "__init__"]


def _receives(function: FunctionNode) -> bool:
    """Whether a function receives something: by a call, or as what a callback is given."""
    calls = (each for each in own_nodes(function) if isinstance(each, ast.Call))
    given = [each for each in parameters(function) if each not in ("self", "cls")]
    return bool(given) or any(last_name(each.func) in _RECEIVES for each in calls)


def _amount(statement: ast.AST) -> ast.expr | None:
    """By how much a statement lowers a count; `None` for one entry of a container."""
    if isinstance(statement, ast.AugAssign):
        return statement.value
    value = statement.value if isinstance(statement, ast.Assign) else None
    return value.right if isinstance(value, ast.BinOp) else None


def _is_by_content(statement: ast.AST) -> bool:
    """`self.sent -= len(result.rows)`; `len(done)` is most likely the number of answers."""
    return bool(_lengths(statement))


def _lengths(statement: ast.AST) -> list[ast.Attribute | ast.Subscript]:
    """The parts of objects by whose lengths a statement lowers a count."""
    amount = _amount(statement)
    return [
        call.args[0]
        for call in (ast.walk(amount) if amount is not None else ())
        if isinstance(call, ast.Call)
        and last_name(call.func) == "len"
        and call.args
        and isinstance(call.args[0], ast.Attribute | ast.Subscript)
    ]


def _left_out(statement: ast.AST, files: Iterable[tuple[str, ParsedFile]]) -> LeftOut | None:
    """The loop that fills what the amount is the length of, and the condition that leaves out."""
    names = {last_name(each) for each in _lengths(statement) if isinstance(each, ast.Attribute)}
    for file, module in files if names else ():
        for function in functions_in(module.tree):
            for node, parents in within(function.body):
                call = node.value if isinstance(node, ast.Expr) else None
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                    continue
                loop = next((e for e in reversed(parents) if isinstance(e, LOOPS)), None)
                if not adds_to(call) or last_name(call.func.value) not in names or loop is None:
                    continue
                inside = (*parents[parents.index(loop) + 1 :], node)
                skips = _skip_in(loop, inside)
                if skips is not None:
                    return LeftOut(
                        file, function.name, quoted(module, node), condition(module, skips)
                    )
    return None


def _skip_in(loop: ast.AST, inside: Sequence[ast.AST]) -> ast.If | None:
    """The `if` of a loop by which a round goes on with the next before a statement."""
    found = (
        each
        for each in before(loop, inside)
        if isinstance(each, ast.If) and isinstance(each.body[-1], ast.Continue)
    )
    return next(found, None)


def _permit(
    module: ParsedFile, function: FunctionNode, inside: Sequence[ast.AST]
) -> InFlight | None:
    """A permit that is taken before a statement, and released only by a function that receives."""
    for node in before(function, inside):
        call = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        call = call.value if isinstance(call, ast.Await) else call
        if not isinstance(call, ast.Call) or last_name(call.func) != "acquire":
            continue
        name = receiver_of(call)
        releases = [
            _Fall(where, statement)
            for where in _sharing(module, function, name)
            for statement, _ in within(where.body)
            if any(
                isinstance(e, ast.Call)
                and last_name(e.func) == "release"
                and receiver_of(e) == name
                for e in expressions_of(statement)
            )
        ]
        if not releases or any(each.function is function for each in releases):
            continue
        if all(_receives(each.function) for each in releases):
            taken, fall = quoted(module, node), releases[0]
            return InFlight(name, taken, taken, fall.function.name, quoted(module, fall.statement))
    return None
