"""Unused bytes in the memory of a process: here, of the one that runs the tests."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import pytest

from mpwatch.attach.native import elf, native_call
from mpwatch.attach.native.code_cave import TargetMemory, find_data, mapping_at
from mpwatch.attach.native.elf import Module
from mpwatch.attach.outcomes import Refused

SIZE = native_call.BLOCK_BYTES
assert zlib.crc32(b"") == 0  # it brings a library whose data have no zeroed part


@pytest.fixture
def memory() -> Iterator[TargetMemory]:
    opened = TargetMemory(os.getpid())
    yield opened
    opened.close()


def places(memory: TargetMemory) -> Iterator[tuple[Module, int]]:
    """Each loaded file that has room for a block, and the address."""
    for module in elf.modules(elf.read_mappings(os.getpid())):
        try:
            yield module, find_data(os.getpid(), [module], memory)
        except Refused:
            continue


def test_all_places_for_data_are_private_and_writable(memory: TargetMemory) -> None:
    mappings = elf.read_mappings(os.getpid())
    found = [mapping_at(mappings, at) for _, at in places(memory)]

    assert found
    assert {mapping and mapping.permissions for mapping in found} == {"rw-p"}


def test_bytes_of_the_file_behind_its_data_are_unused_until_they_differ(
    memory: TargetMemory,
) -> None:
    kept = [(m, at, memory.read(at, SIZE)) for m, at in places(memory)]
    module, at, content = next(each for each in kept if any(each[2]))
    memory.write(at, bytes([content[0] ^ 1]))
    try:
        with pytest.raises(Refused):
            find_data(os.getpid(), [module], memory)
    finally:
        memory.write(at, content[:1])

    assert find_data(os.getpid(), [module], memory) == at
