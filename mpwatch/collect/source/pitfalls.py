"""Calls of libraries that do more, or less, than their line shows.

A logger whose records are put into the queue that logs them, writes to streams of asyncio without a
limit, a watchdog that ends its own process, a part of a model that is made anew or unfrozen when
the model has been wrapped, gradients that are averaged more often than they are used, a deadline
that is put off each time, names of files with numbers that are sorted as texts, a signal to a group
of processes that the sender is in, a collective for each of many tensors, which waits for all
ranks, the threads for remote calls, callbacks of a Pool that look up keys, and the cpus of a
process, which its children inherit.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from mpwatch.collect.source.growth.kept import MODELS
from mpwatch.collect.source.lines.leaves import reads_clock
from mpwatch.collect.source.pipes_and_signals import left_before
from mpwatch.collect.source.syntax import (
    ADDS,
    FUNCTIONS,
    LOGS,
    LOOPS,
    SHOWN,
    Found,
    FunctionNode,
    assigned_to,
    calls_in,
    every_node,
    expression_text,
    first_line,
    functions_by_name,
    functions_in,
    last_line,
    last_name,
    names_in,
    of_file,
    own_nodes,
    receiver_of,
)


def find_pitfalls(
    function: ast.AST, nodes: Sequence[ast.AST], has_wrappers: bool
) -> Iterator[Found]:
    """The statements of this kind in one function, or in a file outside of its functions.

    Args:
        function: The function, or the file.
        nodes: Its own syntax.
        has_wrappers: See `has_wrappers`.
    """
    yield from _queue_handlers(nodes)
    yield from _undrained(function, nodes)
    yield from _watchdogs(nodes)
    yield from _unchecked_views(nodes)
    yield from _rpc_threads(nodes)
    yield from _replaced_modules(function, nodes, has_wrappers)
    yield from _accumulations(nodes)
    yield from _lengths(nodes)
    yield from _past_wrappers(nodes, has_wrappers)
    for call in nodes:
        if isinstance(call, ast.Call) and last_name(call.func) in _WRAPPERS:
            yield "wraps", last_name(call.func), call


def is_wrapped_module(node: ast.AST, has_wrappers: bool) -> bool:
    """Whether it is the module in a wrapped model, `model.module`, as far as words show.

    Many objects have an attribute of that name.

    Args:
        node: A piece of syntax.
        has_wrappers: Whether the file wraps models, or asks for such an attribute.
    """
    if not isinstance(node, ast.Attribute) or node.attr != "module":
        return False
    of = node.value
    if not isinstance(node.ctx, ast.Load) or last_name(of) in ("", "args", "modules", "nn"):
        return False
    return has_wrappers or MODELS.fullmatch(last_name(of)) is not None


def has_wrappers(tree: ast.AST) -> bool:
    """Whether a file wraps models, or asks whether one is wrapped: `hasattr(model, "module")`."""
    for node in every_node(tree):
        if isinstance(node, ast.alias) and node.name.rpartition(".")[2] in _KINDS_OF_WRAPPERS:
            return True
        if isinstance(node, ast.Name | ast.Attribute) and last_name(node) in _KINDS_OF_WRAPPERS:
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "hasattr"):
            asked = [getattr(each, "value", None) for each in node.args[1:2]]
            if asked == ["module"]:
                return True
    return False


def _past_wrappers(nodes: Sequence[ast.AST], has_wrappers: bool) -> Iterator[Found]:
    """`loss = criterion(model.module.encode(x))`, and then `loss.backward()`.

    Only the forward pass of the wrapper prepares that gradients are averaged.
    """
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    if not any(last_name(each.func) == "backward" for each in calls):
        return
    called = {expression_text(each.func) for each in calls}
    called |= {expression_text(part) for each in calls for part in each.args}  # which may call it
    unused = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
    for call in calls:
        if not call.args or id(call) in unused:
            continue  # `model.module.parameters()`, or `model.module.save(path)`
        inner = call.func
        if isinstance(inner, ast.Attribute) and inner.attr != "module":
            inner = inner.value
        if not isinstance(inner, ast.Attribute) or not is_wrapped_module(inner, has_wrappers):
            continue
        wrapper = expression_text(inner.value)
        if wrapper not in ("", "self", *called) and last_name(call.func) not in _NO_FORWARD:
            yield "trains-unwrapped", wrapper, call
            return


_NO_FORWARD: Final = frozenset(("get_parameter", "get_submodule", "state_dict", "to", "train"))


def find_renewed_deadlines(
    tree: ast.AST, function: ast.AST, nodes: Sequence[ast.AST]
) -> Iterator[Found]:
    """`group.deadline = time.monotonic() + wait`, in a function that does not look at the old one.

    Where something comes more often than the wait takes, it is never due. Only of what the file
    compares.

    Args:
        tree: The file.
        function: The syntax of one function.
        nodes: Its own.
    """
    if not isinstance(function, FUNCTIONS) or function.name in ("__init__", "start"):
        return
    for node in nodes:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        is_kept = isinstance(target, ast.Attribute | ast.Subscript)
        if not is_kept or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
            continue
        if not any(map(reads_clock, (value.left, value.right))):
            continue
        text = expression_text(target)
        is_read = any(
            isinstance(each, ast.Attribute | ast.Subscript)
            and isinstance(each.ctx, ast.Load)
            and expression_text(each) == text
            for each in nodes
        )
        if _DUE.search(text) and not is_read and _is_compared(tree, target):
            yield "renews-deadline", text, node


_DUE: Final = re.compile(
    r"deadline|(?<![a-z])(?:due|flush_at|until|not_before)(?![a-z])", re.IGNORECASE
)


def _is_compared(tree: ast.AST, target: ast.expr) -> bool:
    """Whether a file compares an attribute, or an element, of this name with anything."""
    name = last_name(target.value if isinstance(target, ast.Subscript) else target)
    return name in of_file(tree, _compared_names)


def _compared_names(tree: ast.AST) -> frozenset[str]:
    return frozenset(
        last_name(part)
        for each in every_node(tree)
        if isinstance(each, ast.Compare)
        for part in ast.walk(each)
        if isinstance(part, ast.Attribute | ast.Name)
    )


def find_text_order(tree: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`sorted(glob.glob("model_*.pt"))[-1]`, of `f"model_{version}.pt"`: 9 comes after 10.

    Args:
        tree: The file: where no name in it has a number without a width, nothing is found.
        nodes: The syntax of one function.
    """
    listed: dict[str, ast.AST] = {}
    lists = {
        expression_text(target)
        for each in nodes
        if isinstance(each, ast.Assign) and _lists_files(each.value)
        for target in each.targets
    }
    for node in nodes:
        if isinstance(node, ast.Assign) and _in_text_order(node.value, lists):
            listed.update((expression_text(target), node) for target in node.targets)
        elif isinstance(node, ast.Call) and _sorts(node) in lists:
            listed[receiver_of(node)] = node
    taken: list[ast.AST] = []
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in ("max", "min"):
            if len(node.args) == 1 and not node.keywords and _is_listing(node.args[0], lists):
                taken.append(node)
        elif isinstance(node, ast.Subscript) and expression_text(node.slice) in ("-1", "0"):
            if _in_text_order(node.value, lists):
                taken.append(node)
            elif (text := expression_text(node.value)) in listed:
                taken.append(listed[text])
    name = of_file(tree, _first_numbered) if taken else ""
    if name:
        yield "text-order", name, min(taken, key=first_line)


