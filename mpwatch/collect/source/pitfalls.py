"""Calls of libraries that do more, or less, than their line shows.

A logger whose records are put into the queue that logs them, writes to streams of asyncio without a
limit, a watchdog that ends its own process, a regular expression that can match the same text in
many ways, a part of a model that is made anew when the model has been wrapped, and gradients that
are averaged more often than they are used.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from importlib import import_module
from itertools import combinations
from typing import Any, Final, TypeAlias

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    Found,
    calls_in,
    first_line,
    last_line,
    last_name,
    names_in,
    receiver_of,
)

# The parser of `re` has no documented name: in Python 3.10 `sre_parse`, from 3.11 on `re._parser`.
sre: Any
try:
    sre = import_module("re._parser")
except ImportError:
    sre = import_module("sre_parse")

_PATTERN_CALLS: Final = frozenset(
    ("compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")
)
_MODULES: Final = frozenset(("re", "regex"))
_UNBOUNDED: Final = 1000
"""From so many repetitions on, a repeat counts as one without an end."""
_PATTERN_LIMIT: Final = 2000
"""Characters; longer patterns are not looked at."""
_PROBES: Final = "aZ5_ .,;:@/-+='\"<>(){}[]&#%!?\n\té"
"""One character of each kind that classes of characters tell apart."""


def find_pitfalls(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """The statements of this kind in one function, or in a file outside of its functions."""
    yield from _queue_handlers(nodes)
    yield from _undrained(function, nodes)
    yield from _watchdogs(nodes)
    yield from _patterns(nodes)
    yield from _replaced_modules(function, nodes)
    yield from _accumulations(nodes)
    yield from _lengths(nodes)


def _queue_handlers(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`multiprocessing.get_logger().addHandler(QueueHandler(queue))`, in one or more statements."""
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    if not any(last_name(each.func) == "get_logger" for each in calls):
        return
    for call in calls:
        handed = [last_name(each.func) for part in call.args for each in calls_in(part)]
        if last_name(call.func) == "addHandler" and "QueueHandler" in handed:
            yield "queue-handler", "", call


def _undrained(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`writer.write(data)` in the loop of a coroutine that never awaits `writer.drain()`."""
    if not isinstance(function, ast.AsyncFunctionDef):
        return
    if any(last_name(each.func) == "drain" for each in nodes if isinstance(each, ast.Call)):
        return
    within = {id(each) for loop in nodes if isinstance(loop, LOOPS) for each in ast.walk(loop)}
    for call in nodes:
        if not isinstance(call, ast.Call) or id(call) not in within:
            continue
        receiver = receiver_of(call)
        is_writer = "writer" in receiver.lower() or "transport" in receiver.lower()
        if last_name(call.func) in ("write", "writelines") and is_writer:
            yield "undrained-write", receiver, call


def _watchdogs(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`faulthandler.dump_traceback_later(seconds, exit=True)`."""
    for call in nodes:
        if not isinstance(call, ast.Call) or last_name(call.func) != "dump_traceback_later":
            continue
        ends = [each.value for each in call.keywords if each.arg == "exit"]
        if any(isinstance(each, ast.Constant) and each.value is True for each in ends):
            times = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "timeout")]
            yield "exits-late", ast.unparse(times[0]) if times else "", call


