"""What injecting the hook into a job would do, process by process, before it is done."""

from __future__ import annotations

from dataclasses import dataclass

from mpwatch.model.ids import ProcessId, Role

ALREADY_THERE = "already there"
"""The method of a process that has a hook: nothing would be done to it."""


@dataclass(frozen=True, slots=True)
class PlannedInjection:
    """One process of the plan."""

    process: ProcessId
    name: str
    role: Role
    method: str = ""
    """`remote_exec`, `pending call` or `already there`; empty where the process is left out."""
    reason: str = ""
    """Why it is left out, one sentence."""
    fix: str = ""
    writes: tuple[str, ...] = ()
    """What would be written: into its memory, and into which directories."""
    is_helper: bool = False
    """A process in which a hook would have no use: not Python, a helper of multiprocessing or
    torch, one that has ended, mpwatch itself."""

    @property
    def would_be_injected(self) -> bool:
        """Whether something would be done to it."""
        return self.method not in ("", ALREADY_THERE)


@dataclass(frozen=True, slots=True)
class InjectionPlan:
    """The whole job."""

    processes: tuple[PlannedInjection, ...]
    patches: tuple[str, ...]
    """What the hook replaces while it is attached, as `module: name`; each once the program has
    imported that module."""

    def injectable(self) -> tuple[PlannedInjection, ...]:
        """The processes to which something would be done."""
        return tuple(each for each in self.processes if each.would_be_injected)

    def left_out(self) -> tuple[PlannedInjection, ...]:
        """The processes that could use a hook and would not get one, each with its reason."""
        return tuple(each for each in self.processes if not each.method and not each.is_helper)