def _sorts(call: ast.Call) -> str:
    """`paths` of `paths.sort()`."""
    return receiver_of(call) if last_name(call.func) == "sort" and not call.keywords else ""


def _lists_files(node: ast.expr) -> bool:
    """Whether it is a list of files of a folder: of their names, and of nothing else about them."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name in _LISTINGS:
            return True
        return name in ("list", "sorted") and len(node.args) == 1 and _lists_files(node.args[0])
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
        of, element = node.generators[0], node.elt
        if isinstance(element, ast.Call) and last_name(element.func) == "str" and element.args:
            element = element.args[0]
        is_it = expression_text(element) == expression_text(of.target)
        return is_it and _lists_files(of.iter)
    return False


def _is_listing(node: ast.expr, lists: Container[str]) -> bool:
    return _lists_files(node) or expression_text(node) in lists


def _in_text_order(node: ast.expr, lists: Container[str]) -> bool:
    """`sorted(paths)`, of what lists files."""
    return (
        isinstance(node, ast.Call)
        and last_name(node.func) == "sorted"
        and len(node.args) == 1
        and all(each.arg == "reverse" for each in node.keywords)
        and _is_listing(node.args[0], lists)
    )


def _first_numbered(tree: ast.AST) -> str:
    return next(filter(None, map(_numbered, every_node(tree))), "")


def _numbered(node: ast.AST) -> str:
    """The text of `f"model_{version}.pt"`; empty for what has a width, `{version:04d}`."""
    if not isinstance(node, ast.JoinedStr):
        return ""
    values = [each for each in node.values if isinstance(each, ast.FormattedValue)]
    last = node.values[-1]
    ending = last.value if isinstance(last, ast.Constant) and isinstance(last.value, str) else ""
    is_file = _ENDING.fullmatch(ending) is not None and len(node.values) > len(values) + 1
    if len(values) != 1 or values[0].format_spec is not None or not is_file:
        return ""
    is_number = _NUMBER.search(expression_text(values[0].value)) is not None
    return ast.unparse(node)[2:-1] if is_number else ""


_LISTINGS: Final = frozenset(("glob", "iglob", "iterdir", "listdir", "rglob", "scandir"))
_ENDING: Final = re.compile(r"\.\w{1,12}")
_NUMBER: Final = re.compile(
    r"(?:batch|count|epoch|frame|gen|generation|i|id|idx|index|iter|iteration|k|n|no|num|number"
    r"|round|seq|shard|step|steps|t|version)\)?$",
    re.IGNORECASE,
)
"""The end of what is most likely a number."""


def find_group_kills(tree: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`os.killpg(os.getpgid(child.pid), signal.SIGKILL)`, of a child without a group of its own.

    Args:
        tree: The file: where anything in it makes a group or a session, nothing is found.
        nodes: The syntax of one function.
    """
    kills = [
        each for each in nodes if isinstance(each, ast.Call) and last_name(each.func) == "killpg"
    ]
    start = of_file(tree, _starts_without_group) if kills else None
    for call in kills:
        if len(call.args) == 2 and start is not None:
            yield "kills-group", f"{last_name(call.args[1])}, {start}", call


