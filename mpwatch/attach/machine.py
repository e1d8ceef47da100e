"""What differs between processors when a thread is borrowed: registers, calls, signal frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from mpwatch.attach.ptrace import Tracee

STACK_MARGIN_BYTES = 256
"""Left alone below the stack pointer: on x86-64 the System V ABI lets leaf functions use 128."""

# linux/errno.h: results that never leave the kernel unless a debugger looks. They tell how an
# interrupted system call is to be continued.
ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK = -512, -513, -514, -516


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a stopped thread needs to go on as if nothing had happened."""

    general: bytes
    extended: bytes
    """Floating-point and vector registers."""
    signal_mask: int
    blocked_call: tuple[int, ...] = ()
    """The system call it was in, as far as procfs told beforehand.

    Number, six arguments, stack pointer and program counter; empty if it ran.
    """


@dataclass(frozen=True, slots=True)
class Frame:
    """A signal frame, and where it is to lie."""

    address: int
    """The stack pointer with which the borrowed function starts."""
    content: bytes


class Machine(Protocol):
    """One processor architecture."""

    futex: int
    """Number of that system call."""
    sending: frozenset[int]
    """Numbers of the calls that return early, with a part sent, when their thread is stopped."""
    receiving: ClassVar[Mapping[int, int]]
    """Calls that do so if told to wait for all data, and which argument has their flags, from 1."""
    return_code: bytes
    """Instructions that perform `rt_sigreturn`; the C library or the vDSO has them for handlers."""

    def capture(self, tracee: Tracee, blocked_call: tuple[int, ...]) -> Context:
        """Read everything of a stopped thread."""
        ...

    def stack_pointer(self, context: Context) -> int:
        """Where its stack ends."""
        ...

    def program_counter(self, context: Context) -> int:
        """What it would execute next."""
        ...

    def link(self, context: Context) -> int:
        """Where the running function returns to, if that is in a register; else 0."""
        ...

    def frame(self, context: Context, return_to: int) -> Frame:
        """The signal frame that restores a context, below its stack.

        A thread that was in an interruptible system call enters it again.
        """
        ...

    def call(
        self,
        context: Context,
        frame: Frame,
        function: int,
        arguments: tuple[int, ...],
        return_to: int,
    ) -> bytes:
        """General registers that call a function and then return through the frame."""
        ...

    def loaded_from(self, code: bytes, at: int, read: Callable[[int], int]) -> int | None:
        """From which address a function loads its result, if that is all the function does.

        Args:
            code: Its instructions.
            at: Where it lies.
            read: Reads a word of eight bytes of its process.
        """
        ...

    def is_returning(self, tracee: Tracee, return_to: int) -> bool:
        """Whether a thread at a system-call stop is about to perform `rt_sigreturn`."""
        ...

    def finish(
        self, tracee: Tracee, context: Context, frame: Frame, write: Callable[[int, bytes], None]
    ) -> None:
        """At that stop, continue an interrupted system call more exactly than the frame could.

        Args:
            tracee: The stopped thread.
            context: As it was captured.
            frame: As it lies on the stack.
            write: Writes to the memory of its process.
        """
        ...
