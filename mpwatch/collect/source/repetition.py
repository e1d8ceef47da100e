"""Loops of the program that lead to a statement again and again, also through calls.

Among them are those that empty a queue, those that end when it is empty at one moment, and those
that drop items of others.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOGS,
    LOOPS,
    Found,
    ParsedFile,
    argument_of,
    calls_in,
    every_node,
    expression_text,
    first_line,
    functions_in,
    last_line,
    last_name,
    names_in,
    own_nodes,
    receiver_of,
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
    """See `may_wait_in`."""

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
    is_caught: bool = False
    """Whether its function catches an exception of it, and goes on with the next round."""
    is_under: bool = False
    """Whether an `if` of its function is around it."""


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
    raises: bool = False
    """Whether it raises, so that only a loop repeats it in which that is caught."""


def calls_of(file: str, module: ParsedFile) -> tuple[Call, ...]:
    """The calls of a file, with the loops around them."""
    return tuple(_calls(file, module.tree))


def _calls(file: str, tree: ast.Module) -> Iterator[Call]:
    for function, owner in functions_with_classes(tree):
        name = getattr(function, "name", "<module>")
        callers = (name,) if owner is None or name != "__init__" else (owner.name,)
        nodes = list(own_nodes(function))
        loops = [each for each in nodes if isinstance(each, LOOPS)][:_LOOPS_OF_FUNCTION]
        caught = _caught_and_survived(nodes, loops)
        branches = [
            (first_line(each.body[0]), last_line(each))
            for each in nodes
            if isinstance(each, ast.If)
        ]
        for call in (each for each in nodes if isinstance(each, ast.Call)):
            loop = loop_around(file, function, loops, call)
            given = [*call.args, *(each.value for each in call.keywords)]
            for each in (call.func, *given):
                if (called := last_name(each)) and called not in _ORDINARY:
                    line = first_line(call)
                    is_under = any(first <= line <= last for first, last in branches)
                    yield Call(called, loop, callers, id(call) in caught, is_under)


def _caught_and_survived(nodes: Sequence[ast.AST], loops: Sequence[ast.AST]) -> set[int]:
    """The ids of what stands in a `try` of a function after which it, or its loop, goes on."""
    found: set[int] = set()
    for node in (each for each in nodes if isinstance(each, ast.Try)):
        is_in_loop = any(first_line(e) < first_line(node) <= last_line(e) for e in loops)
        has_loop = any(first_line(node) < first_line(e) <= last_line(node) for e in loops)
        ends = (ast.Raise, ast.Break, ast.Return) if is_in_loop else (ast.Raise,)
        if has_loop or all(isinstance(each.body[-1], ends) for each in node.handlers):
            continue
        found |= {id(part) for each in node.body for part in ast.walk(each)}
    return found


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
    return Loop(file, first_line(outer), last_line(outer), name, may_wait_in(function, outer))


def may_wait_in(function: ast.AST, loop: ast.AST) -> bool:
    """Whether a coroutine may wait in a loop without an end, where no stack shows it.

    A `for` over what is there ends soon, unless it is seen at work.
    """
    is_coroutine = isinstance(function, ast.AsyncFunctionDef)
    return is_coroutine and (not isinstance(loop, ast.For) or _is_endless(loop.iter))


def _is_endless(iterated: ast.expr) -> bool:
    """`itertools.count()`, `itertools.cycle(rows)`, `iter(queue.get, None)`."""
    if not isinstance(iterated, ast.Call):
        return False
    name, given = last_name(iterated.func), iterated.args
    return name in ("count", "cycle") or (name == "iter" and len(given) == len(("call", "end")))


def _repeats(loop: ast.For | ast.While | ast.AsyncFor, inside: ast.AST) -> bool:
    """Whether a piece of syntax is in the body of a loop, or the condition of a `while`.

    What a `for` goes through is made once.
    """
    first = loop if isinstance(loop, ast.While) else loop.body[0]
    return first_line(first) <= first_line(inside) <= last_line(loop.body[-1])


def functions_with_classes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.ClassDef | None]]:
    """The file and its functions, each with the class that it is a method of."""
    methods = {
        id(each): node
        for node in every_node(tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
    }
    yield tree, None
    for each in functions_in(tree):
        yield each, methods.get(id(each))


def _loops_to(found: Repeatable, calls: Mapping[str, Sequence[Call]]) -> list[Loop]:
    """The loops of a program in whose rounds a statement is reached, nearest first.

    Of what writes all of a container, without calls under a condition: it may be each hundredth.
    """
    is_each = found.mark.kind == "rewrites"
    loops = [found.loop] if found.loop is not None and not found.raises else []
    level = [(name, not found.raises) for name in found.by]
    seen = set(level)
    for _ in range(_CALLS_UP):
        above: list[tuple[str, bool]] = []
        for name, is_caught in level:
            for call in calls.get(name, ()):
                goes_on = is_caught or call.is_caught
                if is_each and call.is_under:
                    continue
                if call.loop is not None and call.loop not in loops and goes_on:
                    loops.append(call.loop)
                    if len(loops) >= _LOOPS_OF_ONE:
                        return loops
                above += [(each, goes_on) for each in call.callers if (each, goes_on) not in seen]
                seen.update((each, goes_on) for each in call.callers)
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


_CALLS: Final = 3
"""Calls that are followed, one inside of the other."""


class Takers(NamedTuple):
    """What functions of a file take items out of, by their names."""

    queues: Mapping[str, frozenset[str]]
    """The queues, as they are written there; `self.queue` is the same in all methods of a class."""


def takers_of(tree: ast.Module) -> Takers:
    """The functions that take items out of a queue, or call one of the file that does."""
    functions = functions_in(tree)
    names = Counter(each.name for each in functions)
    single = [each for each in functions if names[each.name] == 1]
    found = {
        each.name: {text for node in own_nodes(each) for text in taken_by(node)} for each in single
    }
    if not any(found.values()):
        return Takers({})
    for _ in range(_CALLS):
        for each in single:
            for name in _called_in(each):
                # What another function calls its own variable is not known here.
                found[each.name] |= {q for q in found.get(name, ()) if "." in q}
    return Takers({name: frozenset(queues) for name, queues in found.items() if queues})


def find_emptying(function: ast.AST, takers: Takers) -> Iterator[Found]:
    """The loops of a function in whose rounds items are taken out of a queue."""
    queues = takers.queues.get(getattr(function, "name", ""), frozenset())
    nodes = own_nodes(function) if queues else ()
    calls = [(each, takes) for each in nodes if (takes := _taken_by_call(each, takers))]
    for loop in (each for each in nodes if isinstance(each, LOOPS)):
        first, last = first_line(loop), last_line(loop)
        taken = {
            text for call, takes in calls if first <= first_line(call) <= last for text in takes
        }
        for queue in sorted(taken & queues):
            yield "empties", queue, loop


def _taken_by_call(node: ast.AST, takers: Takers) -> frozenset[str]:
    """The queues out of which a call takes items, or the function of the file that it calls."""
    if not isinstance(node, ast.Call):
        return frozenset()
    return takers.queues.get(last_name(node.func), frozenset()).union(taken_by(node))


def _called_in(function: ast.AST) -> Iterator[str]:
    """The functions of its own object, or of the file, that a function calls."""
    for node in own_nodes(function):
        if isinstance(node, ast.Call) and receiver_of(node) in ("", "self"):
            yield last_name(node.func)


def taken_by(node: ast.AST) -> Iterator[str]:
    """The queue of `queue.get()`, `get(timeout=1)` and `iter(queue.get, None)`."""
    if not isinstance(node, ast.Call):
        return
    name = last_name(node.func)
    if name == "iter" and len(node.args) == 2 and isinstance(node.args[0], ast.Attribute):
        if node.args[0].attr in ("get", "get_nowait"):
            yield expression_text(node.args[0].value)
    elif name in ("get", "get_nowait") and isinstance(node.func, ast.Attribute):
        # get() of a dict has a key.
        is_flag = all(isinstance(getattr(each, "value", None), bool) for each in node.args[:1])
        is_it = is_flag and all(each.arg in ("timeout", "block") for each in node.keywords)
        if is_it and (name == "get_nowait" or may_be_queue(node.func.value)):
            yield expression_text(node.func.value)


_OTHERS: Final = re.compile(
    r"(?!(?:from|to)_)(?:.*_)?(?:cache|client|config|context|counter|ctx|future|handle|kv|metric|ray|ref|response"
    r"|result|session|stats|storage|store|task|var|variable)|[A-Z]\w*[a-z]\w*",
)
"""Names of what has methods get() and put() and is no queue, as classes have."""


def may_be_queue(owner: ast.expr) -> bool:
    """Whether what has a method get() or put() may be a queue, as its name shows.

    Not what a call returns, as `pool.apply_async(f).get()`, unless that says so.
    """
    while isinstance(owner, ast.Subscript):
        owner = owner.value
    if isinstance(owner, ast.Call):
        return "queue" in last_name(owner.func).lower()
    return _OTHERS.fullmatch(last_name(owner)) is None


# --- what ends when a queue is empty at one moment ------------------------------------------------

_NO_ITEM: Final = (None, False, True)
"""What stands for no item, as a function returns it or sets it."""


def find_ends_when_empty(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """The statements of a function that take an empty queue for the end of what will be put.

    `try: item = queue.get_nowait()`, `except queue.Empty: return`, and `while not queue.empty():`.

    Args:
        nodes: The syntax of one function.
    """
    for node in nodes:
        if isinstance(node, ast.While):
            asked = set(_asked_for_items(node.test))
            taken = {text for part in own_nodes(node) for text in taken_by(part)}
            for queue in sorted(asked & taken):
                yield "ends-when-empty", queue, node
        elif isinstance(node, ast.Try) and any(_ends_there(each) for each in node.handlers):
            for part in node.body:
                for call in calls_in(part):
                    if _is_impatient(call):
                        yield from (("ends-when-empty", queue, call) for queue in taken_by(call))


def _asked_for_items(test: ast.expr) -> Iterator[str]:
    """The queues without an item of which a condition is not met: `not q.empty()`, `q.qsize() > 0`.

    Of `not q.empty() or is_running` none: that goes on without an item.
    """
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for each in test.values:
            yield from _asked_for_items(each)
        return
    is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    asked = test.operand if isinstance(test, ast.UnaryOp) else test
    asked = asked.left if isinstance(asked, ast.Compare) else asked
    method = "empty" if is_not else "qsize"
    if isinstance(asked, ast.Call) and not asked.args and last_name(asked.func) == method:
        yield receiver_of(asked)


def _is_impatient(call: ast.Call) -> bool:
    """Whether a call of get() may raise Empty: it does not wait, or not longer than some time."""
    if last_name(call.func) == "get_nowait":
        return True
    block, limit = argument_of(call, "block", 0), argument_of(call, "timeout", 1)
    has_limit = limit is not None and getattr(limit, "value", 0) is not None
    return has_limit or getattr(block, "value", True) is False


def _ends_there(handler: ast.ExceptHandler) -> bool:
    """Whether an `except` clause for an empty queue leaves, or goes on with no item at all."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if not any(each is not None and last_name(each) == "Empty" for each in caught):
        return False
    last = handler.body[-1]
    if isinstance(last, ast.Break):
        return True
    if not isinstance(last, ast.Return | ast.Assign):
        return False
    constant = getattr(last.value, "value", ...) if last.value is not None else None
    return any(constant is each for each in _NO_ITEM) and all(map(_is_plain, handler.body))


