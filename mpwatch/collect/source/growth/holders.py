"""Containers of a program that are added to in each round, and what removes from them, if anything.

A container outlives the loop that adds to it: an attribute of an object that is made before the
loop, a global variable, or a variable of the loop's own function. What removes from it is looked
for in all files that were read, and with that the ways past it: a statement that leaves before, a
condition, a function that nothing calls.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, pairwise
from typing import Final, NamedTuple, TypeAlias, TypeGuard

from mpwatch.collect.source.call_graph import (
    Class,
    Function,
    Program,
    Round,
    Site,
    TooMuchToFollow,
    assignments,
    expressions_of,
    program_of,
)
from mpwatch.collect.source.growth.kept import is_small_value
from mpwatch.collect.source.growth.left_waiting import Left, left_waiting, of_event
from mpwatch.collect.source.repetition import may_wait_in
from mpwatch.collect.source.slow_statements import turns_of
from mpwatch.collect.source.syntax import (
    CONTAINERS,
    FUNCTIONS,
    LEAVES,
    LOOPS,
    ORDERS,
    QUOTE_LIMIT,
    ParsedFile,
    adds_entry,
    argument_of,
    assigned_to,
    before_in_round,
    children,
    expression_text,
    first_line,
    last_line,
    last_name,
    names_in,
    quoted,
    receiver_of,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import (
    AddedTo,
    Again,
    GivenUp,
    Holder,
    LetGo,
    LetGoHow,
    LookedUp,
    RoundOf,
)

HOLDERS: Final = 64
"""Containers kept of one program."""
_ROUNDS: Final = 4
_LINES: Final = 3
"""Other lines that look up a mapping, which are named."""
_DEPTH: Final = 3
"""Calls through which a container is followed that is given to a function."""

_Key: TypeAlias = tuple[str, object, str]
"""A container: `attribute` of a class, `global` of a file, `variable` or `argument` of a function;
that; and its name."""


class _Added(NamedTuple):
    """A statement that adds to a container."""

    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]
    shown: str
    """The container as it is written there."""
    values: tuple[ast.expr, ...]
    is_keyed: bool
    """Whether it stores under a key, which may be there already."""
    key: ast.expr | None = None
    looked_up: LookedUp | None = None
    """Of a statement that only reads, where that makes what is missing."""


_Leads: TypeAlias = defaultdict[int, list[tuple[ast.AST, tuple[ast.AST, ...]]]]


class _Walk(NamedTuple):
    """A statement that goes through all of a container."""

    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]
    through: ast.expr


class _Removed(NamedTuple):
    """A statement that removes from a container, or gives it a new value."""

    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]
    bounds: bool
    """Whether it keeps a part, or stands under a comparison of sizes or ages."""


_DICTS: Final = frozenset(("OrderedDict", "defaultdict", "dict"))
_REMOVES: Final = frozenset(
    (
        *("pop", "popitem", "popleft", "clear", "remove", "discard", "difference_update"),
        *("heappop", "delete_key"),
    )
)
_STORES: Final = frozenset(("FileStore", "HashStore", "PrefixStore", "TCPStore"))
"""The key-value stores of torch.distributed (torch 2.1 to 2.13)."""
_OF_ALL_CLIENTS: Final = _STORES - {"HashStore"}
"""Those whose keys outlive the object by which they were written."""
_SETS_KEYS: Final = frozenset(("add", "append", "compare_set", "multi_set", "set"))
"""Their methods that write keys, which are given first."""
_EVER_NEW: Final = frozenset(
    (
        *("monotonic", "monotonic_ns", "next", "now", "perf_counter", "time", "time_ns"),
        *("token_hex", "uuid1", "uuid4"),
    )
)
"""Calls that return something else each time."""


def holders(files: Iterable[tuple[str, ParsedFile]]) -> tuple[Holder, ...]:
    """The containers of a program that grow in its loops, as far as its source shows.

    Args:
        files: All of its files that were read, in order.
    """
    program = program_of(files)
    return () if program is None else holders_in(program)


def holders_in(program: Program) -> tuple[Holder, ...]:
    """See `holders`."""
    return growing_in(program)[0]


def growing_in(program: Program) -> tuple[tuple[Holder, ...], tuple[Again, ...]]:
    """The containers of a program that grow, and what goes through all of one in these rounds."""
    found: tuple[Holder, ...] = ()
    try:
        search = _Search(program)
        found = tuple(islice(search.found(), HOLDERS))
        return found, tuple(islice(search.walks(), HOLDERS))
    except TooMuchToFollow:
        return found, ()


class _Search:
    """Finds the containers of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._adds: defaultdict[_Key, list[_Added]] = defaultdict(list)
        self._removes: defaultdict[_Key, list[_Removed]] = defaultdict(list)
        for function in program.functions:
            for statement, parents in function.statements:
                if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                    continue
                self._look(function, statement, parents)

    def found(self) -> Iterator[Holder]:
        """The containers that outlive a loop which adds to them, and are not emptied in it."""
        for key, adds in self._adds.items():
            if key[0] == "argument" or self._is_small(adds):
                continue
            for added in sorted(adds, key=lambda each: each.looked_up is not None):
                holder = self._holder(key, added, adds)
                if holder is not None:
                    yield holder
                    break
        told: set[int] = set()
        for left in left_waiting(self._program):
            holder = self._left_waiting(left) if id(left.statement) not in told else None
            if holder is not None:
                told.add(id(left.statement))
                yield holder

    def walks(self) -> Iterator[Again]:
        """The walks over lists and deques that nothing removes from in the rounds that add."""
        through = self._gone_through()
        for key, adds in self._adds.items():
            kinds = {_kind_of(value) for value in self._made_of(key)}
            if key not in through or not kinds <= {"deque", "list"} or self._is_renewed(key):
                continue
            for added in adds:
                if added.is_keyed or added.function.name == "__init__" or _is_seldom(added):
                    continue
                found = list(self._walks(key, added, through[key]))
                if found:
                    yield from found
                    break

    def _walks(self, key: _Key, added: _Added, walks: Sequence[_Walk]) -> Iterator[Again]:
        """Those in rounds that reach a statement which adds to the container."""
        function, leads = added.function, self._leads(added)
        rounds: list[Round | None] = [
            each
            for each in self._program.rounds(function, added.parents, first_line(added.statement))
            if self._outlives(key, each) and not any(each.loop is walk.statement for walk in walks)
        ]
        outside = None if key[0] == "variable" else self._program.outside_calls(function)
        by = quoted(function.module, added.statement)
        start = _Walk(function, added.statement, added.parents, added.values[0])
        rounds = [each for each in rounds if self._is_in_each(start, each, None)]
        adds = AddedTo(
            clean(added.shown, QUOTE_LIMIT), function.file, function.name, by, is_emptied=False
        )
        told: set[int] = set()
        for each in [*rounds, *([None] if outside is not None else [])]:
            gone = self._let_go(key, added, leads, each)
            if gone is not None and gone.how != "end":
                continue
            for walk in walks:
                is_reached = self._is_in_each(walk, each, outside)
                if is_reached and id(walk.through) not in told:
                    told.add(id(walk.through))
                    yield Again(
                        "walks",
                        clean(expression_text(walk.through), QUOTE_LIMIT),
                        (),
                        walk.function.file,
                        walk.function.name,
                        quoted(walk.function.module, walk.statement),
                        last_line(walk.statement),
                        None if each is None else round_of(each, None),
                        outside.name if each is None and outside is not None else "",
                        adds,
                    )

    def _gone_through(self) -> Mapping[_Key, Sequence[_Walk]]:
        """The statements that go through all of a container, by that."""
        found: defaultdict[_Key, list[_Walk]] = defaultdict(list)
        for function in self._program.functions:
            turns = None
            for statement, parents in function.statements:
                for through in _through_all(statement):
                    turns = turns or turns_of([node for node, _ in function.statements])
                    if turns.has(statement):
                        continue
                    for key in self._keys(through, function):
                        found[key].append(_Walk(function, statement, parents, through))
        return found

    def _is_in_each(self, walk: _Walk, found: Round | None, outside: Function | None) -> bool:
        """Whether a walk is reached in the rounds of a loop, and not in each hundredth only."""
        waiting: list[tuple[Function, tuple[ast.AST, ...]]] = [(walk.function, walk.parents)]
        seen = {id(walk.function)}
        while waiting:
            at, parents = waiting.pop()
            self._program.spend(1 + len(at.callers))
            if found is None and at is outside:
                return True
            if found is not None and at is found.function and found.loop in parents:
                return True
            turns = turns_of([node for site in at.callers for node in site.parents])
            for site in filter(self._program.is_known_call, at.callers):
                if id(site.caller) not in seen and not turns.has(site.statement):
                    seen.add(id(site.caller))
                    waiting.append((site.caller, site.parents))
        return False

    # --- statements ---------------------------------------------------------------------------

    def _look(self, function: Function, statement: ast.AST, parents: tuple[ast.AST, ...]) -> None:
        for container, values, key in _adding(statement):
            is_keyed = key is not None
            for each in self._keys(container, function):
                is_sum = isinstance(statement, ast.AugAssign)
                is_other = is_sum and last_name(container) != each[2]  # of an element
                is_limited = _is_limited((*parents, statement), each[2])
                if self._may_grow(each, is_keyed) and not is_other and not is_limited:
                    shown = expression_text(_base(container))
                    added = _Added(function, statement, parents, shown, values, is_keyed, key)
                    self._adds[each].append(added)
        self._look_up(function, statement, parents)
        for container, is_trimmed, is_set in _removing(statement):
            if is_set and isinstance(container, ast.Name) and container.id not in function.not_own:
                continue  # a variable is given something else
            for each in self._keys(container, function, is_any=True):
                is_made = each[0] == "attribute" and function.name in ("__init__", "__new__")
                if is_set and is_made:
                    continue  # there it is made
                bounds = is_trimmed or _is_of_size(parents, statement)
                self._removes[each].append(_Removed(function, statement, parents, bounds))

    def _look_up(
        self, function: Function, statement: ast.AST, parents: tuple[ast.AST, ...]
    ) -> None:
        """Note where a statement reads a mapping that makes an entry for what is missing.

        Not by a key that is written out, that comes out of the mapping itself, or that the function
        asks for or stores before.
        """
        for node in expressions_of(statement):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
                continue
            is_key = not isinstance(node.slice, ast.Slice | ast.Constant | ast.UnaryOp)
            if not is_key or not isinstance(node.value, ast.Name | ast.Attribute):
                continue
            if self._is_written_out(node.slice, function):
                continue
            for key in self._keys(node.value, function):
                made = self._default_of(key)
                if made is None or _is_known_key(function, node, key[2]):
                    continue
                value, looked_up = made
                shown = expression_text(node.value)
                added = _Added(
                    function, statement, parents, shown, (value,), True, node.slice, looked_up
                )
                self._adds[key].append(added)

    def _is_written_out(self, key: ast.expr, function: Function) -> bool:
        """Whether a key is an argument for which all calls give what is written out there."""
        if not isinstance(key, ast.Name) or key.id not in function.arguments:
            return False
        given = [_given(site, key.id) for site in function.callers]
        return bool(given) and all(isinstance(each, ast.Constant) for each in given)

    def _default_of(self, key: _Key) -> tuple[ast.expr, LookedUp] | None:
        """What a mapping gives to a key that is missing, and keeps; `None` for any other."""
        made = self._made_of(key)
        if len(made) != 1 or not isinstance(call := made[0], ast.Call):
            return None
        owner = key[1]
        file = owner.file if isinstance(owner, Class | Function) else str(owner)
        if last_name(call.func) == "defaultdict" and call.args:
            factory = call.args[0]
            if isinstance(factory, ast.Lambda):
                value: ast.expr = factory.body
            elif last_name(factory) in _NUMBER_TYPES or isinstance(factory, ast.Constant):
                return None
            else:
                value = ast.Call(factory, [], [])
            return value, LookedUp("defaultdict", first_line(call), file, ())
        of = self._program.classes.get(last_name(call.func), [])
        missing = of[0].methods.get("__missing__") if len(of) == 1 else None
        for statement, _ in missing.statements if missing is not None else ():
            for target, value in assignments(statement):
                if isinstance(target, ast.Subscript) and last_name(target.value) == "self":
                    at = first_line(missing.node) if missing is not None else 0
                    return value, LookedUp(of[0].name, at, of[0].file, ())
        return None

    def _keys(
        self, container: ast.expr, function: Function, is_any: bool = False, depth: int = 0
    ) -> list[_Key]:
        """What container an expression is; with `is_any` all that it may be."""
        container = _base(container)
        if isinstance(container, ast.Name):
            return self._keys_of_name(container.id, function, is_any, depth)
        if not isinstance(container, ast.Attribute):
            return []
        of = self._program.class_of(container.value, function)
        if of is not None:
            return [self._attribute(of, container.attr)]
        if isinstance(container.value, ast.Name):
            owners = self._program.classes.get(container.value.id, [])
            modules = [
                (file, container.attr)
                for file in self._program.files_with.get(container.attr, ())
                if file.endswith(f"/{container.value.id}.py")
            ]
            if owners:
                return [self._attribute(each, container.attr) for each in owners[:1]]
            if modules:
                return [("global", *modules[0])]
        having = self._program.having.get(container.attr, ())
        self._program.spend(len(having))
        return [self._attribute(e, container.attr) for e in having if is_any or len(having) == 1]

    def _attribute(self, of: Class, name: str) -> _Key:
        """The attribute of a class, or of the one that it is derived from and that makes it."""
        family = self._program.family(of)
        owner = next((each for each in reversed(family) if name in each.values), of)
        return "attribute", owner, name

    def _keys_of_name(self, name: str, function: Function, is_any: bool, depth: int) -> list[_Key]:
        at: Function | None = function
        while at is not None:
            if name in at.arguments and depth < _DEPTH:
                self._program.spend(len(at.callers))
                return [
                    key
                    for site in at.callers
                    if (given := _given(site, name)) is not None
                    for key in self._keys(given, site.caller, is_any, depth + 1)
                ]
            if isinstance(at.node, FUNCTIONS) and (values := _values_of(at, name)):
                self._program.spend(len(values))
                of = [v for v in values if _is_alias(v)]
                if of and depth < _DEPTH:
                    return [k for v in of for k in self._keys(v, at, is_any, depth + 1)]
                return [("variable", at, name)]
            at = at.outer
        if (function.file, name) in self._program.globals:
            return [("global", function.file, name)]
        imported = self._program.imported_from(function, name)
        return [
            ("global", file, name)
            for file in self._program.files_with.get(name, ())
            if imported and file.endswith(f"/{imported}.py")
        ]

    def _made_of(self, key: _Key) -> list[ast.expr]:
        """What a container is given where it is made."""
        kind, owner, name = key
        if kind == "attribute" and isinstance(owner, Class):
            return owner.values.get(name, [])
        if kind == "variable" and isinstance(owner, Function):
            return _values_of(owner, name)
        return self._program.globals.get((str(owner), name), [])

    def _may_grow(self, key: _Key, is_keyed: bool) -> bool:
        """Whether it is a container without a bound, as far as its making shows."""
        made = self._made_of(key)
        self._program.spend(len(made))
        kinds = {_kind_of(value) for value in made}
        if "bounded" in kinds:
            return False
        if not kinds.isdisjoint(_DICTS if is_keyed else CONTAINERS):
            return True
        return is_keyed and self._store_of(key) != ""

    def _store_of(self, key: _Key, depth: int = 0) -> str:
        """The class of a container that is a store of torch.distributed; empty for any other.

        One that is given to the object which keeps it is looked for where that is made; that of a
        PrefixStore is the one below it, and `PrefixStore` where this is not known.
        """
        made, owner = self._made_of(key), key[1]
        at = owner.methods.get("__init__") if isinstance(owner, Class) else owner
        kinds = {
            self._store_below(value, at if isinstance(at, Function) else None, depth)
            for value in made
            if _kind_of(value) in _STORES
        }
        if kinds or depth >= _DEPTH or not isinstance(key[1], Class):
            return min(kinds, default="")
        init = key[1].methods.get("__init__")
        arguments = {each.id for each in made if isinstance(each, ast.Name)}
        for site in init.callers if init is not None else ():
            self._program.spend(1)
            for name in arguments.intersection(site.called.arguments):
                given = _given(site, name)
                for each in self._keys(given, site.caller) if given is not None else ():
                    if found := self._store_of(each, depth + 1):
                        return found
        return ""

    def _store_below(self, made: ast.expr, function: Function | None, depth: int) -> str:
        """The class of the store in which one keeps its keys; `PrefixStore` if it is not known.

        Args:
            made: What makes the store, or is it.
            function: That has it, as far as this is known.
            depth: Steps that have led to it.
        """
        kind = _kind_of(made)
        while kind == "PrefixStore" and isinstance(made, ast.Call):
            below = argument_of(made, "store", 1)
            if below is None:
                break
            made, kind = below, _kind_of(below)
        if kind in _STORES:
            return kind
        if function is None or depth >= _DEPTH:
            return "PrefixStore"
        given = self._given_to(made.id, function) if isinstance(made, ast.Name) else []
        kinds = {self._store_below(value, at, depth + 1) for value, at in given}
        kinds |= {self._store_of(each, depth + 1) for each in self._keys(made, function)} - {""}
        return kinds.pop() if len(kinds) == 1 else "PrefixStore"

    def _is_ever_new(self, key: ast.expr, function: Function, found: Round, depth: int = 0) -> bool:
        """Whether a key is another one in each round of a loop, as far as its parts show.

        A part counts that the loop goes through, that is counted up or made anew, or that a call is
        given such a value for. A rank or a name does not: its key is written again.
        """
        if depth > _DEPTH:
            return False
        self._program.spend(1)
        for node in ast.walk(key):
            if isinstance(node, ast.Call) and last_name(node.func) in _EVER_NEW:
                return True
            if isinstance(node, ast.Attribute) and node.attr in self._counted:
                return True
            if isinstance(node, ast.Name) and self._is_new_part(node.id, function, found, depth):
                return True
        return False

    def _is_new_part(self, name: str, function: Function, found: Round, depth: int) -> bool:
        if function is found.function and name in _through(found.loop):
            return True
        if name in function.arguments:
            given = [(_given(site, name), site.caller) for site in function.callers]
            return any(
                value is not None and self._is_ever_new(value, at, found, depth + 1)
                for value, at in given
            )
        if any(_counts_up(statement, name) for statement, _ in function.statements):
            return True
        made = function.assigned.get(name, ())
        return any(self._is_ever_new(each, function, found, depth + 1) for each in made)

    @cached_property
    def _counted(self) -> frozenset[str]:
        """The attributes that some statement of the program counts up."""
        return frozenset(
            statement.target.attr
            for function in self._program.functions
            for statement, _ in function.statements
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Attribute)
        )

    def _with_new_keys(self, added: _Added, lasting: Sequence[Round]) -> list[Round]:
        """The loops in each round of which a statement writes a key of a store that is new.

        Not one inside of another one that comes to the same keys again: these stay as many.
        """
        if added.key is None:
            return []
        key, function = added.key, added.function
        new = [each for each in lasting if self._is_ever_new(key, function, each)]
        again = [each for each in lasting if each not in new]
        return [e for e in new if not any(self._contains(outer, e) for outer in again)]

    def _is_small(self, adds: Sequence[_Added]) -> bool:
        """Whether all that is added are numbers and texts."""
        return all(
            _size(value, each.function.assigned) == 0 for each in adds for value in each.values
        )

    # --- what keeps ---------------------------------------------------------------------------

    def _holder(self, key: _Key, added: _Added, adds: Sequence[_Added]) -> Holder | None:
        function = added.function
        # What is written by the name of a class is one for all of its objects.
        is_own = not (isinstance(key[1], Class) and added.shown.startswith(f"{key[1].name}."))
        if key[0] == "attribute" and function.name == "__init__" and is_own:
            return None
        line, store = first_line(added.statement), self._store_of(key)
        lasting = [
            each
            for each in self._program.rounds(function, added.parents, line)
            if self._outlives(key, each) and (store or not _is_of_names(added, each))
        ]
        if store:
            lasting = self._with_new_keys(added, lasting)
            if not lasting:
                return None
        outside = None
        if key[0] != "variable":
            outside = self._program.outside_calls(function)
            if outside is None and not lasting:
                return None
        elif not lasting:
            return None
        leads = self._leads(added)
        of = (key, added, leads)
        rounds = [round_of(each, self._let_go(*of, each)) for each in lasting[:_ROUNDS]]
        let_go = None if lasting else self._let_go(*of, None)
        of_all = [each.let_go for each in rounds] if rounds else [let_go]
        if all(each is not None and each.how == "emptied" for each in of_all):
            return None
        assigned = function.assigned
        return Holder(
            clean(added.shown, QUOTE_LIMIT),
            key[1].name if isinstance(key[1], Class) else "",
            function.file,
            function.name,
            quoted(function.module, added.statement),
            max(_size(value, assigned) for each in adds for value in each.values or (_NOTHING,)),
            _is_asked_first(added, key[2]),
            any(self._opens(value, each.function) for each in adds for value in each.values),
            is_own
            and store not in _OF_ALL_CLIENTS
            and self._is_renewed(key)
            and not any(self._is_made_before(key, each) for each in lasting),
            tuple(rounds),
            "" if outside is None else outside.name,
            "" if outside is None else outside.file,
            let_go,
            self._given_up(key, added) if any(g and g.how == "answered" for g in of_all) else None,
            self._looked_up(added, adds, of_all),
            store,
            is_sent=key[0] == "variable" and _is_sent(key),
        )

    def _left_waiting(self, left: Left) -> Holder | None:
        """An event that keeps what waits for it, unless it is set in the rounds that add to it.

        Nor where it is set before these, as a gate is that stays open, or by the function that
        leaves the task.
        """
        program, made, key = self._program, left.made, ("attribute", left.owner, left.event)
        line, function = first_line(made.statement), made.function
        rounds = [
            each
            for each in program.rounds(function, made.parents, line)
            if self._outlives(key, each)
        ]
        outside = program.outside_calls(function)
        if not rounds and outside is None:
            return None
        own = {id(function), *program.reached_by(function.calls)}
        is_set = False
        for ends in program.functions:
            for statement, parents in ends.statements:
                done = of_event(statement, left.event)
                if "clear" in done or ("set" in done and id(ends) in own):
                    return None
                removed = _Removed(ends, statement, parents, False)
                if "set" in done and (
                    any(self._is_in(removed, each) for each in rounds)
                    or self._is_before(removed, left.owner, rounds)
                ):
                    return None
                is_set = is_set or "set" in done
        return Holder(
            left.shown,
            left.owner.name,
            function.file,
            function.name,
            quoted(function.module, left.statement),
            1,
            False,
            False,
            not rounds and self._is_renewed(key),
            tuple(round_of(each, None) for each in rounds[:_ROUNDS]),
            "" if outside is None else outside.name,
            "" if outside is None else outside.file,
            left_waiting=left.words._replace(is_set=is_set),
        )

    def _looked_up(
        self, added: _Added, adds: Sequence[_Added], let_go: Sequence[LetGo | None]
    ) -> LookedUp | None:
        """With the other lines that look it up, of which nothing removes what they add either."""
        if added.looked_up is None or any(each and each.how == "listed" for each in let_go):
            return added.looked_up
        lines = {
            first_line(each.statement)
            for each in adds
            if each.looked_up is not None and each.function.file == added.function.file
        }
        others = sorted(lines - {first_line(added.statement)})
        return added.looked_up._replace(others=tuple(others[:_LINES]))

    def _given_up(self, key: _Key, added: _Added) -> GivenUp | None:
        """Where another container lets go of what is added, and with that the program of its entry.

        A function that adds an object and returns it, to a caller that keeps it in a container of
        its own.
        """
        names = {each.id for each in added.values if isinstance(each, ast.Name)}
        is_returned = any(
            isinstance(node, ast.Return)
            and isinstance(node.value, ast.Name)
            and node.value.id in names
            for node, _ in added.function.statements
        )
        removers = {id(each.function) for each in self._removes.get(key, ())}
        for site in added.function.callers if is_returned else ():
            for container, values, _ in _adding(site.statement):
                if site.call is None or site.call not in values:
                    continue
                for other in self._keys(container, site.caller):
                    for gone in self._removes.get(other, ()):
                        of, around = gone.function, gone.parents[-1:]
                        is_taken = any(not is_set for _, _, is_set in _removing(gone.statement))
                        beside = {id(e.called) for e in of.calls if {*around} <= {*e.parents}}
                        if is_taken and removers.isdisjoint({id(of), *beside}):
                            by = quoted(of.module, gone.statement)
                            return GivenUp(of.file, of.name, by)
        return None

    def _opens(self, value: ast.expr, function: Function, depth: int = 0) -> bool:
        """Whether a value is an open file, a socket or a mapping, or an object that opens one."""
        if depth > _DEPTH:
            return False
        if isinstance(value, ast.Tuple | ast.List):
            return any(self._opens(each, function, depth) for each in value.elts)
        if isinstance(value, ast.Name):
            if value.id in function.arguments:
                given = [(s, g) for s in function.callers if (g := _given(s, value.id)) is not None]
                return any(self._opens(g, site.caller, depth + 1) for site, g in given)
            made = function.assigned.get(value.id)
            return made is not None and self._opens(made[-1], function, depth + 1)
        if not isinstance(value, ast.Call):
            return False
        if _is_opener(value):
            return True
        of = self._program.class_of(value, function)
        init = of.methods.get("__init__") if of is not None else None
        return init is not None and any(
            isinstance(node, ast.Call) and _is_opener(node)
            for statement, _ in init.statements
            for node in expressions_of(statement)
        )

    def _is_renewed(self, key: _Key) -> bool:
        """Whether the container itself is made again and again."""
        kind, owner, name = key
        if kind == "variable" and isinstance(owner, Function):
            return (
                bool(self._program.rounds(owner, (), 0))
                or self._program.outside_calls(owner) is not None
                # A list of an epoch may be as long as the job; one that is sent is not.
                or (_is_sent(key) and _is_made_in_loop(owner, name))
            )
        if kind == "attribute" and isinstance(owner, Class):
            return any(
                self._program.rounds(site.caller, site.parents, first_line(site.statement))
                or self._program.outside_calls(site.caller) is not None
                for site in self._made(owner)
            )
        return False

    def _is_made_before(self, key: _Key, found: Round) -> bool:
        """Whether the function of a loop that does not end makes a container before that loop.

        Whatever calls the function again, such as one that starts several processes, has a
        container for each of them, which stays as long as the loop.
        """
        kind, owner, _ = key
        if not _is_never_left(found.loop):
            return False
        if kind == "attribute" and isinstance(owner, Class):
            made = self._made(owner)
            return bool(made) and all(e.caller is found.function for e in made)
        return kind == "variable" and owner is found.function

    def _made(self, owner: Class) -> list[Site]:
        """Where objects of a class, or of one derived from it, are made."""
        found = [site for each in self._program.with_derived(owner) for site in each.made]
        self._program.spend(1 + len(found))
        return found

    def _outlives(self, key: _Key, found: Round) -> bool:
        """Whether a container is the same in all rounds of a loop."""
        kind, owner, name = key
        if kind == "variable" and isinstance(owner, Function):
            if not _is_within(found.function, owner):
                return False
            if found.function is not owner:
                return True
            return not any(
                found.has(first_line(statement)) and found.loop in parents
                for statement, parents in owner.statements
                if isinstance(statement, ast.Assign | ast.AnnAssign | ast.With | ast.For)
                and name in _names_made(statement)
            )
        if kind == "attribute" and isinstance(owner, Class):
            made = self._made(owner)
            reached = self._program.reached_in(found)
            is_shared = any(
                name in map(last_name, assigned_to(part))
                for part in owner.node.body
                if isinstance(part, ast.Assign)
            )
            return (
                is_shared
                or not made
                or not all(
                    (site.caller is found.function and found.loop in site.parents)
                    or id(site.caller) in reached
                    for site in made
                )
            )
        return True

    # --- what lets go -------------------------------------------------------------------------

    def _leads(self, added: _Added) -> _Leads:
        """The statement that adds and those that call it, by the ids of their functions."""
        found: _Leads = defaultdict(list)
        found[id(added.function)].append((added.statement, added.parents))
        waiting = [added.function]
        for _ in range(2 * HOLDERS):
            if not waiting:
                break
            at = waiting.pop(0)
            for site in at.callers:
                is_new = id(site.caller) not in found
                found[id(site.caller)].append((site.statement, site.parents))
                waiting += [site.caller] * is_new
        return found

    def _let_go(self, key: _Key, added: _Added, leads: _Leads, found: Round | None) -> LetGo | None:
        """What removes from a container; of several statements the one that does so most often."""
        removals = [
            self._by_other_list(each, key, added) or self._removal(each, key, found, leads)
            for each in self._removes.get(key, ())
        ]
        return min(removals, key=lambda each: _MOST_OFTEN.index(each.how), default=None)

    def _removal(self, removed: _Removed, key: _Key, found: Round | None, leads: _Leads) -> LetGo:
        function, line, name = removed.function, first_line(removed.statement), key[2]
        by = quoted(function.module, removed.statement)
        base = LetGo("end", function.file, function.name, by)
        own = self._program.rounds(function, removed.parents, line)
        outside = self._program.outside_calls(function)
        if outside is None and not (own and self._program.is_reached(function)):
            return base
        is_inside = found is not None and self._is_in(removed, found)
        if found is not None and not is_inside and any(self._contains(e, found) for e in own):
            return base._replace(how="later")
        if removed.bounds:
            return base._replace(how="emptied")
        if (keyed := self._by_other_key(removed, key, base)) is not None:
            return keyed
        past = self._way_past(removed, name, leads)
        is_emptied = is_inside or found is None or outside is not None
        if is_emptied and id(function) not in leads and _is_of_answer(removed):
            return (past or base)._replace(how="answered")
        if past is not None:
            return past
        return base._replace(how="emptied" if is_emptied else "slower")

    def _by_other_key(self, removed: _Removed, key: _Key, base: LetGo) -> LetGo | None:
        """That a statement removes by another key than all that are added, and never fails.

        Keys are compared by the attribute, method or field that each is read from: `execution.key`
        and `task.get_name()`. Of others, and of what was received, nothing shows that they differ.
        """
        by = _quiet_key(removed, key[2])
        adds = self._adds.get(key, ())
        if by is None or not adds or _is_of_answer(removed):
            return None
        own = self._source_of(by, removed.function)
        stored = [each.key for each in adds if each.key is not None]
        others = [self._source_of(e.key, e.function) for e in adds if e.key is not None]
        if len(stored) < len(adds) or not own or not all(others):
            return None
        if any(own in each or each in own for each in others):
            return None
        made = self._made_of_more(own, expression_text(stored[0]))
        keys = (
            clean(expression_text(stored[0]), QUOTE_LIMIT),
            clean(expression_text(by), QUOTE_LIMIT),
        )
        keyed = base._replace(how="keyed", keys=keys)
        if made is None:
            return keyed
        function, statement = made
        return keyed._replace(
            past_file=function.file,
            past_in=function.name,
            past=quoted(function.module, statement),
        )

    def _by_other_list(self, removed: _Removed, key: _Key, added: _Added) -> LetGo | None:
        """That a statement removes the keys of another container, in which what is read is not.

        Of a mapping in which reading makes an entry: `for key in self.order[:n]: del cells[key]`,
        where what looks keys up neither adds to `self.order` nor is given what is added there.
        """
        by = _removed_key(removed, key[2]) if added.looked_up is not None else None
        if by is None:
            return None
        function = removed.function
        values = _values_of(function, by.id) if isinstance(by, ast.Name) else [by]
        listed = [_listing(each) for each in values]
        others = [k for each in listed if each is not None for k in self._keys(each, function)]
        if not others or len(others) != len(listed) or key in others:
            return None
        adds = [each for other in others for each in self._adds.get(other, ())]
        if not adds or any(self._may_be_given(added.function, e.function) for e in adds):
            return None
        first, name = adds[0], next(expression_text(e) for e in listed if e is not None)
        return LetGo(
            "listed",
            function.file,
            function.name,
            quoted(function.module, removed.statement),
            first.function.file,
            first.function.name,
            quoted(first.function.module, first.statement),
            keys=(clean(name, QUOTE_LIMIT), ""),
        )

    def _may_be_given(self, reads: Function, adds: Function) -> bool:
        """Whether two functions may be given the same key, as far as calls show.

        One leads to the other, or two calls in one function give them the same.
        """
        if reads is adds or id(adds) in self._program.reached_by(reads.calls):
            return True
        if id(reads) in self._program.reached_by(adds.calls):
            return True
        given, others = self._given_by_callers(reads), self._given_by_callers(adds)
        return any(len(given[each] | others[each]) > 1 for each in given.keys() & others.keys())

    def _given_by_callers(self, function: Function) -> Mapping[tuple[int, str], set[int]]:
        """What is given to a function, or to what leads to it, with the calls that give it.

        By the id of the function that calls, and as it is written; of a variable also what it is
        given, or goes through.
        """
        found: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
        waiting = [function]
        seen = {id(function)}
        for _ in range(HOLDERS):
            if not waiting:
                break
            at = waiting.pop()
            self._program.spend(1 + len(at.callers))
            for site in at.callers:
                call = site.call
                given = [*call.args, *(e.value for e in call.keywords)] if call is not None else []
                for each in given:
                    name = each.id if isinstance(each, ast.Name) else ""
                    made = [
                        *_values_of(site.caller, name),
                        *_of_comprehensions(site.statement, name),
                    ]
                    for text in map(expression_text, (each, *made)):
                        found[id(site.caller), text].add(id(call))
                if id(site.caller) not in seen:
                    seen.add(id(site.caller))
                    waiting.append(site.caller)
        return found

    def _source_of(self, key: ast.expr, function: Function, depth: int = 0) -> str:
        """The name of the attribute, method or field that a key is read from; empty for others."""
        if isinstance(key, ast.Name) and depth < _DEPTH:
            found = {
                self._source_of(value, at, depth + 1)
                for value, at in self._given_to(key.id, function)
            }
            return found.pop() if len(found) == 1 else ""
        name = ""
        if isinstance(key, ast.Attribute):
            name = key.attr
        elif isinstance(key, ast.Call) and isinstance(key.func, ast.Attribute) and not key.args:
            name = key.func.attr.removeprefix("get_")
        elif isinstance(key, ast.Subscript) and isinstance(key.slice, ast.Constant):
            name = str(key.slice.value)
        return name.replace("_", "").lower()

    def _given_to(self, name: str, function: Function) -> list[tuple[ast.expr, Function]]:
        """What the variables and arguments of a function are given; none where that is not known.

        A variable that a loop or a `with` statement sets is not followed.
        """
        if name in function.arguments:
            self._program.spend(len(function.callers))
            given = [(_given(site, name), site.caller) for site in function.callers]
            known = [(value, at) for value, at in given if value is not None]
            return known if len(known) == len(given) else []
        return [(value, function) for value in function.assigned.get(name, ())]

    def _made_of_more(self, name: str, key: str) -> tuple[Function, ast.AST] | None:
        """The one call that gives a task, thread or process a name, of a key and of more text."""
        if name != "name":
            return None
        named = [
            (function, statement, each.value)
            for function in self._program.functions
            for statement, _ in function.statements
            for call in expressions_of(statement)
            if isinstance(call, ast.Call) and last_name(call.func) in _NAMED
            for each in call.keywords
            if each.arg == "name"
        ]
        of_key = [
            (function, statement)
            for function, statement, value in named
            if isinstance(value, ast.JoinedStr)
            and any(isinstance(e, ast.Constant) and e.value for e in value.values)
            and any(
                isinstance(e, ast.FormattedValue) and expression_text(e.value) == key
                for e in value.values
            )
        ]
        return of_key[0] if len(of_key) == 1 else None

    def _is_in(self, removed: _Removed, found: Round) -> bool:
        """Whether a statement is in a loop, or in what is called in its rounds."""
        is_own = removed.function is found.function and found.loop in (
            *removed.parents,
            removed.statement,
        )
        return is_own or id(removed.function) in self._program.reached_in(found)

    def _is_before(self, removed: _Removed, owner: Class, rounds: Sequence[Round]) -> bool:
        """Whether a statement is run before a loop begins, or as the object is made.

        In the function of the loop, in those that lead to it, or in what these call before.
        """
        made = {id(each.methods.get("__init__")) for each in self._program.family(owner)}
        if id(removed.function) in made:
            return True
        line = first_line(removed.statement)
        waiting = [(each.function, first_line(each.loop)) for each in rounds]
        seen = {id(function) for function, _ in waiting}
        while waiting:
            at, until = waiting.pop()
            if removed.function is at and line < until:
                return True
            self._program.spend(1 + len(at.calls) + len(at.callers))
            earlier = [each for each in at.calls if first_line(each.statement) < until]
            if id(removed.function) in self._program.reached_by(earlier, is_at_once=True):
                return True
            for site in at.callers:
                if id(site.caller) not in seen:
                    seen.add(id(site.caller))
                    waiting.append((site.caller, first_line(site.statement)))
        return False

    def _contains(self, outer: Round, inner: Round) -> bool:
        """Whether a loop is around another one, also where it calls the function of that."""
        is_around = outer.function is inner.function and outer.loop is not inner.loop
        is_around = is_around and outer.has(first_line(inner.loop))
        return is_around or id(inner.function) in self._program.reached_in(outer)

    def _way_past(self, removed: _Removed, name: str, leads: _Leads) -> LetGo | None:
        """How a statement that removes may not be reached, in its function or one that calls it."""
        function = removed.function
        by = quoted(function.module, removed.statement)
        base = LetGo("passed", function.file, function.name, by)
        at, statement, parents = function, removed.statement, removed.parents
        seen = {id(function)}
        for _ in range(_DEPTH):
            if (past := self._past(at, statement, parents, name, leads)) is not None:
                how, where, node = past
                passed = base._replace(
                    how=how,
                    past_file=where.file,
                    past_in=where.name,
                    past=quoted(where.module, node),
                )
                return self._with_message(passed, node) if how == "under" else passed
            if _has_loop(parents):
                return None
            sites = [each for each in at.callers if id(each.caller) not in seen]
            clear = [
                each
                for each in sites
                if self._past(each.caller, each.statement, each.parents, name, leads) is None
            ]
            if not sites:
                return None
            site = (clear or sites)[0]
            seen.add(id(site.caller))
            at, statement, parents = site.caller, site.statement, site.parents
        return None

    def _with_message(self, gone: LetGo, condition: ast.AST) -> LetGo:
        """The same with the condition under which what it asks for is made, `if terminated:`."""
        test = condition.test if isinstance(condition, ast.If) else None
        if not isinstance(test, ast.Call) or last_name(test.func) != "isinstance":
            return gone
        name = last_name(test.args[1]) if len(test.args) == 2 else ""
        classes = self._program.classes.get(name, ())
        sites = classes[0].made if len(classes) == 1 else ()
        for _ in range(_DEPTH):
            if len(sites) != 1:
                break
            site = sites[0]
            tests = [e for e in site.parents if isinstance(e, ast.If) and not _is_main(e)]
            if tests:
                return gone._replace(
                    message=name,
                    made_file=site.caller.file,
                    made_in=site.caller.name,
                    made=quoted(site.caller.module, tests[-1]),
                )
            sites = site.caller.callers
        return gone

    def _past(
        self,
        function: Function,
        statement: ast.AST,
        parents: Sequence[ast.AST],
        name: str,
        leads: _Leads,
    ) -> tuple[LetGoHow, Function, ast.AST] | None:
        """The statement that leaves a function before another one, or the condition around it.

        Without those that come before what adds as well.
        """
        adding = leads.get(id(function), [])
        common = {
            id(each) for at, around in adding for each in (*_before(function, at, around), *around)
        }
        for each in _before(function, statement, parents):
            if id(each) in common:
                continue
            leaving = _leaving(each, name)
            if leaving is not None and _ends_service(leaving, parents):
                continue
            raises = isinstance(leaving, ast.Raise)
            if leaving is not None and (not raises or self._is_caught(function, parents)):
                return "passed", function, leaving
            raising = next(self._raises(function, each), None)
            if raising is not None and self._is_caught(function, parents):
                return "passed", *raising
        for at, around in adding:
            other = _other_branch([*parents, statement], [*around, at])
            if other is not None:
                # Of a chain of `elif`, the condition that the statement itself is under.
                tests = [e for e in parents if isinstance(e, ast.If)]
                own = [e for e in tests if e is other or name not in expression_text(e.test)]
                return "under", function, own[-1] if own else other
        for each in reversed(parents):
            is_tested = isinstance(each, ast.If) and name not in expression_text(each.test)
            if is_tested and id(each) not in common and not _is_main(each):
                return "under", function, each
        return None

    def _is_caught(self, function: Function, parents: Sequence[ast.AST]) -> bool:
        """Whether the program goes on where a statement raises: one that leads to it catches."""
        if any(isinstance(each, ast.Try) and each.handlers for each in parents):
            return True
        waiting, seen = [function], {id(function)}
        while waiting and len(seen) < HOLDERS:
            at = waiting.pop(0)
            if not at.callers and self._program.outside_calls(at) is not None:
                return True
            for site in at.callers:
                if any(isinstance(each, ast.Try) and each.handlers for each in site.parents):
                    return True
                if id(site.caller) not in seen:
                    seen.add(id(site.caller))
                    waiting.append(site.caller)
        return False

    def _raises(self, function: Function, statement: ast.AST) -> Iterator[tuple[Function, ast.AST]]:
        """Where a function that a statement calls raises, itself."""
        if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
            return
        for site in function.calls:
            if site.statement is statement and site.call is not None:
                for node, parents in site.called.statements:
                    is_caught = any(isinstance(each, ast.Try) for each in parents)
                    if isinstance(node, ast.Raise) and node.exc is not None and not is_caught:
                        yield site.called, node


