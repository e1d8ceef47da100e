"""What readings of all processes of one moment share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpwatch.collect.process import memory
from mpwatch.collect.process.schedule import SLOW_S
from mpwatch.collect.process.segments import ExtentCache
from mpwatch.collect.process.sockets import SocketTable
from mpwatch.model.ids import ProcessId


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One moment, and what is kept from one to the next."""

    proc: str
    at_s: float
    wall_s: float
    syscalls: dict[int, str]
    max_map_count: int | None
    extents: ExtentCache
    sockets: SocketTable
    cpu_clock: Callable[[], float]
    rollups: memory.Rollups | None = None
    """`smaps_rollup` of everybody, where all are read at once."""
    slow_s: float = SLOW_S
    """How old descriptors and mappings that hardly moved may become: less in a small job."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one reading of the tree shall contain; a count of `None` means all processes.

    Whatever is not read is carried over from the last time, with the moment it was read. Counts
    bound the cost of one reading: those with the oldest reading and the most news come first.
    """

    threads: bool = True
    """States, wait channels and what blocked threads wait for."""
    links_count: int | None = 8
    """Resolve the descriptors of at most this many processes in which their number has moved."""
    maps_count: int | None = 1
    """Parse the mappings of at most this many processes in which something has moved."""
    memory_count: int | None = 1
    """Read `smaps_rollup` of at most this many processes, at most every two seconds."""
    memory_ahead: bool = False
    """Begin to read everybody's memory in the background: the next reading of all has it."""
    gpu: bool = True
    looked_at: ProcessId | None = None
    """The process a person looks at: always read in full."""
    is_full: bool = False
    """Read everything anew, whatever it costs; memory only if its count is `None`."""

    @classmethod
    def everything(cls) -> Wanted:
        """All of it, now: for a dump."""
        return cls(links_count=None, maps_count=None, memory_count=None, is_full=True)
