"""Queue a call in another CPython by diverting its main thread for about a hundred microseconds.

The thread is stopped, made to call `Py_AddPendingCall(function, block)`, and resumed. That function
only appends the pair to a queue; the interpreter runs the call at its next safe point, between two
bytecodes of the main thread. Nothing is allocated in the target, no library is loaded, no Python
lock is taken.

The target survives if the observer is killed at any point: the called function does not return to
the observer but to `rt_sigreturn`, with a prepared signal frame that holds the saved registers,
vector state and signal mask. Before the one request that sets the program counter to the function,
nothing has changed; after it, the thread restores itself without the observer.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mpwatch.attach.arch import Machine, SignalFrame, ThreadContext
from mpwatch.attach.native import gil_syscalls, native_call
from mpwatch.attach.native.code_cave import TargetMemory, mapping_at
from mpwatch.attach.native.cpython_symbols import Interpreter
from mpwatch.attach.native.elf import Mapping
from mpwatch.attach.native.ptrace import NotStopping, Tracee
from mpwatch.attach.outcomes import Refused
from mpwatch.collect.process import procfs
from mpwatch.collect.process.syscall_waits import names, waits_for_all

STOP_WITHIN_S = 0.25
RETURN_WITHIN_S = 0.1
STOPS = 20
"""How often a thread is stopped until it is outside of locking code."""
_STOP_PAUSE_S, _PATIENCE = 0.0002, 1.3  # together 0.13 s for all stops
SURELY_STARTED_S = 30.0
"""Age from which an interpreter counts as started, if its flag cannot be read."""
_STACK_NEED_BYTES = 16384
_STACK_WORDS = 128
_GETTER_BYTES = 32
_FUTEX_COMMAND, _WAITS = 0x7F, (0, 9)  # linux/futex.h: FUTEX_WAIT, FUTEX_WAIT_BITSET
_CALL_BYTES = 4
"""Length of the longest system-call instruction: a stopped thread may be before or after it."""
# Signals the processor raises for the thread's own instructions: a fault while they are blocked
# kills the process. Bit n - 1 is signal n: SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV.
_SYNCHRONOUS = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10
_ALL_BUT_SYNCHRONOUS = 0xFFFFFFFFFFFFFFFF & ~_SYNCHRONOUS

_PLACES_KEPT = 32
_places: dict[tuple[str, int, int, int, bytes], int] = {}
"""Offset of an instruction sequence in a mapping: processes of a job share their files."""

SAMPLES = 6
"""How often the system call of a running thread is read at least before it is stopped."""
RUNS_WITHIN_S = 0.3
"""How long a running thread is watched at most until it has computed outside the kernel, ..."""
RUNS_TICKS = 2
"""... for so many ticks of 1/100 s."""
IN_KERNEL_RATIO = 3
"""A thread with more times the time in the kernel than outside may be in one long call."""
_SAMPLE_PAUSE_S = 0.0004
TRANSFER_OVER_S = 0.3
"""How long a thread must not have been seen in a transfer before it is stopped while it runs."""
_TRANSFERS_KEPT = 256
_transfers: dict[int, tuple[float, Refused]] = {}
"""By pid: when its main thread was last seen in a transfer, and what was said of it."""


class NotReady(Refused):
    """The interpreter is still starting, or already shutting down."""

    def __init__(self) -> None:
        super().__init__("its interpreter is still starting, or ending already")


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The addresses a call needs, all found before the thread is stopped."""

    interpreter: Interpreter
    machine: Machine
    function: int
    """Address of the function to queue, see `native_call`."""
    block_at: int
    """Address of the function's argument."""
    return_to: int
    """Address of instructions that perform `rt_sigreturn`."""
    code: bytes
    """What is still to be written at `function`, in whole words, see `code_cave.install_code`."""
    started_at: int | None
    """Address of the flag that `Py_IsInitialized` returns; `None` if its code is not understood."""
    locking: tuple[tuple[int, int], ...] = ()
    """Start and end of each function in which the lock around the pending calls may be held."""
    waiting: tuple[tuple[int, int], ...] = ()
    """The ranges of `locking` in which a sleeping thread does not hold that lock."""


def machine_here() -> Machine:
    """The architecture of this machine.

    Raises:
        Refused: It is not supported.
    """
    # Imported here: the tracer needs one of them.
    name = os.uname().machine
    if name == "x86_64":
        from mpwatch.attach.arch.x86_64 import X8664

        return X8664()
    if name in ("aarch64", "arm64"):
        from mpwatch.attach.arch.aarch64 import Aarch64

        return Aarch64()
    raise Refused(f"a pending call cannot be queued on {name} processors")


