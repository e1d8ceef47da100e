r"""Regular expressions for which a text without a match takes time with the square of its length.

Or worse. Python's `re` tries one way after the other in which the parts of a pattern can take a
text. How many ways there are is decided here on the position automaton of the pattern (Glushkov):
it is exponential where two different ways lead from a position back to it by the same text, and a
polynomial where the same text leads from a position back to itself, on to a later one, and from
that back to itself (Weber and Seidl, On the degree of ambiguity of finite automata, 1991).

A pattern that matches in one way only may take as long in a search, which tries it from each place:
one that begins with a repeat without an end, such as ` +$` or `(?:\w+,)+$`, goes through the rest
of a run of such characters or words from each place in it, where the run does not end as the
pattern needs.

`for pattern, to in RULES: text = pattern.sub(to, text)` names no pattern: all that the variable can
be, as the program shows, are looked at. Variables are followed through lists, tuples and dicts,
attributes of classes, fields of simple classes, arguments of functions that the same file calls,
and into the files from which they are imported.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from importlib import import_module
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    Found,
    FunctionNode,
    argument_of,
    bindings,
    every_node,
    first_line,
    functions_in,
    last_name,
    own_nodes,
    parameters,
)

# The parser of `re` has no documented name: in Python 3.10 `sre_parse`, from 3.11 on `re._parser`.
sre: Any
try:
    sre = import_module("re._parser")
except ImportError:
    sre = import_module("sre_parse")

_PATTERN_LIMIT: Final = 2000
"""Characters; longer patterns are not looked at."""
_POSITIONS_LIMIT: Final = 120
_STEPS_LIMIT: Final = 20_000
"""Of the search on the automaton; a pattern that needs more counts as harmless."""
_UNBOUNDED: Final = 1000
"""From so many repetitions on, a repeat counts as one without an end."""
_COPIES: Final = 3
"""A part that is repeated a bounded number of times stands for so many positions at most."""
_PROBES: Final = "aZ5_ .,;:@/-+='\"<>(){}[]&#%!?\n\té"
"""One character of each kind that classes of characters tell apart."""
_DIGITS: Final = frozenset("0123456789")
_END: Final = "end"
"""Stands for the end of the text, which only `$`, `\\Z` and the like take."""

_Items: TypeAlias = Sequence[tuple[Any, Any]]


@lru_cache(maxsize=512)
def matches_in_many_ways(pattern: str, is_verbose: bool = False) -> bool:
    """Whether the number of ways to match a part of a text grows with its square, or faster.

    Where the pattern is complete once that part is, the first way is taken and none of the others
    is tried: that is harmless.

    Args:
        pattern: As it is written.
        is_verbose: Whether spaces and comments in it count for nothing (re.VERBOSE).
    """
    if len(pattern) > _PATTERN_LIMIT:
        return False
    try:
        parsed = sre.parse(pattern, re.VERBOSE if is_verbose else 0)
        automaton = _Automaton({*_PROBES, *pattern})
        last = automaton.add(parsed).last
    except (sre.error, OverflowError, RecursionError, _TooManyError):
        return False
    return automaton.is_ambiguous(last)


_RUN: Final = 8
"""Characters of a run that is tried on a pattern: more than `_COPIES` of two parts."""


@lru_cache(maxsize=512)
def searches_in_square_time(pattern: str, flags: int = 0) -> bool:
    """Whether a search may take time with the square of the length of a run of characters.

    Each place of the run is tried where a repeat without an end begins the pattern, of a character
    or of a group, and what follows it can fail. Not where a match can begin at few places only
    (`^`, a look around).

    Args:
        pattern: As it is written.
        flags: Those of `re` that count here: DOTALL, MULTILINE, VERBOSE.
    """
    if len(pattern) > _PATTERN_LIMIT:
        return False
    try:
        parsed = sre.parse(pattern, flags)
        flags |= parsed.state.flags
        automaton = _Automaton({*_PROBES, *pattern}, flags)
        ways = list(_unanchored(list(parsed)))
        parts = [automaton.add(each) for each in ways]
    except (sre.error, OverflowError, RecursionError, _TooManyError):
        return False
    if not automaton.is_known or any(part.is_empty for part in parts):
        return False
    return any(
        automaton.can_fail(run, parts) for way in ways for run in automaton.runs(way)
    ) or any(automaton.can_fail_after(word, parts) for way in ways for word in automaton.words(way))


def _unanchored(items: list[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    """The ways to begin a pattern, without those that begin with a condition on the place."""
    if not items:
        yield items
        return
    op, argument = items[0]
    if op is sre.SUBPATTERN:
        yield from _unanchored([*argument[-1], *items[1:]])
    elif op is sre.BRANCH:
        for each in argument[1]:
            yield from _unanchored([*each, *items[1:]])
    elif op not in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        yield items


def _looks_around(items: Iterable[tuple[Any, Any]]) -> bool:
    """Whether a condition on the place, or on what is around it, is in a part of a pattern."""
    return any(
        op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT)
        or (op is sre.SUBPATTERN and _looks_around(argument[-1]))
        or (op is sre.BRANCH and any(map(_looks_around, argument[1])))
        or (op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and _looks_around(argument[-1]))
        for op, argument in items
    )


class _TooManyError(Exception):
    """The pattern has more positions than are looked at."""


class _Part(NamedTuple):
    """A part of a pattern, by positions in the automaton."""

    is_empty: bool
    """Whether it matches the empty text."""
    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()


_EMPTY: Final = _Part(True)


class _Automaton:
    """Positions of a pattern, the characters that each takes, and which may follow which."""

    def __init__(self, probes: Set[str], flags: int = 0) -> None:
        self._probes = probes
        self._flags = flags
        self.is_known = True
        """Whether it is known of all items what they take."""
        self._takes: list[Set[str]] = []
        self._follow: list[set[int]] = []
        self._twice: set[int] = set()
        """Positions from which two different repeats lead on to one and the same position."""

    def add(self, items: Iterable[tuple[Any, Any]]) -> _Part:
        """Add a sequence of items of a parsed pattern."""
        whole = _EMPTY
        for op, argument in items:
            whole = self._then(whole, self._item(op, argument))
        return whole

    def _item(self, op: Any, argument: Any) -> _Part:
        if op is sre.SUBPATTERN:
            return self.add(argument[-1])
        if op is sre.BRANCH:
            return self._either([self.add(each) for each in argument[1]])
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeat(*argument)
        if op is sre.AT:
            is_end = argument in (sre.AT_END, sre.AT_END_STRING)
            ends = {_END, "\n"} if argument is sre.AT_END and self._has(re.MULTILINE) else {_END}
            return self._position(ends) if is_end else _EMPTY
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return _EMPTY
        return self._position(self._taken(op, argument))

    def _position(self, takes: Set[str]) -> _Part:
        if len(self._takes) >= _POSITIONS_LIMIT:
            raise _TooManyError
        self._takes.append(takes)
        self._follow.append(set())
        place = frozenset((len(self._takes) - 1,))
        return _Part(False, place, place)

    def _then(self, one: _Part, other: _Part) -> _Part:
        for place in one.last:
            self._follow[place] |= other.first
        return _Part(
            one.is_empty and other.is_empty,
            one.first | other.first if one.is_empty else one.first,
            one.last | other.last if other.is_empty else other.last,
        )

    @staticmethod
    def _either(parts: Sequence[_Part]) -> _Part:
        return _Part(
            any(each.is_empty for each in parts),
            frozenset().union(*(each.first for each in parts)),
            frozenset().union(*(each.last for each in parts)),
        )

    def _repeat(self, least: int, most: int, body: Any) -> _Part:
        is_endless = most >= _UNBOUNDED
        copies = min(max(1, least if is_endless else most), _COPIES)
        whole = _EMPTY
        for number in range(copies):
            part = self.add(body)
            if is_endless and number == copies - 1:
                self._loop(part)
            optional = number >= least
            whole = self._then(whole, part._replace(is_empty=part.is_empty or optional))
        return whole

    def _loop(self, part: _Part) -> None:
        """Let the part follow itself; where it did already, there are two ways to."""
        for place in part.last:
            if self._follow[place] & part.first:
                self._twice.add(place)
            self._follow[place] |= part.first

    def is_ambiguous(self, last: Set[int]) -> bool:
        """Whether there are many ways through a loop after which a match may still fail."""
        steps = _Steps(_STEPS_LIMIT)
        loops = [self._loop_of(place) for place in range(len(self._takes))]
        ends = [place for place, loop in enumerate(loops) if loop and place not in last]
        if any(place in self._twice for place in ends):
            return True
        for begin, loop in enumerate(loops):
            for end in ends if loop else ():
                if begin == end:
                    if self._comes_back_apart(begin, loop, steps):
                        return True
                elif end not in loop and self._goes_on(begin, end, (loop, loops[end]), steps):
                    return True
        return False

    def _loop_of(self, place: int) -> Set[int]:
        """The positions from which this one is reached, and that it reaches: empty for none."""
        ahead = self._reached(place)
        return {each for each in ahead if place in self._reached(each)} if place in ahead else set()

    def _reached(self, place: int) -> Set[int]:
        found: set[int] = set()
        waiting = [place]
        while waiting:
            for each in self._follow[waiting.pop()] - found:
                found.add(each)
                waiting.append(each)
        return found

    def _comes_back_apart(self, place: int, loop: Set[int], steps: _Steps) -> bool:
        """Whether one text leads from a position back to it by two different ways."""
        seen: set[tuple[int, int, bool]] = set()
        waiting = [(place, place, False)]
        while waiting and steps.are_left():
            one, other, are_apart = waiting.pop()
            for a, b in self._pairs(self._follow[one] & loop, self._follow[other] & loop):
                state = (a, b, are_apart or a != b)
                if state == (place, place, True):
                    return True
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
        return False

    def _pairs(self, one: Set[int], other: Set[int]) -> Iterator[tuple[int, int]]:
        for a in one:
            for b in other:
                if not self._takes[a].isdisjoint(self._takes[b]):
                    yield a, b

    def _goes_on(
        self, begin: int, end: int, loops: tuple[Set[int], Set[int]], steps: _Steps
    ) -> bool:
        """Whether one text leads from `begin` back to it, from it to `end`, and from that back."""
        seen: set[tuple[int, int, int]] = set()
        waiting = [(begin, begin, end)]
        while waiting and steps.are_left():
            one, way, other = waiting.pop()
            for a, b in self._pairs(self._follow[one] & loops[0], self._follow[way]):
                both = self._takes[a] & self._takes[b]
                for c in self._follow[other] & loops[1]:
                    state = (a, b, c)
                    if both.isdisjoint(self._takes[c]) or state in seen:
                        continue
                    if state == (begin, end, end):
                        return True
                    seen.add(state)
                    waiting.append(state)
        return False

    def _taken(self, op: Any, argument: Any) -> Set[str]:
        """The probes that an item takes; of a back reference none are known."""
        if op is sre.LITERAL:
            return {chr(argument)}
        if op is sre.NOT_LITERAL:
            return {each for each in self._probes if each != chr(argument)}
        if op is sre.ANY:
            return {e for e in self._probes if e != "\n" or self._has(re.DOTALL)}
        if op is sre.IN:
            return {each for each in self._probes if _is_in(argument, each)}
        self.is_known = False
        return set()

    def _has(self, flag: int) -> bool:
        return bool(self._flags & flag)

    # --- runs ---------------------------------------------------------------------------------

    def runs(self, items: _Items) -> Iterator[Set[str]]:
        """What the repeats without an end take that a match can begin with.

        Single characters may stand before one, as in ` +`, if they take all of that as well. Not of
        digits alone, of which texts have no long runs.
        """
        before = self._probes
        for op, argument in items:
            is_repeat = op in (sre.MAX_REPEAT, sre.MIN_REPEAT)
            least, most, body = argument if is_repeat else (1, 1, [(op, argument)])
            taken = self._of_one(body)
            if taken is None and least:
                return
            is_short = taken is None or taken <= _DIGITS
            if taken and not is_short and taken <= before and most >= _UNBOUNDED > least:
                yield taken
            if taken is not None and least:
                before = before & taken

    def _of_one(self, body: _Items) -> Set[str] | None:
        """What an item of one character takes; `None` for others."""
        if len(body) != 1:
            return None
        op, argument = body[0]
        if op is sre.SUBPATTERN:
            return self._of_one(argument[-1])
        is_one = op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
        return self._taken(op, argument) if is_one else None

    def can_fail(self, run: Set[str], parts: Sequence[_Part]) -> bool:
        """Whether some run of one of these characters, and what ends it, begins no match."""
        return any(
            not any(self._begins([each] * _RUN + [end], part) for part in parts)
            for each in run
            for end in (_END, *self._probes - run)
        )

    def words(self, items: _Items) -> Iterator[Sequence[str]]:
        """The shortest text of each group that is repeated without an end and may come first.

        Of groups that take various characters: of texts such as `ab` or numbers with dots there are
        no long runs.
        """
        for op, argument in items:
            if op not in (sre.MAX_REPEAT, sre.MIN_REPEAT):
                return
            least, most, body = argument
            if most >= _UNBOUNDED and self._of_one(body) is None and not _looks_around(body):
                group = _Automaton(self._probes, self._flags)
                word = group.shortest(group.add(body))
                if word and group.is_known and group.is_various:
                    yield word
            if least:
                return

    @property
    def is_various(self) -> bool:
        """Whether a position takes a blank, or one of several characters that are no digits."""
        return any(
            each & {" ", "\n", "\t"} or (len(each) > 1 and not each <= _DIGITS)
            for each in self._takes
        )

    def shortest(self, part: _Part) -> Sequence[str]:
        """One of the shortest texts that a part takes; empty for none, or where it may be empty."""
        if part.is_empty:
            return ()
        ways: dict[int, tuple[int, ...]] = {place: (place,) for place in sorted(part.first)}
        waiting = deque(ways)
        while waiting:
            place = waiting.popleft()
            if place in part.last:
                taken = [sorted(self._takes[each] - {_END}) for each in ways[place]]
                return [each[0] for each in taken] if all(taken) else ()
            for after in sorted(self._follow[place] - ways.keys()):
                ways[after] = (*ways[place], after)
                waiting.append(after)
        return ()

    def can_fail_after(self, word: Sequence[str], parts: Sequence[_Part]) -> bool:
        """Whether such a text again and again, with some end, begins no match."""
        return any(
            not any(self._begins([*word] * _RUN + [end], part) for part in parts)
            for end in (_END, *self._probes)
        )

    def _begins(self, text: Sequence[str], part: _Part) -> bool:
        """Whether the beginning of a text matches."""
        places: Set[int] = part.first
        for each in text:
            places = {place for place in places if each in self._takes[place]}
            if not places.isdisjoint(part.last):
                return True
            places = {after for place in places for after in self._follow[place]}
        return False


class _Steps:
    """Counts the steps of a search down."""

    def __init__(self, count: int) -> None:
        self._left = count

    def are_left(self) -> bool:
        """Take one more."""
        self._left -= 1
        return self._left >= 0


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


# --- what a variable can be ----------------------------------------------------------------------

_PATTERN_METHODS: Final = frozenset(
    ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")
)
_SEARCHES: Final = _PATTERN_METHODS - {"fullmatch", "match"}
_PATTERN_CALLS: Final = _PATTERN_METHODS | {"compile"}
_MODULES: Final = frozenset(("re", "regex"))
_STEPS: Final = 2000
"""Of the search for one use; what is not found until then counts as harmless."""
_DEPTH: Final = 40
"""Of values that lead to one another."""
_FAMILY: Final = 32
"""Classes of a file of which one has the attributes of another."""
_CALLERS: Final = 4
"""A function with more calls is not followed to its arguments."""
_SHOWN: Final = 3
_PASSES_ON: Final = frozenset(
    (
        "MappingProxyType",
        "OrderedDict",
        "deque",
        "dict",
        "frozenset",
        "iter",
        "list",
        "reversed",
        "set",
        "sorted",
        "tuple",
    )
)
"""Calls whose elements are those of their first argument."""
_ADDS_ONE: Final = frozenset(("add", "append", "appendleft"))

_Step: TypeAlias = int | Literal["element", "value"]
"""From a container to what is in it: at a position, any element, or any value of a dict."""


class _Given(NamedTuple):
    """What a name is given: an expression, and the way from it to the value."""

    node: ast.expr
    way: tuple[_Step, ...] = ()


class _Scope(NamedTuple):
    """Where the names of an expression are looked up."""

    file: FileNames
    node: ast.AST
    """A function, a class, or the file."""


class _Place(NamedTuple):
    """An expression and where its names are looked up."""

    node: ast.expr
    scope: _Scope


class FileNames:
    """What the names of one file are given, in it and in the files that it imports."""

    def __init__(self, tree: ast.Module, path: str = "") -> None:
        """Make it; names are looked for when they are asked for.

        Args:
            tree: The file.
            path: Its path.
        """
        self.tree = tree
        self.name = path.rpartition("/")[2]
        self.imports: Mapping[str, FileNames] = MappingProxyType({})
        """The files of the program that it imports, by the names that it has for them."""
        self._bound: dict[ast.AST, Mapping[str, Sequence[_Given]]] = {}
        self._functions = functions_in(tree)
        self._calls: dict[str, list[tuple[ast.Call, ast.AST]]] | None = None
        self._attributes: dict[tuple[ast.AST, str], list[tuple[_Given, _Scope]]] | None = None
        self._derived: dict[str, list[ast.ClassDef]] | None = None
        self._classes = {n.name: n for n in every_node(tree) if isinstance(n, ast.ClassDef)}
        self._owners = dict(_owned(tree))
        self._imported = dict(_imported(tree))

    def given(self, name: str, scope: ast.AST) -> Iterator[tuple[_Given, _Scope]]:
        """What a name is given where it is used: there, by callers, in the file or an import."""
        if scope is not self.tree:
            is_known = False
            for each in self.bound(scope).get(name, ()):
                is_known = True
                yield each, _Scope(self, scope)
            if isinstance(scope, FUNCTIONS) and name in parameters(scope):
                is_known = True
                yield from self._arguments(scope, name)
            if is_known:
                return
        for each in self.bound(self.tree).get(name, ()):
            yield each, _Scope(self, self.tree)

    def imported(self, name: str) -> tuple[FileNames, str] | None:
        """The file of the program from which a name is imported, and its name there."""
        of, other = self._imported.get(name, ("", ""))
        found = self.imports.get(of)
        return (found, other) if found is not None and other else None

    def module(self, named: ast.expr) -> FileNames | None:
        """The file of the program that a name stands for: `rules` of `rules.TAG`."""
        if not isinstance(named, ast.Name) or named.id in self.bound(self.tree):
            return None
        of, other = self._imported.get(named.id, ("", ""))
        return self.imports.get(f"{of}{'' if of.endswith('.') else '.'}{other}" if other else of)

    def owner(self, scope: ast.AST) -> ast.ClassDef | None:
        """The class of which a function is a method, or in a method of which it is."""
        return self._owners.get(scope)

    def class_of(self, name: str) -> ast.ClassDef | None:
        """The class of this name in the file."""
        return self._classes.get(name)

    def attribute(self, owner: ast.ClassDef, name: str) -> Iterator[tuple[_Given, _Scope]]:
        """What an attribute of a class is given in it, in its bases and what is derived from it.

        A base in another file is not followed.
        """
        if self._attributes is None:
            self._attributes = defaultdict(list)
            for function, of in self._owners.items():
                for target, given in _bindings(own_nodes(function)):
                    if isinstance(target, ast.Attribute) and _is_own(target.value):
                        self._attributes[of, target.attr].append((given, _Scope(self, function)))
            for of in {*self._classes.values(), *self._owners.values()}:
                for each, found in self.bound(of).items():
                    self._attributes[of, each] += [(given, _Scope(self, of)) for given in found]
        for of in self._family(owner):
            yield from self._attributes.get((of, name), ())

    def _family(self, owner: ast.ClassDef) -> Sequence[ast.ClassDef]:
        """A class, those of the file that it is derived from, and those derived from it."""
        if self._derived is None:
            self._derived = defaultdict(list)
            for each in self._classes.values():
                for base in each.bases:
                    self._derived[last_name(base)].append(each)
        derived = self._derived
        found = [owner]
        for lead in (
            lambda of: filter(None, (self._classes.get(last_name(base)) for base in of.bases)),
            lambda of: derived.get(of.name, ()),
        ):
            waiting = [owner]
            while waiting and len(found) < _FAMILY:
                for each in lead(waiting.pop()):
                    if each not in found:
                        found.append(each)
                        waiting.append(each)
        return found

    def fields(self, name: str) -> list[str]:
        """The fields of a simple class of this file, or the parameters of its `__init__`."""
        node = self._classes.get(name)
        for each in node.body if node is not None else ():
            if isinstance(each, FUNCTIONS) and each.name == "__init__":
                return parameters(each)[1:]
        return [
            each.target.id
            for each in (node.body if node is not None else ())
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        ]

    def bound(self, scope: ast.AST) -> Mapping[str, Sequence[_Given]]:
        """What each name of a function, of the body of a class, or of the file is given."""
        if scope not in self._bound:
            found: defaultdict[str, list[_Given]] = defaultdict(list)
            for target, given in _bindings(_nodes_of(scope)):
                if isinstance(target, ast.Name):
                    found[target.id].append(given)
            self._bound[scope] = found
        return self._bound[scope]

    def _arguments(self, function: FunctionNode, name: str) -> Iterator[tuple[_Given, _Scope]]:
        """What the calls of a function in this file give to one of its parameters."""
        calls = self._calls_of(function.name)
        if len(calls) > _CALLERS:
            return
        names = parameters(function)
        is_bound = names[:1] in (["self"], ["cls"])
        for call, caller in calls:
            place = names.index(name) - (1 if is_bound else 0)
            given = argument_of(call, name, place)
            if given is not None:
                yield _Given(given), _Scope(self, caller)

    def _calls_of(self, name: str) -> Sequence[tuple[ast.Call, ast.AST]]:
        """The calls of functions of a name in this file, with the functions that they are in."""
        if self._calls is None:
            self._calls = defaultdict(list)
            for caller in (self.tree, *self._functions):
                for call in own_nodes(caller):
                    if isinstance(call, ast.Call):
                        self._calls[last_name(call.func)].append((call, caller))
        return self._calls.get(name, ())


def _owned(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.ClassDef]]:
    """The functions in classes, each with the innermost class around it."""
    waiting: list[tuple[ast.AST, ast.ClassDef | None]] = [(tree, None)]
    while waiting:
        node, owner = waiting.pop()
        if isinstance(node, FUNCTIONS) and owner is not None:
            yield node, owner
        owner = node if isinstance(node, ast.ClassDef) else owner
        waiting += [(each, owner) for each in ast.iter_child_nodes(node)]


def _imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """The names that a file imports, each with the module as written, and its name in that."""
    for node in every_node(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield each.asname or each.name, (each.name, "")
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                of = f"{'.' * node.level}{node.module or ''}"
                yield each.asname or each.name, (of, each.name)


def _nodes_of(scope: ast.AST) -> Iterator[ast.AST]:
    """The syntax of a scope, without that of the functions and classes in it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


