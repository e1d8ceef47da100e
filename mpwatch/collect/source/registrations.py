"""What is registered again and again with something that keeps it, and never taken back."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mpwatch.collect.source.repetition import Repeatable, functions_of, loop_around
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    ParsedFile,
    expression_text,
    last_name,
    names_in,
    own_nodes,
    quoted,
    receiver_of,
)
from mpwatch.model.source_code import Mark

_LEAST_DELAY_S: Final = 60
"""A timer that ends sooner keeps little."""
_FROM_OUTSIDE: Final = re.compile(r"do_[A-Z]+|on_\w+|handle(?:_\w+)?|__getitem__|forward")
"""Functions that a server, a client or a library calls for each request, message or item."""
_UNDONE_BY: Final[Mapping[str, str]] = {
    "add_event_handler": "remove_event_handler",
    "add_listener": "remove_listener",
    "add_observer": "remove_observer",
    "register_callback": "unregister_callback",
    "register_handler": "unregister_handler",
    "subscribe": "unsubscribe",
}


def registrations(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """Statements of a file that register what nothing in it takes back."""
    tree = module.tree
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if not any(last_name(each.func) in _REGISTERS for each in calls):
        return
    called = {last_name(each.func) for each in calls}
    called |= {expression_text(e.func) for e in calls if isinstance(e.func, ast.Attribute)}
    for function, owner in functions_of(tree):
        if not isinstance(function, FUNCTIONS):
            continue
        nodes = list(own_nodes(function))
        found = [e for e in nodes if isinstance(e, ast.Call) and last_name(e.func) in _REGISTERS]
        guarded = _once(nodes) if found else set()
        inner = {each.name for each in nodes if isinstance(each, FUNCTIONS)}
        own = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
        own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for call in (each for each in found if id(each) not in guarded):
            given = _registered(call, called, nodes, function)
            kept = _keeps(given.values, own - {"self"}, inner) if given is not None else ""
            if given is None or not kept:
                continue
            is_own = kept == "self"
            if is_own and (owner is None or (given.needs_other and _makes(owner, call))):
                continue
            by = owner.name if owner is not None and (is_own or function.name == "__init__") else ""
            mark = Mark("registers", file, function.name, given.undone_by, quoted(module, call))
            is_called = not is_own and _FROM_OUTSIDE.fullmatch(function.name) is not None
            loop = None if is_own else loop_around(file, function, nodes, call)
            yield Repeatable(mark, (by or function.name,), loop, is_called)


_REGISTERS: Final = frozenset(
    (
        *("Timer", "addHandler", "call_at", "call_later", "finalize", "register"),
        *("register_at_fork", *_UNDONE_BY),
    )
)


class _Given(NamedTuple):
    """What a call registers."""

    values: Sequence[ast.expr]
    undone_by: str
    needs_other: bool = False
    """Whether what it is registered with must outlive the object: not one that it has made."""


def _registered(
    call: ast.Call, called: Container[str], nodes: Sequence[ast.AST], function: ast.AST
) -> _Given | None:
    """What a call registers, and what would take that back; `None` if the file does so."""
    name, to = last_name(call.func), receiver_of(call)
    given = [*call.args, *(each.value for each in call.keywords if each.arg != "weak")]
    if not given:
        return None
    if name == "register" and to == "atexit":
        return None if "atexit.unregister" in called else _Given(given, "atexit.unregister()")
    if name == "register_at_fork":
        return _Given(given, "nothing")
    if name in ("call_later", "call_at", "Timer") and len(given) > 1:
        return _timer(call, name, given, called, nodes, function)
    if name == "finalize" and len(given) > 1:
        return _finalizer(given, called)
    if name == "addHandler":
        is_made = any(isinstance(each, ast.Call) for each in ast.walk(given[0]))
        value = given[0] if is_made or isinstance(given[0], ast.Attribute) else None
        made = [value] if value is not None else [_NEW] * (_is_made(given[0], nodes))
        return None if "removeHandler" in called else _Given(made, "removeHandler()")
    if name in _UNDONE_BY and isinstance(call.func, ast.Attribute):
        functions = [e for e in given if isinstance(e, ast.Lambda | ast.Attribute | ast.Name)]
        if _UNDONE_BY[name] in called:
            return None
        return _Given([e for e in functions if not _is_text(e)], f"{_UNDONE_BY[name]}()", True)
    return None


_NEW: Final = ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None))
"""Stands for an object that the function has made."""


def _is_made(value: ast.expr, nodes: Sequence[ast.AST]) -> bool:
    """Whether a variable is given a new object in the same function."""
    name = expression_text(value)
    return any(
        isinstance(each, ast.Assign)
        and isinstance(each.value, ast.Call)
        and any(expression_text(target) == name for target in each.targets)
        for each in nodes
    )


def _is_text(value: ast.expr) -> bool:
    """Whether it is written like a constant: `Topic.READINGS`, `EVENT`."""
    return last_name(value).isupper()


def _timer(
    call: ast.Call,
    name: str,
    given: Sequence[ast.expr],
    called: Container[str],
    nodes: Sequence[ast.AST],
    function: ast.AST,
) -> _Given | None:
    """A timer that may last long, is dropped or never cancelled, and does not set itself again."""
    delay = getattr(given[0], "value", None)
    if isinstance(delay, int | float) and name != "call_at" and delay < _LEAST_DELAY_S:
        return None
    if last_name(given[1]) == getattr(function, "name", ""):
        return None
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is call:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [expression_text(each) for each in targets]
            if any(f"{each}.cancel" in called for each in names) or "cancel" in called:
                return None
        elif isinstance(node, ast.Return | ast.Await) and node.value is call:
            return None  # its caller has it
        elif isinstance(node, ast.Call) and call in node.args and "cancel" in called:
            return None  # kept with others
    return _Given(given[1:], "cancel() of its handle")


def _finalizer(given: Sequence[ast.expr], called: Container[str]) -> _Given | None:
    """A function of an object that is to run when nothing refers to the object any more."""
    target = expression_text(given[0])
    function, *rest = given[1:]
    is_held = expression_text(function).startswith(f"{target}.") or (
        isinstance(function, ast.Lambda) and target in names_in(function.body)
    )
    is_held = is_held or any(expression_text(each) == target for each in rest)
    return _Given(given[:1], "a function that does not refer to the object") if is_held else None


def _keeps(values: Sequence[ast.expr], own: Container[str], inner: Container[str]) -> str:
    """What registered values keep: `self`, `call` for what belongs to one call, or nothing.

    Args:
        values: A function and what it is to be given; or an object.
        own: Variables of the function that registers.
        inner: Functions that are defined in it.
    """
    found = ""
    for place, each in enumerate(values):
        first = expression_text(each).partition(".")[0]
        is_new = isinstance(each, ast.Lambda | ast.Call | ast.List | ast.Tuple | ast.Dict)
        if is_new or first in inner:
            return "call"
        if first == "self":
            found = "self"
        elif first in own and (place > 0 or isinstance(each, ast.Attribute) or len(values) == 1):
            return "call"
    return found


def _makes(owner: ast.ClassDef, call: ast.Call) -> bool:
    """Whether a class makes that with which it registers: both are let go together."""
    to = receiver_of(call)
    return to == "self" or any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and any(expression_text(target) == to for target in node.targets)
        for node in ast.walk(owner)
    )


_ASKS: Final = re.compile(r"handlers|registered|is None|not self\._?\w+$|installed|subscribed")


def _once(nodes: Sequence[ast.AST]) -> set[int]:
    """The ids of what stands under a condition that it was not registered before."""
    return {
        id(part)
        for node in nodes
        if isinstance(node, ast.If) and _ASKS.search(expression_text(node.test))
        for each in (*node.body, *node.orelse)
        for part in ast.walk(each)
    }
