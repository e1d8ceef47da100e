"""Where the values come from that decide at a line: names are followed to what gives them a value.

Backward through the files of the program: assignments in the function, attributes set anywhere in
the class, parameters to the arguments of the calls, what functions return, and what loops go
through. Where a constant is set, the condition around that counts. Nothing is run and no type is
known, so that this says from what a value may come, not what it is.
"""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeAlias

from mpwatch.collect.source.call_graph import (
    Class,
    Function,
    Program,
    TooMuchToFollow,
    assignments,
    expressions_of,
)
from mpwatch.collect.source.lines.leaves import (
    DISTRIBUTIONS,
    ON_ONE_RANK,
    OVER_ORDER,
    draws_of_torch,
    is_data,
    is_rank,
    kind_of_call,
    kind_of_name,
    kind_of_subscript,
    names_rank,
)
from mpwatch.collect.source.lines.limits import limits_given
from mpwatch.collect.source.lines.never_run import NeverRun
from mpwatch.collect.source.lines.run_elsewhere import RunElsewhere
from mpwatch.collect.source.rank_differences import WITHOUT_ORDER, is_set, sets_of
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LEAVES,
    LOOPS,
    adds_to,
    argument_of,
    before,
    bindings,
    expression_text,
    first_line,
    last_name,
    of_file,
    quoted,
    receiver_of,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Origin, OriginKind, OriginStep

STEPS: Final = 8
"""Statements between a condition and what its value comes from, without those that only pass it
on."""
PASSED_ON: Final = 8
"""Statements of such a chain that only pass the value on, and calls that it leads through."""
QUOTED: Final = 5
"""Statements of a chain that are kept: the first, and the last ones."""
NODES: Final = 160
"""Expressions that are looked at for one condition."""
NODES_OF_JOB: Final = 12_000
"""The same for all conditions of a job: at 130 us each that is 1.6 s of cpu, on a thread."""
KINDS: Final = 4
"""Origins kept of one condition."""
ABOUT: Final = 80
_ATOMS: Final = 48
"""Names and calls of one expression."""
_SETS: Final = 6
"""Statements that give a name a value."""
_CALLS: Final = 4
"""Calls of a function, and functions that a call may run."""
_RETURNS: Final = 4
_CALLERS: Final = 2
"""Calls, one above the other, around which a condition on the rank is looked for."""
_PASSED: Final = frozenset(("src", "dst", "group_src", "group_dst", "tag", "peer", "root"))
"""Arguments of a call of torch.distributed that have to be the same, or to match, on all ranks."""
_ROOTED: Final[Mapping[str, int]] = {
    "broadcast": 1,
    "broadcast_object_list": 1,
    "recv": 1,
    "reduce": 1,
    "send": 1,
}
"""Calls of it, with the place of the rank that they name."""
_STARTS: Final = frozenset(
    (
        *("Process", "Thread", "apply", "apply_async", "partial", "run_in_executor", "spawn"),
        *("start_processes", "submit", "to_thread"),
    )
)
"""Calls that run a function which they are given."""
_PLACES: Final = frozenset(("cpu", "cuda", "to"))
"""Methods of which the argument says where a tensor is, and not what it is."""
_DEVICES: Final = frozenset(("device", "device_ids", "dtype", "output_device"))
_SEEDED: Final = frozenset(("Generator", "Random", "RandomState", "default_rng"))
_SEEDS: Final = frozenset(("manual_seed", "seed", "seed_everything", "set_seed"))
_SEEDS_ALL: Final = frozenset(("seed_everything", "set_seed"))
"""Of these, functions that seed several modules."""
_MODULES: Final = frozenset(("np", "numpy", "random", "torch"))
_SEEDS_READ: Final = 8
_APART: Final = frozenset(("clock", "random", "rank"))
"""What makes a seed another one in each process."""
_OF_GET: Final = ("block", "timeout")
_EVEN: Final = frozenset(("DistributedSampler",))
"""Gives each rank as many elements as the others."""

_HEADERS: Final = (ast.If, ast.While)
"""Statements that may give a name a value before they test it, by `:=`."""

How: TypeAlias = Literal["set", "added", "iterated", "shared"]


class _At(NamedTuple):
    """A statement, and where it is."""

    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]


class _Set(NamedTuple):
    """A statement that gives a name a value, or changes what it refers to."""

    at: _At
    how: How
    values: tuple[ast.expr, ...]
    place: int | None = None
    """Of several variables that are given parts of one value, which of them it is."""


class _Entered(NamedTuple):
    """A call through which a function was followed."""

    called: Function
    call: ast.Call
    at: _At


class _Seed(NamedTuple):
    """A call that seeds random numbers."""

    call: ast.Call
    at: _At


class _Draw(NamedTuple):
    """Whether a random number may be another one on each rank."""

    is_apart: bool
    seeded: _At | None = None
    """The statement by which each rank seeds it otherwise; `None` for none."""


class _Node(NamedTuple):
    """An expression that is still to be followed."""

    value: ast.AST
    at: _At
    steps: tuple[_At, ...] = ()
    is_only: bool = True
    entered: tuple[_Entered, ...] = ()
    is_rounds: bool = False
    """Whether it is asked how many elements it has, and not what they are."""
    is_tested: bool = False
    """Whether a condition tests it by itself: if it is a container, whether it is empty."""
    place: int | None = None
    """Which part of it counts, where it turns out to be a tuple."""
    is_ordered: bool = True
    """Whether the order of its elements matters."""

    def then(self, at: _At, value: ast.AST, *, is_only: bool = True) -> _Node:
        """What a statement gives it."""
        steps = self.steps if self.steps and self.steps[-1] == at else (*self.steps, at)
        return self._replace(value=value, at=at, steps=steps, is_only=self.is_only and is_only)

    def part(self, value: ast.AST, *, is_rounds: bool | None = None) -> _Node:
        """A part of the same expression."""
        rounds = self.is_rounds if is_rounds is None else is_rounds
        return self._replace(value=value, is_rounds=rounds, is_tested=False, place=None)