_ANSWERS: Final = re.compile(
    r"(?!get_name)(?:try_|async_|await_)?(?:recv|receive|poll|consume|get|read|messages|responses|answers|replies"
    r"|results|as_completed|loads)(?:_.*|from|into|msg|line|all)?"
)
"""Calls that give what comes from elsewhere."""


def _is_of_answer(removed: _Removed) -> bool:
    """Whether a statement takes out one entry, by a key that has come from elsewhere.

    In a loop over what comes, or after it was received in the same function.
    """
    keys = [
        call.args[0]
        for call in expressions_of(removed.statement)
        if isinstance(call, ast.Call) and last_name(call.func) == "pop" and call.args
    ]
    if isinstance(removed.statement, ast.Delete):
        keys += [e.slice for e in removed.statement.targets if isinstance(e, ast.Subscript)]
    names = {name for key in keys for name in names_in(key)}
    given: list[tuple[ast.expr, ast.expr]] = [
        (each.target, each.iter)
        for each in removed.parents
        if isinstance(each, ast.For | ast.AsyncFor)
    ]
    for statement, _ in removed.function.statements:
        given += assignments(statement)
    return any(
        not names.isdisjoint(names_in(target))
        and any(
            isinstance(node, ast.Call) and _ANSWERS.fullmatch(last_name(node.func)) is not None
            for node in ast.walk(value)
        )
        for target, value in given
    )


