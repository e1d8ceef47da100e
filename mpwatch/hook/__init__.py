"""The hook: lives inside the training, standard library only."""

from __future__ import annotations


def instrument() -> bool:
    """Bring the hook into this process."""
    return False


def uninstrument() -> bool:
    """Take the hook out of this process."""
    return True
