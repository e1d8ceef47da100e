"""Parsed source files: which statements are around a line, and statements as words."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias, TypeVar

from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import MarkKind, Statement

QUOTE_LIMIT: Final = 100
"""Characters of a quoted statement."""
ROWS: Final = 8
"""Lines of a quoted statement."""


EXPRESSION_NODES: Final = 64
"""A longer expression is not compared with others."""
SHOWN: Final = 3
Found: TypeAlias = tuple[MarkKind, str, ast.AST]
"""A statement that can be a reason: its kind, what `Mark.about` says, and its syntax."""


class ParsedFile(NamedTuple):
    """A parsed file and its lines."""

    rows: tuple[str, ...]
    tree: ast.Module


ADDS: Final = frozenset(("append", "appendleft", "add", "insert", "extend", "setdefault"))
"""Methods by which a container gets more entries."""
_TWO_ARGUMENTS: Final = ("insert", "setdefault")
CONTAINERS: Final = frozenset(
    ("Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set")
)
"""What makes an empty container, called without arguments."""
CONTAINER_METHODS: Final = frozenset((*vars(dict), *vars(list), *vars(set)))
"""Names of methods that a call may mean rather than a function of the program."""
LOGS: Final = frozenset(
    ("critical", "debug", "error", "exception", "info", "log", "print", "warn", "warning")
)
"""Methods that log, and print()."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (ast.If, ast.ExceptHandler, ast.match_case)
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
ORDERS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)
LOOPS = (ast.For, ast.While, ast.AsyncFor)
FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def children(node: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.ExceptHandler | ast.match_case]]:
    """The statements directly in a statement, each with the name of the block that it is in."""
    for block in BLOCKS:
        for child in getattr(node, block, ()):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield block, child


def last_line(node: ast.AST) -> int:
    """The number of its last line."""
    return getattr(node, "end_lineno", None) or first_line(node)


def first_line(node: ast.AST) -> int:
    """The number of its first line; 0 for what has none."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    return getattr(node, "lineno", 0)


def within(
    body: Sequence[ast.AST], parents: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """The statements of a block and of those in it, in order, with the statements around each."""
    for node in body:
        yield node, parents
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield from within([child for _, child in children(node)], (*parents, node))


def before(function: ast.AST, inside: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The statements that come before the last one of `inside`, of the blocks that it is in.

    Args:
        function: The function, or the file.
        inside: The statements around the last one, outermost first, and that one.
    """
    outer = function
    for node in inside:
        block = next((name for name, child in children(outer) if child is node), None)
        for name, child in children(outer):
            if child is node:
                break
            if name == block:
                yield child
        outer = node


def before_in_round(
    function: ast.AST, inside: Sequence[ast.AST], repeats: Callable[[ast.AST], bool]
) -> Iterator[ast.AST]:
    """`before`, where a loop is around the last statement only those of a round of it.

    Args:
        function: The function, or the file.
        inside: As of `before`.
        repeats: Whether a statement is such a loop.
    """
    first = max((n for n, each in enumerate(inside[:-1], 1) if repeats(each)), default=0)
    yield from before(inside[first - 1] if first else function, inside[first:])


def are_apart(nodes: Iterable[ast.AST], one: ast.AST, other: ast.AST) -> bool:
    """Whether two pieces of a function's syntax are in different branches of one `if`."""
    lines = sorted((first_line(one), first_line(other)))
    return any(
        first_line(each) <= lines[0] < first_line(each.orelse[0]) <= lines[1] <= last_line(each)
        for each in nodes
        if isinstance(each, ast.If) and each.orelse
    )


def condition(module: ParsedFile, node: ast.If) -> Statement:
    """`if step > 9: break`, with the statement that leaves."""
    header, last = quoted(module, node), quoted(module, node.body[-1])
    if last.line == header.line:
        return last  # that quotes the line, with its header
    return Statement(header.line, clean(f"{header.text} {last.text}", QUOTE_LIMIT))


def quoted(module: ParsedFile, node: ast.AST) -> Statement:
    """A statement in one line; of a compound one its header."""
    first, last = first_line(node), last_line(node)
    body = getattr(node, "body", None)
    rows = list(module.rows[first - 1 : first + ROWS - 1])
    if isinstance(body, list) and body:
        last = first_line(body[0]) - 1
        if last < first:  # `if done: break`
            rows[0] = rows[0].encode()[: body[0].col_offset].decode()
            last = first
    rows = [row.partition("  #")[0] for row in rows[: last - first + 1]]
    return Statement(first, clean(" ".join(" ".join(rows).split()), QUOTE_LIMIT))


def last_name(node: ast.expr) -> str:
    """`pool` of `self.pool`; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def own_nodes(function: ast.AST) -> Sequence[ast.AST]:
    """The syntax of a function, or of a file, without that of functions defined in it.

    It is kept with these, as that of `every_node` is: three dozen questions go through it.
    """
    known: tuple[ast.AST, ...] | None = vars(function).get("own_nodes")
    if known is not None:
        return known
    found: list[ast.AST] = []
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
    if isinstance(function, (*FUNCTIONS, ast.Module)):
        vars(function)["own_nodes"] = tuple(found)
    return found


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a piece of syntax."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def parameters(function: FunctionNode) -> list[str]:
    """The names of its parameters that a call gives one value each."""
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def argument_of(call: ast.Call, name: str, place: int) -> ast.expr | None:
    """What a call gives to a parameter, by its name or its place; `None` if that is not known."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    known = next((n for n, e in enumerate(call.args) if isinstance(e, ast.Starred)), len(call.args))
    return call.args[place] if 0 <= place < known else None


