"""Shared-memory files held by one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mpwatch.model.ids import SegmentId

SegmentKind: TypeAlias = Literal["torch", "torch-named", "psm", "semaphore", "nccl", "other"]
"""`torch` is unlinked at creation (file_descriptor strategy); `torch-named` still has its name."""


@dataclass(frozen=True, slots=True)
class SegmentUse:
    """One shared-memory file in one process."""

    segment: SegmentId
    path: str
    kind: SegmentKind
    is_linked: bool
    creator_pid: int | None
    """From the name `torch_<pid>_...`, as a pid in the observer's namespace."""
    fds: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    """Mapped address ranges, start and end."""
    size_bytes: int | None = None
    """`st_size`, or the mapped length if the file cannot be examined."""
    allocated_bytes: int | None = None
    """`st_blocks * 512`; less than the size if the file is sparse."""
    changed_wall_s: float | None = None
    """`st_ctime`: when it was created or last unlinked."""
