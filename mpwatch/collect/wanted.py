"""What to read this time: cheap parts always, expensive ones as often as they are worth it."""

from __future__ import annotations

from dataclasses import dataclass

from mpwatch.model.ids import ProcessId


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
