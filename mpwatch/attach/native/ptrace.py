"""The ptrace requests that attaching needs, for one thread of another process.

All requests on a thread must come from the thread that seized it. When that thread ends, for
whatever reason, the kernel detaches from the target (ptrace(2), "the tracer dies"). So each session
runs on a thread of its own, and every error path ends that thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from types import TracebackType

from mpwatch.attach.native import gil_syscalls
from mpwatch.attach.outcomes import Refused
from mpwatch.collect.process import procfs

# linux/ptrace.h
_POKEDATA, _CONT, _DETACH, _SYSCALL = 5, 7, 17, 24
_GETREGSET, _SETREGSET, _SEIZE, _INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
_GETSIGMASK, _SETSIGMASK, _GET_RSEQ_CONFIGURATION = 0x420A, 0x420B, 0x420F
_O_TRACESYSGOOD = 1
_EVENT_STOP = 128
_WALL = 0x40000000  # __WALL: threads are waited for as well as processes

SYSCALL_STOP = signal.SIGTRAP | 0x80
"""Stop signal of a system-call stop under PTRACE_O_TRACESYSGOOD."""
_SPIN_S = 0.0001
"""How long to poll without sleeping: a target that is scheduled at once stops within this time.
On a busy machine the target needs this thread's cpu."""
_NAP_NS = 20_000
_HELD_S = 0.01
"""How long to wait for a stop with the GIL held, so that it is noticed without delay."""
_SLEEP_S = 0.00005
_QUEUE_S = 5.0
"""Extra time for a runnable thread that waits for a cpu."""
_PID, _STATUS = 4, 6  # words of siginfo_t
WORD_BYTES = ctypes.sizeof(ctypes.c_long)
_REGISTERS_BYTES = 16384
_STATUS_BYTES = 4096