class _Leaf(NamedTuple):
    kind: OriginKind
    about: str
    steps: tuple[_At, ...]
    is_only: bool
    is_by_name: bool = False
    """Whether nothing but a name tells it."""
    seeded: _At | None = None
    """Of a random number what seeds it otherwise on each rank."""


def origins_in(program: Program) -> OriginSearch | None:
    """The search for the origins in a program, `None` where its calls lead to too many places."""
    try:
        return OriginSearch(program)
    except TooMuchToFollow:
        return None


class OriginSearch:
    """Finds the origins of conditions in one program.

    Raises:
        TooMuchToFollow: What runs elsewhere in it cannot be found within the limit.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._never_run = NeverRun(program, self._set_at_first)
        self.elsewhere = RunElsewhere(program)
        self._inner: defaultdict[int, list[Function]] = defaultdict(list)
        """The functions in each function, or in each file, that may set its variables."""
        files = {e.file: e for e in program.functions if isinstance(e.node, ast.Module)}
        for function in program.functions:
            around = function.outer or files.get(function.file)
            if around is not None and around is not function:
                self._inner[id(around)].append(function)
        self._variables: dict[int, Mapping[str, Sequence[_Set]]] = {}
        self._attributes: defaultdict[str, list[tuple[ast.expr, _Set]]] = defaultdict(list)
        self._functions = {id(each.node): each for each in program.functions}
        self._left = NODES_OF_JOB
        self._seeds: defaultdict[str, list[_Seed]] = defaultdict(list)
        """What seeds the random numbers of each module, or of a generator; empty for all modules.
        """
        self._apart: dict[int, _Draw] = {}
        for function in program.functions:
            for statement, parents in function.statements:
                at = _At(function, statement, parents)
                for target, each in _sets(at):
                    if isinstance(target, ast.Attribute):
                        self._attributes[target.attr].append((target.value, each))
                for call in expressions_of(statement):
                    if isinstance(call, ast.Call) and last_name(call.func) in _SEEDS:
                        self._seeds[_seeded_by(call)].append(_Seed(call, at))

    def has(self, function: ast.AST) -> bool:
        """Whether a function belongs to the program."""
        return id(function) in self._functions

    def of(self, function: ast.AST, lines: Iterable[int]) -> Iterator[Origin]:
        """The origins at statements of a function, or a file, that begin at some lines."""
        found = self._functions.get(id(function))
        wanted = set(lines)
        for statement, parents in found.statements if found is not None else ():
            if found is not None and first_line(statement) in wanted:
                yield from self._of(_At(found, statement, parents))
                yield from limits_given(self._program, found, statement, parents)

    def _of(self, at: _At) -> Iterator[Origin]:
        for names, start in self._asked(at):
            for leaf in self._search(start):
                module = at.function.module
                yield Origin(
                    at.function.file,
                    quoted(module, at.statement),
                    leaf.kind,
                    leaf.about,
                    tuple(map(_step, _telling(leaf.steps))),
                    leaf.is_only,
                    names,
                    None if leaf.seeded is None else _step(leaf.seeded),
                )

    def _asked(self, at: _At) -> Iterator[tuple[tuple[str, ...], list[_Node | _Leaf]]]:
        """The values that decide at a statement, each as where to begin."""
        statement = at.statement
        if isinstance(statement, ast.If | ast.While):
            yield (), list(_tested(_Node(statement.test, at)))
        elif isinstance(statement, ast.For | ast.AsyncFor):
            start = _Node(statement.iter, at, is_rounds=True)
            order = [_leaf("set-order", statement.iter, start)]
            yield (), [*(order if self._is_set(statement.iter, at) else []), start]
        elif isinstance(statement, ast.ExceptHandler):
            yield (), list(self._raised(at, statement))
        elif not isinstance(statement, (*FUNCTIONS, ast.ClassDef, ast.Try)):
            for call in expressions_of(statement):
                for name, value in _passed(call) if isinstance(call, ast.Call) else ():
                    yield (name,), [_Node(value, at)]

    def _search(self, start: Sequence[_Node | _Leaf]) -> list[_Leaf]:
        """What some expressions come from, one of each kind, the nearest first."""
        waiting: deque[_Node] = deque()
        found: dict[OriginKind, _Leaf] = {}
        seen: set[tuple[int, int, bool, bool]] = set()
        new: Iterable[_Node | _Leaf] = start
        count = 0
        last: _Node | None = None
        unknown: _Leaf | None = None
        while True:
            had = len(waiting)
            for each in new:
                if isinstance(each, _Node):
                    waiting.append(each)
                elif each.kind not in found or (found[each.kind].is_by_name > each.is_by_name):
                    found[each.kind] = each
            is_end = last is not None and bool(last.steps) and len(waiting) == had
            if is_end and last is not None and unknown is None and not found:
                is_named = isinstance(last.value, ast.Name | ast.Attribute | ast.Call)
                unknown = _leaf("", last.value, last) if is_named else None
            if not waiting or count >= NODES or self._left <= 0:
                break
            node = last = waiting.popleft()
            count, self._left, new = count + 1, self._left - 1, ()
            entered = id(node.entered[-1].call) if node.entered else 0
            key = id(node.value), entered, node.is_rounds, node.is_tested
            if key not in seen and _is_near(node.steps):
                seen.add(key)
                new = islice(self._next(node), _ATOMS)
        if not found and unknown is not None:
            return [unknown]
        # What another thread sets may have a cause of its own, which says more.
        return sorted(found.values(), key=lambda each: each.kind == "thread")[:KINDS]

    # --- expressions --------------------------------------------------------------------------

    def _next(self, node: _Node) -> Iterator[_Node | _Leaf]:
        value = node.value
        if isinstance(value, ast.Call):
            yield from self._of_call(node, value)
        elif isinstance(value, ast.Tuple) and node.place is not None:
            if node.place < len(value.elts):
                yield node.part(value.elts[node.place])
        elif isinstance(value, ast.Name):
            yield from self._of_name(node, value)
        elif isinstance(value, ast.Attribute):
            yield from self._of_attribute(node, value)
        elif isinstance(value, ast.Subscript):
            yield from self._of_subscript(node, value)
        elif isinstance(value, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            for each in value.generators:
                keeps_order = node.is_ordered and not isinstance(value, ast.SetComp)
                if keeps_order and self._is_set(each.iter, node.at):
                    yield _leaf("set-order", each.iter, node)
                yield node.part(each.iter)
                for test in each.ifs:
                    if names_rank(test):
                        yield _leaf("data", test, node)
                    else:
                        yield node.part(test, is_rounds=False)
        elif isinstance(value, ast.IfExp):
            yield from (node.part(each) for each in (value.test, value.body, value.orelse))
        elif not isinstance(value, ast.Constant | ast.Lambda):
            yield from (
                node.part(each)
                for each in ast.iter_child_nodes(value)
                if isinstance(each, ast.expr)
            )

    def _of_subscript(self, node: _Node, value: ast.Subscript) -> Iterator[_Node | _Leaf]:
        kind = kind_of_subscript(value)
        if kind:
            yield _leaf(kind, value, node)
        else:
            yield node.part(value.value)
            yield node.part(value.slice, is_rounds=False)

    def _of_call(self, node: _Node, call: ast.Call) -> Iterator[_Node | _Leaf]:
        name = last_name(call.func)
        kind = kind_of_call(call)
        own = [] if kind == "clock" else self._called(call, node.at.function)
        if own:
            yield from self._of_own(node, call, own)
            return
        if kind == "random" or self._is_sample(call, node.at):
            drawn = self._drawn(call, node.at)
            if drawn.is_apart:
                yield _leaf("random", call, node)._replace(seeded=drawn.seeded)
            return
        if not kind and _takes_item(call) and not self._is_variable(call, node.at):
            kind = "message"
        if kind:
            if kind == "flag":
                yield from self._set_by_handler(node, call)
            yield _leaf(kind, call, node)
            return
        if node.is_rounds and name in _EVEN:
            yield _leaf("shared", call, node)
            return
        given = [*call.args, *(e.value for e in call.keywords if e.arg not in _DEVICES)]
        if name == "len":
            unordered = node._replace(is_ordered=False)
            yield from (unordered.part(each, is_rounds=True) for each in given)
            return
        if name == "range" and len(call.args) == 3 and names_rank(call.args[0]):
            yield _leaf("data", call, node)
            return
        if name in WITHOUT_ORDER:
            node = node._replace(is_ordered=False)
        keeps_order = name in OVER_ORDER and bool(given) and node.is_ordered
        if keeps_order and self._is_set(given[0], node.at):
            yield _leaf("set-order", call, node)
        if isinstance(call.func, ast.Attribute):
            yield node.part(call.func.value)
        if name in _PLACES or name in _SEEDED:
            return
        for each in given:
            is_name = isinstance(each, ast.Name | ast.Attribute)
            if node.is_rounds and is_name and is_rank(last_name(each)):
                yield _leaf("data", call, node)
                continue
            yield node.part(each, is_rounds=node.is_rounds and name != "range")

    def _set_by_handler(self, node: _Node, call: ast.Call) -> Iterator[_Leaf]:
        """That a handler of a signal sets the event that a call asks."""
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        found = self.elsewhere.events.get(last_name(of)) if of is not None else None
        if found is not None:
            site, _ = found
            yield from self._run_elsewhere(
                node.then(_At(site.caller, site.statement, site.parents), call)
            )

    def _run_elsewhere(self, node: _Node) -> Iterator[_Leaf]:
        """That the statement which a value comes from is run by a signal or another thread."""
        start = self.elsewhere.start_of(node.at.function, node.at.statement)
        if start is not None:
            there = _At(start.function, start.statement, start.parents)
            after = node.then(there, node.value)
            yield _leaf(start.kind, start.statement, after, start.about or "its function")

    def _is_sample(self, call: ast.Call, at: _At) -> bool:
        """Whether it draws from a distribution of torch: `Categorical(logits=x).sample()`."""
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        if of is None or last_name(call.func) not in ("rsample", "sample"):
            return False
        made = [of, *(v for each in self._sets_of(of, at) for v in each.values)]
        return any(isinstance(e, ast.Call) and last_name(e.func) in DISTRIBUTIONS for e in made)

    def _drawn(self, call: ast.Call, at: _At) -> _Draw:
        """Whether a random number may be another one on each rank, by what seeds its generator."""
        given = next((each.value for each in call.keywords if each.arg == "generator"), None)
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        own = self._of_generator(given if given is not None else of, at)
        if own is not None:
            return own
        if given is not None and not isinstance(given, ast.Constant):
            return self._by_leaves(self._search([_Node(given, at)]), at)
        is_of_torch = draws_of_torch(call) or self._is_sample(call, at)
        module = "torch" if is_of_torch else _module_of(call)
        found = [*self._seeds.get("", ()), *self._seeds.get(module or "random", ())]
        if not found:
            return _Draw(True)
        draws = [(each, self._by_seed(each)) for each in found[:_SEEDS_READ]]
        if any(e.at.function is at.function and not draw.is_apart for e, draw in draws):
            return _Draw(False)
        return next((draw for _, draw in draws if draw.is_apart), _Draw(False))

    def _of_generator(self, of: ast.expr | None, at: _At) -> _Draw | None:
        """The same of a generator that the program makes; `None` where it shows none."""
        if not isinstance(of, ast.Name | ast.Attribute):
            return None
        values = [value for each in self._sets_of(of, at) for value in each.values]
        made = [each for each in values if isinstance(each, ast.Call)]
        name = last_name(of)
        seeds = self._seeds.get(name, ()) if made or name not in _MODULES else ()
        if not made and not seeds:
            return None
        draws = [self._by_seed(each) for each in seeds[:_SEEDS_READ]]
        for each in made[:_SETS]:
            if not each.args and not draws:
                draws.append(_Draw(not self._called(each, at.function)))
            elif each.args:
                draws.append(self._by_leaves(self._search([_Node(a, at) for a in each.args]), at))
        return next((each for each in draws if each.is_apart), _Draw(False))

    def _by_seed(self, seed: _Seed) -> _Draw:
        """The same by one call that seeds. Without an argument it takes a seed of the system."""
        known = self._apart.get(id(seed.call))
        if known is None:
            self._apart[id(seed.call)] = _Draw(False)  # as long as the seed itself is followed
            start = [_Node(each, seed.at) for each in seed.call.args]
            known = self._by_leaves(self._search(start), seed.at)
            self._apart[id(seed.call)] = known
        return known

    def _by_leaves(self, leaves: Sequence[_Leaf], at: _At) -> _Draw:
        """The same by what a seed comes from."""
        apart = next((each for each in leaves if each.kind in _APART), None)
        if apart is None:
            return _Draw(False)
        steps = [each for each in apart.steps if not _starts(each.statement)]
        return _Draw(True, steps[-1] if steps else at)

    def _is_variable(self, call: ast.Call, at: _At) -> bool:
        """Whether a method is of a `ContextVar`, a `StringVar` or the like, as far as shows."""
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        made = [v for each in self._sets_of(of, at) for v in each.values] if of is not None else []
        return any(isinstance(e, ast.Call) and last_name(e.func).endswith("Var") for e in made)

    def _sets_of(self, value: ast.expr, at: _At) -> Sequence[_Set]:
        if isinstance(value, ast.Name):
            return self._bound(at.function).get(value.id, ())
        if isinstance(value, ast.Attribute):
            return [each for _, each in self._attributes.get(value.attr, ())]
        return ()

    def _called(self, call: ast.Call, function: Function) -> Sequence[Function]:
        found = self._program.called_by(call.func, function)
        return found if len(found) <= _CALLS else ()

    def _of_own(
        self, node: _Node, call: ast.Call, own: Sequence[Function]
    ) -> Iterator[_Node | _Leaf]:
        """What functions of the program return, or objects of its classes go through."""
        for called in own:
            is_only = len(own) == 1
            if called.name == "__init__":
                if called.owner is not None and node.is_rounds:
                    yield from self._of_object(node, called.owner)
                continue
            if _is_on_one_rank(called):
                at = _At(called, called.node, ())
                yield _leaf("rank", call, node.then(at, call), about=called.name)
                continue
            entered = (*node.entered, _Entered(called, call, node.at))
            if len(entered) <= PASSED_ON:
                yield from self._given_by(node._replace(entered=entered), called, is_only=is_only)

    def _of_object(self, node: _Node, of: Class) -> Iterator[_Node | _Leaf]:
        """How many elements an object of the program has."""
        for name in ("__iter__", "__len__"):
            owner = next((c for c in self._program.family(of) if name in c.methods), None)
            if owner is not None:
                yield from self._given_by(node, owner.methods[name])

    def _given_by(
        self, node: _Node, called: Function, *, is_only: bool = True
    ) -> Iterator[_Node | _Leaf]:
        """What a function returns or yields."""
        found = list(islice(_results(called), _RETURNS))
        for at, value, is_yield in found:
            only = is_only and len(found) == 1
            if is_yield and node.is_rounds:
                yield from self._rounds(node, at, is_only=only)
            elif value is None or isinstance(value, ast.Constant):
                yield from self._guards(node, at, is_only=only)
            else:
                yield node.then(at, value, is_only=only)

    def _rounds(self, node: _Node, at: _At, *, is_only: bool) -> Iterator[_Node | _Leaf]:
        """What decides how often a generator gives a value."""
        for each in reversed(at.parents):
            around = _At(at.function, each, at.parents[: at.parents.index(each)])
            if isinstance(each, ast.For | ast.AsyncFor):
                yield node.then(around, each.iter, is_only=is_only)
            elif isinstance(each, ast.If | ast.While):
                yield from _tested(node.then(around, each.test, is_only=is_only))

    # --- names --------------------------------------------------------------------------------

    def _of_name(self, node: _Node, name: ast.Name) -> Iterator[_Node | _Leaf]:
        function = node.at.function
        found: Sequence[_Set] = [
            *self._reaching(name.id, node.at),
            *self._set_inside(name.id, function),
        ]
        kind = kind_of_name(name)
        if kind and not found:  # else what it is given tells more
            yield _leaf(kind, name, node)
            return
        if not found:
            found = self._outside(name.id, function)
        yield from self._of_sets(node, found)
        if name.id in function.arguments and not any(each.how == "set" for each in found):
            yield from self._of_parameter(node, name.id)
        if not found and is_data(name.id):
            yield _leaf("data", name, node)._replace(is_by_name=True)

    def _set_inside(self, name: str, function: Function) -> Sequence[_Set]:
        """What functions in a function, or in a file, give a variable of it."""
        inner = self._inner.get(id(function), ())
        return [s for each in inner for s in self._sets_of_outer(name, each)][:_SETS]

    def _sets_of_outer(self, name: str, function: Function) -> Sequence[_Set]:
        """How a function sets, or changes, a variable of the file or of a function around it."""
        found = self._bound(function).get(name, ())
        is_changed = name not in function.arguments and all(e.how == "added" for e in found)
        return found if is_changed or name in function.not_own else ()

    def _outside(self, name: str, function: Function) -> Sequence[_Set]:
        """What a variable is given in a function around, in the file, or in the one imported."""
        outer = function.outer
        for _ in range(_CALLS):
            if outer is None:
                break
            found = [*self._bound(outer).get(name, ()), *self._set_inside(name, outer)]
            if found:
                return found[-_SETS:]
            outer = outer.outer
        if name in function.arguments or (
            name in function.assigned and name not in function.not_own
        ):
            return ()
        files = [function.file] if (function.file, name) in self._program.globals else []
        if not files and self._program.imported_from(function, name):
            files = self._program.files_with.get(name, [])
        if len(files) != 1:
            return ()
        at_start = [
            each
            for at in self._program.functions
            if at.file == files[0] and (isinstance(at.node, ast.Module) or name in at.not_own)
            for each in self._bound(at).get(name, ())
        ]
        elsewhere = self.elsewhere.of_file(files[0])
        changed = [s for at in elsewhere for s in self._sets_of_outer(name, at)]
        found = [*at_start, *(each for each in changed if each not in at_start)]
        # What only begins with a constant is set elsewhere.
        is_begin = [isinstance(e.at.function.node, ast.Module) and _is_constant(e) for e in found]
        later = [each for each, begins in zip(found, is_begin, strict=True) if not begins]
        return (later or found)[:_SETS]

    def _of_parameter(self, node: _Node, name: str) -> Iterator[_Node | _Leaf]:
        """What calls give to a parameter: the one through which the function was followed."""
        function = node.at.function
        place = function.arguments.index(name)
        if node.entered and node.entered[-1].called is function:
            last = node.entered[-1]
            passed = argument_of(last.call, name, place)
            if passed is not None:
                yield node.then(last.at, passed)._replace(entered=node.entered[:-1])
            return
        sites = [
            (each.call, _At(each.caller, each.statement, each.parents))
            for each in function.callers[: 2 * _CALLS]
        ]
        if function.name == "__init__" and function.owner is not None:
            made = function.owner.made[: 2 * _CALLS]
            sites = [(e.call, _At(e.caller, e.statement, e.parents)) for e in made]
        known = [
            (given, at)
            for call, at in dict.fromkeys(sites)
            if (given := _given(call, at, function, name, place)) is not None
        ][:_CALLS]
        for given, at in known:
            if isinstance(given, str):
                yield _leaf("rank", ast.Name(name), node.then(at, node.value), about=name)
            elif not isinstance(given, ast.Constant):
                yield node.then(at, given, is_only=len(known) == 1)

    def _of_attribute(self, node: _Node, value: ast.Attribute) -> Iterator[_Node | _Leaf]:
        kind = kind_of_name(value)
        if kind == "rank" and self._is_of_loop(value.value, node.at):
            kind = ""  # of one of several things, each with a rank
        if kind and not (kind == "argument" and last_name(value.value) in ("self", "cls")):
            yield _leaf(kind, value, node)
            return
        of = self._program.class_of(value.value, node.at.function)
        if of is None:
            having = self._program.having.get(value.attr, ())
            of = having[0] if len(having) == 1 else None
        asked = self._property(of, value.attr) if of is not None else None
        if asked is not None:
            yield from self._given_by(node, asked)
            return
        found = self._attribute_sets(value, of)
        yield from self._of_sets(node, found, is_attribute=True)
        if not found and last_name(value.value) not in ("self", "cls"):
            yield node.part(value.value)
        if not found and is_data(value.attr):
            yield _leaf("data", value, node)._replace(is_by_name=True)

    def _is_of_loop(self, value: ast.expr, at: _At) -> bool:
        """Whether a variable is that of a loop."""
        found = self._sets_of(value, at) if isinstance(value, ast.Name) else ()
        return any(each.how == "iterated" for each in found)

    def _property(self, of: Class, name: str) -> Function | None:
        for each in self._program.family(of):
            method = each.methods.get(name)
            if method is not None and isinstance(method.node, FUNCTIONS):
                names = {last_name(d) for d in method.node.decorator_list}
                return method if names & {"property", "cached_property"} else None
        return None

    def _attribute_sets(self, value: ast.Attribute, of: Class | None) -> Sequence[_Set]:
        """The statements that set an attribute of an object of this class, or of an unknown one."""
        family = [] if of is None else [*self._program.family(of), *self._program.with_derived(of)]
        found = []
        is_only_owner = len(self._program.having.get(value.attr, ())) == 1
        for target, each in self._attributes.get(value.attr, ()):
            owner = self._program.class_of(target, each.at.function)
            is_unknown = owner is None and (of is None or is_only_owner)
            if is_unknown or any(owner is c for c in family):
                found.append(each)
        # What only begins with a constant is set elsewhere.
        later = [e for e in found if e.at.function.name != "__init__" or not _is_constant(e)]
        return (later or found)[:_SETS]

    def _of_sets(
        self, node: _Node, found: Sequence[_Set], *, is_attribute: bool = False
    ) -> Iterator[_Node | _Leaf]:
        """What the statements give that set a name."""
        for each in found:
            is_only = len(found) == 1
            if (unshared := self._unshared(node, each)) is not None:
                yield unshared
                continue
            if each.how == "shared":
                yield from (node.then(each.at, value, is_only=is_only) for value in each.values)
                continue
            yield from self._run_elsewhere(node.then(each.at, node.value, is_only=is_only))
            yield from self._on_one_rank(node, each.at, is_attribute=is_attribute)
            if _is_constant(each) or _counts(each.at.statement):
                yield from self._guards(node, each.at, is_only=is_only)
            if _is_constant(each):
                continue
            for value in each.values:
                after = node.then(each.at, value, is_only=is_only)
                after = after._replace(place=each.place if each.place is not None else node.place)
                if each.how == "iterated" and node.is_ordered and self._is_set(value, each.at):
                    yield _leaf("set-order", value, after)
                is_element = each.how == "added"
                yield after._replace(is_rounds=False, is_tested=False) if is_element else after
            if each.how == "added" and (node.is_rounds or node.is_tested):
                yield from self._guards(node, each.at, is_only=False)

    def _unshared(self, node: _Node, found: _Set) -> _Leaf | None:
        """That a statement which would give all ranks the same value is never run, and why."""
        shares = found.how == "shared" or any(
            isinstance(each, ast.Call) and kind_of_call(each) == "shared" for each in found.values
        )
        if not shares:
            return None
        at, last = found.at, node.entered[-1] if node.entered else None
        entered = (last.called, last.call, last.at.function) if last is not None else None
        off = self._never_run.condition_of(at.function, (*at.parents, at.statement), entered)
        if off is None:
            return None
        number = at.parents.index(off.condition) if off.condition in at.parents else 0
        there = _At(at.function, off.condition, at.parents[:number])
        after = node.then(at, off.condition.test).then(there, off.condition.test)
        return _leaf("unshared", off.condition.test, after, off.parameter)

    def _set_at_first(self, value: ast.Attribute, function: Function) -> list[ast.expr] | None:
        """What the `__init__` of its object gives an attribute, if nothing else gives it one."""
        found = [each for _, each in self._attributes.get(value.attr, ())]
        is_first = all(
            each.how == "set"
            and each.at.function.name == "__init__"
            and each.at.function.owner is function.owner
            for each in found
        )
        return [v for each in found for v in each.values] if is_first else None

    def _guards(self, node: _Node, at: _At, *, is_only: bool) -> Iterator[_Node | _Leaf]:
        """The conditions under which a statement is reached, the nearest of each kind."""
        here = node.then(at, node.value)
        node_ids = {id(each) for each in node.at.parents} if node.at.function is at.function else ()
        for guard in islice(_around(at), 2):
            if id(guard.statement) in node_ids:
                continue
            if isinstance(guard.statement, ast.ExceptHandler):
                about = quoted(guard.function.module, guard.statement).text
                yield _leaf("exception", guard.statement, here.then(guard, at.statement), about)
            elif isinstance(guard.statement, ast.If | ast.While):
                yield from _tested(here.then(guard, guard.statement.test, is_only=is_only))
        if isinstance(at.statement, ast.AugAssign) and _counts(at.statement):
            text = expression_text(at.statement.target)
            if any(True for _ in _around(at)):
                yield _leaf("counter", at.statement, here, text)._replace(is_by_name=True)

    def _on_one_rank(self, node: _Node, at: _At, *, is_attribute: bool) -> Iterator[_Leaf]:
        """That only some ranks reach a statement: by a condition around, or around the calls."""
        for guard in _around(at):
            if isinstance(guard.statement, ast.If) and names_rank(guard.statement.test):
                test = guard.statement.test
                yield _leaf("rank", test, node.then(at, test).then(guard, test))
                return
        if not is_attribute:
            return
        if _is_on_one_rank(at.function):
            there = _At(at.function, at.function.node, ())
            about = at.function.name
            after = node.then(at, at.statement).then(there, there.statement)
            yield _leaf("rank", at.statement, after, about)
            return
        above = self._guard_of_calls(at.function, _CALLERS)
        if above is not None and isinstance(above.statement, ast.If):
            test = above.statement.test
            yield _leaf("rank", test, node.then(at, test).then(above, test))

    def _guard_of_calls(self, function: Function, depth: int) -> _At | None:
        """The condition on the rank under which each call of a function is, one of them."""
        found: _At | None = None
        for site in function.callers[:_CALLS]:
            guards = _around(_At(site.caller, site.statement, site.parents))
            by_rank = (
                g
                for g in guards
                if isinstance(g.statement, ast.If) and names_rank(g.statement.test)
            )
            guard = next(by_rank, None)
            if guard is None and depth > 1:
                guard = self._guard_of_calls(site.caller, depth - 1)
            if guard is None:
                return None
            found = found or guard
        return found if len(function.callers) <= _CALLS else None

    def _reaching(self, name: str, at: _At) -> Sequence[_Set]:
        """The statements of a function that may have given a variable its value at a statement."""
        found = self._bound(at.function).get(name, ())
        line = first_line(at.statement)
        loops = [each for each in at.parents if isinstance(each, LOOPS)]
        if isinstance(at.statement, ast.While):
            loops.append(at.statement)
        kept: list[_Set] = []
        for each in sorted(found, key=lambda e: -first_line(e.at.statement)):
            there = first_line(each.at.statement)
            is_own = each.at.statement is at.statement and isinstance(at.statement, _HEADERS)
            if there >= line and not is_own:
                continue
            kept.append(each)
            is_around = all(p in at.parents or p is at.statement for p in each.at.parents)
            if is_around and each.how in ("set", "iterated", "shared") and there < line:
                inner = each.how == "iterated" or not loops or loops[-1] in each.at.parents
                if inner:
                    return kept[:_SETS]
                break
        later = [
            each
            for each in found
            if first_line(each.at.statement) >= line
            and each not in kept
            and any(loop in each.at.parents for loop in loops)
        ]
        return (later + kept)[:_SETS]

    def _bound(self, function: Function) -> Mapping[str, Sequence[_Set]]:
        known = self._variables.get(id(function))
        if known is None:
            found: defaultdict[str, list[_Set]] = defaultdict(list)
            for statement, parents in function.statements:
                for target, each in _sets(_At(function, statement, parents)):
                    if isinstance(target, ast.Name):
                        found[target.id].append(each)
            known = self._variables[id(function)] = found
        return known

    def _is_set(self, value: ast.expr, at: _At) -> bool:
        return is_set(value, of_file(at.function.module.tree, sets_of))

    # --- exceptions ---------------------------------------------------------------------------

    def _raised(self, at: _At, handler: ast.ExceptHandler) -> Iterator[_Node | _Leaf]:
        """The `raise` statements of the program by which an `except` clause may be reached."""
        tried = next((e for e in reversed(at.parents) if isinstance(e, ast.Try)), None)
        if tried is None or handler not in tried.handlers:
            return
        names = {last_name(each) for each in _types(handler)}
        bases = {
            each.node.name
            for classes in self._program.classes.values()
            for each in classes
            if any(last_name(b) in names for b in each.node.bases)
        }
        start = _Node(handler, at)
        for raised in islice(self._raises(at.function, tried), 64):
            made = raised.statement.exc if isinstance(raised.statement, ast.Raise) else None
            made = made.func if isinstance(made, ast.Call) else made
            name = last_name(made) if made is not None else ""
            if name in names or name in bases or (name and names & {"", "Exception"}):
                after = start.then(raised, handler)._replace(is_only=False)
                yield _leaf("exception", handler, after, name)
                yield from self._guards(after, raised, is_only=False)
                return

    def _raises(self, function: Function, tried: ast.Try) -> Iterator[_At]:
        """The `raise` statements in a `try` block and in what it calls."""
        waiting: deque[tuple[Function, int]] = deque()
        for statement, parents in function.statements:
            is_raise = isinstance(statement, ast.Raise) and tried in parents
            if is_raise and any(each in tried.body for each in (*parents, statement)):
                yield _At(function, statement, parents)
        waiting += [
            (site.called, 0)
            for site in function.calls
            if any(each in tried.body for each in (*site.parents, site.statement))
        ]
        seen: set[int] = set()
        while waiting and len(seen) < 4 * _CALLS:
            called, depth = waiting.popleft()
            if id(called) in seen:
                continue
            seen.add(id(called))
            for statement, parents in called.statements:
                if isinstance(statement, ast.Raise):
                    yield _At(called, statement, parents)
            if depth < _CALLS:
                waiting += [(site.called, depth + 1) for site in called.calls[:32]]


def _step(at: _At) -> OriginStep:
    return OriginStep(
        at.function.file,
        clean(at.function.name, ABOUT),
        quoted(at.function.module, at.statement),
    )


def _leaf(kind: OriginKind, value: ast.AST, node: _Node, about: str = "") -> _Leaf:
    text = about or expression_text(value)
    return _Leaf(kind, clean(text, ABOUT), node.steps, node.is_only)


def _takes_item(call: ast.Call) -> bool:
    """`self.requests.get()`, whatever it is called: that of a mapping has a key."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "get"
    return is_method and not call.args and all(e.arg in _OF_GET for e in call.keywords)


