"""What a line waits for or is guarded by, as its source shows.

Loops that do not end by themselves, conditions that decide which ranks get to a line, locks that
are held, ways past a statement that gives back what was taken, and tasks whose results are dropped.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    BLOCKS,
    BRANCHES,
    FUNCTIONS,
    LOGS,
    LOOPS,
    QUOTE_LIMIT,
    ParsedFile,
    assigned_to,
    before,
    before_in_round,
    bindings,
    calls_in,
    children,
    condition,
    every_node,
    expression_text,
    first_line,
    last_line,
    last_name,
    names_in,
    own_nodes,
    quoted,
    receiver_of,
    within,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import (
    Caught,
    CleanUp,
    DroppedResult,
    EndlessLoop,
    Guarded,
    Skip,
    Statement,
    TakenLock,
)

NESTED: Final = 8
"""Statements kept around a line, and before it."""
FINALLYS: Final = 2
"""Clean-ups around one line of which the block is read."""
TAKEN: Final = 16
"""Statements of one function that take something of which it is asked whether it is given back."""
REACHED: Final = 64
"""Functions of one file that are followed from another one."""
STARTS_TASK: Final = frozenset(("submit", "apply_async", "map_async", "starmap_async"))
_EXCHANGES = re.compile(
    "accept|acquire|all_gather|all_reduce|backward|barrier|broadcast|put|put_nowait|recv|recv_bytes"
    "|select|send|send_bytes|sendall|sleep|step"
)
_EXCHANGES_BARE = frozenset(("get", "get_nowait", "join", "poll", "result", "wait"))
"""Such a call without an argument that is no number; `record.get("text")` is of a dict."""


def headers_around(module: ParsedFile, inside: Sequence[ast.AST]) -> Iterator[Statement]:
    """Headers of the compound statements around the last one; `else of if ...:` for that branch."""
    for node, inner in zip(inside, [*inside[1:], None], strict=True):
        if inner is None or isinstance(node, ast.Try | ast.ClassDef):
            continue
        header = quoted(module, node)
        is_else = inner in getattr(node, "orelse", ())
        if is_else and isinstance(node, ast.If):
            yield Statement(header.line, f"else of {header.text}")
        elif not is_else:
            yield header


def leaving_before(
    module: ParsedFile, function: ast.AST, inside: Sequence[ast.AST]
) -> Iterator[Statement]:
    """The conditions under which the last statement is not reached, of the blocks that it is in."""
    for each in before(function, inside):
        if isinstance(each, ast.If) and _leaves(each.body):
            yield condition(module, each)


def clean_ups(module: ParsedFile, inside: Sequence[ast.AST]) -> Iterator[CleanUp]:
    """The `finally` bodies around the last statement, and the end of a `with` that it is."""
    found = [(e, i) for e, i in pairwise(inside) if i in getattr(e, "finalbody", ())]
    for outer, _ in found[-FINALLYS:]:
        block = [*getattr(outer, "body", ()), *getattr(outer, "orelse", ())]
        first = next(child for name, child in children(outer) if name == "finalbody")
        yield _clean_up(module, _finally(module, block[-1], first), block)
    node = inside[-1]
    if isinstance(node, ast.With | ast.AsyncWith):
        yield _clean_up(module, quoted(module, node), node.body)._replace(is_exit=True)


def _clean_up(module: ParsedFile, header: Statement, block: Sequence[ast.stmt]) -> CleanUp:
    leaves = tuple(islice(_leaving(module, block), NESTED))
    return CleanUp(header, first_line(block[0]), last_line(block[-1]), leaves=leaves)


_NO_ERRORS: Final = frozenset(
    (
        *("GeneratorExit", "ImportError", "KeyboardInterrupt", "ModuleNotFoundError"),
        *("StopAsyncIteration", "StopIteration", "SystemExit"),
    )
)
"""Exceptions that end something, or come of how a program is installed."""


def caught(module: ParsedFile, inside: Sequence[ast.AST]) -> Iterator[Caught]:
    """The `except` clauses around the last statement after which its function may go on."""
    for outer, inner in pairwise(inside):
        if not isinstance(outer, ast.Try | ast.TryStar) or inner not in outer.body:
            continue
        for handler in outer.handlers:
            types = getattr(handler.type, "elts", [handler.type])
            names = {last_name(each) for each in types if each is not None}
            last = handler.body[-1]
            if isinstance(last, ast.Raise | ast.Return | ast.Continue) or names & _NO_ERRORS:
                continue
            logs = (
                each
                for each, _ in within(handler.body)
                if isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Call)
                and last_name(each.value.func) in LOGS
            )
            log = next(logs, None)
            yield Caught(
                quoted(module, handler),
                first_line(outer.body[0]),
                last_line(outer.body[-1]),
                last_line(outer),
                None if log is None else quoted(module, log),
            )


def _finally(module: ParsedFile, before: ast.AST, first: ast.AST) -> Statement:
    """The line of the keyword, of which the syntax has no place."""
    rows = range(first_line(first), last_line(before), -1)
    line = next((n for n in rows if _FINALLY.match(module.rows[n - 1])), first_line(first))
    return Statement(line, "finally:")


_FINALLY: Final = re.compile(r"\s*finally\b")


def _leaving(module: ParsedFile, block: Sequence[ast.stmt]) -> Iterator[Statement]:
    """What leaves a block before its end under a condition, and what gives a value in it."""
    for node, parents in within(block):
        is_left = isinstance(node, ast.Return) or (
            isinstance(node, ast.Break | ast.Continue)
            and not any(isinstance(each, LOOPS) for each in parents)
        )
        around = next((each for each in reversed(parents) if isinstance(each, BRANCHES)), None)
        if is_left and isinstance(around, ast.If) and node is around.body[-1]:
            yield condition(module, around)
            continue
        gives = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _parts(node))
        if gives or (is_left and around is not None):
            yield quoted(module, node)


def endless(module: ParsedFile, inside: Sequence[ast.AST]) -> EndlessLoop | None:
    """The innermost `while True` around the last statement, or `for` over something endless.

    A stack may show the header of the first one between two rounds.
    """
    around = inside if isinstance(inside[-1], ast.While) else inside[:-1]
    loop = next((each for each in reversed(around) if _is_endless(module, each)), None)
    return _read_loop(module, loop) if isinstance(loop, ast.While | ast.For) else None


def until(module: ParsedFile, inside: Sequence[ast.AST]) -> EndlessLoop | None:
    """The innermost `while` with a condition around the last statement, or that this is."""
    loops = (each for each in reversed(inside) if isinstance(each, ast.While))
    loop = next((each for each in loops if not _is_true(each.test)), None)
    return None if loop is None else _read_loop(module, loop)


def _read_loop(module: ParsedFile, loop: ast.While | ast.For) -> EndlessLoop:
    """What ends a loop from within, and what it gives."""
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


def _is_endless(module: ParsedFile, node: ast.AST) -> bool:
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
        for each in every_node(module.tree)
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
    name = expression_text(value.func).removeprefix("itertools.")
    return name == "count" or (name == "repeat" and len(value.args) == 1 and not value.keywords)


def until_exits(module: ParsedFile, inside: Sequence[ast.AST]) -> Statement | None:
    """The condition that ends the innermost loop around the last statement once children exit."""
    loops = [each for each in inside[:-1] if isinstance(each, LOOPS)]
    loop = loops[-1] if loops else None
    if not isinstance(loop, ast.While):
        return None
    told = set()
    statements = [node for node, _ in within(loop.body)]
    for node in statements:
        if isinstance(node, ast.Assign) and _asks_for_exit(node.value, set()):
            told |= {name for target in node.targets for name in names_in(target)}
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


def connects(module: ParsedFile, inside: Sequence[ast.AST]) -> Statement | None:
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


def _connecting(module: ParsedFile, tried: ast.Try) -> Statement | None:
    """The first statement of a `try` that connects."""
    for node, _ in within(tried.body):
        calls = (each for each in _parts(node) if isinstance(each, ast.Call))
        if any(last_name(each.func) in _CONNECTS for each in calls):
            return quoted(module, node)
    return None


_OF_RANK = re.compile(r"rank|zero|main|master|chief|coordinator|first", re.IGNORECASE)


def guarded(module: ParsedFile, function: ast.AST, inside: Sequence[ast.AST]) -> Iterator[Guarded]:
    """The calls under a condition on the rank that come before a line, of the blocks it is in.

    What is called in the `else` branch as well is called by all.
    """
    for branch in before(function, inside):
        if not isinstance(branch, ast.If) or not _OF_RANK.search(expression_text(branch.test)):
            continue
        others = {last_name(c.func) for part in branch.orelse for c in calls_in(part)}
        header = quoted(module, branch)
        for each, _ in within(branch.body):
            for call in calls_in(each) if isinstance(each, ast.Expr | ast.Assign) else ():
                called = last_name(call.func)
                if called and called not in others and called not in LOGS:
                    yield Guarded(header, quoted(module, each), clean(called, QUOTE_LIMIT))


def cleared(module: ParsedFile, function: ast.AST, inside: Sequence[ast.AST]) -> Statement | None:
    """The statement right before a wait for an event that clears it; `None` without one.

    A call in between may check what was set before, or ask for what sets it anew.
    """
    outer = inside[-2] if len(inside) > 1 else function
    node = inside[-1]
    waits = {
        receiver_of(part)
        for part in _parts(node)
        if isinstance(part, ast.Call) and last_name(part.func) == "wait"
    }
    block = next((name for name, child in children(outer) if child is node), None)
    before = []
    for name, child in children(outer):
        if child is node:
            break
        if name == block:
            before.append(child)
    for child in reversed(before):
        called = [each for each in calls_in(child) if last_name(each.func) not in LOGS]
        is_clear = isinstance(child, ast.Expr) and [last_name(c.func) for c in called] == ["clear"]
        if is_clear and receiver_of(called[0]) in waits - {""}:
            return quoted(module, child)
        if called or not isinstance(child, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign):
            return None
    return None


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
    module: ParsedFile, function: ast.AST, line: int = 0
) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """A function, and at most `REACHED` of its file that it calls, each with its own syntax.

    A function is known by its name alone: methods of one name count as one.

    Args:
        module: The file.
        function: The function, or the file.
        line: What the function calls there is not followed.
    """
    named: defaultdict[str, list[ast.AST]] = defaultdict(list)
    for node in every_node(module.tree):
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


def locks(module: ParsedFile, function: ast.AST) -> Iterator[TakenLock]:
    """What a function takes, and then what the functions of its file take that it calls."""
    owners: dict[ast.AST, str] = {
        node: clean(each.name, QUOTE_LIMIT)
        for each in every_node(module.tree)
        if isinstance(each, ast.ClassDef)
        for node in each.body
    }
    for taker, found in _reached(module, function):
        for node in found:
            for part in _locks_of(node):
                if (name := expression_text(part)) and _NAME.fullmatch(name):
                    name, owner = clean(name, QUOTE_LIMIT), owners.get(taker, "")
                    yield TakenLock(name, quoted(module, node), owner)


def held(module: ParsedFile, function: ast.AST, inside: Sequence[ast.AST]) -> Iterator[Statement]:
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
                        taken[receiver_of(each)] = quoted(module, child)
            for each in calls:
                if last_name(each.func) == "release":
                    taken.pop(receiver_of(each), None)
        outer = node
    yield from taken.values()


_SENDS = re.compile(r"(?:.*_)?(?:put|send|write|publish|push|emit|reply|answer|dump)\w*")
_LIBRARIES: Final = frozenset(
    ("numpy", "pandas", "scipy", "sklearn", "torch", "torchvision", "tqdm")
)
"""Besides the standard library: what they are given to compute with, they send nowhere."""


def may_send(module: ParsedFile, function: ast.AST, line: int) -> bool:
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


_SENDS_NOW = re.compile(r"(?:.*_)?(?:send|write|flush)\w*")


def asked(module: ParsedFile, function: ast.AST, inside: Sequence[ast.AST]) -> Statement | None:
    """The last statement that sends or writes before a line, in the same round of what repeats.

    What was sent before a loop that goes through all that comes, as a subscriber does, asks for no
    answer; a loop with a condition (`while left:`) reads one.

    Args:
        module: The file.
        function: The function of the line.
        inside: Its statements around the line, outermost first, and the one at the line.
    """
    found: ast.AST | None = None
    for each in before_in_round(function, inside, _goes_through_all):
        is_statement = isinstance(each, ast.Assign | ast.AnnAssign | ast.Expr | ast.If)
        if is_statement and any(map(_sends, calls_in(each))):
            found = each
    return None if found is None else quoted(module, found)


def _goes_through_all(node: ast.AST) -> bool:
    """Whether a statement is a loop without a condition, over items or without an end."""
    is_endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
    return is_endless or isinstance(node, ast.For | ast.AsyncFor)


_OUTPUTS = re.compile(
    r"stdout|stderr|log|print|csv|summary|board|\bf\b|file|\bout\b", re.IGNORECASE
)
"""In the name of what is written to but is no connection: a log, a stream, a file."""


def _sends(call: ast.Call) -> bool:
    is_sent = _SENDS_NOW.fullmatch(last_name(call.func)) is not None
    return is_sent and _OUTPUTS.search(receiver_of(call)) is None


def _from_elsewhere(tree: ast.AST) -> Iterator[str]:
    """The names that a file imports, but for those from the standard library and `_LIBRARIES`."""
    known = sys.stdlib_module_names | _LIBRARIES
    for node in every_node(tree):
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


def skips(module: ParsedFile, function: ast.AST) -> Iterator[Skip]:
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
    module: ParsedFile, node: ast.stmt, rest: Sequence[ast.AST], around: ast.Try | None
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
            if _is_message(later, taken) and isinstance(later, ast.If) and _leaves(later.body):
                continue  # it gives back the message that says to end
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
    module: ParsedFile, node: ast.stmt, rest: Sequence[ast.AST], taken: _Taken, back: ast.AST
) -> Iterator[Skip]:
    """The statements that leave before something is given back."""
    for each, parents in within(rest):
        finals = [p for p in parents if isinstance(p, ast.Try) and p.finalbody]
        if any(_gives(e, taken) for final in finals for e, _ in within(final.finalbody)):
            continue
        is_left = (isinstance(each, ast.Return) and not names_in(each) & taken.names) or (
            isinstance(each, ast.Continue | ast.Break)
            and not any(isinstance(p, LOOPS) for p in parents)
        )
        around = next((p for p in reversed(parents) if isinstance(p, BRANCHES)), None)
        is_before = first_line(each) < first_line(back)
        if is_left and is_before and around is not None and not _is_message(around, taken):
            if not any(_gives(e, taken) for e, _ in within(_block_of(around, each))):
                yield _skip(module, node, each, around, back)
        elif isinstance(each, ast.ExceptHandler) and _goes_on_without(
            each, parents[-1] if parents else None, taken, back
        ):
            yield _skip(module, node, each, None, back)


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Return | ast.Break | ast.Continue | ast.Raise)


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
    module: ParsedFile, node: ast.stmt, lock: str | None, rest: Sequence[ast.AST]
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
    """Whether a statement calls what may raise; logging and clocks do not."""
    found = [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
        and last_name(each.func) not in RAISES_NOT
        and receiver_of(each).rpartition(".")[2] not in ("log", "logger", "logging")
    ]
    return bool(found) and not isinstance(node, ast.Try)


def _skip(
    module: ParsedFile, node: ast.stmt, leaves: ast.AST, around: ast.AST | None, back: ast.AST
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
    names = {name for target in assigned_to(node) for name in names_in(target)}
    returns = _OF_ITSELF.get(call.func.attr, ())
    return _Taken(frozenset(names), receiver_of(call), returns)


def _gives(node: ast.AST, taken: _Taken) -> bool:
    """Whether a statement gives back what was taken."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in taken.returns and receiver_of(call) == taken.receiver:
        return True
    items = [e for arg in call.args for e in (arg.elts if isinstance(arg, ast.Tuple) else [arg])]
    passed = {each.id for each in items if isinstance(each, ast.Name)}
    return _GIVES.match(call.func.attr) is not None and not taken.names.isdisjoint(passed)