class _Slice(ctypes.Structure):
    """`struct iovec`: the buffer of a register set."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class ThreadGone(Refused):
    """The thread ended while it was being examined."""

    def __init__(self) -> None:
        super().__init__("the process ended during the attempt")


class NotStopping(Refused):
    """The thread did not stop in time; it is released when the tracing thread ends.

    It may stop at the next attempt: most often it waits for a cpu.
    """

    def __init__(self, within_s: float) -> None:
        words = f"its main thread did not stop within {within_s * 1000:.0f} ms"
        super().__init__(words, passes=True)


class Tracee:
    """One seized thread.

    `PTRACE_O_EXITKILL` is never set: the target must survive the exit of its observer.

    Args:
        tid: Thread to seize.
        step: Called after every request with its name; tests kill the observer there.
    """

    def __init__(self, tid: int, step: Callable[[str], None] = lambda name: None) -> None:
        self._tid = tid
        self._step = step
        self._libc = gil_syscalls.libc()
        self._status = -1
        self._is_stopped = False
        self._is_seized = False
        self._buffer = ctypes.create_string_buffer(_REGISTERS_BYTES)
        self._found = (ctypes.c_int * 32)()  # siginfo_t
        self.stopped_s = 0.0
        """When it was last seen running before it stopped, by `time.perf_counter`."""

    def __enter__(self) -> Tracee:
        self._request("seize", _SEIZE, 0, _O_TRACESYSGOOD)
        self._is_seized = True
        self._status = os.open(f"/proc/{self._tid}/status", os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status >= 0:
            os.close(self._status)
        self.release()

    def interrupt(self, within_s: float) -> None:
        """Stop the thread.

        Raises:
            Refused: The thread was stopped by another cause, has ended, or does not stop in time.
        """
        self._request("interrupt", _INTERRUPT)
        deadline_s = time.perf_counter() + within_s
        while True:
            signum, event = self._wait(deadline_s, within_s)
            if event == _EVENT_STOP and signum == signal.SIGTRAP:
                return
            if event == _EVENT_STOP:
                raise Refused(
                    f"it is stopped ({signal.Signals(signum).name})", f"kill -CONT {self._tid}"
                )
            # A signal was pending: it is delivered, and the requested stop follows.
            self._resume("deliver", _CONT, signum)

    def run_to_syscall(self, within_s: float) -> int:
        """Let the thread run to its next system-call stop.

        Returns:
            0 at a system-call stop, else the signal that stopped it, not yet delivered.
        """
        self._resume("run", _SYSCALL, 0)
        deadline_s = time.perf_counter() + within_s
        while True:
            signum, event = self._wait(deadline_s, within_s)
            if signum == SYSCALL_STOP:
                return 0
            if event != _EVENT_STOP:
                return signum
            # The user stopped the whole process meanwhile. The call is finished first: the kernel
            # stops the thread again as soon as it is detached.
            self._resume("run", _SYSCALL, 0)

    def resume(self) -> None:
        """Resume the thread; it stays seized."""
        self._resume("resume", _CONT, 0)

    def read_registers(self, kind: int, limit_bytes: int = _REGISTERS_BYTES) -> bytes:
        """A register set (`NT_...` of linux/elf.h) as the kernel lays it out.

        Raises:
            OSError: The processor has no such set.
        """
        if limit_bytes > len(self._buffer):
            self._buffer = ctypes.create_string_buffer(limit_bytes)
        place = ctypes.addressof(self._buffer)
        piece = _Slice(place, limit_bytes)
        self._request("read registers", _GETREGSET, kind, ctypes.addressof(piece))
        return ctypes.string_at(place, piece.length)

    def write_registers(self, kind: int, content: bytes) -> None:
        """Write a register set; it takes effect when the thread is resumed."""
        buffer = ctypes.create_string_buffer(content, len(content))
        piece = _Slice(ctypes.addressof(buffer), len(content))
        self._request("write registers", _SETREGSET, kind, ctypes.addressof(piece))

    def read_signal_mask(self) -> int:
        """The set of blocked signals, bit n - 1 for signal n."""
        buffer = ctypes.c_uint64()
        self._request("read mask", _GETSIGMASK, 8, ctypes.addressof(buffer))
        return buffer.value

    def write_signal_mask(self, mask: int) -> None:
        """Set the set of blocked signals."""
        buffer = ctypes.c_uint64(mask)
        self._request("write mask", _SETSIGMASK, 8, ctypes.addressof(buffer))

    def write_words(self, address: int, content: bytes) -> None:
        """Write whole words to memory of the stopped thread, code included.

        A tracer may write to pages that the target itself may not write to, whatever
        `proc_mem.force_override` says of `/proc/PID/mem`; the process gets a private copy of them.
        """
        for offset in range(0, len(content), WORD_BYTES):
            word = int.from_bytes(content[offset : offset + WORD_BYTES], sys.byteorder)
            self._request("write word", _POKEDATA, address + offset, word)

    def has_signal(self, mask: int) -> bool:
        """Whether a signal with a handler is pending and not blocked by this mask.

        Other signals do not count: a traced thread has even ignored signals pending.
        """
        pending, caught = 0, 0
        for line in gil_syscalls.read(self._status, _STATUS_BYTES, 0).splitlines():
            name, _, value = line.partition(b":")
            if name in (b"SigPnd", b"ShdPnd"):
                pending |= int(value, 16)
            elif name == b"SigCgt":
                caught = int(value, 16)
        return bool(pending & caught & ~mask)

    def rseq_address(self) -> int:
        """Address of the thread's restartable-sequence area; 0 if it has none (Linux >= 5.13)."""
        buffer = (ctypes.c_uint64 * 3)()
        try:
            size = self._request(
                "read rseq",
                _GET_RSEQ_CONFIGURATION,
                ctypes.sizeof(buffer),
                ctypes.addressof(buffer),
            )
        except OSError:
            return 0
        return buffer[0] if size else 0

    def release(self) -> None:
        """Detach; the thread resumes with its current registers."""
        if not self._is_seized:
            return
        if self._is_stopped:
            self._is_seized = False
            try:
                self._request("detach", _DETACH)
            except ProcessLookupError:  # it was killed while stopped
                return

    def _resume(self, name: str, request: int, signum: int) -> None:
        self._is_stopped = False
        self._request(name, request, 0, signum)

    def _wait(self, deadline_s: float, within_s: float) -> tuple[int, int]:
        """Stop signal and event of the next stop."""
        # Wait for stops only: waiting for the exit as well would take the exit status away from the
        # parent, which may be this process.
        found, options = self._found, os.WSTOPPED | os.WNOHANG | _WALL
        now_s = self.stopped_s = time.perf_counter()
        spin_until_s, patient_from_s = now_s + _SPIN_S, now_s + _HELD_S
        while True:
            found[_PID] = 0
            if self._libc.waitid(os.P_PID, self._tid, found, options) == -1:
                raise ThreadGone
            if found[_PID]:
                break
            self.stopped_s = now_s
            now_s = time.perf_counter()
            if now_s > spin_until_s:
                state = self._state()
                if state in "ZX":
                    raise ThreadGone
                # A runnable thread that waits for a cpu is not blocked, and will stop.
                if now_s > deadline_s + (_QUEUE_S if state == "R" else 0.0):
                    raise NotStopping(within_s)
                if now_s < patient_from_s:
                    gil_syscalls.nap(_NAP_NS)
                else:
                    time.sleep(_SLEEP_S)
        self._is_stopped = True
        self._step("stopped")
        return found[_STATUS] & 0xFF, found[_STATUS] >> 8

    def _state(self) -> str:
        """One letter as in `/proc/PID/stat`; `X` if it is gone."""
        try:
            return procfs.stat_of(self._tid).state
        except (OSError, ValueError):
            return "X"

    def _request(self, name: str, request: int, address: int = 0, data: int = 0) -> int:
        """One ptrace call.

        Raises:
            OSError: As errno says.
        """
        ctypes.set_errno(0)
        result: int = self._libc.ptrace(request, self._tid, address, data)
        code = ctypes.get_errno()
        if result == -1 and code:
            if code == errno.ESRCH and self._is_seized:
                raise ThreadGone
            raise OSError(code, os.strerror(code), f"ptrace {name}")
        self._step(name)
        return result
