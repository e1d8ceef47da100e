"""Statements whose result differs from rank to rank, though the program takes it for the same.

A function that returns an empty container on some of them, or a decision by a value that no
collective has made the same on all: a loss of its own data, or the time that its own clock says.
A loop with a collective in each round, of which there are as many as a batch of its own shows. A
parameter that a model changes by what it has computed from its batch. And the order of a set: texts
have another hash in each interpreter (PYTHONHASHSEED, on since Python 3.3), so that two processes
go through equal sets of them in different orders, unless one is a fork of the other; and what is
chosen by hash() itself.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from mpwatch.collect.source.lines.deciding import starts_of
from mpwatch.collect.source.lines.leaves import kind_of_call, names_rank, reads_clock
from mpwatch.collect.source.syntax import (
    EXPRESSION_NODES,
    FUNCTIONS,
    ORDERS,
    Found,
    FunctionNode,
    ParsedFile,
    assigned_to,
    calls_in,
    condition_around,
    every_node,
    expression_text,
    first_line,
    functions_by_name,
    functions_in,
    is_inside,
    last_line,
    last_name,
    names_in,
    of_file,
    own_nodes,
    parameters,
    quoted,
    receiver_of,
    within,
)

_COLLECTIVE: Final = re.compile(
    r"all_?reduce|all_?gather\w*|broadcast\w*|gather\w*|reduce\w*|\w*sync_dist\w*|\w*across_\w+"
)
"""Calls by which ranks share a value: those of torch.distributed and of what wraps it."""
_CALLS: Final = 3
"""Functions that are followed from the call that computes a value."""


def plateaus_of(tree: ast.AST) -> frozenset[str]:
    """The last names of variables and attributes of a file that are set to ReduceLROnPlateau."""
    return frozenset(
        last_name(target)
        for node in every_node(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and last_name(node.value.func) == "ReduceLROnPlateau"
        for target in node.targets
        if isinstance(target, ast.Name | ast.Attribute)
    )


def find_own_values(
    nodes: Sequence[ast.AST], plateaus: frozenset[str], functions: Mapping[str, ast.AST]
) -> Iterator[Found]:
    """`scheduler.step(loss)` of a ReduceLROnPlateau, with a loss that the ranks do not share.

    Not where a function of another file computes it, which may share it.

    Args:
        nodes: The syntax of one function.
        plateaus: See `plateaus_of`.
        functions: See `functions_by_name`.
    """
    variables: _Variables | None = None
    for node in nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        of = node.func.value
        is_step = node.func.attr == "step" and isinstance(of, ast.Name | ast.Attribute)
        if is_step and last_name(of) in plateaus:
            value = node.args[0]
            variables = _variables_of(nodes) if variables is None else variables
            if not _is_shared(value, variables, functions):
                yield "own-value", expression_text(value), node


class _Variables(NamedTuple):
    """What a function does with its variables, gathered once for all values that are asked for."""

    given: Mapping[str, Sequence[ast.expr]]
    """What each is given."""
    arguments: frozenset[str]
    shared: frozenset[str]
    """Those that are given to a collective."""


def _variables_of(nodes: Sequence[ast.AST]) -> _Variables:
    given: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for target, made in (pair for node in nodes for pair in _given(node)):
        for name in names_in(target):
            given[name].append(made)
    return _Variables(
        given,
        frozenset(each.arg for each in nodes if isinstance(each, ast.arg)),
        frozenset(
            name
            for node in nodes
            if isinstance(node, ast.Call) and _COLLECTIVE.fullmatch(last_name(node.func))
            for part in node.args
            for name in names_in(part)
        ),
    )


def _is_shared(value: ast.expr, variables: _Variables, functions: Mapping[str, ast.AST]) -> bool:
    """Whether a collective may have made a value the same on all ranks."""
    seen: set[str] = set()
    waiting = [value]
    while waiting:
        for part in _parts(waiting.pop()):
            if isinstance(part, ast.Attribute):
                return True  # another method may have shared it
            if isinstance(part, ast.Call):
                if _calls_collective(part, functions, _CALLS):
                    return True
            elif isinstance(part, ast.Name) and part.id not in seen:
                seen.add(part.id)
                given = variables.given.get(part.id, ())
                if part.id in variables.shared or (part.id in variables.arguments and not given):
                    return True  # the caller may have shared it
                waiting += given
    return False


def _given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement gives a value to, and the value."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield target, node.value
    elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
        yield node.target, node.value


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    """The calls and names that make a value, without what is only given to a function."""
    waiting: list[ast.AST] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
            if isinstance(node.func, ast.Attribute):
                waiting.append(node.func.value)
            if last_name(node.func) in _PLAIN:
                waiting += node.args
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node
        else:
            waiting += ast.iter_child_nodes(node)


def _calls_collective(call: ast.Call, functions: Mapping[str, ast.AST], depth: int) -> bool:
    """Whether a call is one that shares values, or that of a function which may do so."""
    name = last_name(call.func)
    if _COLLECTIVE.fullmatch(name):
        return True
    function = functions.get(name)
    if function is None:
        # A method of an object, as item() and mean(), or a function that is not known.
        return isinstance(call.func, ast.Name) and name not in _PLAIN
    return depth > 0 and any(
        isinstance(node, ast.Call)
        and (
            _COLLECTIVE.fullmatch(last_name(node.func)) is not None
            or (last_name(node.func) in functions and _calls_collective(node, functions, depth - 1))
        )
        for node in own_nodes(function)
    )


def clocks_of(tree: ast.AST) -> frozenset[str]:
    """The functions of a file that read a clock, themselves or by one another."""
    bodies = {name: list(own_nodes(each)) for name, each in functions_by_name(tree).items()}
    found = {name for name, nodes in bodies.items() if any(map(reads_clock, nodes))}
    while True:
        more = {
            name
            for name, nodes in bodies.items()
            if any(_uses(node, found) for node in nodes) and name not in found
        }
        if not more:
            return frozenset(found)
        found |= more


def _uses(node: ast.AST, names: Container[str]) -> bool:
    """Whether an expression calls one of some functions, or reads a property of such a name."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in names
    return isinstance(node, ast.Attribute) and node.attr in names