class _Text(NamedTuple):
    """A literal pattern."""

    place: str
    """Its line, with its file where that is another one: `5`, `rules.py:5`."""
    pattern: str
    flags: int


class PatternUses:
    """The uses of patterns in one file that may take long."""

    def __init__(self, names: FileNames) -> None:
        self._names = names
        self._is_needed = bool(names.imports) or any(
            _compiles(node)
            or (
                isinstance(node, ast.Import | ast.ImportFrom)
                and any(alias.name in _MODULES for alias in node.names)
            )
            for node in every_node(names.tree)
        )
        self._left = 0

    def find(self, function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
        """The calls in a function that use such a pattern, at the call or by a variable.

        Args:
            function: The function, or the file.
            nodes: The syntax of it.
        """
        for call in nodes:
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr not in _PATTERN_CALLS:
                continue
            owner = call.func.value
            is_module = isinstance(owner, ast.Name) and owner.id in _MODULES
            first = call.args[0] if call.args else None
            if is_module and (first is None or isinstance(first, ast.Constant)):
                pattern = getattr(first, "value", None)
                if isinstance(pattern, str):
                    yield from _at_call(call, pattern)
                continue
            if not self._is_needed or call.func.attr == "compile":
                continue
            self._left = _STEPS
            of = first if is_module and first is not None else owner
            start = _Place(of, _Scope(self._names, function))
            found = dict.fromkeys(
                self._patterns(start, frozenset(), is_text=is_module, flags=_flags(call))
            )
            wide = [each for each in found if _is_wide(each)]
            for each in wide[:_SHOWN]:
                yield "uses-wide-pattern", f"{each.place}, {each.pattern}", call
            slow = (each for each in found if each not in wide and _is_slow(call, each))
            for each in islice(slow, _SHOWN):
                yield "quadratic-pattern", f"{each.place}, {each.pattern}", call

    def _patterns(
        self, start: _Place, seen: frozenset[int], *, is_text: bool, flags: int
    ) -> Iterator[_Text]:
        """The literal patterns that an expression can be."""
        for node, scope in self._values(start, seen):
            if _compiles(node) and isinstance(node, ast.Call) and node.args:
                # `pattern = re.compile(pattern)` leads back to itself.
                if id(node) not in seen:
                    text = _Place(node.args[0], scope)
                    yield from self._patterns(
                        text, seen | {id(node)}, is_text=True, flags=_flags(node)
                    )
            elif is_text and isinstance(node, ast.Constant) and isinstance(node.value, str):
                file = "" if scope.file is self._names else f"{scope.file.name}:"
                yield _Text(f"{file}{first_line(node)}", node.value, flags)

    def _values(self, place: _Place, seen: frozenset[int]) -> Iterator[_Place]:
        """What an expression can be, of literals and calls."""
        self._left -= 1
        node, scope = place
        if self._left < 0 or len(seen) >= _DEPTH or id(node) in seen:
            return
        seen |= {id(node)}
        if isinstance(node, ast.Name):
            yield from self._of_name(node.id, scope, seen)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node, scope, seen)
        elif isinstance(node, ast.Subscript):
            yield from self._subscript(node, scope, seen)
        elif isinstance(node, ast.IfExp):
            for each in (node.body, node.orelse):
                yield from self._values(_Place(each, scope), seen)
        elif isinstance(node, ast.BoolOp):
            for each in node.values:
                yield from self._values(_Place(each, scope), seen)
        elif isinstance(node, ast.NamedExpr):
            yield from self._values(_Place(node.value, scope), seen)
        elif _is_method(node, ("get", "pop")) and isinstance(node, ast.Call):
            yield from self._along(_Place(_receiver(node), scope), ("value",), seen)
        else:
            yield place

    def _of_name(self, name: str, scope: _Scope, seen: frozenset[int]) -> Iterator[_Place]:
        """What a name can be, also one that is imported from another file of the program."""
        is_given = False
        for given, where in scope.file.given(name, scope.node):
            is_given = True
            yield from self._along(_Place(given.node, where), given.way, seen)
        found = None if is_given else scope.file.imported(name)
        self._left -= 1
        if found is not None and self._left > 0 and len(seen) < _DEPTH:
            file, other = found
            # No two names of two files share a number, so a circle of imports ends at `_DEPTH`.
            yield from self._of_name(other, _Scope(file, file.tree), seen | {-len(seen)})

    def _along(
        self, place: _Place, way: tuple[_Step, ...], seen: frozenset[int]
    ) -> Iterator[_Place]:
        """What is reached from an expression by a way through containers."""
        if not way:
            yield from self._values(place, seen)
            return
        for inner in self._inside(place, way[0], seen):
            yield from self._along(inner, way[1:], seen)

    def _inside(self, place: _Place, step: _Step, seen: frozenset[int]) -> Iterator[_Place]:
        """What is in a container by one step."""
        if len(seen) >= _DEPTH:
            return
        for node, scope in self._values(place, seen):
            if isinstance(node, ast.List | ast.Tuple | ast.Set):
                yield from self._elements(node, scope, step, seen)
            elif isinstance(node, ast.Dict) and step in ("element", "value"):
                found = node.values if step == "value" else node.keys
                yield from (_Place(each, scope) for each in found if each is not None)
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
                yield _Place(node.elt, scope)
            elif isinstance(node, ast.DictComp) and step in ("element", "value"):
                yield _Place(node.value if step == "value" else node.key, scope)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                for each in (node.left, node.right):
                    yield from self._inside(_Place(each, scope), step, seen | {id(node)})
            elif isinstance(node, ast.Call) and id(node) not in seen:  # `rows = list(rows)`
                yield from self._of_call(node, scope, step, seen | {id(node)})

    def _elements(
        self,
        node: ast.List | ast.Tuple | ast.Set,
        scope: _Scope,
        step: _Step,
        seen: frozenset[int],
    ) -> Iterator[_Place]:
        has_stars = any(isinstance(each, ast.Starred) for each in node.elts)
        if isinstance(step, int) and not has_stars and not isinstance(node, ast.Set):
            yield from (_Place(each, scope) for each in node.elts[step : step + 1])
            return
        for each in node.elts:
            if isinstance(each, ast.Starred):
                yield from self._inside(_Place(each.value, scope), "element", seen)
            else:
                yield _Place(each, scope)

    def _of_call(
        self, call: ast.Call, scope: _Scope, step: _Step, seen: frozenset[int]
    ) -> Iterator[_Place]:
        """What a call of a container, or of what passes its elements on, has inside."""
        if _is_method(call, ("values",)):
            yield from self._inside(_Place(_receiver(call), scope), "value", seen)
        elif _is_method(call, ("keys",)):
            yield from self._inside(_Place(_receiver(call), scope), "element", seen)
        elif _is_method(call, ("copy",)):
            yield from self._inside(_Place(_receiver(call), scope), step, seen)
        elif last_name(call.func) in _PASSES_ON and call.args:
            yield from self._inside(_Place(call.args[0], scope), step, seen)

    def _attribute(
        self, node: ast.Attribute, scope: _Scope, seen: frozenset[int]
    ) -> Iterator[_Place]:
        """What an attribute can be.

        Of `self`, a class, or an imported file; or a field of what a class has made.
        """
        file, of = scope.file, node.value
        owner = file.owner(scope.node) if _is_own(of) else None
        if isinstance(of, ast.Name) and not _is_own(of):
            owner = file.class_of(of.id)
        if owner is not None:
            for given, where in file.attribute(owner, node.attr):
                yield from self._along(_Place(given.node, where), given.way, seen)
            return
        if (module := file.module(of)) is not None:
            yield from self._of_name(node.attr, _Scope(module, module.tree), seen)
            return
        for made, where in self._values(_Place(of, scope), seen):
            if isinstance(made, ast.Call) and (fields := where.file.fields(last_name(made.func))):
                place = fields.index(node.attr) if node.attr in fields else -1
                field = argument_of(made, node.attr, place)
                if field is not None:
                    yield from self._values(_Place(field, where), seen)

    def _subscript(
        self, node: ast.Subscript, scope: _Scope, seen: frozenset[int]
    ) -> Iterator[_Place]:
        """What is at an index or a key; any of all where that is no literal."""
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        for held, where in self._values(_Place(node.value, scope), seen):
            here = _Place(held, where)
            if isinstance(held, ast.Dict):
                for name, value in zip(held.keys, held.values, strict=True):
                    is_other = isinstance(name, ast.Constant) and name.value != key
                    if key is None or not is_other:
                        yield from self._values(_Place(value, where), seen)
            elif isinstance(key, int) and not isinstance(key, bool) and key >= 0:
                yield from self._along(here, (key,), seen)
            else:
                is_dict = isinstance(held, ast.DictComp)
                yield from self._along(here, ("value" if is_dict else "element",), seen)


