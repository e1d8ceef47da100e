"""Identities of processes and segments that stay unique when numbers are reused; roles; states."""

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
"""The purpose of a process in a torch job."""

HookState: TypeAlias = Literal["absent", "pending", "ready", "silent", "gone"]
"""`pending`: injected, but the main thread has not run Python code since. `silent`: no answer."""


class ProcessId(NamedTuple):
    """The identity of a process: unlike a pid, it is never reused."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot, field 22 of `/proc/PID/stat`, proc_pid_stat(5)."""


class SegmentId(NamedTuple):
    """The identity of a shared-memory file: names differ between processes, inodes do not."""

    device: int
    """`st_dev` of the file."""
    inode: int

    def __str__(self) -> str:
        return f"{self.device:x}:{self.inode}"
