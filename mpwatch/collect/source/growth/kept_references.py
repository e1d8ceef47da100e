"""What a program keeps again and again without naming it: handlers, exceptions and descriptors.

Handlers are registered and never taken back; exceptions are kept with their tracebacks and all
local variables of the frames. `tempfile.mkstemp`, `os.open`, `os.dup` and the like return a number:
unlike a file object or a socket, which closes its descriptor when nothing refers to it any more, a
number that is dropped leaves the descriptor open until the process ends.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mpwatch.collect.source.growth.kept import container_of, names_dropped_from, names_set
from mpwatch.collect.source.repetition import Repeatable, functions_with_classes, loop_around
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    QUOTE_LIMIT,
    Found,
    ParsedFile,
    adds_entry,
    assigned_to,
    bindings,
    calls_in,
    every_node,
    expression_text,
    first_line,
    full_name,
    functions_in,
    imported_roots,
    last_line,
    last_name,
    names_in,
    own_nodes,
    parameters,
    quoted,
    receiver_of,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import OPENING_HANDLERS, Mark

_LEAST_DELAY_S: Final = 60
"""A timer that ends sooner keeps little."""
_FROM_OUTSIDE: Final = re.compile(r"do_[A-Z]+|on_\w+|handle(?:_\w+)?|__getitem__|forward")
"""Functions that a server, a client or a library calls for each request, message or item."""
_UNDONE_BY: Final[Mapping[str, str]] = {
    "add_event_handler": "remove_event_handler",
    "add_listener": "remove_listener",
    "add_observer": "remove_observer",
    "register_callback": "unregister_callback",
    "register_handler": "unregister_handler",
    "subscribe": "unsubscribe",
}


def replaced_parameters(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """Statements that give an optimizer another parameter, and leave the state of the old one."""
    tree = module.tree
    if "torch" not in imported_roots(tree):
        return
    for function, owner in functions_with_classes(tree):
        if not isinstance(function, FUNCTIONS):
            continue
        nodes = list(own_nodes(function))
        replaced = [each for node in nodes for each in _replaces(node)]
        if not replaced:
            continue
        states = _states(nodes, owner)
        asked = [found for node in nodes for found in _asks_state(node, states)]
        if not asked or not all(_is_no_parameter(key, nodes) for _, key in asked):
            continue  # it may be that the entry of the old one is asked for
        node, key = max(asked, key=lambda each: first_line(each[0]))  # what removes comes last
        about = clean(f"{expression_text(key)}, {first_line(node)}", QUOTE_LIMIT)
        mark = Mark("replaces-parameter", file, function.name, about, quoted(module, replaced[0]))
        loop = loop_around(file, function, nodes, replaced[0])
        yield Repeatable(mark, (function.name,), loop)


def _replaces(node: ast.AST) -> Iterator[ast.AST]:
    """`group["params"][0] = new` and `group["params"] = [new]`."""
    for target, value in bindings(node) if isinstance(node, ast.Assign) else ():
        of = target
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Subscript):
            of = target.value
        is_new = of is not target or isinstance(value, ast.List)
        if isinstance(of, ast.Subscript) and getattr(of.slice, "value", "") == "params" and is_new:
            yield node


def _states(nodes: Sequence[ast.AST], owner: ast.ClassDef | None) -> set[str]:
    """What a function calls the state of an optimizer: `self.optimizer.state`, or a variable of it.

    Not an entry of it, nor `self.state` of what is no optimizer.
    """
    bases = {last_name(each) for each in owner.bases} if owner is not None else set()
    states = {
        expression_text(each)
        for each in nodes
        if isinstance(each, ast.Attribute) and each.attr == "state"
    }
    states -= set() if any("Optim" in each for each in bases) else {"self.state"}
    return states | {
        expression_text(target)
        for node in nodes
        for target, value in bindings(node)
        if expression_text(value) in states
    }


def _asks_state(node: ast.AST, states: Container[str]) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The entries of the state of an optimizer that are read, deleted or taken out, with keys."""
    if isinstance(node, ast.Subscript):
        if expression_text(node.value) in states and not isinstance(node.ctx, ast.Store):
            yield node, node.slice
    elif isinstance(node, ast.Call) and node.args:
        owner, _, method = expression_text(node.func).rpartition(".")
        if method in ("get", "pop") and owner in states:
            yield node, node.args[0]


def _is_no_parameter(key: ast.expr, nodes: Sequence[ast.AST]) -> bool:
    """Whether a key is a number or a text: written, an index of the groups, or a name of one."""
    if isinstance(key, ast.Constant | ast.JoinedStr):
        return True
    if isinstance(key, ast.Subscript):
        return getattr(key.slice, "value", "") == "name"
    if isinstance(key, ast.Call):
        return last_name(key.func) in ("id", "str")
    return isinstance(key, ast.Name) and any(_counts_or_names(key.id, node) for node in nodes)