def _module_of(call: ast.Call) -> str:
    """`torch` of `torch.manual_seed(1)`; empty for a function that is not called of a module."""
    module = receiver_of(call).partition(".")[0]
    return "np" if module == "numpy" else module


def _starts(statement: ast.AST) -> bool:
    """Whether it starts what runs with the number of its process."""
    return any(
        isinstance(each, ast.Call) and last_name(each.func) in _STARTS
        for each in expressions_of(statement)
    )


def _seeded_by(call: ast.Call) -> str:
    """The module, or the name of the generator, that a call seeds; empty for all modules."""
    if last_name(call.func) in _SEEDS_ALL or not isinstance(call.func, ast.Attribute):
        return ""
    of = call.func.value
    if isinstance(of, ast.Call):
        return "()"  # a generator that is made there
    module = _module_of(call)
    return last_name(of) if module == "self" else module


def _tested(node: _Node) -> Iterator[_Node]:
    """The parts of a condition: of `if self.running and not done:`, whether each has any elements.

    A variable that is tested by itself may be a container, which is asked whether it is empty.
    """
    value = node.value
    if isinstance(value, ast.BoolOp):
        for each in value.values:
            yield from _tested(node.part(each))
    elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        yield from _tested(node.part(value.operand))
    else:
        is_name = isinstance(value, ast.Name | ast.Attribute)
        yield node.part(value, is_rounds=False)._replace(is_tested=is_name)


