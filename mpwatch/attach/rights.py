"""Whether we may attach to a process; the facts live in `mpwatch.collect.rights`."""

from __future__ import annotations

from mpwatch.collect.rights import Obstacle, Rights, check, may_attach

__all__ = ["Obstacle", "Rights", "check", "may_attach"]
