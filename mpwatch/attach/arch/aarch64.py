"""Diverting a thread on 64-bit ARM.

Layouts: `struct user_pt_regs` (asm/ptrace.h), `struct rt_sigframe` and the records behind
`struct sigcontext` (arch/arm64/kernel/signal.c, asm/sigcontext.h), the vector state as in the
kernel's Documentation/arch/arm64/sve.rst. Checked against the sources of Linux 6.12.

At a stop this kernel has already set the program counter back to the instruction that repeats an
interrupted call, so the frame alone continues the call. More is not possible: at system-call stops
the kernel overwrites x7, so a context cannot be written completely there, and `rt_sigreturn`
discards the rest of a timeout. ppoll, pselect6 and calls with an absolute time keep it themselves,
and so does nanosleep where it can write the rest to its own argument: all waits of CPython are of
these kinds. A futex wait with a duration, an epoll wait with a timeout, and nanosleep as called by
usleep(3) wait for their whole timeout again.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

from mpwatch.attach.arch import (
    INVALID_STACK_FLAGS,
    SIGINFO_BYTES,
    STACK_MARGIN_BYTES,
    SignalFrame,
    ThreadContext,
)
from mpwatch.attach.native.ptrace import Tracee

_NT_PRSTATUS, _NT_PRFPREG, _NT_ARM_SVE = 1, 2, 0x405
_REGISTERS = struct.Struct("<34Q")
_X8, _X30, _SP, _PC, _PSTATE = 8, 30, 31, 32, 33
_BRANCH_TYPE = 0xC00  # PSTATE.BTYPE

_RT_SIGRETURN, _RESTART_SYSCALL = 139, 128
_NANOSLEEP, _FUTEX, _CLOCK_NANOSLEEP = 101, 98, 115
_HINT, _ADRP, _ADD_IMMEDIATE = 0xD503201F, 0x90000000, 0x91000000
_LDR_X, _LDR_W = 0xF9400000, 0xB9400000
_INSTRUCTION_BYTES, _RETURN_CODE_BYTES = 4, 8
# As on x86-64, by the numbers of asm-generic/unistd.h: io_getevents, epoll_pwait, read, write,
# readv, writev, sendfile, splice, rt_sigtimedwait, semtimedop, semop, accept, connect, sendto,
# recvfrom, sendmsg, recvmsg, accept4, recvmmsg, sendmmsg, preadv2, pwritev2, io_pgetevents,
# io_uring_enter, epoll_pwait2; fallocate, pselect6, ppoll.
_EINTR_WHEN_STOPPED = frozenset(
    (
        4, 22, 47, 63, 64, 65, 66, 71, 72, 73, 76, 137, 192, 193, 202, 203, 206, 207, 211, 212, 242,
        243, 269, 286, 287, 292, 426, 441,
    )
)  # fmt: skip

_WORD = 0xFFFFFFFFFFFFFFFF
_SMALLEST_ADDRESS = 4096
_REGISTERS_AT, _RECORDS_AT = 184, 464  # within struct ucontext
_FPSIMD_MAGIC, _SVE_MAGIC, _EXTRA_BYTES = 0x46508001, 0x53564501, 4096
_SVE_IN_USE = 1  # SVE_PT_REGS_SVE


class Aarch64:
    """The aarch64 architecture."""

    futex = _FUTEX
    # write, writev, sendfile, vmsplice, splice, tee, sendto, sendmsg, sendmmsg, pwritev2
    sending = frozenset((64, 66, 71, 75, 76, 77, 206, 211, 269, 287))
    connect = 203
    return_code = b"\x68\x11\x80\xd2\x01\x00\x00\xd4"  # mov x8, #139; svc #0

    def capture(self, tracee: Tracee, blocked_call: tuple[int, ...]) -> ThreadContext:
        """Read the state of a stopped thread.

        The extended part is the 528 bytes of NEON registers, then the SVE set where it is in use.
        """
        try:
            scalable = tracee.read_registers(_NT_ARM_SVE, 65536)
        except OSError:  # the processor has none
            scalable = b""
        return ThreadContext(
            general=tracee.read_registers(_NT_PRSTATUS),
            extended=tracee.read_registers(_NT_PRFPREG) + scalable,
            signal_mask=tracee.read_signal_mask(),
            blocked_call=blocked_call,
        )

    def stack_pointer(self, context: ThreadContext) -> int:
        """The stack pointer of a context."""
        return int(_REGISTERS.unpack(context.general)[_SP])

    def program_counter(self, context: ThreadContext) -> int:
        """The program counter of a context."""
        return int(_REGISTERS.unpack(context.general)[_PC])

    def link(self, context: ThreadContext) -> int:
        """The link register: helpers for atomic operations do not store it on the stack."""
        return int(_REGISTERS.unpack(context.general)[_X30])

    def frame(self, context: ThreadContext, return_to: int) -> SignalFrame:
        """The signal frame: siginfo, ucontext, then records of vector state."""
        del return_to  # the link register holds it
        registers = to_restore(context)
        ucontext = struct.pack("<QQQiiQ", 0, 0, 0, INVALID_STACK_FLAGS, 0, 0)
        ucontext += struct.pack("<Q", context.signal_mask)
        ucontext = ucontext.ljust(_REGISTERS_AT, b"\0") + _REGISTERS.pack(*registers)
        ucontext = ucontext.ljust(_RECORDS_AT, b"\0") + _records(context.extended)
        content = bytes(SIGINFO_BYTES) + ucontext
        content = content.ljust(SIGINFO_BYTES + _RECORDS_AT + _EXTRA_BYTES, b"\0")
        pointer = self.stack_pointer(context) - STACK_MARGIN_BYTES - len(content)
        return SignalFrame(pointer & ~15, content)

    def call(
        self,
        context: ThreadContext,
        frame: SignalFrame,
        function: int,
        arguments: tuple[int, ...],
        return_to: int,
    ) -> bytes:
        """Registers at the entry of the function."""
        registers = list(_REGISTERS.unpack(context.general))
        registers[: len(arguments)] = arguments
        registers[_X30] = return_to
        registers[_SP], registers[_PC] = frame.address, function
        # No branch led there, so the landing must not be checked (BTI).
        registers[_PSTATE] &= ~_BRANCH_TYPE
        return _REGISTERS.pack(*registers)

    def loaded_from(self, code: bytes, at: int, read: Callable[[int], int]) -> int | None:
        """Decode adrp, then add or ldr of a pointer, then ldr w0 and ret."""
        places: dict[int, int] = {}
        for (instruction,) in struct.iter_unpack("<I", code[: len(code) & ~3]):
            target, base = instruction & 31, instruction >> 5 & 31
            immediate = instruction >> 10 & 0xFFF
            if instruction & 0xFFFFF01F == _HINT:  # bti, paciasp
                at += _INSTRUCTION_BYTES
                continue
            if instruction & 0x9F000000 == _ADRP:
                pages = instruction >> 5 & 0x7FFFF
                pages = (pages << 2 | instruction >> 29 & 3) ^ 1 << 20
                places[target] = (at & ~0xFFF) + ((pages - (1 << 20)) << 12)
            elif base not in places:
                return None
            elif instruction & 0xFFC00000 == _ADD_IMMEDIATE:
                places[target] = places[base] + immediate
            elif instruction & 0xFFC00000 == _LDR_X:
                places[target] = read(places[base] + immediate * 8)
            elif instruction & 0xFFC00000 == _LDR_W and target == 0:
                return int(places[base] + immediate * 4)
            else:
                return None
            at += _INSTRUCTION_BYTES
        return None

    def is_returning(self, tracee: Tracee, return_to: int) -> bool:
        """Whether the thread is at the entry of the injected `rt_sigreturn`."""
        registers = _REGISTERS.unpack(tracee.read_registers(_NT_PRSTATUS))
        return (registers[_X8], registers[_PC]) == (_RT_SIGRETURN, return_to + _RETURN_CODE_BYTES)

    def finish(
        self,
        tracee: Tracee,
        context: ThreadContext,
        frame: SignalFrame,
        write: Callable[[int, bytes], None],
    ) -> None:
        """Make a signal that arrived meanwhile interrupt the call, as it would have done.

        With the unchanged frame the handler would run first and the call would then continue to
        wait. So the frame returns EINTR, as the kernel does for handlers without SA_RESTART, which
        all of CPython's are; whether a handler has SA_RESTART cannot be read from outside.
        """
        if _was_in_call(context) and tracee.has_signal(context.signal_mask):
            registers = list(_REGISTERS.unpack(context.general))
            registers[0] = -errno.EINTR & _WORD
            registers[_PC] = context.blocked_call[8]
            at = frame.address + SIGINFO_BYTES + _REGISTERS_AT
            write(at, _REGISTERS.pack(*registers))


def _was_in_call(context: ThreadContext) -> bool:
    """Whether the thread was stopped in the system call that procfs showed before."""
    if len(context.blocked_call) < 9:
        return False
    number, stack_pointer, after = (context.blocked_call[i] for i in (0, 7, 8))
    registers = _REGISTERS.unpack(context.general)
    is_there = registers[_PC] in (after, after - _INSTRUCTION_BYTES)
    return is_there and (registers[_X8], registers[_SP]) == (number, stack_pointer)


def to_restore(context: ThreadContext) -> list[int]:
    """General registers for the frame; a call that only the stop failed with EINTR is repeated."""
    registers = list(_REGISTERS.unpack(context.general))
    if not _was_in_call(context):
        return registers
    number, first = context.blocked_call[:2]
    if number == _RESTART_SYSCALL:
        registers[_X8] = _restarted(registers)
    elif number in _EINTR_WHEN_STOPPED and registers[0] == -errno.EINTR & _WORD:
        registers[0] = first
        registers[_PC] -= _INSTRUCTION_BYTES
    return registers


def _restarted(registers: list[int]) -> int:
    """Which call a `restart_syscall` stands for, from its arguments.

    A thread that was stopped before, by a debugger or by SIGSTOP, is in it; repeated after
    `rt_sigreturn` it would fail with EINTR. The other calls that are continued this way (linux/fs.h
    and others, ERESTART_RESTARTBLOCK) do not exist on this machine or do not sleep.
    """
    if registers[0] < _SMALLEST_ADDRESS:
        return _CLOCK_NANOSLEEP
    is_operation = 0 < registers[1] < _SMALLEST_ADDRESS
    return _FUTEX if is_operation else _NANOSLEEP


def _records(extended: bytes) -> bytes:
    """The vector state as records, without the empty one that ends them."""
    vectors, scalable = extended[:528], extended[528:]
    fpsr, fpcr = struct.unpack_from("<II", vectors, 512)
    records = struct.pack("<IIII", _FPSIMD_MAGIC, 528, fpsr, fpcr) + vectors[:512]
    if len(scalable) < 16:
        return records
    _, _, vector_bytes, _, flags, _ = struct.unpack_from("<IIHHHH", scalable)
    if not flags & _SVE_IN_USE:
        return records
    # 32 Z registers, 16 P registers and FFR, an eighth as long; the order is that of ptrace.
    data_bytes = 32 * vector_bytes + 17 * (vector_bytes // 8)
    size = (16 + data_bytes + 15) & ~15
    head = struct.pack("<IIHH4x", _SVE_MAGIC, size, vector_bytes, 0)
    return records + (head + scalable[16 : 16 + data_bytes]).ljust(size, b"\0")