def _is_plain(statement: ast.stmt) -> bool:
    """Whether a statement only sets or leaves, or logs: another one may wait and try again."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return last_name(statement.value.func) in LOGS
    return isinstance(statement, ast.Return | ast.Assign | ast.Pass)


# --- loops that drop what is not their own --------------------------------------------------------

_RECEIVES: Final = frozenset(("recv", "recv_pyobj"))


def find_own_answers(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """The statements that take items until their own one comes, and drop those of others.

    `while True: number, answer = self.answers.get()`, `if number == own: return answer`. Where two
    take from one queue like this, one of them takes what the other waits for.

    Args:
        nodes: The syntax of one function.
    """
    for loop in nodes:
        if isinstance(loop, ast.While):
            for statement in _of_block(loop.body):
                source = _taken(statement)
                if source and isinstance(statement, ast.Assign):
                    items = set().union(*map(names_in, statement.targets))
                    own = _own(loop, statement, items)
                    if own:
                        yield "takes-own", f"{source}, {own}", statement


def _of_block(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop, also of a `try` or `with` in it."""
    for each in body:
        if isinstance(each, ast.Try | ast.With):
            yield from _of_block(each.body)
        else:
            yield each


def _taken(statement: ast.stmt) -> str:
    """The queue or connection out of which a statement takes one item; empty for others."""
    call = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(call, ast.Call):
        return ""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _RECEIVES:
        return expression_text(call.func.value)
    return next(taken_by(call), "")


