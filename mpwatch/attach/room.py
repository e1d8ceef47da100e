"""A few hundred unused bytes in another process, for a text that must outlive the visit.

A loaded file's writable data seldom ends at a page boundary. The kernel maps whole pages, and what
lies behind the end is zero, private, and nobody's: glibc uses it only in its own loader
(elf/dl-minimal.c), which is left alone; musl gives all of it to malloc, so there it is not used.
Using it leaves no mapping behind, and it can be cleared without stopping the target.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from mpwatch.attach import elf, held
from mpwatch.attach.elf import PAGE_BYTES, Mapping, Module
from mpwatch.attach.outcome import Refused

_MARGIN_BYTES = 64
_WRITABLE = 2  # PF_W
_BRIEF_BYTES = 65536
"""More is only read while the target runs, and then others may have the GIL."""


class TargetMemory:
    """Reads and writes memory of another process without stopping it."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        """Open it.

        Raises:
            OSError: There are no rights; opening checks the same ones as ptrace.
        """
        self._fd = os.open(f"{proc}/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def read(self, address: int, count: int) -> bytes:
        """Read exactly so many bytes.

        Raises:
            OSError: They are not mapped.
        """
        if count > _BRIEF_BYTES:
            return os.pread(self._fd, count, address)
        return held.read(self._fd, count, address)

    def write(self, address: int, content: bytes) -> None:
        """Write all of it.

        Raises:
            OSError: It is not mapped.
        """
        if held.write(self._fd, content, address) != len(content):
            raise OSError(f"only a part of {len(content)} bytes could be written")

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


def find_room(
    pid: int,
    loaded: Iterable[Module],
    memory: TargetMemory,
    content: bytes,
    proc: str = "/proc",
) -> int:
    """An address where this text can lie, or already lies.

    Raises:
        Refused: There is none.
    """
    loaded = tuple(loaded)
    # ld-musl-x86_64.so.1, or /usr/lib/x86_64-linux-musl/libc.so where that is a link.
    if any("musl" in module.path for module in loaded):
        raise Refused(
            "its C library (musl) leaves no unused bytes for the call's text",
            "start the job with mpwatch run, or use Python 3.14",
        )
    for module in sorted(loaded, key=lambda m: not m.name.startswith(("libpython", "python"))):
        if module.name.startswith("ld-"):
            continue
        try:
            start, end = _tail(module, elf.layout(pid, module, frozenset(), proc))
            if end - start < len(content):
                continue
            if memory.read(start, len(content)) in (content, bytes(len(content))):
                return start
        except (Refused, OSError):
            continue
    raise Refused("no loaded file has unused bytes for the call's text")


def clear(
    pid: int,
    memory: TargetMemory,
    content: bytes,
    address: int | None = None,
    proc: str = "/proc",
) -> bool:
    """Clear the text if it is still there; whether it was.

    Args:
        pid: The target.
        memory: Its memory.
        content: The text.
        address: Where it was put; `None` to look for it.
        proc: Where procfs is.

    Raises:
        OSError: The process is gone, or nothing is mapped there any more.
    """
    if address is None:
        loaded = elf.modules(elf.read_mappings(pid, proc))
        try:
            address = find_room(pid, loaded, memory, content, proc)
        except Refused:
            return False
    if memory.read(address, len(content)) != content:
        return False
    memory.write(address, bytes(len(content)))
    return True


def _tail(module: Module, layout: elf.Layout) -> tuple[int, int]:
    """Start and end of the unused bytes behind a file's writable data."""
    writable = [s for s in layout.segments if s[4] & _WRITABLE and s[3]]
    if not writable:
        return 0, 0
    _, address, _, size, _ = max(writable, key=lambda s: s[1])
    data_end = module.bias(layout) + address + size
    start = (data_end + _MARGIN_BYTES + 15) & ~15
    return start, (data_end + PAGE_BYTES - 1) & -PAGE_BYTES


def mapping_at(mappings: Iterable[Mapping], address: int) -> Mapping | None:
    """The mapping an address lies in."""
    return next((m for m in mappings if m.start <= address < m.end), None)