_NAMED: Final = frozenset(("Process", "Task", "Thread", "create_task", "ensure_future"))
"""Calls that give what they make a name."""


def _quiet_key(removed: _Removed, name: str) -> ast.expr | None:
    """The key of the only entry that a statement removes, where no error tells that it is missing.

    `None` for any other statement.
    """
    for call in expressions_of(removed.statement):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if call.func.attr == "pop" and last_name(call.func.value) == name and call.args:
            return call.args[0] if len(call.args) == 2 or _is_excused(removed, name) else None
    if isinstance(removed.statement, ast.Delete) and len(removed.statement.targets) == 1:
        of = removed.statement.targets[0]
        is_own = isinstance(of, ast.Subscript) and last_name(of.value) == name
        if isinstance(of, ast.Subscript) and is_own and _is_excused(removed, name):
            return of.slice
    return None


def _is_never_left(loop: ast.AST) -> bool:
    """Whether it is a `while True:` without a statement that leaves it, but for an exception."""
    if not isinstance(loop, ast.While) or getattr(loop.test, "value", False) not in (True, 1):
        return False
    waiting: list[tuple[ast.AST, bool]] = [(each, True) for each in loop.body]
    while waiting:
        node, is_own = waiting.pop()
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break) and is_own):
            return False
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.expr)):
            is_inner = isinstance(node, LOOPS)
            waiting += [(each, is_own and not is_inner) for _, each in children(node)]
    return True


