"""Who is who: identities that stay true when numbers are reused."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Role: TypeAlias = Literal[
    "main",
    "loader-worker",
    "spawned",
    "rank",
    "launcher",
    "forkserver",
    "resource-tracker",
    "shm-manager",
    "compile-worker",
    "pool-worker",
    "other",
]
"""What a process is for in a torch job."""

HookState: TypeAlias = Literal["absent", "pending", "ready", "silent", "gone"]
"""`pending`: queued, the main thread has not reached the interpreter. `silent`: no answer."""


class ProcessId(NamedTuple):
    """A process for as long as it lives; a bare pid may be reused, this may not."""

    pid: int
    start_ticks: int
    """Field 22 of `/proc/PID/stat`: clock ticks since boot, fixed for life."""


class SegmentId(NamedTuple):
    """A shared-memory file by what never changes: names differ between processes, inodes do not."""

    device: int
    """`st_dev` of the file."""
    inode: int

    def __str__(self) -> str:
        return f"{self.device:x}:{self.inode}"
