"""CUDA memory shared with other processes that is not released yet.

Each tensor sent uses a counter, eight bytes in a file in /dev/shm that all sides map. It becomes
zero when the last receiver frees the tensor, and only then is the memory reused (CudaIPCTypes.h,
torch 2.1 to 2.13). The counters are read from that file, without a call of CUDA.
"""

from __future__ import annotations

import collections
import struct

from ..safe import foreign_exceptions
from ..transport import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REMEMBERED = 2048
COUNTER = struct.Struct("<q")
HEADER_BYTES = 64
"""Offset of the first counter; before it torch counts the file's users (MapAllocator.cpp)."""
FOLDER = "/dev/shm"
_SIZE, _FILE, _OFFSET, _HAS_EVENT = 2, 4, 5, 7
"""Positions in the result of `_share_cuda_`: bytes of the storage, name of the counter's file as
bytes, number of the counter in it, whether an event marks the end of the writing."""


class Lent:
    """Storages sent by this process whose counters were not zero when last read."""

    __slots__ = ("_folder", "_sent", "_system", "synchronised", "total")

    def __init__(self, system: Any, folder: str = FOLDER) -> None:
        self._system = system
        self._folder = folder
        self.total = 0
        self.synchronised = 0
        """Sends that waited for the stream: all thousand events were in use, or ROCm."""
        self._sent: collections.deque[tuple[bytes, int, int, int]] = collections.deque(
            maxlen=REMEMBERED
        )

    def send(self, shared: tuple[Any, ...]) -> None:
        """Remember a storage by the result of `_share_cuda_`."""
        file, number, size = shared[_FILE], shared[_OFFSET], shared[_SIZE]
        self.total += 1
        self.synchronised += not shared[_HAS_EVENT]
        self._sent.append((bytes(file), int(number), int(size), self._system.monotonic_ns()))

    def show(self) -> dict[str, Any] | None:
        """The gauge `cuda_lent`; see `wire`."""
        if not self.total:
            return None
        opened: dict[bytes, int | None] = {}
        try:
            held = self._held(opened)
        finally:
            for name, fd in opened.items():
                if fd is not None:
                    runtime_dir.close(self._system, fd, self._path(name))
        now_ns = self._system.monotonic_ns()
        return {
            "sent": self.total,
            "synchronised": self.synchronised,
            "unreleased": len(held),
            "bytes": sum(size for _, _, size, _ in held),
            "oldest_ns": max((now_ns - at_ns for *_, at_ns in held), default=None),
        }

    def _held(self, opened: dict[bytes, int | None]) -> list[tuple[bytes, int, int, int]]:
        """Storages that a receiver still holds; the others are forgotten.

        Two threads may be here at once: the hook's reads the gauge for an observer while the main
        thread exits. So a storage is removed only once it is known to be released.
        """
        held: list[tuple[bytes, int, int, int]] = []
        released: list[tuple[bytes, int, int, int]] = []
        for lent in tuple(self._sent):
            if lent[0] not in opened:
                opened[lent[0]] = self._open(lent[0])
            fd = opened[lent[0]]
            # A file is removed once all its counters are zero.
            is_held = fd is not None and self._counter(fd, lent[1]) > 0
            (held if is_held else released).append(lent)
        for lent in released:
            try:
                self._sent.remove(lent)
            except ValueError as error:
                # Otherwise the other thread has removed it.
                if not foreign_exceptions.is_ours(error):
                    raise
        return held

    def _open(self, name: bytes) -> int | None:
        os = self._system.os
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd: int = os.open(self._path(name), flags)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            return None
        return fd

    def _path(self, name: bytes) -> bytes:
        return self._folder.encode() + b"/" + name.lstrip(b"/")

    def _counter(self, fd: int, number: int) -> int:
        data = self._system.os.pread(fd, COUNTER.size, HEADER_BYTES + number * COUNTER.size)
        return int(COUNTER.unpack(data)[0]) if len(data) == COUNTER.size else 0
