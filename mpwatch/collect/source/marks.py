"""Statements that can be the reason for what is observed, wherever they are in a file.

Caches without a bound, delays that only grow, timers, limits, calls that end other processes,
and the others that `MarkKind` lists.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from mpwatch.collect.source.ambiguous_patterns import FileNames, PatternUses
from mpwatch.collect.source.growth.kept import (
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
    find_reused_picklers,
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
    picklers_of,
    plain_containers,
    registries_of,
    returned_slices_of,
    sequences_of,
    tensors_of,
    variables_of,
)
from mpwatch.collect.source.growth.kept_references import (
    HOOKS,
    find_groups,
    find_loop_runs,
    find_warnings,
)
from mpwatch.collect.source.handing_over import (
    Handing,
    Permits,
    find_handing,
    find_managed,
    find_releases,
    find_sends_to_each,
    find_unbounded,
    find_uncounted,
    find_unreleased,
    handing_of,
    managers_of,
    permits_of,
)
from mpwatch.collect.source.lines.control_flow import STARTS_TASK
from mpwatch.collect.source.lines.forked_exits import find_forked_exits, find_removed_folders
from mpwatch.collect.source.pipes_and_signals import (
    BufferedFiles,
    buffered_files,
    find_buffered_reads,
    find_connections,
    find_default_sigpipe,
    find_kills,
    find_prompts,
    find_signals,
    find_silence,
    find_terminations,
    find_two_writes,
    find_unflushed,
    is_death_signal,
    left_before_cancelled,
    reaps_any,
)
from mpwatch.collect.source.pitfalls import (
    find_affinity,
    find_group_kills,
    find_looped_collectives,
    find_pitfalls,
    find_pool_callbacks,
    find_renewed_deadlines,
    find_text_order,
    find_unfrozen,
    has_wrappers,
    is_wrapped_module,
    reducers_of,
)
from mpwatch.collect.source.profilers import find_recordings
from mpwatch.collect.source.rank_differences import (
    clocks_of,
    find_batch_rounds,
    find_changed_by_hand,
    find_clocks,
    find_cut_graphs,
    find_empty_on_ranks,
    find_hashes,
    find_loaded_alone,
    find_own_rendezvous,
    find_own_values,
    find_passed_over_modules,
    find_restored_starts,
    find_resumed_alone,
    find_set_by_clock,
    find_set_order,
    find_shared_state,
    plateaus_of,
    sets_of,
)
from mpwatch.collect.source.repetition import (
    Takers,
    find_emptying,
    find_ends_when_empty,
    find_own_answers,
    may_be_queue,
    taken_by,
    takers_of,
)
from mpwatch.collect.source.saved_parts import (
    Part,
    find_saved_parts,
    find_saves,
    returned_parts_of,
)
from mpwatch.collect.source.slow_statements import (
    cached_variants,
    elements,
    find_awaited_tasks,
    find_past_caches,
    find_several_tasks,
    find_walks,
    found_of,
    slow,
    tensors_in,
)
from mpwatch.collect.source.syntax import (
    BRANCHES,
    FUNCTIONS,
    LOGS,
    LOOPS,
    ORDERS,
    QUOTE_LIMIT,
    SHOWN,
    Found,
    ParsedFile,
    adds_entry,
    argument_of,
    children,
    condition_around,
    every_node,
    expression_text,
    first_line,
    functions_by_name,
    functions_in,
    imported_roots,
    is_inside,
    last_line,
    last_name,
    names_in,
    of_file,
    own_nodes,
    quoted,
    receiver_of,
    within,
)
from mpwatch.collect.source.unchecked_waits import find_unchecked_waits
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Mark, Statement

_SUBMITS: Final = STARTS_TASK | {"remote"}
"""`remote` is Ray's, and that of what imitates it."""


