"""The processes of a Ray node: those below its raylet, and the drivers that are connected to it.

Checked with Ray 2.60: workers are children of the raylet, whose arguments name the folder of its
session; a driver keeps `logs/python-core-driver-NUMBER_PID.log` of that folder open for as long as
it is connected, also where it started the raylet itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from mpwatch.collect.process import procfs
from mpwatch.model.ids import ProcessId

RAYLET = "raylet"
DRIVERS_LIMIT = 32
_SOCKET = re.compile(r"--raylet_socket_name=(/.*)/sockets/[^/]*")
_DRIVER_LOG = re.compile(r"python-core-driver-[0-9a-f]+_([0-9]{1,10})\.log")
_OWN = "mpwatch.nodes.launchers.ray_helper"


def find_ray_roots(raylet_pid: int, proc: str = "/proc") -> list[ProcessId]:
    """The raylet and its drivers on this machine, without what is below another one of them.

    Empty once the raylet has ended. Where several raylets of one session run on this machine, as
    in tests of Ray programs, the drivers belong to the oldest.
    """
    raylet = procfs.read_stat(proc, raylet_pid)
    if raylet is None or raylet.state in "ZX":
        return []
    session = _session(proc, raylet_pid)
    found = {raylet.pid: raylet.process}
    if session and _is_oldest(proc, raylet, session):
        for pid in _driver_pids(proc, session):
            stat = procfs.read_stat(proc, pid)
            if stat is not None and stat.state not in "ZX":
                found[pid] = stat.process
    return [
        process
        for pid, process in found.items()
        if not any(above in found for above in _above(proc, pid))
    ]


def _session(proc: str, raylet_pid: int) -> str:
    """The folder of the raylet's session, empty if its arguments do not say it."""
    try:
        cmdline = procfs.read_cmdline(proc, raylet_pid)
    except OSError:
        return ""
    found = (_SOCKET.fullmatch(argument) for argument in cmdline)
    return next((match.group(1) for match in found if match is not None), "")


def _is_oldest(proc: str, raylet: procfs.Stat, session: str) -> bool:
    for pid in procfs.pids(proc):
        stat = procfs.read_stat(proc, pid)
        if stat is None or stat.name != RAYLET or stat.pid == raylet.pid:
            continue
        is_older = (stat.start_ticks, stat.pid) < (raylet.start_ticks, raylet.pid)
        if is_older and stat.state not in "ZX" and _session(proc, pid) == session:
            return False
    return True


def _driver_pids(proc: str, session: str) -> Iterator[int]:
    """The living drivers of a session, but for those of mpwatch, newest first."""
    folder = os.path.join(session, "logs")
    try:
        matches = [_DRIVER_LOG.fullmatch(name) for name in os.listdir(folder)]
    except OSError:
        return
    pids = sorted((int(each.group(1)) for each in matches if each is not None), reverse=True)
    for pid in pids[:DRIVERS_LIMIT]:
        try:
            if _has_open(proc, pid, folder) and _OWN not in " ".join(
                procfs.read_cmdline(proc, pid)
            ):
                yield pid
        except OSError:
            continue


def _has_open(proc: str, pid: int, folder: str) -> bool:
    """Whether a process is a driver of this session, and not another one with the same number."""
    prefix = os.path.join(folder, "python-core-driver-")
    for descriptor in os.listdir(f"{proc}/{pid}/fd"):
        try:
            if os.readlink(f"{proc}/{pid}/fd/{descriptor}").startswith(prefix):
                return True
        except OSError:
            continue
    return False


def _above(proc: str, pid: int) -> Iterator[int]:
    """The ancestors of a process."""
    seen = {pid}
    stat = procfs.read_stat(proc, pid)
    while stat is not None and stat.parent_pid > 1 and stat.parent_pid not in seen:
        seen.add(stat.parent_pid)
        yield stat.parent_pid
        stat = procfs.read_stat(proc, stat.parent_pid)
