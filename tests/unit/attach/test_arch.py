"""The signal frame on a target's stack, field by field as the kernel reads it."""

from __future__ import annotations

import struct

import pytest

from mpwatch.attach.arch import ERESTART_RESTARTBLOCK, ERESTARTSYS, ThreadContext, aarch64, x86_64
from mpwatch.attach.arch.aarch64 import Aarch64
from mpwatch.attach.arch.x86_64 import X8664, Registers
from mpwatch.attach.native.ptrace import Tracee

RETURN_TO = 0x7F0000001000
STACK = 0x7FFD00001238
WORD = (1 << 64) - 1


def x86_registers(**values: int) -> bytes:
    return Registers(bytes(216)).pack(rip=0x401000, rsp=STACK, orig_rax=-1, **values)


def x86_context(general: bytes) -> ThreadContext:
    return ThreadContext(
        general, bytes(range(256)) * 2 + bytes(64) + b"\7" * 256, signal_mask=0x4000
    )


def x86_words(frame_content: bytes) -> dict[str, int]:
    names = x86_64.IN_FRAME
    return dict(zip(names, struct.unpack_from("<18Q", frame_content, 8 + 40), strict=True))


@pytest.fixture(autouse=True)
def _layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(x86_64, "own_signal_layout", lambda: (7, 832))


def test_the_frame_lies_below_the_red_zone_and_is_aligned_for_a_call() -> None:
    frame = X8664().frame(x86_context(x86_registers()), RETURN_TO)
    assert frame.address + len(frame.content) <= STACK - 128
    assert frame.address % 16 == 8
    assert struct.unpack_from("<Q", frame.content) == (RETURN_TO,)


def test_a_thread_stopped_in_its_own_code_gets_its_registers_back() -> None:
    general = x86_registers(rax=42, rbx=43, r15=44, eflags=0x246)
    words = x86_words(X8664().frame(x86_context(general), RETURN_TO).content)
    assert (words["rax"], words["rbx"], words["r15"]) == (42, 43, 44)
    assert (words["rip"], words["rsp"], words["eflags"]) == (0x401000, STACK, 0x246)


@pytest.mark.parametrize(
    ("number", "result", "is_repeated"),
    [
        (0, ERESTARTSYS, True),
        (7, ERESTART_RESTARTBLOCK, True),
        (232, -4, True),  # epoll_wait says EINTR to whoever was only stopped
        (271, -4, True),  # ppoll does, where its time limit cannot be written
        (285, -4, True),  # fallocate does on hugetlbfs
        (3, -4, False),  # close must not be made twice
        (0, 5, False),
    ],
)
def test_only_an_interrupted_call_is_made_again(
    number: int, result: int, is_repeated: bool
) -> None:
    general = Registers(x86_registers()).pack(orig_rax=number, rax=result)
    words = x86_words(X8664().frame(x86_context(general), RETURN_TO).content)
    expected = (0x401000 - 2, number) if is_repeated else (0x401000, result & WORD)
    assert (words["rip"], words["rax"]) == expected


def test_the_frame_holds_the_mask_and_leaves_the_alternate_stack_alone() -> None:
    content = X8664().frame(x86_context(x86_registers()), RETURN_TO).content
    assert struct.unpack_from("<Q", content, 8 + 296) == (0x4000,)
    (flags,) = struct.unpack_from("<i", content, 8 + 24)
    assert flags not in (0, 1, 2)  # the kernel would apply SS_ONSTACK, SS_DISABLE and none


def test_the_vector_state_is_marked_so_that_the_kernel_restores_all_of_it() -> None:
    frame = X8664().frame(x86_context(x86_registers()), RETURN_TO)
    (address,) = struct.unpack_from("<Q", frame.content, 8 + 40 + 184)
    assert address % 64 == 0
    at = address - frame.address
    magic, extended, features, size = struct.unpack_from("<IIQI", frame.content, at + 464)
    assert (magic, features, size, extended) == (0x46505853, 7, 832, 836)
    assert struct.unpack_from("<I", frame.content, at + size) == (0x46505845,)
    assert frame.content[at : at + 464] == (bytes(range(256)) * 2)[:464]


def test_tile_registers_in_use_are_saved_completely() -> None:
    xsave = bytearray(11008)
    struct.pack_into("<Q", xsave, 512, 7 | 1 << 18)
    area = x86_64.signal_vectors(bytes(xsave))
    _, _, features, size = struct.unpack_from("<IIQI", area, 464)
    assert (features, size) == (7 | 1 << 18, 11008)


