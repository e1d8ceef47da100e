"""Statements of parsed source files: as words of a finding, and as reasons for what is observed.

Reasons are loops that do not end by themselves, ways past a statement that gives back what was
taken, tasks whose results are dropped, caches without a bound, delays that only grow.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from signal import Signals
from typing import Final, NamedTuple, TypeAlias

from mpwatch.collect.process.slow_statements import slow
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import (
    DroppedResult,
    EndlessLoop,
    Guarded,
    Mark,
    MarkKind,
    Skip,
    Statement,
    TakenLock,
)

QUOTE_LIMIT: Final = 100
"""Characters of a quoted statement."""
ROWS: Final = 8
"""Lines of a quoted statement."""


class Module(NamedTuple):
    """A parsed file and its lines."""

    rows: tuple[str, ...]
    tree: ast.Module


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.While, ast.AsyncFor)
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


def condition(module: Module, node: ast.If) -> Statement:
    """`if step > 9: break`, with the statement that leaves."""
    header, last = quoted(module, node), quoted(module, node.body[-1])
    return Statement(header.line, clean(f"{header.text} {last.text}", QUOTE_LIMIT))


def quoted(module: Module, node: ast.AST) -> Statement:
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


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The syntax of a function, without that of functions defined in it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            waiting += ast.iter_child_nodes(node)


# --- reasons -------------------------------------------------------------------------------------

NESTED: Final = 8
"""Statements kept around a line, and before it."""
SHOWN: Final = 3
TAKEN: Final = 16
"""Statements of one function that take something of which it is asked whether it is given back."""
REACHED: Final = 64
"""Functions of one file that are followed from another one."""
EXPRESSION_NODES: Final = 64
"""A longer expression is not compared with others."""
STARTS_TASK: Final = frozenset(("submit", "apply_async", "map_async", "starmap_async"))
_SUBMITS: Final = STARTS_TASK | {"remote"}
"""`remote` is Ray's, and that of what imitates it."""
_BRANCHES = (ast.If, ast.ExceptHandler, ast.match_case)
_EXCHANGES = re.compile(
    "accept|acquire|all_gather|all_reduce|backward|barrier|broadcast|put|put_nowait|recv|recv_bytes"
    "|select|send|send_bytes|sendall|sleep|step"
)
_EXCHANGES_BARE = frozenset(("get", "get_nowait", "join", "poll", "result", "wait"))
"""Such a call without an argument that is no number; `record.get("text")` is of a dict."""


def endless(module: Module, inside: Sequence[ast.AST]) -> EndlessLoop | None:
    """The innermost `while True` around the last statement, or `for` over something endless."""
    loop = next((each for each in reversed(inside[:-1]) if _is_endless(module, each)), None)
    if not isinstance(loop, ast.While | ast.For):
        return None
    ends: list[Statement] = []
    is_left = False
    gives = given_in = None
    for node, parents in within(loop.body):
        is_break = isinstance(node, ast.Break) and not any(isinstance(p, LOOPS) for p in parents)
        if is_break or isinstance(node, ast.Return):
            around = parents[-1] if parents else None
            is_alone = isinstance(around, ast.If) and node is around.body[-1]
            if isinstance(around, ast.If) and is_alone and len(ends) < NESTED:
                ends.append(condition(module, around))
            is_left |= not is_alone
        elif isinstance(node, ast.Raise):
            is_left = True
        elif gives is None and any(isinstance(e, ast.Yield | ast.YieldFrom) for e in _parts(node)):
            gives = quoted(module, node)
            given_in = quoted(module, parents[-1]) if parents else None
    calls = [each for each in ast.walk(loop) if isinstance(each, ast.Call)]
    is_exchange = any(map(_exchanges, calls))
    return EndlessLoop(quoted(module, loop), tuple(ends), is_left, gives, given_in, is_exchange)


def _is_endless(module: Module, node: ast.AST) -> bool:
    """Whether a statement is a loop that nothing ends from outside of it.

    `for _ in itertools.count()`, also if a variable was bound to that before.
    """
    if isinstance(node, ast.While):
        return _is_true(node.test)
    if not isinstance(node, ast.For):
        return False
    if not isinstance(node.iter, ast.Name):
        return _counts_on(node.iter)
    before = [
        each
        for each in ast.walk(module.tree)
        if isinstance(each, ast.Assign)
        and each.lineno < node.lineno
        and any(isinstance(t, ast.Name) and t.id == node.iter.id for t in each.targets)
    ]
    value = max(before, key=lambda each: each.lineno).value if before else None
    either = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
    return any(each is not None and _counts_on(each) for each in either)


def _counts_on(value: ast.expr) -> bool:
    """`itertools.count(...)`, and `itertools.repeat(...)` without a number of times."""
    if not isinstance(value, ast.Call):
        return False
    name = _text(value.func).removeprefix("itertools.")
    return name == "count" or (name == "repeat" and len(value.args) == 1 and not value.keywords)


def until_exits(module: Module, inside: Sequence[ast.AST]) -> Statement | None:
    """The condition that ends the innermost loop around the last statement once children exit."""
    loops = [each for each in inside[:-1] if isinstance(each, LOOPS)]
    loop = loops[-1] if loops else None
    if not isinstance(loop, ast.While):
        return None
    told = set()
    statements = [node for node, _ in within(loop.body)]
    for node in statements:
        if isinstance(node, ast.Assign) and _asks_for_exit(node.value, set()):
            told |= {name for target in node.targets for name in _names(target)}
    test = loop.test.operand if isinstance(loop.test, ast.UnaryOp) else None
    waits_for_start = isinstance(test, ast.Call) and last_name(test.func) == "is_alive"
    if _asks_for_exit(loop.test, told) and not waits_for_start:
        return quoted(module, loop)
    ends = [
        node
        for node in statements
        if isinstance(node, ast.If)
        and isinstance(node.body[-1], ast.Break | ast.Return)
        and not isinstance(node.test, ast.Call | ast.Name)  # it ends once one lives
    ]
    found = next((node for node in ends if _asks_for_exit(node.test, told)), None)
    return None if found is None else condition(module, found)


def _asks_for_exit(value: ast.expr, told: set[str]) -> bool:
    """Whether an expression depends on whether children live.

    Args:
        value: The expression.
        told: Variables that depend on it.
    """
    for node in ast.walk(value):
        if isinstance(node, ast.Compare) and last_name(getattr(node.left, "func", node.left)) in (
            "poll",
            "exitcode",
            "returncode",
        ):
            return True  # a Connection has a poll() of its own, which is not compared with None
        if isinstance(node, ast.Call) and last_name(node.func) in ("is_alive", "active_children"):
            return True
        if isinstance(node, ast.Name) and node.id in told:
            return True
    return False


_CONNECTS: Final = frozenset(
    ("Client", "connect", "create_connection", "open_connection", "open_unix_connection", "urlopen")
)


def connects(module: Module, inside: Sequence[ast.AST]) -> Statement | None:
    """The statement that connects, where the last statement is reached once that has failed.

    In an `except` clause of it, or below a `try` that leaves the loop when it has connected.
    """
    place = next((n for n in range(len(inside) - 1, -1, -1) if isinstance(inside[n], LOOPS)), None)
    if place is None:
        return None
    loop, below = inside[place], inside[place + 1 :]
    for outer, inner in pairwise(below):
        if isinstance(outer, ast.Try) and isinstance(inner, ast.ExceptHandler):
            return _connecting(module, outer)
    start = first_line(below[0]) if below else 0
    for node in (child for _, child in children(loop) if first_line(child) < start):
        if isinstance(node, ast.Try) and any(
            isinstance(each, ast.Break | ast.Return) for each, _ in within(node.body + node.orelse)
        ):
            return _connecting(module, node)
    return None


def _connecting(module: Module, tried: ast.Try) -> Statement | None:
    """The first statement of a `try` that connects."""
    for node, _ in within(tried.body):
        calls = (each for each in _parts(node) if isinstance(each, ast.Call))
        if any(last_name(each.func) in _CONNECTS for each in calls):
            return quoted(module, node)
    return None