def _counts_or_names(name: str, node: ast.AST) -> bool:
    """Whether a piece of syntax shows that a variable is a number or a text."""
    if isinstance(node, ast.Subscript):
        of = node.value
        is_list = isinstance(of, ast.Subscript) and getattr(of.slice, "value", "") == "params"
        is_list = is_list or last_name(of) == "param_groups"
        return is_list and expression_text(node.slice) == name
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
        first = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
        counts = last_name(node.iter.func) in ("enumerate", "named_parameters", "range")
        return counts and expression_text(first) == name
    return any(
        expression_text(target) == name
        and not isinstance(value, ast.Name)
        and _is_no_parameter(value, ())
        for target, value in bindings(node)
    )


def registrations(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """Statements of a file that register what nothing in it takes back."""
    tree = module.tree
    calls = [node for node in every_node(tree) if isinstance(node, ast.Call)]
    if not any(_registers(each) for each in calls):
        return
    hooks = {
        last_name(a) for each in calls if HOOKS.fullmatch(last_name(each.func)) for a in each.args
    }
    called = {last_name(each.func) for each in calls}
    called |= {expression_text(e.func) for e in calls if isinstance(e.func, ast.Attribute)}
    called |= imported_roots(tree) & {"threading"}
    called |= {"removeHandler"} if _clears_handlers(tree, called) else set()
    for function, owner in functions_with_classes(tree):
        if not isinstance(function, FUNCTIONS):
            continue
        nodes = list(own_nodes(function))
        found = [each for each in nodes if isinstance(each, ast.Call) and _registers(each)]
        guarded = _once(function, nodes) if found else set()
        inner = {each.name for each in nodes if isinstance(each, FUNCTIONS)}
        own = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
        own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for call in (each for each in found if id(each) not in guarded):
            given = _registered(call, called, nodes, function)
            kept = _keeps(given.values, own - {"self"}, inner) if given is not None else ""
            if given is None or not kept:
                continue
            is_own = kept == "self"
            if is_own and (owner is None or (given.needs_other and _makes(owner, call))):
                continue
            by = owner.name if owner is not None and (is_own or function.name == "__init__") else ""
            mark = Mark("registers", file, function.name, given.undone_by, quoted(module, call))
            is_called = not is_own and _FROM_OUTSIDE.fullmatch(function.name) is not None
            is_called = is_called or (given.is_hook and function.name in hooks)
            around = [each for each in nodes if not (given.is_hook and _is_over_modules(each))]
            loop = None if is_own else loop_around(file, function, around, call)
            yield Repeatable(mark, (by or function.name,), loop, is_called)


_PUTS_INTO_LOOP: Final = frozenset(
    ("call_at", "call_later", "call_soon", "call_soon_threadsafe", "create_task", "run_in_executor")
)
_OF_LOOP: Final = _PUTS_INTO_LOOP | {
    *("close", "create_future", "get_debug", "is_closed", "is_running", "set_debug"),
    *("set_default_executor", "set_exception_handler", "shutdown_default_executor", "time"),
}
"""Methods of an event loop that do not run it (CPython 3.10 to 3.14)."""


def find_loop_runs(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`loop.run_forever()`, `asyncio.run(main())` and the like, also where these are handed on."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_loop_run(node):
            yield "runs-loop", "", node


def _is_loop_run(node: ast.Attribute) -> bool:
    if node.attr in ("Runner", "run"):
        return expression_text(node.value) in ("anyio", "asyncio", "uvloop")
    return node.attr in ("run_forever", "run_until_complete")


def handed_to_unrun_loops(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """Statements that put something into an event loop that the file makes and does not run."""
    made = _unrun_loops(module.tree)
    for function, owner in functions_with_classes(module.tree) if made else ():
        if not isinstance(function, ast.FunctionDef):
            continue  # of a coroutine, a loop runs
        nodes = own_nodes(function)
        for call in (each for each in nodes if isinstance(each, ast.Call)):
            line, method = made.get(receiver_of(call), 0), last_name(call.func)
            if not line or method not in _PUTS_INTO_LOOP:
                continue
            about = clean(f"{receiver_of(call)}, {line}, {method}", QUOTE_LIMIT)
            mark = Mark("unrun-loop", file, function.name, about, quoted(module, call))
            is_init = owner is not None and function.name == "__init__"
            by = owner.name if owner is not None and is_init else function.name
            loop = loop_around(file, function, nodes, call)
            is_called = _FROM_OUTSIDE.fullmatch(function.name) is not None
            yield Repeatable(mark, (by,), loop, is_called)


def _unrun_loops(tree: ast.Module) -> dict[str, int]:
    """The event loops that a file makes, and of which it only calls methods that do not run them.

    Returns:
        How each is written, with the line that makes it; none for a file that runs any loop.
    """
    if "asyncio" not in imported_roots(tree) or any(map(_may_run_loop, every_node(tree))):
        return {}
    # get_event_loop() in a function that a coroutine calls is the loop that runs.
    has_coroutines = any(isinstance(each, ast.AsyncFunctionDef) for each in functions_in(tree))
    made = {
        expression_text(target): first_line(node)
        for function in (tree, *functions_in(tree))
        if not isinstance(function, ast.AsyncFunctionDef)
        for node in own_nodes(function)
        for target, value in bindings(node)
        if (name := _maker(value)) == "new_event_loop" or (name and not has_coroutines)
    }
    return {each: line for each, line in made.items() if each and _is_only_filled(tree, each)}


def _may_run_loop(node: ast.AST) -> bool:
    """Whether it runs a loop, or gives asyncio or its run() another name."""
    if isinstance(node, ast.Attribute):
        return _is_loop_run(node)
    if isinstance(node, ast.Import):
        return any(each.name == "asyncio" and each.asname for each in node.names)
    names = {each.name for each in node.names} if isinstance(node, ast.ImportFrom) else set()
    return not names.isdisjoint(("Runner", "run"))


def _maker(value: ast.expr) -> str:
    """`new_event_loop` of `asyncio.new_event_loop()`; empty for what makes no event loop."""
    name = last_name(value.func) if isinstance(value, ast.Call) else ""
    return name if name in ("get_event_loop", "new_event_loop") else ""


def _is_only_filled(tree: ast.Module, name: str) -> bool:
    """Whether a file only sets a variable to an event loop, and calls methods that do not run it.

    Where it is given to a call, returned or asked for by its name, something else may run it.
    """
    plain: set[int] = set()
    for node in every_node(tree):
        for target, value in bindings(node):
            if _maker(value) or getattr(value, "value", ...) is None:
                plain.add(id(target))
        if isinstance(node, ast.Attribute) and node.attr in _OF_LOOP:
            plain.add(id(node.value))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            plain.add(id(node.left))
    for node in every_node(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            if id(node) not in plain and expression_text(node) == name:
                return False
        elif isinstance(node, ast.arg | ast.Constant):
            given = node.arg if isinstance(node, ast.arg) else node.value
            if given == name.rpartition(".")[2]:
                return False
    return True


def named_loggers(file: str, module: ParsedFile) -> Iterator[Mark]:
    """The loggers of a name that is put together, to which the same function or class adds."""
    for function, owner in functions_with_classes(module.tree):
        nodes = own_nodes(function) if isinstance(function, FUNCTIONS) else ()
        own = {each.id for each in nodes if isinstance(each, ast.Name) and not _is_read(each)}
        own |= {"self", *(parameters(function) if isinstance(function, FUNCTIONS) else ())}
        for node in nodes:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            call = node.value
            if not (isinstance(call, ast.Call) and last_name(call.func) == "getLogger"):
                continue
            if not call.args or not _is_put_together(call.args[0], own):
                continue
            beside = every_node(owner) if owner is not None else nodes
            adds = {receiver_of(e) for e in beside if isinstance(e, ast.Call) and _adds_handler(e)}
            for name in adds.intersection(map(expression_text, assigned_to(node))):
                about = clean(name, QUOTE_LIMIT)
                yield Mark(
                    "named-logger",
                    file,
                    getattr(function, "name", ""),
                    about,
                    quoted(module, node),
                )


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _adds_handler(call: ast.Call) -> bool:
    return last_name(call.func) == "addHandler"


def _is_put_together(name: ast.expr, own: Container[str]) -> bool:
    """Whether a text has parts of which one is a value of the function or of its object."""
    parts: list[ast.expr] = []
    if isinstance(name, ast.JoinedStr):
        parts = [each.value for each in name.values if isinstance(each, ast.FormattedValue)]
    elif isinstance(name, ast.BinOp):
        parts = [name.left, name.right]
    elif isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute):
        is_text = name.func.attr in ("format", "join")
        parts = [*name.args, *(each.value for each in name.keywords)] if is_text else []
    return any(each in own for part in parts for each in names_in(part))


_NOT_SHOWN: Final = frozenset(
    ("DeprecationWarning", "ImportWarning", "PendingDeprecationWarning", "ResourceWarning")
)
"""Categories that Python's own filters ignore, before they are kept (CPython 3.10 to 3.14)."""


def find_warnings(tree: ast.Module, function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`warnings.warn(f"{name}: {value}")`: each text is kept; and what changes the filters.

    Only of a text with a value that belongs to one call of the function.
    """
    if "warnings" not in imported_roots(tree):
        return
    own = set(parameters(function)) if isinstance(function, FUNCTIONS) else set()
    own |= {n.id for n in nodes if isinstance(n, ast.Name) and not _is_read(n)}
    made = {expression_text(target): value for node in nodes for target, value in bindings(node)}
    for call in (each for each in nodes if isinstance(each, ast.Call)):
        module, _, name = full_name(tree, call.func).rpartition(".")
        if module != "warnings":
            continue
        if name in ("catch_warnings", "filterwarnings", "resetwarnings", "simplefilter"):
            given = {getattr(each, "value", None) for each in call.args}
            is_kept = not given.isdisjoint(("default", "module", "once"))
            if not is_kept:
                yield "warning-filter", name, call
        elif name == "warn" and call.args:
            kinds = {last_name(getattr(each, "func", each)) for each in call.args}
            kinds |= {last_name(each.value) for each in call.keywords}
            text = call.args[0]
            text = made.get(expression_text(text), text) if isinstance(text, ast.Name) else text
            if isinstance(text, ast.Call) and text.args and last_name(text.func)[:1].isupper():
                text = text.args[0]  # an object of the category
            if _NOT_SHOWN.isdisjoint(kinds) and _is_put_together(text, own - {"self", "cls"}):
                yield "warns-anew", "", call


_REGISTERS: Final = frozenset(
    (
        *("Timer", "addHandler", "call_at", "call_later", "finalize", "register"),
        *("register_at_fork", *_UNDONE_BY),
    )
)


HOOKS: Final = re.compile(r"register_(?:forward_|full_backward_|backward_)?(?:pre_)?hook")
"""Methods of torch that register a hook of a module or tensor."""


def _registers(call: ast.Call) -> bool:
    name = last_name(call.func)
    return name in _REGISTERS or HOOKS.fullmatch(name) is not None


def _is_over_modules(node: ast.AST) -> bool:
    """`for layer in model.modules():`, of which a model has as many in each pass."""
    return (
        isinstance(node, ast.For)
        and isinstance(node.iter, ast.Call)
        and last_name(node.iter.func)
        in ("children", "modules", "named_children", "named_modules", "named_parameters")
    )


class _Given(NamedTuple):
    """What a call registers."""

    values: Sequence[ast.expr]
    undone_by: str
    needs_other: bool = False
    """Whether what it is registered with must outlive the object: not one that it has made."""
    is_hook: bool = False
    """Whether it is a hook of torch."""


def _registered(
    call: ast.Call, called: Container[str], nodes: Sequence[ast.AST], function: ast.AST
) -> _Given | None:
    """What a call registers, and what would take that back; `None` if the file does so."""
    name, to = last_name(call.func), receiver_of(call)
    given = [*call.args, *(each.value for each in call.keywords if each.arg != "weak")]
    if not given:
        return None
    if name == "register" and to == "atexit":
        return None if "atexit.unregister" in called else _Given(given, "atexit.unregister()")
    if name == "register_at_fork":
        return _Given(given, "nothing")
    if name == "Timer" and to != "threading" and (to or "threading" not in called):
        return None  # that of timeit
    if name in ("call_later", "call_at", "Timer") and len(given) > 1:
        return _timer(call, name, given, called, nodes, function)
    if name == "finalize" and len(given) > 1:
        return _finalizer(given, called)
    if name == "addHandler":
        is_made = any(isinstance(each, ast.Call) for each in ast.walk(given[0]))
        value = given[0] if is_made or isinstance(given[0], ast.Attribute) else None
        made = [value] if value is not None else [_NEW] * (_is_made(given[0], nodes))
        kind = _class_of(given[0], nodes)
        undone_by = f"removeHandler(){f' for {kind}' if kind in OPENING_HANDLERS else ''}"
        return None if "removeHandler" in called else _Given(made, undone_by)
    if HOOKS.fullmatch(name) is not None and isinstance(call.func, ast.Attribute):
        is_removed = "remove" in called and not _overwrites_handles(nodes, function)
        return None if is_removed else _Given(given[:1], "remove() of its handle", True, True)
    if name in _UNDONE_BY and isinstance(call.func, ast.Attribute):
        functions = [e for e in given if isinstance(e, ast.Lambda | ast.Attribute | ast.Name)]
        if _UNDONE_BY[name] in called:
            return None
        return _Given([e for e in functions if not _is_text(e)], f"{_UNDONE_BY[name]}()", True)
    return None


def _overwrites_handles(nodes: Sequence[ast.AST], function: ast.AST) -> bool:
    """Whether a function gives a variable that outlives it the handles of each of its calls anew.

    Those of the calls before can then not be removed any more.
    """
    if any(isinstance(n, ast.Call) and last_name(n.func) == "remove" for n in nodes):
        return False
    shared = {
        n for each in nodes if isinstance(each, ast.Nonlocal | ast.Global) for n in each.names
    }
    made = {name for each in nodes for name in names_set(each)} - shared
    is_method = getattr(function, "name", "") != "__init__"
    return is_method and any(
        isinstance(each, ast.Assign)
        and expression_text(each.value) in made
        and any(
            isinstance(target, ast.Attribute) or expression_text(target) in shared
            for target in each.targets
        )
        for each in nodes
    )


_NEW: Final = ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None))
"""Stands for an object that the function has made."""


def _is_made(value: ast.expr, nodes: Sequence[ast.AST]) -> bool:
    """Whether a variable is given a new object in the same function."""
    return bool(_class_of(value, nodes))


def _class_of(value: ast.expr, nodes: Sequence[ast.AST]) -> str:
    """What is called to make a value, here or where the function sets its variable."""
    if isinstance(value, ast.Call):
        return last_name(value.func)
    name = expression_text(value)
    made = (
        each.value
        for each in nodes
        if isinstance(each, ast.Assign)
        and any(expression_text(target) == name for target in each.targets)
    )
    return next((last_name(each.func) for each in made if isinstance(each, ast.Call)), "")


def _clears_handlers(tree: ast.AST, called: Iterable[str]) -> bool:
    """Whether a file takes handlers from loggers in another way: `logger.handlers.clear()`."""
    cleared = ("handlers.clear", "handlers.pop", "handlers.remove")
    return any(each.endswith(cleared) for each in called) or any(
        name.partition("[")[0].endswith(".handlers")
        for node in every_node(tree)
        for name in names_set(node)
    )


def _is_text(value: ast.expr) -> bool:
    """Whether it is written like a constant: `Topic.READINGS`, `EVENT`."""
    return last_name(value).isupper()


def _timer(
    call: ast.Call,
    name: str,
    given: Sequence[ast.expr],
    called: Container[str],
    nodes: Sequence[ast.AST],
    function: ast.AST,
) -> _Given | None:
    """A timer that may last long, is dropped or never cancelled, and does not set itself again."""
    delay = getattr(given[0], "value", None)
    if isinstance(delay, int | float) and name != "call_at" and delay < _LEAST_DELAY_S:
        return None
    if last_name(given[1]) == getattr(function, "name", ""):
        return None
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is call:
            names = [expression_text(each) for each in assigned_to(node)]
            if any(f"{each}.cancel" in called for each in names) or "cancel" in called:
                return None
        elif isinstance(node, ast.Return | ast.Await) and node.value is call:
            return None  # its caller has it
        elif isinstance(node, ast.Call) and call in node.args and "cancel" in called:
            return None  # kept with others
    return _Given(given[1:], "cancel() of its handle")


def _finalizer(given: Sequence[ast.expr], called: Container[str]) -> _Given | None:
    """A function of an object that is to run when nothing refers to the object any more."""
    target = expression_text(given[0])
    function, *rest = given[1:]
    is_held = expression_text(function).startswith(f"{target}.") or (
        isinstance(function, ast.Lambda) and target in names_in(function.body)
    )
    is_held = is_held or any(expression_text(each) == target for each in rest)
    return _Given(given[:1], "a function that does not refer to the object") if is_held else None


def _keeps(values: Sequence[ast.expr], own: Container[str], inner: Container[str]) -> str:
    """What registered values keep: `self`, `call` for what belongs to one call, or nothing.

    Args:
        values: A function and what it is to be given; or an object.
        own: Variables of the function that registers.
        inner: Functions that are defined in it.
    """
    found = ""
    for place, each in enumerate(values):
        first = expression_text(each).partition(".")[0]
        is_new = isinstance(each, ast.Lambda | ast.Call | ast.List | ast.Tuple | ast.Dict)
        if is_new or first in inner:
            return "call"
        if first == "self":
            found = "self"
        elif first in own and (place > 0 or isinstance(each, ast.Attribute) or len(values) == 1):
            return "call"
    return found


def _makes(owner: ast.ClassDef, call: ast.Call) -> bool:
    """Whether a class makes that with which it registers: both are let go together."""
    to = receiver_of(call)
    return to == "self" or any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and any(expression_text(target) == to for target in node.targets)
        for node in ast.walk(owner)
    )


_ASKS: Final = re.compile(
    r"handlers|Handlers|registered|is None|not self\._?\w+$|installed|subscribed|configured"
    r"|\b(?:not )?in [\w.]*loggers"
)


def _once(function: ast.AST, nodes: Sequence[ast.AST]) -> set[int]:
    """The ids of what stands under a condition that it was not registered before.

    Or after one that leaves the function, and in one whose results are kept.
    """
    asking = [
        node
        for node in nodes
        if isinstance(node, ast.If) and _ASKS.search(expression_text(node.test))
    ]
    found = {
        id(part)
        for node in asking
        for each in (*node.body, *node.orelse)
        for part in ast.walk(each)
    }
    leaves = [last_line(each) for each in asking if isinstance(each.body[-1], ast.Return)]
    is_kept = any(
        last_name(each.func if isinstance(each, ast.Call) else each) in ("cache", "lru_cache")
        for each in getattr(function, "decorator_list", ())
    )
    first = 0 if is_kept else min(leaves, default=None)
    if first is not None:
        found |= {id(each) for each in nodes if isinstance(each, ast.Call) and each.lineno > first}
    return found


_CUTS: Final = frozenset(("clear_frames", "with_traceback"))
"""What takes the frames away from an exception."""
_GROUPS: Final = frozenset(("dict", "list", "partial", "set", "tuple"))


def kept_exceptions(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """`self.failures.append(Failure(page_id, error))` in `except ... as error:`.

    Only where nothing in the file removes anything from the container. One that is a variable of
    the function is looked at for the loops of that: it ends with the function.
    """
    texts = _classes_of_texts(module.tree)
    let_go: frozenset[str] | None = None
    for function, owner in functions_with_classes(module.tree):
        nodes = list(own_nodes(function))
        own = getattr(function, "name", "<module>")
        by = owner.name if owner is not None and own == "__init__" else own
        for node, container in _found_in(nodes, texts):
            if let_go is None:
                let_go = frozenset(_let_go(module.tree))
            name = expression_text(container)
            if not name or container_of(name) in let_go:
                continue
            about = clean(name, QUOTE_LIMIT // 2)
            mark = Mark("keeps-exception", file, own, about, quoted(module, node))
            is_own = any(
                isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name
                for n in nodes
            )
            around = _outliving(nodes, name) if is_own else nodes
            loop = loop_around(file, function, around, node)
            yield Repeatable(mark, () if is_own else (by,), loop)


_ERROR: Final = re.compile(r"(?:\w*(?:Error|Exception|Failure)|[A-Z]\w*(?:Failed|Timeout|Exit))")
"""Names of classes of exceptions."""


def raised_again(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """`raise self.known[key]` of an exception that the file has kept there before.

    Or of one that it has made once, as a global variable. Each raise of the same object makes its
    traceback longer. Not where its traceback is taken off, or a copy is raised.
    """
    raises = [
        each
        for each in every_node(module.tree)
        if isinstance(each, ast.Raise) and isinstance(each.exc, _PLACES)
    ]
    kept = dict(_exceptions_kept(module.tree)) if raises else {}
    for function, owner in functions_with_classes(module.tree) if kept else ():
        nodes = list(own_nodes(function))
        if not isinstance(function, FUNCTIONS) or _cuts(nodes):
            continue
        given: defaultdict[str, list[ast.expr]] = defaultdict(list)
        for target, value in (pair for node in nodes for pair in bindings(node)):
            given[expression_text(target)].append(value)
        own = {each.arg for each in function.args.args} | {
            each.name for each in nodes if isinstance(each, ast.ExceptHandler) and each.name
        }
        by = owner.name if owner is not None and function.name == "__init__" else function.name
        for node in nodes:
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, _PLACES):
                continue
            name = expression_text(node.exc)
            is_variable = isinstance(node.exc, ast.Name)
            values = given[name] if is_variable and name in given else [node.exc]
            places = {_kept_place(each) for each in values}
            if name in own or len(places) != 1 or (place := places.pop()) not in kept:
                continue
            about = clean(f"{place}, {kept[place]}", QUOTE_LIMIT // 2)
            mark = Mark("raises-kept", file, function.name, about, quoted(module, node))
            yield Repeatable(mark, (by,), raises=True)


_PLACES: Final = (ast.Name, ast.Attribute, ast.Subscript)


def _kept_place(value: ast.expr) -> str:
    """The container, attribute or variable that an expression reads: `self.known` of its `get`."""
    if isinstance(value, ast.Call) and last_name(value.func) == "get":
        return f"{receiver_of(value)}[]"
    if isinstance(value, ast.Subscript):
        return f"{expression_text(value.value)}[]"
    return expression_text(value) if isinstance(value, ast.Name | ast.Attribute) else ""


def _exceptions_kept(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Where a file keeps an exception beyond a function, each with the line."""
    for made in tree.body:
        value = made.value if isinstance(made, ast.Assign) else None
        is_made = isinstance(value, ast.Call) and _ERROR.fullmatch(last_name(value.func))
        for target in made.targets if isinstance(made, ast.Assign) and is_made else ():
            yield expression_text(target), first_line(made)
    for handler in (e for e in every_node(tree) if isinstance(e, ast.ExceptHandler) and e.name):
        for node in (part for each in handler.body for part in (each, *own_nodes(each))):
            if isinstance(node, ast.Assign) and last_name(node.value) == handler.name:
                for target in node.targets:
                    is_beyond = isinstance(target, ast.Attribute | ast.Subscript)
                    if is_beyond and isinstance(node.value, ast.Name):
                        yield _kept_place(target), first_line(node)


def _found_in(
    nodes: Sequence[ast.AST], texts: Container[str]
) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The statements of the `except` clauses of a function that keep exceptions."""
    for handler in (each for each in nodes if isinstance(each, ast.ExceptHandler)):
        inside = [part for each in handler.body for part in (each, *own_nodes(each))]
        kept = [] if _cuts(inside) else _kept_in(inside, handler.name or "", texts)
        yield from kept


def _outliving(nodes: Sequence[ast.AST], name: str) -> list[ast.AST]:
    """The loops of a function that do not make a variable anew in each round."""
    making = [first_line(each) for each in nodes if name in names_set(each)]
    return [
        each
        for each in nodes
        if isinstance(each, LOOPS)
        and not any(first_line(each) < line <= last_line(each) for line in making)
        and not _is_of_attempts(each)
    ]


_ATTEMPTS: Final = re.compile(r"attempt|retr(?:y|ies)|tries", re.IGNORECASE)


def _is_of_attempts(loop: ast.AST) -> bool:
    """`for attempt in range(3)`: few rounds."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return False
    is_number = all(isinstance(each, ast.Constant) for each in loop.iter.args)
    is_range = last_name(loop.iter.func) == "range"
    told = f"{expression_text(loop.target)} {expression_text(loop.iter)}"
    return is_range and (is_number or _ATTEMPTS.search(told) is not None)


def _let_go(tree: ast.Module) -> Iterator[str]:
    """The last names of containers from which a file removes, that it makes anew, or bounds."""
    for node in every_node(tree):
        yield from map(container_of, names_dropped_from(node))
        made = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(made, ast.Call) and last_name(made.func) == "deque":
            yield from map(container_of, names_set(node))
        if isinstance(node, FUNCTIONS) and node.name != "__init__":
            for each in own_nodes(node):
                yield from (
                    container_of(name)
                    for name in names_set(each)
                    if "." in name and "[" not in name
                )


def _kept_in(
    inside: Sequence[ast.AST], error: str, texts: Container[str]
) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The statements of an `except` clause that keep its exception, and the containers."""
    made = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign) and _holds(node.value, error, texts, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in inside:
        if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
            if adds_entry(call) and any(_holds(each, error, texts, made) for each in call.args):
                yield node, call.func.value  # type: ignore[attr-defined]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            is_new = not isinstance(node.targets[0].slice, ast.Constant)
            if is_new and _holds(node.value, error, texts, made):
                yield node, node.targets[0].value
        elif isinstance(node, ast.AugAssign) and _holds(node.value, error, texts, made):
            yield node, node.target


def _holds(value: ast.expr, error: str, texts: Container[str], made: Container[str]) -> bool:
    """Whether an expression refers to the exception, itself or in an object made of it."""
    if isinstance(value, ast.Name):
        return (value.id == error and bool(error)) or value.id in made
    if isinstance(value, ast.Attribute):
        return value.attr == "__traceback__" and last_name(value.value) == error
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return any(_holds(each, error, texts, made) for each in value.elts)
    if isinstance(value, ast.Dict):
        return any(_holds(each, error, texts, made) for each in value.values)
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if name == "exc_info":
        return True
    # A function gives anything, such as a text; a class is written with a capital letter.
    if name not in _GROUPS and (not name.lstrip("_")[:1].isupper() or name in texts):
        return False
    given = [*value.args, *(each.value for each in value.keywords)]
    return any(_holds(each, error, texts, made) for each in given)


def _cuts(inside: Sequence[ast.AST]) -> bool:
    """Whether a clause takes the traceback off its exception."""
    for node in inside:
        if isinstance(node, ast.Expr) and any(last_name(c.func) in _CUTS for c in calls_in(node)):
            return True
        if isinstance(node, ast.Assign) and last_name(node.targets[0]) == "__traceback__":
            return True
    return False


def _classes_of_texts(tree: ast.Module) -> frozenset[str]:
    """The classes of a file whose objects keep nothing that they are given as it is."""
    found: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        init = next(
            (e for e in node.body if isinstance(e, FUNCTIONS) and e.name == "__init__"), None
        )
        if init is None:
            continue
        given = {each.arg for each in (*init.args.args[1:], *init.args.kwonlyargs)}
        kept = [
            each
            for each in own_nodes(init)
            if isinstance(each, ast.Assign)
            and given & {n.id for n in _parts(each.value) if isinstance(n, ast.Name)}
        ]
        # What is passed on may be kept by a base class.
        if not kept and not any(last_name(c.func) == "__init__" for c in calls_in(init)):
            found.add(node.name)
    return frozenset(found)


def _parts(value: ast.expr) -> Sequence[ast.expr]:
    """An expression, or the elements of a tuple or list."""
    return value.elts if isinstance(value, ast.Tuple | ast.List) else [value]


# --- descriptors ---------------------------------------------------------------------------------

_OF_OS: Final[Mapping[str, tuple[str, int]]] = {
    "dup": ("any", 1),
    "eventfd": ("event", 1),
    "memfd_create": ("shm", 1),
    "open": ("file", 1),
    "pipe": ("pipe", 2),
    "pipe2": ("pipe", 2),
}
"""Functions of `os`: the kind of what they open, and how many descriptors they return."""
_TEMPORARY: Final = "mkstemp"
KEEPS_OPEN: Final = frozenset(
    (
        *("fchmod", "fchown", "fdatasync", "flock", "fstat", "fsync", "ftruncate", "get_blocking"),
        *("isatty", "lockf", "lseek", "posix_fadvise", "posix_fallocate", "pread", "print"),
        *("pwrite", "read", "sendfile", "set_blocking", "set_inheritable", "write", "writev"),
    )
)
"""Functions that use a descriptor and leave it open; of any other it is not known."""


def unclosed(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """Statements of a file that open a descriptor which their function does not close.

    Nor gives away: returns it, keeps it, or gives it to a function that may close it.
    """
    tree = module.tree
    if not any(isinstance(each, ast.Call) and _opened(each) for each in every_node(tree)):
        return
    for function, owner in functions_with_classes(tree):
        nodes = list(own_nodes(function))
        name = getattr(function, "name", "<module>")
        by = owner.name if owner is not None and name == "__init__" else name
        for call, about in _left_open(nodes):
            mark = Mark("unclosed", file, name, clean(about, QUOTE_LIMIT), quoted(module, call))
            loop = loop_around(file, function, nodes, call)
            is_function = isinstance(function, FUNCTIONS)
            yield Repeatable(mark, (by,) if is_function else (), loop, is_called=is_function)


def _left_open(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.Call, str]]:
    """The calls of a function whose descriptor stays open, with what `Mark.about` says of each."""
    opened = [(e, about) for e in nodes if isinstance(e, ast.Call) and (about := _opened(e))]
    uses = _Uses(nodes) if opened else None
    for call, about in opened if uses is not None else ():
        count = 1 if last_name(call.func) == _TEMPORARY else _OF_OS[last_name(call.func)][1]
        if uses is not None and (uses.is_dropped(call) or uses.is_left_in_variable(call, count)):
            yield call, about


def _is_path(part: ast.AST | None) -> bool:
    """Whether an expression takes the path out of what mkstemp() returns."""
    return isinstance(part, ast.Subscript) and getattr(part.slice, "value", None) == 1


class _Uses:
    """What a function does with its variables, gathered once for all that it opens."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        self._parents = {id(child): each for each in nodes for child in ast.iter_child_nodes(each)}
        self._reads: defaultdict[str, list[ast.Name]] = defaultdict(list)
        self._shared: set[str] = set()
        """Variables that other functions have, too."""
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._reads[node.id].append(node)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                self._shared.update(node.names)
            elif isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
                self._shared |= names_in(node)

    def is_dropped(self, call: ast.Call) -> bool:
        """Whether nothing refers to what a call returns, or to its descriptor: `mkstemp()[1]`."""
        parent = self._parents.get(id(call))
        return isinstance(parent, ast.Expr) or (
            isinstance(parent, ast.Subscript)
            and last_name(call.func) == _TEMPORARY
            and _is_path(parent)
        )

    def is_left_in_variable(self, call: ast.Call, count: int) -> bool:
        """Whether a variable gets one of the descriptors that a call returns, and leaves it open.

        Args:
            call: The call.
            count: How many descriptors it returns.
        """
        parent = self._parents.get(id(call))
        if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
            return False
        target = parent.targets[0]
        if last_name(call.func) == _TEMPORARY or count > 1:
            if isinstance(target, ast.Name) and count == 1:  # made = mkstemp(); made[1] is its path
                return all(_is_path(self._parents.get(id(e))) for e in self._reads[target.id])
            parts_of = target.elts if isinstance(target, ast.Tuple | ast.List) else []
            numbers = parts_of[:count]
            return len(parts_of) == 2 and any(
                isinstance(each, ast.Name) and self._is_left(each.id) for each in numbers
            )
        return isinstance(target, ast.Name) and self._is_left(target.id)

    def _is_left(self, name: str) -> bool:
        """Whether a function only uses a number, and neither closes nor hands it on."""
        return name not in self._shared and all(
            _leaves_open(each, self._parents.get(id(each))) for each in self._reads[name]
        )


def _leaves_open(use: ast.Name, parent: ast.AST | None) -> bool:
    """Whether one use of a descriptor leaves it open and in this function."""
    if isinstance(parent, ast.FormattedValue | ast.Compare | ast.BoolOp | ast.If | ast.UnaryOp):
        return True
    if not isinstance(parent, ast.Call) or use not in parent.args:
        return False
    name = last_name(parent.func)
    if name in ("open", "fdopen"):
        return any(
            each.arg == "closefd" and getattr(each.value, "value", None) is False
            for each in parent.keywords
        )
    # mmap duplicates the descriptor that it is given (mmapmodule.c).
    return name in KEEPS_OPEN or expression_text(parent.func) == "mmap.mmap"


def _opened(call: ast.Call) -> str:
    """What a call opens: the kind and the parts of its name that are written out.

    `file /tmp/ocr_*.npy`: a path without a folder that is known has none; empty for other calls.
    """
    name = last_name(call.func)
    if name != _TEMPORARY and name not in _OF_OS:
        return ""  # the most, and their receivers are not written out
    of = receiver_of(call)
    if name == _TEMPORARY:
        return f"file {temporary_name(call)}" if of in ("", "tempfile") else ""
    if of != "os":
        return ""
    kind, _ = _OF_OS[name]
    if kind not in ("file", "shm"):
        return f"{kind} *"
    name = (pattern_of(call.args[0]) if call.args else "*").rpartition("/")[2] or "*"
    return f"{kind} memfd:{name}" if kind == "shm" else f"{kind} {name}"  # as the kernel calls it


def temporary_name(call: ast.Call) -> str:
    """`ocr_*.npy` of `mkstemp(prefix="ocr_", suffix=".npy")`, whose arguments have defaults."""
    given = dict(zip(("suffix", "prefix"), call.args, strict=False))
    for each in call.keywords:
        if each.arg is None:  # **options
            return "*"
        given[each.arg] = each.value
    prefix = pattern_of(given["prefix"]) if "prefix" in given else "tmp"
    suffix = pattern_of(given["suffix"]) if "suffix" in given else ""
    return f"{prefix}*{suffix}".replace("**", "*")


def pattern_of(value: ast.expr) -> str:
    """A text as far as it is written out, with `*` for the rest."""
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else "*"
    if isinstance(value, ast.JoinedStr):
        return "".join(map(pattern_of, value.values))
    if isinstance(value, ast.Call) and last_name(value.func) == "join" and value.args:
        return f"*/{pattern_of(value.args[-1])}"
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        return f"*/{pattern_of(value.right)}"
    return "*"


_MAKES_GROUP: Final = frozenset(("new_group", "new_subgroups", "new_subgroups_by_enumeration"))


def find_groups(tree: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`dist.new_group(ranks)` in a file that passes no group to destroy_process_group().

    torch keeps each group in a registry of its own, with its threads and connections, also where
    the program has no reference to it (torch 2.13, distributed_c10d.py).

    Args:
        tree: The file.
        nodes: The syntax of one function of it.
    """
    made = [
        node
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) in _MAKES_GROUP
    ]
    ends = made and any(
        isinstance(node, ast.Call)
        and last_name(node.func) == "destroy_process_group"
        and (node.args or node.keywords)
        for node in every_node(tree)
    )
    if not ends:
        for node in made:
            yield "makes-group", last_name(node.func), node
