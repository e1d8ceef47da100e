"""Statements that can be the reason for what is observed, wherever they are in a file.

Caches without a bound, delays that only grow, timers, limits, calls that end other processes,
and the others that `MarkKind` lists.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from signal import Signals
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from mpwatch.collect.source.control_flow import RAISES_NOT, STARTS_TASK
from mpwatch.collect.source.handing_over import Handing, find_handing, handing_of
from mpwatch.collect.source.kept import (
    ARRAYS,
    NO_GRAD,
    ReturnedSlice,
    Tensors,
    bounded_names,
    container_of,
    containers_emptied_at_end,
    dicts_of,
    emptied_names,
    find_bounded,
    find_graphs,
    find_held_futures,
    find_kept,
    find_kept_to_end,
    find_memo_fills,
    find_outputs,
    find_registered,
    find_running,
    find_stored,
    find_sums,
    find_views,
    forward_passes,
    has_many_entries,
    is_cycle,
    is_unbounded_cache,
    names_dropped_from,
    names_set,
    plain_containers,
    registries_of,
    returned_slices_of,
    sequences_of,
    tensors_of,
    variables_of,
)
from mpwatch.collect.source.kept_references import HOOKS
from mpwatch.collect.source.pattern_uses import FileNames, PatternUses
from mpwatch.collect.source.pipe_statements import (
    BufferedFiles,
    buffered_files,
    find_buffered_reads,
    find_default_sigpipe,
)
from mpwatch.collect.source.pitfalls import (
    find_group_kills,
    find_looped_collectives,
    find_pitfalls,
    find_renewed_deadlines,
    find_text_order,
    find_unfrozen,
    has_wrappers,
    is_wrapped_module,
    reducers_of,
)
from mpwatch.collect.source.rank_differences import (
    clocks_of,
    find_clocks,
    find_own_values,
    find_set_order,
    plateaus_of,
    sets_of,
)
from mpwatch.collect.source.repetition import (
    Takers,
    find_emptying,
    find_own_answers,
    may_be_queue,
    taken_by,
    takers_of,
)
from mpwatch.collect.source.slow_statements import (
    Slow,
    cached_variants,
    elements,
    find_awaited_tasks,
    find_past_caches,
    slow,
    tensors_in,
)
from mpwatch.collect.source.syntax import (
    ADDS,
    BRANCHES,
    FUNCTIONS,
    LOGS,
    LOOPS,
    ORDERS,
    QUOTE_LIMIT,
    SHOWN,
    Found,
    ParsedFile,
    are_apart,
    bindings,
    children,
    every_node,
    expression_text,
    first_line,
    functions_by_name,
    functions_in,
    imported_roots,
    last_line,
    last_name,
    names_in,
    own_nodes,
    quoted,
    receiver_of,
    within,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import RAISE_OF, Mark, Statement

_SUBMITS: Final = STARTS_TASK | {"remote"}
"""`remote` is Ray's, and that of what imitates it."""


FUNCTION_NODES: Final = 8_000
"""A function of more syntax of its own is not marked, nor is a file outside of its functions.

Several questions compare each two of the statements of a function. In 3,460 files of libraries the
longest function has 4,730, and only generated tables have more than 8,000.
"""


def marks(
    file: str,
    module: ParsedFile,
    elsewhere: Mapping[str, ReturnedSlice] = MappingProxyType({}),
    names: FileNames | None = None,
) -> Iterator[Mark]:
    """Statements that can be the reason for what is observed, in no order.

    Args:
        file: The path.
        module: The file.
        elsewhere: Functions of other files that return a slice.
        names: What its names are given, also in the files that it imports.
    """
    known = _names_of(module.tree, elsewhere, names or FileNames(module.tree, file))
    for function in (module.tree, *functions_in(module.tree)):
        if len(own_nodes(function)) > FUNCTION_NODES:
            continue
        name = function.name if isinstance(function, FUNCTIONS) else "<module>"
        for kind, about, node in (*_found_in(module, function, known), *_decorations(function)):
            if kind == "cache" and (used := _decorated(known.defined, function)):
                about = f"{about} (for {', '.join(used[:SHOWN])})"
            yield Mark(kind, file, name, clean(about, QUOTE_LIMIT), quoted(module, node))
        for line, text in _cached(function):
            yield Mark("cache", file, name, name, Statement(line, text))


class _Names(NamedTuple):
    """What the whole of a file shows about its names; most of it is empty without arrays."""

    defined: Sequence[_Named]
    bounded: set[str]
    """Containers from which something is removed."""
    set_back: frozenset[str]
    """Attributes and variables that a function other than `__init__` sets."""
    dropped: set[str]
    emptied: frozenset[str]
    at_end: dict[str, str]
    dicts: set[str]
    registries: Mapping[str, str]
    permits: _Permits
    handing: Handing
    buffered: BufferedFiles
    takers: Takers
    may_hold_back: bool
    """Whether nothing in the file sends small writes at once, or collects them."""
    sequences: Mapping[str, str]
    plain: frozenset[str]
    """Containers of Python, whose parts refer to no memory but their own."""
    sets: frozenset[str]
    clocks: frozenset[str]
    unfrozen: Sequence[tuple[ast.AST, str, ast.AST]]
    plateaus: frozenset[str]
    functions: Mapping[str, ast.AST]
    assigned: Mapping[str, ast.expr]
    models: Tensors
    uses_arrays: bool
    unwrapping: frozenset[str]
    has_wrappers: bool
    tensors: Mapping[str, frozenset[str]]
    returned: Mapping[str, ReturnedSlice]
    forwards: set[int]
    """The ids of the forward passes."""
    reducers: Mapping[str, str]
    managers: frozenset[str]
    """Variables and attributes that are a Manager of multiprocessing."""
    cached: Mapping[str, str]
    patterns: PatternUses