_OF_RANK = re.compile(r"rank|zero|main|master|chief|coordinator|first", re.IGNORECASE)


def guarded(module: Module, function: ast.AST, inside: Sequence[ast.AST]) -> Iterator[Guarded]:
    """The calls under a condition on the rank that come before a line, of the blocks it is in.

    What is called in the `else` branch as well is called by all.
    """
    outer = function
    for node in inside:
        block = next((name for name, child in children(outer) if child is node), None)
        for name, child in children(outer):
            if child is node:
                break
            if name == block and isinstance(child, ast.If) and _OF_RANK.search(_text(child.test)):
                others = {last_name(c.func) for part in child.orelse for c in _calls_in(part)}
                header = quoted(module, child)
                for each, _ in within(child.body):
                    for call in _calls_in(each) if isinstance(each, ast.Expr | ast.Assign) else ():
                        called = last_name(call.func)
                        if called and called not in others and called not in _LOGS:
                            yield Guarded(header, quoted(module, each), clean(called, QUOTE_LIMIT))
        outer = node


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of the statements in it."""
    waiting = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, ast.Lambda):
            waiting += [each for each in ast.iter_child_nodes(part) if isinstance(each, ast.expr)]


def _exchanges(call: ast.Call) -> bool:
    name = last_name(call.func)
    is_bare = all(
        isinstance(each, ast.Constant) and isinstance(each.value, int | float) for each in call.args
    )
    return _EXCHANGES.fullmatch(name) is not None or (name in _EXCHANGES_BARE and is_bare)


def _reached(
    module: Module, function: ast.AST, line: int = 0
) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """A function, and at most `REACHED` of its file that it calls, each with its own syntax.

    A function is known by its name alone: methods of one name count as one.

    Args:
        module: The file.
        function: The function, or the file.
        line: What the function calls there is not followed.
    """
    named: defaultdict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(module.tree):
        if isinstance(node, FUNCTIONS):
            named[node.name].append(node)
    waiting, known = [function], {function}
    while waiting:
        one = waiting.pop(0)
        found = sorted(own_nodes(one), key=first_line)
        yield one, found
        called = {
            last_name(each.func)
            for each in found
            if isinstance(each, ast.Call)
            and not (one is function and first_line(each) <= line <= last_line(each))
        }
        for other in (each for name in sorted(called) for each in named[name]):
            if other not in known and len(known) <= REACHED:
                known.add(other)
                waiting.append(other)


def locks(module: Module, function: ast.AST) -> Iterator[TakenLock]:
    """What a function takes, and then what the functions of its file take that it calls."""
    owners: dict[ast.AST, str] = {
        node: clean(each.name, QUOTE_LIMIT)
        for each in ast.walk(module.tree)
        if isinstance(each, ast.ClassDef)
        for node in each.body
    }
    for taker, found in _reached(module, function):
        for node in found:
            for part in _locks_of(node):
                if (name := _text(part)) and _NAME.fullmatch(name):
                    name, owner = clean(name, QUOTE_LIMIT), owners.get(taker, "")
                    yield TakenLock(name, quoted(module, node), owner)


def held(module: Module, function: ast.AST, inside: Sequence[ast.AST]) -> Iterator[Statement]:
    """The calls of `acquire()` after which a line is reached without a `release()`.

    Args:
        module: The file.
        function: The function of the line.
        inside: Its statements around the line, outermost first, and the one at the line.
    """
    outer = function
    taken: dict[str, Statement] = {}
    for node in inside:
        block = next((name for name, child in children(outer) if child is node), None)
        for name, child in children(outer):
            if child is node:
                break
            if name != block:
                continue
            calls = [each for each in ast.walk(child) if isinstance(each, ast.Call)]
            if isinstance(child, ast.Assign | ast.Expr | ast.If):
                first = child.test if isinstance(child, ast.If) else child.value
                for each in ast.walk(first):
                    if isinstance(each, ast.Call) and last_name(each.func) == "acquire":
                        taken[_receiver(each)] = quoted(module, child)
            for each in calls:
                if last_name(each.func) == "release":
                    taken.pop(_receiver(each), None)
        outer = node
    yield from taken.values()


_SENDS = re.compile(r"(?:.*_)?(?:put|send|write|publish|push|emit|reply|answer|dump)\w*")
_LIBRARIES: Final = frozenset(
    ("numpy", "pandas", "scipy", "sklearn", "torch", "torchvision", "tqdm")
)
"""Besides the standard library: what they are given to compute with, they send nowhere."""


def may_send(module: Module, function: ast.AST, line: int) -> bool:
    """Whether a function may send or write something, as far as its file shows.

    A call of what another file of the program defines may, and is not followed.

    Args:
        module: The file.
        function: The function, or the file.
        line: Where it is now: what it has called there has a frame of its own.
    """
    unknown = set(_from_elsewhere(module.tree))
    count = 0
    for _, found in _reached(module, function, line):
        count += 1
        for call in (each for each in found if isinstance(each, ast.Call)):
            first = call.func
            while isinstance(first, ast.Attribute | ast.Call):
                first = first.value if isinstance(first, ast.Attribute) else first.func
            if isinstance(first, ast.Name) and first.id in unknown:
                return True
            if _SENDS.fullmatch(last_name(call.func)):
                return True
    return count > REACHED


def _from_elsewhere(tree: ast.AST) -> Iterator[str]:
    """The names that a file imports, but for those from the standard library and `_LIBRARIES`."""
    known = sys.stdlib_module_names | _LIBRARIES
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level or (node.module or "").partition(".")[0] not in known:
                yield from (each.asname or each.name for each in node.names)
        elif isinstance(node, ast.Import):
            for each in node.names:
                name = each.name.partition(".")[0]
                if name not in known:
                    yield each.asname or name


_NAME = re.compile(r"[\w.]+")


def _locks_of(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement may take as a lock."""
    if isinstance(node, ast.With | ast.AsyncWith):
        yield from (each.context_expr for each in node.items)
    elif isinstance(node, ast.Call) and last_name(node.func) == "acquire":
        yield from [node.func.value] if isinstance(node.func, ast.Attribute) else ()


_TAKES = re.compile(r"^(get|recv|acquire|take|pop|borrow|checkout|claim|lease|reserve)")
_GIVES = re.compile(r"^(put|send|release|give|free|push|recycle|restore|return_)")
_OF_ITSELF = {"get": ("task_done",), "acquire": ("release",), "claim": ("release",)}
_LOCKS = re.compile(r"acquire|(?<![ncb])lock$|claim|^enter|^begin|^start|^reserve")
_UNLOCKS = re.compile(r"^(release|unlock|free|remove|finish|done|end|close|unlink)")
_REMOVES = frozenset(("remove", "unlink", "rmdir"))


class _Taken(NamedTuple):
    """What one statement takes."""

    names: frozenset[str]
    """Variables that it binds to what it took."""
    receiver: str
    """What it was taken from: `self.free`."""
    returns: tuple[str, ...]
    """Methods of the receiver that give it back."""


def skips(module: Module, function: ast.AST) -> Iterator[Skip]:
    """The ways through a function past the statement that gives back what it took.

    Of the first `TAKEN` statements that take something: each is compared with all later ones.
    """
    own = [node for _, node in children(function)]
    left = iter(range(TAKEN))
    for node, _ in within(own):
        blocks = [getattr(node, name, []) for name in BLOCKS]
        for block in (*blocks, own) if node is own[0] else blocks:
            for place, each in enumerate(block):
                if isinstance(each, ast.stmt):
                    around = node if isinstance(node, ast.Try) and block is node.body else None
                    if _takes(each) and next(left, None) is None:
                        return
                    yield from _skips_after(module, each, block[place + 1 :], around)
        if isinstance(node, ast.If) and (lock := _lock_taken(node.test)) is not None:
            if next(left, None) is None:
                return
            yield from _error_between(module, node, lock, node.body)


def _takes(node: ast.stmt) -> bool:
    """Whether a statement takes something, or a lock."""
    if _taken(node) is not None:
        return True
    return isinstance(node, ast.Assign | ast.Expr) and _lock_taken(node.value) is not None


