"""Profilers of torch that keep a record of all that runs, started for all rounds of a loop.

`torch.profiler.profile` without `schedule=` and `torch.autograd.profiler.profile` keep each
operator until they are stopped, `torch.cuda.memory._record_memory_history` without `max_entries`
each allocation (torch 2.0 to 2.13). That is meant for some steps; over a whole run memory rises.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    bindings,
    every_node,
    expression_text,
    first_line,
    functions_in,
    is_inside,
    last_line,
    last_name,
    own_nodes,
    receiver_of,
)

HISTORY: Final = "_record_memory_history"
_STARTS: Final = frozenset(("__enter__", "start"))
_STOPS: Final = frozenset(("__exit__", "stop"))
_PER_STEP: Final = re.compile(r"batch|before|call|each|forward|iter|request|sample|step")
"""In the name of a function that is called in each step."""
_COUNTS: Final = re.compile(r"batch|count|epoch|iter|round|step|\b(?:i|n|num)\b", re.IGNORECASE)
"""In a condition on which step it is."""


class _Run(NamedTuple):
    """A profiler that is started."""

    profiler: str
    """Its name, or that of the function that records."""
    start: ast.AST
    lines: tuple[int, int] | None
    """Those that run meanwhile; `None` where its function does not show them."""
    enters: str
    """The class whose `with` block they are; empty for none."""


def find_recordings(tree: ast.Module) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """The profilers of a file that may record all of a loop.

    Yields:
        The function that makes the profiler, what `Mark.about` says, and the call.
    """
    makers = _makers(tree)
    scopes = [tree, *functions_in(tree)]
    calls = [
        (scope, node)
        for scope in scopes
        for node in own_nodes(scope)
        if isinstance(node, ast.Call)
        and (expression_text(node.func) in makers or last_name(node.func) == HISTORY)
    ]
    if not calls:
        return
    made = _made(tree, makers)
    classes = {
        id(each): node.name
        for node in every_node(tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
    }
    for scope, call in calls:
        name = last_name(call.func)
        if not _keeps_all(call):
            continue
        texts = [text for text, found in made.items() if found == [call]]
        for of in scopes if name != HISTORY else [scope]:
            local = [each for each in texts if "." in each or of is scope]
            run = next(_runs(tree, of, call, local, classes.get(id(of), "")), None)
            if run is not None:
                where = f"{run.lines[0]}-{run.lines[1]}" if run.lines is not None else ""
                block = f"with {run.enters}" if run.enters else where
                yield scope, f"{run.profiler}, {first_line(run.start)}, {block}", call
                break


def _makers(tree: ast.Module) -> frozenset[str]:
    """What a file calls the profilers of torch: `profile`, `torch.profiler.profile`."""
    found: set[str] = set()
    for node in every_node(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name == "torch":
                    root = each.asname or "torch"
                    found |= {f"{root}.profiler.profile", f"{root}.autograd.profiler.profile"}
                elif each.name in _MODULES:
                    found.add(f"{each.asname or each.name}.profile")
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                name = each.asname or each.name
                if node.module in _MODULES and each.name == "profile":
                    found.add(name)
                elif f"{node.module}.{each.name}" in _MODULES:
                    found.add(f"{name}.profile")
    return frozenset(found)


_MODULES: Final = frozenset(("torch.profiler", "torch.autograd.profiler"))


def _keeps_all(call: ast.Call) -> bool:
    """Whether nothing in a call says how much is recorded."""
    given = {each.arg: getattr(each.value, "value", ...) for each in call.keywords}
    first = getattr(call.args[0], "value", ...) if call.args else ...
    if None in given:
        return False  # `**options`
    if last_name(call.func) == HISTORY:
        is_limited = any("max_entries" in (name or "") for name in given)
        is_limited = is_limited and given.get("max_entries", ...) is not None
        # A bool is of the interface before torch 2.1, which keeps one entry.
        return not (is_limited or _is_end(call) or isinstance(first, bool) or len(call.args) > 1)
    return (
        given.get("schedule") is None and given.get("enabled") is not False and first is not False
    )


def _is_end(call: ast.Call) -> bool:
    """Whether a call of `HISTORY` ends the recording: `_record_memory_history(enabled=None)`."""
    values = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "enabled")]
    return any(isinstance(each, ast.Constant) and not each.value for each in values)


def _made(tree: ast.Module, makers: frozenset[str]) -> Mapping[str, Sequence[ast.Call]]:
    """The variables and attributes that are given a profiler, and all profilers of each."""
    found: defaultdict[str, list[ast.Call]] = defaultdict(list)
    for node in every_node(tree):
        for target, value in bindings(node):
            found[expression_text(target)] += (
                each
                for each in ast.walk(value)
                if isinstance(each, ast.Call) and expression_text(each.func) in makers
            )
    return found


def _runs(
    tree: ast.Module, function: ast.AST, made: ast.Call, names: Sequence[str], owner: str
) -> Iterator[_Run]:
    """How a profiler runs in a function, as far as it runs in all rounds of a loop.

    Args:
        tree: The file.
        function: The function, or the file.
        made: The call that makes the profiler, or that records.
        names: The variables and attributes that have it here.
        owner: The class of the function; empty for none.
    """
    nodes = own_nodes(function)
    loops = [each for each in nodes if isinstance(each, LOOPS)]
    profiler = expression_text(made.func)
    for node in nodes:
        if any(is_inside(node, loop) for loop in loops):
            continue  # each round has one of its own
        if isinstance(node, ast.With):
            given = [each.context_expr for each in node.items]
            if any(_is_of(each, made, names) for each in given) and not _stopped(node, names):
                yield _Run(profiler, node, (first_line(node), last_line(node)), "")
        elif isinstance(node, ast.Call):
            is_own = node is made and last_name(made.func) == HISTORY
            is_entered = last_name(node.func) == "enter_context" and any(
                _is_of(each, made, names) for each in node.args
            )
            is_started = last_name(node.func) in _STARTS and (
                receiver_of(node) in names or getattr(node.func, "value", None) is made
            )
            if is_own or is_entered or is_started:
                yield from _started(tree, function, profiler, node, names, owner)


def _is_of(given: ast.expr, made: ast.Call, names: Sequence[str]) -> bool:
    """Whether an expression is the profiler: the call, `self.session`, `p if is_on else None`."""
    return expression_text(given) in names or any(each is made for each in ast.walk(given))


def _ends_in(nodes: Sequence[ast.AST], names: Sequence[str]) -> list[ast.Call]:
    """The calls that stop a profiler, or the recording where it has no name."""
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    if not names:
        return [each for each in calls if last_name(each.func) == HISTORY and _is_end(each)]
    return [e for e in calls if last_name(e.func) in _STOPS and receiver_of(e) in names]


def _stopped(block: ast.AST, names: Sequence[str]) -> bool:
    return bool(names and _ends_in(own_nodes(block), names))


def _started(
    tree: ast.Module,
    function: ast.AST,
    profiler: str,
    start: ast.Call,
    names: Sequence[str],
    owner: str,
) -> Iterator[_Run]:
    """A profiler that a call starts, unless it is stopped within a loop or after some steps."""
    nodes, first = own_nodes(function), first_line(start)
    loops = [each for each in nodes if isinstance(each, LOOPS) and first_line(each) > first]
    ends = [first_line(each) for each in _ends_in(nodes, names) if first_line(each) >= first]
    name = function.name if isinstance(function, FUNCTIONS) else ""
    if ends:
        if any(last_line(loop) < min(ends) for loop in loops):
            yield _Run(profiler, start, (first, min(ends)), "")
        return
    if _PER_STEP.search(name) or _is_counted(nodes, start):
        return
    for each in (tree, *functions_in(tree)):
        for end in _ends_in(own_nodes(each), names):
            of = each.name if isinstance(each, FUNCTIONS) else ""
            if _PER_STEP.search(of) or _is_counted(own_nodes(each), end):
                return
    if name == "__enter__" and owner:
        yield _Run(profiler, start, None, owner)
    elif loops:
        yield _Run(profiler, start, (first, max(map(last_line, nodes))), "")
    else:
        yield _Run(profiler, start, None, "")


def _is_counted(nodes: Sequence[ast.AST], call: ast.AST) -> bool:
    """Whether a call is made in a certain step only: `if step == 20: prof.stop()`."""
    return any(
        isinstance(each, ast.If)
        and is_inside(call, each)
        and any(isinstance(part, ast.Compare) for part in ast.walk(each.test))
        and _COUNTS.search(expression_text(each.test)) is not None
        for each in nodes
    )