def marks(
    file: str,
    module: ParsedFile,
    elsewhere: Mapping[str, ReturnedSlice] = MappingProxyType({}),
    names: FileNames | None = None,
    parts: Mapping[str, Part] = MappingProxyType({}),
) -> Iterator[Mark]:
    """Statements that can be the reason for what is observed, in no order.

    Args:
        file: The path.
        module: The file.
        elsewhere: Functions of other files that return a slice.
        names: What its names are given, also in the files that it imports.
        parts: Functions of other files that return a part of a tensor.
    """
    known = _names_of(module, elsewhere, names or FileNames(module.tree, file), parts)
    for function in (module.tree, *functions_in(module.tree)):
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
    permits: Permits
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
    uncounted: Sequence[tuple[ast.AST, Found]]
    by_hand: Sequence[tuple[ast.AST, str, ast.AST]]
    recordings: Sequence[tuple[ast.AST, str, ast.AST]]
    plateaus: frozenset[str]
    functions: Mapping[str, ast.AST]
    assigned: Mapping[str, ast.expr]
    models: Tensors
    uses_arrays: bool
    unwrapping: frozenset[str]
    has_wrappers: bool
    tensors: Mapping[str, frozenset[str]]
    parts: Mapping[str, Part]
    """The functions that return a part of a tensor."""
    returned: Mapping[str, ReturnedSlice]
    forwards: set[int]
    """The ids of the forward passes."""
    reducers: Mapping[str, str]
    managers: frozenset[str]
    """Variables and attributes that are a Manager of multiprocessing."""
    cached: Mapping[str, str]
    patterns: PatternUses


def _names_of(
    module: ParsedFile,
    elsewhere: Mapping[str, ReturnedSlice],
    names: FileNames,
    parts: Mapping[str, Part],
) -> _Names:
    tree = module.tree
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
    tensors = of_file(tree, tensors_in) if uses_arrays else {}
    functions = functions_by_name(tree)
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
        permits=permits_of(tree),
        handing=handing_of(tree),
        buffered=buffered_files(tree),
        takers=takers_of(tree),
        may_hold_back=not any(map(_sends_at_once, every_node(tree))),
        sequences=sequences_of(tree),
        plain=frozenset(plain_containers(tree)) if uses_arrays else frozenset(),
        sets=sets_of(tree),
        clocks=clocks_of(tree),
        unfrozen=list(find_unfrozen(tree)),
        uncounted=list(find_uncounted(module)),
        by_hand=list(find_changed_by_hand(tree, functions)) if uses_arrays else [],
        recordings=list(find_recordings(tree)) if uses_arrays else [],
        plateaus=plateaus_of(tree),
        functions=functions,
        assigned=_assigned(tree),
        models=tensors_of(tree),
        uses_arrays=uses_arrays,
        unwrapping=frozenset(_unwrapping(tree, is_wrapping)),
        has_wrappers=is_wrapping,
        tensors=tensors,
        parts={**parts, **returned_parts_of(tree, tensors)} if uses_arrays else {},
        returned={**elsewhere, **returned_slices_of(tree)} if uses_arrays else {},
        forwards={id(each) for each in forward_passes(tree)} if uses_arrays else set(),
        reducers=reducers_of(tree) if "torch" in imported_roots(tree) else {},
        managers=frozenset(managers_of(tree)),
        cached=cached_variants(defined),
        patterns=PatternUses(names),
    )


def _sends_at_once(node: ast.AST) -> bool:
    """Whether it switches Nagle's algorithm off, or collects small writes, as makefile("wb")."""
    if isinstance(node, ast.Call) and last_name(node.func) == "makefile":
        mode = node.args[0] if node.args else None
        mode = next((each.value for each in node.keywords if each.arg == "mode"), mode)
        return mode is not None and "w" in str(getattr(mode, "value", "w"))
    name = last_name(node) if isinstance(node, ast.expr) else ""
    return name in ("TCP_NODELAY", "disable_nagle_algorithm", "wbufsize")


