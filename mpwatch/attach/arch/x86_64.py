"""Diverting a thread on x86-64.

Layouts: `struct user_regs_struct` (sys/user.h), `struct ucontext` and `struct sigcontext_64`
(asm/ucontext.h, asm/sigcontext.h), the XSAVE area as described in the kernel's
Documentation/arch/x86/xstate.rst. Checked on Linux 6.18.
"""

from __future__ import annotations

import ctypes
import errno
import re
import signal
import struct
import threading
from collections.abc import Callable
from functools import lru_cache

from mpwatch.attach.arch import (
    ERESTART_RESTARTBLOCK,
    ERESTARTNOHAND,
    ERESTARTNOINTR,
    ERESTARTSYS,
    INVALID_STACK_FLAGS,
    SIGINFO_BYTES,
    STACK_MARGIN_BYTES,
    SignalFrame,
    ThreadContext,
)
from mpwatch.attach.native.ptrace import Tracee

_NT_PRSTATUS, _NT_X86_XSTATE = 1, 0x202
_NAMES = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
    "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs",
    "gs",
)  # fmt: skip
IN_FRAME = (
    "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax",
    "rcx", "rsp", "rip", "eflags",
)  # fmt: skip
_REGISTERS = struct.Struct("<27Q")
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_NONE = 0xFFFFFFFFFFFFFFFF  # orig_rax outside system calls

_RT_SIGRETURN, _RESTART_SYSCALL = 15, 219
_SYSCALL_BYTES = 2
_RETURN_CODE_BYTES = 9
_DIRECTION_FLAG = 0x400
_RESTARTS = (ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK)

# Calls that report EINTR when a thread was merely stopped and continued (signal(7), "Interruption
# of system calls and library functions by stop signals"): accept, sendto, recvfrom, sendmsg,
# recvmsg, semop, rt_sigtimedwait, io_getevents, semtimedop, epoll_wait, epoll_pwait, accept4,
# recvmmsg, sendmmsg, io_pgetevents, io_uring_enter, epoll_pwait2; and on a socket with SO_RCVTIMEO
# or SO_SNDTIMEO also read, write, readv, writev, sendfile, connect, splice, preadv2, pwritev2
# (sock_intr_errno of the kernel's include/net/sock.h). Also select, pselect6 and ppoll whose time
# limit is in memory that cannot be written (poll_select_finish, fs/select.c); and fallocate on
# hugetlbfs, and on tmpfs of older kernels (seen in the source of 4.0), which torch calls for memory
# that it shares. All of them can be made again (a connect over TCP with one difference, see
# `pending_call`). A call with a timeout then waits for the whole timeout again, because the time
# left cannot be read.
_EINTR_WHEN_STOPPED = frozenset(
    (
        0, 1, 19, 20, 23, 40, 42, 43, 44, 45, 46, 47, 65, 128, 208, 220, 232, 270, 271, 275, 281,
        285, 288, 299, 307, 327, 328, 333, 426, 441,
    )
)  # fmt: skip

# endbr64; push %rbp; mov %rsp,%rbp, each optional. Then mov x(%rip) to %eax or %rax, in the latter
# case mov y(%rax),%eax; then optionally pop %rbp, and ret.
_GETTER = re.compile(
    rb"(?:\xf3\x0f\x1e\xfa)?(?:\x55\x48\x89\xe5)?"
    rb"(?:(?P<table>\x48\x8b)|(?P<base>\x48\x8d)|(?P<itself>\x8b))\x05(?P<distance>.{4})"
    rb"(?(itself)|\x8b(?:\x00|\x40(?P<near>.)|\x80(?P<far>.{4})))\x5d?\xc3",
    re.S,
)

_UCONTEXT_BYTES = 304
# UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
_UC_FLAGS = 7
_SOFTWARE_AT = 464  # sw_reserved within the legacy area, struct _fpx_sw_bytes
_SOFTWARE = struct.Struct("<IIQI28x")
_HEADER_AT = 512
_MAGIC1, _MAGIC2 = 0x46505853, 0x46505845
_TILES = 0x60000  # XFEATURE_MASK_XTILE: AMX, state that a process has to ask for


_MEASURING = threading.Lock()


