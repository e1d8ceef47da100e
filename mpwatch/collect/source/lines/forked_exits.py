"""Ways out of a forked process that run what it has inherited, and what that removes.

`sys.exit()` raises, so that blocks entered before the fork end in the child as well, and the end of
the interpreter calls the functions registered with atexit and weakref.finalize in the parent.
`os._exit()` does neither. multiprocessing leaves its own forked children by that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    SHOWN,
    Found,
    argument_of,
    every_node,
    expression_text,
    functions_by_name,
    imported_roots,
    last_name,
    of_file,
    own_nodes,
    receiver_of,
)

_FOLDERS: Final = frozenset(("TemporaryDirectory", "mkdtemp"))
_REMOVES: Final = frozenset(("cleanup", "removedirs", "rmtree"))
_EXITS: Final = frozenset(("exit", "quit"))
_AT_ONCE: Final = frozenset(
    ("_exit", "execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe")
)


def find_forked_exits(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`sys.exit(0)` in the process that `os.fork()` has made, but where `os._exit()` follows it."""
    if any(map(_is_fork, nodes)):
        forks = {
            target.id: node.lineno
            for node in nodes
            if isinstance(node, ast.Assign) and _is_fork(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for line, node in _in_child(getattr(function, "body", ()), forks, 0):
            yield "forked-exit", str(line), node


def _is_fork(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and last_name(node.func) == "fork"
        and receiver_of(node) in ("", "os")
    )


def _in_child(
    statements: Sequence[ast.stmt], forks: Mapping[str, int], line: int
) -> Iterator[tuple[int, ast.stmt]]:
    """The exits that a forked process reaches, with the line of the fork.

    Args:
        statements: A block.
        forks: The variables that have a result of os.fork(), with the line of that call.
        line: Of the fork by which the process was made that is here; 0 for the first.
    """
    for node in statements:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.If) and (branches := _branches(node, forks)) is not None:
            fork, child, parent = branches
            yield from _in_child(child, forks, fork)
            yield from _in_child(parent, forks, line)
            if parent and _leaves(parent[-1]) and not all(map(_is_exit, parent)):
                line = fork  # else the child is the program from here on, as a daemon
            continue
        if line and _is_exit(node):
            yield line, node
        if line and _ends_at_once(node):
            return  # what follows is for a program that could not be started
        if isinstance(node, ast.Try) and (
            any(map(_ends_at_once, (*node.body, *node.finalbody)))
            or any(map(_catches, node.handlers))
        ):
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from _in_child(getattr(node, block, ()), forks, line)
        for handler in getattr(node, "handlers", ()):
            yield from _in_child(handler.body, forks, line)


def _branches(
    node: ast.If, forks: Mapping[str, int]
) -> tuple[int, Sequence[ast.stmt], Sequence[ast.stmt]] | None:
    """The line of a fork, and what the child and the parent do; `None` for another condition."""
    test, is_child = node.test, False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, is_child = test.operand, True
    elif isinstance(test, ast.Compare) and getattr(test.comparators[0], "value", None) == 0:
        if len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.NotEq | ast.Gt):
            return None
        is_child = isinstance(test.ops[0], ast.Eq)
        test = test.left
    test = test.value if isinstance(test, ast.NamedExpr) else test
    line = test.lineno if _is_fork(test) else forks.get(expression_text(test), 0)
    if not line:
        return None
    return (line, node.body, node.orelse) if is_child else (line, node.orelse, node.body)


def _leaves(node: ast.stmt) -> bool:
    return isinstance(node, ast.Return | ast.Raise) or _is_exit(node) or _ends_at_once(node)


def _is_exit(node: ast.stmt) -> bool:
    """`sys.exit(0)`, `exit()`, `raise SystemExit`."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return last_name(raised) == "SystemExit"
    call = node.value if isinstance(node, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and last_name(call.func) in _EXITS
        and receiver_of(call) in ("", "sys")
    )


def _ends_at_once(node: ast.stmt) -> bool:
    """`os._exit(0)`, or `os.execv(...)`: nothing that is inherited is run."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and last_name(call.func) in _AT_ONCE


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether it catches SystemExit."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(e is None or last_name(e) in ("BaseException", "SystemExit") for e in caught)


