"""CUDA memory lent to other processes: what was sent, and not yet released.

Each tensor sent takes a counter, eight bytes in a file in /dev/shm that all sides map; the last
receiver to drop it brings it to zero, and only then may the memory be used anew (CudaIPCTypes.h,
torch 2.1 to 2.13). The counters are read as the file stands, so CUDA is not asked.
"""

from __future__ import annotations

import collections
import struct

from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..lifecycle.patcher import Undo
    from ..session import Session

REMEMBERED = 2048
COUNTER = struct.Struct("<q")
HEADER_BYTES = 64
"""Before the first counter: torch counts the users of the file itself there (MapAllocator.cpp)."""
FOLDER = "/dev/shm"
_SIZE, _FILE, _OFFSET, _HAS_EVENT = 2, 4, 5, 7
"""Positions in what `_share_cuda_` returns: bytes of the storage, name of the counter's file as
bytes, number of the counter in it, whether an event stands for the end of the writing."""


class Lent:
    """Storages sent by this process whose counters were not at zero when last looked at."""

    __slots__ = ("_folder", "_sent", "_system", "synchronised", "total")

    def __init__(self, system: Any, folder: str = FOLDER) -> None:
        self._system = system
        self._folder = folder
        self.total = 0
        self.synchronised = 0
        """Sends that waited for the stream instead: the thousand events were in use, or on ROCm."""
        self._sent: collections.deque[tuple[bytes, int, int, int]] = collections.deque(
            maxlen=REMEMBERED
        )

    def send(self, shared: tuple[Any, ...]) -> None:
        """Remember what `_share_cuda_` returned for a storage."""
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
            for fd in opened.values():
                if fd is not None:
                    self._system.os.close(fd)
        now_ns = self._system.monotonic_ns()
        return {
            "sent": self.total,
            "synchronised": self.synchronised,
            "unreleased": len(held),
            "bytes": sum(size for _, _, size, _ in held),
            "oldest_ns": max((now_ns - at_ns for *_, at_ns in held), default=None),
        }

    def _held(self, opened: dict[bytes, int | None]) -> list[tuple[bytes, int, int, int]]:
        """Those that somebody still holds; the others are forgotten."""
        held = []
        for _ in range(len(self._sent)):
            lent = self._sent.popleft()
            if lent[0] not in opened:
                opened[lent[0]] = self._open(lent[0])
            fd = opened[lent[0]]
            # A file that is gone had all its counters at zero.
            if fd is not None and self._counter(fd, lent[1]) > 0:
                held.append(lent)
                self._sent.append(lent)
        return held

    def _open(self, name: bytes) -> int | None:
        os = self._system.os
        path = self._folder.encode() + b"/" + name.lstrip(b"/")
        try:
            fd: int = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            return None
        return fd

    def _counter(self, fd: int, number: int) -> int:
        data = self._system.os.pread(fd, COUNTER.size, HEADER_BYTES + number * COUNTER.size)
        return int(COUNTER.unpack(data)[0]) if len(data) == COUNTER.size else 0


def _share_cuda(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    lent = Lent(session.system)
    session.gauges["cuda_lent"] = lent.show

    def _share_cuda_(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        try:
            lent.send(result)
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise
            session.patcher.missing["cuda_lent"] = f"{type(error).__name__}: {error}"[:200]
        return result

    return _share_cuda_


def _install(module: ModuleType, session: Session) -> Undo:
    undo = attribute("TypedStorage._share_cuda_", _share_cuda)(module, session)

    def undo_both() -> None:
        session.drop_gauges("cuda_lent")
        undo()

    return undo_both


POINTS = (Point("_share_cuda_", "torch.storage", _install),)
