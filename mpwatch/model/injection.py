"""The plan of an injection: what it would do to each process of a job."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from mpwatch.model.ids import ProcessId, Role

LEFT_ALONE: Mapping[Role, str] = {
    "resource-tracker": "the resource tracker of multiprocessing is left alone",
    "forkserver": "the forkserver is left alone: its children load the hook themselves",
    "shm-manager": "torch_shm_manager is not a Python process",
    "compile-worker": "compile workers are left alone",
}
"""Roles of processes in which the hook would have no use, and why nothing is injected there."""
ALREADY_THERE = "already there"
"""The method of a process that has the hook already, so nothing would be done to it."""


class PlannedInjection(Struct, frozen=True):
    """One process of the plan."""

    process: ProcessId
    name: str
    role: Role
    method: str = ""
    """`pending call` or `already there`; empty if the process is left out."""
    reason: str = ""
    """Why the process is left out, one sentence."""
    fix: str = ""
    writes: tuple[str, ...] = ()
    """What would be written to its memory and to directories."""
    passes: bool = False
    """Whether the reason is temporary: a later plan may include it."""
    is_helper: bool = False
    """A process in which the hook would have no use: not Python, a helper of multiprocessing or
    torch, a process that has ended, mpwatch itself."""

    @property
    def would_be_injected(self) -> bool:
        """Whether something would be done to it."""
        return self.method not in ("", ALREADY_THERE)


class InjectionPlan(Struct, frozen=True):
    """The plan for a whole job."""

    processes: tuple[PlannedInjection, ...]
    patches: tuple[str, ...]
    """What the hook replaces while it is attached, as `module: name`; each once the program has
    imported that module."""

    def injectable(self) -> tuple[PlannedInjection, ...]:
        """The processes to which something would be done."""
        return tuple(each for each in self.processes if each.would_be_injected)

    def left_out(self) -> tuple[PlannedInjection, ...]:
        """The processes in which the hook would be useful and that would not get it."""
        return tuple(each for each in self.processes if not each.method and not each.is_helper)