def _starts_without_group(tree: ast.AST) -> int | None:
    """The first line that starts a process, of a file that makes no group; `None` for others."""
    nodes = every_node(tree)
    if any(map(_makes_group, nodes)):
        return None
    starts = (e for e in nodes if isinstance(e, ast.Call) and last_name(e.func) in _STARTS)
    return min(map(first_line, starts), default=None)


_STARTS: Final = frozenset(
    ("Popen", "Process", "create_subprocess_exec", "create_subprocess_shell")
)
_GROUPS: Final = frozenset(("process_group", "start_new_session"))
_MAKES_GROUP: Final = frozenset(("setpgid", "setpgrp", "setsid"))


def _makes_group(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in _GROUPS
    return isinstance(node, ast.Name | ast.Attribute) and last_name(node) in _MAKES_GROUP


def find_affinity(nodes: Sequence[ast.AST], assigned: Mapping[str, ast.expr]) -> Iterator[Found]:
    """`os.sched_setaffinity(0, {core})`, `psutil.Process().cpu_affinity([core])`.

    One that gives back what os.sched_getaffinity() has said, or a range of cpus, is left out.

    Args:
        nodes: The syntax of one function.
        assigned: What the file gives to its variables and attributes.
    """
    for call in nodes:
        place = _AFFINITY.get(last_name(call.func)) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or place is None:
            continue
        given = [*call.args, *(each.value for each in call.keywords)][place:]
        if not given:
            continue  # `process.cpu_affinity()` only asks
        cpus = given[0]
        if isinstance(cpus, ast.Call) and cpus.args and last_name(cpus.func) in _CONTAINERS:
            cpus = cpus.args[0]
        cpus = assigned.get(expression_text(cpus), cpus)
        is_several = isinstance(cpus, ast.Call) and last_name(cpus.func) in _SEVERAL
        if is_several or (isinstance(cpus, ast.Constant) and cpus.value is None):
            continue
        is_one = isinstance(cpus, ast.List | ast.Set | ast.Tuple) and len(cpus.elts) == 1
        is_one = is_one and not any(isinstance(e, ast.Starred) for e in getattr(cpus, "elts", ()))
        yield "sets-affinity", "one" if is_one else "", call


_AFFINITY: Final[Mapping[str, int]] = {
    "cpu_affinity": 0,
    "numa_run_on_node": 0,
    "run_on_nodes": 0,
    "sched_setaffinity": 1,
}
"""Functions that set the cpus of a process (os, psutil, libnuma), and which argument says them."""
_CONTAINERS: Final = frozenset(("frozenset", "list", "set", "sorted", "tuple"))
_SEVERAL: Final = frozenset(("cpu_affinity", "range", "sched_getaffinity"))


def find_unfrozen(tree: ast.AST) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """Parameters that one function of a file freezes and another one unfreezes.

    `for p in self.backbone.parameters(): p.requires_grad = True`, or `requires_grad_()` of them.

    Yields:
        The function that unfreezes, what it unfreezes with the line that freezes it, and the
        statement.
    """
    frozen: dict[str, int] = {}
    unfrozen: list[tuple[ast.AST, str, ast.AST]] = []
    for function in functions_in(tree):
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
    modules = _of_parameters(nodes)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
                    module = modules.get((id(node), expression_text(target.value)))
                    if module is not None and isinstance(node.value.value, bool):
                        yield module, node.value.value, node
        elif isinstance(node, ast.Call) and last_name(node.func) == "requires_grad_":
            values = [each.value for each in node.args if isinstance(each, ast.Constant)]
            is_on = not node.args or values == [True]
            if not node.keywords and (is_on or values == [False]):
                owner = receiver_of(node)
                yield modules.get((id(node), owner), owner), is_on, node


def _of_parameters(nodes: Sequence[ast.AST]) -> dict[tuple[int, str], str]:
    """The module whose parameters a variable is at a statement, by its id and the variable.

    Loops that use one variable one after the other are told apart, and one inside of another.
    """
    found: dict[tuple[int, str], str] = {}
    loops = [each for each in nodes if isinstance(each, ast.For)]
    for loop in sorted(loops, key=lambda each: (first_line(each), each.col_offset)):
        called = loop.iter.func if isinstance(loop.iter, ast.Call) else None
        is_it = isinstance(called, ast.Attribute) and called.attr == "parameters"
        for name in names_in(loop.target):
            for node in ast.walk(loop):
                found.pop((id(node), name), None)
                if is_it and isinstance(called, ast.Attribute):
                    found[id(node), name] = expression_text(called.value)
    return found


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
    # That of asyncio returns nothing to await: what is awaited is a writer that waits itself.
    within -= {id(each.value) for each in nodes if isinstance(each, ast.Await)}
    for call in nodes:
        if not isinstance(call, ast.Call) or id(call) not in within:
            continue
        receiver = receiver_of(call)
        is_writer = "writer" in receiver.lower() or "transport" in receiver.lower()
        if last_name(call.func) in ("write", "writelines") and is_writer:
            yield "undrained-write", receiver, call


def _watchdogs(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`faulthandler.dump_traceback_later(seconds, exit=True)`, `Timer(seconds, os._exit, (3,))`.

    Of timers only those that the function cancels, and may leave before: others end a program at a
    time that was meant.
    """
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    for node in nodes:
        made = node.value if isinstance(node, ast.Assign) else None
        if isinstance(made, ast.Call) and last_name(made.func) == "Timer":
            timer = expression_text(node.targets[0]) if isinstance(node, ast.Assign) else ""
            ends = [
                each.lineno
                for each in calls
                if last_name(each.func) == "cancel" and receiver_of(each) == timer
            ]
            code, left = _exit_code_of(made), left_before(nodes, made, ends)
            if code and left and made.args:
                yield "exits-late", f"{ast.unparse(made.args[0])}; {code}; nothing; {left}", made
    for call in calls:
        if last_name(call.func) != "dump_traceback_later":
            continue
        exits = [each.value for each in call.keywords if each.arg == "exit"]
        if any(isinstance(each, ast.Constant) and each.value is True for each in exits):
            times = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "timeout")]
            files = [each.value for each in call.keywords if each.arg == "file"]
            ends = [e.lineno for e in calls if last_name(e.func) == "cancel_dump_traceback_later"]
            parts = [ast.unparse(each[0]) if each else "" for each in (times, files)]
            about = f"{parts[0]}; 1; {parts[1]}; {left_before(nodes, call, ends)}"
            yield "exits-late", about, call


_OF_LENGTH: Final = frozenset(("nbytes", "shape", "size"))
_UNCHECKED: Final = ("from_address", "memmove", "string_at")
"""Functions of ctypes that are given an address."""


def _unchecked_views(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`as_strided(x, shape=(count, width), strides=...)` where nothing asks for the length of `x`.

    That of torch compares the shape with its storage, and raises.
    """
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    tests = [e.test for e in nodes if isinstance(e, ast.If | ast.Assert | ast.While | ast.IfExp)]
    tested = {name for test in tests for name in names_in(test)}
    for call in calls:
        name = last_name(call.func)
        if name in _UNCHECKED and call.args:
            address = call.args[0]
            is_kept = isinstance(address, ast.Name | ast.Attribute) or (
                isinstance(address, ast.BinOp) and names_in(address).isdisjoint(tested)
            )
            is_ctypes = name == "from_address" or receiver_of(call) == "ctypes"
            if is_ctypes and is_kept and isinstance(call.func, ast.Attribute):
                yield "unchecked-view", f"{expression_text(call.args[0])}; ", call
    strided = [each for each in calls if last_name(each.func) == "as_strided" and each.args]
    if not strided:
        return
    given = _given_to(nodes)
    own = {target.id for n in nodes for target in assigned_to(n) if isinstance(target, ast.Name)}
    for call in strided:
        is_of_torch = receiver_of(call).partition(".")[0] == "torch"
        is_method = isinstance(call.func, ast.Attribute) and not re.fullmatch(
            r"(?:.*\.)?(?:np|numpy|lib|stride_tricks)", receiver_of(call)
        )
        shapes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "shape")]
        array = expression_text(call.args[0])
        if is_of_torch or is_method or not shapes or not array:
            continue
        parts = _computed_from(shapes[0], given)
        if any(_asks_length(each, array) for each in (*parts, *tests)):
            continue
        names = {
            expression_text(each)
            for part in parts
            for each in ast.walk(part)
            if isinstance(each, ast.Name) and each.id not in own
        } - {"self", *_roots_of_calls(parts)}
        if names:
            yield "unchecked-view", f"{array}; {', '.join(sorted(names))}", call


