"""One demonstration program, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """The failure that a program shows, and the findings expected from a diagnosis."""

    name: str
    """The rule id of the failure, if it has one."""
    title: str
    """One line for `--list`."""
    expected: tuple[str, ...]
    """Rule ids that must all be found; none for a healthy program."""
    neighbour: str = ""
    """The difference with `--mended`, with which nothing is wrong; empty if there is no variant."""
    also: tuple[str, ...] = ()
    """Rule ids that also hold, so that finding them is no false alarm."""
    layer: str = "proc"
    """The least intrusive source that shows the failure: `proc`, `stacks` or `hook`."""
    shows_s: float = 10.0
    """Seconds from the line `ready` until an observer can see the failure."""
    damage_s: float | None = None
    """Seconds from `ready` to the damage; `None` if it is done by then or never is."""
    says: str = ""
    """Beginning of the line it prints when the damage is done; empty if it exits instead."""
    ends: str = ""
    """How it exits by itself; empty if it runs until its time is over."""
    needs: tuple[str, ...] = ()
    """What it needs besides Linux, Python and a CPU build of torch."""
    arguments: tuple[str, ...] = ()
    """Command line arguments of the program."""
    memory_mib: int = 50
    """The most memory it uses besides torch itself, `/dev/shm` included."""
    not_runnable: str = ""
    """Why there is no program for this entry; empty if there is one."""
    is_alone: bool = False
    """It loads the machine or leaves files on it: no other program may be measured meanwhile."""
    program: str = ""
    """Stem of the program's file, where several scenarios share one."""

    @property
    def stem(self) -> str:
        """The name of the program's file, without `.py`."""
        return self.program or self.name.replace("-", "_")
