"""Loaded ELF files of another process: addresses of their symbols, code and unused bytes.

Files are opened through the target's view of the file system, so that containers and replaced
installations work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from mpwatch.attach.outcomes import Refused
from mpwatch.collect.process.procfs import PAGE_BYTES

_LINE = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) (....) ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)$"
)


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of `/proc/PID/maps`."""

    start: int
    end: int
    permissions: str
    offset: int
    device: int
    inode: int
    path: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """An exported function; its address is relative to the load address of the file."""

    value: int
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of an ELF file that do not depend on its load address."""

    is_fixed: bool
    """An executable that is not position independent."""
    segments: tuple[tuple[int, int, int, int, int], ...]
    """Loadable segments: file offset, address, bytes in the file, bytes in memory, flags."""
    symbols: dict[str, Symbol]


@dataclass(frozen=True, slots=True)
class Module:
    """A file loaded into a process."""

    path: str
    mappings: tuple[Mapping, ...]

    @property
    def name(self) -> str:
        """Its base name."""
        return self.path.rsplit("/", 1)[-1]

    def bias(self, layout: Layout) -> int:
        """The load bias: memory address minus address in the file.

        Raises:
            Refused: The mappings do not fit the file.
        """
        if layout.is_fixed:
            return 0
        for offset, address, _, _, _ in layout.segments:
            for mapping in self.mappings:
                if mapping.offset == offset & -PAGE_BYTES:
                    return mapping.start - (address & -PAGE_BYTES)
        raise Refused(f"{self.name} is not mapped as its headers say")


def read_mappings(pid: int, proc: str = "/proc") -> tuple[Mapping, ...]:
    """All mappings of a process.

    Raises:
        OSError: The process is gone, or its mappings are not readable.
    """
    with open(f"{proc}/{pid}/maps", "rb") as file:
        lines = file.read().splitlines()
    return tuple(filter(None, map(_mapping, lines)))


@lru_cache(maxsize=8192)
def _mapping(line: bytes) -> Mapping | None:
    """Parse one line; cached because forked processes share nearly all of their lines."""
    match = _LINE.match(line)
    if match is None:
        return None
    start, end, permissions, offset, major, minor, inode, path = match.groups()
    return Mapping(
        int(start, 16), int(end, 16), permissions.decode(), int(offset, 16),
        os.makedev(int(major, 16), int(minor, 16)), int(inode), os.fsdecode(path),
    )  # fmt: skip


def modules(mappings: Iterable[Mapping]) -> tuple[Module, ...]:
    """The files with an executable mapping, in address order."""
    of_files = [(m.device, m.inode, m) for m in mappings if m.inode]
    parts: dict[tuple[int, int], list[Mapping]] = {
        (device, inode): [] for device, inode, m in of_files if "x" in m.permissions
    }
    for device, inode, mapping in of_files:
        if (device, inode) in parts:
            parts[device, inode].append(mapping)
    found = [Module(each[0].path, tuple(each)) for each in parts.values()]
    return tuple(sorted(found, key=lambda module: module.mappings[0].start))


def open_file(pid: int, module: Module, proc: str = "/proc") -> BinaryIO:
    """Open a loaded file, even if its path was deleted or replaced.

    Raises:
        Refused: The file cannot be found or read from here.
    """
    first = module.mappings[0]
    # map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE but survives a deleted file.
    places = (
        f"{proc}/{pid}/map_files/{first.start:x}-{first.end:x}",
        f"{proc}/{pid}/root{module.path}",
        f"{proc}/{pid}/exe",
    )
    for place in places:
        try:
            file = open(place, "rb")  # noqa: SIM115 - the caller closes it
        except OSError:
            continue
        # Device numbers in maps and stat differ on overlay and btrfs, inodes agree.
        if os.fstat(file.fileno()).st_ino == first.inode:
            return file
        file.close()
    raise Refused(f"{module.path} cannot be read from here, or was replaced since it was loaded")


def layout(pid: int, module: Module, names: frozenset[str], proc: str = "/proc") -> Layout:
    """Segments of a loaded file, and the named functions that the file defines.

    Raises:
        Refused: The file cannot be read, or is not a 64-bit ELF file.
    """
    with open_file(pid, module, proc) as file:
        stat = os.fstat(file.fileno())
        return _layout((stat.st_dev, stat.st_ino, stat.st_mtime_ns), names, _Opened(file, module))


class _Opened:
    """An open file that equals any other, so that the cache key is device, inode and time."""

    __slots__ = ("file", "module")

    def __init__(self, file: BinaryIO, module: Module) -> None:
        self.file = file
        self.module = module

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opened)


@lru_cache(maxsize=64)
def _layout(_identity: tuple[int, int, int], names: frozenset[str], opened: _Opened) -> Layout:
    from elftools.common.exceptions import ELFError  # 60 ms to import, so only when needed
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(opened.file)
        if elf.elfclass != 64:
            raise Refused(f"{opened.module.name} is a 32-bit program")
        segments = tuple(
            (s["p_offset"], s["p_vaddr"], s["p_filesz"], s["p_memsz"], s["p_flags"])
            for s in elf.iter_segments("PT_LOAD")
        )
        return Layout(elf["e_type"] == "ET_EXEC", segments, _symbols(elf, names))
    except ELFError as error:
        raise Refused(f"{opened.module.name} is no readable ELF file: {error}") from error


def _symbols(elf: Any, names: frozenset[str]) -> dict[str, Symbol]:
    """The named functions that the file exports, looked up in the hash table if there is one."""
    found: dict[str, Symbol] = {}
    if not names:
        return found
    table = elf.get_section_by_name(".gnu.hash")
    if table is not None:
        candidates = [(name, table.get_symbol(name)) for name in names]
    else:
        section = elf.get_section_by_name(".dynsym")
        candidates = (
            []
            if section is None
            else [(s.name, s) for s in section.iter_symbols() if s.name in names]
        )
    for name, symbol in candidates:
        if symbol is not None and symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_value"]:
            found[name] = Symbol(symbol["st_value"], symbol["st_size"])
    return found