def _given_to(nodes: Sequence[ast.AST]) -> Mapping[str, Sequence[ast.expr]]:
    """What the variables of a function are given."""
    given: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for name in (each for target in assigned_to(node) for each in names_in(target)):
                given[name].append(node.value)
    return given


def _computed_from(value: ast.expr, given: Mapping[str, Sequence[ast.expr]]) -> list[ast.expr]:
    """An expression, and what the variables in it are given, see `_given_to`."""
    found, waiting = [value], names_in(value)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for made in given.get(name, ()):
            found.append(made)
            waiting |= names_in(made) - seen
    return found


def _asks_length(value: ast.expr, array: str) -> bool:
    """Whether an expression reads how long an array is, or asks a function of it."""
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and node.attr in _OF_LENGTH:
            if expression_text(node.value) == array:
                return True
        elif isinstance(node, ast.Call) and array in map(expression_text, node.args):
            return True
    return False


def _roots_of_calls(values: Iterable[ast.expr]) -> Iterator[str]:
    """The names of what is called: `int`, and `np` of `np.prod(shape)`."""
    for call in (each for value in values for each in calls_in(value)):
        yield expression_text(call.func).partition(".")[0]


def _exit_code_of(timer: ast.Call) -> int:
    """The exit status, other than 0, with which a Timer ends its process; 0 for any other."""
    given = [*timer.args[1:], *(each.value for each in timer.keywords)]
    if not given or expression_text(given[0]) != "os._exit":
        return 0
    codes = [e.elts[0] for e in given[1:] if isinstance(e, ast.Tuple | ast.List) and e.elts]
    value = getattr(codes[0], "value", None) if codes else None
    return value if isinstance(value, int) and 0 < value < 256 else 0