class Registers:
    """The general registers by name."""

    __slots__ = ("values",)

    def __init__(self, raw: bytes) -> None:
        self.values = dict(zip(_NAMES, _REGISTERS.unpack(raw), strict=True))

    def pack(self, **changes: int) -> bytes:
        """The registers as `struct user_regs_struct`, with some replaced."""
        values = self.values | changes
        return _REGISTERS.pack(*(values[name] & _NONE for name in _NAMES))

    def call_to_repeat(self) -> int | None:
        """Number of the system call that was interrupted, if the thread is to resume in it."""
        number, result = _signed(self.values["orig_rax"]), _signed(self.values["rax"])
        if number < 0:
            return None
        if result in _RESTARTS or (result == -errno.EINTR and number in _EINTR_WHEN_STOPPED):
            return number
        return None


class X8664:
    """The x86-64 architecture, 64-bit processes."""

    futex = 202
    # write, writev, sendfile, sendto, sendmsg, splice, tee, vmsplice, sendmmsg, pwritev2
    sending = frozenset((1, 20, 40, 44, 46, 275, 276, 278, 307, 328))
    connect = 42
    return_code = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"  # mov $15,%rax; syscall

    def __init__(self) -> None:
        own_signal_layout()  # once a process, and not while a target is stopped

    def capture(self, tracee: Tracee, blocked_call: tuple[int, ...]) -> ThreadContext:
        """Read the state of a stopped thread."""
        return ThreadContext(
            general=tracee.read_registers(_NT_PRSTATUS),
            extended=tracee.read_registers(_NT_X86_XSTATE),
            signal_mask=tracee.read_signal_mask(),
            blocked_call=blocked_call,
        )

    def stack_pointer(self, context: ThreadContext) -> int:
        """The stack pointer of a context."""
        return int(Registers(context.general).values["rsp"])

    def program_counter(self, context: ThreadContext) -> int:
        """The program counter of a context."""
        return int(Registers(context.general).values["rip"])

    def link(self, context: ThreadContext) -> int:
        """0: calls put the return address on the stack."""
        del context
        return 0

    def frame(self, context: ThreadContext, return_to: int) -> SignalFrame:
        """The signal frame, headed by the return address of the called function."""
        registers = Registers(context.general)
        vectors = signal_vectors(context.extended)
        vectors_at = (registers.values["rsp"] - STACK_MARGIN_BYTES - len(vectors)) & ~63
        # After the return address is popped the stack pointer is at the ucontext, a multiple of 16.
        ucontext_at = (vectors_at - _UCONTEXT_BYTES - SIGINFO_BYTES) & ~15
        ucontext = _ucontext(registers, vectors_at, context.signal_mask)
        content = struct.pack("<Q", return_to) + ucontext
        content = content.ljust(vectors_at - ucontext_at + 8, b"\0") + vectors
        return SignalFrame(ucontext_at - 8, content)

    def call(
        self,
        context: ThreadContext,
        frame: SignalFrame,
        function: int,
        arguments: tuple[int, ...],
        return_to: int,
    ) -> bytes:
        """Registers at the entry of the function; the frame holds its return address.

        With no number in orig_rax the kernel repeats no interrupted system call.
        """
        del return_to
        registers = Registers(context.general)
        return registers.pack(
            **dict(zip(_ARGUMENTS, arguments, strict=False)),
            rip=function,
            rsp=frame.address,
            rax=0,
            orig_rax=_NONE,
            eflags=registers.values["eflags"] & ~_DIRECTION_FLAG,
        )

    def loaded_from(self, code: bytes, at: int, read: Callable[[int], int]) -> int | None:
        """Understand `mov x(%rip),%eax; ret`, and the same through the global offset table.

        The linker turns a way through that table into `lea` where it need not be taken.
        """
        found = _GETTER.match(code)
        if found is None:
            return None
        distance = int.from_bytes(found["distance"], "little", signed=True)
        place = at + found.end("distance") + distance
        if found["itself"] is not None:
            return place
        offset = int.from_bytes(found["near"] or found["far"] or b"\0", "little", signed=True)
        return (read(place) if found["table"] is not None else place) + offset

    def is_returning(self, tracee: Tracee, return_to: int) -> bool:
        """Whether the thread is at the entry of the injected `rt_sigreturn`."""
        values = Registers(tracee.read_registers(_NT_PRSTATUS)).values
        return (values["orig_rax"], values["rip"]) == (
            _RT_SIGRETURN,
            return_to + _RETURN_CODE_BYTES,
        )

    def finish(
        self,
        tracee: Tracee,
        context: ThreadContext,
        frame: SignalFrame,
        write: Callable[[int, bytes], None],
    ) -> None:
        """Turn the entry of `rt_sigreturn` into the entry of the interrupted call.

        The frame alone would also be correct, but `rt_sigreturn` discards the rest of a timeout,
        and a signal that arrived meanwhile would not interrupt the call. The registers are written
        last: until then the thread would return through the frame.

        The release acts on the call as a signal does (`__ptrace_unlink` wakes the thread). Most
        calls then repeat themselves. Those that fail with EINTR instead return through the frame,
        which absorbs that wake-up, unless a signal is pending for them.
        """
        del frame, write
        registers = Registers(context.general)
        number = registers.call_to_repeat()
        if number is None:
            return
        fails_with_eintr = _signed(registers.values["rax"]) == -errno.EINTR
        if fails_with_eintr and not tracee.has_signal(context.signal_mask):
            return
        if _signed(registers.values["rax"]) == ERESTART_RESTARTBLOCK:
            number = _RESTART_SYSCALL
        tracee.write_registers(_NT_X86_XSTATE, context.extended)
        tracee.write_signal_mask(context.signal_mask)
        tracee.write_registers(_NT_PRSTATUS, registers.pack(orig_rax=number, rax=-errno.ENOSYS))