def prepare(
    interpreter: Interpreter,
    machine: Machine,
    memory: TargetMemory,
    function: int,
    block_at: int,
    code: bytes,
) -> CallPlan:
    """Find the addresses a call needs.

    Raises:
        NotReady: Its loader has not linked the interpreter yet.
        Refused: The target has no code that returns from signals.
        OSError: Its memory has changed since the interpreter was found.
    """
    return_to = _find_code(interpreter, memory, machine.return_code)
    getter = interpreter.is_initialized
    started_at = machine.loaded_from(
        memory.read(getter, _GETTER_BYTES),
        getter,
        lambda address: int.from_bytes(memory.read(address, 8), "little"),
    )
    if started_at is not None and not interpreter.contains(started_at):
        raise NotReady  # its global offset table has no addresses yet
    locking, waiting = interpreter.locking_ranges, interpreter.waiting_ranges
    return CallPlan(
        interpreter, machine, function, block_at, return_to, code, started_at, locking, waiting
    )


def queue(
    plan: CallPlan, memory: TargetMemory, step: Callable[[str], None] = lambda name: None
) -> float:
    """Queue the call; must run on a thread that ends soon afterwards.

    The result of `Py_AddPendingCall` is lost, because `rt_sigreturn` overwrites it. The function
    fails only if 32 calls are queued already, and then the interpreter is not executing any.

    Args:
        plan: The call.
        memory: The target's memory.
        step: Called after each step with its name.

    Returns:
        Seconds for which the thread was stopped or diverted, from when it was last seen running.

    Raises:
        Refused: The thread cannot be diverted now.
        OSError: The rights are missing.
    """
    pid, machine = plan.interpreter.pid, plan.machine
    require_no_transfer(pid, machine, memory)
    gil_syscalls.minimise_latency()
    with gil_syscalls.uncollected(), Tracee(pid, step) as tracee:
        context = _stop_safely(plan, tracee, memory)
        stopped_s = tracee.stopped_s
        _require_started(plan, memory)
        frame = machine.frame(context, plan.return_to)
        _require_stack(plan.interpreter.mappings, machine.stack_pointer(context), frame)
        tracee.write_words(plan.function, plan.code)
        _require_code(plan, memory)
        memory.write(frame.address, frame.content)
        step("frame written")
        function = plan.interpreter.add_pending_call
        arguments = (plan.function, plan.block_at)
        tracee.write_registers(1, machine.call(context, frame, function, arguments, plan.return_to))
        # Blocked signals stay pending; the frame, or `finish`, restores the mask.
        tracee.write_signal_mask(_ALL_BUT_SYNCHRONOUS | context.signal_mask)
        try:
            if _returns(plan, tracee, context):
                machine.finish(tracee, context, frame, memory.write)
        except OSError as error:  # not to be repeated: the thread returns by itself
            raise Refused(f"the call is queued, and what followed failed: {error}") from error
        # From here on the target runs, possibly on this thread's cpu.
        ended_s = time.perf_counter()
        tracee.release()
        return ended_s - stopped_s


def _require_started(plan: CallPlan, memory: TargetMemory) -> None:
    """Read the flag that `Py_IsInitialized` returns.

    A call queued in an interpreter that is still starting would run before `importlib` is loaded,
    and end the process (seen with CPython 3.10 and 3.11); one that is shutting down would never
    run the call. The function itself cannot be called: `rt_sigreturn` overwrites its result on
    x86-64, and a single-stepped thread is killed if its observer is killed.

    Raises:
        NotReady: The interpreter is starting or shutting down.
    """
    if plan.started_at is not None:
        is_started = any(memory.read(plan.started_at, 4))
    else:
        is_started = procfs.age_s(plan.interpreter.pid) > SURELY_STARTED_S
    if not is_started:
        raise NotReady


def _require_code(plan: CallPlan, memory: TargetMemory) -> None:
    """Refuse to call what is not the code of `native_call`: it would end the process.

    Raises:
        Refused: Other bytes are there.
    """
    code = native_call.native_code().content
    if memory.read(plan.function, len(code)) != code:
        raise Refused("the code of the call was not written to its memory", passes=True)


def _returns(plan: CallPlan, tracee: Tracee, context: ThreadContext) -> bool:
    """Wait until the call is about to return through the frame; `False` after the timeout.

    A thread that gets no cpu for that long returns by itself, and the call is queued too.
    """
    deadline_s = time.perf_counter() + RETURN_WITHIN_S
    while time.perf_counter() < deadline_s:
        try:
            signum = tracee.run_to_syscall(RETURN_WITHIN_S)
        except NotStopping:
            return False
        if signum:
            # The call itself faulted: restore the registers and discard the signal.
            tracee.write_registers(1, context.general)
            tracee.write_signal_mask(context.signal_mask)
            raise Refused(
                f"the call failed with signal {signum}; the process was put back as it was"
            )
        if plan.machine.is_returning(tracee, plan.return_to):
            return True
    return False