def _is_near(steps: Sequence[_At]) -> bool:
    """Whether a chain of statements is short enough to be followed on."""
    passing = sum(_passes_on(each.statement) for each in steps)
    return passing <= PASSED_ON and len(steps) - passing <= STEPS


def _telling(steps: Sequence[_At]) -> Sequence[_At]:
    """The statements of a chain that do more than to pass a value on; always the last."""
    found = [*(each for each in steps[:-1] if not _passes_on(each.statement)), *steps[-1:]]
    return found if len(found) <= QUOTED else [found[0], *found[1 - QUOTED :]]


def _passes_on(statement: ast.AST) -> bool:
    """`return found`, `self.plan, self.rank = plan, rank`."""
    value = statement.value if isinstance(statement, ast.Return | ast.Assign) else None
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(isinstance(each, ast.Name | ast.Attribute) for each in parts)


def _is_on_one_rank(function: Function) -> bool:
    """Whether a decorator lets only one rank run a function, as far as its name tells."""
    decorators = function.node.decorator_list if isinstance(function.node, FUNCTIONS) else []
    return any(ON_ONE_RANK.fullmatch(last_name(getattr(d, "func", d))) for d in decorators)


def _types(handler: ast.ExceptHandler) -> Sequence[ast.expr]:
    if handler.type is None:
        return [ast.Name("")]
    return handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]