def _found_in(module: ParsedFile, function: ast.AST, known: _Names) -> Iterator[Found]:
    """The marked statements of one function, or of a file outside of its functions."""
    nodes = own_nodes(function)
    name = function.name if isinstance(function, FUNCTIONS) else ""
    yield from _calls_marked(nodes)
    yield from find_awaited_tasks(function, nodes)
    yield from find_several_tasks(nodes)
    yield from find_handing(function, nodes, known.handing)
    yield from find_past_caches(function, nodes, known.cached)
    if known.uses_arrays:
        yield from _found_of_arrays(module, function, known, nodes)
    yield from _found_of_processes(module, function, known, nodes)
    yield from find_memo_fills(nodes, known.bounded)
    yield from _backoffs(function, nodes, known.set_back)
    yield from _gives_up(module, function)
    yield from _draws(nodes)
    yield from find_releases(nodes)
    yield from find_walks(nodes, known.sequences)
    is_once = name in ("", "__init__", "main")
    yield from found_of(slow(nodes, known.sequences, known.assigned, is_once=is_once))
    yield from find_held_futures(nodes, known.dropped)
    if name != "__init__":
        yield from find_reused_picklers(nodes, of_file(module.tree, picklers_of))
    yield from find_graphs(function, nodes, known.models)
    yield from _collections(function, nodes)
    yield from _dealt(nodes)
    yield from _reads_all(nodes)
    yield from _swallowing(nodes)
    yield from _retrying(nodes)
    yield from _hooks(function, nodes)
    yield from find_unreleased(known.permits, nodes)
    yield from find_unbounded(nodes)
    yield from find_managed(nodes, known.managers)
    yield from _passed_over(nodes)
    yield from _truncates(nodes, known.assigned)
    yield from find_cut_graphs(module, function, nodes)
    yield from _found_of_ranks(module, function, known, nodes)
    yield from find_pitfalls(function, nodes, known.has_wrappers)
    yield from known.patterns.find(function, nodes)
    yield from find_text_order(module.tree, nodes)
    yield from find_renewed_deadlines(module.tree, function, nodes)
    yield from (found for of, found in known.uncounted if of is function)
    yield from (("unfreezes", about, node) for of, about, node in known.unfrozen if of is function)
    yield from find_shared_state(nodes)
    yield from find_registered(function, nodes, known.registries)
    yield from find_groups(module.tree, nodes)
    yield from find_warnings(module.tree, function, nodes)
    if function is module.tree:
        yield from find_bounded(module.tree)
    if name != "__init__":
        yield from find_stored(function, nodes, known.dicts)
    if name not in ("", "__init__"):
        yield from find_kept(nodes, known.emptied)
        yield from find_kept_to_end(nodes, known.at_end)


def _found_of_ranks(
    module: ParsedFile, function: ast.AST, known: _Names, nodes: Sequence[ast.AST]
) -> Iterator[Found]:
    """The statements of one function that do not do the same on each rank."""
    yield from find_empty_on_ranks(module, nodes)
    yield from find_passed_over_modules(module, nodes)
    yield from find_own_rendezvous(nodes, known.functions)
    yield from find_set_order(nodes, known.sets)
    yield from find_restored_starts(module.tree, function, nodes, known.functions)
    yield from find_resumed_alone(function, nodes, known.functions)
    yield from find_loaded_alone(module, nodes)
    yield from find_hashes(function, nodes, known.functions)
    yield from find_clocks(function, nodes, known.clocks)
    yield from find_set_by_clock(module.tree, nodes, known.clocks)
    if known.plateaus:
        yield from find_own_values(nodes, known.plateaus, known.functions)