_SENDS: Final = frozenset(
    ("put", "put_nowait", "send", "send_bytes", "send_json", "send_pyobj", "sendall")
)
"""Methods of queues, pipes and sockets that hand on what they are given."""


def _is_sent(key: _Key) -> bool:
    """Whether the function that has a variable sends or yields what it refers to.

    So it is complete there, and made anew for what comes next.
    """
    _, owner, name = key
    given: list[ast.expr] = []
    for statement, _ in owner.statements if isinstance(owner, Function) else ():
        for node in expressions_of(statement):
            if isinstance(node, ast.Call) and last_name(node.func) in _SENDS:
                given += node.args
            elif isinstance(node, ast.Yield) and node.value is not None:
                given.append(node.value)
    return any(name in names_in(each) for each in given)


def _is_made_in_loop(function: Function, name: str) -> bool:
    """Whether a loop of a function makes a variable anew in its rounds."""
    return any(
        name in _names_made(statement) and any(isinstance(each, LOOPS) for each in parents)
        for statement, parents in function.statements
        if isinstance(statement, ast.Assign | ast.AnnAssign)
    )


def _of_comprehensions(statement: ast.AST, name: str) -> Iterator[ast.expr]:
    """What the comprehensions of a statement go through that set a variable."""
    for node in expressions_of(statement):
        if isinstance(node, ast.comprehension) and name in names_in(node.target):
            yield node.iter


