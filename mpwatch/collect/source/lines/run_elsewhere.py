"""Functions that the code around them does not call: handlers of signals, and what threads run.

What they set changes at a moment that the code which tests it does not decide. By names as they are
written: a task of a pool counts where the file shows that the pool is one of threads.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from mpwatch.collect.source.call_graph import Function, Program, Site, assignments, expressions_of
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    argument_of,
    bindings,
    last_name,
    parameters,
    receiver_of,
)

_SIGNALS: Final = 3
"""Signals of one handler that are named."""
_CALLERS: Final = 8
"""With more calls of a function it is not looked who makes them."""
_POOLS: Final = frozenset(("ThreadPool", "ThreadPoolExecutor"))
_FUTURES: Final = frozenset(("run_coroutine_threadsafe", "submit"))
"""Calls whose future runs its callbacks on another thread."""
_TARGETS: Final[Mapping[str, tuple[str, int]]] = {
    "Thread": ("target", 1),
    "Timer": ("function", 1),
    "run_in_executor": ("func", 1),
    "start_new_thread": ("function", 0),
    "to_thread": ("func", 0),
}
"""Calls that run a function on another thread: its argument, with the place of that."""


class Start(NamedTuple):
    """A statement by which functions run where the code around does not call them."""

    kind: Literal["signal", "thread"]
    about: str
    """The signals, `SIGTERM or SIGUSR1`; empty for a thread, or where they are not known."""
    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]


class RunElsewhere:
    """The functions of a program that only handlers of signals, or only other threads, run.

    Raises:
        TooMuchToFollow: All statements and calls are more than `call_graph.STEPS`.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._pools = _given_by(program, _POOLS)
        self._futures = _given_by(program, _FUTURES)
        self._starts: dict[int, Start] = {}
        """By the function, or by the statement of a lambda."""
        self._functions: list[Function] = []
        for function in program.functions:
            program.spend(len(function.statements))
            for statement, parents in function.statements:
                if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                    self._add_statement(Site(function, function, None, statement, parents))
            if _is_run_of_thread(program, function):
                self._add(function, Start("thread", "", function, function.node, ()))
        self._add_called()
        self.events: dict[str, tuple[Site, Start]] = {}
        """The events that handlers of signals set, by their names."""
        for function in program.functions:
            program.spend(len(function.statements))
            for statement, parents in function.statements:
                site = Site(function, function, None, statement, parents)
                start = self.start_of(function, statement)
                if start is not None and start.kind == "signal":
                    self.events |= dict.fromkeys(_events_set(statement), (site, start))

    def start_of(self, function: Function, statement: ast.AST) -> Start | None:
        """What runs a statement elsewhere; `None` for one of the code that calls it itself."""
        return self._starts.get(id(function)) or self._starts.get(id(statement))

    def of_file(self, file: str) -> Iterator[Function]:
        """The functions of a file that run elsewhere."""
        return (each for each in self._functions if each.file == file)

    def _add_statement(self, site: Site) -> None:
        for node in expressions_of(site.statement):
            if not isinstance(node, ast.Call):
                continue
            handler = _handler(node)
            if handler is not None:
                about = " or ".join(_signals(self._program, node.args[0], site.caller))
                self._start(site, Start("signal", about, *_at(site)), handler)
                continue
            for given in self._on_threads(node):
                self._start(site, Start("thread", "", *_at(site)), given)

    def _start(self, site: Site, start: Start, given: ast.expr) -> None:
        if isinstance(given, ast.Lambda):
            self._starts.setdefault(id(site.statement), start)
            called = [each.func for each in ast.walk(given) if isinstance(each, ast.Call)]
        else:
            called = [given] if isinstance(given, ast.Name | ast.Attribute) else []
        for each in called:
            functions = self._program.called_by(each, site.caller)
            self._program.spend(1 + len(functions))
            for function in functions:
                self._add(function, start)

    def _on_threads(self, call: ast.Call) -> Iterator[ast.expr]:
        """What a call gives to another thread to run."""
        name = last_name(call.func)
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        given: list[ast.expr | None] = []
        if name in _TARGETS:
            given = [argument_of(call, *_TARGETS[name])]
        elif name in ("submit", "apply_async") and of is not None and last_name(of) in self._pools:
            given = list(call.args[:1])
        elif name == "add_done_callback" and of is not None:
            made = last_name(of.func) if isinstance(of, ast.Call) else ""
            if made in _FUTURES or last_name(of) in self._futures:
                given = list(call.args[:1])
        if name == "apply_async":
            given += [e.value for e in call.keywords if e.arg in ("callback", "error_callback")]
        yield from filter(None, given)

    def _add(self, function: Function, start: Start) -> bool:
        if id(function) in self._starts or function.name == "__init__":
            return False
        if start.kind == "thread":
            self._program.spend(len(function.callers))
            if any(each.call is not None for each in function.callers):
                return False
        self._starts[id(function)] = start
        self._functions.append(function)
        return True

    def _add_called(self) -> None:
        """Add what nothing but functions that run elsewhere calls."""
        waiting = deque(self._functions)
        while waiting:
            function = waiting.popleft()
            start = self._starts[id(function)]
            self._program.spend(len(function.calls))
            for called in {id(each.called): each.called for each in function.calls}.values():
                callers = called.callers[: _CALLERS + 1]
                is_only = len(callers) <= _CALLERS and all(
                    self._starts.get(id(each.caller)) is start for each in callers
                )
                if is_only and id(called) not in self._starts and called.name != "__init__":
                    self._starts[id(called)] = start
                    self._functions.append(called)
                    waiting.append(called)


