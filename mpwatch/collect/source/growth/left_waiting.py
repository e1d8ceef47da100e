"""Tasks of asyncio that a program leaves waiting for an event, one more in each call.

`asyncio.as_completed` and `asyncio.wait` make a task of each coroutine that they are given, and
cancel none of them when the caller goes on after the first. One that waits for an event which is
set only at the end of a connection or of the program stays until then: the waiters of the event
refer to its future, that to the task, and the task to its coroutine (CPython 3.10 to 3.14).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from typing import Final, NamedTuple

from mpwatch.collect.source.call_graph import (
    Class,
    Function,
    Program,
    assignments,
    expressions_of,
)
from mpwatch.collect.source.syntax import (
    LOOPS,
    QUOTE_LIMIT,
    argument_of,
    expression_text,
    last_name,
    quoted,
    receiver_of,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import LeftHow, LeftWaiting

_MAKES_TASK: Final = frozenset(("create_task", "ensure_future"))
_DEPTH: Final = 2
"""Coroutines that are followed, one awaited by the other."""
_SEVERAL: Final = 2


class Made(NamedTuple):
    """The statement that makes a coroutine or a task."""

    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]
    call: ast.Call


class Left(NamedTuple):
    """What makes a task that is left waiting for an event."""

    made: Made
    statement: ast.AST
    """That leaves it."""
    owner: Class
    """Whose attribute the event is."""
    event: str
    shown: str
    """The event as the coroutine writes it."""
    words: LeftWaiting


class _Waits(NamedTuple):
    """Where a coroutine waits for an event of its own object."""

    owner: Class
    event: ast.Attribute
    function: Function
    statement: ast.AST


def left_waiting(program: Program) -> Iterator[Left]:
    """The statements of a program that leave tasks behind which wait for an event."""
    for function in program.functions:
        if not isinstance(function.node, ast.AsyncFunctionDef) or _cancels(function):
            continue
        for statement, parents in function.statements:
            how, given = _left_by(program, function, statement)
            for each in given:
                made = _made(function, statement, parents, each)
                if made is None or (
                    how == "task" and not any(isinstance(e, LOOPS) for e in parents)
                ):
                    continue
                waits = _waits(program, made.call, function)
                if waits is not None:
                    of = waits.function
                    words = LeftWaiting(
                        how,
                        clean(expression_text(made.call), QUOTE_LIMIT),
                        of.file,
                        of.name,
                        quoted(of.module, waits.statement),
                    )
                    shown = clean(expression_text(waits.event), QUOTE_LIMIT)
                    yield Left(made, statement, waits.owner, waits.event.attr, shown, words)


def of_event(statement: ast.AST, name: str) -> set[str]:
    """Which methods of an event of this name a statement calls: `set`, `clear`."""
    return {
        last_name(node.func)
        for node in expressions_of(statement)
        if isinstance(node, ast.Call) and receiver_of(node).rpartition(".")[2] == name
    }


def _left_by(
    program: Program, function: Function, statement: ast.AST
) -> tuple[LeftHow, Sequence[ast.expr]]:
    """How a statement leaves what is still waiting, and all that it may leave."""
    if isinstance(statement, ast.For | ast.AsyncFor):
        call = statement.iter
        is_first = isinstance(call, ast.Call) and last_name(call.func) == "as_completed"
        if is_first and isinstance(call, ast.Call) and _is_left(statement):
            return "as_completed", _several(call, function)
        return "as_completed", ()
    for node in expressions_of(statement):
        if not isinstance(node, ast.Call):
            continue
        if _is_wait(program, node, function) and not _uses_pending(function, statement):
            return "wait", _several(node, function)
        if last_name(node.func) in _MAKES_TASK and _is_dropped(function, statement, node):
            return "task", node.args[:1]
    return "task", ()


def _is_left(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop is left in its first round, whatever that has brought."""
    last = loop.body[-1]
    return isinstance(last, ast.Return | ast.Break | ast.Raise)


def _is_wait(program: Program, call: ast.Call, function: Function) -> bool:
    """`asyncio.wait(..., return_when=FIRST_COMPLETED)`."""
    if last_name(call.func) != "wait" or receiver_of(call) not in ("", "asyncio"):
        return False
    if not receiver_of(call) and program.imported_from(function, "wait") != "asyncio":
        return False
    until = argument_of(call, "return_when", -1)
    return until is not None and last_name(until) == "FIRST_COMPLETED"


def _uses_pending(function: Function, statement: ast.AST) -> bool:
    """Whether the second of what `asyncio.wait` returns is read; true where it is not apart."""
    if isinstance(statement, ast.Expr):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if len(targets) != 1 or not isinstance(targets[0], ast.Tuple) or not targets[0].elts:
        return True
    pending = targets[0].elts[-1]
    return not isinstance(pending, ast.Name) or _is_read(function, {pending.id})