def _own(loop: ast.While, taken: ast.stmt, items: set[str]) -> str:
    """What the item is compared with, where the loop drops all that are not equal to it."""
    if (own := _compared(loop.test, items, ast.NotEq)) and not _uses(loop.body, items, taken):
        return own
    block = list(_of_block(loop.body))
    after = block[block.index(taken) + 1 :]
    for place, each in enumerate(after):
        if not isinstance(each, ast.If):
            if _uses([each], items):
                return ""
            continue
        if own := _compared(each.test, items, ast.Eq):
            rest = [*each.orelse, *after[place + 1 :]]
            is_end = isinstance(each.body[-1], ast.Return | ast.Break)
            return own if is_end and not _uses(rest, items) else ""
        if own := _compared(each.test, items, ast.NotEq):
            goes_on = isinstance(each.body[-1], ast.Continue)
            return own if goes_on and not _uses(each.body, items) and _leaves(after) else ""
        if _uses(each.body, items):
            return ""
    return ""


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the loop ends with its own item: not one that goes on to the next."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Break)


def _compared(test: ast.expr, items: set[str], how: type[ast.cmpop]) -> str:
    """The variable with which a part of an item is compared; empty for a constant."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], how):
        return ""
    sides = (test.left, test.comparators[0])
    for one, other in (sides, sides[::-1]):
        name = last_name(other)
        is_constant = name.isupper() or expression_text(other)[:1].isupper()  # `Kind.done`
        is_variable = bool(name) and not is_constant and not names_in(other) & items
        if is_variable and names_in(one) & items:
            return expression_text(other)
    return ""


def _uses(body: Sequence[ast.stmt], items: set[str], besides: ast.stmt | None = None) -> bool:
    """Whether statements do more with an item than to log it."""
    waiting: list[ast.AST] = [each for each in body if each is not besides]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and last_name(node.func) in LOGS:
            continue
        if isinstance(node, ast.Name) and node.id in items:
            return True
        if node is not besides and not isinstance(node, FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
    return False