def _counts(statement: ast.AST) -> bool:
    """`self.step += 1`, `self.done += count`."""
    return (
        isinstance(statement, ast.AugAssign)
        and isinstance(statement.op, ast.Add | ast.Sub)
        and isinstance(statement.value, ast.Constant | ast.Name)
    )


def _is_constant(found: _Set) -> bool:
    return found.how in ("set", "added") and all(
        isinstance(each, ast.Constant | ast.UnaryOp) for each in found.values
    )


def _sets(at: _At) -> Iterator[tuple[ast.expr, _Set]]:
    """What a statement gives a value or changes, each with that."""
    statement = at.statement
    places = _places(statement)
    for target, value in assignments(statement):
        if isinstance(target, ast.Subscript):
            yield target.value, _Set(at, "added", (value,))
        else:
            yield target, _Set(at, "set", (value,), places.get(id(target)))
    if isinstance(statement, ast.AugAssign):
        yield statement.target, _Set(at, "added", (statement.value,))
    elif isinstance(statement, ast.For | ast.AsyncFor):
        yield from _iterated(at, statement.target, statement.iter)
    elif isinstance(statement, ast.With | ast.AsyncWith):
        for target, value in bindings(statement):
            yield target, _Set(at, "set", (value,))
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return
    for node in expressions_of(statement):
        if isinstance(node, ast.NamedExpr):
            yield node.target, _Set(at, "set", (node.value,))
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and adds_to(node):
                yield node.func.value, _Set(at, "added", tuple(node.args))
            kind = kind_of_call(node)
            for each in node.args[:1] if kind in ("shared", "one-rank") else ():
                if isinstance(each, ast.Name | ast.Attribute):
                    yield each, _Set(at, "shared", (node,))