def _stop_safely(plan: CallPlan, tracee: Tracee, memory: TargetMemory) -> ThreadContext:
    """Stop the thread at a place where it cannot hold the lock around the pending calls.

    That lock is taken only to queue or execute a call, so one attempt is nearly always enough. More
    are needed if another debugger queues calls too, or if stale words on the stack look like
    return addresses in that code.
    """
    pause_s = _STOP_PAUSE_S
    for _ in range(STOPS):
        blocked = blocked_call(plan.interpreter.pid)
        _require_repeatable(plan.interpreter.pid, plan.machine, blocked, memory)
        tracee.interrupt(STOP_WITHIN_S)
        context = plan.machine.capture(tracee, blocked)
        if not _may_hold_lock(plan, context, tracee, memory):
            return context
        tracee.resume()
        time.sleep(pause_s)
        pause_s *= _PATIENCE
    raise Refused("its main thread is busy with other pending calls", passes=True)


def require_no_transfer(pid: int, machine: Machine, memory: TargetMemory) -> None:
    """Refuse a thread that seems to be in a transfer between two moments of waiting.

    While it runs, nothing shows from outside which system call it is in, if any: a thread that
    writes much to a pipe or socket runs and waits in turn within one call, and one that copies
    (`sendfile` between files, `getrandom`) never waits; a stop ends these calls in either state.
    So a running thread is watched until it has computed outside the kernel, and one that was seen
    in a transfer is stopped only in another call, or some time later.

    Raises:
        Refused: As `_require_repeatable`; or it was only in the kernel, or on no cpu.
    """
    before = cpu_time(pid)
    deadline_s = time.monotonic() + RUNS_WITHIN_S
    for number in itertools.count(1):
        is_over = time.monotonic() > deadline_s
        now = cpu_time(pid)
        user, system = now.user - before.user, now.system - before.system
        blocked = blocked_call(pid)
        computes = user >= RUNS_TICKS and user > system
        if not blocked and number >= SAMPLES and (computes or is_over):
            # On a busy machine it has a few ticks only: one outside may be that between two calls.
            is_unclear = system > 0 and user < RUNS_TICKS
            if now.is_running and (is_unclear or system > IN_KERNEL_RATIO * user):
                raise Refused(
                    "its main thread was in the kernel all the time, possibly in a system call "
                    "that a stop would end early with part of the data transferred",
                    passes=True,
                )
            if now.is_running and not user + system:
                raise Refused("its main thread has not been on a cpu", passes=True)
            break
        if not blocked:
            time.sleep(_SAMPLE_PAUSE_S)
            continue
        try:
            _require_repeatable(pid, machine, blocked, memory)
        except Refused as refusal:
            if len(_transfers) >= _TRANSFERS_KEPT:
                _transfers.clear()
            _transfers[pid] = time.monotonic(), refusal
            raise
        _transfers.pop(pid, None)
        return
    seen = _transfers.get(pid)
    if seen is not None and time.monotonic() - seen[0] < TRANSFER_OVER_S:
        raise Refused(seen[1].reason, passes=True)


class CpuTime(NamedTuple):
    """What the kernel says of the main thread; times in ticks of 1/100 s."""

    is_running: bool
    """It is on a cpu, or waits for one."""
    user: int
    system: int


def cpu_time(pid: int) -> CpuTime:
    """The cpu time of the main thread; not running if it cannot be read."""
    try:
        stat = procfs.parse_stat(procfs.read(f"/proc/{pid}/task/{pid}/stat"))
    except (OSError, ValueError):
        return CpuTime(is_running=False, user=0, system=0)
    return CpuTime(stat.state == "R", stat.cpu_ticks - stat.system_ticks, stat.system_ticks)


def _require_repeatable(
    pid: int, machine: Machine, blocked: tuple[int, ...], memory: TargetMemory
) -> None:
    """Refuse a thread that is blocked in a call which cannot be repeated as it was.

    - A transfer that may be partly done: a stop ends it with the number of bytes transferred so
      far, as a signal would (write(2), "NOTES"; `waits_for_all`), and the observer cannot
      continue the transfer.
    - A connection over the internet protocols: where SO_SNDTIMEO ends a repeated call, it reports
      EALREADY instead of EINPROGRESS (inet_stream_connect, Linux 6.18).

    Raises:
        Refused: The main thread is in such a call.
    """
    if not blocked:
        return
    number, arguments = blocked[0], blocked[1:]
    name = names(os.uname().machine).get(number, f"system call {number}")
    if number in machine.sending or waits_for_all(name, arguments, pid):
        change = "end early with part of the data transferred"
    elif number == machine.connect and _is_internet_address(memory, arguments[1]):
        change = "make fail with another error where a time limit ends it"
    else:
        return
    raise Refused(
        f"its main thread is blocked in {name}({arguments[0]}), which a stop would {change}",
        passes=True,
    )