def _names_of(tree: ast.Module, elsewhere: Mapping[str, ReturnedSlice], names: FileNames) -> _Names:
    bounded = set(bounded_names(tree))
    set_back = frozenset(
        name
        for each in every_node(tree)
        if isinstance(each, FUNCTIONS) and each.name != "__init__"
        for node in own_nodes(each)
        for name in names_set(node)
    )
    emptied_dicts = map(container_of, (*bounded, *(e for e in set_back if "[" not in e)))
    uses_arrays = not ARRAYS.isdisjoint(imported_roots(tree))
    is_wrapping = has_wrappers(tree)
    defined = [n for n in every_node(tree) if isinstance(n, (*FUNCTIONS, ast.ClassDef))]
    return _Names(
        defined=defined,
        bounded=bounded,
        set_back=set_back,
        dropped={name for node in every_node(tree) for name in names_dropped_from(node)},
        emptied=frozenset(map(container_of, (*emptied_names(tree), *set_back))),
        at_end=containers_emptied_at_end(tree),
        dicts={*dicts_of(tree)}.difference(emptied_dicts),
        registries=registries_of(tree),
        permits=_permits_of(tree),
        handing=handing_of(tree),
        buffered=buffered_files(tree),
        takers=takers_of(tree),
        may_hold_back=not any(
            name in ("TCP_NODELAY", "disable_nagle_algorithm", "wbufsize", "makefile")
            for node in every_node(tree)
            for name in [last_name(node) if isinstance(node, ast.expr) else ""]
        ),
        sequences=sequences_of(tree),
        plain=frozenset(plain_containers(tree)) if uses_arrays else frozenset(),
        sets=sets_of(tree),
        clocks=clocks_of(tree),
        unfrozen=list(find_unfrozen(tree)),
        plateaus=plateaus_of(tree),
        functions=functions_by_name(tree),
        assigned=_assigned(tree),
        models=tensors_of(tree),
        uses_arrays=uses_arrays,
        unwrapping=frozenset(_unwrapping(tree, is_wrapping)),
        has_wrappers=is_wrapping,
        tensors=tensors_in(tree) if uses_arrays else {},
        returned={**elsewhere, **returned_slices_of(tree)} if uses_arrays else {},
        forwards={id(each) for each in forward_passes(tree)} if uses_arrays else set(),
        reducers=reducers_of(tree) if "torch" in imported_roots(tree) else {},
        managers=frozenset(_managers(tree)),
        cached=cached_variants(defined),
        patterns=PatternUses(names),
    )


def _found_in(module: ParsedFile, function: ast.AST, known: _Names) -> Iterator[Found]:
    """The marked statements of one function, or of a file outside of its functions."""
    nodes = own_nodes(function)
    name = function.name if isinstance(function, FUNCTIONS) else ""
    yield from _calls_marked(nodes)
    yield from find_awaited_tasks(function, nodes)
    yield from find_handing(function, nodes, known.handing)
    yield from find_past_caches(function, nodes, known.cached)
    if known.uses_arrays:
        yield from _found_of_arrays(module, function, known, nodes)
    yield from find_memo_fills(nodes, known.bounded)
    yield from _backoffs(function, nodes, known.set_back)
    yield from _gives_up(module, function)
    yield from _draws(nodes)
    yield from _releases(nodes)
    yield from _walks(nodes, known.sequences)
    is_once = name in ("", "__init__", "main")
    yield from _slow(slow(nodes, known.sequences, known.assigned, is_once=is_once))
    yield from find_held_futures(nodes, known.dropped)
    yield from find_graphs(function, nodes, known.models)
    yield from _collections(function, nodes)
    yield from _dealt(nodes)
    yield from _reads_all(nodes)
    yield from _swallowing(nodes)
    yield from _hooks(function, nodes)
    yield from _two_writes(nodes) if known.may_hold_back else ()
    yield from _unreleased(known.permits, nodes)
    yield from _unbounded(nodes)
    yield from _managed(nodes, known.managers)
    yield from _starts(nodes)
    yield from _pool_blocks(nodes)
    yield from _passed_over(nodes)
    yield from _kills(module, function)
    yield from _truncates(nodes, known.assigned)
    yield from _empty_on_ranks(module, nodes)
    yield from _unflushed(module, nodes)
    yield from find_buffered_reads(function, nodes, known.buffered)
    yield from find_emptying(function, known.takers)
    yield from find_default_sigpipe(nodes, known.assigned)
    yield from find_pitfalls(function, nodes, known.has_wrappers)
    yield from known.patterns.find(function, nodes)
    yield from find_own_answers(nodes)
    yield from find_group_kills(module.tree, nodes)
    yield from find_text_order(module.tree, nodes)
    yield from find_renewed_deadlines(module.tree, function, nodes)
    yield from (("unfreezes", about, node) for of, about, node in known.unfrozen if of is function)
    yield from find_set_order(nodes, known.sets)
    yield from find_clocks(function, nodes, known.clocks)
    if known.plateaus:
        yield from find_own_values(nodes, known.plateaus, known.functions)
    yield from find_registered(function, nodes, known.registries)
    if function is module.tree:
        yield from find_bounded(module.tree)
    if name != "__init__":
        yield from find_stored(function, nodes, known.dicts)
    if name not in ("", "__init__"):
        yield from find_kept(nodes, known.emptied)
        yield from find_kept_to_end(nodes, known.at_end)


