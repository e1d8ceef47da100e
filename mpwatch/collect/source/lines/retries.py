"""A call that has failed, in a loop that sleeps and tries it again; and what it is given each time.

`for attempt in range(4):`, `return self.send(endpoint)`, `except OSError: time.sleep(pause)`. Where
`endpoint` comes from a list that is never made shorter, what does not answer comes up again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from mpwatch.collect.source.call_graph import expressions_of
from mpwatch.collect.source.growth.kept import names_dropped_from
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    ParsedFile,
    bindings,
    children,
    every_node,
    expression_text,
    functions_in,
    last_name,
    of_file,
    own_nodes,
    parameters,
    quoted,
    within,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import OriginStep, Retry

_NAME_LENGTH: Final = 80
_CALLERS: Final = 4
_TARGETS: Final = 8
"""Names that a call gets of which it is followed what chooses them."""
_CONNECTION = re.compile(
    r"\b(?:\w*Connect\w*|\w*Timeout|timeout|TimeoutError|OSError|IOError|EOFError|gaierror|error"
    r"|BrokenPipeError|\w*Unavailable\w*|RequestException|URLError|RpcError)\b"
)
"""In an `except` clause."""
_POLLS = re.compile(
    r"\b(?:Empty|Full|BlockingIOError|FileExistsError|FileNotFoundError|IndexError"
    r"|InterruptedError|KeyError|StopIteration)\b"
)
"""The same, of a loop that only looks whether there is something."""


def retried(
    file: str,
    module: ParsedFile,
    function: ast.AST,
    inside: Sequence[ast.AST],
    files: Iterable[tuple[str, ParsedFile]],
) -> Retry | None:
    """The call that has failed, where the last statement sleeps before it is tried again.

    Args:
        file: The file of the line.
        module: It.
        function: The function of the line, or the file.
        inside: The statements of the function around the line, outermost first, and it.
        files: All files that were read, in which what chooses the target may be.
    """
    calls = [each for each in expressions_of(inside[-1]) if isinstance(each, ast.Call)]
    found = _failed(inside) if any(last_name(each.func) == "sleep" for each in calls) else None
    if found is None:
        return None
    loop, tried, handler = found
    if _goes_on(loop, tried):
        return None
    caught = expression_text(handler.type) if handler.type is not None else ""
    failing = next(
        ((s, calls) for s, _ in within(tried.body) if (calls := _calls_of_statement(s))), None
    )
    if failing is None or _POLLS.search(caught):
        return None
    statement, calls = failing
    targets = _unchanged(loop, calls)[:_TARGETS]
    chosen = kept = None
    for name in targets:
        chosen, kept = _chosen(file, module, function, name, list(files))
        if chosen is not None:
            targets = [name]
            break
    return Retry(
        quoted(module, statement),
        quoted(module, handler),
        quoted(module, loop),
        _CONNECTION.search(caught) is not None,
        clean(targets[0], _NAME_LENGTH) if targets else "",
        chosen,
        kept,
    )


def _goes_on(loop: ast.stmt, tried: ast.Try) -> bool:
    """Whether the next round calls it for the next element, and so tries nothing again.

    `for url in urls:`, but not where the first success leaves the loop, nor a count of attempts.
    """
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return False
    made = loop.iter
    if isinstance(made, ast.Call) and last_name(made.func) in ("count", "range", "repeat"):
        return False
    body = [each for node in (*tried.body, *tried.orelse) for each in ast.walk(node)]
    targets = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    is_used = any(isinstance(each, ast.Name) and each.id in targets for each in body)
    return is_used and not any(isinstance(each, ast.Break | ast.Return) for each in body)


def _failed(inside: Sequence[ast.AST]) -> tuple[ast.stmt, ast.Try, ast.ExceptHandler] | None:
    """The loop, the `try` and its clause after which the last statement is reached."""
    loop = None
    for outer, inner in zip(inside[-2::-1], inside[:0:-1], strict=True):
        if isinstance(outer, ast.Try) and isinstance(inner, ast.ExceptHandler):
            place = inside.index(outer)
            loop = next((e for e in reversed(inside[:place]) if isinstance(e, LOOPS)), None)
            return None if loop is None else (loop, outer, inner)
        if isinstance(outer, LOOPS):
            return _left_before(outer, inner)
    return None


def _left_before(
    loop: ast.For | ast.While | ast.AsyncFor, below: ast.AST
) -> tuple[ast.stmt, ast.Try, ast.ExceptHandler] | None:
    """The `try` before a statement of a loop that leaves the loop unless it has failed."""
    for _, node in children(loop):
        if node is below:
            return None
        if not isinstance(node, ast.Try) or len(node.handlers) != 1 or node.finalbody:
            continue
        last = (node.orelse or node.body)[-1]
        if isinstance(last, ast.Break | ast.Return):
            return loop, node, node.handlers[0]
    return None


def _calls_of_statement(statement: ast.AST) -> list[ast.Call]:
    return [each for each in expressions_of(statement) if isinstance(each, ast.Call)]


def _unchanged(loop: ast.stmt, calls: Sequence[ast.Call]) -> list[str]:
    """The plain names that calls get and no statement of a loop sets."""
    set_inside = {
        each.id
        for each in ast.walk(loop)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    given = [
        part.id
        for call in calls
        for part in (*call.args, *(each.value for each in call.keywords))
        if isinstance(part, ast.Name) and part.id not in set_inside
    ]
    return list(dict.fromkeys(given))


def _chosen(
    file: str,
    module: ParsedFile,
    function: ast.AST,
    name: str,
    files: Sequence[tuple[str, ParsedFile]],
) -> tuple[OriginStep | None, OriginStep | None]:
    """What takes a variable of a function from a list, and what fills that list if it stays."""
    places: list[tuple[str, ParsedFile, ast.AST, str]] = [(file, module, function, name)]
    if isinstance(function, FUNCTIONS) and name in (names := parameters(function)):
        is_bound = names[:1] == ["self"]
        calls = (
            (path, other, outer, call)
            for path, other in files
            for outer, call in of_file(other.tree, _calls_by_name).get(function.name, ())
        )
        for path, other, outer, call in islice(calls, _CALLERS):
            place = names.index(name) - is_bound
            keyword = next((each.value for each in call.keywords if each.arg == name), None)
            given = keyword or (call.args[place] if 0 <= place < len(call.args) else None)
            if isinstance(given, ast.Name):
                places.append((path, other, outer, given.id))
    for path, other, outer, known_as in places:
        for statement, _ in within(getattr(outer, "body", [])):
            container = _taken_from(statement, known_as)
            if container:
                where = clean(getattr(outer, "name", "<module>"), _NAME_LENGTH)
                step = OriginStep(path, where, quoted(other, statement))
                return step, _never_shorter(path, other, container)
    return None, None


def _calls_by_name(tree: ast.Module) -> Mapping[str, Sequence[tuple[ast.AST, ast.Call]]]:
    """The calls in the functions of a file, each with its function."""
    found: dict[str, list[tuple[ast.AST, ast.Call]]] = {}
    for function in functions_in(tree):
        for call in own_nodes(function):
            if isinstance(call, ast.Call):
                found.setdefault(last_name(call.func), []).append((function, call))
    return found


def _taken_from(statement: ast.AST, name: str) -> str:
    """The container from which a statement takes a variable, one after the other or at random."""
    if isinstance(statement, ast.For):
        is_it = isinstance(statement.target, ast.Name) and statement.target.id == name
        is_plain = is_it and isinstance(statement.iter, ast.Name | ast.Attribute)
        return expression_text(statement.iter) if is_plain else ""
    for target, value in bindings(statement):
        if isinstance(target, ast.Name) and target.id == name:
            if isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice):
                return expression_text(value.value)
            is_call = isinstance(value, ast.Call) and last_name(value.func) in ("choice", "next")
            if isinstance(value, ast.Call) and is_call and value.args:
                return expression_text(value.args[0])
    return ""


def _never_shorter(file: str, module: ParsedFile, name: str) -> OriginStep | None:
    """What fills an attribute, or what it cycles through; `None` if that may get shorter later."""
    found = None
    for _ in range(2):
        setters = [each for each in _setters(module.tree) if each[1] == name]
        dropped = {each for node in every_node(module.tree) for each in names_dropped_from(node)}
        if len(setters) != 1 or name in dropped or "." not in name:
            return None
        function, _, statement, value = setters[0]
        if function != "__init__":
            return None
        found = OriginStep(file, function, quoted(module, statement))
        is_cycle = isinstance(value, ast.Call) and last_name(value.func) == "cycle"
        inner = value.args[0] if isinstance(value, ast.Call) and value.args else None
        if not is_cycle or not isinstance(inner, ast.Attribute):
            break
        name = expression_text(inner)
    return found


def _setters(tree: ast.Module) -> Iterator[tuple[str, str, ast.AST, ast.expr]]:
    """The statements that give attributes a value, with their function."""
    for function in functions_in(tree):
        for statement, _ in within(list(function.body)):
            for target, value in bindings(statement):
                if isinstance(target, ast.Attribute):
                    yield function.name, expression_text(target), statement, value