def _lengths(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`HEADER.pack(len(text))` or `len(text).to_bytes(4, "big")` beside `text.encode()`."""
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    encoded = {receiver_of(each) for each in calls if last_name(each.func) == "encode"} - {""}
    bound = {ast.unparse(each) for node in nodes for each in _targets(node)}
    for call in calls:
        parts: Sequence[ast.expr] = ()
        if last_name(call.func) == "pack":
            parts = call.args
        elif last_name(call.func) == "to_bytes" and isinstance(call.func, ast.Attribute):
            parts = (call.func.value,)
        for part in parts:
            if isinstance(part, ast.Call) and last_name(part.func) == "len" and part.args:
                text = ast.unparse(part.args[0])
                if text in encoded - bound:
                    yield "length-of-text", text, call


def _targets(node: ast.AST) -> Sequence[ast.expr]:
    """What an assignment binds: a text that is bound anew may be its own encoded bytes."""
    return node.targets if isinstance(node, ast.Assign) else ()


def _patterns(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """A literal pattern of `re` whose parts can match the same text in many ways."""
    for call in nodes:
        if not isinstance(call, ast.Call) or last_name(call.func) not in _PATTERN_CALLS:
            continue
        if not isinstance(call.func, ast.Attribute) or names_in(call.func.value) - _MODULES:
            continue
        first = call.args[0] if call.args else None
        pattern = first.value if isinstance(first, ast.Constant) else None
        if isinstance(pattern, str) and matches_in_many_ways(pattern):
            yield "wide-pattern", pattern, call


def _replaced_modules(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.head = nn.Linear(n, m)` where the old one is read, and `model.module.add_classes()`."""
    makers = [each for each in nodes if isinstance(each, ast.Assign) and _makes_module(each.value)]
    if makers and isinstance(function, FUNCTIONS) and function.name != "__init__":
        read = {ast.unparse(n) for n in nodes if isinstance(n, ast.Attribute) and _is_load(n)}
        made = {
            target.id for node in makers for target in node.targets if isinstance(target, ast.Name)
        }
        for node in nodes:
            if not isinstance(node, ast.Assign):
                continue
            is_made = isinstance(node.value, ast.Name) and node.value.id in made
            for target in node.targets if is_made or node in makers else ():
                if isinstance(target, ast.Attribute) and (name := ast.unparse(target)) in read:
                    yield "replaces-module", name, node
    if any(last_name(each.func) in _WRAPPERS for each in nodes if isinstance(each, ast.Call)):
        return  # it wraps the model again
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            is_own = node.func.attr not in _OF_EVERY_MODULE
            if is_own and isinstance(owner, ast.Attribute) and owner.attr == "module":
                yield "calls-wrapped", node.func.attr, node


def _accumulations(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`loss.backward()` in a loop after which `optimizer.step()` is called, outside of no_sync."""
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    if any(last_name(each.func) == "no_sync" for each in calls):
        return
    steps = [each for each in calls if last_name(each.func) == "step" and _is_optimizer(each)]
    for loop in (each for each in nodes if isinstance(each, ast.For)):
        inside = {id(each) for each in ast.walk(loop)}
        after = [first_line(each) for each in steps if first_line(each) > last_line(loop)]
        if not after or any(id(each) in inside for each in steps):
            continue
        for call in calls:
            if id(call) in inside and last_name(call.func) == "backward":
                yield "accumulates", f"{first_line(loop)}, {after[0]}", call


def _is_optimizer(call: ast.Call) -> bool:
    """Whether its method is that of an optimizer, or of a scaler that steps one."""
    return re.search("opt|scaler", receiver_of(call), re.IGNORECASE) is not None


_OF_EVERY_MODULE: Final = frozenset(
    (
        "buffers",
        "eval",
        "load_state_dict",
        "modules",
        "named_modules",
        "named_parameters",
        "parameters",
        "requires_grad_",
        "state_dict",
        "to",
        "train",
        "zero_grad",
    )
)
"""Methods of each torch.nn.Module, which make no parameter."""
_WRAPPERS: Final = frozenset(("DDP", "DistributedDataParallel", "FSDP", "FullyShardedDataParallel"))


def _makes_module(value: ast.expr) -> bool:
    """Whether it makes a module, `nn.Linear(4, 2)` or `nn.Linear(4, 2).to(device)`."""
    for call in (each for each in ast.walk(value) if isinstance(each, ast.Call)):
        called = call.func
        if not isinstance(called, ast.Attribute) or not called.attr[:1].isupper():
            continue
        if "nn" in (names_in(called) | {last_name(called.value)}):
            return True
    return False


def _is_load(node: ast.Attribute) -> bool:
    """Whether an attribute is read, not set."""
    return isinstance(node.ctx, ast.Load)


def matches_in_many_ways(pattern: str) -> bool:
    """Whether a text without a match takes time with the square of its length, or worse.

    That is so where two repeats without an end, of which one follows or contains the other, can
    match one and the same character, and nothing that must come between them keeps them apart; and
    where a match may begin at each of the characters that such a repeat takes.
    """
    if len(pattern) > _PATTERN_LIMIT:
        return False
    try:
        parsed = sre.parse(pattern)
    except (sre.error, OverflowError, RecursionError):
        return False
    return _is_wide(_flat(parsed), {*_PROBES, *pattern})


_Items: TypeAlias = Sequence[tuple[Any, Any]]


def _is_wide(items: _Items, probes: Set[str]) -> bool:
    repeats: list[tuple[int, Set[str]]] = []
    for place, (op, argument) in enumerate(items):
        if any(_is_wide(inner, probes) for inner in _bodies(op, argument)):
            return True
        if _is_endless(op, argument):
            body = _flat(argument[2])
            if any(len(each) == 1 and _is_endless(*each[0]) for each in _alternatives(body)):
                return True  # (x+)+
            repeats.append((place, _matched(body, probes)))
    # What must come between: anchors and assertions take no character.
    widths = [None if op in _WITHOUT_WIDTH else _matched([(op, a)], probes) for op, a in items]
    for (first, one), (second, other) in combinations(repeats, 2):
        if not (shared := one & other):
            continue
        if all(w is None or not w.isdisjoint(shared) for w in widths[first + 1 : second]):
            return True
    return False


_WITHOUT_WIDTH: Final = (sre.AT, sre.ASSERT, sre.ASSERT_NOT)


def _alternatives(items: _Items) -> Iterator[_Items]:
    """Part of a pattern, or each of the alternatives that it consists of."""
    if len(items) == 1 and items[0][0] is sre.BRANCH:
        yield from map(_flat, items[0][1][1])
    else:
        yield items


def _is_endless(op: Any, argument: Any) -> bool:
    return op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and argument[1] >= _UNBOUNDED


def _flat(items: Iterable[tuple[Any, Any]]) -> _Items:
    """The items of a pattern, with those of its groups in place of the groups."""
    found: list[tuple[Any, Any]] = []
    for op, argument in items:
        found += _flat(argument[-1]) if op is sre.SUBPATTERN else [(op, argument)]
    return found


def _bodies(op: Any, argument: Any) -> Iterator[_Items]:
    """The parts of a pattern inside of one of its items."""
    if op is sre.BRANCH:
        yield from map(_flat, argument[1])
    elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        yield _flat(argument[2])


def _matched(items: _Items, probes: Set[str]) -> Set[str]:
    """The probes that some part of a pattern can match; of a back reference none are known."""
    found: set[str] = set()
    for op, argument in items:
        if op is sre.LITERAL:
            found.add(chr(argument))
        elif op is sre.NOT_LITERAL:
            found.update(each for each in probes if each != chr(argument))
        elif op is sre.ANY:
            found.update(each for each in probes if each != "\n")
        elif op is sre.IN:
            found.update(each for each in probes if _is_in(argument, each))
        for body in _bodies(op, argument):
            found |= _matched(body, probes)
    return found


_CATEGORIES: Final[dict[Any, Any]] = {
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_WORD: lambda each: each.isalnum() or each == "_",
    sre.CATEGORY_NOT_DIGIT: lambda each: not each.isdigit(),
    sre.CATEGORY_NOT_SPACE: lambda each: not each.isspace(),
    sre.CATEGORY_NOT_WORD: lambda each: not (each.isalnum() or each == "_"),
}


def _is_in(members: _Items, each: str) -> bool:
    """Whether a class of characters has one of them."""
    is_negated = bool(members) and members[0][0] is sre.NEGATE
    found = any(
        (op is sre.LITERAL and each == chr(argument))
        or (op is sre.RANGE and argument[0] <= ord(each) <= argument[1])
        or (op is sre.CATEGORY and argument in _CATEGORIES and _CATEGORIES[argument](each))
        for op, argument in members
    )
    return found is not is_negated