_MOST_OFTEN: Final[Sequence[LetGoHow]] = (
    *("emptied", "slower", "passed", "under", "answered", "keyed", "listed", "later", "end"),
)
"""Statements that remove, by how: those that do so most often come first."""


def _removed_key(removed: _Removed, name: str) -> ast.expr | None:
    """The key of the only entry that a statement removes; `None` for any other statement."""
    for call in expressions_of(removed.statement):
        if not isinstance(call, ast.Call) or last_name(call.func) != "pop" or not call.args:
            continue
        if receiver_of(call).rpartition(".")[2] == name:
            return call.args[0]
    if isinstance(removed.statement, ast.Delete) and len(removed.statement.targets) == 1:
        of = removed.statement.targets[0]
        if isinstance(of, ast.Subscript) and last_name(of.value) == name:
            return of.slice
    return None


def _listing(value: ast.expr) -> ast.Name | ast.Attribute | None:
    """What a key is taken out of: `order` of `order[:n]`, `list(order)` and `order.popleft()`."""
    if isinstance(value, ast.Subscript):
        value = value.value
    elif isinstance(value, ast.Call):
        name = last_name(value.func)
        if isinstance(value.func, ast.Attribute) and name in ("pop", "popleft"):
            value = value.func.value
        elif name in ("heappop", "list", "sorted", "tuple") and value.args:
            value = value.args[0]
    return value if _is_named(value) else None


