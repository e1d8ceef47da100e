"""The parts of a thread diversion that depend on the processor: registers, calls, signal frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mpwatch.attach.native.ptrace import Tracee

STACK_MARGIN_BYTES = 256
"""Not touched below the stack pointer: on x86-64 leaf functions may use 128 (System V ABI)."""

SIGINFO_BYTES = 128
INVALID_STACK_FLAGS = 0x40
"""The kernel ignores a frame whose alternate stack is invalid and leaves the thread's own in place
(restore_altstack, since Linux 3.8): the alternate stack cannot be read from outside."""

# linux/errno.h: results that only a debugger sees. They define how the kernel continues an
# interrupted system call.
ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK = -512, -513, -514, -516


@dataclass(frozen=True, slots=True)
class ThreadContext:
    """The complete state of a stopped thread, enough to resume it unchanged."""

    general: bytes
    extended: bytes
    """Floating-point and vector registers."""
    signal_mask: int
    blocked_call: tuple[int, ...] = ()
    """The system call the thread was in, as procfs showed it before the stop.

    Number, six arguments, stack pointer and program counter; empty if the thread was running.
    """


@dataclass(frozen=True, slots=True)
class SignalFrame:
    """A signal frame and its address."""

    address: int
    """The stack pointer at the entry of the called function."""
    content: bytes


class Machine(Protocol):
    """One processor architecture."""

    futex: int
    """Number of the system call `futex`."""
    sending: frozenset[int]
    """Numbers of the system calls that return early, partly done, when their thread is stopped."""
    connect: int
    """Number of `connect`."""
    return_code: bytes
    """Instructions that perform `rt_sigreturn`; the C library or the vDSO contains them."""

    def capture(self, tracee: Tracee, blocked_call: tuple[int, ...]) -> ThreadContext:
        """Read the state of a stopped thread."""
        ...

    def stack_pointer(self, context: ThreadContext) -> int:
        """The stack pointer of a context."""
        ...

    def program_counter(self, context: ThreadContext) -> int:
        """The program counter of a context."""
        ...

    def link(self, context: ThreadContext) -> int:
        """The return address of the running function if it is in a register; else 0."""
        ...

    def frame(self, context: ThreadContext, return_to: int) -> SignalFrame:
        """The signal frame that restores a context, below its stack.

        A thread that was in an interruptible system call repeats it.
        """
        ...

    def call(
        self,
        context: ThreadContext,
        frame: SignalFrame,
        function: int,
        arguments: tuple[int, ...],
        return_to: int,
    ) -> bytes:
        """General registers that call a function and then return through the frame."""
        ...

    def loaded_from(self, code: bytes, at: int, read: Callable[[int], int]) -> int | None:
        """The address of a function's result, if the function only loads and returns it.

        Args:
            code: The instructions of the function.
            at: Address of the function.
            read: Reads an eight-byte word from the memory of the target.
        """
        ...

    def is_returning(self, tracee: Tracee, return_to: int) -> bool:
        """Whether a thread at a system-call stop is about to perform `rt_sigreturn`."""
        ...

    def finish(
        self,
        tracee: Tracee,
        context: ThreadContext,
        frame: SignalFrame,
        write: Callable[[int, bytes], None],
    ) -> None:
        """At the stop of `is_returning`, restore an interrupted system call more exactly.

        Args:
            tracee: The stopped thread.
            context: The captured state.
            frame: The signal frame on the stack.
            write: Writes to the memory of the target.
        """
        ...