def find_removed_folders(tree: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """What removes a temporary folder, at the end of a block or of whichever process ends.

    `atexit.register(self.remove)`, where that calls shutil.rmtree() and does not ask for
    os.getpid(), and `TemporaryDirectory()`, which is removed by itself.
    """
    patterns = of_file(tree, _folders)
    if not patterns:
        return
    kept = {id(e.value) for e in nodes if isinstance(e, ast.Assign) and _is_kept(e)}
    inside = _in_blocks(nodes)
    for call in (each for each in nodes if isinstance(each, ast.Call)):
        if last_name(call.func) == "TemporaryDirectory":
            if own := _pattern(call):
                yield "removes-folder", f"{'exit' if id(call) in kept else 'block'}; {own}; ", call
        elif id(call) in inside and _removes(call):
            for pattern in patterns[:SHOWN]:
                yield "removes-folder", f"block; {pattern}; ", call
        elif (removes := _registered(tree, call)) is not None:
            by = "" if removes is call else f"{expression_text(removes)} in line {removes.lineno}"
            for pattern in patterns[:SHOWN]:
                yield "removes-folder", f"exit; {pattern}; {by}", call


def _is_kept(node: ast.Assign) -> bool:
    """Whether it gives an attribute a value, which then outlives the function."""
    return any(isinstance(target, ast.Attribute) for target in node.targets)


def _in_blocks(nodes: Sequence[ast.AST]) -> set[int]:
    """The ids of the syntax of `finally` clauses; outer ones come first in `own_nodes`."""
    found: set[int] = set()
    for node in nodes:
        for each in node.finalbody if isinstance(node, ast.Try) else ():
            if id(each) not in found:
                found.update(map(id, ast.walk(each)))
    return found


def _folders(tree: ast.Module) -> Sequence[str]:
    """The names that a file gives to temporary folders which it removes itself."""
    if "tempfile" not in imported_roots(tree):
        return ()
    calls = [each for each in every_node(tree) if isinstance(each, ast.Call)]
    found = (_pattern(each) for each in calls if last_name(each.func) in _FOLDERS)
    return tuple(dict.fromkeys(each for each in found if each))


def _pattern(call: ast.Call) -> str:
    """`streams-????????` of `mkdtemp(prefix="streams-")`; empty where it is not written out."""
    parts = [
        "".join(_written(argument_of(call, name, place), otherwise))
        for name, place, otherwise in (("prefix", 1, "tmp"), ("suffix", 0, ""))
    ]
    return f"{parts[0]}????????{parts[1]}" if parts[0].strip("*") else ""


def _written(text: ast.expr | None, otherwise: str) -> Iterator[str]:
    """The parts of a text, each that is not written out as `*`."""
    if text is None:
        yield otherwise
        return
    for each in text.values if isinstance(text, ast.JoinedStr) else [text]:
        value = getattr(each, "value", None)
        yield value if isinstance(value, str) else "*"


def _registered(tree: ast.Module, call: ast.Call) -> ast.Call | None:
    """The call by which a function removes something that is called as an interpreter ends."""
    is_atexit = last_name(call.func) == "register" and receiver_of(call) in ("", "atexit")
    place = 0 if is_atexit else 1 if last_name(call.func) == "finalize" else None
    if place is None or len(call.args) <= place or "getpid" in expression_text(call):
        return None
    given = call.args[place]
    name = last_name(given)
    if name in _REMOVES:
        return call
    function = functions_by_name(tree).get(name)
    nodes = own_nodes(function) if function is not None else ()
    if isinstance(given, ast.Lambda):
        nodes = tuple(ast.walk(given))
    if any(isinstance(n, ast.Name | ast.Attribute) and last_name(n) == "getpid" for n in nodes):
        return None
    return next((n for n in nodes if isinstance(n, ast.Call) and _removes(n)), None)


def _removes(call: ast.Call) -> bool:
    """`shutil.rmtree(path)`, or another removal of a folder."""
    return last_name(call.func) in _REMOVES