def _at(site: Site) -> tuple[Function, ast.AST, tuple[ast.AST, ...]]:
    return site.caller, site.statement, site.parents


def _handler(call: ast.Call) -> ast.expr | None:
    """What a call makes the handler of a signal: `signal.signal(signum, self.stop)`."""
    name = last_name(call.func)
    is_signal = name == "signal" and receiver_of(call) in ("", "signal")
    if len(call.args) < 2 or not (is_signal or name == "add_signal_handler"):
        return None
    return call.args[1]


def _signals(program: Program, value: ast.expr, function: Function) -> list[str]:
    """The signals that an expression is, as far as a default, a constant or a loop shows."""
    values = [value]
    if isinstance(value, ast.Name) and not value.id.startswith("SIG"):
        default = _default(function.node, value.id)
        outside = program.globals.get((function.file, value.id), [])
        given = function.assigned.get(value.id) or outside
        values = [*function.iterated.get(value.id, []), *given]
        values += [default] if default is not None else []
        program.spend(len(values))
    names = [last_name(each) for each in values if isinstance(each, ast.Name | ast.Attribute)]
    found = [each for each in names if each.startswith("SIG")]
    return found[:_SIGNALS] if len(found) == len(values) else []


def _default(node: ast.AST, name: str) -> ast.expr | None:
    if not isinstance(node, FUNCTIONS):
        return None
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    defaults = dict(zip(names[::-1], node.args.defaults[::-1], strict=False))
    only = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    defaults |= {each.arg: value for each, value in only if value is not None}
    return defaults.get(name) if name in parameters(node) or name in defaults else None


def _is_run_of_thread(program: Program, function: Function) -> bool:
    """Whether it is the `run` of a class that is derived from Thread."""
    if function.name != "run" or function.owner is None:
        return False
    bases = [base for each in program.family(function.owner) for base in each.node.bases]
    return any(last_name(each) in ("Thread", "QThread", "Timer") for each in bases)


def _given_by(program: Program, calls: frozenset[str]) -> frozenset[str]:
    """The names that are given what one of some functions returns."""
    found: set[str] = set()
    for function in program.functions:
        program.spend(len(function.statements))
        for statement, _ in function.statements:
            pairs = list(assignments(statement))
            if isinstance(statement, ast.With | ast.AsyncWith):
                pairs += bindings(statement)
            found |= {
                last_name(target)
                for target, value in pairs
                if isinstance(value, ast.Call) and last_name(value.func) in calls
            }
    return frozenset(found)


def _events_set(statement: ast.AST) -> Iterator[str]:
    """`stop` of `self.stop.set()`."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return
    for node in expressions_of(statement):
        of = node.func if isinstance(node, ast.Call) and not node.args else None
        if isinstance(of, ast.Attribute) and of.attr == "set":
            yield last_name(of.value)
