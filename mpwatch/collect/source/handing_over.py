"""What threads, coroutines or processes hand to each other, as far as a file shows.

The statements that wake up another one, containers that are emptied later than they are read,
queues without a bound, and permits: those that are released by another function or not at all, and
those of which a second one is taken while the first is kept. What an exception leaves uncounted.
Counts that one function waits for, and that others add to meanwhile.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from mpwatch.collect.source.growth.kept import container_of
from mpwatch.collect.source.lines.control_flow import RAISES_NOT
from mpwatch.collect.source.repetition import Repeatable, loop_around
from mpwatch.collect.source.syntax import (
    CONTAINERS,
    FUNCTIONS,
    LOOPS,
    Found,
    FunctionNode,
    ParsedFile,
    adds_to,
    are_apart,
    bindings,
    calls_in,
    children,
    every_node,
    expression_text,
    first_line,
    functions_by_name,
    functions_in,
    is_inside,
    last_line,
    last_name,
    names_in,
    own_nodes,
    quoted,
    receiver_of,
    within,
)
from mpwatch.model.source_code import Mark

_WAKES: Final = frozenset(("notify", "notify_all", "set"))
_COPIES: Final = frozenset(("copy", "items", "keys", "values"))
_MAKES_COPY: Final = frozenset(("dict", "list", "set", "sorted", "tuple"))
_PERMITS: Final = re.compile(
    r"\w*(?:acquire|borrow|checkout|claim|connection|lease|limit|permit|reserve|slot)\w*"
)
_CALLS_LIMIT: Final = 3
"""Functions of the file between the block that takes a permit and the one that takes another."""


class Handing(NamedTuple):
    """What the whole of a file shows for this."""

    added: Mapping[str, tuple[str, ...]]
    """The functions that add to each container: `self.samples`."""
    functions: Mapping[str, FunctionNode]
    """See `functions_by_name`."""


def handing_of(tree: ast.Module) -> Handing:
    """Gather what `find_handing` needs of a file."""
    added: dict[str, dict[str, None]] = {}
    for function in functions_in(tree):
        for name in _added_in(function):
            added.setdefault(name, {})[function.name] = None
    return Handing({name: tuple(found) for name, found in added.items()}, functions_by_name(tree))


def _added_in(function: ast.AST) -> Iterator[str]:
    """The attributes of an object to whose container a function adds."""
    for node in own_nodes(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute):
                    yield expression_text(target.value)
        elif isinstance(node, ast.Call) and adds_to(node):
            receiver = receiver_of(node)
            if "." in receiver:
                yield receiver


def find_handing(function: ast.AST, nodes: Sequence[ast.AST], known: Handing) -> Iterator[Found]:
    """The statements of this kind in one function, or in a file outside of its functions."""
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in _WAKES:
            receiver = receiver_of(node)
            # `set(values)` and `torch.manual_seed` are no wake-ups.
            if receiver and not node.args:
                yield "wakes", receiver, node
    if isinstance(function, FUNCTIONS):
        yield from _emptied_late(function, nodes, known.added)
        yield from _taken_again(nodes, known.functions)


def _emptied_late(
    function: FunctionNode, nodes: Sequence[ast.AST], added: Mapping[str, tuple[str, ...]]
) -> Iterator[Found]:
    """`batch = list(self.items)`, then a call, then `self.items = []`: what came between is lost.

    Not where one `with` block contains both: it keeps those that add out.
    """
    for node in nodes:
        name = _emptied(node)
        others = [each for each in added.get(name, ()) if each not in (function.name, "__init__")]
        if not name or not others:
            continue
        line = first_line(node)
        reads = [
            last_line(each)
            for each in _copies(nodes, name)
            if last_line(each) < line and not are_apart(nodes, each, node)
        ]
        if not reads:
            continue
        last = max(reads)
        calls = [
            each for each in nodes if isinstance(each, ast.Call) and last < first_line(each) < line
        ]
        if calls and not _are_in_one_block(nodes, last, line):
            yield "emptied-late", f"{name}, {last}, {', '.join(others)}", node


def _are_in_one_block(nodes: Sequence[ast.AST], first: int, last: int) -> bool:
    return any(
        first_line(each) <= first and last <= last_line(each)
        for each in nodes
        if isinstance(each, ast.With | ast.AsyncWith)
    )


def _emptied(node: ast.AST) -> str:
    """The attribute that a statement empties, or gives an empty container; empty for others."""
    if isinstance(node, ast.Call) and last_name(node.func) == "clear":
        return receiver_of(node)
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return ""
    target, value = node.targets[0], node.value
    is_empty = (isinstance(value, ast.List | ast.Tuple) and not value.elts) or (
        isinstance(value, ast.Dict) and not value.keys
    )
    is_empty |= (
        isinstance(value, ast.Call) and not value.args and last_name(value.func) in CONTAINERS
    )
    return expression_text(target) if is_empty and isinstance(target, ast.Attribute) else ""


def _copies(nodes: Sequence[ast.AST], name: str) -> Iterator[ast.expr]:
    """The expressions that go through all of a container, or copy it."""
    for node in nodes:
        if isinstance(node, ast.comprehension) and expression_text(node.iter) == name:
            yield node.iter
        elif isinstance(node, ast.Call):
            is_own = last_name(node.func) in _COPIES and receiver_of(node) == name
            is_made = last_name(node.func) in _MAKES_COPY and len(node.args) > 0
            if is_own or (is_made and expression_text(node.args[0]) == name):
                yield node


def _taken_again(
    nodes: Sequence[ast.AST], functions: Mapping[str, FunctionNode | None]
) -> Iterator[Found]:
    """`async with self.pool.acquire():` around the call of a coroutine that does so as well."""
    for block in (each for each in nodes if isinstance(each, ast.AsyncWith)):
        for taken in _permits(block):
            inner = _inner(block, taken, functions, _CALLS_LIMIT)
            if inner is not None:
                call, function, line = inner
                about = f"{taken}, {first_line(block)}, {function}, {line}"
                yield "takes-again", about, call


def _permits(block: ast.AsyncWith) -> Iterator[str]:
    """What a block takes and gives back: the text of its items, without arguments."""
    for item in block.items:
        node = item.context_expr
        if isinstance(node, ast.Call):
            if _PERMITS.fullmatch(last_name(node.func)):
                yield f"{expression_text(node.func)}()"
        elif isinstance(node, ast.Attribute):
            yield expression_text(node)


def _inner(
    block: ast.AST, taken: str, functions: Mapping[str, FunctionNode | None], calls_left: int
) -> tuple[ast.AST, str, int] | None:
    """The statement in a block that takes the same again, itself or by a call.

    Returns:
        That statement or call, the function that takes it, empty for the same one, and its line.
    """
    for node in own_nodes(block):
        if isinstance(node, ast.AsyncWith) and taken in _permits(node):
            return node, "", first_line(node)
        if (
            not isinstance(node, ast.Await)
            or not isinstance(node.value, ast.Call)
            or not calls_left
        ):
            continue
        called = functions.get(last_name(node.value.func))
        if called is None or receiver_of(node.value) not in ("", "self"):
            continue
        found = _inner(called, taken, functions, calls_left - 1)
        if found is not None:
            return node.value, found[1] or called.name, found[2]
    return None


_QUEUES: Final = frozenset(("Queue", "SimpleQueue", "LifoQueue", "PriorityQueue"))


def find_sends_to_each(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`for connection, arg in zip(connections, args): connection.send(arg)`.

    Not of what the loop makes for each of them, nor of a constant.
    """
    for node in nodes:
        if isinstance(node, ast.For):
            made = {name for part in node.body for each in ast.walk(part) for name in _set(each)}
            yield from _sent_to_each(node.target, node.iter, node.body, made)
        elif isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
            over = node.generators[0]
            yield from _sent_to_each(over.target, over.iter, [node.elt], set())


