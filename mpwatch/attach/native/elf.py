"""Loaded ELF files of another process: addresses of their symbols, code and unused bytes.

Files are opened through the target's view of the file system, so that containers and replaced
installations work.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import BinaryIO

from mpwatch.attach.outcomes import Refused
from mpwatch.collect.process.foreign_files import open_regular
from mpwatch.collect.process.procfs import PAGE_BYTES

_LINE = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) (....) ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)$"
)

# Structures and constants of elf.h, for 64 bits.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LITTLE_ENDIAN_64 = b"\x02\x01"
_ET_EXEC = 2
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_HEADERS_LIMIT = 256
"""Of program headers (about 14 are usual) and of dynamic entries (about 40)."""
_CHAIN_LIMIT = 256
"""Of symbols with one hash value modulo the size of the table; 10 are many."""


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
        (f"{proc}/{pid}/map_files/{first.start:x}-{first.end:x}", ""),
        (module.path, f"{proc}/{pid}/root"),
        (f"{proc}/{pid}/exe", ""),
    )
    for place, root in places:
        try:
            # At the path may be anything now, also a named pipe that nobody writes to.
            file = open(open_regular(place, root), "rb")  # noqa: SIM115 - the caller closes it
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
        Refused: The file cannot be read, or is no sound 64-bit ELF file.
    """
    with open_file(pid, module, proc) as file:
        found = os.fstat(file.fileno())
        identity = (found.st_dev, found.st_ino, found.st_mtime_ns)
        return _layout(identity, names, _Opened(file, module))


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
    try:
        return _Elf(opened.file).layout(names)
    except (_MalformedError, OSError) as error:
        raise Refused(f"{opened.module.name} is no readable ELF file: {error}") from error


class _MalformedError(Exception):
    """A file contradicts itself, or has what no real one has."""


class _Elf:
    """An ELF file that may be truncated, or made by the target's owner to harm the observer.

    Whatever sizes the file states, at most `_HEADERS_LIMIT` entries are read at once, and at most
    `_CHAIN_LIMIT` symbols are compared with a name. Symbols are looked up as the dynamic loader
    does it, so section headers are not needed.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._fd = file.fileno()
        self._size = os.fstat(self._fd).st_size
        header = _HEADER.unpack(self._at(0, _HEADER.size))
        identity, kind, place, entry_bytes, count = (header[each] for each in (0, 1, 5, 9, 10))
        if identity[:4] != b"\x7fELF":
            raise _MalformedError("it has another format")
        if identity[4] == 1:
            raise _MalformedError("it is a 32-bit one")
        if identity[4:6] != _LITTLE_ENDIAN_64 or entry_bytes != _SEGMENT.size:
            raise _MalformedError("it is of an unknown kind")
        if count > _HEADERS_LIMIT:
            raise _MalformedError(f"it has {count} program headers")
        self._is_fixed = kind == _ET_EXEC
        self._headers = list(_SEGMENT.iter_unpack(self._at(place, count * entry_bytes)))
        self._segments = tuple(
            (offset, address, in_file, in_memory, flags)
            for kind, flags, offset, address, _, in_file, in_memory, _ in self._headers
            if kind == _PT_LOAD
        )

    def layout(self, names: frozenset[str]) -> Layout:
        """The segments, and those of the named functions that the file defines.

        Raises:
            _MalformedError: The file contradicts itself.
            OSError: It cannot be read.
        """
        return Layout(self._is_fixed, self._segments, self._symbols(names) if names else {})

    def _symbols(self, names: frozenset[str]) -> dict[str, Symbol]:
        tables = self._dynamic()
        if not {_DT_SYMTAB, _DT_STRTAB} <= tables.keys():
            return {}
        found: dict[str, Symbol] = {}
        for name in names:
            raw = name.encode()
            for index in self._candidates(tables, raw):
                entry = self._in_memory(tables[_DT_SYMTAB] + index * _SYMBOL.size, _SYMBOL.size)
                text, _, _, section, value, size = _SYMBOL.unpack(entry)
                if not section or not value:
                    continue
                if self._in_memory(tables[_DT_STRTAB] + text, len(raw) + 1) == raw + b"\0":
                    found[name] = Symbol(value, size)
                    break
        return found

    def _dynamic(self) -> dict[int, int]:
        """The entries of the dynamic section, by tag; empty for a static program."""
        for kind, _, place, _, _, in_file, *_ in self._headers:
            if kind == _PT_DYNAMIC:
                count = min(in_file // _DYNAMIC.size, _HEADERS_LIMIT)
                entries = _DYNAMIC.iter_unpack(self._at(place, count * _DYNAMIC.size))
                return dict(takewhile(lambda entry: entry[0], entries))
        return {}

    def _candidates(self, tables: dict[int, int], name: bytes) -> Iterator[int]:
        """Indices of the symbols whose hash is that of the name."""
        if _DT_GNU_HASH in tables:
            return self._in_gnu_table(tables[_DT_GNU_HASH], name)
        return self._in_old_table(tables[_DT_HASH], name) if _DT_HASH in tables else iter(())

    def _in_gnu_table(self, start: int, name: bytes) -> Iterator[int]:
        bucket_count, first, bloom_words = struct.unpack("<3I4x", self._in_memory(start, 16))
        buckets = start + 16 + bloom_words * 8
        chains = buckets + (bucket_count - first) * 4
        wanted = 5381
        for byte in name:
            wanted = wanted * 33 + byte & 0xFFFFFFFF
        index = self._word(buckets + wanted % bucket_count * 4) if bucket_count else 0
        for each in range(index, index + _CHAIN_LIMIT if index else 0):
            found = self._word(chains + each * 4)
            if found | 1 == wanted | 1:
                yield each
            if found & 1:
                return

    def _in_old_table(self, start: int, name: bytes) -> Iterator[int]:
        bucket_count, _ = struct.unpack("<2I", self._in_memory(start, 8))
        wanted = 0
        for byte in name:
            wanted = (wanted << 4) + byte
            wanted = (wanted ^ wanted >> 24 & 0xF0) & 0x0FFFFFFF
        index = self._word(start + 8 + wanted % bucket_count * 4) if bucket_count else 0
        for _ in range(_CHAIN_LIMIT):
            if not index:
                return
            yield index
            index = self._word(start + 8 + (bucket_count + index) * 4)

    def _word(self, address: int) -> int:
        return int.from_bytes(self._in_memory(address, 4), "little")

    def _in_memory(self, address: int, count: int) -> bytes:
        """What the file has for an address."""
        for offset, start, in_file, _, _ in self._segments:
            if start <= address and address + count <= start + in_file:
                return self._at(offset + address - start, count)
        raise _MalformedError(f"it does not contain the address {address:#x}")

    def _at(self, place: int, count: int) -> bytes:
        # Compared first: an offset beyond 2**63 is an OverflowError.
        if place + count <= self._size:
            found = os.pread(self._fd, count, place)
            if len(found) == count:
                return found
        raise _MalformedError(f"it ends before byte {place + count}")
