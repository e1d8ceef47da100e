"""The statements of a program that would end a wait, by the name of what is waited for.

A name is no object: two queues of a program may have the same one. So these statements are quoted
where a wait does not end, and nothing is concluded from them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mpwatch.collect.source.call_graph import expressions_of
from mpwatch.collect.source.lines.control_flow import headers_around, leaving_before
from mpwatch.collect.source.lines.in_flight import limit_kept
from mpwatch.collect.source.syntax import (
    LOOPS,
    ParsedFile,
    calls_in,
    children,
    functions_in,
    last_name,
    of_file,
    own_nodes,
    quoted,
    within,
)
from mpwatch.model.source_code import Ending

ENDINGS: Final = 4
"""Kept of one line."""
_SENDS: Final = frozenset(("put", "put_nowait"))
_SET: Final = "="
"""The way of an assignment to an attribute, or to an element of one."""
_SET_VARIABLE: Final = "variable ="
_OF_CALLS: Final[Mapping[str, frozenset[str]]] = {
    "acquire": frozenset(("release",)),
    "get": frozenset(("put", "put_nowait")),
    "join": frozenset(("task_done",)),
    "put": frozenset(("get", "get_nowait")),
    "result": frozenset(("set_exception", "set_result")),
    "wait": frozenset(("abort", "notify", "notify_all", "set")),
    "wait_for": frozenset(("notify", "notify_all")),
}
"""Methods by which a wait in a method ends."""
_OF_QUESTIONS: Final[Mapping[str, frozenset[str]]] = {
    "done": frozenset(("set_exception", "set_result")),
    "empty": frozenset(("put", "put_nowait")),
    "is_set": frozenset(("clear", "set")),
    "qsize": frozenset(("get", "get_nowait", "put", "put_nowait")),
}
"""The same for what the condition of a loop asks."""
_CHANGES: Final = frozenset(
    (
        _SET,
        *("add", "append", "appendleft", "clear", "discard", "extend"),
        *("insert", "pop", "popleft", "remove", "update"),
    )
)
"""What may change a number, a flag or a container that a condition tests."""
_PAUSES: Final = frozenset(
    ("acquire", "get", "join", "poll", "recv", "select", "sleep", "wait", "wait_for")
)
_CONDITIONS: Final = ("case ", "elif ", "else of ", "except", "if ")
_WAYS: Final = _CHANGES.union(*_OF_CALLS.values(), *_OF_QUESTIONS.values())


class _Site(NamedTuple):
    """A statement that does something to an object of a name."""

    way: str
    function: ast.AST
    inside: Sequence[ast.AST]
    """The statements around it, outermost first, and it."""


class _Wait(NamedTuple):
    """A name, and the ways by which a wait for it ends."""

    name: str
    ways: frozenset[str]
    loop: ast.While | None = None
    """Of a variable: the loop that tests it, in which it has to change."""
    away: type[ast.operator] | None = None
    """Of a number that a loop compares: what only keeps the loop going."""


def endings(
    file: str,
    function: ast.AST,
    inside: Sequence[ast.AST],
    files: Iterable[tuple[str, ParsedFile]],
) -> Iterator[Ending]:
    """The statements that would end the wait of a line, those of its own file first.

    Args:
        file: The file of the line.
        function: The function of the line, or its file.
        inside: The statements of the function around it, outermost first, and the last itself.
        files: The files that were read, with their syntax.
    """
    waits = [*_called(inside[-1]), *_tested(function, inside)]
    if not waits:
        return
    told = {inside[-1]}
    ordered = sorted(files, key=lambda each: each[0] != file)
    for path, module in ordered:
        sites = of_file(module.tree, _sites)
        for wait in waits:
            for site in sites.get(wait.name, ()):
                is_reached = wait.loop is None or wait.loop in site.inside[:-1]
                is_way = site.way in wait.ways and not _goes_away(site.inside[-1], wait)
                if is_way and is_reached and site.inside[-1] not in told:
                    told.add(site.inside[-1])
                    yield _ending(path, module, site, ordered)


def _ending(
    file: str, module: ParsedFile, site: _Site, files: Sequence[tuple[str, ParsedFile]]
) -> Ending:
    around = [e for e in headers_around(module, site.inside) if e.text.startswith(_CONDITIONS)]
    before = list(leaving_before(module, site.function, site.inside))
    return Ending(
        file,
        getattr(site.function, "name", "<module>"),
        quoted(module, site.inside[-1]),
        around[-1] if around else None,
        before[-1] if before else None,
        limit_kept(module, site.function, site.inside, files) if site.way in _SENDS else None,
    )


def _called(statement: ast.AST) -> Iterator[_Wait]:
    """`self.ready.wait()` of a statement, or of the header of a compound one."""
    for call in _calls(statement):
        method = last_name(call.func)
        name, ways = _receiver(call), _OF_CALLS.get(method)
        # `record.get("text")` is of a dict, and `", ".join(names)` of a text.
        is_other = method in ("get", "join") and not all(map(_is_limit, call.args))
        if name and ways and not is_other:
            yield _Wait(name, ways)


def _calls(statement: ast.AST) -> Iterator[ast.Call]:
    """The calls of a statement, or of the header of a compound one."""
    return (each for each in expressions_of(statement) if isinstance(each, ast.Call))


def _is_limit(argument: ast.expr) -> bool:
    """Whether it may be the time limit of a wait, or whether to wait."""
    is_number = isinstance(argument, ast.Constant) and isinstance(argument.value, int | float)
    return is_number or isinstance(argument, ast.Attribute | ast.Name)


def _receiver(call: ast.Call) -> str:
    return _plain(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _plain(node: ast.expr) -> str:
    """`answers` also of `self._answers`: it is most often given to a process as `answers`."""
    return last_name(node).strip("_")


def _tested(function: ast.AST, inside: Sequence[ast.AST]) -> Iterator[_Wait]:
    """What the condition of the innermost loop around a line asks, if it only waits there."""
    loop = next((each for each in reversed(inside) if isinstance(each, LOOPS)), None)
    if not isinstance(loop, ast.While) or isinstance(loop.test, ast.Constant):
        return
    if inside[-1] is not loop and not _pauses(inside[-1]):
        return
    asked = set()
    for call in calls_in(loop.test):
        ways = _OF_QUESTIONS.get(last_name(call.func))
        if ways and (name := _receiver(call)):
            yield _Wait(name, ways)
        asked |= {id(each) for each in ast.walk(call.func)}
    own = {
        each.id
        for each in own_nodes(function)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    for each in ast.walk(loop.test):
        if id(each) not in asked and isinstance(each, ast.Attribute) and (name := _changed(each)):
            asked |= {id(inner) for inner in ast.walk(each)}
            yield _Wait(name, _CHANGES, away=_away_from(loop.test, each))
    yield from (
        _Wait(_plain(each), _CHANGES | {_SET_VARIABLE}, loop)
        for each in ast.walk(loop.test)
        if isinstance(each, ast.Name) and id(each) not in asked and each.id in own
    )


def _away_from(test: ast.expr, number: ast.expr) -> type[ast.operator] | None:
    """What moves a number away from the end of a loop: additions in `while self.readers > 0`."""
    for part in test.values if isinstance(test, ast.BoolOp) else [test]:
        if isinstance(part, ast.Compare) and part.left is number and len(part.ops) == 1:
            if isinstance(part.ops[0], ast.Gt | ast.GtE):
                return ast.Add
            return ast.Sub if isinstance(part.ops[0], ast.Lt | ast.LtE) else None
    return None


def _goes_away(statement: ast.AST, wait: _Wait) -> bool:
    """`self.readers += 1`, of a wait until there are none."""
    if wait.away is None or not isinstance(statement, ast.AugAssign):
        return False
    number = getattr(statement.value, "value", None)
    return isinstance(statement.op, wait.away) and isinstance(number, int) and number > 0


def _pauses(statement: ast.AST) -> bool:
    """Whether a statement sleeps or waits, or goes on with the next round."""
    is_next = isinstance(statement, ast.Continue | ast.Pass | ast.ExceptHandler)
    return is_next or any(last_name(each.func) in _PAUSES for each in _calls(statement))


def _changed(target: ast.AST) -> str:
    """`pending` of `self.pending`, `self.pending.value` and `self.pending[key]`."""
    if isinstance(target, ast.Subscript):
        return _changed(target.value)
    if isinstance(target, ast.Attribute) and target.attr == "value":
        return _plain(target.value)
    return _plain(target) if isinstance(target, ast.Attribute) else ""


def _sites(tree: ast.Module) -> Mapping[str, Sequence[_Site]]:
    """The statements of a file that may end a wait, by the name that they do it to."""
    found: defaultdict[str, list[_Site]] = defaultdict(list)
    for function in (*functions_in(tree), tree):
        is_making = getattr(function, "name", "") == "__init__"
        for node, parents in within([child for _, child in children(function)]):
            inside = (*parents, node)
            for target in () if is_making else _targets(node):
                name, way = _changed(target), _SET
                if not name:
                    name, way = _plain(target), _SET_VARIABLE
                found[name].append(_Site(way, function, inside))
            for call in _calls(node):
                name, way = _receiver(call), last_name(call.func)
                if name and way in _WAYS:
                    found[name].append(_Site(way, function, inside))
    return found


def _targets(node: ast.AST) -> Sequence[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return [e for t in node.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else ()
