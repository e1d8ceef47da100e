"""The rights to attach to a process, from `mpwatch.collect.host.ptrace_access`."""

from __future__ import annotations

from mpwatch.collect.host.ptrace_access import Obstacle, Rights, check, may_attach

__all__ = ["Obstacle", "Rights", "check", "may_attach"]