def _is_dropped(function: Function, statement: ast.AST, call: ast.Call) -> bool:
    """Whether nothing reads the task that a call makes; false where an object keeps it."""
    if isinstance(statement, ast.Expr):
        return statement.value is call
    targets = [target for target, value in assignments(statement) if value is call]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    is_own = bool(targets) and all(isinstance(target, ast.Name) for target in targets)
    return is_own and not _is_read(function, names)


def _is_read(function: Function, names: Set[str]) -> bool:
    """Whether a function reads one of some variables, or others may, as it is not its own."""
    return not names.isdisjoint(function.not_own) or any(
        isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)
        for each, _ in function.statements
        for node in expressions_of(each)
    )


def _cancels(function: Function) -> bool:
    """Whether a function cancels anything: most likely what is pending."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "cancel"
        for statement, _ in function.statements
        for node in expressions_of(statement)
    )


def _several(call: ast.Call, function: Function) -> Sequence[ast.expr]:
    """The awaitables of a call that takes a list of them; none where there is no second one."""
    given: ast.expr | None = call.args[0] if call.args else None
    if isinstance(given, ast.Name):
        values = function.assigned.get(given.id, ())
        given = values[0] if len(values) == 1 else None
    elements = given.elts if isinstance(given, ast.List | ast.Tuple | ast.Set) else []
    return elements if len(elements) >= _SEVERAL else ()


def _made(
    function: Function, statement: ast.AST, parents: tuple[ast.AST, ...], given: ast.expr
) -> Made | None:
    """What makes an awaitable: a call there, or one whose result a variable has.

    A task that is awaited as well, or handed on, is not left.
    """
    made: tuple[ast.AST, tuple[ast.AST, ...], ast.expr] = statement, parents, given
    if isinstance(given, ast.Name):
        found = [
            (each, outer, of)
            for each, outer in function.statements
            for target, of in assignments(each)
            if last_name(target) == given.id
        ]
        is_used = any(
            isinstance(part, ast.Name) and part.id == given.id
            for each, _ in function.statements
            for node in expressions_of(each)
            if isinstance(node, ast.Await | ast.Call)
            for part in _handed(node)
        )
        if len(found) != 1 or is_used:
            return None
        made = found[0]
    at, around, value = made
    if isinstance(value, ast.Call) and last_name(value.func) in _MAKES_TASK and value.args:
        value = value.args[0]
    return Made(function, at, around, value) if isinstance(value, ast.Call) else None


def _handed(node: ast.Await | ast.Call) -> Sequence[ast.expr]:
    """What is awaited or given to a call, but for what is given within a list."""
    if isinstance(node, ast.Call):
        return [*node.args, *(each.value for each in node.keywords)]
    return [node.value]


def _waits(program: Program, call: ast.Call, function: Function, depth: int = 0) -> _Waits | None:
    """The event of an object for which a call waits, where that is the same in each call.

    Of an object that is an argument or a variable, nothing shows that it is the same one.
    """
    if not isinstance(call.func, ast.Attribute) or not _is_own(call.func.value):
        return None
    of, name = call.func.value, call.func.attr
    if name == "wait" and isinstance(of, ast.Attribute):
        owner = program.class_of(of.value, function)
        if owner is None or not _is_event(program, owner, of.attr):
            return None
        statement = next(
            (each for each, _ in function.statements if call in expressions_of(each)), None
        )
        return None if statement is None else _Waits(owner, of, function, statement)
    called = program.called_by(call.func, function)
    if len(called) != 1 or depth >= _DEPTH:
        return None
    if not isinstance(called[0].node, ast.AsyncFunctionDef):
        return None
    awaited = [
        node.value
        for statement, _ in called[0].statements
        for node in expressions_of(statement)
        if isinstance(node, ast.Await)
    ]
    first = awaited[0] if awaited else None
    return _waits(program, first, called[0], depth + 1) if isinstance(first, ast.Call) else None


def _is_own(of: ast.expr) -> bool:
    """Whether an expression is the own object, or an attribute of it."""
    while isinstance(of, ast.Attribute):
        of = of.value
    return isinstance(of, ast.Name) and of.id == "self"


def _is_event(program: Program, owner: Class, name: str) -> bool:
    """Whether an attribute is only ever given an `Event`."""
    values = [v for each in program.family(owner) for v in each.values.get(name, ())]
    return bool(values) and all(
        isinstance(each, ast.Call) and last_name(each.func) == "Event" for each in values
    )