def test_an_injected_call_enters_the_function_and_restarts_no_system_call() -> None:
    context = x86_context(Registers(x86_registers()).pack(orig_rax=0, eflags=0x400))
    machine = X8664()
    frame = machine.frame(context, RETURN_TO)
    values = Registers(machine.call(context, frame, 0x5000, (1, 2), RETURN_TO)).values
    assert (values["rip"], values["rsp"], values["rdi"], values["rsi"]) == (
        0x5000,
        frame.address,
        1,
        2,
    )
    assert values["orig_rax"] == WORD
    assert not values["eflags"] & 0x400


def arm_registers(**at: int) -> bytes:
    words = list(range(100, 134))
    words[31], words[32] = STACK & ~15, 0x401000
    for name, value in at.items():
        words[int(name[1:])] = value & WORD
    return struct.pack("<34Q", *words)


def arm_context(general: bytes, scalable: bytes = b"", call: tuple[int, ...] = ()) -> ThreadContext:
    neon = bytes(range(256)) * 2 + struct.pack("<IIQ", 11, 12, 0)
    return ThreadContext(general, neon + scalable, 0x4000, call)


def test_arm_frames_hold_registers_mask_and_vectors_where_the_kernel_reads_them() -> None:
    frame = Aarch64().frame(arm_context(arm_registers()), RETURN_TO)
    assert frame.address % 16 == 0
    assert frame.address + len(frame.content) <= STACK
    assert struct.unpack_from("<Q", frame.content, 128 + 40) == (0x4000,)
    words = struct.unpack_from("<34Q", frame.content, 128 + 176 + 8)
    assert words == struct.unpack("<34Q", arm_registers())
    at = 128 + 176 + 288
    assert struct.unpack_from("<IIII", frame.content, at) == (0x46508001, 528, 11, 12)
    assert frame.content[at + 16 : at + 528] == bytes(range(256)) * 2
    assert struct.unpack_from("<II", frame.content, at + 528) == (0, 0)


def test_arm_scalable_registers_follow_where_they_are_in_use() -> None:
    data = bytes(i % 251 for i in range(32 * 32 + 17 * 4))
    header = struct.pack("<IIHHHH", 0, 0, 32, 32, 1, 0)
    frame = Aarch64().frame(arm_context(arm_registers(), header + data), RETURN_TO)
    at = 128 + 176 + 288 + 528
    magic, size, vector_bytes = struct.unpack_from("<IIH", frame.content, at)
    assert (magic, vector_bytes) == (0x53564501, 32)
    assert size % 16 == 0
    assert frame.content[at + 16 : at + 16 + len(data)] == data
    assert struct.unpack_from("<II", frame.content, at + size) == (0, 0)


def test_arm_calls_return_through_the_link_register() -> None:
    machine, context = Aarch64(), arm_context(arm_registers())
    frame = machine.frame(context, RETURN_TO)
    words = struct.unpack("<34Q", machine.call(context, frame, 0x5000, (1, 2), RETURN_TO))
    assert words[:3] == (1, 2, 102)
    assert (words[30], words[31], words[32]) == (RETURN_TO, frame.address, 0x5000)
    branched = arm_context(arm_registers(x33=0x60000C00))
    words = struct.unpack("<34Q", machine.call(branched, frame, 0x5000, (1, 2), RETURN_TO))
    assert words[33] == 0x60000000
    assert struct.unpack_from("<34Q", machine.frame(branched, 0).content, 304 + 8)[33] == 0x60000C00


ARM_SP, ARM_PC = STACK & ~15, 0x401000


def arm_call(number: int, first: int, second: int = 0, *, after: int = ARM_PC) -> tuple[int, ...]:
    return (number, first, second, 0, 0, 0, 0, ARM_SP, after)


def test_arm_calls_that_a_stop_fails_with_eintr_are_repeated_with_their_argument() -> None:
    general = arm_registers(x0=-4, x8=22)
    words = aarch64.to_restore(arm_context(general, call=arm_call(22, 77)))
    assert (words[0], words[32]) == (77, ARM_PC - 4)
    others = aarch64.to_restore(arm_context(arm_registers(x0=-4, x8=57), call=arm_call(57, 77)))
    assert others[32] == ARM_PC
    moved_on = aarch64.to_restore(arm_context(general, call=arm_call(22, 77, after=0x409000)))
    assert (moved_on[0], moved_on[32]) == (-4 & WORD, ARM_PC)