def _is_internet_address(memory: TargetMemory, address: int) -> bool:
    """Whether a `struct sockaddr` of the target is of IPv4 or IPv6."""
    try:
        family = int.from_bytes(memory.read(address, 2), sys.byteorder)
    except OSError:
        return False
    return family in (socket.AF_INET, socket.AF_INET6)


def _may_hold_lock(
    plan: CallPlan, context: ThreadContext, tracee: Tracee, memory: TargetMemory
) -> bool:
    """Whether the thread is inside locking code or a restartable sequence."""
    counter = plan.machine.program_counter(context)
    rseq_at = tracee.rseq_address()
    if rseq_at:
        section = int.from_bytes(memory.read(rseq_at + 8, 8), "little")
        if section:
            start = int.from_bytes(memory.read(section + 8, 8), "little")
            length = int.from_bytes(memory.read(section + 16, 8), "little")
            if start <= counter < start + length:
                return True
    stack = memory.read(plan.machine.stack_pointer(context), 8 * _STACK_WORDS)
    words = struct.unpack_from(f"<{len(stack) // 8}Q", stack)
    places = (counter, plan.machine.link(context), *words)
    is_asleep = _is_waiting(plan, context)
    ranges = [r for r in plan.locking if not (is_asleep and r in plan.waiting)]
    low = min((start for start, _ in ranges), default=0)
    high = max((end for _, end in ranges), default=0)
    near = [word for word in places if low <= word < high]
    return any(start <= word < end for word in near for start, end in ranges)


def _is_waiting(plan: CallPlan, context: ThreadContext) -> bool:
    """Whether the thread was asleep in a futex call, and still in it when it was stopped."""
    call = context.blocked_call
    if len(call) < 9 or call[0] != plan.machine.futex or call[2] & _FUTEX_COMMAND not in _WAITS:
        return False
    is_there = abs(plan.machine.program_counter(context) - call[8]) <= _CALL_BYTES
    return is_there and plan.machine.stack_pointer(context) == call[7]


def _require_stack(mappings: Iterable[Mapping], pointer: int, frame: SignalFrame) -> None:
    """Refuse a stack without space for the frame and a shallow call."""
    mapping = mapping_at(mappings, pointer)
    if mapping is None or "w" not in mapping.permissions:
        raise Refused("its stack could not be recognised")
    if mapping.path != "[stack]" and frame.address - _STACK_NEED_BYTES < mapping.start:
        raise Refused("its main thread has too little stack left")


def blocked_call(pid: int) -> tuple[int, ...]:
    """The system call the main thread is in, see `Context.blocked_call`; empty if it is running."""
    try:
        with open(f"/proc/{pid}/task/{pid}/syscall", "rb") as file:
            words = file.read().split()
        return (int(words[0]), *(int(word, 16) for word in words[1:9]))
    except (OSError, ValueError, IndexError):
        return ()


def _find_code(interpreter: Interpreter, memory: TargetMemory, code: bytes) -> int:
    """Address of an instruction sequence in the vDSO, the C library or the interpreter."""
    executable = [
        m for m in interpreter.mappings if "x" in m.permissions and m.path != "[vsyscall]"
    ]
    for mapping in sorted(executable, key=lambda mapping: _rank(mapping.path)):
        size = mapping.end - mapping.start
        key = mapping.path, mapping.device, mapping.inode, size, code
        try:
            at = _places.get(key, -1)
            if at < 0 or memory.read(mapping.start + at, len(code)) != code:
                at = memory.read(mapping.start, size).find(code)
        except OSError:
            continue
        if at >= 0:
            _remember(key, at)
            return mapping.start + at
    raise Refused("no code that returns from signals was found in it")


@functools.lru_cache(maxsize=4096)
def _rank(path: str) -> int:
    """Search order of a file: lower first."""
    name = os.path.basename(path)
    order = ("[vdso]", "libc.so", "libc-", "ld-musl", "libpthread", "python", "libpython")
    return next((i for i, start in enumerate(order) if name.startswith(start)), len(order))


def _remember(key: tuple[str, int, int, int, bytes], at: int) -> None:
    if len(_places) >= _PLACES_KEPT:
        _places.clear()
    _places[key] = at
