"""The block of a call, as the interpreter of a target may find it at any moment."""

from __future__ import annotations

import struct

import pytest

from mpwatch.attach.native import native_call
from mpwatch.attach.native.native_call import BLOCK_BYTES, CANCELLED, READY, RETURNED

STATE_AT = 8
WORD = 4


def block(text: bytes, state: int = READY) -> bytes:
    content = bytearray(native_call.block(0x1000, text, 7, lambda _name: 0x2000))
    struct.pack_into("<I", content, STATE_AT, state)
    return bytes(content)


@pytest.mark.parametrize(
    "before",
    [
        bytes(BLOCK_BYTES),
        block(b"the call before", READY),
        block(b"the call before", CANCELLED),
        block(b"the call before", RETURNED),
    ],
    ids=["unused", "queued", "cancelled", "returned"],
)
def test_a_call_never_finds_its_block_ready_before_that_is_complete(before: bytes) -> None:
    """A call that was queued earlier may run between two stores."""
    memory, wanted = bytearray(before), block(b"the new call")
    found = []

    def write(at: int, content: bytes) -> None:
        for offset in range(0, len(content), WORD):  # the kernel copies word by word
            part = content[offset : offset + WORD]
            memory[at + offset : at + offset + len(part)] = part
            (state,) = struct.unpack_from("<I", memory, STATE_AT)
            found.append((state == READY, bytes(memory)))

    native_call.store(write, 0, wanted)

    first = next(number for number, (_, content) in enumerate(found) if content != before)
    assert [content for is_ready, content in found[first:] if is_ready] == [wanted]
    assert found[-1] == (True, wanted)