def _is_excused(removed: _Removed, name: str) -> bool:
    """Whether a key that is missing is suppressed, or asked for before."""
    path = [*removed.parents, removed.statement]
    for around, inside in pairwise(path):
        if isinstance(around, ast.Try) and inside in around.body:
            for handler in around.handlers:
                caught = {last_name(e) for e in ast.walk(handler.type or handler) if _is_named(e)}
                is_passed = all(isinstance(each, ast.Pass | ast.Continue) for each in handler.body)
                if is_passed and (handler.type is None or caught & _MISSING):
                    return True
        elif isinstance(around, ast.With):
            for item in around.items:
                call = item.context_expr
                is_suppressed = isinstance(call, ast.Call) and last_name(call.func) == "suppress"
                given = call.args if isinstance(call, ast.Call) and is_suppressed else []
                if any(last_name(each) in _MISSING for each in given):
                    return True
        elif isinstance(around, ast.If) and isinstance(around.test, ast.Compare):
            is_asked = isinstance(around.test.ops[0], ast.In)
            if is_asked and last_name(around.test.comparators[0]) == name:
                return True
    return False


_MISSING: Final = frozenset(("BaseException", "Exception", "KeyError", "LookupError"))
_NOTHING: Final = ast.Constant(None)


def _is_within(function: Function, outer: Function) -> bool:
    at: Function | None = function
    while at is not None:
        if at is outer:
            return True
        at = at.outer
    return False


def _ends_service(leaving: ast.AST, parents: Sequence[ast.AST]) -> bool:
    """Whether a handler leaves the endless loop that a statement is in: that is no way past it.

    A thread that reads from a connection ends so, once.
    """
    is_endless = any(
        isinstance(each, ast.While) and isinstance(each.test, ast.Constant) for each in parents
    )
    is_left = isinstance(leaving, ast.ExceptHandler) and isinstance(
        leaving.body[-1], ast.Return | ast.Break
    )
    return is_endless and is_left


def _has_loop(parents: Sequence[ast.AST]) -> bool:
    return any(isinstance(each, LOOPS) for each in parents)


