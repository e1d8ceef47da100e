"""One thing to break."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """A replacement in one file, and the tests that must fail with it."""

    invariant: int
    what: str
    """What is wrong then."""
    file: str
    before: str
    """Occurs once in the file."""
    after: str
    tests: tuple[str, ...]


def mutate(text: str, mutation: Mutation) -> str:
    """The text with the mutation in.

    Raises:
        LookupError: What it replaces is not there, or not once.
    """
    count = text.count(mutation.before)
    if count != 1:
        raise LookupError(f"{mutation.file} has {mutation.before!r} {count} times, not once")
    return text.replace(mutation.before, mutation.after)
