"""The processes that listen on the rendezvous ports of a job: another job, or an orphan of one.

Only the ports that a job names are examined, in its own network namespace. Owners are searched for
only if a process listens on such a port.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from mpwatch.collect.process import procfs
from mpwatch.model.host import PortOwner
from mpwatch.model.sanitize import clean

DEFAULT_PORT = 29500
"""The default of torch.distributed."""
COMMAND_CHARS = 200
_LISTEN = b"0A"
_OPTIONS = re.compile(
    rb"--(?:master[-_]port|rdzv[-_]endpoint|rdzv[-_]backend[-_]endpoint)(?:=|\0)(?:[^\0]*:)?(\d+)"
)
_VARIABLE = re.compile(rb"(?:^|\0)MASTER_PORT=(\d+)")


def named_ports(proc: str, pid: int) -> frozenset[int]:
    """The rendezvous ports in a command line or environment, and torch's default one."""
    words = b""
    for name in ("environ", "cmdline"):
        try:
            words += b"\0" + procfs.read(f"{proc}/{pid}/{name}")
        except OSError:
            continue
    found = (*_OPTIONS.findall(words), *_VARIABLE.findall(words))
    return frozenset((DEFAULT_PORT, *(int(port) for port in found if len(port) < 6)))


def port_owners(proc: str, pid: int) -> tuple[PortOwner, ...] | None:
    """The listeners on the ports a job names.

    Args:
        proc: Path of procfs.
        pid: A process of the job; its network namespace counts.

    Returns:
        One owner for each process and port; `None` if the tables cannot be read.
    """
    ports = named_ports(proc, pid)
    try:
        listening = dict(_listeners(proc, pid, ports))
    except OSError:
        return None
    return tuple(_holders(proc, listening)) if listening else ()


def _listeners(proc: str, pid: int, ports: frozenset[int]) -> Iterator[tuple[bytes, int]]:
    """The listening sockets on some ports: the text of a link to each, and its port."""
    for table in ("tcp", "tcp6"):
        for line in procfs.read(f"{proc}/{pid}/net/{table}").splitlines()[1:]:
            fields = line.split()
            # sl, local address, remote address, state, ..., inode: proc(5), the same in both.
            if len(fields) > 9 and fields[3] == _LISTEN:
                port = procfs.number(fields[1].rpartition(b":")[2], 16)
                if port in ports:
                    yield b"socket:[" + fields[9] + b"]", port


def _holders(proc: str, listening: dict[bytes, int]) -> Iterator[PortOwner]:
    """The processes that hold one of these sockets, as far as they may be read."""
    for name in filter(str.isdigit, os.listdir(proc)):
        folder = f"{proc}/{name}/fd"
        try:
            links = {os.readlink(os.fsencode(f"{folder}/{fd}")) for fd in os.listdir(folder)}
            ports = {listening[link] for link in links & listening.keys()}
            if ports:
                words = procfs.read(f"{proc}/{name}/cmdline").replace(b"\0", b" ").strip()
                parent = procfs.parent_in(procfs.read_stat_line(proc, int(name)))
                for port in sorted(ports):
                    yield PortOwner(port, int(name), clean(words, COMMAND_CHARS), parent)
        except OSError:
            continue  # it has exited, or belongs to another user
