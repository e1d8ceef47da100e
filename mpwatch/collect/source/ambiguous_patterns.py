"""Regular expressions for which a text without a match takes time with the square of its length.

Or worse. Python's `re` tries one way after the other in which the parts of a pattern can take a
text. How many ways there are is decided here on the position automaton of the pattern (Glushkov):
it is exponential where two different ways lead from a position back to it by the same text, and a
polynomial where the same text leads from a position back to itself, on to a later one, and from
that back to itself (Weber and Seidl, On the degree of ambiguity of finite automata, 1991).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

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

    def __init__(self, probes: Set[str]) -> None:
        self._probes = probes
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
            return self._position({_END}) if is_end else _EMPTY
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
            return {each for each in self._probes if each != "\n"}
        if op is sre.IN:
            return {each for each in self._probes if _is_in(argument, each)}
        return set()


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