def _lock_taken(value: ast.expr | None) -> str | None:
    """What a call takes a lock from, empty for a file that it makes; `None` for other calls."""
    call = value.operand if isinstance(value, ast.UnaryOp) else value
    if not isinstance(call, ast.Call):
        return None
    names = {last_name(each) for each in ast.walk(call) if isinstance(each, ast.expr)}
    if "O_EXCL" in names or last_name(call.func) == "mkdir":
        return ""
    is_method = isinstance(call.func, ast.Attribute) and _LOCKS.search(call.func.attr)
    return receiver_of(call) if is_method else None


def _unlocks(value: ast.expr, lock: str) -> bool:
    """Whether a call releases a lock, or removes a file where the lock is one."""
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if not lock:
        return name in _REMOVES
    return _UNLOCKS.match(name) is not None and receiver_of(value) == lock


def dropped(file: str, module: ParsedFile) -> Iterator[DroppedResult]:
    """The calls that start a task and drop its result."""
    executors = set(_executors(module.tree))
    for node in every_node(module.tree):
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
    for node in every_node(tree):
        for target, value in bindings(node):
            if isinstance(value, ast.Call) and last_name(value.func).endswith("Executor"):
                yield last_name(target)


RAISES_NOT: Final = LOGS | {
    *("get_event_loop", "get_running_loop"),
    *("monotonic", "perf_counter", "process_time", "time"),
}
"""Functions whose exceptions nobody expects, by the last part of their name."""