def find_clocks(
    function: ast.AST, nodes: Sequence[ast.AST], clocks: Container[str]
) -> Iterator[Found]:
    """`return self.elapsed() < self.limit`: a function that compares what a clock says.

    Args:
        function: The syntax of one function.
        nodes: Its own.
        clocks: See `clocks_of`.
    """
    if not isinstance(function, FUNCTIONS) or function.name not in clocks:
        return
    times = {
        name
        for node in nodes
        if isinstance(node, ast.Assign) and _tells_time(node.value, clocks, ())
        for target in node.targets
        for name in names_in(target)
    }
    for node in nodes:
        is_decided = isinstance(node, ast.Return) and any(
            isinstance(each, ast.Compare) and _tells_time(each, clocks, times)
            for each in ast.walk(node)
        )
        if is_decided:
            yield "asks-clock", function.name, node


def find_set_by_clock(
    tree: ast.Module, nodes: Sequence[ast.AST], clocks: Container[str]
) -> Iterator[Found]:
    """`if time.monotonic() - self.started > self.limit: control.should_stop = True`.

    Not what the file sets in another way as well, what a rank decides for all, or what is given to
    a collective.

    Args:
        tree: The file.
        nodes: The syntax of one function.
        clocks: See `clocks_of`.
    """
    set_by = list(_set_by_clock(nodes, clocks))
    if not set_by or any(
        (isinstance(each, ast.If) and _RANK.search(expression_text(each.test)))
        or (isinstance(each, ast.Call) and _COLLECTIVE.fullmatch(last_name(each.func)))
        for each in nodes
    ):
        return
    known = {id(assigned) for _, assigned, _ in set_by}
    otherwise = {
        last_name(target)
        for node in every_node(tree)
        if isinstance(node, ast.Assign)
        and id(node) not in known
        and getattr(node.value, "value", True) not in (False, None)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    shared = {each.rpartition(".")[2] for each in of_file(tree, _shared_names)}
    for name, _, node in set_by:
        if name not in otherwise and name not in shared:
            yield "set-by-clock", name, node


def _set_by_clock(
    nodes: Sequence[ast.AST], clocks: Container[str]
) -> Iterator[tuple[str, ast.Assign, ast.AST]]:
    """The attributes that are set by a clock, the assignments, and what compares the time."""
    for node in nodes:
        if isinstance(node, ast.If) and _compares_time(node.test, clocks):
            assigned = [each for each in node.body if isinstance(each, ast.Assign)]
            sets = [each for each in assigned if getattr(each.value, "value", None) is True]
        elif isinstance(node, ast.Assign) and _compares_time(node.value, clocks):
            sets = [node]
        else:
            continue
        for each in sets:
            for target in each.targets:
                if isinstance(target, ast.Attribute):
                    yield target.attr, each, node


def _compares_time(value: ast.expr, clocks: Container[str]) -> bool:
    """Whether an expression is a comparison, or several, of what a clock says."""
    parts = value.values if isinstance(value, ast.BoolOp) else [value]
    return any(
        isinstance(each, ast.Compare)
        and isinstance(each.ops[0], ORDERS)
        and _tells_time(each, clocks, ())
        for each in parts
    )


def _tells_time(value: ast.AST, clocks: Container[str], times: Container[str]) -> bool:
    """Whether an expression reads a clock, by a function of the file, or uses what one has told."""
    return any(
        reads_clock(each)
        or _uses(each, clocks)
        or (isinstance(each, ast.Name) and each.id in times)
        for each in ast.walk(value)
    )


_PLAIN: Final = frozenset(("abs", "float", "len", "max", "min", "round", "sum"))


# --- the order of a set ---------------------------------------------------------------------------

_MAKES: Final = frozenset(("set", "frozenset"))
_METHODS: Final = frozenset(("difference", "intersection", "symmetric_difference", "union"))
_OPERATORS: Final = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_DEPTH: Final = 8


def sets_of(tree: ast.AST) -> frozenset[str]:
    """The variables, attributes and functions of a file that are or give sets.

    Returns:
        `names`, `.names` and `names()`; not those that are also given something else.
    """
    given: dict[str, list[ast.expr]] = {}
    for node in every_node(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name | ast.Attribute):
                    given.setdefault(_key(target), []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            given.setdefault(_key(node.target), []).append(node.value)
        elif isinstance(node, FUNCTIONS):
            returned = [each.value for each in own_nodes(node) if isinstance(each, ast.Return)]
            given.setdefault(f"{node.name}()", []).extend(
                each for each in returned if each is not None
            )
    found: set[str] = set()
    for _ in range(3):  # a set that is made of sets
        found |= {
            name
            for name, values in given.items()
            if name and values and all(is_set(each, found) for each in values)
        }
    return frozenset(found)


def is_set(node: ast.expr, names: Container[str], depth: int = 0) -> bool:
    """Whether an expression is a set.

    Args:
        node: It.
        names: See `sets_of`.
        depth: How deep it is in the expression that is asked for.
    """
    if depth > _DEPTH:
        return False
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        # `-` and the others of what is no set are numbers
        return is_set(node.left, names, depth + 1) or is_set(node.right, names, depth + 1)
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if isinstance(node.func, ast.Name) and name in _MAKES:
            return True
        if isinstance(node.func, ast.Attribute) and name in _METHODS:
            return is_set(node.func.value, names, depth + 1)
        return f"{name}()" in names and not node.args
    return isinstance(node, ast.Name | ast.Attribute) and _key(node) in names


def _key(node: ast.expr) -> str:
    """`names` for a variable, `.names` for an attribute of any object."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else last_name(node)


WITHOUT_ORDER: Final = frozenset(
    ("all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum", "Counter")
)
"""Functions that give the same for any order of the elements."""


def _has_no_order(statement: ast.stmt) -> bool:
    """Whether a statement of a loop does the same in any order, as `names.add(each)` does."""
    if isinstance(statement, ast.If):
        return all(map(_has_no_order, (*statement.body, *statement.orelse)))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return last_name(statement.value.func) in ("add", "discard", "remove")
    return isinstance(statement, ast.Pass | ast.Continue | ast.Delete)


def find_set_order(nodes: Sequence[ast.AST], sets: frozenset[str]) -> Iterator[Found]:
    """`for name in self.names:` and `{key: None for key in keys & known}`, of sets.

    Args:
        nodes: The syntax of one function.
        sets: Names of the file that are sets; see `sets_of`.
    """
    unordered = {
        id(each)
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) in WITHOUT_ORDER
        for each in node.args
    }
    for node in nodes:
        if id(node) in unordered:
            continue
        if isinstance(node, ast.For):
            if all(map(_has_no_order, node.body)):
                continue
            iterated = node.iter
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
            iterated = node.generators[0].iter
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("list", "tuple", "enumerate")
            and len(node.args) == 1
        ):
            iterated = node.args[0]
        else:
            continue
        if is_set(iterated, sets):
            yield "set-order", expression_text(iterated), node


def find_hashes(
    function: ast.AST, nodes: Sequence[ast.AST], own: Container[str]
) -> Iterator[Found]:
    """`hash(name) % count`: one of a few is chosen by it.

    Not of numbers, whose hash is the same everywhere.

    Args:
        function: The syntax of one function.
        nodes: Its own.
        own: The functions of the file: one of them may be called `hash`.
    """
    if "hash" in own or getattr(function, "name", "") in ("__hash__", "__eq__"):
        return
    for node in nodes:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
            continue
        call = node.left
        while isinstance(call, ast.Call) and last_name(call.func) in ("abs", "int") and call.args:
            call = call.args[0]
        is_hash = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if is_hash and call.func.id == "hash" and len(call.args) == 1:  # type: ignore[attr-defined]
            hashed = call.args[0]  # type: ignore[attr-defined]
            if not _is_number(hashed):
                yield "text-hash", expression_text(hashed), node


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is written as a number, or as what makes one."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("float", "id", "int", "len", "ord")
    is_constant = isinstance(node, ast.Constant)
    return is_constant and isinstance(node.value, int | float)  # type: ignore[attr-defined]


_RESTORES: Final = re.compile(
    r"\w*(?:checkpoint|ckpt|latest|newest|restore|resume|snapshot)\w*|(?:torch_|pickle_)?load"
    r"|load_state_dict|load_state",
    re.IGNORECASE,
)
"""Calls that find or read a saved state."""


def find_restored_starts(
    tree: ast.Module, function: ast.AST, nodes: Sequence[ast.AST], functions: Mapping[str, ast.AST]
) -> Iterator[Found]:
    """`self.start_epoch = epoch + 1` after what was loaded, for `range(self.start_epoch, n)`.

    Not where a collective may have made the same on all ranks what is loaded.

    Args:
        tree: The file.
        function: The syntax of one function.
        nodes: Its own.
        functions: See `functions_by_name`.
    """
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    if not any(_RESTORES.fullmatch(last_name(each.func)) for each in calls):
        return
    loops = of_file(tree, _restored_loops)
    sets = [each for each in nodes if isinstance(each, ast.Assign | ast.AnnAssign) and each.value]
    for node in sorted(sets, key=first_line):
        for target in assigned_to(node):
            name = expression_text(target)
            is_set = name in loops and not isinstance(node.value, ast.Constant)
            if not is_set or ("." not in name and loops[name][1] is not function):
                continue
            if name in of_file(tree, _shared_names) or any(
                _may_be_collective(each, functions) for each in calls
            ):
                return
            loop, around = loops[name]
            where = getattr(around, "name", "<module>")
            yield "restores-start", f"{first_line(loop)}, {where}, {name}", node


_READS_STATE: Final = re.compile(
    r"(?:torch_|pickle_)?load|load_state_dict|load_state|load_checkpoint"
)
_LOOKS: Final = frozenset(
    ("exists", "glob", "iglob", "is_file", "isfile", "iterdir", "listdir", "rglob", "scandir")
)


def find_resumed_alone(
    function: ast.AST, nodes: Sequence[ast.AST], functions: Mapping[str, ast.AST]
) -> Iterator[Found]:
    """`state.load_state_dict(torch.load(path))` of the newest file that a rank has by itself.

    In a function in which the number of the rank is used, that looks for files, itself or by a
    function of the same file, and that calls no collective.

    Args:
        function: The syntax of one function.
        nodes: Its own.
        functions: See `functions_by_name`.
    """
    calls = sorted((e for e in nodes if isinstance(e, ast.Call)), key=first_line)
    reads = [each for each in calls if _READS_STATE.fullmatch(last_name(each.func))]
    names = [each for each in nodes if isinstance(each, ast.Name | ast.Attribute)]
    if not reads or not any(_RANK.search(last_name(each)) for each in names):
        return
    for call in calls:
        looked = own_nodes(functions[last_name(call.func)]) if _is_of(call, functions) else [call]
        if any(isinstance(e, ast.Call) and last_name(e.func) in _LOOKS for e in looked):
            later = [each for each in reads if first_line(each) >= first_line(call)]
            if later and not any(_may_be_collective(each, functions) for each in calls):
                yield "resumes-alone", f"{first_line(call)}", later[0]
            return


_STEPPED: Final = re.compile(
    r"(?:\w*_)?(?:opt|optim|optimizer|sched|scheduler|scaler)s?(?:_\w+)?", re.IGNORECASE
)
"""Names of what has a state of its own that no wrapper of a model sends to the other ranks."""
_LOADS: Final = re.compile(
    r"load_state_dict|(?:re)?load|load_\w*|restore\w*|resume\w*", re.IGNORECASE
)


def find_loaded_alone(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`if rank == 0: optimizer.load_state_dict(state)`: no other rank gets that state.

    Also `if rank != 0: return` before it. Not of what the function gives to a call, or calls a
    method of, outside of that branch: the others may get it there.

    Args:
        module: The file.
        nodes: The syntax of one function.
    """
    calls = sorted((each for each in nodes if isinstance(each, ast.Call)), key=first_line)
    for test in (each for each in nodes if isinstance(each, ast.If)):
        first = _is_of_first(test.test)
        if first is None or (first is False and not _leaves(test)):
            continue
        inside: list[ast.Call] = []
        outside: list[ast.Call] = []
        for call in calls:
            is_alone = is_inside(call, test) if first else first_line(call) > last_line(test)
            (inside if is_alone else outside).append(call)
        loads = [each for each in inside if _LOADS.fullmatch(last_name(each.func))]
        used = {name for each in outside for name in _stepped_in(each)}
        names = list(dict.fromkeys(n for each in loads for n in _stepped_in(each) if n not in used))
        if names:
            header = quoted(module, test)
            about = f"{', '.join(names)}; {header.text} in line {header.line}"
            yield "loads-alone", about, next(e for e in loads if not used >= _stepped_in(e))


def _is_of_first(test: ast.expr) -> bool | None:
    """Whether a condition holds on one rank (or on all others); `None` if neither shows."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        is_first = _is_of_first(test.operand)
        return None if is_first is None else not is_first
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return True if any(_is_of_first(each) for each in test.values) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        sides = (test.left, test.comparators[0])
        if any(isinstance(e, ast.Constant) and e.value == 0 for e in sides) and names_rank(test):
            return {ast.Eq: True, ast.NotEq: False, ast.Gt: False}.get(type(test.ops[0]))
        return None
    if not names_rank(test):
        return None
    called = test.func if isinstance(test, ast.Call) else test
    return "rank" not in last_name(called).lower().replace("rank_zero", "").replace("rank0", "")


def _leaves(test: ast.If) -> bool:
    """Whether the function is left where a condition holds."""
    return isinstance(test.body[-1], ast.Return | ast.Raise)


def _stepped_in(call: ast.Call) -> set[str]:
    """The optimizers and schedulers that a call is of or gets."""
    of = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    given = (*of, *call.args, *(each.value for each in call.keywords))
    return {
        expression_text(each)
        for each in given
        if isinstance(each, ast.Name | ast.Attribute) and _STEPPED.fullmatch(last_name(each))
    }


def _is_of(call: ast.Call, functions: Mapping[str, ast.AST]) -> bool:
    return last_name(call.func) in functions and receiver_of(call) in ("", "self", "cls")


def _restored_loops(tree: ast.Module) -> Mapping[str, tuple[ast.For, ast.AST]]:
    """The loops of a file over a range that begins with a name, by that name; one of each."""
    loops = (
        (node, function)
        for function in (tree, *functions_in(tree))
        for node in own_nodes(function)
        if isinstance(node, ast.For)
    )
    return {
        name: (node, function)
        for node, function in islice(loops, _LOOPS_OF_FILE)
        for name in starts_of(tree, node)
    }


_LOOPS_OF_FILE: Final = 64
"""Loops of a file that are looked at: each is compared with the functions that it calls."""


def _shared_names(tree: ast.Module) -> frozenset[str]:
    """The names and attributes of a file that are given to a collective."""
    return frozenset(
        expression_text(part)
        for node in every_node(tree)
        if isinstance(node, ast.Call) and _COLLECTIVE.fullmatch(last_name(node.func)) is not None
        for given in node.args
        for part in ast.walk(given)
        if isinstance(part, ast.Name | ast.Attribute)
    )


def _may_be_collective(call: ast.Call, functions: Mapping[str, ast.AST]) -> bool:
    """Whether a call shares values, or is that of a function of the file which does."""
    name = last_name(call.func)
    return _COLLECTIVE.fullmatch(name) is not None or any(
        isinstance(each, ast.Call) and _COLLECTIVE.fullmatch(last_name(each.func)) is not None
        for each in own_nodes(functions.get(name, ast.Module([], [])))
    )


_RANK = re.compile(
    r"(?<![a-z])rank(?![a-z])|\bis_(?:main|master|first|chief|(?:global_|local_)?zero)",
    re.IGNORECASE,
)


_CONTAINERS: Final = frozenset(("dict", "list", "set", "tuple", "OrderedDict", "defaultdict"))


def find_empty_on_ranks(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`if rank != 0: return {}` in a function that returns something to other ranks."""
    returns = [each for each in nodes if isinstance(each, ast.Return) and each.value is not None]
    empty = [each for each in returns if each.value is not None and _is_empty(each.value)]
    for node in empty if len(empty) < len(returns) else ():
        under, about = condition_around(module, node, nodes)
        if under is not None and _RANK.search(expression_text(under.test)):
            yield "empty-on-ranks", about, node


_MEETS: Final[Mapping[str, slice]] = {
    "FileStore": slice(0, 1),
    "TCPStore": slice(0, 2),
    "init_process_group": slice(1, 2),
}
"""Calls by which ranks meet, with the positional arguments that say where (torch 2.1 to 2.13)."""
_WHERE: Final = frozenset(("file_name", "host_name", "init_method", "port"))
_CHOSEN: Final = re.compile(
    r"(?:\w+_)?(?:free|unused|open|available|random|ephemeral)_(?:\w+_)?ports?|freeport"
    r"|getsockname|getpid|mkdtemp|mkstemp|mktemp|NamedTemporaryFile|TemporaryDirectory|uuid[14]",
    re.IGNORECASE,
)
"""Calls whose result is another one in each process: a port that is free, a new file."""
_GIVEN: Final = frozenset(("argv", "environ"))
_GIVES: Final = re.compile(r"getenv|\w*bcast\w*|recv\w*")
"""Calls by which a process is given a value by what has started it, or by another one."""
_FOLLOWED: Final = 16
"""Expressions that are followed through variables and functions of the file."""


def find_own_rendezvous(
    nodes: Sequence[ast.AST], functions: Mapping[str, ast.AST]
) -> Iterator[Found]:
    """`os.environ["MASTER_PORT"] = str(find_free_port())`, not under a condition."""
    found = ((node, value) for node in nodes for value in _where_ranks_meet(node))
    for node, value in islice(found, _FOLLOWED):
        chosen = _chosen(value, nodes, functions)
        is_under = any(
            isinstance(each, ast.If | ast.ExceptHandler)
            and first_line(each) <= first_line(node) <= last_line(each)
            for each in nodes
        )
        if chosen and not is_under:
            yield "own-rendezvous", chosen, node


def _where_ranks_meet(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement gives as the place where ranks meet."""
    if not isinstance(node, ast.Assign | ast.Expr):
        return
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Subscript) and last_name(target.value) == "environ":
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if key == "MASTER_PORT":
                yield node.value
    if isinstance(node.value, ast.Call) and last_name(node.value.func) in _MEETS:
        yield from node.value.args[_MEETS[last_name(node.value.func)]]
        yield from (each.value for each in node.value.keywords if each.arg in _WHERE)


def _chosen(value: ast.expr, nodes: Sequence[ast.AST], functions: Mapping[str, ast.AST]) -> str:
    """The call by which a process chooses a value for itself; empty for none.

    Also where it may have been given the value, or another process may have sent it.
    """
    chosen = ""
    waiting: list[tuple[ast.expr, Sequence[ast.AST]]] = [(value, nodes)]
    for one, own in waiting:  # it grows meanwhile
        names: set[str] = set()
        for each in islice(ast.walk(one), EXPRESSION_NODES):
            if isinstance(each, ast.BoolOp | ast.IfExp) or (
                isinstance(each, ast.Name | ast.Attribute) and last_name(each) in _GIVEN
            ):
                return ""
            if isinstance(each, ast.Call):
                name = last_name(each.func)
                if _GIVES.fullmatch(name) or _COLLECTIVE.fullmatch(name):
                    return ""
                if _CHOSEN.fullmatch(name) or kind_of_call(each) == "clock":
                    chosen = chosen or f"{name}()"
                    continue
                inner = own_nodes(functions[name]) if name in functions else ()
                made = [e.value for e in inner if isinstance(e, ast.Return) and e.value]
                waiting += [(e, inner) for e in made]
            elif isinstance(each, ast.Name):
                names.add(each.id)
        for name in names:
            sets = [
                each.value
                for each in own
                if isinstance(each, ast.Assign) and name in map(last_name, each.targets)
            ]
            if len(sets) > 1:
                return ""  # one of them may be under a condition
            waiting += [(each, own) for each in sets]
        del waiting[_FOLLOWED:]
    return chosen


_MADE_ANEW: Final = re.compile(r"(?:new_)?(?:empty|full|ones|zeros)(?:_like)?")


def find_cut_graphs(
    module: ParsedFile, function: ast.AST, nodes: Sequence[ast.AST]
) -> Iterator[Found]:
    """`if rows.size(0) == 0: return torch.empty_like(rows)` in a forward pass.

    Such a tensor is not part of the graph of autograd: the backward pass ends there.
    """
    if getattr(function, "name", "") != "forward":
        return
    returns = [each for each in nodes if isinstance(each, ast.Return)]
    anew = [
        each
        for each in returns
        if isinstance(each.value, ast.Call) and _MADE_ANEW.fullmatch(last_name(each.value.func))
    ]
    for node in anew if len(anew) < len(returns) else ():
        under, about = condition_around(module, node, nodes)
        if under is not None:
            yield "cuts-graph", about, node


_OF_MODULES: Final = frozenset(("ModuleDict", "ModuleList"))
_ASKS_CONTENT: Final = frozenset(
    ("all", "any", "count_nonzero", "item", "nonzero", "numel", "sum", "tolist")
)


def find_passed_over_modules(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`for expert in self.experts:` with `if not mask.any(): continue` before `expert(x)`."""
    held = of_file(module.tree, _module_containers)
    loops = (each for each in nodes if isinstance(each, ast.For)) if held else ()
    for loop in islice(loops, _ROUNDS_OF_FUNCTION):
        is_over = any(expression_text(each) in held for each in ast.walk(loop.iter))
        names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        inside = [each for each, _ in within(loop.body)]
        calling = [
            each
            for each in inside
            if isinstance(each, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)
            and any(_calls_element(call, names, held, is_over) for call in calls_in(each))
        ]
        for test in inside if calling else ():
            if isinstance(test, ast.If) and _asks_content(test.test):
                called = _passed_at(test, calling)
                if called is not None:
                    header = quoted(module, test)
                    yield "passes-over-module", f"{header.text} in line {header.line}", called
                    return


def _passed_at(test: ast.If, calling: Sequence[ast.stmt]) -> ast.stmt | None:
    """The last of some statements of a loop, if a condition in it decides whether that is run."""
    last = calling[-1]
    leaves = isinstance(test.body[-1], ast.Continue)
    is_passed = first_line(last) > last_line(test) if leaves else is_inside(last, test)
    return last if is_passed else None


def _module_containers(tree: ast.Module) -> frozenset[str]:
    """The attributes that a file makes as containers of modules."""
    return frozenset(
        expression_text(target)
        for node in every_node(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and last_name(node.value.func) in _OF_MODULES
        for target in node.targets
    )


def _calls_element(call: ast.Call, names: set[str], held: frozenset[str], is_over: bool) -> bool:
    """Whether a call is that of the element of a round."""
    if isinstance(call.func, ast.Name):
        return is_over and call.func.id in names
    of = call.func.value if isinstance(call.func, ast.Subscript) else None
    return of is not None and expression_text(of) in held


def _asks_content(test: ast.expr) -> bool:
    """Whether a condition depends on what a tensor contains or has, or on a random number."""
    for each in ast.walk(test):
        if isinstance(each, ast.Call):
            name, of = last_name(each.func), receiver_of(each)
            is_method = name in _ASKS_CONTENT and isinstance(each.func, ast.Attribute)
            if (is_method and not of.startswith("self.")) or kind_of_call(each) == "random":
                return True
            given = expression_text(each.args[0]) if name == "len" and each.args else ""
            if given and not given.startswith("self."):
                return True
        elif isinstance(each, ast.Attribute) and each.attr == "shape":
            return True
    return False


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return last_name(value.func) in _CONTAINERS and not value.args and not value.keywords
    return isinstance(value, ast.Dict | ast.List | ast.Tuple) and not any(
        isinstance(each, ast.expr) for each in ast.iter_child_nodes(value)
    )


# --- rounds that depend on what a batch contains --------------------------------------------------

_LOADED: Final = re.compile(r"load|batch|data|sampler|stream", re.IGNORECASE)
"""A loop over such a name is one over the data of the rank, as far as words show."""
_BATCH: Final = re.compile(r"(?:\w+_)?(?:batch|samples?|inputs?|images?|labels?|targets?)")
"""A parameter of such a name is the data of one step."""
_SELECT: Final = re.compile(
    r"argwhere|filter|findall|finditer|flatnonzero|groupby|masked_select|nonzero|set|unique\w*"
)
"""What gives as many elements as the values that it is given decide."""
_NUMBERS: Final = frozenset(("amax", "count_nonzero", "item", "max", "sum"))
"""What makes a number of values, for `range(int(lengths.max()))`."""
_ROUNDS_OF_FUNCTION: Final = 24
"""Loops with a collective that are looked at in one function: each is compared with all of it."""
_WAITS_FOR_ALL: Final = frozenset(("all_gather", "all_reduce", "backward", "barrier", "broadcast"))


def find_batch_rounds(
    module: ParsedFile,
    function: ast.AST,
    nodes: Sequence[ast.AST],
    functions: Mapping[str, ast.AST],
) -> Iterator[Found]:
    """`for organ in present: loss.backward()`, where `present` is what the batch contains.

    Not a loop over the elements or a fixed number of parts of a batch: batches have one size.

    Args:
        module: The file.
        function: The syntax of one function.
        nodes: Its own.
        functions: See `functions_by_name`.
    """
    loops = (
        each
        for each in nodes
        if isinstance(each, ast.For) and any(_waits_for_all(e, functions) for e in _body_of(each))
    )
    for loop in islice(loops, _ROUNDS_OF_FUNCTION):
        batch = _batch_of(function, loop, nodes)
        made = _selected(loop, batch, nodes) if batch else None
        if made is not None:
            statement = quoted(module, made)
            yield "batch-rounds", f"{statement.line}, {statement.text}", loop


def _body_of(loop: ast.For) -> Iterator[ast.AST]:
    return (each for statement in loop.body for each in ast.walk(statement))


def _waits_for_all(node: ast.AST, functions: Mapping[str, ast.AST]) -> bool:
    """Whether it is a backward pass or another collective, or calls one of the file with that."""
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    if name in _WAITS_FOR_ALL:
        return name != "backward" or isinstance(node.func, ast.Attribute)
    is_own = isinstance(node.func, ast.Name) or receiver_of(node) == "self"
    return is_own and any(
        isinstance(each, ast.Call) and last_name(each.func) in _WAITS_FOR_ALL
        for each in own_nodes(functions.get(name, ast.Module([], [])))
    )


def _batch_of(function: ast.AST, loop: ast.For, nodes: Sequence[ast.AST]) -> set[str]:
    """The variables that have the data of one step where a loop begins.

    What a loop over a loader around it gives, or `next()`; the parameters of a function that is
    called with a batch.
    """
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.For) and node is not loop and is_inside(loop, node):
            over = expression_text(node.iter)
            if _LOADED.search(over) and "range(" not in over:
                found |= names_in(node.target) - _numbers_of(node)
        elif isinstance(node, ast.Assign) and _is_next(node.value):
            found |= {name for target in node.targets for name in names_in(target)}
    if isinstance(function, FUNCTIONS):
        found |= {each for each in parameters(function) if _BATCH.fullmatch(each)}
    return found


def _is_next(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and expression_text(value.func) == "next"


def _numbers_of(loop: ast.For) -> set[str]:
    """`i` of `for i, batch in enumerate(loader):`, which is the same on all ranks."""
    is_counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "enumerate"
    target = loop.target
    return names_in(target.elts[0]) if is_counted and isinstance(target, ast.Tuple) else set()


def _selected(loop: ast.For, batch: set[str], nodes: Sequence[ast.AST]) -> ast.AST | None:
    """The statement that selects from a batch what a loop goes over; `None` where none does.

    It may be the loop itself. What is computed from a batch belongs to it.
    """
    known = set(batch)
    made: dict[str, ast.AST] = {}
    counted: dict[str, ast.AST] = {}
    before = [n for n in nodes if isinstance(n, ast.stmt) and first_line(n) < first_line(loop)]
    for node in sorted(before, key=lambda each: (each.lineno, each.col_offset)):
        for target, value in _given(node):
            names = names_in(target)
            if isinstance(target, ast.Subscript | ast.Attribute):
                continue
            for name in names:
                made.pop(name, None)
                counted.pop(name, None)
            if known.isdisjoint(names_in(value)):
                known -= set() if isinstance(node, ast.AugAssign) else names
                continue
            known |= names
            for origins, is_asked in ((made, _asked_in), (counted, _numbers_in)):
                origin = node if _depends(value, known, is_asked) else _origin_of(value, origins)
                origins.update(dict.fromkeys(names, origin) if origin is not None else {})
        if isinstance(node, ast.For) and known & names_in(node.iter):
            made.update(dict.fromkeys(_filled_in(node), node))
    if _is_shared_before(loop, known, nodes):
        return None
    over = loop.iter
    is_range = isinstance(over, ast.Call) and last_name(over.func) == "range"
    if _depends(over, known, _asked_in) or (is_range and _depends(over, known, _numbers_in)):
        return loop
    return _origin_of(over, {**counted, **made} if is_range else made)


def _origin_of(value: ast.expr, made: Mapping[str, ast.AST]) -> ast.AST | None:
    return next((made[name] for name in sorted(names_in(value)) if name in made), None)


def _depends(
    value: ast.expr, batch: set[str], asked_in: Callable[[ast.AST], Iterator[ast.AST]]
) -> bool:
    """Whether what an expression gives is decided by the values in a batch."""
    return any(
        not batch.isdisjoint(names_in(asked))
        for node in ast.walk(value)
        for asked in asked_in(node)
    )


def _numbers_in(node: ast.AST) -> Iterator[ast.AST]:
    """What makes a number of values."""
    if isinstance(node, ast.Call) and last_name(node.func) in _NUMBERS:
        yield node


def _asked_in(node: ast.AST) -> Iterator[ast.AST]:
    """What decides how many elements an expression gives."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if _SELECT.fullmatch(name) or (name == "where" and len(node.args) == 1):
            yield node
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        yield from (each.iter for each in node.generators if each.ifs)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Compare):
        yield node.slice


def _filled_in(loop: ast.For) -> Iterator[str]:
    """The dicts to which a loop adds by a key of the element: `groups[item.task].append(item)`."""
    given = names_in(loop.target)
    for node in _body_of(loop):
        part: ast.expr | None = None
        if isinstance(node, ast.Assign):
            part = node.targets[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            part = node.func.value if node.func.attr in ("append", "add", "extend") else None
        is_by_key = isinstance(part, ast.Subscript) and not given.isdisjoint(names_in(part.slice))
        if is_by_key and isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
            yield part.value.id


def _is_shared_before(loop: ast.For, names: Container[str], nodes: Sequence[ast.AST]) -> bool:
    """Whether a collective before a loop may have made equal what it goes over."""
    return any(
        isinstance(node, ast.Call)
        and _COLLECTIVE.fullmatch(last_name(node.func)) is not None
        and first_line(node) < first_line(loop)
        and any(name in names for given in node.args for name in names_in(given))
        for node in nodes
    )


# --- parameters that are changed by hand ----------------------------------------------------------


def find_changed_by_hand(
    tree: ast.AST, functions: Mapping[str, ast.AST]
) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """`self.lateral.data.add_(z.t() @ z)` in the forward pass of a model, or in what that calls.

    Not of buffers, which DistributedDataParallel sends from rank 0 to the others. Nor where a
    collective may have made the same on all ranks what a parameter is changed by: any call of a
    function whose syntax is not known may be one.

    Args:
        tree: The file.
        functions: See `functions_by_name`.

    Yields:
        The method, the parameter, and the statement.
    """
    for owner in every_node(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        methods = {each.name: each for each in owner.body if isinstance(each, FUNCTIONS)}
        if "forward" not in methods or "__init__" not in methods:
            continue
        own = {
            expression_text(target)
            for node in own_nodes(methods["__init__"])
            if isinstance(node, ast.Assign) and _makes_parameter(node.value)
            for target in node.targets
        }
        forward = methods["forward"]
        of_batch = _computed_from(forward, set(parameters(forward)) - {"self"})
        reached = [(forward, of_batch)] + [
            (methods[call.func.attr], _computed_from(methods[call.func.attr], given))
            for call in own_nodes(forward)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            if receiver_of(call) == "self" and call.func.attr in methods
            if (given := _given_of_batch(call, methods[call.func.attr], of_batch))
        ]
        if _may_share(forward, functions):
            continue
        for method, names in reached:
            if method is forward or not _may_share(method, functions):
                for parameter, node in _changed_in_place(method, names):
                    if parameter in own or parameter.endswith(_OF_LAYERS):
                        yield method, parameter, node


_OF_LAYERS: Final = (".weight", ".bias")


def _makes_parameter(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) == "Parameter"


def _may_share(method: ast.AST, functions: Mapping[str, ast.AST]) -> bool:
    """Whether a method calls a collective, or a function which may do so."""
    return any(
        isinstance(each, ast.Call)
        and not hasattr(builtins, expression_text(each.func))
        and _calls_collective(each, functions, _CALLS)
        for each in own_nodes(method)
    )


def _given_of_batch(call: ast.Call, method: FunctionNode, of_batch: set[str]) -> set[str]:
    """The parameters of a method that a call gives something computed from the batch."""
    names = parameters(method)[1:]
    given = [
        *zip(names, call.args, strict=False),
        *((each.arg, each.value) for each in call.keywords if each.arg in names),
    ]
    return {name for name, value in given if name and not of_batch.isdisjoint(names_in(value))}


def _computed_from(method: ast.AST, names: set[str]) -> set[str]:
    """Variables, and the others of a method that are computed from them."""
    found = set(names)
    statements = [each for each in own_nodes(method) if isinstance(each, ast.stmt)]
    for node in sorted(statements, key=lambda each: (each.lineno, each.col_offset)):
        for target, value in _given(node):
            if isinstance(target, ast.Name | ast.Tuple) and not found.isdisjoint(names_in(value)):
                found |= names_in(target)
    return found


def _changed_in_place(method: ast.AST, names: set[str]) -> Iterator[tuple[str, ast.AST]]:
    """What a method changes by hand, and computes from some variables.

    `self.lateral.data.mul_(0.9).add_(corr)`, `self.lateral.data = mean`, `self.lateral[k] = mean`.
    """
    for node in own_nodes(method):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            part: ast.expr = node.value
            given: list[ast.expr] = []
            is_changed = False
            while isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                is_changed |= part.func.attr.endswith("_") and not part.func.attr.endswith("__")
                given += [*part.args, *(each.value for each in part.keywords)]
                part = part.func.value
            if is_changed and any(not names.isdisjoint(names_in(each)) for each in given):
                yield _parameter(part), node
        else:
            for target, value in _given(node):
                is_part = isinstance(target, ast.Subscript) or last_name(target) == "data"
                is_part |= isinstance(node, ast.AugAssign) or _makes_parameter(value)
                if is_part and not names.isdisjoint(names_in(value)):
                    yield _parameter(target), node


def _parameter(node: ast.expr) -> str:
    """`self.lateral` of `self.lateral.data[key]`."""
    while isinstance(node, ast.Subscript) or last_name(node) == "data":
        if not isinstance(node, ast.Subscript | ast.Attribute):
            break
        node = node.value
    return expression_text(node) if _is_of_self(node) else ""


def _is_of_self(node: ast.expr) -> bool:
    """Whether it is an attribute of `self`, or of such an attribute."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


_STATES: Final = frozenset(
    ("buffers", "named_buffers", "named_parameters", "parameters", "parameters_to_vector")
)


def find_shared_state(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """A function that calls a collective and goes through parameters: it may average them.

    Args:
        nodes: The syntax of one function.
    """
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    asked = [each for each in calls if last_name(each.func) in (*_STATES, "state_dict")]
    shares = any(_COLLECTIVE.fullmatch(last_name(each.func)) for each in calls)
    for call in calls:
        if "average_parameters" in last_name(call.func) or (shares and call in asked[:1]):
            yield "shares-parameters", "", call
