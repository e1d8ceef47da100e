"""Every rule, by its id: each module in the folders of `rules`, and each known error message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from operator import attrgetter
from pkgutil import walk_packages
from types import ModuleType
from typing import NamedTuple, TypeAlias

from mpwatch.diagnose import rules
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.known_errors import KNOWN_ERRORS, KnownError, known_error
from mpwatch.model.findings import Finding

Check: TypeAlias = Callable[[Index], Iterator[Finding]]


class Rule(NamedTuple):
    """One failure that can be recognised."""

    id: str
    check: Check


def _check_message(known: KnownError, index: Index) -> Iterator[Finding]:
    return known_error(known, index.snapshot)


def rule_modules() -> Iterator[ModuleType]:
    """The modules in the folders of `rules`, one for each rule."""
    for found in walk_packages(rules.__path__, f"{rules.__name__}."):
        if not found.ispkg:
            yield import_module(found.name)


RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *(Rule(module.RULE, module.check) for module in rule_modules()),
            *(Rule(known.rule, partial(_check_message, known)) for known in KNOWN_ERRORS),
        ),
        key=attrgetter("id"),
    )
)
"""Sorted by id."""