def _found_of_processes(
    module: ParsedFile, function: ast.AST, known: _Names, nodes: Sequence[ast.AST]
) -> Iterator[Found]:
    """The marked statements about processes, their pools, queues, pipes, signals and loops."""
    yield from _thread_pools(nodes)
    yield from find_loop_runs(nodes)
    yield from find_sends_to_each(nodes)
    yield from find_saves(function, nodes)
    yield from find_two_writes(nodes) if known.may_hold_back else ()
    yield from find_emptying(function, known.takers)
    yield from find_own_answers(nodes)
    yield from find_unchecked_waits(module.tree, function, nodes)
    yield from find_ends_when_empty(nodes)
    yield from _starts(nodes)
    yield from _pool_blocks(nodes)
    yield from find_pool_callbacks(module.tree, nodes)
    yield from find_forked_exits(function, nodes)
    yield from find_removed_folders(module.tree, nodes)
    yield from find_kills(module, function)
    yield from find_signals(nodes)
    yield from find_terminations(nodes)
    yield from find_connections(nodes)
    yield from find_silence(module.tree, function, nodes)
    yield from find_unflushed(module, nodes)
    yield from find_prompts(module, function)
    yield from find_buffered_reads(function, nodes, known.buffered)
    yield from find_default_sigpipe(nodes, known.assigned)
    yield from find_group_kills(module.tree, nodes)
    yield from find_affinity(nodes, known.assigned)


def _found_of_arrays(
    module: ParsedFile, function: ast.AST, known: _Names, nodes: Sequence[ast.AST]
) -> Iterator[Found]:
    """The marked statements about arrays and tensors."""
    name = function.name if isinstance(function, FUNCTIONS) else "<module>"
    yield from find_views(nodes, known.returned, known.plain)
    yield from _unwrapped(nodes, known.unwrapping, known.has_wrappers)
    yield from _fresh_losses(module, nodes)
    yield from _optional_keys(module, nodes)
    yield from found_of(elements(nodes, known.tensors.get(name, ()), known.tensors.get("", ())))
    yield from find_saved_parts(function, nodes, known.tensors, known.parts)
    yield from find_looped_collectives(nodes, known.reducers)
    yield from find_batch_rounds(module, function, nodes, known.functions)
    for of, about, node in known.by_hand:
        if of is function:
            yield "changed-by-hand", about, node
    for of, about, node in known.recordings:
        if of is function:
            yield "records-all", about, node
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
            yield "alarm", left_before_cancelled(nodes, node, name), node
        elif reaps_any(node, name):
            yield "reap", "", node
        elif name == "set_pdeathsig" or (name == "prctl" and is_death_signal(node)):
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


