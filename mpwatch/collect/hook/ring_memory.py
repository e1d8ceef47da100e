"""The ring of a process in memory (memfd), by the descriptor that its hook hands to observers.

The descriptor comes from another process, so nothing is read from it before it is known to be
memory that cannot shrink: a pipe or a file of a hung server would block the observer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

from mpwatch.collect.hook.ring_decode import RingReading, read_descriptor

_F_GET_SEALS, _F_SEAL_SHRINK = 1034, 2
"""fcntl(2). Python 3.10 to 3.15 have names for them only where the C library did."""
_DESCRIPTOR = struct.Struct("i")


def receive(sock: socket.socket, limit: int) -> tuple[bytes, int | None]:
    """Read from a socket, with the first descriptor that comes along (SCM_RIGHTS, unix(7)).

    The kernel closes any further ones, for which there is no room.

    Raises:
        OSError: As `recv`.
    """
    data, ancillary, _, _ = sock.recvmsg(
        limit, socket.CMSG_LEN(_DESCRIPTOR.size), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, content in ancillary:
        is_rights = level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        if is_rights and len(content) >= _DESCRIPTOR.size:
            return data, int(_DESCRIPTOR.unpack_from(content)[0])
    return data, None


class RingMemory:
    """A descriptor of the ring of one process; owns it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def is_ring(self, inode: object) -> bool:
        """Whether this is sealed memory with that inode number, as the hello named it."""
        try:
            seals = fcntl.fcntl(self._fd, _F_GET_SEALS)
            return bool(seals & _F_SEAL_SHRINK) and os.fstat(self._fd).st_ino == inode
        except OSError:
            return False  # EINVAL: not memory

    def read(self) -> RingReading:
        """All records that it holds; also after the process has ended."""
        return read_descriptor(self._fd, "the ring in memory")

    def close(self) -> None:
        """Close the descriptor."""
        with contextlib.suppress(OSError):
            os.close(self._fd)
