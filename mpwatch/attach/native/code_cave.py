"""Code caves: unused bytes in the memory of another process, for injected code and data.

The kernel maps whole pages of a loaded file, so two places have unused bytes:

- Behind the end of its writable data: private, and zero, or where the file has no zeroed data the
  next bytes of the file. glibc uses them only in its own loader (elf/dl-minimal.c), which is
  excluded; musl gives them to malloc, so musl is not supported.
- Behind the end of its code: the next bytes of the file. A store through /proc/PID/mem gives the
  process a private copy of that page, as a debugger's breakpoint does, and leaves the file alone.
  Where the kernel refuses that store to a process that does not trace the target (the setting
  `proc_mem.force_override` of Linux 6.12, `ptrace` in Debian's 7.2), the tracer writes there
  while the thread is stopped.

Neither needs a new mapping, nor memory that is writable and executable at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from mpwatch.attach.native import elf, gil_syscalls, native_call
from mpwatch.attach.native.elf import Mapping, Module
from mpwatch.attach.native.ptrace import WORD_BYTES
from mpwatch.attach.outcomes import Refused
from mpwatch.collect.process.procfs import PAGE_BYTES

_MARGIN_BYTES = 64
_STEP_BYTES = 64
_EXECUTABLE, _WRITABLE = 1, 2  # PF_X, PF_W
_BRIEF_BYTES = 65536
"""Longer reads happen only while the target runs, so they release the GIL."""


class TargetMemory:
    """Reads and writes memory of another process without stopping it."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        """Open the memory of a process.

        Raises:
            OSError: The rights are missing; opening checks the same ones as ptrace.
        """
        self._fd = os.open(f"{proc}/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def read(self, address: int, count: int) -> bytes:
        """Read exactly `count` bytes.

        Raises:
            OSError: The bytes are not mapped.
        """
        if count > _BRIEF_BYTES:
            return os.pread(self._fd, count, address)
        return gil_syscalls.read(self._fd, count, address)

    def write(self, address: int, content: bytes) -> None:
        """Write all of `content`.

        Raises:
            OSError: The address is not mapped.
        """
        if gil_syscalls.write(self._fd, content, address) != len(content):
            raise OSError(f"only a part of {len(content)} bytes could be written")

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


def require_unused_bytes(loaded: Iterable[Module]) -> None:
    """Refuse a process whose C library uses the bytes behind the data of files; see this module.

    Raises:
        Refused: Its C library is musl.
    """
    # ld-musl-x86_64.so.1, or /usr/lib/x86_64-linux-musl/libc.so where that is a link.
    if any("musl" in module.path for module in loaded):
        raise Refused(
            "its C library (musl) leaves no unused bytes for the data of the call",
            "start the job with mpwatch run",
        )


def find_data(pid: int, loaded: Iterable[Module], memory: TargetMemory, proc: str = "/proc") -> int:
    """The address of a block of `native_call`, or of unused bytes that can hold one.

    Raises:
        Refused: No place is large enough.
    """
    loaded = tuple(loaded)
    require_unused_bytes(loaded)
    empty = bytes(native_call.BLOCK_BYTES)
    for module in _in_order(loaded):
        try:
            start, end = _behind_data(module, elf.layout(pid, module, frozenset(), proc))
            if end - start < len(empty):
                continue
            found = memory.read(start, len(empty))
            if found == empty or native_call.parse(found) is not None:
                return start
            mapping = mapping_at(module.mappings, start)
            if mapping is None or mapping.permissions != "rw-p":
                continue
            if found == _in_file(pid, module, mapping, start, len(empty), proc):
                return start
        except (Refused, OSError):
            continue
    raise Refused("no loaded file has unused bytes for the data of the call")


def install_code(
    pid: int,
    loaded: Iterable[Module],
    mappings: Iterable[Mapping],
    memory: TargetMemory,
    code: bytes,
    proc: str = "/proc",
) -> tuple[int, bytes]:
    """Write code into a code cave, unless an earlier injection has; a later one uses it again.

    The code is never removed, because an observer cannot know when the last thread has returned
    from it.

    Returns:
        The address, and what is still to be written there by a tracer in whole words; no bytes if
        the code is in place.

    Raises:
        Refused: No loaded file has a large enough cave.
    """
    mappings = tuple(mappings)
    for module in _in_order(tuple(loaded)):
        try:
            start, end = _behind_code(module, elf.layout(pid, module, frozenset(), proc))
            mapping = mapping_at(mappings, start)
            if end - start < len(code) or mapping is None or mapping.permissions != "r-xp":
                continue
            at = _usable_code_address(pid, module, mapping, memory, code, (start, end), proc)
            if at is None:
                continue
            if memory.read(at, len(code)) == code:
                return at, b""
            try:
                memory.write(at, code)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                rest = -len(code) % WORD_BYTES
                return at, code + memory.read(at + len(code), rest)
            return at, b""
        except (Refused, OSError):
            continue
    raise Refused("no loaded file has unused bytes for the code of the call")


def find_call(
    pid: int, memory: TargetMemory, block_at: int | None = None, proc: str = "/proc"
) -> tuple[int, native_call.CallState] | None:
    """The address and the state of the block of a call; `None` if there is none.

    Args:
        pid: The target.
        memory: Memory of the target.
        block_at: Address of the block; `None` to search for it.
        proc: Path of procfs.

    Raises:
        OSError: The process has exited, or the address is not mapped any more.
    """
    if block_at is None:
        try:
            block_at = find_data(pid, elf.modules(elf.read_mappings(pid, proc)), memory, proc)
        except Refused:
            return None
    found = native_call.parse(memory.read(block_at, native_call.BLOCK_BYTES))
    return None if found is None else (block_at, found)


def cancel_call(
    pid: int,
    start_ticks: int,
    memory: TargetMemory,
    block_at: int | None = None,
    proc: str = "/proc",
) -> bool:
    """Cancel a queued call, or clear the block of a finished one.

    Args:
        pid: The target.
        start_ticks: Start time of the target.
        memory: Memory of the target.
        block_at: Address of the block; `None` to search for it.
        proc: Path of procfs.

    Returns:
        Whether a call has begun and not ended, and so was not cancelled.

    Raises:
        OSError: The process has exited, or the address is not mapped any more.
    """
    call = find_call(pid, memory, block_at, proc)
    if call is None:
        return False
    block_at, found = call
    if found.is_running(start_ticks):
        return True
    if found.state == native_call.READY:
        offset, content = native_call.cancelled_state()
        memory.write(block_at + offset, content)
    elif found.state == native_call.RETURNED:
        memory.write(block_at, bytes(native_call.BLOCK_BYTES))
    return False


def mapping_at(mappings: Iterable[Mapping], address: int) -> Mapping | None:
    """The mapping that contains an address, or `None`."""
    return next((m for m in mappings if m.start <= address < m.end), None)


def _in_order(loaded: tuple[Module, ...]) -> list[Module]:
    """The interpreter first; the loader of the C library never."""
    modules = [module for module in loaded if not module.name.startswith("ld-")]
    return sorted(modules, key=lambda m: not m.name.startswith(("libpython", "python")))


def _usable_code_address(
    pid: int,
    module: Module,
    mapping: Mapping,
    memory: TargetMemory,
    code: bytes,
    cave: tuple[int, int],
    proc: str,
) -> int | None:
    """Address of the code if present, else of bytes that still equal those of the file."""
    start, end = cave
    present = memory.read(start, end - start)
    if code in present:
        return start + present.index(code)
    original = _in_file(pid, module, mapping, start, end - start, proc)
    for at in range(0, len(present) - len(code) + 1, _STEP_BYTES):
        if present[at : at + len(code)] == original[at : at + len(code)]:
            return start + at
    return None


def _in_file(
    pid: int, module: Module, mapping: Mapping, start: int, count: int, proc: str
) -> bytes:
    """What the file has at an address of a mapping of it; zeros behind its end."""
    with elf.open_file(pid, module, proc) as file:
        file.seek(mapping.offset + start - mapping.start)
        return file.read(count).ljust(count, b"\0")


def _behind_data(module: Module, layout: elf.Layout) -> tuple[int, int]:
    """Start and end of the unused bytes behind a file's writable data."""
    writable = [s for s in layout.segments if s[4] & _WRITABLE and s[3]]
    if not writable:
        return 0, 0
    _, address, _, size, _ = max(writable, key=lambda s: s[1])
    return _rest_of_page(module.bias(layout) + address + size)


def _behind_code(module: Module, layout: elf.Layout) -> tuple[int, int]:
    """Start and end of the unused bytes behind a file's code."""
    executable = [s for s in layout.segments if s[4] & _EXECUTABLE and s[2]]
    if not executable:
        return 0, 0
    _, address, size, _, _ = max(executable, key=lambda s: s[1])
    return _rest_of_page(module.bias(layout) + address + size)


def _rest_of_page(used_end: int) -> tuple[int, int]:
    return (used_end + _MARGIN_BYTES + 15) & ~15, (used_end + PAGE_BYTES - 1) & -PAGE_BYTES