def _skips_after(
    module: Module, node: ast.stmt, rest: Sequence[ast.AST], around: ast.Try | None
) -> Iterator[Skip]:
    """The ways past the statement of a block that gives back what an earlier one took.

    Args:
        module: The file.
        node: The earlier statement.
        rest: The later ones of its block.
        around: The `try` of which that is the body.
    """
    taken = _taken(node)
    if taken is not None:
        for number, later in enumerate(rest):
            back = next((each for each, _ in within([later]) if _gives(each, taken)), None)
            if back is not None:
                yield from _left_between(module, node, rest[: number + 1], taken, back)
                handlers = around.handlers if around is not None else []
                for handler in handlers:
                    if _goes_on_without(handler, around, taken, back):
                        yield _skip(module, node, handler, None, back)
                break
    if isinstance(node, ast.Assign | ast.Expr):
        yield from _error_between(module, node, _lock_taken(node.value), rest)


def _left_between(
    module: Module, node: ast.stmt, rest: Sequence[ast.AST], taken: _Taken, back: ast.AST
) -> Iterator[Skip]:
    """The statements that leave before something is given back."""
    for each, parents in within(rest):
        finals = [p for p in parents if isinstance(p, ast.Try) and p.finalbody]
        if any(_gives(e, taken) for final in finals for e, _ in within(final.finalbody)):
            continue
        is_left = (isinstance(each, ast.Return) and not _names(each) & taken.names) or (
            isinstance(each, ast.Continue | ast.Break)
            and not any(isinstance(p, LOOPS) for p in parents)
        )
        around = next((p for p in reversed(parents) if isinstance(p, _BRANCHES)), None)
        is_before = first_line(each) < first_line(back)
        if is_left and is_before and around is not None and not _is_message(around, taken):
            if not any(_gives(e, taken) for e, _ in within(_block_of(around, each))):
                yield _skip(module, node, each, around, back)
        elif isinstance(each, ast.ExceptHandler) and _goes_on_without(
            each, parents[-1] if parents else None, taken, back
        ):
            yield _skip(module, node, each, None, back)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_message(around: ast.AST, taken: _Taken) -> bool:
    """Whether a condition asks what the thing taken is: a message that says to end, or nothing."""
    test = around.test if isinstance(around, ast.If) else None
    if isinstance(test, ast.UnaryOp):
        test = test.operand
    asked = test.left if isinstance(test, ast.Compare) else test
    return isinstance(asked, ast.Name) and asked.id in taken.names


def _goes_on_without(
    handler: ast.ExceptHandler, tried: ast.AST | None, taken: _Taken, back: ast.AST
) -> bool:
    """Whether an exception skips the statement that gives back, and its handler goes on."""
    if not isinstance(tried, ast.Try) or back not in [each for each, _ in within(tried.body)]:
        return False
    does = [each for each, _ in within([*handler.body, *tried.finalbody])]
    return not any(isinstance(each, ast.Raise) or _gives(each, taken) for each in does)


def _block_of(around: ast.AST, node: ast.AST) -> Sequence[ast.AST]:
    """The block of a compound statement that contains a statement."""
    for name in BLOCKS:
        block: list[ast.AST] = getattr(around, name, [])
        if any(each is node for each, _ in within(block)):
            return block
    return ()


def _error_between(
    module: Module, node: ast.stmt, lock: str | None, rest: Sequence[ast.AST]
) -> Iterator[Skip]:
    """A call between taking a lock and releasing it whose exception skips the release."""
    if lock is None:
        return
    for number, later in enumerate(rest):
        if isinstance(later, ast.Expr) and _unlocks(later.value, lock):
            calls = [e for e in rest[:number] if _calls_something(e)]
            if calls:
                yield Skip(
                    quoted(module, node),
                    quoted(module, calls[0]),
                    None,
                    quoted(module, later),
                    by_error=True,
                )
            return


def _calls_something(node: ast.AST) -> bool:
    """Whether a statement calls what may raise; logging does not."""
    found = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    names = {_receiver(each).rpartition(".")[2] for each in found}
    return (
        bool(found) and not isinstance(node, ast.Try) and not names <= {"log", "logger", "logging"}
    )


def _skip(
    module: Module, node: ast.stmt, leaves: ast.AST, around: ast.AST | None, back: ast.AST
) -> Skip:
    under = None if around is None else quoted(module, around)
    return Skip(quoted(module, node), quoted(module, leaves), under, quoted(module, back))


def _taken(node: ast.stmt) -> _Taken | None:
    """What an assignment or a call takes; `None` for others."""
    call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if not _TAKES.match(call.func.attr):
        return None
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = {name for target in targets for name in _names(target)}
    returns = _OF_ITSELF.get(call.func.attr, ())
    return _Taken(frozenset(names), _receiver(call), returns)


