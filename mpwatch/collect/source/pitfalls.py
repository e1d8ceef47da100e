"""Calls of libraries that do more, or less, than their line shows.

A logger whose records are put into the queue that logs them, writes to streams of asyncio without a
limit, a watchdog that ends its own process, a regular expression that can match the same text in
many ways, a part of a model that is made anew or unfrozen when the model has been wrapped,
gradients that are averaged more often than they are used, a deadline that is put off each time, a
signal to a group of processes that the sender is in, and the threads for remote calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from mpwatch.collect.source.ambiguous_patterns import matches_in_many_ways
from mpwatch.collect.source.rank_differences import reads_clock
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    Found,
    calls_in,
    every_node,
    expression_text,
    first_line,
    last_line,
    last_name,
    names_in,
    own_nodes,
    receiver_of,
)

_PATTERN_CALLS: Final = frozenset(
    ("compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")
)
_MODULES: Final = frozenset(("re", "regex"))


def find_pitfalls(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """The statements of this kind in one function, or in a file outside of its functions."""
    yield from _queue_handlers(nodes)
    yield from _undrained(function, nodes)
    yield from _watchdogs(nodes)
    yield from _patterns(nodes)
    yield from _rpc_threads(nodes)
    yield from _replaced_modules(function, nodes)
    yield from _accumulations(nodes)
    yield from _lengths(nodes)
    yield from _renewed_deadlines(function, nodes)
    for call in nodes:
        if isinstance(call, ast.Call) and last_name(call.func) in _WRAPPERS:
            yield "wraps", last_name(call.func), call


def _renewed_deadlines(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`group.deadline = time.monotonic() + wait`, in a function that does not look at the old one.

    Where something comes more often than the wait takes, it is never due.
    """
    if not isinstance(function, FUNCTIONS) or function.name == "__init__":
        return
    read = {
        expression_text(each)
        for each in nodes
        if isinstance(each, ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Load)
    }
    for node in nodes:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        is_kept = isinstance(target, ast.Attribute | ast.Subscript)
        if not is_kept or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
            continue
        text = expression_text(target)
        is_from_now = any(map(reads_clock, (value.left, value.right)))
        if is_from_now and _DUE.search(text) and text not in read:
            yield "renews-deadline", text, node


_DUE: Final = re.compile(r"deadline|expir|due|timeout|flush_at|until|not_before", re.IGNORECASE)


def find_group_kills(tree: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`os.killpg(os.getpgid(child.pid), signal.SIGKILL)`, of a child without a group of its own.

    Args:
        tree: The file: where anything in it makes a group or a session, nothing is found.
        nodes: The syntax of one function.
    """
    kills = [
        each for each in nodes if isinstance(each, ast.Call) and last_name(each.func) == "killpg"
    ]
    if not kills or any(_makes_group(each) for each in every_node(tree)):
        return
    starts = [
        first_line(each)
        for each in every_node(tree)
        if isinstance(each, ast.Call) and last_name(each.func) in _STARTS
    ]
    for call in kills:
        if len(call.args) == 2 and starts:
            yield "kills-group", f"{last_name(call.args[1])}, {min(starts)}", call


_STARTS: Final = frozenset(
    ("Popen", "Process", "create_subprocess_exec", "create_subprocess_shell")
)
_GROUPS: Final = frozenset(("process_group", "start_new_session"))
_MAKES_GROUP: Final = frozenset(("setpgid", "setpgrp", "setsid"))


def _makes_group(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in _GROUPS
    return isinstance(node, ast.Name | ast.Attribute) and last_name(node) in _MAKES_GROUP


def find_unfrozen(tree: ast.AST) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """Parameters that one function of a file freezes and another one unfreezes.

    `for p in self.backbone.parameters(): p.requires_grad = True`, or `requires_grad_()` of them.

    Yields:
        The function that unfreezes, what it unfreezes with the line that freezes it, and the
        statement.
    """
    frozen: dict[str, int] = {}
    unfrozen: list[tuple[ast.AST, str, ast.AST]] = []
    for function in (each for each in every_node(tree) if isinstance(each, FUNCTIONS)):
        found = list(_set_trainable(function))
        wraps = any(last_name(each.func) in _WRAPPERS for each in calls_in(function))
        both = {name for name, value, _ in found if value} & {n for n, v, _ in found if not v}
        for name, value, node in found:
            if not value and name not in both:
                frozen.setdefault(name, first_line(node))
            elif value and name not in both and not wraps and function.name != "__init__":
                unfrozen.append((function, name, node))
    for place, name, node in unfrozen:
        if name in frozen:
            yield place, f"{name}, {frozen[name]}", node


def _set_trainable(function: ast.AST) -> Iterator[tuple[str, bool, ast.AST]]:
    """What a function makes trainable, or not: the module in words, whether, and the statement."""
    nodes = list(own_nodes(function))
    modules = {
        loop.target.id: expression_text(loop.iter.func.value)
        for loop in nodes
        if isinstance(loop, ast.For)
        and isinstance(loop.target, ast.Name)
        and isinstance(loop.iter, ast.Call)
        and isinstance(loop.iter.func, ast.Attribute)
        and loop.iter.func.attr == "parameters"
    }
    if sum(isinstance(each, ast.For) for each in nodes) > 1 and len(modules) == 1:
        modules = {name: module for name, module in modules.items() if _is_used_once(name, nodes)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
                    name = expression_text(target.value)
                    if name in modules and isinstance(node.value.value, bool):
                        yield modules[name], node.value.value, node
        elif isinstance(node, ast.Call) and last_name(node.func) == "requires_grad_":
            values = [each.value for each in node.args if isinstance(each, ast.Constant)]
            is_on = not node.args or values == [True]
            if not node.keywords and (is_on or values == [False]):
                yield modules.get(receiver_of(node), receiver_of(node)), is_on, node


def _is_used_once(name: str, nodes: Sequence[ast.AST]) -> bool:
    """Whether one loop alone has a variable of this name."""
    return sum(isinstance(each, ast.For) and name in names_in(each.target) for each in nodes) == 1


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


def _rpc_threads(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`TensorPipeRpcBackendOptions(num_worker_threads=n)`."""
    for call in nodes:
        if isinstance(call, ast.Call) and last_name(call.func).endswith("RpcBackendOptions"):
            for each in call.keywords:
                if each.arg == "num_worker_threads":
                    yield "rpc-threads", expression_text(each.value), each


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
                yield "accumulates", f"{first_line(loop)}, {min(after)}", call


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