def _found_of_arrays(
    module: ParsedFile, function: ast.AST, known: _Names, nodes: Sequence[ast.AST]
) -> Iterator[Found]:
    """The marked statements about arrays and tensors."""
    name = function.name if isinstance(function, FUNCTIONS) else "<module>"
    yield from find_views(nodes, known.returned, known.plain)
    yield from _unwrapped(nodes, known.unwrapping, known.has_wrappers)
    yield from _fresh_losses(module, nodes)
    yield from _slow(elements(nodes, known.tensors.get(name, ()), known.tensors.get("", ())))
    yield from find_looped_collectives(nodes, known.reducers)
    yield from find_outputs(function)
    yield from find_sums(function)
    if id(function) in known.forwards:
        yield from find_running(function)


def _decorations(function: ast.AST) -> Iterator[Found]:
    """`@torch.no_grad()` and the like above a function."""
    for each in function.decorator_list if isinstance(function, FUNCTIONS) else ():
        called = each.func if isinstance(each, ast.Call) else each
        if last_name(each) in NO_GRAD or last_name(called) in NO_GRAD:
            yield "no-grad", "", each


def _cached(function: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and text of each decorator of a function that is a cache without a bound."""
    for each in function.decorator_list if isinstance(function, FUNCTIONS) else ():
        if is_unbounded_cache(each) and has_many_entries(function):
            yield each.lineno, clean(f"@{expression_text(each)}", QUOTE_LIMIT)


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


def _calls_marked(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = last_name(node.func)
        is_zero = bool(node.args) and getattr(node.args[-1], "value", None) == 0
        if name in NO_GRAD:
            yield "no-grad", "", node
        elif name == "no_sync":
            yield "no-sync", "", node
        elif name == "std" and isinstance(node.func, ast.Attribute) and _divides_by_less(node):
            yield "std", "", node
        elif name == "backward" and isinstance(node.func, ast.Attribute):
            yield "backward", "", node
        elif is_cycle(node):
            yield "cycle", expression_text(node.args[0]), node
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
        elif name in _RUNS_IN_THREAD and len(node.args) > _RUNS_IN_THREAD[name]:
            yield "runs-in-thread", expression_text(node.args[_RUNS_IN_THREAD[name]]), node
        elif _COLLECTIVES.fullmatch(name) and isinstance(node.func, ast.Attribute):
            if name not in _OTHERS_TOO or last_name(node.func.value) in ("dist", "distributed"):
                yield "collective", name, node
        elif name in _OF_CHUNKS and _is_chunk_of_one(node, name):
            yield "one-by-one", name, node
        elif name in ("put", "put_nowait") and isinstance(node.func, ast.Attribute) and node.args:
            flags = node.args[1:2]  # `put(key, value)` is of a cache
            is_flag = all(isinstance(getattr(each, "value", None), bool) for each in flags)
            if is_flag and may_be_queue(node.func.value):
                yield "put", expression_text(node.func.value), node
        elif queue := next(taken_by(node), ""):
            yield "takes", queue, node


_RUNS_IN_THREAD: Final[Mapping[str, int]] = {"run_in_executor": 1, "to_thread": 0}
"""Methods by which a coroutine has a thread run a function, and which argument that is."""
_QUEUES: Final = frozenset(("Queue", "SimpleQueue", "LifoQueue", "PriorityQueue"))


def _passed_over(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`if skipped < first_step: continue` at the beginning of a loop, before any use of its item.

    A condition on the item itself chooses items. One on a counter drops what was fetched.
    """
    for loop in nodes:
        if not isinstance(loop, ast.For):
            continue
        target = loop.target
        made = last_name(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""
        if made == "range":
            continue  # of numbers, which cost nothing
        is_numbered = made == "enumerate"
        if is_numbered and isinstance(target, ast.Tuple) and len(target.elts) > 1:
            target = ast.Tuple(target.elts[1:])
        items = names_in(target)
        first = loop.body[0]
        if not isinstance(first, ast.If) or first.orelse or not items or items & names_in(first):
            continue
        is_skip = isinstance(first.body[-1], ast.Continue)
        test = first.test  # one that is equal, or is among some, is chosen
        is_order = isinstance(test, ast.Compare) and isinstance(test.ops[0], ORDERS)
        if is_skip and (is_order or isinstance(test, ast.Name | ast.Attribute)):
            yield "passed-over", f"{loop.lineno}-{last_line(first)}", first


_POOLS: Final = frozenset(("Pool", "ProcessPoolExecutor"))


def _starts(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`worker.start()` of what the function makes as a Process, and a Pool, in a loop."""
    made = {
        expression_text(target)
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if last_name(node.value.func) == "Process"
    }
    seen: set[int] = set()
    for loop in nodes:
        for node in own_nodes(loop) if isinstance(loop, LOOPS) else ():
            if not isinstance(node, ast.Call) or id(node) in seen:
                continue
            seen.add(id(node))
            if last_name(node.func) in _POOLS:
                yield "starts", "pool", node
            elif last_name(node.func) == "start" and receiver_of(node) in made and not node.args:
                yield "starts", "process", node


def _pool_blocks(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`with mp.Pool(4) as pool:`; the end of the block calls terminate()."""
    for node in nodes:
        if isinstance(node, ast.With) and any(
            isinstance(each.context_expr, ast.Call)
            and last_name(each.context_expr.func) in ("Pool", "ThreadPool")
            for each in node.items
        ):
            yield "pool-block", f"{first_line(node)}-{last_line(node)}", node


def _unbounded(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.results = queue.Queue()`: queues of threads or processes that take any number."""
    for node in nodes:
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(call, ast.Call):
            continue
        is_queue = last_name(call.func) in _QUEUES and receiver_of(call) != "asyncio"
        if is_queue and not call.args and not call.keywords and len(node.targets) == 1:
            yield "unbounded", expression_text(node.targets[0]), node


def _managers(tree: ast.Module) -> Iterator[str]:
    """What a file binds to `Manager()` or `SyncManager()`."""
    for node in every_node(tree):
        for target, value in bindings(node):
            if isinstance(value, ast.Call) and last_name(value.func) in _MANAGERS:
                yield expression_text(target)


_MANAGERS: Final = frozenset(("Manager", "SyncManager"))


def _managed(nodes: Sequence[ast.AST], managers: Container[str]) -> Iterator[Found]:
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


_SELDOM: Final = 100_000
"""Objects that are made between two collections; 700 to 2000 as CPython has it."""


def _collections(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """What switches the garbage collector off and on, and functions whose closure has a cycle.

    `gc.disable()` under a condition may not have run, and is left out.
    """
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if any(receiver_of(call) == "gc" for call in calls):
        for node, parents in within([child for _, child in children(function)]):
            call = node.value if isinstance(node, ast.Expr) else None
            is_sure = not any(isinstance(p, BRANCHES) and not _is_main(p) for p in parents)
            if isinstance(call, ast.Call) and receiver_of(call) == "gc" and is_sure:
                first = getattr(call.args[0], "value", None) if call.args else None
                is_seldom = isinstance(first, int) and (first == 0 or first >= _SELDOM)
                if last_name(call.func) == "disable" or (
                    last_name(call.func) == "set_threshold" and is_seldom
                ):
                    yield "gc-off", "", node
                elif last_name(call.func) == "set_threshold":
                    yield "gc-on", "set_threshold", node
        for call in calls:
            if receiver_of(call) == "gc" and last_name(call.func) in ("enable", "collect"):
                yield "gc-on", last_name(call.func), call
    for node in nodes if isinstance(function, FUNCTIONS) else ():
        if isinstance(node, FUNCTIONS) and node.name in names_in(ast.Module(node.body, [])):
            yield "self-reference", node.name, node


def _divides_by_less(call: ast.Call) -> bool:
    """Whether `std()` divides by n - 1, as that of torch does if nothing else is said."""
    if isinstance(call.func, ast.Attribute) and last_name(call.func.value) in ("np", "numpy"):
        return False
    return not any(each.arg in ("unbiased", "correction", "ddof") for each in call.keywords)


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in names_in(node.test)


def _unwrapped(
    nodes: Sequence[ast.AST], unwrapping: frozenset[str], is_wrapping: bool
) -> Iterator[Found]:
    """`model.module` that is returned, kept, or called, but not to read or write its state.

    Args:
        nodes: The syntax of a function.
        unwrapping: Functions that return it: calls of them count as well.
        is_wrapping: See `has_wrappers`.
    """
    state = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in _OF_STATE
    }
    # `program.module()` of torch.export gives a module.
    state |= {id(node.func) for node in nodes if isinstance(node, ast.Call) and not node.args}
    for node in nodes:
        is_it = is_wrapped_module(node, is_wrapping) or (
            isinstance(node, ast.Call) and last_name(node.func) in unwrapping
        )
        if is_it and id(node) not in state:
            yield "unwrapped", expression_text(node), node


def _unwrapping(tree: ast.Module, is_wrapping: bool) -> Iterator[str]:
    """Functions that return `model.module`."""
    for function in every_node(tree):
        if isinstance(function, FUNCTIONS) and any(
            isinstance(node, ast.Return)
            and any(is_wrapped_module(each, is_wrapping) for each in ast.walk(node))
            for node in own_nodes(function)
        ):
            yield function.name


_OF_STATE: Final = frozenset(
    ("eval", "load_state_dict", "named_parameters", "parameters", "state_dict", "to", "train")
)
"""Methods of a module after which its forward pass is not what the line is for."""


def _reaps_any(call: ast.Call, name: str) -> bool:
    """`os.waitpid(-1, ...)`, `os.wait()`, `signal.signal(signal.SIGCHLD, signal.SIG_IGN)`."""
    receiver = receiver_of(call)
    if name == "waitpid" and call.args:
        return expression_text(call.args[0]) == "-1"
    if name in ("wait", "wait3"):
        return receiver == "os"
    if name == "signal" and len(call.args) == 2:
        return [last_name(each) for each in call.args] in (["SIGCHLD", "SIG_IGN"],)
    return False


_COLLECTIVES = re.compile(
    r"(?:monitored_)?barrier|all_?reduce\w*|all_?gather\w*|all_to_all\w*|"
    r"broadcast(?!_(?:arrays|in_dim|like|shapes|tensors|to)$)\w*"
    r"|gather(?:_object)?|reduce_scatter\w*|reduce|scatter(?:_object_list)?|wait_for_everyone"
)
_OTHERS_TOO: Final = frozenset(("broadcast", "gather", "reduce", "scatter"))
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


def _kills(module: ParsedFile, function: ast.AST) -> Iterator[Found]:
    """`os.kill(pid, signal.SIGKILL)`, `process.kill()` and the like, with the condition for it."""
    for node, parents in within([child for _, child in children(function)]):
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call):
            continue
        name, last = last_name(call.func), call.args[-1] if call.args else None
        is_it = last is not None and (
            last_name(last) == "SIGKILL" or getattr(last, "value", None) == Signals.SIGKILL
        )
        is_itself = bool(call.args) and "getpid" in expression_text(call.args[0])
        is_sent = is_it and name in ("kill", "killpg", "send_signal") and not is_itself
        is_own = name == "kill" and not call.args and isinstance(call.func, ast.Attribute)
        if is_sent or is_own:
            calls = list(_around_calls(module, function))[::-1]
            above = [*(each for call in calls for each in call.around), *parents]
            under = next((each for each in reversed(above) if isinstance(each, ast.If)), None)
            header = quoted(module, under) if under is not None else None
            lines = ", ".join(str(each.lineno) for each in above if isinstance(each, LOOPS))
            names = ", ".join((*(call.function for call in calls), getattr(function, "name", "")))
            about = f"{lines}; {names}; "
            if header is not None:  # shortened here, so that its line is not cut off
                line = f" in line {header.line}"
                left = max(_LEAST_SHOWN, QUOTE_LIMIT - len(about) - len(line))
                about += f"{clean(header.text, left)}{line}"
            yield "kills", about, node


_LEAST_SHOWN: Final = 24
"""Characters of a condition."""


class _OnlyCall(NamedTuple):
    """The one call of a function in its file."""

    function: str
    """That makes the call."""
    around: Sequence[ast.AST]
    """The statements around it, outermost first."""


_CALLS: Final = 4
"""Calls that are followed, one above the other."""


def _around_calls(module: ParsedFile, function: ast.AST) -> Iterator[_OnlyCall]:
    """The only call of a function, that of its caller, and so on."""
    functions = functions_in(module.tree)
    for _ in range(_CALLS):
        if not isinstance(function, FUNCTIONS):
            return
        found = [
            (other, parents)
            for other in functions
            for node, parents in within([child for _, child in children(other)])
            if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call)
            if last_name(call.func) == function.name
        ]
        if len(found) != 1:
            return
        function, around = found[0]
        yield _OnlyCall(getattr(function, "name", ""), around)


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """What a file gives to its variables and attributes, the last of each."""
    return {
        expression_text(target): node.value
        for node in every_node(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name | ast.Attribute)
    }


def _truncates(nodes: Sequence[ast.AST], assigned: Mapping[str, ast.expr]) -> Iterator[Found]:
    """`open_memmap(path, mode="w+")`, `open(path, "wb")` and the like, of a file with a known name.

    The path is written out where it is opened, or where its variable is set.
    """
    for node in nodes:
        path = _emptied_path(node) if isinstance(node, ast.Call) else None
        name = _file_name(path, assigned) if path is not None else ""
        if name:
            around = [each for each in nodes if _is_inside(node, each)]
            under = max((first_line(n) for n in around if isinstance(n, ast.If)), default=0)
            loop = max((first_line(n) for n in around if isinstance(n, LOOPS)), default=0)
            yield "truncates", f"{name}, {under}, {loop}", node


def _flushes_input(tree: ast.Module) -> bool:
    """Whether a file flushes what it writes to the input of other programs, or has no buffer."""
    for call in (node for node in every_node(tree) if isinstance(node, ast.Call)):
        if last_name(call.func) in ("flush", "communicate", "drain", "reconfigure"):
            return True
        for each in call.keywords:
            value = getattr(each.value, "value", None)
            if each.arg in ("flush", "line_buffering", "write_through") and value is not False:
                return True
            if each.arg == "bufsize" and expression_text(each.value) != "-1":
                return True
    return False


def _unflushed(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """What is written to the input of another program, in a file that flushes none of it."""
    closed = {
        receiver_of(each)
        for each in nodes
        if isinstance(each, ast.Call) and last_name(each.func) == "close"
    }
    found = [each for each in _writes_to_input(nodes) if each[1] not in closed]
    if found and not _flushes_input(module.tree):
        yield from found


def _writes_to_input(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`process.stdin.write(line)`, or `print(line, file=process.stdin)`."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name, to = last_name(node.func), receiver_of(node)
        if name == "print":
            to = next((expression_text(e.value) for e in node.keywords if e.arg == "file"), "")
        if name in ("print", "write", "writelines") and to.endswith(".stdin") and to != "sys.stdin":
            yield "unflushed", to, node


def _is_inside(node: ast.AST, outer: ast.AST) -> bool:
    """Whether a piece of syntax is in the body of a loop or an `if`."""
    body = outer.body if isinstance(outer, (ast.If, *LOOPS)) else []
    return bool(body) and first_line(body[0]) <= first_line(node) <= last_line(body[-1])


_MODE_AT: Final = {"open": 1, "open_memmap": 1, "memmap": 2}
"""The position of the mode among the arguments."""


def _emptied_path(call: ast.Call) -> ast.expr | None:
    """The path of a file of data that a call empties before it writes; `None` for other calls."""
    name = last_name(call.func)
    if name == "save" and receiver_of(call) in ("np", "numpy") and call.args:
        return call.args[0]
    if name not in _MODE_AT or not call.args:
        return None
    given = call.args[_MODE_AT[name]] if len(call.args) > _MODE_AT[name] else None
    mode = next((each.value for each in call.keywords if each.arg == "mode"), given)
    text = mode.value if isinstance(mode, ast.Constant) else None
    is_emptied = isinstance(text, str) and text.startswith("w") and text not in ("w", "wt")
    return call.args[0] if is_emptied else None


def _file_name(path: ast.expr, assigned: Mapping[str, ast.expr]) -> str:
    """The last part of a path as far as it is written out: `part_` of `f"{folder}/part_{rank}"`."""
    path = assigned.get(expression_text(path), path)
    texts = [n.value for n in ast.walk(path) if isinstance(n, ast.Constant)]
    names = [each.rpartition("/")[2] for each in texts if isinstance(each, str)]
    return max((each for each in names if len(each) >= LEAST_NAME), key=len, default="")


LEAST_NAME: Final = 5
"""Letters of a file's name that tell it from others, `.npy` is in many."""


def _under(
    module: ParsedFile, node: ast.AST, nodes: Sequence[ast.AST]
) -> tuple[ast.If | None, str]:
    """The innermost `if` around a statement of a function, and its header and line in words."""
    ifs = [each for each in nodes if isinstance(each, ast.If) and _is_inside(node, each)]
    if not ifs:
        return None, ""
    header = quoted(module, one := max(ifs, key=first_line))
    return one, f"{header.text} in line {header.line}"


def _fresh_losses(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`return torch.zeros(1, requires_grad=True)` under a condition: a loss of no parameter."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            is_loss = any("loss" in expression_text(target) for target in node.targets)
        else:
            is_loss = isinstance(node, ast.Return)
        if is_loss and any(map(_is_leaf, ast.walk(node))):
            _, about = _under(module, node, nodes)
            if about:
                yield "fresh-loss", about, node


def _is_leaf(node: ast.AST) -> bool:
    """Whether it is a new tensor that asks for a gradient of itself."""
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    made = node.func.value if isinstance(node.func, ast.Attribute) else None
    if name == "requires_grad_":
        return isinstance(made, ast.Call) and last_name(made.func) in _MAKES
    asks = (each.value for each in node.keywords if each.arg == "requires_grad")
    return name in _MAKES and any(getattr(each, "value", None) is True for each in asks)


_MAKES: Final = frozenset(("empty", "full", "ones", "tensor", "zeros", "zeros_like", "ones_like"))
_RANK = re.compile(
    r"(?<![a-z])rank(?![a-z])|\bis_(?:main|master|first|chief|(?:global_|local_)?zero)",
    re.IGNORECASE,
)
_CONTAINERS: Final = frozenset(("dict", "list", "set", "tuple", "OrderedDict", "defaultdict"))


def _empty_on_ranks(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`if rank != 0: return {}` in a function that returns something to other ranks."""
    returns = [each for each in nodes if isinstance(each, ast.Return) and each.value is not None]
    empty = [each for each in returns if each.value is not None and _is_empty(each.value)]
    for node in empty if len(empty) < len(returns) else ():
        under, about = _under(module, node, nodes)
        if under is not None and _RANK.search(expression_text(under.test)):
            yield "empty-on-ranks", about, node


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return last_name(value.func) in _CONTAINERS and not value.args and not value.keywords
    return isinstance(value, ast.Dict | ast.List | ast.Tuple) and not any(
        isinstance(each, ast.expr) for each in ast.iter_child_nodes(value)
    )


def _is_death_signal(call: ast.Call) -> bool:
    """`libc.prctl(PR_SET_PDEATHSIG, ...)`, which is 1 (prctl(2))."""
    first = call.args[0] if call.args else None
    return first is not None and (
        last_name(first).endswith("PDEATHSIG") or getattr(first, "value", None) == 1
    )


def _left_before_cancelled(nodes: Sequence[ast.AST], timer: ast.Call, name: str) -> str:
    """The lines of the `return` statements that leave a function with its timer set, as `39, 45`.

    They stand between the call that sets it and the first one that cancels it. Without one, the
    first call in between, whose exception leaves it set: `raise of 21`. Empty if nothing here
    cancels it, or if a `finally` does.
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
    leaves = [n.lineno for n in nodes if isinstance(n, ast.Return)]
    left = ", ".join(str(line) for line in sorted(leaves) if timer.lineno < line < min(later))
    guarded = (
        n.lineno for n in nodes if isinstance(n, ast.Call) and timer.lineno < n.lineno < min(later)
    )
    return left or next((f"{RAISE_OF}{line}" for line in guarded), "")


def _dealt(nodes: Iterable[ast.AST]) -> Iterator[Found]:
    """`urls[info.id::info.num_workers]`, and `islice(urls, worker, None, num_workers)`."""
    for node in nodes:
        steps: list[ast.expr | None] = []
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            steps = [node.slice.step]
        elif isinstance(node, ast.Call) and last_name(node.func) == "islice":
            steps = [*node.args[3:]]
        if any(each is not None and "worker" in last_name(each) for each in steps):
            yield "dealt", "", node


class _Permits(NamedTuple):
    """How a file acquires and releases something, by the last part of its name."""

    acquires: Mapping[str, frozenset[str]]
    """Each name with what may be called for it: `acquire` itself, and functions that only do it."""
    releases: Mapping[str, frozenset[str]]


def _permits_of(tree: ast.Module) -> _Permits:
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
                if name not in does[other] and method in function.name.lower():
                    names.add(function.name)
    return _Permits(
        *(
            {name: frozenset(each) for name, each in found[m].items()}
            for m in ("acquire", "release")
        )
    )


def _calls(call: ast.Call, method: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == method


def _is_for(call: ast.Call, method: str, name: str, wrappers: Container[str]) -> bool:
    """Whether a call does that to what has a name, itself or by a function of the file for it."""
    if _calls(call, method) and (of := receiver_of(call)) != "self":
        return container_of(of) == name  # another one may have a method of that name
    return last_name(call.func) in wrappers


def _unreleased(permits: _Permits, nodes: Sequence[ast.AST]) -> Iterator[Found]:
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
            for skip in _continues_before(nodes, ends[0]):
                yield "unreleased", f"{name}, 0", skip
                break


def _continues_before(nodes: Sequence[ast.AST], later: ast.Call) -> Iterator[ast.If]:
    """The conditions with a `continue` in the innermost loop around a call that come before it."""
    loops = [each for each in nodes if isinstance(each, LOOPS) and _is_inside(later, each)]
    for node in (each for each in nodes if isinstance(each, ast.If) and loops):
        is_before = isinstance(node.body[-1], ast.Continue) and last_line(node) < later.lineno
        if is_before and _is_inside(node, max(loops, key=first_line)):
            yield node


def _two_writes(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.end_headers()` and `self.wfile.write(body)`, or two calls of `sock.sendall`."""
    calls = sorted((each for each in nodes if isinstance(each, ast.Call)), key=first_line)
    before: ast.Call | None = None
    for call in calls:
        name = last_name(call.func)
        is_body = name == "write" and container_of(receiver_of(call)) == "wfile"
        if (
            before is not None
            and not are_apart(nodes, before, call)
            and (
                (is_body and last_name(before.func) == "end_headers")
                or (name in _SENDS and receiver_of(before) == receiver_of(call))
            )
        ):
            yield "two-writes", "", call
            return
        if name == "end_headers" or (name in _SENDS and _is_socket(receiver_of(call))):
            before = call


_SENDS: Final = frozenset(("send", "sendall"))


def _is_socket(name: str) -> bool:
    """Whether a name is that of a socket, as far as it shows."""
    return re.search(r"sock|peer", name, re.IGNORECASE) is not None


_ONCE: Final = re.compile(
    r"__init__|main|<module>|.*(?:build|init|setup|install|attach|make|create).*"
)


def _hooks(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`layer.register_forward_hook(f)`, but in a function that prepares something once.

    Nor in one that removes hooks.
    """
    if isinstance(function, FUNCTIONS) and not _ONCE.fullmatch(function.name.lower()):
        if any(isinstance(each, ast.Call) and last_name(each.func) == "remove" for each in nodes):
            return
        for node in nodes:
            if isinstance(node, ast.Call) and HOOKS.fullmatch(last_name(node.func)):
                yield "registers-hook", "", node
                return


def _swallowing(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`except Exception:` in a loop, where its block neither raises nor leaves."""
    loops = [each for each in nodes if isinstance(each, LOOPS)]
    for tried in (each for each in nodes if isinstance(each, ast.Try)):
        if not any(_is_inside(tried, loop) for loop in loops):
            continue
        for handler in tried.handlers:
            caught = last_name(handler.type) if handler.type is not None else "Exception"
            inner = [each for part in handler.body for each in ast.walk(part)]
            leaves = any(isinstance(each, ast.Raise | ast.Return | ast.Break) for each in inner)
            if caught in ("BaseException", "Exception", "RuntimeError") and not leaves:
                lines = f"{first_line(tried.body[0])}-{last_line(tried.body[-1])}"
                yield "swallows", lines, handler


def _reads_all(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`if i % self.step == self.offset: yield x` in a loop, and `yield from block[first:last]`."""
    is_generator = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in nodes)
    for loop in nodes if is_generator else ():
        if not isinstance(loop, ast.For):
            continue
        inside = [each for each in nodes if _is_inside(each, loop)]
        filled = {
            receiver_of(each)
            for each in inside
            if isinstance(each, ast.Call) and last_name(each.func) == "append"
        }
        for node in inside:
            value = node.value if isinstance(node, ast.Yield | ast.YieldFrom) else None
            is_part = (
                isinstance(value, ast.Subscript)
                and isinstance(value.slice, ast.Slice)
                and value.slice.lower is not None
                and expression_text(value.value) in filled
            )
            if is_part or (isinstance(node, ast.If) and _takes_every_nth(node, inside)):
                yield "reads-all", expression_text(_gone_through(loop.iter)), node


def _takes_every_nth(node: ast.If, inside: Sequence[ast.AST]) -> bool:
    """`if i % n == k:` around a `yield`, or `if i % n != k: continue` before one."""
    test = node.test
    if not isinstance(test, ast.Compare) or isinstance(test.comparators[0], ast.Constant):
        return False
    if not isinstance(test.left, ast.BinOp) or not isinstance(test.left.op, ast.Mod):
        return False
    gives = [each for each in inside if isinstance(each, ast.Yield | ast.YieldFrom)]
    if isinstance(node.body[-1], ast.Continue):
        return bool(gives)
    return any(_is_inside(each, node) for each in gives)


def _gone_through(iterated: ast.expr) -> ast.expr:
    """The object of `enumerate(rows)`."""
    while isinstance(iterated, ast.Call) and last_name(iterated.func) in _WRAPS and iterated.args:
        iterated = iterated.args[0]
    return iterated


_WRAPS: Final = frozenset(("enumerate", "iter", "tqdm", "zip"))


def _walks(nodes: Iterable[ast.AST], sequences: Mapping[str, str]) -> Iterator[Found]:
    """`self.buffer[j]` of a deque, `items.pop(0)` and `x in items` of a list.

    Such a statement goes through all that the container holds, or half of it.
    """
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            is_end = isinstance(node.slice, ast.Constant | ast.UnaryOp | ast.Slice)
            if not is_end and sequences.get(last_name(node.value)) == "deque":
                yield "walks", f"deque {expression_text(node.value)}, {expression_text(node)}", node
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            container = node.comparators[0]
            if last_name(container) in sequences:
                name, text = expression_text(container), expression_text(node)
                yield "walks", f"{sequences[last_name(container)]} {name}, {text}", node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            container, name = node.func.value, node.func.attr
            kind = sequences.get(last_name(container))
            is_first = getattr(node.args[0], "value", None) == 0 and name in ("pop", "insert")
            if (kind == "list" and is_first) or (kind and name in ("index", "remove", "count")):
                yield "walks", f"{kind} {expression_text(container)}, {expression_text(node)}", node


def _slow(expressions: Iterable[Slow]) -> Iterator[Found]:
    for found in expressions:
        yield "slow", f"{found.kind}: {expression_text(found.node)}", found.node


def _backoffs(
    function: ast.AST, nodes: Sequence[ast.AST], set_back: frozenset[str]
) -> Iterator[Found]:
    """Statements that make the next sleep longer where none in the file sets it back.

    An attribute is set back by any other assignment outside of `__init__`. A name is set back by
    one in a loop, and by leaving the function.

    Args:
        function: A function, or the file.
        nodes: Its own syntax.
        set_back: The attributes that the functions of the file set, see `names_set`.
    """
    slept = {
        expression_text(part)
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) == "sleep" and node.args
        for part in _slept(node.args[0])
    } - {""}
    if not slept:
        return
    in_loops = [part for each in nodes if isinstance(each, LOOPS) for part in own_nodes(each)]
    leaves = any(isinstance(each, ast.Return | ast.Break) for each in in_loops)
    set_here = {name for each in in_loops for name in names_set(each)}
    for node in nodes:
        for name in _grown(node):
            is_attribute = "." in name
            is_module = not isinstance(function, FUNCTIONS) and is_attribute
            if name not in slept or is_module or (leaves and not is_attribute):
                continue
            if name not in (set_back if is_attribute else set_here):
                yield "backoff", name, node


def _gives_up(module: ParsedFile, function: ast.AST) -> Iterator[Found]:
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
                is_new = isinstance(each, ast.Raise) and not each.cause and _is_new(each.exc)
                if is_new and handler is not None:
                    yield "gives-up", _handler_words(module, handler), each


def _is_new(raised: ast.expr | None) -> bool:
    """Whether an exception is made where it is raised: not `raise errors[0]` of those caught."""
    named = raised.func if isinstance(raised, ast.Call) else raised
    return named is not None and last_name(named)[:1].isupper()


def _swallows(loop: ast.AST) -> Iterator[ast.ExceptHandler]:
    """The `except` clauses of a loop after which it goes on."""
    for node, _ in within([child for block, child in children(loop) if block == "body"]):
        if isinstance(node, ast.ExceptHandler) and not isinstance(
            node.body[-1], ast.Raise | ast.Return | ast.Break
        ):
            yield node


def _handler_words(module: ParsedFile, handler: ast.ExceptHandler) -> str:
    """``` `except OSError as error:` in line 51, logged in line 52```."""
    header = quoted(module, handler)
    logged = next(
        (
            f", logged in line {each.lineno}"
            for each in handler.body
            if isinstance(each, ast.Expr)
            and isinstance(each.value, ast.Call)
            and last_name(each.value.func) in LOGS
        ),
        "",
    )
    return f"`{clean(header.text, QUOTE_LIMIT // 2)}` in line {header.line}{logged}"


def _releases(nodes: Sequence[ast.AST]) -> Iterator[Found]:
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


def _draws(nodes: Sequence[ast.AST]) -> Iterator[Found]:
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
    name, receiver = last_name(call.func).lower(), receiver_of(call)
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
        and expression_text(node.func.value) == "random"
    )


def _leaves_out(node: ast.If) -> bool:
    return isinstance(node.body[-1], ast.Continue)


def _adds_item(node: ast.If) -> bool:
    calls = (each.value for each in node.body if isinstance(each, ast.Expr))
    return any(isinstance(each, ast.Call) and last_name(each.func) in ADDS for each in calls)


def _slept(time: ast.expr) -> Sequence[ast.expr]:
    """The variables that a sleep lasts as long as: `x`, `min(x, limit)`, and not `x - now`."""
    if isinstance(time, ast.Call) and last_name(time.func) in ("min", "max"):
        return time.args
    return [time]


def _grown(node: ast.AST) -> Iterator[str]:
    """The variable that a statement makes larger by its own value: `x = min(2 * x, limit)`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Add | ast.LShift):
        yield expression_text(node.target)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        name = expression_text(node.targets[0])
        if name in variables_of(node.value) and any(
            isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult | ast.Add | ast.Pow)
            for n in ast.walk(node.value)
        ):
            yield name