def _gives(node: ast.AST, taken: _Taken) -> bool:
    """Whether a statement gives back what was taken."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in taken.returns and _receiver(call) == taken.receiver:
        return True
    items = [e for arg in call.args for e in (arg.elts if isinstance(arg, ast.Tuple) else [arg])]
    passed = {each.id for each in items if isinstance(each, ast.Name)}
    return _GIVES.match(call.func.attr) is not None and not taken.names.isdisjoint(passed)


def _receiver(call: ast.Call) -> str:
    """`self.free` of `self.free.put(slot)`."""
    return _text(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _lock_taken(value: ast.expr | None) -> str | None:
    """What a call takes a lock from, empty for a file that it makes; `None` for other calls."""
    call = value.operand if isinstance(value, ast.UnaryOp) else value
    if not isinstance(call, ast.Call):
        return None
    names = {last_name(each) for each in ast.walk(call) if isinstance(each, ast.expr)}
    if "O_EXCL" in names or last_name(call.func) == "mkdir":
        return ""
    is_method = isinstance(call.func, ast.Attribute) and _LOCKS.search(call.func.attr)
    return _receiver(call) if is_method else None


def _unlocks(value: ast.expr, lock: str) -> bool:
    """Whether a call releases a lock, or removes a file where the lock is one."""
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if not lock:
        return name in _REMOVES
    return _UNLOCKS.match(name) is not None and _receiver(value) == lock


def dropped(file: str, module: Module) -> Iterator[DroppedResult]:
    """The calls that start a task and drop its result."""
    executors = set(_executors(module.tree))
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        call = node.value
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in STARTS_TASK:
            continue
        if call.func.attr == "submit" and last_name(call.func.value) not in executors:
            continue  # other classes have a method of that name, too
        if not any(keyword.arg in (None, "error_callback") for keyword in call.keywords):
            yield DroppedResult(file, node.lineno, call.func.attr, quoted(module, node))


def _executors(tree: ast.Module) -> Iterator[str]:
    """Names and attributes that the file binds to a new `...Executor(...)`."""
    for node in ast.walk(tree):
        made: list[tuple[ast.expr, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            made = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            made = [(node.target, node.value)]
        elif isinstance(node, ast.With | ast.AsyncWith):
            made = [
                (each.optional_vars, each.context_expr)
                for each in node.items
                if each.optional_vars is not None
            ]
        for target, value in made:
            if isinstance(value, ast.Call) and last_name(value.func).endswith("Executor"):
                yield last_name(target)


def marks(file: str, module: Module) -> Iterator[Mark]:
    """Statements that can be the reason for what is observed, in no order."""
    bounded = set(_bounded(module.tree))
    named = [n for n in ast.walk(module.tree) if isinstance(n, (*FUNCTIONS, ast.ClassDef))]
    set_back = frozenset(
        name
        for each in ast.walk(module.tree)
        if isinstance(each, FUNCTIONS) and each.name != "__init__"
        for node in own_nodes(each)
        for name in _sets(node)
    )
    dropped = {name for node in ast.walk(module.tree) for name in _dropped_from(node)}
    emptied = frozenset(map(_container, (*_emptied(module.tree), *set_back)))
    at_end = _emptied_at_end(module.tree)
    uses_arrays = not _roots(module.tree).isdisjoint(("torch", "numpy"))
    unwrapping = frozenset(_unwrapping(module.tree))
    sequences = _sequences(module.tree)
    tensors = _tensors(module.tree)
    returned = _returned_slices(module.tree) if uses_arrays else {}
    for function in (module.tree, *(n for n in ast.walk(module.tree) if isinstance(n, FUNCTIONS))):
        name = function.name if isinstance(function, FUNCTIONS) else "<module>"
        nodes = list(own_nodes(function))
        found = [
            *_calls_marked(nodes),
            *((*_views(nodes, returned), *_unwrapped(nodes, unwrapping)) if uses_arrays else ()),
            *_memo_fills(nodes, bounded),
            *_backoffs(function, nodes, set_back),
            *_gives_up(module, function),
            *_draws(nodes),
            *_releases(nodes),
            *_walks(nodes, sequences),
            *_slow(nodes, sequences),
            *_held_futures(nodes, dropped),
            *_graphs(function, nodes, tensors),
            *_collections(function, nodes),
            *_dealt(nodes),
            *_kills(module, function),
            *(_kept(nodes, emptied) if name not in ("__init__", "<module>") else ()),
            *(_kept_to_end(nodes, at_end) if name not in ("__init__", "<module>") else ()),
        ]
        if isinstance(function, FUNCTIONS):
            for each in function.decorator_list:
                if _is_unbounded_cache(each):
                    text = clean(f"@{_text(each)}", QUOTE_LIMIT)
                    yield Mark("cache", file, name, name, Statement(each.lineno, text))
                elif last_name(each) in NO_GRAD or (
                    isinstance(each, ast.Call) and last_name(each.func) in NO_GRAD
                ):
                    found.append(("no-grad", "", each))
        for kind, about, node in found:
            if kind == "cache" and (used := _decorated(named, function)):
                about = f"{about} (for {', '.join(used[:SHOWN])})"
            yield Mark(kind, file, name, clean(about, QUOTE_LIMIT), quoted(module, node))


def _decorated(named: Sequence[_Named], function: ast.AST) -> list[str]:
    """The functions of a file whose decorator is what contains a function, a class or another."""
    first, last = first_line(function), last_line(function)
    outer = {n.name for n in named if first_line(n) <= first and last <= last_line(n)}
    return [
        each.name
        for each in named
        if isinstance(each, FUNCTIONS) and outer.intersection(map(last_name, each.decorator_list))
    ]


_Named: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Found: TypeAlias = tuple[MarkKind, str, ast.AST]
NO_GRAD: Final = frozenset(("no_grad", "inference_mode"))
_ADDS: Final = frozenset(("append", "appendleft", "add", "insert", "extend", "setdefault"))
_DROPS: Final = frozenset(("pop", "popitem", "popleft", "clear", "remove", "discard"))


def _roots(tree: ast.Module) -> set[str]:
    """The first names of the modules that a file imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _calls_marked(nodes: Sequence[ast.AST]) -> Iterator[_Found]:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = last_name(node.func)
        is_zero = bool(node.args) and getattr(node.args[-1], "value", None) == 0
        if name in NO_GRAD:
            yield "no-grad", "", node
        elif name == "no_sync":
            yield "no-sync", "", node
        elif name == "backward" and isinstance(node.func, ast.Attribute):
            yield "backward", "", node
        elif _is_cycle(node):
            yield "cycle", _text(node.args[0]), node
        elif name == "setrlimit" and len(node.args) > 1:
            yield "limit", last_name(node.args[0]), node
        elif name in ("alarm", "setitimer") and node.args and not is_zero:
            yield "alarm", _left_before_cancelled(nodes, node, name), node
        elif _reaps_any(node, name):
            yield "reap", "", node
        elif name == "set_pdeathsig" or (name == "prctl" and _is_death_signal(node)):
            yield "death-signal", "", node
        elif name in _SUBMITS and isinstance(node.func, ast.Attribute) and node.args:
            yield "submits", "", node
        elif _COLLECTIVES.fullmatch(name) and isinstance(node.func, ast.Attribute):
            if name not in _OTHERS_TOO or last_name(node.func.value) in ("dist", "distributed"):
                yield "collective", name, node
        elif name in _OF_CHUNKS and _is_chunk_of_one(node, name):
            yield "one-by-one", name, node
        elif name in ("put", "put_nowait") and isinstance(node.func, ast.Attribute) and node.args:
            yield "put", _text(node.func.value), node


_SELDOM: Final = 100_000
"""Objects that are made between two collections; 700 to 2000 as CPython has it."""


def _collections(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[_Found]:
    """What switches the garbage collector off and on, and functions whose closure has a cycle.

    `gc.disable()` under a condition may not have run, and is left out.
    """
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if any(_receiver(call) == "gc" for call in calls):
        for node, parents in within([child for _, child in children(function)]):
            call = node.value if isinstance(node, ast.Expr) else None
            is_sure = not any(isinstance(p, _BRANCHES) and not _is_main(p) for p in parents)
            if isinstance(call, ast.Call) and _receiver(call) == "gc" and is_sure:
                first = getattr(call.args[0], "value", None) if call.args else None
                is_seldom = isinstance(first, int) and (first == 0 or first >= _SELDOM)
                if last_name(call.func) == "disable" or (
                    last_name(call.func) == "set_threshold" and is_seldom
                ):
                    yield "gc-off", "", node
                elif last_name(call.func) == "set_threshold":
                    yield "gc-on", "set_threshold", node
        for call in calls:
            if _receiver(call) == "gc" and last_name(call.func) in ("enable", "collect"):
                yield "gc-on", last_name(call.func), call
    for node in nodes if isinstance(function, FUNCTIONS) else ():
        if isinstance(node, FUNCTIONS) and node.name in _names(ast.Module(node.body, [])):
            yield "self-reference", node.name, node


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in _names(node.test)


def _is_cycle(call: ast.Call) -> bool:
    """`itertools.cycle(rows)`, but not of elements that are written there."""
    if _text(call.func) not in ("cycle", "itertools.cycle") or len(call.args) != 1:
        return False
    return not isinstance(call.args[0], ast.Constant | ast.List | ast.Tuple | ast.Set)


def _held_futures(nodes: Iterable[ast.AST], dropped: Container[str]) -> Iterator[_Found]:
    """`for each in as_completed(futures)` where nothing in the file takes one out of `futures`."""
    for node in nodes:
        for call in ast.walk(node.iter) if isinstance(node, ast.For) else ():
            if isinstance(call, ast.Call) and last_name(call.func) == "as_completed" and call.args:
                held = call.args[0]
                if isinstance(held, ast.Name | ast.Attribute) and _text(held) not in dropped:
                    yield "futures", _text(held), node


def _unwrapped(nodes: Sequence[ast.AST], unwrapping: frozenset[str]) -> Iterator[_Found]:
    """`model.module` that is returned, kept, or called, but not to read or write its state.

    Args:
        nodes: The syntax of a function.
        unwrapping: Functions that return it: calls of them count as well.
    """
    state = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in _OF_STATE
    }
    for node in nodes:
        is_it = _is_module_of(node) or (
            isinstance(node, ast.Call) and last_name(node.func) in unwrapping
        )
        if is_it and id(node) not in state:
            yield "unwrapped", _text(node), node


