"""Ranks that were given their number after their start, by their current environment.

`/proc/PID/environ` is what a process was started with. The C library keeps the current variables in
memory (putenv(3)). Those that set their own once they run:

- workers of Ray Train, and what accelerate's notebook_launcher spawns: RANK and WORLD_SIZE;
- the first rank of Lightning on each node (lightning 2.6, `_SubprocessScriptLauncher`): NODE_RANK,
  LOCAL_RANK and WORLD_SIZE. Nothing else tells the number of one that is alone on its node.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from mpwatch.collect.job.jobs import MAPS_BYTES_LIMIT
from mpwatch.collect.job.roles import first_number
from mpwatch.collect.process import procfs
from mpwatch.collect.process.foreign_files import open_regular
from mpwatch.collect.process.procfs import PAGE_BYTES
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.nodes.agent.rows import is_member

NAMES = frozenset(("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"))
VARIABLES_LIMIT = 4096
_ENTRY_BYTES = 512
_MAPPING = re.compile(rb"^([0-9a-f]+)-\S+ \S+ ([0-9a-f]+) \S+ [1-9]\d* +(/.*)$", re.M)
_C_LIBRARY = re.compile(rb"/(?:libc[.-]|ld-musl-|libc\.musl-)[^/]*$")
_VARIABLE = b"environ\0"
_HEADER_BYTES = 64
_SECTION_BYTES_LIMIT = 8 << 20
_ET_EXEC, _PT_LOAD, _SHT_DYNSYM = 2, 1, 11  # elf.h


class _NotFound(ValueError):
    """No loaded file has the pointer to the variables."""


def current_environment(
    pid: int, names: frozenset[str] = NAMES, proc: str = "/proc"
) -> dict[str, str]:
    """Some variables of a process as they are now; empty where its memory may not be read."""
    try:
        with open(f"{proc}/{pid}/mem", "rb", buffering=0) as memory:
            found = dict(_entries(memory.fileno(), _address(pid, proc)))
    except (OSError, ValueError, struct.error, OverflowError):
        return {}
    return {name: clean(value) for name, value in found.items() if name in names}


def _address(pid: int, proc: str) -> int:
    """Where the pointer to the variables is.

    A program that was linked to a fixed address has a copy of the pointer of its own, which the C
    library uses, too.

    Raises:
        _NotFound: No loaded file has it.
        OSError: A file cannot be read.
    """
    maps = procfs.read(f"{proc}/{pid}/maps", MAPS_BYTES_LIMIT)
    exe = os.fsencode(os.readlink(f"{proc}/{pid}/exe"))
    starts: dict[bytes, list[tuple[int, int]]] = {}
    for start, offset, path in _MAPPING.findall(maps):
        starts.setdefault(path, []).append((int(start, 16), int(offset, 16)))
    libraries = [path for path in starts if _C_LIBRARY.search(path)]
    files: list[tuple[bytes, str | bytes, str]] = [(exe, f"{proc}/{pid}/exe", "")]
    files += [(path, path, f"{proc}/{pid}/root") for path in libraries]
    for path, file, root in files:
        with open(open_regular(file, root), "rb", buffering=0) as elf:
            value, base = _variable(elf.fileno())
        if value is not None:
            if base is None:
                return value
            loaded = next((s for s, o in starts.get(path, ()) if o == base[0]), None)
            if loaded is not None:
                return loaded - base[1] + value
    raise _NotFound


def _variable(elf: int) -> tuple[int | None, tuple[int, int] | None]:
    """Where a 64-bit ELF file has the variable, relative to its load address.

    Returns:
        The address, `None` if the file has none, and file offset and address of the page that is
        loaded first, `None` if the file is linked to a fixed address.

    Raises:
        OSError: The file cannot be read.
        struct.error: It is cut off.
    """
    start = os.pread(elf, _HEADER_BYTES, 0)
    kind, headers, sections = struct.unpack_from("=H14xQQ", start, 16)
    header_bytes, header_count, section_bytes, section_count = struct.unpack_from("=4H", start, 54)
    base = None
    for number in range(header_count if kind != _ET_EXEC else 0):
        header = os.pread(elf, header_bytes, headers + number * header_bytes)
        type_, offset, address = struct.unpack_from("=I4xQQ", header)
        if type_ == _PT_LOAD:
            base = (offset & -PAGE_BYTES, address & -PAGE_BYTES)
            break
    for number in range(section_count):
        section = os.pread(elf, section_bytes, sections + number * section_bytes)
        type_, offset, size, link = struct.unpack_from("=4xI16xQQI", section)
        if type_ == _SHT_DYNSYM:
            names = os.pread(elf, section_bytes, sections + link * section_bytes)
            names_at, names_bytes = struct.unpack_from("=24xQQ", names)
            symbols = os.pread(elf, min(size, _SECTION_BYTES_LIMIT), offset)
            texts = os.pread(elf, min(names_bytes, _SECTION_BYTES_LIMIT), names_at)
            return _value(symbols, texts), base
    return None, base


def _value(symbols: bytes, names: bytes) -> int | None:
    """The value of the variable in a table of symbols, if it is defined there."""
    for name, section, value in struct.iter_unpack("=I2xHQ8x", symbols):
        if section and value and names.startswith(_VARIABLE, name):
            return int(value)
    return None


def _entries(memory: int, address: int) -> Iterator[tuple[str, str]]:
    """Names and values, while the process goes on: what is changed meanwhile may be missing."""
    (array,) = struct.unpack("P", os.pread(memory, 8, address))
    for number in range(VARIABLES_LIMIT):
        (entry,) = struct.unpack("P", os.pread(memory, 8, array + 8 * number))
        if not entry:
            return
        # Not beyond the page, which may be the last one.
        size = min(_ENTRY_BYTES, PAGE_BYTES - entry % PAGE_BYTES)
        data = os.pread(memory, size, entry)
        if b"\0" not in data and size < _ENTRY_BYTES:
            data += os.pread(memory, _ENTRY_BYTES - size, entry + size)
        name, sign, value = data.partition(b"\0")[0].partition(b"=")
        if sign and name.isascii():
            yield name.decode(), value.decode("utf-8", "replace")


class LateRanks:
    """Adds to snapshots what ranks know about their number that no launcher gave them.

    It is read once of each, when that has a process group or joins one.
    """

    def __init__(self, read: Callable[[int], Mapping[str, str]] = current_environment) -> None:
        self._read = read
        self._known: dict[ProcessId, Mapping[str, str]] = {}

    def added_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the variables of these ranks."""
        before, self._known = self._known, {}
        for process in snapshot.processes:
            known = before.get(process.process)
            if known is None and is_member(process) and "RANK" not in process.sample.environment:
                known = self._read(process.pid)
            if known is not None:
                self._known[process.process] = known
        if not any(self._known.values()):
            return snapshot
        starters = {each.parent for each in snapshot.processes if each.role == "rank"}
        return replace(
            snapshot,
            processes=tuple(
                self._with_rank(each, each.process not in starters) for each in snapshot.processes
            ),
        )

    def _with_rank(self, process: Process, is_alone: bool) -> Process:
        """The process with the variables that it has set.

        Args:
            process: A process.
            is_alone: Whether it has started no ranks.
        """
        found = self._known.get(process.process)
        if not found:
            return process
        sample = process.sample
        text, number = found.get("RANK", ""), sample.rank
        sets_place = found.get("LOCAL_RANK") == "0" and "LOCAL_RANK" not in sample.environment
        if text.isascii() and text.isdecimal():
            number = int(text)
        elif process.role == "main" and is_alone and sets_place:
            number = first_number((), found)
        sample = replace(sample, environment={**sample.environment, **found}, rank=number)
        return replace(process, sample=sample)