def _ucontext(registers: Registers, vectors_at: int, signal_mask: int) -> bytes:
    """`struct ucontext`; an interrupted system call is repeated from its instruction."""
    number = registers.call_to_repeat()
    v = dict(registers.values)
    if number is not None:
        v["rax"], v["rip"] = number, v["rip"] - _SYSCALL_BYTES
    return b"".join(
        (
            struct.pack("<QQQiiQ", _UC_FLAGS, 0, 0, INVALID_STACK_FLAGS, 0, 0),
            struct.pack("<18Q", *(v[name] for name in IN_FRAME)),
            struct.pack("<HHHH", v["cs"], v["gs"], v["fs"], v["ss"]),
            struct.pack("<4QQ64x", 0, 0, 0, 0, vectors_at),
            struct.pack("<Q", signal_mask),
        )
    )


def signal_vectors(xsave: bytes) -> bytes:
    """The XSAVE area as in a signal frame: marked so that the kernel restores all of it."""
    (in_use,) = struct.unpack_from("<Q", xsave, _HEADER_AT)
    features, size = own_signal_layout()
    if in_use & _TILES or not size or size > len(xsave):
        features, size = features | in_use, len(xsave)
    software = _SOFTWARE.pack(_MAGIC1, size + 4, features, size)
    area = bytearray(xsave[:size])
    area[_SOFTWARE_AT : _SOFTWARE_AT + len(software)] = software
    return bytes(area) + struct.pack("<I", _MAGIC2)


def own_signal_layout() -> tuple[int, int]:
    """Which vector state the kernel puts into signal frames here, and its size in bytes.

    One thread at a time: if two threads installed and restored the handler alternately, the second
    signal could find the default action, which ends this process.
    """
    with _MEASURING:
        return _measure_frame()


@lru_cache(maxsize=1)
def _measure_frame() -> tuple[int, int]:
    """Send a signal to ourselves and read what it left on the stack.

    ptrace shows the largest state the processor has, signal frames hold what a process may use,
    and a frame that claims more is restored without its vector registers. The difference (AMX) is
    not visible in any file, so this process examines a frame of its own: it sends an unused signal
    to the calling thread. The handler is in place for some microseconds.
    """
    seen: list[bytes] = []

    def note_vectors(_signum: int, _info: int, ucontext: int) -> None:
        vectors_at = ctypes.c_uint64.from_address(ucontext + 40 + 184).value
        seen.append(ctypes.string_at(vectors_at + _SOFTWARE_AT, _SOFTWARE.size))

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(note_vectors)
    libc = ctypes.CDLL(None)
    # struct sigaction of glibc and musl: handler, 128 bytes of mask, flags.
    previous = ctypes.create_string_buffer(152)
    address = ctypes.cast(handler, ctypes.c_void_p).value or 0
    action = struct.pack("<Q128xi12x", address, 4)  # SA_SIGINFO
    libc.sigaction(signal.SIGRTMAX, action, previous)
    try:
        libc["raise"](signal.SIGRTMAX)
    finally:
        libc.sigaction(signal.SIGRTMAX, previous, None)
    if not seen:
        return 0, 0
    magic, _, features, size = _SOFTWARE.unpack(seen[0])
    return (features, size) if magic == _MAGIC1 else (0, 0)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