def _is_module_of(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return False
    return node.attr == "module"


def _unwrapping(tree: ast.Module) -> Iterator[str]:
    """Functions that return `model.module`."""
    for function in ast.walk(tree):
        if isinstance(function, FUNCTIONS) and any(
            isinstance(node, ast.Return) and node.value and any(map(_is_module_of, ast.walk(node)))
            for node in own_nodes(function)
        ):
            yield function.name


_OF_STATE: Final = frozenset(
    ("eval", "load_state_dict", "named_parameters", "parameters", "state_dict", "to", "train")
)
"""Methods of a module after which its forward pass is not what the line is for."""


def _reaps_any(call: ast.Call, name: str) -> bool:
    """`os.waitpid(-1, ...)`, `os.wait()`, `signal.signal(signal.SIGCHLD, signal.SIG_IGN)`."""
    receiver = _receiver(call)
    if name == "waitpid" and call.args:
        return _text(call.args[0]) == "-1"
    if name in ("wait", "wait3"):
        return receiver == "os"
    if name == "signal" and len(call.args) == 2:
        return [last_name(each) for each in call.args] in (["SIGCHLD", "SIG_IGN"],)
    return False


_COLLECTIVES = re.compile(
    r"(?:monitored_)?barrier|all_?reduce|all_?gather\w*|all_to_all\w*|broadcast\w*|gather"
    r"|reduce_scatter\w*|reduce|scatter\w*|wait_for_everyone"
)
_OTHERS_TOO: Final = frozenset(("broadcast", "gather", "reduce", "scatter", "scatter_"))
"""Names that tensors and arrays have for something else."""
_OF_CHUNKS: Final = frozenset(("imap", "imap_unordered", "map", "starmap"))
"""Methods with a chunksize that are not in `_SUBMITS`; map() and starmap() of a Pool choose one."""


def _is_chunk_of_one(call: ast.Call, name: str) -> bool:
    """`pool.imap(work, rows)`, and a chunksize that is written as 1."""
    if not isinstance(call.func, ast.Attribute) or len(call.args) < 2:
        return False
    third = call.args[2] if len(call.args) > 2 and name != "map" else None
    written = next((each.value for each in call.keywords if each.arg == "chunksize"), third)
    if written is None:
        return name.startswith("imap") and all(each.arg is not None for each in call.keywords)
    return getattr(written, "value", None) == 1


def _kills(module: Module, function: ast.AST) -> Iterator[_Found]:
    """`os.kill(pid, signal.SIGKILL)`, `process.kill()` and the like, with the condition for it."""
    for node, parents in within([child for _, child in children(function)]):
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call):
            continue
        name, last = last_name(call.func), call.args[-1] if call.args else None
        is_it = last is not None and (
            last_name(last) == "SIGKILL" or getattr(last, "value", None) == Signals.SIGKILL
        )
        is_itself = bool(call.args) and "getpid" in _text(call.args[0])
        is_sent = is_it and name in ("kill", "killpg", "send_signal") and not is_itself
        is_own = name == "kill" and not call.args and isinstance(call.func, ast.Attribute)
        if is_sent or is_own:
            under = next((each for each in reversed(parents) if isinstance(each, ast.If)), None)
            header = quoted(module, under) if under is not None else None
            about = f"{header.text} in line {header.line}" if header is not None else ""
            yield "kills", about, node


def _is_death_signal(call: ast.Call) -> bool:
    """`libc.prctl(PR_SET_PDEATHSIG, ...)`, which is 1 (prctl(2))."""
    first = call.args[0] if call.args else None
    return first is not None and (
        last_name(first).endswith("PDEATHSIG") or getattr(first, "value", None) == 1
    )


def _left_before_cancelled(nodes: Sequence[ast.AST], timer: ast.Call, name: str) -> str:
    """The lines of the `return` statements that leave a function with its timer set, as `39, 45`.

    They stand between the call that sets it and the first one that cancels it. Empty if there are
    none, if nothing here cancels it, or if a `finally` does.
    """
    calls = [n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) == name and n.args]
    ends = [n.lineno for n in calls if getattr(n.args[-1], "value", None) == 0]
    in_finally = {
        line
        for node in nodes
        if isinstance(node, ast.Try)
        for each in node.finalbody
        for line in range(each.lineno, last_line(each) + 1)
    }
    later = [line for line in ends if line > timer.lineno]
    if not later or not in_finally.isdisjoint(ends):
        return ""
    leaves = (n.lineno for n in nodes if isinstance(n, ast.Return))
    return ", ".join(str(line) for line in sorted(leaves) if timer.lineno < line < min(later))


_SHARES: Final = frozenset(("detach", "numpy", "squeeze", "t", "transpose", "unsqueeze"))
"""Methods of a tensor whose result refers to the same memory."""


def _views(nodes: Iterable[ast.AST], returned: Mapping[str, ast.Subscript]) -> Iterator[_Found]:
    """Elements and slices of something that are put into a container.

    Also `rows.append(part)` below `part = whole[:, 0]`, and where a function of the file returns
    such a part.

    Args:
        nodes: The syntax of a function.
        returned: See `_returned_slices`.
    """
    slices = _slices(nodes)
    for node in nodes:
        kept: list[ast.expr] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute) and call.func.attr in _ADDS:
                kept = [*call.args]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            into = node.targets[0].slice  # a slice of an array is written into, and keeps nothing
            kept = [] if isinstance(into, ast.Slice | ast.Tuple) else [node.value]
        while kept:
            each = _shared(kept.pop())
            if isinstance(each, ast.Tuple | ast.List):
                kept += each.elts
            elif isinstance(each, ast.Dict):
                kept += each.values
            elif isinstance(each, ast.Subscript) and not (
                isinstance(each.slice, ast.Constant) and isinstance(each.slice.value, str)
            ):
                yield "view", _text(each), node
            else:
                made = slices.get(_text(each))
                if isinstance(each, ast.Call):
                    made = returned.get(last_name(each.func))
                if made is not None:
                    yield "view", f"line {made.lineno}: {_text(made)}", node


def _shared(value: ast.expr) -> ast.expr:
    """The tensor of which an expression shares the memory: `part` of `part.detach().numpy()`."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _SHARES
    ):
        value = value.func.value
    return value


def _slices(nodes: Iterable[ast.AST]) -> dict[str, ast.Subscript]:
    """The variables that a function binds to a slice, `part = whole[:, 0]`, each with its last."""
    found: dict[str, ast.Subscript] = {}
    for node in sorted(nodes, key=first_line):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = _shared(node.value)
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice | ast.Tuple):
                found[node.targets[0].id] = value
    return found


def _returned_slices(tree: ast.AST) -> dict[str, ast.Subscript]:
    """The functions of a file that return a slice, under each name that only one of them has."""
    found: dict[str, ast.Subscript] = {}
    functions = [each for each in ast.walk(tree) if isinstance(each, FUNCTIONS)]
    names = [each.name for each in functions]
    for function in (each for each in functions if names.count(each.name) == 1):
        nodes = list(own_nodes(function))
        slices = _slices(nodes)
        for node in nodes:
            value = _shared(node.value) if isinstance(node, ast.Return) and node.value else None
            if isinstance(value, ast.Name) and value.id in slices:
                found[function.name] = slices[value.id]
            elif isinstance(value, ast.Subscript) and isinstance(
                value.slice, ast.Slice | ast.Tuple
            ):
                found[function.name] = value
    return found


class _Tensors(NamedTuple):
    """What a file shows of its models and of what keeps their outputs."""

    models: frozenset[str]
    """Last names of variables that the file binds to a module of torch."""
    frozen: frozenset[str]
    """Names of functions, and of models whose parameters it takes out of autograd."""
    bounded: frozenset[str]
    """Containers, as they are written, that are deques, which may have a bound."""
    emptied: Mapping[str, str]
    """Last names of the attributes that hold a container, and the function that empties it."""
    detaches: bool
    imports_torch: bool


_MODELS = re.compile(
    r"(?!(?:build|compile|create|eval|export|fit|get|init|load|make|new|prepare|run|save|setup|test"
    r"|train|update|wrap)_)"
    r"(?:.*_)?(?:model|net|network|module|encoder|decoder|generator|discriminator|critic|actor"
    r"|policy|backbone|head|rnn|lstm|gru)",
    re.IGNORECASE,
)
_LOSSES = re.compile(r"(?:.*_)?(?:criterion|loss|loss_fn|loss_func|objective)", re.IGNORECASE)
_KEEP_GRAPH: Final = frozenset(
    (
        *("abs", "chunk", "clone", "contiguous", "cpu", "cuda", "double", "exp", "expand"),
        *("flatten", "float", "half", "log", "log_prob", "log_softmax", "max", "mean", "min"),
        *("norm", "permute", "pow", "relu", "reshape", "sigmoid", "softmax", "split", "sqrt"),
        *("square", "squeeze", "std", "sum", "t", "tanh", "to", "transpose", "unbind"),
        *("unsqueeze", "var", "view"),
    )
)
"""Methods of a tensor whose result refers to its graph."""
_NO_GRAPH: Final = frozenset(
    (
        *("all", "any", "argmax", "argmin", "argsort", "bincount", "eq", "from_numpy", "ge", "gt"),
        *("isfinite", "isnan", "le", "lt", "ne", "no_grad", "ones_like", "tensor", "zeros_like"),
    )
)
"""Functions of torch whose result has no graph."""


def _tensors(tree: ast.Module) -> _Tensors:
    """The models of a file, and the containers that may keep what they compute."""
    every = list(ast.walk(tree))
    imports_torch = "torch" in _roots(tree)
    nodes = every if imports_torch else []
    of_module = {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any(last_name(base) in ("Module", "LightningModule") for base in node.bases)
    }
    models: set[str] = set()
    frozen = {name for node in nodes for name in _defined(node)}
    emptied: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = node.value.func
            is_model = last_name(made) in of_module or _text(made).startswith(("nn.", "torch.nn."))
            names = {last_name(each) for each in node.targets}
            if last_name(made) == "requires_grad_":
                frozen |= names
            elif is_model:
                models |= names
        elif isinstance(node, ast.Call) and last_name(node.func) == "requires_grad_":
            frozen |= set(_receiver(node).split("."))
        elif isinstance(node, ast.For) and _is_over_parameters(node):
            frozen |= {last_name(e) for e in ast.walk(node.iter) if isinstance(e, ast.expr)}
        elif isinstance(node, FUNCTIONS) and node.name != "__init__":
            for inner in own_nodes(node):
                for name in (*_dropped_from(inner), *_sets(inner)):
                    emptied[_container(name)] = f"{node.name}()"
    detaches = any(
        isinstance(node, ast.Attribute) and node.attr in ("detach", "detach_", "data")
        for node in nodes
    )
    bounded = {
        _text(target)
        for node in every
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if last_name(node.value.func) == "deque"
        for target in node.targets
    }
    return _Tensors(
        frozenset(models),
        frozenset(frozen),
        frozenset(bounded),
        emptied,
        detaches,
        imports_torch,
    )


def _defined(node: ast.AST) -> Iterator[str]:
    """What a statement defines or imports: a function or a class, and no model."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.ImportFrom):
        yield from (each.asname or each.name for each in node.names)


