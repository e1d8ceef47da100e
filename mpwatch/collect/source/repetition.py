"""Loops of the program that lead to a statement again and again, also through calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    ParsedFile,
    first_line,
    last_line,
    last_name,
    own_nodes,
)
from mpwatch.model.source_code import Mark

_LOOPS_OF_ONE: Final = 3
"""Loops that are named for one statement."""
_LOOPS_OF_FUNCTION: Final = 64
"""Loops of one function that are looked at."""
_CALLS_UP: Final = 6
"""Calls that are followed, one above the other."""
_ORDINARY: Final = frozenset(
    (
        *("add", "append", "close", "get", "items", "join", "pop", "put", "read", "recv", "run"),
        *("send", "start", "stop", "update", "wait", "write"),
    )
)
"""Names that methods of many classes have: a call of one says nothing about another."""


class Loop(NamedTuple):
    """A loop of the program that leads to a statement in each of its rounds."""

    file: str
    first: int
    last: int
    function: str
    is_async: bool

    @property
    def words(self) -> str:
        """`main.py:51-57 bench_worker`, of a coroutine with `async` before its name."""
        name = self.file.rpartition("/")[2]
        kind = "async " if self.is_async else ""
        return f"{name}:{self.first}-{self.last} {kind}{self.function}"


class Call(NamedTuple):
    """A call of a function, or a function that is given to one."""

    name: str
    loop: Loop | None
    """The outermost loop of its function around it."""
    callers: tuple[str, ...]
    """The names by which its function is called; of a method that makes an object, its class."""


class Repeatable(NamedTuple):
    """A statement that keeps something more each time that it is reached."""

    mark: Mark
    """Its `about` without the loop."""
    by: tuple[str, ...]
    """The names whose calls lead to it."""
    loop: Loop | None = None
    """The outermost loop of its own function around it."""
    is_called: bool = False
    """Whether something outside of the program calls its function again and again."""


def calls_of(file: str, module: ParsedFile) -> tuple[Call, ...]:
    """The calls of a file, with the loops around them."""
    return tuple(_calls(file, module.tree))


def _calls(file: str, tree: ast.Module) -> Iterator[Call]:
    for function, owner in functions_of(tree):
        name = getattr(function, "name", "<module>")
        callers = (name,) if owner is None or name != "__init__" else (owner.name,)
        nodes = list(own_nodes(function))
        loops = [each for each in nodes if isinstance(each, LOOPS)][:_LOOPS_OF_FUNCTION]
        for call in (each for each in nodes if isinstance(each, ast.Call)):
            loop = loop_around(file, function, loops, call)
            given = [*call.args, *(each.value for each in call.keywords)]
            for each in (call.func, *given):
                if (called := last_name(each)) and called not in _ORDINARY:
                    yield Call(called, loop, callers)


def loop_around(
    file: str, function: ast.AST, nodes: Iterable[ast.AST], inside: ast.AST
) -> Loop | None:
    """The outermost loop of a function that reaches a piece of its syntax in each round.

    Args:
        file: The path.
        function: The function, or the file.
        nodes: Its own syntax, or the loops of that.
        inside: The piece.
    """
    around = [each for each in nodes if isinstance(each, LOOPS) and _repeats(each, inside)]
    if not around:
        return None
    outer, name = min(around, key=first_line), getattr(function, "name", "<module>")
    is_async = isinstance(function, ast.AsyncFunctionDef)
    return Loop(file, first_line(outer), last_line(outer), name, is_async)


def _repeats(loop: ast.For | ast.While | ast.AsyncFor, inside: ast.AST) -> bool:
    """Whether a piece of syntax is in the body of a loop, or the condition of a `while`.

    What a `for` goes through is made once.
    """
    first = loop if isinstance(loop, ast.While) else loop.body[0]
    return first_line(first) <= first_line(inside) <= last_line(loop.body[-1])


def functions_of(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.ClassDef | None]]:
    """The file and its functions, each with the class that it is a method of."""
    methods = {
        id(each): node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
    }
    yield tree, None
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            yield node, methods.get(id(node))


def _loops_to(found: Repeatable, calls: Mapping[str, Sequence[Call]]) -> list[Loop]:
    """The loops of a program in whose rounds a statement is reached, nearest first."""
    loops = [found.loop] if found.loop is not None else []
    seen = set(found.by)
    level = list(found.by)
    for _ in range(_CALLS_UP):
        above: list[str] = []
        for call in (each for name in level for each in calls.get(name, ())):
            if call.loop is not None and call.loop not in loops:
                loops.append(call.loop)
                if len(loops) >= _LOOPS_OF_ONE:
                    return loops
            above += [name for name in call.callers if name not in seen]
            seen.update(call.callers)
        level = above
    return loops


def repeated(
    found: Iterable[Repeatable], calls: Mapping[str, Sequence[Call]]
) -> Iterator[tuple[Repeatable, Mark]]:
    """The statements that a loop of the program repeats, with one mark for each of the loops."""
    for each in found:
        where = [loop.words for loop in _loops_to(each, calls)]
        if not where and each.is_called:
            where = [f"each call of {each.mark.function}()"]
        for words in where:
            yield each, each.mark._replace(about=f"{each.mark.about}; {words}")