def _sent_to_each(
    target: ast.expr, over: ast.expr, body: Sequence[ast.AST], made: set[str]
) -> Iterator[Found]:
    given = names_in(target)
    is_zip = isinstance(over, ast.Call) and last_name(over.func) == "zip"
    for call in (each for part in body for each in calls_in(part)):
        if last_name(call.func) != "send" or len(call.args) != 1 or call.keywords:
            continue
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        value, names = call.args[0], names_in(call.args[0])
        if not isinstance(receiver, ast.Name) or receiver.id not in given:
            continue
        if not names or receiver.id in names or names & made or any(calls_in(value)):
            continue
        kind = "several" if names & given else "same"
        if kind == "same" or is_zip:
            yield "sends-each", f"{kind}, {expression_text(value)}", call


def _set(node: ast.AST) -> set[str]:
    return {each.id for target, _ in bindings(node) for each in _names(target)}


def _names(target: ast.expr) -> list[ast.Name]:
    return [each for each in ast.walk(target) if isinstance(each, ast.Name)]


def find_unbounded(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.results = queue.Queue()`: queues of threads or processes that take any number."""
    for node in nodes:
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(call, ast.Call):
            continue
        is_queue = last_name(call.func) in _QUEUES and receiver_of(call) != "asyncio"
        if is_queue and not call.args and not call.keywords and len(node.targets) == 1:
            yield "unbounded", expression_text(node.targets[0]), node


def managers_of(tree: ast.Module) -> Iterator[str]:
    """What a file binds to `Manager()` or `SyncManager()`."""
    for node in every_node(tree):
        for target, value in bindings(node):
            if isinstance(value, ast.Call) and last_name(value.func) in _MANAGERS:
                yield expression_text(target)


_MANAGERS: Final = frozenset(("Manager", "SyncManager"))


def find_managed(nodes: Sequence[ast.AST], managers: Container[str]) -> Iterator[Found]:
    """`self.results = manager.Queue()`, and where it is given on at once; with no maxsize."""
    calls = [e for e in nodes if isinstance(e, ast.Call) and last_name(e.func) in _MANAGED]
    made = set(map(id, calls))
    names = {
        id(node.value): expression_text(node.targets[0])
        for node in nodes
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and id(node.value) in made
    }
    for call in calls:
        assert isinstance(call, ast.Call)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        is_made_there = isinstance(owner, ast.Call) and last_name(owner.func) in _MANAGERS
        is_manager = receiver_of(call) in managers or is_made_there
        is_called_so = owner is not None and re.search("manager", last_name(owner), re.IGNORECASE)
        sizes = [*call.args, *(each.value for each in call.keywords)]
        if (is_manager or is_called_so) and not any(map(_limits_queue, sizes)):
            yield "managed-queue", names.get(id(call), ""), call


_MANAGED: Final = frozenset(("Queue", "JoinableQueue"))


def _limits_queue(size: ast.expr) -> bool:
    """Whether a maxsize limits a queue: anything but a number that is not above 0."""
    if isinstance(size, ast.UnaryOp) and isinstance(size.op, ast.USub):
        return False
    return getattr(size, "value", None) != 0


class Permits(NamedTuple):
    """How a file acquires and releases something, by the last part of its name."""

    acquires: Mapping[str, frozenset[str]]
    """Each name with what may be called for it: `acquire` itself, and functions that only do it."""
    releases: Mapping[str, frozenset[str]]


def permits_of(tree: ast.Module) -> Permits:
    """What functions of a file do nothing but acquire, or release, for others."""
    found: dict[str, dict[str, set[str]]] = {"acquire": {}, "release": {}}
    for function in functions_in(tree):
        calls = [each for each in own_nodes(function) if isinstance(each, ast.Call)]
        does = {
            method: {container_of(receiver_of(each)) for each in calls if _calls(each, method)}
            for method in found
        }
        for method, other in (("acquire", "release"), ("release", "acquire")):
            for name in does[method] - {""}:
                names = found[method].setdefault(name, set())
                is_named = method in function.name.lower()
                if name not in does[other] and (is_named or _does_only(function, method)):
                    names.add(function.name)
    return Permits(
        *(
            {name: frozenset(each) for name, each in found[m].items()}
            for m in ("acquire", "release")
        )
    )


def _does_only(function: FunctionNode, method: str) -> bool:
    """Whether a function has a statement for that, and few beside, under a name of its own."""
    body = [each for each in function.body if not _is_docstring(each)]
    is_own = function.name.count("_") > 0 and not function.name.startswith("__")
    return (
        is_own
        and len(body) <= _STATEMENTS
        and any(
            isinstance(each, ast.Expr)
            and isinstance(each.value, ast.Call)
            and _calls(each.value, method)
            for each in body
        )
    )


_STATEMENTS: Final = 3


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _calls(call: ast.Call, method: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == method


def _is_for(call: ast.Call, method: str, name: str, wrappers: Container[str]) -> bool:
    """Whether a call does that to what has a name, itself or by a function of the file for it."""
    if _calls(call, method) and (of := receiver_of(call)) != "self":
        return container_of(of) == name  # another one may have a method of that name
    return last_name(call.func) in wrappers


def find_unreleased(permits: Permits, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """What skips `permits.release()`: an exception after `permits.acquire()`, or a `continue`."""
    calls = sorted((each for each in nodes if isinstance(each, ast.Call)), key=first_line)
    tries = [each for each in nodes if isinstance(each, ast.Try)]
    kept = [n for t in tries for part in (*t.finalbody, *t.handlers) for n in ast.walk(part)]
    for name, acquire in permits.acquires.items():
        release = permits.releases.get(name, frozenset())
        ends = [each for each in calls if _is_for(each, "release", name, release)]
        if not ends or any(each in kept for each in ends):
            continue
        taken = [each for each in calls if _is_for(each, "acquire", name, acquire)]
        before = [each for each in taken if each.lineno < ends[0].lineno]
        if before:
            between = (c for c in calls if before[-1].lineno < c.lineno < ends[0].lineno)
            for call in (c for c in between if last_name(c.func) not in RAISES_NOT):
                yield "unreleased", f"{name}, {before[-1].lineno}", call
                break
        else:
            skips = [*_continues_before(nodes, ends[0]), *_caught_before(tries, ends[0])]
            for skip in skips[:1]:
                yield "unreleased", f"{name}, 0", skip


def _caught_before(tries: Sequence[ast.Try], release: ast.Call) -> Iterator[ast.Call]:
    """A call before a release in its `try` block, of which an `except` clause goes on without it.

    As in a callback for a task: `on_result(task.result())`, and then the release.
    """
    around = [t for t in tries if t.body[0].lineno <= release.lineno <= last_line(t.body[-1])]
    tried = max(around, key=first_line, default=None)
    if tried is None or any(isinstance(h.body[-1], ast.Raise) for h in tried.handlers):
        return
    before = sorted(
        (c for part in tried.body for c in calls_in(part) if c.lineno < release.lineno),
        key=first_line,
    )
    yield from (c for c in before if tried.handlers and last_name(c.func) not in RAISES_NOT)


def _continues_before(nodes: Sequence[ast.AST], later: ast.Call) -> Iterator[ast.If]:
    """The conditions with a `continue` in the innermost loop around a call that come before it."""
    loops = [each for each in nodes if isinstance(each, LOOPS) and is_inside(later, each)]
    for node in (each for each in nodes if isinstance(each, ast.If) and loops):
        is_before = isinstance(node.body[-1], ast.Continue) and last_line(node) < later.lineno
        if is_before and is_inside(node, max(loops, key=first_line)):
            yield node


def find_uncounted(module: ParsedFile) -> Iterator[tuple[ast.AST, Found]]:
    """`self.left.value -= 1` behind a call whose exception is logged, so that the loop goes on.

    The call and the `except` clause are in its own function, or the clause is in one of the file
    that calls this one. With the function of each. Only of a Value of multiprocessing: what
    processes count by attributes of their own does not show in another one.
    """
    functions = functions_in(module.tree)
    tries: Mapping[str, Sequence[ast.Try]] | None = None
    for function in functions:
        for node, parents in within([child for _, child in children(function)]):
            counter = _counter(node)
            if not counter:
                continue
            way = (*parents, node)
            own = _caught_in(way)
            first = own.body if own is not None else [child for _, child in children(function)]
            call = _may_raise_before(first, node)
            handlers = [_goes_on(own, counter)] if own is not None else []
            if own is None and not _is_kept(way):
                tries = _tries_in_loops(functions) if tries is None else tries
                handlers = [_goes_on(each, counter) for each in tries.get(function.name, ())]
            handler = next(filter(None, handlers), None)
            if call is not None and handler is not None:
                words = f"{quoted(module, handler).text} in line {first_line(handler)}"
                yield function, ("uncounted", f"{counter}, {first_line(call)}, {words}", node)


def _counter(node: ast.AST) -> str:
    """The shared counter that a statement changes by one: `left.value`."""
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add | ast.Sub):
        return ""
    is_shared = isinstance(node.target, ast.Attribute) and node.target.attr == "value"
    is_one = getattr(node.value, "value", None) == 1
    return expression_text(node.target).removeprefix("self.") if is_shared and is_one else ""


def _caught_in(way: Sequence[ast.AST]) -> ast.Try | None:
    """The innermost `try` with `except` clauses, whose body a statement is in."""
    found = None
    for outer, inner in pairwise(way):
        if isinstance(outer, ast.Try) and outer.handlers and inner in outer.body:
            found = outer
    return found


def _is_kept(way: Sequence[ast.AST]) -> bool:
    """Whether a statement is in a `finally` block or an `except` clause."""
    return any(
        isinstance(outer, ast.ExceptHandler)
        or (isinstance(outer, ast.Try) and inner in outer.finalbody)
        for outer, inner in pairwise(way)
    )


def _may_raise_before(body: Sequence[ast.AST], node: ast.AST) -> ast.AST | None:
    """The first simple statement of a block and its parts that calls something before a line.

    Not one within a `try` of its own, nor logging.
    """
    for each, parents in within(body):
        if first_line(each) >= first_line(node):
            return None
        if isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
            calls = [e for e in ast.walk(each) if isinstance(e, ast.Call)]
            is_caught = any(isinstance(parent, ast.Try) for parent in parents)
            if not is_caught and any(last_name(e.func) not in RAISES_NOT for e in calls):
                return each
    return None


def _tries_in_loops(functions: Iterable[FunctionNode]) -> Mapping[str, Sequence[ast.Try]]:
    """The `try` statements in loops of a file, by each function of the file that they may call."""
    found: defaultdict[str, list[ast.Try]] = defaultdict(list)
    for function in functions:
        nodes = own_nodes(function)
        loops = [each for each in nodes if isinstance(each, LOOPS)]
        for tried in (each for each in nodes if isinstance(each, ast.Try)):
            if any(is_inside(tried, loop) for loop in loops):
                calls = (call for part in tried.body for call in calls_in(part))
                for name in {last_name(c.func) for c in calls if receiver_of(c) in ("", "self")}:
                    found[name].append(tried)
    return found


_ANY: Final = re.compile(r"\w*(?:Exception|Error)")


def _goes_on(tried: ast.Try, counter: str) -> ast.ExceptHandler | None:
    """The `except` clause after which a loop goes on without having counted."""
    rest = [n for part in (*tried.orelse, *tried.finalbody) for n in ast.walk(part)]
    if any(_counter(each) == counter for each in rest):
        return None
    for handler in tried.handlers:
        kinds = [handler.type]
        if isinstance(handler.type, ast.Tuple):
            kinds = list(handler.type.elts)
        is_error = any(k is None or _ANY.fullmatch(last_name(k)) is not None for k in kinds)
        inner = [each for part in handler.body for each in ast.walk(part)]
        leaves = any(isinstance(each, ast.Raise | ast.Return | ast.Break) for each in inner)
        counts = any(_counter(each) for each in inner)
        if is_error and not leaves and not counts:
            return handler
    return None


def find_releases(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`slots.release()` in a function that has not taken it: it counts what others may take."""
    taken = {
        last_name(part)
        for node in nodes
        for part in (
            [each.context_expr for each in node.items]
            if isinstance(node, ast.With | ast.AsyncWith)
            else [node.func.value]
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "acquire"
            else []
        )
    }
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = last_name(node.func.value)
            if node.func.attr == "release" and name and name not in taken:
                yield "releases", name, node


# --- counts that one function waits for, and that others add to meanwhile -------------------------


class _Drain(NamedTuple):
    """A wait until a count is 0."""

    function: FunctionNode
    counter: str
    condition: str
    """What it waits for: `self._ready`."""
    first: int
    last: int


def admissions(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """`self.readers += 1`, while another method waits until `self.readers` is 0.

    Not where the one that adds asks for anything that the other one, or what calls it, has set
    before it waits (a count of waiting writers, a flag), nor where both take the same further lock;
    nor where what takes from the count does not wake up the one that waits.
    """
    for owner, functions in _groups(module.tree):
        for drain in (each for function in functions for each in _drains(function)):
            if not any(_takes_and_wakes(each, drain) for each in functions):
                continue
            told = _announced(functions, drain)
            locks = {drain.condition, drain.counter, *_locks_of(module.tree, drain.condition)}
            for function in functions:
                added = next(_added_to(function, drain.counter), None)
                if added is None or any(e.counter == drain.counter for e in _drains(function)):
                    continue
                if (told & _asked_before(function, added)) - {*map(_plain, locks)}:
                    continue
                names = [function.name, *_callers(functions, function.name)]
                about = (
                    f"{drain.counter}, {drain.function.name}, {drain.first}-{drain.last}, "
                    f"{'/'.join(names)}"
                )
                mark = Mark("admits", file, function.name, about, quoted(module, added))
                is_entered = function.name == "__enter__" and owner
                loop = loop_around(file, function, own_nodes(function), added)
                yield Repeatable(mark, (owner if is_entered else function.name,), loop)


def _groups(tree: ast.Module) -> Iterator[tuple[str, Sequence[FunctionNode]]]:
    """The methods of each class, with its name, and the functions of a file that are none."""
    yield "", [each for each in tree.body if isinstance(each, FUNCTIONS)]
    for node in every_node(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, [each for each in node.body if isinstance(each, FUNCTIONS)]


def _drains(function: FunctionNode) -> Iterator[_Drain]:
    """`while self.readers > 0: self.ready.wait()`, and the same by wait_for()."""
    for node in own_nodes(function):
        if isinstance(node, ast.While):
            waits = [each for each in calls_in(node) if last_name(each.func) == "wait"]
            for count in _above_zero(node.test) if waits else ():
                lines = first_line(node), last_line(node)
                yield _Drain(function, count, receiver_of(waits[0]), *lines)
        elif isinstance(node, ast.Call) and last_name(node.func) == "wait_for" and node.args:
            asked = node.args[0]
            for count in _at_zero(asked.body) if isinstance(asked, ast.Lambda) else ():
                lines = first_line(node), last_line(node)
                yield _Drain(function, count, receiver_of(node), *lines)


_ABOVE: Final = {(ast.Gt, 0), (ast.NotEq, 0), (ast.GtE, 1)}
_ZERO: Final = {(ast.Eq, 0), (ast.LtE, 0), (ast.Lt, 1)}


def _above_zero(test: ast.expr) -> Iterator[str]:
    """The counts that a condition finds above 0: of `self.writer or self.readers > 0` the last."""
    if isinstance(test, ast.BoolOp):
        for each in test.values:
            yield from _above_zero(each)
    elif isinstance(test, ast.Attribute):
        yield expression_text(test)
    else:
        yield from _compared(test, _ABOVE)


def _at_zero(test: ast.expr) -> Iterator[str]:
    """The counts that a condition finds at 0."""
    if isinstance(test, ast.BoolOp):
        for each in test.values:
            yield from _at_zero(each)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        if isinstance(test.operand, ast.Attribute):
            yield expression_text(test.operand)
    else:
        yield from _compared(test, _ZERO)


def _compared(test: ast.expr, ways: Container[tuple[type[ast.cmpop], object]]) -> Iterator[str]:
    """The attribute that is compared with a number in one of these ways."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        number = getattr(test.comparators[0], "value", None)
        if isinstance(test.left, ast.Attribute) and (type(test.ops[0]), number) in ways:
            yield expression_text(test.left)


def _added_to(function: FunctionNode, count: str) -> Iterator[ast.AugAssign]:
    """`self.readers += 1`."""
    for node in own_nodes(function):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            number = getattr(node.value, "value", None)
            if expression_text(node.target) == count and isinstance(number, int) and number > 0:
                yield node


def _takes_and_wakes(function: FunctionNode, drain: _Drain) -> bool:
    """Whether a function takes from the count, and then wakes up what waits for it."""
    nodes = own_nodes(function)
    takes = any(
        isinstance(each, ast.AugAssign)
        and isinstance(each.op, ast.Sub)
        and expression_text(each.target) == drain.counter
        for each in nodes
    )
    return takes and any(
        isinstance(each, ast.Call)
        and last_name(each.func) in _WAKES
        and receiver_of(each) == drain.condition
        for each in nodes
    )


_TELLS: Final = frozenset(("acquire", "add", "append", "appendleft", "clear", "put", "set"))


def _announced(functions: Sequence[FunctionNode], drain: _Drain) -> set[str]:
    """What tells others that a function waits, or is about to: set before it waits, or elsewhere.

    What it sets only after its wait (`self.writing = True`) tells nothing of it.
    """
    found: set[str] = set()
    for function in functions:
        if function.name == "__init__":
            continue
        for node in own_nodes(function):
            if function is drain.function and first_line(node) >= drain.first:
                continue
            if isinstance(node, ast.With) and function is drain.function:
                found |= {_plain(expression_text(each.context_expr)) for each in node.items}
            elif isinstance(node, ast.Call) and last_name(node.func) in _TELLS:
                found.add(_plain(receiver_of(node)))
            elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                found.add(_plain(expression_text(node.target)))
            elif isinstance(node, ast.Assign) and getattr(node.value, "value", True):
                found |= {_plain(expression_text(each)) for each in node.targets}
    return found - {""}


def _plain(text: str) -> str:
    """`self.waiting` also of `self.waiting.value`."""
    return text.removesuffix(".value")


def _asked_before(function: FunctionNode, added: ast.AST) -> set[str]:
    """What a function asks for, waits for or takes before it adds to a count."""
    found: set[str] = set()
    for node in own_nodes(function):
        if first_line(node) > first_line(added):
            continue
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            found |= {_plain(expression_text(e)) for e in ast.walk(node.test) if _is_name(e)}
        elif isinstance(node, ast.With | ast.AsyncWith):
            found |= {_plain(expression_text(each.context_expr)) for each in node.items}
        elif isinstance(node, ast.Call):
            found.add(_plain(receiver_of(node)))
            if last_name(node.func) == "wait_for":
                found |= {_plain(expression_text(e)) for e in ast.walk(node) if _is_name(e)}
    return found


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Name)


def _locks_of(tree: ast.Module, condition: str) -> Iterator[str]:
    """`self.lock` of `self.ready = threading.Condition(self.lock)`."""
    for node in every_node(tree):
        for target, value in bindings(node):
            if expression_text(target) == condition and isinstance(value, ast.Call):
                yield from map(expression_text, value.args)


def _callers(functions: Sequence[FunctionNode], name: str) -> Iterator[str]:
    """The methods of a class that call another one of it."""
    for function in functions:
        if any(
            isinstance(each, ast.Call)
            and last_name(each.func) == name
            and receiver_of(each) in ("", "self")
            for each in own_nodes(function)
        ):
            yield function.name
