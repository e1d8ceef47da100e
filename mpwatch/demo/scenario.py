"""One demonstration program, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """What a program of this package shows, and what a diagnosis of it has to say."""

    name: str
    """The failure's id where it has one."""
    title: str
    """One line for `--list`."""
    expected: tuple[str, ...]
    """Rule ids of which all must be found; none for a healthy program."""
    neighbour: str = ""
    """What the program does otherwise when it is run with `--mended`, so that nothing is wrong."""
    also: tuple[str, ...] = ()
    """Rule ids that are true of it besides, so that finding them is no false alarm."""
    layer: str = "proc"
    """The least intrusive layer that can tell: `proc`, `stacks` or `hook`."""
    shows_s: float = 10.0
    """Seconds from the line `ready` until an observer can tell."""
    damage_s: float | None = None
    """Seconds from `ready` until the damage is done, `None` if it is done by then or never is."""
    says: str = ""
    """How the line begins that it prints when the damage is done; empty if it ends instead."""
    ends: str = ""
    """How it ends by itself; empty if it runs until its time is over."""
    needs: tuple[str, ...] = ()
    """What the machine has to have beyond Linux, Python and a CPU build of torch."""
    arguments: tuple[str, ...] = ()
    """Command line arguments of the program."""
    memory_mib: int = 50
    """The most it takes beyond what torch itself takes, `/dev/shm` included."""
    not_runnable: str = ""
    """Why there is no program for this entry; empty if there is one."""
    is_alone: bool = False
    """It loads the machine or leaves something on it: nothing else is to be measured beside it."""
    program: str = ""
    """Stem of the program's file, where several scenarios share one."""

    @property
    def stem(self) -> str:
        """The file of this package that holds the program, without `.py`."""
        return self.program or self.name.replace("-", "_")
