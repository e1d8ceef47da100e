"""The names whose values decide: those in conditions and loops, and what is added to containers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from mpwatch.collect.source.growth.kept import (
    container_of,
    is_small_value,
    names_dropped_from,
    names_set,
    variables_of,
)
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LEAVES,
    LOOPS,
    ParsedFile,
    adds_entry,
    children,
    every_node,
    first_line,
    functions_in,
    imported_names,
    last_line,
    last_name,
    of_file,
    own_nodes,
    quoted,
    within,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import AddedTo, Decider

DECIDERS: Final = 12
"""Conditions and loops kept of one function."""
ADDED: Final = 16
"""Containers and attributes kept of one function."""
NAMES: Final = 6
"""Names kept of one condition."""
NAME_LENGTH: Final = 80


class ClassOfProgram(NamedTuple):
    """A class, and the file that defines it."""

    file: str
    module: ParsedFile
    node: ast.ClassDef


def deciders(
    module: ParsedFile,
    function: ast.AST,
    inside: Sequence[ast.AST],
    others: Iterable[ParsedFile] = (),
) -> Iterator[Decider]:
    """The conditions and loops of a function; those around a line first, then the others in order.

    Args:
        module: The file.
        function: The function, or the file.
        inside: Its statements around the line, outermost first, and the one at the line.
        others: Files in which objects of the program may count, `self.batch += 1` of the one that
            is `state.timestamp` here.
    """
    counted = set(_counted(module.tree))
    elsewhere = {n for each in others for n in of_file(each.tree, _counted_attributes)}
    own = {
        each.id
        for each in own_nodes(function)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    unknown = imported_names(module.tree) - own
    around = [each for each in inside if isinstance(each, (ast.If, *LOOPS))]
    found = [node for node, _ in within([child for _, child in children(function)])]
    beside = [each for each in found if isinstance(each, (ast.If, *LOOPS)) and each not in around]
    kept = [*around, *beside][:DECIDERS]
    for node in sorted(kept, key=first_line):
        asked = node.test if isinstance(node, ast.If | ast.While) else node.iter
        names = [each for each in _names(asked) if each.partition(".")[0] not in unknown]
        counts = [
            each
            for each in names
            if each in counted or ("." in each and each.rpartition(".")[2] in elsewhere)
        ]
        if isinstance(node, ast.For | ast.AsyncFor):
            counts = list(_counters(node))
        starts = starts_of(module.tree, node) if isinstance(node, ast.For) else ()
        if names or counts:
            yield Decider(
                quoted(module, node),
                max(map(last_line, node.body)),
                tuple(dict.fromkeys(names))[:NAMES],
                tuple(counts)[:NAMES],
                isinstance(node, ast.If) and isinstance(node.body[-1], LEAVES),
                tuple(each for each in starts if each in names)[:NAMES],
            )


def starts_of(tree: ast.Module, loop: ast.For) -> Sequence[str]:
    """The names in the first number of `for epoch in range(first, last):`, set once before it.

    Not those that the last number, a statement of the loop or a function called in it uses or sets:
    what is counted there is not where the loop began.
    """
    made = loop.iter
    is_range = isinstance(made, ast.Call) and last_name(made.func) in ("range", "trange")
    if not is_range or len(made.args) != 2:  # type: ignore[attr-defined]
        return ()
    first, last = made.args  # type: ignore[attr-defined]
    inside = [each for statement in loop.body for each in ast.walk(statement)]
    called = {last_name(each.func) for each in inside if isinstance(each, ast.Call)}
    within_it = [n for each in functions_in(tree) if each.name in called for n in own_nodes(each)]
    changed = {name for node in (*inside, *within_it) for name in names_set(node)}
    changed |= {
        _dotted(each.target) for each in (*inside, *within_it) if isinstance(each, ast.AugAssign)
    }
    later = set(_names(last))
    return [each for each in _names(first) if each not in changed and each not in later]


def _names(asked: ast.expr) -> Iterator[str]:
    """The names in an expression, but for those of what it calls."""
    waiting: list[ast.AST] = [asked]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Name | ast.Attribute):
            name = _dotted(node)
            if name and name not in ("self", "cls"):
                yield name
            if name:
                continue
        if isinstance(node, ast.Call):
            waiting += [*node.args, *(each.value for each in node.keywords)]
            # `queue.empty()` depends on the queue, `is_done(state)` on no variable of that name.
            if isinstance(node.func, ast.Attribute):
                waiting.append(node.func.value)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp):
            waiting += ast.iter_child_nodes(node)


def _dotted(node: ast.AST) -> str:
    """`self.state.step`; empty for what is no name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    name = ".".join([node.id, *reversed(parts)])
    return name if len(name) <= NAME_LENGTH and name.isascii() else ""