def adds_entry(call: ast.Call) -> bool:
    """Whether it calls such a method as those of Python's containers, by the number of arguments.

    `session.append(key, value)` is a method of the program, of which the name says nothing.
    """
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ADDS:
        return False
    given = len(call.args) + len(call.keywords)
    return given == 1 or (given == 2 and call.func.attr in _TWO_ARGUMENTS)


def adds_to(call: ast.Call) -> bool:
    """Whether it calls such a method as those that add to Python's containers, `update` included.

    `metric.update(predicted, targets)` is none: a dictionary or set takes one other.
    """
    if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
        return len(call.args) == 1 and not call.keywords
    return adds_entry(call)


def names_in(node: ast.AST) -> set[str]:
    """The variables in a piece of syntax."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def receiver_of(call: ast.Call) -> str:
    """`self.free` of `self.free.put(slot)`."""
    return expression_text(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def every_node(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All syntax of a file, as `ast.walk` gives it.

    It is kept with the tree: for each line asked for, a dozen questions go through all of it.
    For 513 lines of a file of as many functions that takes 0.9 s in place of 6.4.
    """
    found: tuple[ast.AST, ...] | None = vars(tree).get("every_node")
    if found is None:
        found = tuple(ast.walk(tree))
        vars(tree)["every_node"] = found
    return found


_Tree = TypeVar("_Tree", bound=ast.AST)
_Answer = TypeVar("_Answer")


def of_file(tree: _Tree, question: Callable[[_Tree], _Answer]) -> _Answer:
    """The answer to a question about a whole file, which several of its functions ask.

    It is kept with the tree, as `every_node` is.
    """
    answers: dict[Callable[[_Tree], _Answer], _Answer] = vars(tree).setdefault("answers", {})
    if question not in answers:
        answers[question] = question(tree)
    return answers[question]


def functions_in(tree: ast.AST) -> Sequence[FunctionNode]:
    """The functions of a file, also those within classes and functions."""
    found: list[FunctionNode] | None = vars(tree).get("functions")
    if found is None:
        found = [each for each in every_node(tree) if isinstance(each, FUNCTIONS)]
        vars(tree)["functions"] = found
    return found


def functions_by_name(tree: ast.AST) -> dict[str, FunctionNode]:
    """The functions of a file by name, without names that several have."""
    found: dict[str, FunctionNode | None] = {}
    for each in functions_in(tree):
        found[each.name] = None if each.name in found else each
    return {name: each for name, each in found.items() if each is not None}


def assigned_to(node: ast.AST) -> Sequence[ast.expr]:
    """What an assignment gives a value: `a, b` of `a = b = 1`; nothing for other statements."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) and node.value is not None else ()


def imported_roots(tree: ast.Module) -> set[str]:
    """The first names of the modules that a file imports."""
    found = set()
    for node in every_node(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def imported_names(tree: ast.Module) -> set[str]:
    """The names that the imports of a file bind: `State` of `from state import State`."""
    found = set()
    for node in every_node(tree):
        if isinstance(node, ast.Import):
            found |= {each.asname or each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name for each in node.names}
    return found


def full_name(tree: ast.Module, func: ast.expr) -> str:
    """A function with the modules it is imported from: `matplotlib.pyplot.figure` of `plt.figure`.

    As it is written where its first name is not imported.
    """
    first, dot, rest = expression_text(func).partition(".")
    return f"{of_file(tree, imports_of).get(first, first)}{dot}{rest}"


def imports_of(tree: ast.Module) -> Mapping[str, str]:
    """The names that a file imports, each with what it stands for."""
    found: dict[str, str] = {}
    for node in every_node(tree):
        if isinstance(node, ast.Import):
            found |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {e.asname or e.name: f"{node.module}.{e.name}" for e in node.names}
    return found


def bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment or of a `with` statement, each with what it is given."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        if node.value is not None:
            yield node.target, node.value
    elif isinstance(node, ast.With | ast.AsyncWith):
        for each in node.items:
            if each.optional_vars is not None:
                yield each.optional_vars, each.context_expr


_DOTS: Final = EXPRESSION_NODES // 2 - 2
"""Of a name with so many dots, no more than `EXPRESSION_NODES` are looked at."""


def expression_text(node: ast.AST) -> str:
    """An expression as it would be written; empty for a long one, which is hostile or no name."""
    # Most are names with dots, for which this takes a thirtieth of the time of ast.unparse().
    parts: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute) and len(parts) < _DOTS:
        parts.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        return ".".join((inner.id, *reversed(parts)))
    is_short = sum(1 for _ in islice(ast.walk(node), EXPRESSION_NODES)) < EXPRESSION_NODES
    return ast.unparse(node) if is_short else ""


def is_inside(node: ast.AST, outer: ast.AST) -> bool:
    """Whether a piece of syntax is in the body of a loop or an `if`."""
    body = outer.body if isinstance(outer, (ast.If, *LOOPS)) else []
    return bool(body) and first_line(body[0]) <= first_line(node) <= last_line(body[-1])


def condition_around(
    module: ParsedFile, node: ast.AST, nodes: Sequence[ast.AST]
) -> tuple[ast.If | None, str]:
    """The innermost `if` around a statement of a function, and its header and line in words."""
    ifs = [each for each in nodes if isinstance(each, ast.If) and is_inside(node, each)]
    if not ifs:
        return None, ""
    header = quoted(module, one := max(ifs, key=first_line))
    return one, f"{header.text} in line {header.line}"
