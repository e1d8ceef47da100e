"""Asks NCCL RAS what it knows of a job: which ranks do not respond, and which are behind.

Since NCCL 2.24 a thread of each process with a communicator listens on `localhost:28028`, or where
`NCCL_RAS_ADDR` says, and answers in text lines (`src/ras/client_support.cc` of 2.24.3 to 2.30.7,
`docs/userguide/source/troubleshooting/ras.rst`): `CLIENT PROTOCOL 2`, `TIMEOUT seconds`,
`SET FORMAT json` since 2.28.7, `VERBOSE STATUS`. It gathers the answer from the processes of all
machines, without CUDA calls that wait and without the GIL, and closes the connection. Nothing in
the job is changed. It counts collectives that were launched, not those that have ended.

All processes of a machine listen on the same port (SO_REUSEPORT), and the kernel picks one of them:
so nothing is sent unless each of them belongs to the job. One that is stopped never answers;
another connection may reach another one, as NCCL's own client does it (`src/ras/client.cc`).
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mpwatch.collect.job.nccl_answers import NotAnAnswer, parse
from mpwatch.collect.job.worker_server import NoAnswer
from mpwatch.collect.process import procfs
from mpwatch.model.collectives import NcclAnswer
from mpwatch.model.ids import ProcessId

VARIABLE = "NCCL_RAS_ADDR"
PORT = 28028
GREETING_S = 1.0
"""Until the first line, which takes no gathering; NCCL's client waits as long."""
ATTEMPTS = 4
GATHER_S = 3
"""How long RAS waits for a process that does not respond; 5 s if nothing is said."""
DEADLINE_S = 12.0
"""For the whole answer. RAS gives up 5 s after its own limit."""
ANSWER_BYTES = 8 << 20
"""JSON takes about 600 bytes for each rank of each communicator, text much less."""
_LINE_BYTES = 1024
"""A line that is longer is none of RAS's."""
_TABLE_BYTES = 4 << 20
"""Of a table of sockets; those that listen are its first rows."""
_FDS = 1 << 16
_ADDRESS = re.compile(r"(?:.*:)?(\d{1,5})", re.S)


class Listener(NamedTuple):
    """Where RAS of a job listens on this machine."""

    family: socket.AddressFamily
    host: str
    port: int


def port_of(environment: Mapping[str, str]) -> int | None:
    """The port on which RAS of a process listens; `None` if the variable names none."""
    named = environment.get(VARIABLE)
    if named is None:
        return PORT
    match = _ADDRESS.fullmatch(named)
    return int(match[1]) if match is not None and 0 < int(match[1]) < 1 << 16 else None


def find_listener(
    processes: Sequence[ProcessId], port: int, proc: str = "/proc"
) -> Listener | None:
    """Where RAS listens; `None` if nothing does, or if any listener is of another process.

    Args:
        processes: Those of the job that may listen there.
        port: The port.
        proc: Where procfs is mounted.

    Raises:
        OSError: The first of the processes has ended, or is hidden from this one.
    """
    first = f"{proc}/{processes[0].pid}"
    if not os.path.samefile(f"{first}/ns/net", f"{proc}/self/ns/net"):
        return None  # its localhost is another one
    found = list(_listeners(first, port))
    inodes = {inode for inode, _ in found}
    if not found or not inodes <= set(_sockets(processes, proc)):
        return None
    return found[0][1]


def ask(listener: Listener) -> NcclAnswer:
    """What RAS says; returns within `DEADLINE_S` and a second for each of `ATTEMPTS`.

    Raises:
        NoAnswer: It does not answer in time, or not in a form that is known.
    """
    for _ in range(ATTEMPTS):
        try:
            with socket.socket(listener.family, socket.SOCK_STREAM) as connection:
                ras = _Connection(connection)
                connection.settimeout(GREETING_S)
                connection.connect((listener.host, listener.port))
                if ras.is_greeted():
                    return parse(ras.answer())
        except (OSError, NotAnAnswer) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from None
    raise NoAnswer(f"none of {ATTEMPTS} connections was answered")


class _Connection:
    """One connection to RAS."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._end_s = time.monotonic() + DEADLINE_S
        self._received = bytearray()

    def is_greeted(self) -> bool:
        """Whether RAS answers the greeting; not if the process is stopped.

        Raises:
            NotAnAnswer: What listens there is not RAS.
            OSError: The connection was closed or refused.
        """
        limit_s = time.monotonic() + GREETING_S
        try:
            line = self._reply(b"CLIENT PROTOCOL 2", limit_s)
        except TimeoutError:
            return False
        if not line.startswith(b"SERVER PROTOCOL "):
            raise NotAnAnswer("it does not greet as NCCL RAS does")
        return True

    def answer(self) -> bytes:
        """All that RAS sends, as JSON if it knows that.

        Raises:
            NotAnAnswer: It is longer than any known.
            OSError: It did not end in time.
        """
        self._reply(b"TIMEOUT %d" % GATHER_S, self._end_s)
        self._reply(b"SET FORMAT json", self._end_s)  # an error before 2.28.7: text then
        self._connection.sendall(b"VERBOSE STATUS\n")
        while self._receive(self._end_s):
            if len(self._received) > ANSWER_BYTES:
                raise NotAnAnswer(f"it is longer than {ANSWER_BYTES >> 20} MB")
        return bytes(self._received)

    def _reply(self, command: bytes, end_s: float) -> bytes:
        """The line that answers a command."""
        self._connection.sendall(command + b"\n")
        while b"\n" not in self._received:
            if len(self._received) > _LINE_BYTES:
                raise NotAnAnswer("a line is longer than any of NCCL RAS")
            if not self._receive(end_s):
                raise NotAnAnswer("it closed the connection")
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return line

    def _receive(self, end_s: float) -> bool:
        """Receive more; `False` at the end."""
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left_s)
        part = self._connection.recv(1 << 16)
        self._received += part
        return bool(part)


# --- which sockets -------------------------------------------------------------------------------


def _listeners(process: str, port: int) -> Iterator[tuple[bytes, Listener]]:
    """The sockets that listen on a port: inode and where."""
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in procfs.read(f"{process}/net/{table}", _TABLE_BYTES).splitlines()[1:]:
            fields = line.split(None, 10)
            # sl, local address, remote address, state, ..., inode: proc(5), the same in both.
            if len(fields) > 9 and fields[3] == procfs.TCP_LISTEN:
                address, _, number = fields[1].partition(b":")
                if procfs.number(number, 16) == port:
                    yield fields[9], Listener(family, _host(address, family), port)


def _host(address: bytes, family: socket.AddressFamily) -> str:
    """An address of this machine at which a listener is reached."""
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    host = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _sockets(processes: Sequence[ProcessId], proc: str) -> Iterator[bytes]:
    """The inodes of sockets of which some processes have descriptors."""
    left = _FDS
    for process in processes:
        folder = os.fsencode(f"{proc}/{process.pid}/fd")
        try:
            names = os.listdir(folder)[:left]
        except OSError:
            continue  # it has ended; a listener of another user's process belongs to no one
        left -= len(names)
        for name in names:
            try:
                link = os.readlink(folder + b"/" + name)
            except OSError:
                continue  # closed since
            if link.startswith(b"socket:["):
                yield link[8:-1]