def _other_branch(path: Sequence[ast.AST], other: Sequence[ast.AST]) -> ast.AST | None:
    """The `if` or `try` of which one statement is in another branch than the other one."""
    for node, mine, theirs in zip(path, path[1:], other[1:], strict=False):
        if mine is theirs:
            continue
        blocks = {child: block for block, child in children(node)}
        one, two = blocks.get(mine), blocks.get(theirs)  # type: ignore[call-overload]
        is_apart = one != two and "finalbody" not in (one, two)
        if isinstance(node, ast.If) and is_apart:
            return node
        is_handled = isinstance(node, ast.Try) and "handlers" in (one, two)
        return (theirs if two == "handlers" else mine) if is_handled and is_apart else None
    return None


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__main__" in expression_text(node.test)


_GOES_THROUGH: Final = frozenset(
    (
        *("Counter", "all", "any", "array", "as_tensor", "asarray", "cat", "concatenate"),
        *("deepcopy", "dump", "dumps", "join", "list", "max", "min", "set", "shuffle", "sorted"),
        *("stack", "sum", "tensor", "tuple"),
    )
)
"""Calls that look at all elements of what they are given first; of a generator, too."""
_STOPS_EARLY: Final = frozenset(("all", "any"))
"""Those of them that look at no more elements of a generator than they need."""
_PASSES_ON: Final = frozenset(("enumerate", "list", "reversed", "sorted", "tqdm", "tuple"))
"""Calls that give each element of what they are given; zip() stops at the shortest."""


def _is_seldom(added: _Added) -> bool:
    """Whether a condition on a size or a count is around or before a statement that adds.

    Most often it is the bound of a buffer, of which single entries are then overwritten.
    """
    if any(isinstance(each, ast.ExceptHandler) for each in added.parents):
        return True  # such as an IndexError, where no place of that number is there yet
    tests = [each.test for each in added.parents if isinstance(each, ast.If)]
    if any(_asks_for_size(node, added.shown) for test in tests for node in ast.walk(test)):
        return True
    return turns_of([node for node, _ in added.function.statements]).has(added.statement)


def _asks_for_size(node: ast.AST, container: str) -> bool:
    """`len(items)`, and `x not in items`, by which each value is there once."""
    if isinstance(node, ast.Call):
        return last_name(node.func) == "len"
    return isinstance(node, ast.Compare) and any(
        isinstance(op, ast.NotIn) and expression_text(of) == container
        for op, of in zip(node.ops, node.comparators, strict=True)
    )


def _through_all(statement: ast.AST) -> Iterator[ast.expr]:
    """What a statement goes through from one end to the other: names and attributes.

    Not a loop that may be left before: most often it finds what it looks for.
    """
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return
    if isinstance(statement, ast.For):
        leaves = (ast.Break, ast.Return)
        if not any(isinstance(each, leaves) for part in statement.body for each in ast.walk(part)):
            yield from _gone_over(statement.iter)
    for node in expressions_of(statement):
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
            yield from _gone_over(node.generators[0].iter)
        elif isinstance(node, ast.Call) and last_name(node.func) in _GOES_THROUGH and node.args:
            first = node.args[0]
            if isinstance(first, ast.Name | ast.Attribute):
                yield first
            elif isinstance(first, ast.GeneratorExp) and last_name(node.func) not in _STOPS_EARLY:
                yield from _gone_over(first.generators[0].iter)


def _gone_over(iterated: ast.expr) -> Iterator[ast.expr]:
    if isinstance(iterated, ast.Call) and last_name(iterated.func) in _PASSES_ON:
        for each in iterated.args:
            yield from _gone_over(each)
    elif isinstance(iterated, ast.Name | ast.Attribute):
        yield iterated


def round_of(found: Round, let_go: LetGo | None) -> RoundOf:
    """A loop in words, with what removes from a container, seen from it."""
    is_async = may_wait_in(found.function.node, found.loop)
    header = quoted(found.function.module, found.loop)
    return RoundOf(
        found.function.file,
        first_line(found.loop),
        last_line(found.loop),
        found.function.name,
        is_async,
        header,
        tuple(found.by),
        let_go,
    )


def _is_of_names(added: _Added, found: Round) -> bool:
    """Whether a key is what the loop goes through, if that is written there or a range."""
    if added.key is None or not isinstance(found.loop, ast.For):
        return False
    own = names_in(found.loop.target)
    of = found.loop.iter
    is_few = isinstance(of, ast.List | ast.Tuple | ast.Set) or (
        isinstance(of, ast.Call) and last_name(of.func) in _OF_NAMES
    )
    return is_few and bool(own & names_in(added.key))


_OF_NAMES: Final = frozenset(
    ("items", "keys", "named_buffers", "named_modules", "named_parameters", "parameters", "range")
)


def _is_asked_first(added: _Added, name: str) -> bool:
    """Whether the function looks a key up first, as caches do."""
    if added.key is None:
        return False
    for statement, _ in added.function.statements:
        for node in expressions_of(statement):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                if last_name(node.comparators[0]) == name:
                    return True
            elif isinstance(node, ast.Call) and last_name(node.func) == "get":
                of = receiver_of(node)
                if of.rpartition(".")[2] == name:
                    return True
    return False


def _base(container: ast.expr) -> ast.expr:
    """`self.rows` of `self.rows[key]` and of `self.rows.setdefault(key, [])`."""
    while True:
        if isinstance(container, ast.Subscript):
            container = container.value
        elif (
            isinstance(container, ast.Call)
            and isinstance(container.func, ast.Attribute)
            and container.func.attr in ("setdefault", "get", "values", "items")
        ):
            container = container.func.value
        else:
            return container


def _adding(
    statement: ast.AST,
) -> Iterator[tuple[ast.expr, tuple[ast.expr, ...], ast.expr | None]]:
    """The containers to which a statement adds, with what, and under which key."""
    for node in expressions_of(statement):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, given = node.func.attr, tuple(node.args)
        if name != "setdefault" and adds_entry(node) and given:
            yield node.func.value, given[-1:], None
        elif name == "heappush" and len(given) == 2:
            yield given[0], given[1:], None
        elif name == "setdefault" and len(given) == 2 and not _is_constant(given[0]):
            yield node.func.value, given[1:], given[0]
        elif name in _SETS_KEYS and len(given) > 1 and not _is_constant(given[0]):
            yield node.func.value, given[-1:], given[0]
    if isinstance(statement, ast.Assign):
        for target, value in assignments(statement):
            if isinstance(target, ast.Subscript):
                into = target.slice
                parts = into.elts if isinstance(into, ast.Tuple) else [into]
                if not any(isinstance(each, ast.Slice | ast.Constant) for each in parts):
                    yield target.value, (value,), into
            elif (
                isinstance(value, ast.BinOp)
                and isinstance(value.op, ast.Add)
                and expression_text(value.left) == expression_text(target)
            ):
                yield target, (value.right,), None
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        yield statement.target, (statement.value,), None


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _removing(statement: ast.AST) -> Iterator[tuple[ast.expr, bool, bool]]:
    """The containers from which a statement removes.

    Each with whether it keeps a part of a bound, and whether it is given a new value.
    """
    for node in expressions_of(statement):
        if isinstance(node, ast.Call):
            for each in (node.func, *node.args):
                if isinstance(each, ast.Attribute) and each.attr in _REMOVES:
                    yield each.value, False, False
            if last_name(node.func) in ("heappop", "heapreplace", "heappushpop") and node.args:
                yield node.args[0], False, False
    if isinstance(statement, ast.Delete):
        for each in statement.targets:
            of = each.value if isinstance(each, ast.Subscript) else each
            is_slice = isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Slice)
            yield of, is_slice, False
    else:
        for target, value in assignments(statement):
            if isinstance(target, ast.Subscript):
                if isinstance(target.slice, ast.Slice):
                    yield target.value, True, False
            elif isinstance(target, ast.Attribute | ast.Name):
                name = last_name(target)
                is_own = any(
                    type(each) is type(target) and last_name(each) == name
                    for each in ast.walk(value)
                )
                is_sum = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
                is_part = isinstance(value, ast.Subscript) and is_own
                if is_part or not (is_own and is_sum):
                    yield target, is_part, True


def _is_of_size(parents: Sequence[ast.AST], statement: ast.AST) -> bool:
    """Whether a comparison by size, number or age is around a statement, as of what has a bound."""
    tests = [each.test for each in (*parents, statement) if isinstance(each, ast.If | ast.While)]
    return any(
        isinstance(node, ast.Compare) and any(isinstance(op, ORDERS) for op in node.ops)
        for test in tests
        for node in ast.walk(test)
    )