def _dealt(nodes: Iterable[ast.AST]) -> Iterator[_Found]:
    """`urls[info.id::info.num_workers]`, and `islice(urls, worker, None, num_workers)`."""
    for node in nodes:
        steps: list[ast.expr | None] = []
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            steps = [node.slice.step]
        elif isinstance(node, ast.Call) and last_name(node.func) == "islice":
            steps = [*node.args[3:]]
        if any(each is not None and "worker" in last_name(each) for each in steps):
            yield "dealt", "", node


def _is_over_parameters(node: ast.For) -> bool:
    """`for each in model.parameters(): each.requires_grad = False`."""
    names = {each.attr for each in ast.walk(node.iter) if isinstance(each, ast.Attribute)}
    return not names.isdisjoint(("parameters", "named_parameters")) and any(
        isinstance(each, ast.Attribute) and each.attr.startswith("requires_grad")
        for part in node.body
        for each in ast.walk(part)
    )


def _graphs(function: ast.AST, own: Sequence[ast.AST], file: _Tensors) -> Iterator[_Found]:
    """Statements that keep the autograd graph of what a model has computed.

    A backward pass in the same function frees what a graph refers to, and a carried state raises in
    it: such functions are left out.
    """
    calls = [each for each in own if isinstance(each, ast.Call)]
    if not isinstance(function, FUNCTIONS) or any(map(_ends_graphs, calls)):
        return
    if not file.imports_torch and not any(True for node in own for _ in _added(node)):
        return
    if any(last_name(getattr(e, "func", e)) in NO_GRAD for e in function.decorator_list):
        return
    given = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
    computed = {name: _Computed(0, place) for place, name in enumerate(given)}
    for node, parents in within([node for _, node in children(function)]):
        if any(isinstance(each, ast.With) and _switches_off(each) for each in parents):
            continue
        loops = [each for each in parents if isinstance(each, LOOPS)]
        yield from _kept_graphs(node, own, loops, computed, file)
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            for place, part in enumerate(call.args):
                found = _computed(part, computed, file)
                is_own = len(call.args) > 1 or call.func.attr not in _ADDS
                if found is not None and found.line and is_own:
                    yield "graph-passed", f"{call.func.attr}, {place}, {found.line}", node
        if isinstance(node, ast.Assign):
            yield from _carried(own, node, loops, file)
            found = _computed(node.value, computed, file)
            for name in (_text(e) for t in node.targets for e in _elements(t)):
                computed.pop(name, None)
                if found is not None:
                    computed[name] = found


class _Computed(NamedTuple):
    """Where a value with a graph comes from."""

    line: int
    """Of the model's call; 0 for an argument of the function."""
    argument: int = 0
    """Its position."""


def _kept_graphs(
    node: ast.AST,
    own: Sequence[ast.AST],
    loops: Sequence[ast.AST],
    computed: Mapping[str, _Computed],
    file: _Tensors,
) -> Iterator[_Found]:
    """A statement that adds what a model has computed, or an argument, to what outlives it."""
    for container, value in _added(node):
        for part in _elements(value):
            found = _computed(part, computed, file)
            if found is None or not _outlives(own, container, loops, file):
                continue
            text, is_attribute = _text(container), isinstance(container, ast.Attribute)
            if found.line and file.imports_torch:
                ends = file.emptied.get(_container(text), "") if is_attribute else ""
                yield "graph-kept", ", ".join(filter(None, (text, str(found.line), ends))), node
            elif not found.line and is_attribute and not isinstance(node, ast.Assign):
                # An assignment to an item may write into an array that is there already.
                yield "argument-kept", f"{found.argument}, {text}", node


def _ends_graphs(call: ast.Call) -> bool:
    """A backward pass, or a call that switches autograd off for all that follows."""
    return last_name(call.func) in ("backward", "manual_backward", "set_grad_enabled", "grad")


def _switches_off(node: ast.With) -> bool:
    return any(
        last_name(getattr(each.context_expr, "func", each.context_expr)) in NO_GRAD
        for each in node.items
    )


def _elements(value: ast.expr) -> Iterator[ast.expr]:
    """The elements of a tuple, a list or a dict that is written there, else the value itself."""
    if isinstance(value, ast.Tuple | ast.List):
        for each in value.elts:
            yield from _elements(each)
    elif isinstance(value, ast.Dict):
        yield from value.values
    else:
        yield value


