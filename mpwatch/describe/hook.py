"""Results of detaching the hook, in words."""

from __future__ import annotations


def still_attached(count: int, total: int) -> str:
    """The result of a detach that failed in some processes, without full stop."""
    return f"The hook is still attached in {count} of {total} processes"
