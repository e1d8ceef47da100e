"""Processes and shared-memory segments: identities that are never reused, roles, kinds, states."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

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
    "ray-worker",
    "other",
]
"""The purpose of a process in a torch job."""

HookState: TypeAlias = Literal["absent", "pending", "ready", "silent", "gone"]
"""`pending`: injected, but the main thread has not run Python code since. `silent`: no answer."""

SegmentKind: TypeAlias = Literal["torch", "torch-named", "psm", "semaphore", "nccl", "other"]
"""`torch` is unlinked at creation (file_descriptor strategy); `torch-named` still has its name."""

_TORCH_NAME = re.compile(r"torch_(\d+)_\d+(?:_\d+)?")


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


def torch_creator(name: str) -> int | None:
    """The pid in the name of a torch segment, as its creator saw itself; `None` of other files.

    `torch_PID_RANDOM_COUNTER` (torch/csrc/StorageSharing.cpp, torch 1.12 to 2.13), before that
    without the counter.
    """
    match = _TORCH_NAME.fullmatch(name)
    return int(match[1]) if match is not None else None


class SegmentUse(Struct, frozen=True):
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