@pytest.mark.parametrize(
    ("first", "second", "number"),
    [(1, 0, 115), (0x7000, 0, 101), (0x7000, 0x7010, 101), (0x7000, 0x89, 98), (0x7000, 128, 98)],
)
def test_arm_calls_that_were_restarted_before_are_repeated_under_their_own_number(
    first: int, second: int, number: int
) -> None:
    general = arm_registers(x0=first, x1=second, x8=128)
    call = arm_call(128, first, second, after=ARM_PC + 4)
    words = aarch64.to_restore(arm_context(general, call=call))
    assert (words[0], words[8], words[32]) == (first, number, ARM_PC)


@pytest.mark.parametrize("has_signal", [True, False])
def test_arm_calls_are_interrupted_by_a_signal_during_the_diversion(has_signal: bool) -> None:
    class Borrowed(Tracee):
        def __init__(self) -> None:
            pass

        def has_signal(self, mask: int) -> bool:
            return has_signal

    machine = Aarch64()
    context = arm_context(arm_registers(x8=63), call=arm_call(63, 100, after=ARM_PC + 4))
    frame = machine.frame(context, RETURN_TO)
    memory = bytearray(frame.content)

    def write(address: int, content: bytes) -> None:
        at = address - frame.address
        memory[at : at + len(content)] = content

    machine.finish(Borrowed(), context, frame, write)
    words = struct.unpack_from("<34Q", memory, 128 + 176 + 8)
    assert (words[0], words[32]) == ((-4 & WORD, ARM_PC + 4) if has_signal else (100, ARM_PC))
    assert memory[128 + 176 + 288 :] == frame.content[128 + 176 + 288 :]


def test_return_codes_are_found_only_at_their_own_system_call() -> None:
    class Stopped(Tracee):
        def __init__(self, general: bytes) -> None:
            self._general = general

        def read_registers(self, kind: int, limit_bytes: int = 0) -> bytes:
            return self._general

    entered = Registers(x86_registers()).pack(orig_rax=15, rip=RETURN_TO + 9)
    assert X8664().is_returning(Stopped(entered), RETURN_TO)
    foreign = Registers(x86_registers()).pack(orig_rax=15, rip=0x1234)
    assert not X8664().is_returning(Stopped(foreign), RETURN_TO)
    assert Aarch64().is_returning(Stopped(arm_registers(x8=139, x32=RETURN_TO + 8)), RETURN_TO)


GOT = {0x7000: 0x9000}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("8b 05 fa 0f 00 00 c3", 0x2000),
        ("f3 0f 1e fa 8b 05 f6 0f 00 00 c3", 0x2000),
        ("55 48 89 e5 8b 05 f6 0f 00 00 5d c3", 0x2000),
        ("48 8b 05 f9 5f 00 00 8b 40 0c c3", 0x900C),
        ("48 8b 05 f9 5f 00 00 8b 80 58 02 00 00 c3", 0x9258),
        ("48 8b 05 f9 5f 00 00 8b 00 c3", 0x9000),
        ("48 8d 05 f9 0f 00 00 8b 80 58 02 00 00 c3", 0x2258),
        ("48 8d 05 f9 0f 00 00 c3", None),
        ("8b 05 fa 0f 00 00 90", None),
        ("48 8b 05 f9 5f 00 00 c3", None),
        ("31 c0 c3", None),
    ],
)
def test_x86_getters_are_decoded_or_refused(code: str, expected: int | None) -> None:
    found = X8664().loaded_from(bytes.fromhex(code), 0x1000, GOT.__getitem__)
    assert found == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # adrp x0, +6 pages; ldr x0, [x0]; ldr w0, [x0, #12]; ret
        ((0xD0000020, 0xF9400000, 0xB9400C00, 0xD65F03C0), 0x900C),
        # bti c; adrp x0, +1 page; add x0, x0, #16; ldr w0, [x0, #4]; ret
        ((0xD503245F, 0xB0000000, 0x91004000, 0xB9400400, 0xD65F03C0), 0x2014),
        ((0x52800000, 0xD65F03C0), None),
    ],
)
def test_arm_getters_are_recognised_or_refused(code: tuple[int, ...], expected: int | None) -> None:
    packed = struct.pack(f"<{len(code)}I", *code)
    assert Aarch64().loaded_from(packed, 0x1000, GOT.__getitem__) == expected