def _thread_pools(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.pool = ThreadPoolExecutor(max_workers=8)`, and the same in a `with` statement."""
    for node in nodes:
        named: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            named = [(each, node.value) for each in node.targets]
        elif isinstance(node, ast.With):
            items = node.items
            named = [(e.optional_vars, e.context_expr) for e in items if e.optional_vars]
        for target, value in named:
            if isinstance(value, ast.Call) and last_name(value.func) == "ThreadPoolExecutor":
                workers = getattr(argument_of(value, "max_workers", 0), "value", None)
                prefix = getattr(argument_of(value, "thread_name_prefix", 1), "value", None)
                shown = workers if isinstance(workers, int) else ""
                by_name = prefix if isinstance(prefix, str) else ""
                yield "makes-executor", f"{expression_text(target)}, {shown}, {by_name}", node


def _pool_blocks(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`with mp.Pool(4) as pool:`; the end of the block calls terminate()."""
    for node in nodes:
        if isinstance(node, ast.With) and any(
            isinstance(each.context_expr, ast.Call)
            and last_name(each.context_expr.func) in ("Pool", "ThreadPool")
            for each in node.items
        ):
            yield "pool-block", f"{first_line(node)}-{last_line(node)}", node
            yield from _left_results(nodes, node)


_LAZY: Final = frozenset(("apply_async", "imap", "imap_unordered", "map_async", "starmap_async"))


def _left_results(nodes: Sequence[ast.AST], block: ast.With) -> Iterator[Found]:
    """`return pool.imap(f, items)` in the block of a Pool, and results that are used after it."""
    pools = {expression_text(e.optional_vars) for e in block.items if e.optional_vars is not None}
    inside = [each for part in block.body for each in ast.walk(part)]
    calls = [each for each in inside if isinstance(each, ast.Call) and receiver_of(each) in pools]
    if any(last_name(each.func) == "join" for each in calls):
        return
    lazy = {id(each): last_name(each.func) for each in calls if last_name(each.func) in _LAZY}
    returned = {id(e.value): e for e in inside if isinstance(e, ast.Return) and e.value is not None}
    used = [each for each in nodes if isinstance(each, ast.Name)]
    for node in inside:
        if isinstance(node, ast.Return) and id(node.value) in lazy:
            yield "pool-left", f"{lazy[id(node.value)]}, {first_line(block)}", node
        if not isinstance(node, ast.Assign) or id(node.value) not in lazy:
            continue
        names = {each.id for each in node.targets if isinstance(each, ast.Name)}
        uses = [e for e in used if e.id in names and isinstance(e.ctx, ast.Load)]
        after = [e for e in uses if id(e) in returned or first_line(e) > last_line(block)]
        if after and len(after) == len(uses):
            yield "pool-left", f"{lazy[id(node.value)]}, {first_line(block)}", node


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
            around = [each for each in nodes if is_inside(node, each)]
            under = max((first_line(n) for n in around if isinstance(n, ast.If)), default=0)
            loop = max((first_line(n) for n in around if isinstance(n, LOOPS)), default=0)
            yield "truncates", f"{name}, {under}, {loop}", node


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


def _fresh_losses(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`return torch.zeros(1, requires_grad=True)` under a condition: a loss of no parameter."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            is_loss = any("loss" in expression_text(target) for target in node.targets)
        else:
            is_loss = isinstance(node, ast.Return)
        if is_loss and any(map(_is_leaf, ast.walk(node))):
            _, about = condition_around(module, node, nodes)
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


def _optional_keys(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`losses["box"] = ...` under a condition on data, in a dictionary that the function returns.

    Not of a key that is stored without it as well.
    """
    returned = {
        name
        for node in nodes
        if isinstance(node, ast.Return) and node.value is not None
        for name in names_in(node.value)
    }
    stored: defaultdict[tuple[str, str], list[tuple[ast.If | None, str, ast.AST]]] = defaultdict(
        list
    )
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            continue
        if isinstance(target.slice, ast.Constant) and target.value.id in returned:
            key = target.value.id, repr(target.slice.value)
            stored[key].append((*condition_around(module, node, nodes), node))
    plain = {name for (name, _), found in stored.items() for around, *_ in found if around is None}
    for (name, _), found in stored.items():
        around, about, node = found[0]
        if len(found) == 1 and around is not None and name in plain and _asks_data(around.test):
            yield "optional-key", about, node


def _asks_data(test: ast.expr) -> bool:
    """Whether a condition asks how much of something there is, as far as words show."""
    calls = {last_name(each.func) for each in ast.walk(test) if isinstance(each, ast.Call)}
    if calls & {"all", "any", "count_nonzero", "len", "max", "nonzero", "numel", "sum"}:
        return True
    return isinstance(test, ast.Compare) and any(
        isinstance(each, ast.Constant) and isinstance(each.value, int | float)
        for each in test.comparators
    )


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
        if not any(is_inside(tried, loop) for loop in loops):
            continue
        for handler in tried.handlers:
            caught = last_name(handler.type) if handler.type is not None else "Exception"
            inner = [each for part in handler.body for each in ast.walk(part)]
            leaves = any(isinstance(each, ast.Raise | ast.Return | ast.Break) for each in inner)
            if caught in ("BaseException", "Exception", "RuntimeError") and not leaves:
                lines = f"{first_line(tried.body[0])}-{last_line(tried.body[-1])}"
                yield "swallows", lines, handler


def _retrying(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`except RuntimeError:` in a loop that repeats a block until it ends without an exception."""
    loops = [each for each in nodes if isinstance(each, LOOPS)]
    for tried in (each for each in nodes if isinstance(each, ast.Try)):
        last = (tried.orelse or tried.body)[-1]
        if isinstance(last, ast.Break | ast.Return) and any(is_inside(tried, e) for e in loops):
            for handler in tried.handlers:
                if not isinstance(handler.body[-1], ast.Raise | ast.Return | ast.Break):
                    lines = f"{first_line(tried.body[0])}-{last_line(tried.body[-1])}"
                    yield "retries", lines, handler


def _reads_all(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`if i % self.step == self.offset: yield x` in a loop, and `yield from block[first:last]`."""
    gives = [each for each in nodes if isinstance(each, ast.Yield | ast.YieldFrom)]
    if not gives:
        return
    appends = [e for e in nodes if isinstance(e, ast.Call) and last_name(e.func) == "append"]
    asked = [
        each
        for each in nodes
        if isinstance(each, ast.Yield | ast.YieldFrom)
        or (isinstance(each, ast.If) and _asks_for_nth(each.test))
    ]
    for loop in (each for each in nodes if isinstance(each, ast.For)):
        filled = {receiver_of(each) for each in appends if is_inside(each, loop)}
        inside = [each for each in gives if is_inside(each, loop)]
        for node in (each for each in asked if is_inside(each, loop)):
            value = node.value if isinstance(node, ast.Yield | ast.YieldFrom) else None
            is_part = (
                isinstance(value, ast.Subscript)
                and isinstance(value.slice, ast.Slice)
                and value.slice.lower is not None
                and expression_text(value.value) in filled
            )
            if is_part or (isinstance(node, ast.If) and _gives_every_nth(node, inside)):
                yield "reads-all", expression_text(_gone_through(loop.iter)), node


def _asks_for_nth(test: ast.expr) -> bool:
    """`i % n == k`, with any comparison, and not with a number."""
    if not isinstance(test, ast.Compare) or isinstance(test.comparators[0], ast.Constant):
        return False
    return isinstance(test.left, ast.BinOp) and isinstance(test.left.op, ast.Mod)


def _gives_every_nth(node: ast.If, gives: Sequence[ast.AST]) -> bool:
    """`if i % n == k:` around a `yield`, or `if i % n != k: continue` before one."""
    if isinstance(node.body[-1], ast.Continue):
        return bool(gives)
    return any(is_inside(each, node) for each in gives)


def _gone_through(iterated: ast.expr) -> ast.expr:
    """The object of `enumerate(rows)`."""
    while isinstance(iterated, ast.Call) and last_name(iterated.func) in _WRAPS and iterated.args:
        iterated = iterated.args[0]
    return iterated


_WRAPS: Final = frozenset(("enumerate", "iter", "tqdm", "zip"))


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
    for _ in range(2):  # `pause = min(base * 2**tries, limit)`, and `time.sleep(pause * jitter)`
        slept |= {
            expression_text(part)
            for node in nodes
            if isinstance(node, ast.Assign) and expression_text(node.targets[0]) in slept
            for part in _slept(node.value)
        } - {""}
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
    return any(isinstance(each, ast.Call) and adds_entry(each) for each in calls)


def _slept(time: ast.expr) -> Sequence[ast.expr]:
    """The variables with which a sleep gets longer: `x`, `min(x, limit)`, `2**x`, not `x - now`."""
    if isinstance(time, ast.Call) and last_name(time.func) in ("min", "max"):
        return [part for each in time.args for part in _slept(each)]
    if isinstance(time, ast.BinOp) and isinstance(time.op, ast.Mult | ast.Pow | ast.LShift):
        return [part for each in (time.left, time.right) for part in _slept(each)]
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
