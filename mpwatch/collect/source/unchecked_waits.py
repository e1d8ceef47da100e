"""Waits for a condition before which nothing looks whether what they wait for is there already.

A notification wakes up only what waits at that moment. So the lock of a condition, a look at the
data and the wait belong together, which `wait_for()` does.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    ADDS,
    FUNCTIONS,
    LEAVES,
    LOGS,
    LOOPS,
    QUOTE_LIMIT,
    Found,
    FunctionNode,
    assigned_to,
    before,
    calls_in,
    every_node,
    expression_text,
    first_line,
    functions_in,
    last_line,
    last_name,
    of_file,
    own_nodes,
    receiver_of,
    within,
)

_NOTIFIES: Final = ("notify", "notify_all")
_CHANGES: Final = ADDS | {
    "clear",
    "discard",
    "pop",
    "popleft",
    "put",
    "put_nowait",
    "remove",
    "set",
    "update",
}
"""Methods that change what they are called of."""
_LIMIT: Final = 8
"""So many conditions of a file are looked at, functions that notify one, names that one of these
changes, and waits of a function."""
_STEPS: Final = 4
"""Calls that are followed from a look at the data to a function that looks for it."""


class _Notifier(NamedTuple):
    """A function that changes data and notifies a condition."""

    function: FunctionNode
    owner: ast.ClassDef | None
    line: int
    """That notifies."""
    changed: Mapping[str, int]
    """What it changes, and in which line."""


class _Names(NamedTuple):
    """The names that a function uses, and those of the functions that it calls."""

    chains: frozenset[str]
    called: frozenset[str]


_TELLS_TO_STOP: Final = re.compile(
    "alive|cancel|close|closing|exit|quit|running|shut|stop|terminat"
)
"""Names of flags that say that no more comes, and not that something is there."""
_NO_NAMES: Final = _Names(frozenset(), frozenset())


class _Conditions(NamedTuple):
    """What a file shows of its conditions."""

    owners: Mapping[int, ast.ClassDef]
    """The class of each method, by the id of its syntax."""
    notifiers: Mapping[str, Sequence[_Notifier]]
    """By the name of the condition."""
    names: Mapping[str, _Names]
    """Of the functions of the file; those of one name count as one."""
    callers: Mapping[str, Sequence[_Names]]
    """What functions ask in their conditions that call one of a name."""
    looking: dict[str, set[str]]
    """The functions that look at a name, as they are asked for."""


def find_unchecked_waits(
    tree: ast.Module, function: ast.AST, nodes: Sequence[ast.AST]
) -> Iterator[Found]:
    """The waits of one function for a condition that other functions of the file notify.

    Not where anything in the function, or in its block of the lock, comes first that could look at
    the data, or ask for what is waited for: as long as the lock is held, no answer can come before
    the wait. Nor where a function that calls it asks for the data, or a wait with a limit looks at
    the data after it.
    """
    if not isinstance(function, ast.FunctionDef):
        return
    blocks = [each for each in nodes if isinstance(each, ast.With)]
    known = of_file(tree, _conditions_of) if blocks else None
    if known is None or not known.notifiers:
        return
    around = {id(node): parents for node, parents in within(function.body)}
    for block, name, inside, call in islice(_first_waits(blocks, known), _LIMIT):
        way = (*around.get(id(block), ()), block, *inside)
        about = _unchecked(known, function, way, name, call)
        if 0 < len(about) <= QUOTE_LIMIT:
            yield "unchecked-wait", about, inside[-1]


def _first_waits(
    blocks: Sequence[ast.With], known: _Conditions
) -> Iterator[tuple[ast.With, str, tuple[ast.AST, ...], ast.Call]]:
    """The waits that are the first that a block does which takes the lock of a condition.

    Yields:
        The block, the condition, the statements in the block around the wait with its own, and the
        call.
    """
    for block in blocks:
        for name in {expression_text(each.context_expr) for each in block.items}:
            for node, parents in within(block.body) if name in known.notifiers else ():
                call = _wait_in(node, name)
                if call is None:
                    continue
                if _comes_first(block, (*parents, node)):
                    yield block, name, (*parents, node), call
                break


def _conditions_of(tree: ast.Module) -> _Conditions:
    owners = {
        id(child): node
        for node in every_node(tree)
        if isinstance(node, ast.ClassDef)
        for child in node.body
        if isinstance(child, FUNCTIONS)
    }
    notifiers: defaultdict[str, list[_Notifier]] = defaultdict(list)
    for function in functions_in(tree):
        nodes = own_nodes(function)
        for each in nodes:
            name = receiver_of(each) if isinstance(each, ast.Call) else ""
            is_known = name in notifiers or len(notifiers) < _LIMIT
            if not isinstance(each, ast.Call) or last_name(each.func) not in _NOTIFIES:
                continue
            if name and is_known and len(notifiers[name]) < _LIMIT:
                owner, changed = owners.get(id(function)), _changed_in(nodes, name)
                notifiers[name].append(_Notifier(function, owner, first_line(each), changed))
    names: dict[str, _Names] = {}
    callers: defaultdict[str, list[_Names]] = defaultdict(list)
    for function in functions_in(tree) if notifiers else ():
        nodes = own_nodes(function)
        used, before_it = _names_in(nodes), names.get(function.name, _NO_NAMES)
        tests = [each.test for each in nodes if isinstance(each, ast.While | ast.If)]
        asked = _names_in(_inside(tests))
        for called in used.called - {function.name} if tests else ():
            if len(callers[called]) < _LIMIT:
                callers[called].append(asked)
        names[function.name] = _Names(
            used.chains | before_it.chains, used.called | before_it.called
        )
    return _Conditions(owners, notifiers, names, callers, {})


def _changed_in(nodes: Sequence[ast.AST], condition: str) -> Mapping[str, int]:
    """What a function changes that is not its own, in the order of lines."""
    own = {
        each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    found: dict[str, int] = {}
    for node in sorted(nodes, key=first_line):
        targets = list(assigned_to(node))
        if isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value] if node.func.attr in _CHANGES else []
        for target in targets:
            inner = target.value if isinstance(target, ast.Subscript) else target
            if inner is target and isinstance(target, ast.Name) and not isinstance(node, ast.Call):
                continue  # a variable of its own
            name = expression_text(inner)
            is_own = name.partition(".")[0] in own
            if name and name != condition and not is_own and len(found) < _LIMIT:
                found.setdefault(name, first_line(node))
    return found


def _wait_in(node: ast.AST, condition: str) -> ast.Call | None:
    """The wait for a condition in a statement, or in the header of a `while` or an `if`."""
    if isinstance(node, ast.While | ast.If):
        node = node.test
    elif not isinstance(node, ast.Expr | ast.Assign | ast.Return):
        return None
    return next(
        (
            each
            for each in calls_in(node)
            if last_name(each.func) == "wait" and receiver_of(each) == condition
        ),
        None,
    )


def _comes_first(block: ast.With, inside: Sequence[ast.AST]) -> bool:
    """Whether a wait is the first that a block of the lock does, apart from writing to a log."""
    for each in before(block, inside):
        calls = [call for call in calls_in(each) if last_name(call.func) not in LOGS]
        is_text = isinstance(each, ast.Expr | ast.Pass)
        is_local = isinstance(each, ast.Assign) and all(
            isinstance(target, ast.Name) for target in each.targets
        )
        if calls or not (is_text or is_local):
            return False
    headers = [each.test for each in inside[:-1] if isinstance(each, ast.While | ast.If)]
    if len(headers) < len(inside) - 1:
        return False  # a `for`, a `try` or another `with`
    return all(map(_asks_only_for_the_end, headers))


def _asks_only_for_the_end(test: ast.expr) -> bool:
    """Whether a condition asks nothing but whether to stop, or how long a wait may last.

    `closed`, `not self.stop.is_set()`, `timeout is None`, `True`.
    """
    if isinstance(test, ast.Constant):
        return True
    if isinstance(test, ast.BoolOp):
        return all(map(_asks_only_for_the_end, test.values))
    if isinstance(test, ast.UnaryOp):
        return _asks_only_for_the_end(test.operand)
    if isinstance(test, ast.Compare):
        others = test.comparators
        is_none = all(isinstance(e, ast.Constant) and e.value is None for e in others)
        return isinstance(test.left, ast.Name) and is_none
    if isinstance(test, ast.Call):
        return last_name(test.func) == "wait" or (
            last_name(test.func) == "is_set" and _tells_to_stop(receiver_of(test))
        )
    return _tells_to_stop(expression_text(test))


def _tells_to_stop(name: str) -> bool:
    return _TELLS_TO_STOP.search(name.rpartition(".")[2].lower()) is not None


def _unchecked(
    known: _Conditions,
    function: FunctionNode,
    inside: Sequence[ast.AST],
    condition: str,
    call: ast.Call,
) -> str:
    """What a mark says of a wait; empty for one that is no mistake."""
    owner = known.owners.get(id(function))
    others = [
        each
        for each in known.notifiers[condition]
        if each.function is not function
        and (not condition.startswith("self.") or (owner is not None and each.owner is owner))
    ]
    first = _names_in(_inside([*before(function, inside), *_headers(inside, call)]))
    looked = {name for each in others for name in each.changed if _looks(known, first, name)}
    if not all(map(_tells_to_stop, looked)):
        return ""
    after = _after_limit(function, inside, call)
    if after is None:
        return ""
    later, used = _names_in(_inside(after)), _names_in(own_nodes(function)).chains
    for each in others:
        if not looked.isdisjoint(each.changed):
            continue
        for name, line in each.changed.items():
            is_own = name.startswith("self.") and not _limited(call) and not looked
            is_known = name in used or is_own
            may_look = (later, *known.callers.get(function.name, ()))
            is_looked_at = any(_looks(known, each, name) for each in may_look)
            if is_known and not _tells_to_stop(name) and not is_looked_at:
                return f"{condition}, {name}, {line}, {each.function.name}, {each.line}"
    return ""


def _headers(inside: Sequence[ast.AST], call: ast.Call) -> Iterator[ast.AST]:
    """The conditions around a wait, without the wait itself."""
    for each in inside:
        if isinstance(each, ast.For):
            yield each.iter
        if not isinstance(each, ast.While | ast.If):
            continue
        parts = each.test.values if isinstance(each.test, ast.BoolOp) else [each.test]
        yield from (part for part in parts if all(found is not call for found in calls_in(part)))


def _limited(call: ast.Call) -> bool:
    given = [*call.args, *(each.value for each in call.keywords)]
    return any(not (isinstance(each, ast.Constant) and each.value is None) for each in given)


def _after_limit(
    function: FunctionNode, inside: Sequence[ast.AST], call: ast.Call
) -> Sequence[ast.AST] | None:
    """What follows when the limit of a wait has ended; nothing where it has none.

    Returns:
        `None` where what follows does not depend on whether it was notified.
    """
    if not _limited(call):
        return ()
    node = inside[-1]
    if not isinstance(node, ast.While | ast.If):
        return None
    is_not = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
    test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
    if test is not call:
        return None
    if isinstance(node, ast.While):
        return node.body if is_not else None
    branch = node.body if is_not else node.orelse
    if branch and isinstance(branch[-1], LEAVES):
        return branch
    rounds = next((each for each in reversed(inside[:-1]) if isinstance(each, LOOPS)), function)
    end, last = last_line(node), last_line(rounds)
    return [*branch, *(each for each in own_nodes(function) if end < first_line(each) <= last)]


def _looks(known: _Conditions, names: _Names, data: str) -> bool:
    """Whether something uses a name of the data, or a function of the file that does.

    A property counts as a function.
    """
    if data in names.chains:
        return True
    looking = known.looking.get(data)
    if looking is None:
        looking = known.looking[data] = _looking(known.names, data)
    return not looking.isdisjoint(names.called)


def _looking(names: Mapping[str, _Names], data: str) -> set[str]:
    """The functions that use a name, or call one that does."""
    found = {each for each, used in names.items() if data in used.chains}
    for _ in range(_STEPS):
        more = {e for e, used in names.items() if not found.isdisjoint(used.called)} - found
        if not more:
            break
        found |= more
    return found


def _names_in(nodes: Iterable[ast.AST]) -> _Names:
    """What some pieces of syntax use, each piece by itself."""
    chains: set[str] = set()
    called: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            chains.add(expression_text(node))
            is_own = isinstance(node, ast.Attribute) and last_name(node.value) == "self"
            called.update((node.attr,) if is_own and isinstance(node, ast.Attribute) else ())
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
    return _Names(frozenset(chains), frozenset(called))


def _inside(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (part for node in nodes for part in ast.walk(node))
