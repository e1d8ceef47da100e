"""Every rule there is, by its id: the imports below are the list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import NamedTuple, TypeAlias

from mpwatch.diagnose import rules
from mpwatch.diagnose.known_errors import KNOWN_ERRORS, KnownError, known_error
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

Check: TypeAlias = Callable[[Snapshot, History], Iterator[Finding]]


class Rule(NamedTuple):
    """One failure that can be recognised."""

    id: str
    check: Check


def _of_message(known: KnownError, snapshot: Snapshot, history: History) -> Iterator[Finding]:
    del history
    return known_error(known, snapshot)


RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *(
                Rule(module.RULE, module.check)
                for module in vars(rules).values()
                if isinstance(module, ModuleType)
            ),
            *(Rule(known.rule, partial(_of_message, known)) for known in KNOWN_ERRORS),
        ),
        key=attrgetter("id"),
    )
)
"""All of them, by id: one a module of `rules`, and one a row of the table of known errors."""