def _compiles(node: ast.AST) -> bool:
    """Whether it is `re.compile(...)`."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "compile":
        return False
    func = node.func
    return (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id in _MODULES
    )


def _at_call(call: ast.Call, pattern: str) -> Iterator[Found]:
    """What is told of a call of `re` that is given a literal pattern."""
    text = _Text(str(first_line(call)), pattern, _flags(call))
    if _is_wide(text):
        yield "wide-pattern", pattern, call
    elif _is_slow(call, text):
        yield "quadratic-pattern", f"{text.place}, {pattern}", call


def _is_wide(text: _Text) -> bool:
    return matches_in_many_ways(text.pattern, bool(text.flags & re.VERBOSE))


def _is_slow(call: ast.Call, text: _Text) -> bool:
    """Whether a call searches with it, in place of matching at one place."""
    is_search = isinstance(call.func, ast.Attribute) and call.func.attr in _SEARCHES
    return is_search and searches_in_square_time(text.pattern, text.flags)


def _flags(call: ast.Call) -> int:
    """Those of the flags of a call of `re` that change what a pattern takes."""
    given = [*call.args[1:], *(each.value for each in call.keywords)]
    names = {last_name(e) for each in given for e in ast.walk(each) if isinstance(e, ast.expr)}
    return sum(flag for flag, written in _FLAGS.items() if not names.isdisjoint(written))


_FLAGS: Final[Mapping[int, Sequence[str]]] = {
    re.DOTALL.value: ("DOTALL", "S"),
    re.MULTILINE.value: ("MULTILINE", "M"),
    re.VERBOSE.value: ("VERBOSE", "X"),
}


def _is_method(node: ast.AST, names: Sequence[str]) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
    )


def _receiver(call: ast.Call) -> ast.expr:
    """`rules` of `rules.values()`."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, _Given]]:
    """The names and attributes that statements give something to, and what."""
    for node in nodes:
        for bound, value in bindings(node):
            yield from _unpacked(bound, value, ())
        if isinstance(node, ast.AugAssign):
            yield node.target, _Given(node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield from _of_loop(node.target, node.iter)
        elif _is_method(node, tuple(_ADDS_ONE)) and isinstance(node, ast.Call) and node.args:
            yield _receiver(node), _Given(ast.Tuple(elts=[node.args[0]], ctx=ast.Load()))
        elif _is_method(node, ("extend", "update")) and isinstance(node, ast.Call) and node.args:
            yield _receiver(node), _Given(node.args[0])


def _of_loop(target: ast.expr, source: ast.expr) -> Iterator[tuple[ast.expr, _Given]]:
    """What the variables of a loop are given."""
    name = last_name(source.func) if isinstance(source, ast.Call) else ""
    if isinstance(source, ast.Call) and isinstance(target, ast.Tuple):
        pair = target.elts
        if name == "enumerate" and source.args and len(pair) == 2:
            yield from _of_loop(pair[1], source.args[0])
            return
        if name == "items" and isinstance(source.func, ast.Attribute) and len(pair) == 2:
            yield from _unpacked(pair[0], source.func.value, ("element",))
            yield from _unpacked(pair[1], source.func.value, ("value",))
            return
        if name == "zip" and len(pair) == len(source.args):
            for each, iterated in zip(pair, source.args, strict=True):
                yield from _of_loop(each, iterated)
            return
    yield from _unpacked(target, source, ("element",))


def _unpacked(
    target: ast.expr, value: ast.expr, way: tuple[_Step, ...]
) -> Iterator[tuple[ast.expr, _Given]]:
    """The names of a target, each with the way to what it is given."""
    if isinstance(target, ast.Tuple | ast.List):
        if not any(isinstance(each, ast.Starred) for each in target.elts):
            for place, each in enumerate(target.elts):
                yield from _unpacked(each, value, (*way, place))
    else:
        yield target, _Given(value, way)
