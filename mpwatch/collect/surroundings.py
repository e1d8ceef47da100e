"""What readings of all processes of one moment share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpwatch.collect import memory
from mpwatch.collect.pacing import SLOW_S
from mpwatch.collect.segments import ExtentCache
from mpwatch.collect.sockets import SocketTable


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