def _counted(tree: ast.AST) -> Iterator[str]:
    """The names that a file adds to, `self.step += 1`."""
    for node in every_node(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
            yield _dotted(node.target)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            for target in node.targets:
                name = _dotted(target)
                if name and name == _dotted(node.value.left):
                    yield name


def _counted_attributes(tree: ast.AST) -> frozenset[str]:
    """The attributes of its objects that a file adds to: `batch` of `self.batch += 1`."""
    names = (each for each in _counted(tree) if each.startswith("self."))
    return frozenset(each.removeprefix("self.") for each in names)


def _counters(node: ast.For | ast.AsyncFor) -> Iterator[str]:
    """The variable that counts the rounds of a loop: over a range, or the first of enumerate."""
    made = last_name(node.iter.func) if isinstance(node.iter, ast.Call) else ""
    if made in ("range", "trange", "count") and isinstance(node.target, ast.Name):
        yield node.target.id
    elif made == "enumerate" and isinstance(node.target, ast.Tuple):
        yield _dotted(node.target.elts[0])


def added_to(
    file: str,
    module: ParsedFile,
    function: ast.AST,
    class_of: Callable[[str], ClassOfProgram | None],
) -> Iterator[AddedTo]:
    """What a function can reach that is added to: its own variables, and attributes of its object.

    Also attributes of objects of the program's classes that it, or its object, has made.

    Args:
        file: The path.
        module: The file.
        function: The function, or the file.
        class_of: The class of a name, if the program has exactly one such.
    """
    yield from islice(_added_to(file, module, function, class_of), ADDED)


def _added_to(
    file: str,
    module: ParsedFile,
    function: ast.AST,
    class_of: Callable[[str], ClassOfProgram | None],
) -> Iterator[AddedTo]:
    own = list(own_nodes(function))
    emptied = {name for node in own for name in names_dropped_from(node)}
    name_of = getattr(function, "name", "<module>")
    for name, node in _added(own):
        if not name.startswith(("self.", "cls.")):
            yield _made(file, module, name_of, name, node, name in emptied)
    owner = next(
        (
            each
            for each in every_node(module.tree)
            if isinstance(each, ast.ClassDef) and function in each.body
        ),
        None,
    )
    nodes = own
    if owner is not None:
        mine = ClassOfProgram(file, module, owner)
        yield from _of_class(mine, "self")
        nodes = [*own, *(node for each in owner.body for node in own_nodes(each))]
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = class_of(last_name(node.value.func))
            holder = _dotted(node.targets[0])
            is_own = holder.startswith("self.") or node in own
            if made is not None and holder and is_own:
                yield from _of_class(made, holder)


def _of_class(found: ClassOfProgram, holder: str) -> Iterator[AddedTo]:
    """The attributes of an object of a class that its methods add to."""
    methods = [each for each in found.node.body if isinstance(each, FUNCTIONS)]
    later = [n for each in methods if each.name != "__init__" for n in own_nodes(each)]
    emptied = {container_of(name) for name in _emptied(later)}
    removing = [
        (name, method.name, statement)
        for method in methods
        if method.name != "__init__"
        for statement in own_nodes(method)
        if isinstance(statement, ast.stmt)
        for node in _expressions(statement)
        if _is_of_one_entry(node)
        for name in names_dropped_from(node)
    ]
    told = set()
    for method in methods:
        for name, node in _added(list(own_nodes(method))):
            if name.startswith("self.") and name not in told:
                told.add(name)
                shown = f"{holder}{name.removeprefix('self')}"
                made = _made(
                    found.file,
                    found.module,
                    method.name,
                    shown,
                    node,
                    container_of(name) in emptied,
                )
                removals = [each for each in removing if each[0] == name]
                if len(removals) == 1:
                    _, where, statement = removals[0]
                    by = quoted(found.module, statement)
                    made = made._replace(removed_in=clean(where, NAME_LENGTH), removed_by=by)
                yield made
    if any(
        isinstance(node, ast.Attribute) and node.attr in ("detach", "detach_", "data")
        for node in ast.walk(found.node)
    ):
        return  # what is carried may be cut off from its graph in each round
    made_anew = {name for node in later for name in names_set(node)}
    for method in methods:
        if method.name == "__init__":
            continue
        for node in own_nodes(method):
            used = variables_of(node.value) if isinstance(node, ast.Assign) else set()
            for target in node.targets if isinstance(node, ast.Assign) else ():
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    name = _dotted(part)
                    is_carried = name in used and name not in made_anew
                    if name.startswith("self.") and is_carried and name not in told:
                        told.add(name)
                        shown = f"{holder}{name.removeprefix('self')}"
                        made = _made(found.file, found.module, method.name, shown, node, False)
                        yield made._replace(is_carried=True)


def _is_of_one_entry(node: ast.AST) -> bool:
    """Whether something removes the entry of a key, or a given element: not the oldest or any."""
    if isinstance(node, ast.Delete):
        return all(isinstance(each, ast.Subscript) for each in node.targets)
    is_call = isinstance(node, ast.Call) and bool(node.args)
    return is_call and not isinstance(node.args[0], ast.Constant)  # type: ignore[attr-defined]


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement and its expressions, without the statements in it."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield from ast.walk(child)


def _made(
    file: str, module: ParsedFile, function: str, name: str, node: ast.AST, is_emptied: bool
) -> AddedTo:
    return AddedTo(name, file, clean(function, NAME_LENGTH), quoted(module, node), is_emptied)


def _added(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """The containers to which statements add, as they are written."""
    for node in sorted(nodes, key=first_line):
        name = ""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call, given = node.value.func, node.value.args
            is_small = bool(given) and is_small_value(given[-1])
            if isinstance(call, ast.Attribute) and adds_entry(node.value) and not is_small:
                name = _dotted(call.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            into = node.targets[0].slice
            if not isinstance(into, ast.Constant | ast.Slice) and not is_small_value(node.value):
                name = _dotted(node.targets[0].value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            name = "" if is_small_value(node.value) else _dotted(node.target)
        if name:
            yield name, node


def _emptied(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The containers from which statements remove something, or that they make anew."""
    for node in nodes:
        yield from names_dropped_from(node)
        yield from (name for name in names_set(node) if "[" not in name)