def _is_limited(path: Sequence[ast.AST], name: str) -> bool:
    """Whether a container is added to only as long as it is not too long."""
    return any(
        isinstance(call, ast.Call)
        and last_name(call.func) == "len"
        and any(last_name(each) == name for each in call.args)
        for around in path
        if isinstance(around, ast.If | ast.While)
        for node in ast.walk(around.test)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ORDERS)
        for call in ast.walk(node)
    )


def _given(site: Site, name: str) -> ast.expr | None:
    """What a call gives for an argument."""
    if site.call is None:
        return None
    names = site.called.arguments
    return argument_of(site.call, name, names.index(name) if name in names else -1)


def _values_of(function: Function, name: str) -> list[ast.expr]:
    """What a variable of a function is given by its assignments and loops."""
    if name in function.not_own:
        return []
    return [*function.assigned.get(name, ()), *function.iterated.get(name, ())]


def _names_made(statement: ast.AST) -> Iterator[str]:
    """The variables that a statement gives a value which does not depend on their own."""
    for part, value in assignments(statement):
        if isinstance(part, ast.Name) and part.id not in names_in(value):
            yield part.id
    if isinstance(statement, ast.For):
        yield from names_in(statement.target)


def _is_alias(value: ast.expr) -> bool:
    """Whether a value is another name of a container, or of one inside of it."""
    return isinstance(value, ast.Attribute | ast.Name) or (
        isinstance(value, ast.Subscript | ast.Call)
        and not isinstance(_base(value), ast.Call)
        and _base(value) is not value
        and isinstance(_base(value), ast.Attribute | ast.Name)
        and not (isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice))
    )


def _kind_of(value: ast.expr) -> str:
    """The kind of container that an expression makes; `bounded`, or empty for none."""
    if isinstance(value, ast.List | ast.ListComp):
        return "list"
    if isinstance(value, ast.Dict | ast.DictComp):
        return "dict"
    if isinstance(value, ast.Set | ast.SetComp):
        return "set"
    if not isinstance(value, ast.Call):
        return ""
    name = last_name(value.func)
    if name == "field":
        made = [each.value for each in value.keywords if each.arg == "default_factory"]
        return last_name(made[0]) if made and last_name(made[0]) in CONTAINERS else ""
    sizes = [each.value for each in value.keywords if each.arg in ("maxlen", "maxsize")]
    sizes += value.args[1:] if name == "deque" else []
    if any(not (_is_constant(each) and getattr(each, "value", 0) is None) for each in sizes):
        return "bounded"
    return name if name in CONTAINERS | _STORES else ""


def _through(loop: ast.AST) -> set[str]:
    """What a loop sets in each round, unless it goes through names or parts of a model."""
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return set()
    of = loop.iter
    is_few = isinstance(of, ast.List | ast.Tuple | ast.Set) or (
        isinstance(of, ast.Call) and last_name(of.func) in _OF_NAMES - {"range"}
    )
    return set() if is_few else names_in(loop.target)


def _counts_up(statement: ast.AST, name: str) -> bool:
    """Whether a statement is `step += 1` or `step = step + 1`."""
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.target, ast.Name) and statement.target.id == name
    return any(
        isinstance(target, ast.Name)
        and target.id == name
        and isinstance(value, ast.BinOp)
        and name in names_in(value)
        for target, value in assignments(statement)
    )


_LARGE: Final = frozenset(
    (
        *("asarray", "array", "astype", "b64encode", "clone", "concatenate", "contiguous", "copy"),
        *("cpu", "cuda", "decode", "detach", "dumps", "empty", "encode", "from_numpy", "full"),
        *("load", "loads", "numpy", "ones", "rand", "randn", "read", "recv", "stack", "tensor"),
        *("to", "tobytes", "tolist", "zeros", "zeros_like"),
    )
)
"""Calls that give arrays, tensors, or what was read."""
_OPENERS: Final = frozenset(
    (
        *("Popen", "SharedMemory", "SummaryWriter", "accept", "connect", "create_connection"),
        *("fdopen", "memfd_create", "memmap", "mkstemp", "mmap", "open", "open_memmap"),
        *("socket", "socketpair", "urlopen"),
    )
)


def _is_opener(call: ast.Call) -> bool:
    """Whether a call opens a file, a socket or a mapping."""
    is_mapped = any(each.arg == "mmap_mode" for each in call.keywords)
    return last_name(call.func) in _OPENERS or is_mapped


_NUMBERS: Final = frozenset(
    ("count", "id", "max", "mean", "min", "ndim", "numel", "size", "std", "sum", "total_seconds")
)


def _size(value: ast.expr, assigned: Mapping[str, Sequence[ast.expr]], depth: int = 0) -> int:
    """0 for numbers and texts, 2 for arrays and what was read, 1 for what does not show."""
    if isinstance(value, ast.Name) and value.id in assigned and depth < _DEPTH:
        return _size(assigned[value.id][-1], assigned, depth + 1)
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return max((_size(each, assigned, depth) for each in value.elts), default=0)
    if isinstance(value, ast.Dict):
        return max((_size(each, assigned, depth) for each in value.values), default=0)
    if is_small_value(value) or isinstance(value, ast.Compare):
        return 0
    if isinstance(value, ast.BinOp):
        return max(_size(each, assigned, depth) for each in (value.left, value.right))
    if isinstance(value, ast.UnaryOp):
        return _size(value.operand, assigned, depth)
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        given = [*value.args, *(each.value for each in value.keywords)]
        if name in _NUMBERS and isinstance(value.func, ast.Attribute):
            return 0
        is_array = expression_text(value.func).partition(".")[0] in ("np", "numpy", "torch")
        inside = [_size(each, assigned, depth) for each in given] if name[:1].isupper() else []
        return 2 if name in _LARGE or is_array else max((1, *inside))
    return 1


def _before(
    function: Function, statement: ast.AST, parents: Sequence[ast.AST]
) -> Iterator[ast.AST]:
    """The statements that are run before another one, of the blocks that it is in."""
    path = [*parents, statement]
    return before_in_round(function.node, path, lambda each: isinstance(each, LOOPS))


_NUMBER_TYPES: Final = frozenset(("bool", "float", "int", "str"))


def _is_known_key(function: Function, read: ast.Subscript, name: str) -> bool:
    """Whether a key that is looked up is there already, as far as the function shows."""
    names = names_in(read.slice)
    for statement, _ in function.statements:
        for node in (statement, *expressions_of(statement)):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                if last_name(node.comparators[0]) == name:
                    return True
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                through = {last_name(each) for each in ast.walk(node.iter) if _is_named(each)}
                is_own = name in through or (isinstance(node.iter, ast.Call) and "range" in through)
                if is_own and not names.isdisjoint(names_in(node.target)):
                    return True
            elif isinstance(node, ast.Attribute) and node.attr == "default_factory":
                return True
        for target, _ in assignments(statement):
            if isinstance(target, ast.Subscript) and last_name(target.value) == name:
                return True
    return False


_NOTHING_THERE: Final = frozenset(("BlockingIOError", "Empty", "QueueEmpty", "StopIteration"))
"""Exceptions that tell that there was no item, and so none that could be passed over."""


def _is_named(node: ast.AST) -> TypeGuard[ast.Name | ast.Attribute]:
    return isinstance(node, ast.Name | ast.Attribute)


def _leaving(statement: ast.AST, name: str) -> ast.AST | None:
    """The statement that leaves, of an `if` that does not ask for the container, or an `except`."""
    if isinstance(statement, ast.If) and name not in expression_text(statement.test):
        last = statement.body[-1]
        if isinstance(last, LEAVES):
            return statement if not isinstance(last, ast.Raise) else last
        for each in statement.body:
            if (found := _leaving(each, name)) is not None:
                return found
    elif isinstance(statement, ast.Try):
        for handler in statement.handlers:
            last = handler.body[-1]
            caught = {last_name(n) for n in ast.walk(handler.type or last) if _is_named(n)}
            if not caught.isdisjoint(_NOTHING_THERE):
                continue
            if isinstance(last, LEAVES):
                return last if isinstance(last, ast.Raise) else handler
    elif isinstance(statement, ast.With):
        for each in statement.body:
            if (found := _leaving(each, name)) is not None:
                return found
    return None