def _lengths(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`HEADER.pack(len(text))` or `len(text).to_bytes(4, "big")` beside `text.encode()`."""
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    encoded = {receiver_of(each) for each in calls if last_name(each.func) == "encode"} - {""}
    # A text that is bound anew may be its own encoded bytes.
    bound = {ast.unparse(each) for node in nodes for each in assigned_to(node)}
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


def _rpc_threads(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`TensorPipeRpcBackendOptions(num_worker_threads=n)`."""
    for call in nodes:
        if isinstance(call, ast.Call) and last_name(call.func).endswith("RpcBackendOptions"):
            for each in call.keywords:
                if each.arg == "num_worker_threads":
                    yield "rpc-threads", expression_text(each.value), each


def _replaced_modules(
    function: ast.AST, nodes: Sequence[ast.AST], has_wrappers: bool
) -> Iterator[Found]:
    """`self.head = nn.Linear(n, m)` where the old one is read, and `model.module.add_classes()`."""
    makers = [each for each in nodes if isinstance(each, ast.Assign) and _makes_module(each.value)]
    if makers and isinstance(function, FUNCTIONS) and function.name != "__init__":
        read = {ast.unparse(n) for n in nodes if isinstance(n, ast.Attribute) and _is_load(n)}
        made = {
            target.id for node in makers for target in node.targets if isinstance(target, ast.Name)
        }
        new = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in nodes:
            if not isinstance(node, ast.Assign):
                continue
            is_made = isinstance(node.value, ast.Name) and node.value.id in made
            for target in node.targets if is_made or node in makers else ():
                if not isinstance(target, ast.Attribute) or not names_in(target).isdisjoint(new):
                    continue  # of a model that the function has made
                if (name := ast.unparse(target)) in read:
                    yield "replaces-module", name, node
    if any(last_name(each.func) in _WRAPPERS for each in nodes if isinstance(each, ast.Call)):
        return  # it wraps the model again
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            is_own = node.func.attr not in _OF_EVERY_MODULE
            if is_own and is_wrapped_module(owner, has_wrappers):
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
_KINDS_OF_WRAPPERS: Final = frozenset(
    (
        *("DDP", "DataParallel", "DistributedDataParallel", "FSDP", "FullyShardedDataParallel"),
        *("is_parallel", "unwrap_model"),
    )
)
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


# --- collectives in loops over tensors -----------------------------------------------------------

_ONE_TENSOR: Final = re.compile(r"all_?reduce|reduce|broadcast|all_gather(?:_into_tensor)?")
_OF_TORCH: Final = frozenset(("dist", "distributed", "c10d"))
_JOINED: Final = re.compile(
    r"flat|bucket|coalesce|coalescing|chunk|fused|concat|merged|packed", re.IGNORECASE
)
"""In the name of what already holds many tensors."""
_LOADED: Final = re.compile(r"load|batch|data|step|epoch|range\(", re.IGNORECASE)
"""In what a loop of a training goes through: each of its rounds has other tensors."""
_FEW: Final = 8
"""A tuple or list that is written out has this many elements at most."""


def reducers_of(tree: ast.AST) -> Mapping[str, str]:
    """Functions of a file that call a blocking collective of an argument, with its name.

    `def reduce_tensor(t): out = t.clone(); dist.all_reduce(out); return out / world`.
    """
    found: dict[str, str] = {}
    for function in functions_by_name(tree).values():
        nodes = list(own_nodes(function))
        if any(isinstance(each, LOOPS) for each in nodes):
            continue
        given = {each.arg for each in function.args.args} - {"self", "cls"}
        given |= {
            name
            for node in nodes
            if isinstance(node, ast.Assign) and names_in(node.value) & given
            for target in node.targets
            for name in names_in(target)
        }
        for call in nodes:
            if not isinstance(call, ast.Call) or not any(_is_of(a, given) for a in call.args[:1]):
                continue
            if (name := _collective(call)) and _blocks(call, nodes):
                found[function.name] = name
    return found


def find_looped_collectives(
    nodes: Sequence[ast.AST], reducers: Mapping[str, str]
) -> Iterator[Found]:
    """`for p in model.parameters(): dist.all_reduce(p.grad)`, where each call waits for its end.

    Args:
        nodes: The syntax of one function.
        reducers: See `reducers_of`.
    """
    told: set[int] = set()
    for loop in nodes:
        if isinstance(loop, ast.For):
            target, iterated, body = (
                loop.target,
                loop.iter,
                [n for s in loop.body for n in ast.walk(s)],
            )
        elif isinstance(loop, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            target, iterated = loop.generators[0].target, loop.generators[0].iter
            body = list(ast.walk(loop.elt))
        else:
            continue
        names = names_in(target)
        is_few = isinstance(iterated, ast.Tuple | ast.List) and len(iterated.elts) <= _FEW
        if not names or is_few or _LOADED.search(expression_text(iterated)):
            continue
        for call in body:
            if not isinstance(call, ast.Call) or id(call) in told:
                continue
            is_own = isinstance(call.func, ast.Name) or receiver_of(call) == "self"
            kind = _collective(call) or (reducers.get(last_name(call.func), "") if is_own else "")
            if not kind or not any(_is_of(each, names) for each in call.args):
                continue
            told.add(id(call))
            if _blocks(call, body):
                about = f"{kind}, {first_line(loop)}-{last_line(loop)}, {expression_text(iterated)}"
                yield "looped-collective", about, call


def _collective(call: ast.Call) -> str:
    """The name of a collective of torch.distributed; empty for other calls."""
    name = last_name(call.func)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_known = name != "reduce" if owner is None else last_name(owner) in _OF_TORCH
    return name if is_known and call.args and _ONE_TENSOR.fullmatch(name) else ""


def _is_of(value: ast.expr, names: set[str]) -> bool:
    """Whether an argument is one of these variables, or a part of it: `p.grad.data`."""
    if _JOINED.search(expression_text(value)):
        return False
    while isinstance(value, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(value, ast.Call):
            if not isinstance(value.func, ast.Attribute):
                return False
            value = value.func
        value = value.value
    return isinstance(value, ast.Name) and value.id in names


def _blocks(call: ast.Call, around: Sequence[ast.AST]) -> bool:
    """Whether a collective is waited for before the next: not async_op=True with a later wait()."""
    for each in call.keywords:
        if each.arg == "async_op" and getattr(each.value, "value", True) is not False:
            return any(
                isinstance(other, ast.Call) and last_name(other.func) == "wait" for other in around
            )
    return True


_STARTS_TASKS: Final = frozenset(("apply_async", "map_async", "starmap_async"))
_CALLBACKS: Final = ("callback", "error_callback")
_RAISES_NO_KEY: Final = ADDS | LOGS | {"put", "put_nowait", "release", "set", "update", "write"}
"""Methods of most objects that raise no KeyError."""
_CATCHES_KEY: Final = frozenset(("BaseException", "Exception", "KeyError", "LookupError"))


def find_pool_callbacks(tree: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`pool.apply_async(f, (x,), callback=self.add)`, but of a callback that may raise no KeyError.

    Args:
        tree: The file.
        nodes: The syntax of a function, or of the file.
    """
    for call in nodes:
        if not isinstance(call, ast.Call) or last_name(call.func) not in _STARTS_TASKS:
            continue
        for given in call.keywords:
            if given.arg not in _CALLBACKS:
                continue
            found = _key_lookups(of_file(tree, functions_by_name), given.value)
            if found is not None and (callback := expression_text(given.value)):
                yield "pool-callback", "; ".join((f"{given.arg}, {callback}", *found)), call


def _key_lookups(functions: Mapping[str, FunctionNode], callback: ast.expr) -> Sequence[str] | None:
    """Where a callback looks up keys, `29 row["mean"]`; none if not known, `None` if nowhere."""
    if isinstance(callback, ast.Lambda):
        function: ast.AST = callback
    else:
        name = last_name(callback)
        if name not in functions:
            return None if not name or name in _RAISES_NO_KEY else ()
        function = functions[name]
    found: dict[str, str] = {}
    for line, text in _lookups(function, functions):
        found.setdefault(text, f"{line} {text}")
    if found or _calls_others(function, functions):
        return list(found.values())[:SHOWN]
    return None


def _lookups(
    function: ast.AST, functions: Mapping[str, FunctionNode], *, is_inner: bool = False
) -> Iterator[tuple[int, str]]:
    """The lines at which a function, or one of the file that it calls, may raise a KeyError."""
    body = function.body if isinstance(function, ast.Lambda) else function
    nodes = [body, *own_nodes(body)] if isinstance(function, ast.Lambda) else own_nodes(function)
    caught = [
        (first_line(each.body[0]), last_line(each.body[-1]))
        for each in nodes
        if isinstance(each, ast.Try) and any(map(_catches_key, each.handlers))
    ]
    asked = {
        expression_text(each.comparators[0])
        for each in nodes
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.In | ast.NotIn)
    }
    known = [each for each in nodes if isinstance(each, ast.expr)]
    for node in sorted(known, key=lambda each: (each.lineno, each.col_offset)):
        if any(first <= node.lineno <= last for first, last in caught):
            continue
        container = _looked_up_in(node)
        if container is not None and expression_text(container) not in asked:
            yield node.lineno, expression_text(node)
        inner = functions.get(last_name(node.func)) if isinstance(node, ast.Call) else None
        if inner is not None and inner is not function and not is_inner:
            yield from _lookups(inner, functions, is_inner=True)


def _catches_key(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(each is None or last_name(each) in _CATCHES_KEY for each in caught)


def _looked_up_in(node: ast.expr) -> ast.expr | None:
    """The mapping out of which it reads or removes a key that is a text or a variable."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load | ast.Del):
        return node.value if _is_key(node.slice) else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    is_pop = node.func.attr == "pop" and len(node.args) == 1 and not node.keywords
    return node.func.value if is_pop and _is_key(node.args[0]) else None


def _is_key(index: ast.expr) -> bool:
    """Whether an index may be a key: a text, a variable or what is read from an object."""
    if isinstance(index, ast.Constant):
        return isinstance(index.value, str)
    return isinstance(index, ast.Name | ast.Attribute | ast.Subscript)


def _calls_others(function: ast.AST, functions: Mapping[str, FunctionNode]) -> bool:
    """Whether it calls what may raise a KeyError and is not in the file, outside of a `try`."""
    body = function.body if isinstance(function, ast.Lambda) else function
    if isinstance(body, FUNCTIONS):
        rest = [e for e in body.body if not isinstance(getattr(e, "value", None), ast.Constant)]
        if all(isinstance(e, ast.Try) and any(map(_catches_key, e.handlers)) for e in rest):
            return False
    return any(
        isinstance(each.func, ast.Attribute)
        and last_name(each.func) not in _RAISES_NO_KEY
        and last_name(each.func) not in functions
        for each in calls_in(body)
    )
