"""The limits and rights that decide whether a job will run, read before anything runs.

With a pid they are read as that process sees them: through its own root directory, limits and
control group. Nothing is changed and nothing is traced.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from mpwatch.collect.host import doctor_checks
from mpwatch.collect.host.doctor_checks import hook_folder, tracing
from mpwatch.collect.host.gpu import GpuCollector, GpuReading
from mpwatch.collect.host.host import HostCollector
from mpwatch.collect.process import fds, procfs
from mpwatch.collect.process.identify import python_version, uid_inside
from mpwatch.model.doctor_check import Check

T = TypeVar("T")

_VARIABLES = frozenset((b"TMPDIR", b"OMP_NUM_THREADS", b"XDG_RUNTIME_DIR"))
_MAPS_BYTES_LIMIT = 64 << 20


def examine(pid: int | None, proc: str = "/proc") -> tuple[Check, ...]:
    """Look at everything once.

    Args:
        pid: A process to look through; `None` for this one.
        proc: Where procfs is mounted.
    """
    subject = os.getpid() if pid is None else pid
    environment = _environment(pid, proc)
    known = environment or {}
    status = procfs.parse_status(_attempt(lambda: procfs.read(f"{proc}/{subject}/status")) or b"")
    mask = status.get(b"Cpus_allowed", b"").replace(b",", b"")
    host = HostCollector(proc).collect(
        subject,
        known.get("TMPDIR"),
        int(mask, 16).bit_count() if mask else None,
        time.monotonic(),
        time.time(),
    )
    owner = int((status.get(b"Uid", b"").split() or [b"0"])[0])
    return (
        _open_files(pid, subject, proc),
        doctor_checks.mappings(host.max_map_count, _only(pid, lambda it: _map_count(proc, it))),
        doctor_checks.shm_room(host.shm),
        doctor_checks.shm_inodes(host.shm),
        doctor_checks.cgroup_memory(host.cgroup, host.problems),
        doctor_checks.cgroup_pids(host.cgroup, host.problems),
        tracing(pid, proc),
        doctor_checks.start_method(_version(pid, proc)),
        doctor_checks.cores_and_threads(
            host.cpu_count, host.usable_cpus, known.get("OMP_NUM_THREADS")
        ),
        gpu_driver(GpuCollector().collect()),
        doctor_checks.unknown("TMPDIR", "the environment is hidden")
        if environment is None
        else doctor_checks.temporary_folder(environment.get("TMPDIR")),
        hook_folder(
            owner,
            known.get("XDG_RUNTIME_DIR"),
            f"{proc}/{subject}/root",
            _only(pid, lambda it: uid_inside(owner, it, proc)),
        ),
    )


def gpu_driver(reading: GpuReading) -> Check:
    """Whether there are GPUs and what they are."""
    if reading.gpus is None:
        reason = " ".join(reading.problems) or "No driver answered."
        return Check("GPU", "note", "none", f"{reason} Jobs on the CPU need none.")
    names = ", ".join(sorted({gpu.name for gpu in reading.gpus}))
    value = f"{len(reading.gpus)} x {names}" if reading.gpus else "driver without a device"
    meaning = "Memory and use of each process are shown where the driver tells them."
    return Check("GPU", "ok", value, meaning)


def _open_files(pid: int | None, subject: int, proc: str) -> Check:
    limits = _attempt(lambda: fds.limits(proc, subject))
    if limits is None:
        return doctor_checks.unknown("open files", "the limits of the process are hidden")
    return doctor_checks.open_files(*limits, _only(pid, lambda it: fds.count(proc, it)))


def _environment(pid: int | None, proc: str) -> Mapping[str, str] | None:
    """The variables that matter; `None` where they may not be read."""
    if pid is None:
        return os.environ
    return _attempt(lambda: procfs.read_environment(proc, pid, _VARIABLES))


def _version(pid: int | None, proc: str) -> tuple[int, int] | None:
    """The version of the Python that runs, or would run, the job."""
    if pid is None:
        return sys.version_info[:2]
    exe = _attempt(lambda: os.readlink(f"{proc}/{pid}/exe"))
    major, _, minor = (python_version(proc, pid, exe) or "").partition(".") if exe else ("", "", "")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _map_count(proc: str, pid: int) -> int:
    return procfs.read(f"{proc}/{pid}/maps", _MAPS_BYTES_LIMIT).count(b"\n")


def _only(pid: int | None, read: Callable[[int], T]) -> T | None:
    """A reading that means something only for a process that was named."""
    return None if pid is None else _attempt(lambda: read(pid))


def _attempt(read: Callable[[], T]) -> T | None:
    """The reading, or `None` where it is hidden or the process is gone."""
    try:
        return read()
    except OSError:
        return None
