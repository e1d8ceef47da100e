"""The small counters of a process: `status` and `io`."""

from __future__ import annotations

import re
from typing import NamedTuple

from mpwatch.collect import procfs

_IO = re.compile(rb"^(rchar|wchar): (\d+)$", re.M)


class StatusCounters(NamedTuple):
    """Numbers of `/proc/PID/status`; `None` where it does not show them."""

    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    cpus_allowed: int | None = None
    """How many cpus it may run on."""
    signals_caught: int | None = None
    """`SigCgt` mask."""
    shmem_kb: int | None = None
    """Resident shared memory."""


NO_COUNTERS = StatusCounters()


def read_status(proc: str, pid: int) -> StatusCounters:
    """Read `status`; without numbers where that fails."""
    try:
        found = procfs.parse_status(procfs.read(f"{proc}/{pid}/status"))
    except OSError:
        return NO_COUNTERS
    shmem = found.get(b"RssShmem", b"").split()
    return StatusCounters(
        voluntary_switches=_int(found.get(b"voluntary_ctxt_switches")),
        involuntary_switches=_int(found.get(b"nonvoluntary_ctxt_switches")),
        cpus_allowed=_bits(found.get(b"Cpus_allowed")),
        signals_caught=_mask(found.get(b"SigCgt")),
        shmem_kb=int(shmem[0]) if shmem else None,
    )


def read_io(proc: str, pid: int) -> tuple[int | None, int | None]:
    """Bytes read and written by system calls, pipes included."""
    try:
        data = procfs.read(f"{proc}/{pid}/io", 1024)
    except OSError:
        return None, None
    found = dict(_IO.findall(data))
    return _int(found.get(b"rchar")), _int(found.get(b"wchar"))


def _int(text: bytes | None) -> int | None:
    return int(text) if text else None


def _mask(text: bytes | None) -> int | None:
    return int(text, 16) if text else None


def _bits(text: bytes | None) -> int | None:
    """How many bits a mask of cpus has."""
    return int(text.replace(b",", b""), 16).bit_count() if text else None
