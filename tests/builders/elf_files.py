"""A small ELF file with the parts that `mpwatch/attach/native/elf.py` reads, and a place for it."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path

from mpwatch.attach.native.elf import Mapping, Module

FUNCTION, VALUE, SIZE = "Py_AddPendingCall", 0x1234, 77
SEGMENT_AT, DYNAMIC_AT, SYMBOLS_AT, TEXTS_AT, HASH_AT, END = 0x40, 0x100, 0x200, 0x300, 0x400, 0x500
PID = 10
_TIMES = itertools.count(1)


def elf_file(is_gnu_table: bool = True) -> bytearray:
    """A shared library of 1,280 bytes with one function, loaded at address 0."""
    made = bytearray(END)
    struct.pack_into(
        "<16sHHIQQQIHHHHHH", made, 0, b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, SEGMENT_AT, 0, 0, 64, 56,
        3, 64, 0, 0,
    )  # fmt: skip
    segments = [(1, 5, 0, END), (1, 6, 0, END), (2, 6, DYNAMIC_AT, 0x50)]
    for number, (kind, flags, at, size) in enumerate(segments):
        place = SEGMENT_AT + 56 * number
        struct.pack_into("<IIQQQQQQ", made, place, kind, flags, at, at, at, size, size, 4096)
    table = 0x6FFFFEF5 if is_gnu_table else 4
    entries = [(5, TEXTS_AT), (6, SYMBOLS_AT), (table, HASH_AT), (0, 0)]
    for number, entry in enumerate(entries):
        struct.pack_into("<qQ", made, DYNAMIC_AT + 16 * number, *entry)
    struct.pack_into("<IBBHQQ", made, SYMBOLS_AT + 24, 1, 0x12, 0, 7, VALUE, SIZE)
    text = FUNCTION.encode()
    made[TEXTS_AT + 1 : TEXTS_AT + 1 + len(text)] = text
    if is_gnu_table:
        hashed = 5381
        for byte in text:
            hashed = (hashed * 33 + byte) % 2**32
        # One bucket, the first symbol, one word of the Bloom filter; the bucket; the chain's end.
        struct.pack_into("<4IQII", made, HASH_AT, 1, 1, 1, 6, 2**64 - 1, 1, hashed | 1)
    else:
        struct.pack_into("<2I3I", made, HASH_AT, 1, 2, 1, 0, 0)
    return made


def placed(folder: Path, content: bytes | bytearray) -> Module:
    """Put a file where process `PID` of the made-up procfs `folder` has it loaded."""
    path = folder / str(PID) / "root" / "lib.so"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    moment = next(_TIMES)
    os.utime(path, ns=(moment, moment))  # what was read is remembered by inode and time
    inode = path.stat().st_ino
    return Module("/lib.so", (Mapping(0x7000_0000, 0x7000_1000, "r-xp", 0, 0, inode, "/lib.so"),))