def _places(statement: ast.AST) -> Mapping[int, int]:
    """Which of several targets each is, by its id, where one value is given to all of them."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {
        id(each): number
        for target in targets
        if isinstance(target, ast.Tuple | ast.List)
        for number, each in enumerate(target.elts)
    }


def _iterated(at: _At, target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, _Set]]:
    """The variables of a loop, each with what it takes its values from."""
    if isinstance(target, ast.Tuple):
        made = last_name(value.func) if isinstance(value, ast.Call) else ""
        given = value.args if isinstance(value, ast.Call) else []
        if made in ("enumerate", "zip") and given:
            parts = [None, given[0]] if made == "enumerate" else [*given]
            for each, of in zip(target.elts, parts, strict=False):
                if of is not None:
                    yield from _iterated(at, each, of)
            return
        for each in target.elts:
            yield from _iterated(at, each, value)
    else:
        yield target, _Set(at, "iterated", (value,))


def _around(at: _At) -> Iterator[_At]:
    """The conditions around a statement, innermost first, and those before it that leave."""
    for number in reversed(range(len(at.parents))):
        each = at.parents[number]
        is_loop = isinstance(each, ast.While) and not isinstance(each.test, ast.Constant)
        if is_loop or isinstance(each, ast.If | ast.ExceptHandler):
            yield _At(at.function, each, at.parents[:number])
    inside = (*at.parents, at.statement)
    earlier = [e for e in before(at.function.node, inside) if isinstance(e, ast.If)]
    for leaving in reversed(earlier):
        if isinstance(leaving.body[-1], LEAVES):
            yield _At(at.function, leaving, ())


def _results(called: Function) -> Iterator[tuple[_At, ast.expr | None, bool]]:
    """What a function returns and yields, each with whether it is a yield."""
    for statement, parents in called.statements:
        at = _At(called, statement, parents)
        if isinstance(statement, ast.Return):
            yield at, statement.value, False
        elif isinstance(statement, ast.Expr) and isinstance(
            statement.value, ast.Yield | ast.YieldFrom
        ):
            yield at, statement.value.value, True


def _passed(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a call by which ranks have to agree."""
    place = _ROOTED.get(last_name(call.func))
    if place is None:
        return
    for each in call.keywords:
        if each.arg in _PASSED:
            yield each.arg, each.value
    if len(call.args) > place and not isinstance(call.args[place], ast.Constant):
        yield "", call.args[place]


def _given(
    call: ast.Call | None, at: _At, function: Function, name: str, place: int
) -> ast.expr | str | None:
    """What a call gives to a parameter; `rank` where it gives each process its number."""
    if call is not None:
        return argument_of(call, name, place)
    for node in expressions_of(at.statement):
        if not isinstance(node, ast.Call) or last_name(node.func) not in _STARTS:
            continue
        given = [*node.args, *(each.value for each in node.keywords)]
        if not any(last_name(each) == function.name for each in given):
            continue
        starts = last_name(node.func)
        args = next((e.value for e in node.keywords if e.arg == "args"), None)
        if args is None and starts in ("apply", "apply_async", "spawn", "start_processes"):
            args = node.args[1] if len(node.args) > 1 else None
        if starts in ("spawn", "start_processes"):
            if place == 0:
                return "rank"
            place -= 1
        elif starts in ("submit", "partial", "to_thread"):
            return argument_of(node, name, place + 1)
        for each in node.keywords:
            if each.arg == "kwargs" and isinstance(each.value, ast.Dict):
                for key, value in zip(each.value.keys, each.value.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == name:
                        return value
        if isinstance(args, ast.Tuple | ast.List) and 0 <= place < len(args.elts):
            return args.elts[place]
    return None