def _added(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The container to which a statement adds, or the sum, and what it adds."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS and call.args:
            yield call.func.value, call.args[-1]
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and not isinstance(
            target.slice, ast.Constant | ast.Slice
        ):
            yield target.value, node.value


def _outlives(
    own: Sequence[ast.AST], container: ast.expr, loops: Sequence[ast.AST], file: _Tensors
) -> bool:
    """Whether a container stays, with what it holds, from one round or call to the next."""
    text = _text(container)
    if text in file.bounded or any(text in _dropped_from(each) for each in own):
        return False
    outer = {id(node) for loop in loops[:1] for node in ast.walk(loop)}
    made = [node for node in own if text in _sets(node)]
    if any(id(each) in outer for each in made):
        return False
    return bool(loops and made) or (isinstance(container, ast.Attribute) and not made)


def _computed(
    value: ast.expr, computed: Mapping[str, _Computed], file: _Tensors
) -> _Computed | None:
    """Where what a value refers to was computed; `None` for none, as far as it shows."""
    parts: Iterable[ast.expr] = ()
    if isinstance(value, ast.Name | ast.Attribute) and _text(value) in computed:
        return computed[_text(value)]
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        is_model = name in file.models or _MODELS.fullmatch(name) is not None
        if is_model and name not in file.frozen and value.args:
            return _Computed(value.lineno)
        if isinstance(value.func, ast.Attribute) and name in _KEEP_GRAPH:
            parts = (value.func.value, *value.args)
        elif _LOSSES.fullmatch(name) or (
            _text(value.func).startswith(("F.", "torch.")) and name not in _NO_GRAPH
        ):
            parts = value.args
    elif isinstance(value, ast.Tuple | ast.List | ast.Dict):
        parts = _elements(value)
    elif isinstance(value, ast.BinOp):
        parts = (value.left, value.right)
    elif isinstance(value, ast.UnaryOp):
        parts = (value.operand,)
    elif isinstance(value, ast.Subscript | ast.Starred):
        parts = (value.value,)
    found = [each for part in parts if (each := _computed(part, computed, file)) is not None]
    return max(found, default=None)


def _carried(
    own: Sequence[ast.AST], node: ast.Assign, loops: Sequence[ast.AST], file: _Tensors
) -> Iterator[_Found]:
    """`out, self.state = self.model(x, self.state)`: the state keeps the graphs of all rounds."""
    call = node.value
    if file.detaches or not isinstance(call, ast.Call) or not file.imports_torch:
        return
    name = last_name(call.func)
    if name in file.frozen or not (name in file.models or _MODELS.fullmatch(name)):
        return
    states = {_text(each) for target in node.targets for each in _elements(target)}
    given = [*call.args, *(each.value for each in call.keywords)]
    for part in (part for each in given for part in _elements(each)):
        text = _text(part)
        others = [
            each
            for each in own
            if each is not node and isinstance(each, ast.Assign)
            for target in each.targets
            if text in map(_text, _elements(target))
        ]
        if isinstance(part, ast.Name):
            inside = {id(each) for loop in loops[-1:] for each in ast.walk(loop)}
            is_kept = bool(loops) and not any(id(each) in inside for each in others)
        else:
            is_kept = isinstance(part, ast.Attribute) and not others
        if text in states and is_kept:
            yield "graph-carried", text, node


def _is_unbounded_cache(decorator: ast.expr) -> bool:
    """`@cache` of functools, or its `@lru_cache(maxsize=None)`."""
    if not isinstance(decorator, ast.Call):
        return _text(decorator) in ("cache", "functools.cache")
    if last_name(decorator.func) != "lru_cache":
        return False
    sizes = [each.value for each in decorator.keywords if each.arg == "maxsize"]
    return any(
        isinstance(each, ast.Constant) and each.value is None
        for each in (*decorator.args[:1], *sizes)
    )


def _bounded(tree: ast.Module) -> Iterator[str]:
    """Containers from which a file removes something, or of which it asks the length."""
    for node in ast.walk(tree):
        yield from _dropped_from(node)
        if isinstance(node, ast.Call) and last_name(node.func) == "len" and node.args:
            yield _text(node.args[0])


def _dropped_from(node: ast.AST) -> Iterator[str]:
    """The containers from which a call or a `del` removes something."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _DROPS:
            yield _text(node.func.value)
    elif isinstance(node, ast.Delete):
        for each in node.targets:
            yield _text(each.value if isinstance(each, ast.Subscript) else each)


def _emptied(tree: ast.Module) -> Iterator[str]:
    """Containers from which a file removes something, gives new values, or that have a bound."""
    for node in ast.walk(tree):
        yield from _dropped_from(node)
        if isinstance(node, ast.For):  # each of several containers
            inside = (part for each in node.body for part in ast.walk(each))
            if any(True for each in inside for _ in _dropped_from(each)):
                of = node.iter
                is_call = isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute)
                yield _text(of.func.value if is_call else of)  # type: ignore[attr-defined]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Subscript):
                    yield _text(target.value)
                elif isinstance(node.value, ast.Call) and last_name(node.value.func) == "deque":
                    yield _text(target)


def _kept(nodes: Iterable[ast.AST], emptied: frozenset[str]) -> Iterator[_Found]:
    """`self.losses.append(loss)` where nothing in the file removes anything from `losses`.

    Numbers and texts are left out: they are too small to be why memory rises.
    """
    for node in nodes:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            continue
        call = node.value
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS and call.args):
            continue
        container = call.func.value
        of = container.value if isinstance(container, ast.Subscript) else container
        if not isinstance(of, ast.Attribute) or of.attr in emptied:
            continue
        if not _is_small(call.args[-1]):
            yield "kept", _text(container), node


def _container(name: str) -> str:
    """The last name of a container, or of the one that holds it: `rows` of `self.rows['train']`."""
    return name.partition("[")[0].rpartition(".")[2]


_ENDS: Final = frozenset(
    ("__aexit__", "__del__", "__exit__", "close", "shutdown", "terminate", "teardown")
)
"""Functions that end the use of an object."""


def _emptied_at_end(tree: ast.Module) -> dict[str, str]:
    """Attributes of a file that hold a container, which only the end of an object empties.

    That is a function of `_ENDS`, or one that the file calls, and only from such functions.

    Returns:
        The last name of each attribute, and the functions that empty it, `clear() and __exit__()`.
    """
    functions = [each for each in ast.walk(tree) if isinstance(each, FUNCTIONS)]
    callers: defaultdict[str, set[str]] = defaultdict(set)
    for function in functions:
        for node in own_nodes(function):
            if isinstance(node, ast.Call) and last_name(node.func) != function.name:
                callers[last_name(node.func)].add(function.name)
    where: defaultdict[str, set[str]] = defaultdict(set)
    for function in functions:
        for node in own_nodes(function) if function.name != "__init__" else ():
            for name in (*_dropped_from(node), *_sets(node)):
                where[name.rpartition(".")[2]].add(function.name)
    return {
        name: " and ".join(f"{each}()" for each in _with_ends(found, callers))
        for name, found in where.items()
        if all(each in _ENDS or (callers[each] and callers[each].issubset(_ENDS)) for each in found)
    }


def _with_ends(functions: set[str], callers: dict[str, set[str]]) -> list[str]:
    """Functions and what calls them, each once."""
    ends = {caller for each in functions if each not in _ENDS for caller in callers[each]}
    return [*sorted(functions), *sorted(ends - functions)]


def _kept_to_end(nodes: Iterable[ast.AST], at_end: dict[str, str]) -> Iterator[_Found]:
    """`self.shared[id(array)] = copy` where only `__exit__` or `close` empties `shared`."""
    for node in nodes:
        kept: list[ast.expr] = []
        if isinstance(node, ast.Assign) and not _is_small(node.value):
            kept = [
                each.value
                for each in node.targets
                if isinstance(each, ast.Subscript) and not isinstance(each.slice, ast.Constant)
            ]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            is_added = isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS
            if is_added and call.args and not _is_small(call.args[-1]):
                kept = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        for each in kept:
            if isinstance(each, ast.Attribute) and each.attr in at_end:
                yield "kept-to-end", f"{_text(each)}, {at_end[each.attr]}", node


def _sequences(tree: ast.Module) -> dict[str, str]:
    """The variables and attributes that a file binds to a new deque or list, and only to that.

    Returns:
        Last name of each, and `deque` or `list`.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        is_list = isinstance(value, ast.List | ast.ListComp)
        made = last_name(value.func) if isinstance(value, ast.Call) else "list" if is_list else ""
        for target in targets:
            if isinstance(target, ast.Name | ast.Attribute):
                found[last_name(target)].add(made)
    return {
        name: kind
        for name, kinds in found.items()
        if len(kinds) == 1 and (kind := next(iter(kinds))) in ("deque", "list")
    }


def _walks(nodes: Iterable[ast.AST], sequences: Mapping[str, str]) -> Iterator[_Found]:
    """`self.buffer[j]` of a deque, `items.pop(0)` and `x in items` of a list.

    Such a statement goes through all that the container holds, or half of it.
    """
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            is_end = isinstance(node.slice, ast.Constant | ast.UnaryOp | ast.Slice)
            if not is_end and sequences.get(last_name(node.value)) == "deque":
                yield "walks", f"deque {_text(node.value)}, {_text(node)}", node
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            container = node.comparators[0]
            if last_name(container) in sequences:
                about = f"{sequences[last_name(container)]} {_text(container)}, {_text(node)}"
                yield "walks", about, node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            container, name = node.func.value, node.func.attr
            kind = sequences.get(last_name(container))
            is_first = getattr(node.args[0], "value", None) == 0 and name in ("pop", "insert")
            if (kind == "list" and is_first) or (kind and name in ("index", "remove", "count")):
                yield "walks", f"{kind} {_text(container)}, {_text(node)}", node


def _slow(nodes: Sequence[ast.AST], sequences: Mapping[str, str]) -> Iterator[_Found]:
    for found in slow(nodes, sequences):
        yield "slow", f"{found.kind}: {_text(found.node)}", found.node


_KEEPS: Final = frozenset(("append", "appendleft", "add", "extend"))
_SMALL: Final = frozenset(
    ("item", "float", "int", "len", "str", "round", "time", "monotonic", "perf_counter")
)


def _is_small(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return all(map(_is_small, value.elts))
    is_call = isinstance(value, ast.Call) and last_name(value.func) in _SMALL
    return is_call or isinstance(value, ast.Constant | ast.JoinedStr)


def _memo_fills(nodes: Sequence[ast.AST], bounded: set[str]) -> Iterator[_Found]:
    """`self.items[key] = make(key)` in a function that looks for the key in it before."""
    looked: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            looked[_text(node.comparators[0])].add(_text(node.left))
        elif (
            isinstance(node, ast.Call) and last_name(node.func) == "get" and len(node.args) == 1
        ) and isinstance(node.func, ast.Attribute):
            looked[_text(node.func.value)].add(_text(node.args[0]))
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
                name, key = _text(target.value), _text(target.slice)
                if name and key and name not in bounded and key in looked[name]:
                    yield "cache", name, node


def _backoffs(
    function: ast.AST, nodes: Sequence[ast.AST], set_back: frozenset[str]
) -> Iterator[_Found]:
    """Statements that make the next sleep longer where none in the file sets it back.

    An attribute is set back by any other assignment outside of `__init__`. A name is set back by
    one in a loop, and by leaving the function.

    Args:
        function: A function, or the file.
        nodes: Its own syntax.
        set_back: The attributes that the functions of the file set, see `_sets`.
    """
    slept = {
        _text(part)
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) == "sleep" and node.args
        for part in _slept(node.args[0])
    } - {""}
    if not slept:
        return
    in_loops = [part for each in nodes if isinstance(each, LOOPS) for part in own_nodes(each)]
    leaves = any(isinstance(each, ast.Return | ast.Break) for each in in_loops)
    set_here = {name for each in in_loops for name in _sets(each)}
    for node in nodes:
        for name in _grown(node):
            is_attribute = "." in name
            is_module = not isinstance(function, FUNCTIONS) and is_attribute
            if name not in slept or is_module or (leaves and not is_attribute):
                continue
            if name not in (set_back if is_attribute else set_here):
                yield "backoff", name, node


def _gives_up(module: Module, function: ast.AST) -> Iterator[_Found]:
    """`raise` after a loop, or in its `else`, where the loop has caught exceptions and gone on.

    Python keeps no link from that exception to those before it.
    """
    own = [node for _, node in children(function)]
    for node, parents in within(own):
        if isinstance(node, LOOPS):
            handler = next(_swallows(node), None)
            around = [child for _, child in children(parents[-1])] if parents else own
            after = around[around.index(node) + 1 :][:1]
            for each in (*node.orelse, *after):
                is_new = isinstance(each, ast.Raise) and each.exc is not None and not each.cause
                if is_new and handler is not None:
                    yield "gives-up", _handler_words(module, handler), each


def _swallows(loop: ast.AST) -> Iterator[ast.ExceptHandler]:
    """The `except` clauses of a loop after which it goes on."""
    for node, _ in within([child for block, child in children(loop) if block == "body"]):
        if isinstance(node, ast.ExceptHandler) and not isinstance(
            node.body[-1], ast.Raise | ast.Return | ast.Break
        ):
            yield node


_LOGS: Final = frozenset(
    ("critical", "debug", "error", "exception", "info", "log", "print", "warn", "warning")
)


def _handler_words(module: Module, handler: ast.ExceptHandler) -> str:
    """``` `except OSError as error:` in line 51, logged in line 52```."""
    header = quoted(module, handler)
    logged = next(
        (
            f", logged in line {each.lineno}"
            for each in handler.body
            if isinstance(each, ast.Expr)
            and isinstance(each.value, ast.Call)
            and last_name(each.value.func) in _LOGS
        ),
        "",
    )
    return f"`{clean(header.text, QUOTE_LIMIT // 2)}` in line {header.line}{logged}"


def _releases(nodes: Sequence[ast.AST]) -> Iterator[_Found]:
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


def _draws(nodes: Sequence[ast.AST]) -> Iterator[_Found]:
    """Statements that leave items out by chance, or take a number of them that is drawn.

    `[each for each in items if random.random() < share]`, `range(random.randint(1, 9))`. Only of
    the module `random`, which is seeded differently in each process, also in forked ones: numpy
    and torch copy their state to these.
    """
    for node in nodes:
        drawn: list[ast.expr] = []
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            drawn = [test for each in node.generators for test in each.ifs]
        elif isinstance(node, ast.If) and (_leaves_out(node) or _adds_item(node)):
            drawn = [node.test]
        elif isinstance(node, ast.Call) and last_name(node.func) == "range":
            drawn = list(node.args)
        if any(_is_random(each) for test in drawn for each in ast.walk(test)):
            yield "draw", "", node
        elif isinstance(node, ast.Call) and _seeds(node):
            yield "seed", "", node


def _seeds(call: ast.Call) -> bool:
    """`random.seed()`, or what may call it, by its name; torch and numpy seed only their own."""
    name, receiver = last_name(call.func).lower(), _receiver(call)
    is_other = name.startswith("manual_seed") or receiver in ("np.random", "numpy.random")
    return "seed" in name and not is_other


_DRAWN: Final = frozenset(
    ("choice", "expovariate", "gauss", "getrandbits", "randint", "random", "randrange", "uniform")
)


def _is_random(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _DRAWN
        and _text(node.func.value) == "random"
    )


def _leaves_out(node: ast.If) -> bool:
    return isinstance(node.body[-1], ast.Continue)


def _adds_item(node: ast.If) -> bool:
    calls = (each.value for each in node.body if isinstance(each, ast.Expr))
    return any(isinstance(each, ast.Call) and last_name(each.func) in _ADDS for each in calls)


def _slept(time: ast.expr) -> Sequence[ast.expr]:
    """The variables that a sleep lasts as long as: `x`, `min(x, limit)`, and not `x - now`."""
    if isinstance(time, ast.Call) and last_name(time.func) in ("min", "max"):
        return time.args
    return [time]


def _grown(node: ast.AST) -> Iterator[str]:
    """The variable that a statement makes larger by its own value: `x = min(2 * x, limit)`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Add | ast.LShift):
        yield _text(node.target)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        name = _text(node.targets[0])
        if name in _variables(node.value) and any(
            isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult | ast.Add | ast.Pow)
            for n in ast.walk(node.value)
        ):
            yield name


def _sets(node: ast.AST) -> Iterator[str]:
    """The variables to which a statement gives a value that does not depend on their own."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    used = _variables(node.value)
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            name = _text(part)
            if name and name not in used:
                yield name


def _variables(value: ast.expr) -> set[str]:
    """The names and attributes in an expression, as they are written."""
    return {_text(n) for n in ast.walk(value) if isinstance(n, ast.Name | ast.Attribute)}


def _text(node: ast.AST) -> str:
    """An expression as it would be written; empty for a long one, which is hostile or no name."""
    is_short = sum(1 for _ in islice(ast.walk(node), EXPRESSION_NODES)) < EXPRESSION_NODES
    return ast.unparse(node) if is_short else ""
