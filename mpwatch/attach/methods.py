"""How a target is made to run the bootstrap code, and under which conditions.

A pending call for every version of Python: `Py_AddPendingCall`, called on the main thread by
ptrace, see `pending_call`. `sys.remote_exec` (Python 3.14, PEP 768) is not used. The target opens
its script by path and without any check, so a process that can rename a folder above it between the
request and the next bytecode of the main thread chooses what runs. The script runs on the main
thread, as a part of the program: what a signal handler of the program raises in there is printed
and lost (also a KeyboardInterrupt), and at the recursion limit it fails with a message.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property

from mpwatch.attach.native import code_cave, cpython_symbols, native_call, pending_call, tracer
from mpwatch.attach.native.cpython_symbols import Interpreter
from mpwatch.attach.native.tracer import Step, no_step
from mpwatch.attach.outcomes import Begun, Refused, not_logged
from mpwatch.attach.payload import compiled_payload
from mpwatch.attach.payload.exchange_dir import ExchangeDir
from mpwatch.attach.target import Target, read_target
from mpwatch.collect.host import ptrace_access
from mpwatch.collect.host.host import memory_left
from mpwatch.collect.process import fds, procfs
from mpwatch.hook import wire
from mpwatch.model.cmdline import has_x_option

Waiting = Callable[[], contextlib.AbstractContextManager[None]]

PENDING_CALL = "pending call"
"""The method of an injection, in plans, results and the log."""
PROC = "/proc"
"""Directory of the kernel's settings and of what decides on rights; replaced in tests."""
PASSES_WITHIN_S = 1.0
"""How long an injection, and a plan of one, wait for a temporary obstacle: a disk read, or
py-spy taking a stack. A plan waits as long, so that it says what an injection would do."""
_ANSWER_BYTES = 1 << 16
_SIGXFSZ = 1 << (signal.SIGXFSZ - 1)
_STACK_BYTES = 8 << 20
"""A thread's stack where RLIMIT_STACK does not say more; `threading.stack_size` is not seen."""
_LOADED_BYTES = 16 << 20
"""Several times what the hook and the program that loads it map besides; of a process whose control
group had 4 MiB left, an injection took so much that the kernel killed it."""
_LOADED_MAPPINGS = 256
"""Several times what it adds to them: 78 in a plain program, by the modules of the standard library
that it imports, and 17 where torch is loaded."""
STARTED_WITHIN_S = 1.0
_STARTING_S = 0.02
_ENDING_S = 0.02
# One target is stopped at a time: a stopped target must not wait for another thread.
_STOPPING = threading.Lock()
_CLAIMING = threading.Lock()
_claims: list[Target] = []
"""The targets that just load the hook: what each of them may take is not left for others."""


class NotFinished(Refused):
    """Another call is under way in the target."""

    def __init__(self) -> None:
        super().__init__("an earlier injection has not finished in it", passes=True)


class Attempt:
    """One attempt with one target, and the facts read about it so far."""

    def __init__(
        self,
        target: Target,
        step: Step = no_step,
        waiting: Waiting = contextlib.nullcontext,
        begun: Begun = not_logged,
    ) -> None:
        self._begun = begun
        self.target = target
        self.step = step
        self.waiting = waiting
        self.block_at: int | None = None
        """Address of the pending call's block in the target's memory, see `native_call`."""

    def begin(self) -> None:
        """Report that the target is about to be changed, each time that it is.

        Raises:
            Refused: It is not wanted any more.
        """
        self._begun(self.target.process, PENDING_CALL, "")

    def read_again(self) -> None:
        """Read the facts about the target again.

        Raises:
            Refused: The target has exited.
        """
        self.target = read_target(self.target.process)

    def begin_again(self) -> None:
        """Forget the interpreter, too: the target may have executed another program.

        Raises:
            Refused: The target has exited.
        """
        self.__dict__.pop("interpreter", None)
        self.read_again()

    @cached_property
    def interpreter(self) -> Interpreter:
        """The target's Python interpreter.

        Raises:
            Refused: No CPython was recognised in the target.
        """
        try:
            return cpython_symbols.find(self.target.pid)
        except PermissionError:
            found = ptrace_access.check(self.target.pid)
            raise Refused(
                found.reason or "its mappings are hidden from mpwatch", found.fix
            ) from None
        except OSError:
            raise Refused("the process ended during the attempt") from None


def require_usable(attempt: Attempt) -> None:
    """Require CPython >= 3.10 with a GIL, a thread that ptrace can stop, and the rights.

    Raises:
        Refused: The hook cannot be injected; the message says why.
    """
    pending_call.machine_here()
    target = attempt.target
    require_not_disabled(target)
    if target.privileges:
        raise Refused(target.privileges)
    require_file_size(target)
    require_address_space(target)
    require_stoppable(target)
    _require_rights(target)
    if not target.sees_itself:
        raise Refused(
            "it has no procfs at /proc that shows it, and the hook reads its own entries there",
            "mount procfs at /proc in its root directory before starting it",
        )
    if target.has_shadow_stack:
        raise Refused(
            "CET shadow stacks are on, so a call cannot be injected",
            "unset GLIBC_TUNABLES=glibc.cpu.x86_shstk before starting it",
        )
    tracer.start()  # it becomes ready while the interpreter is examined
    version = attempt.interpreter.version
    if version is None or version < (3, 10):
        shown = "an unknown version" if version is None else f"{version[0]}.{version[1]}"
        raise Refused(f"its Python is {shown}; mpwatch supports 3.10 and later")
    _require_gil(attempt.interpreter)
    require_mappings(attempt.interpreter)
    code_cave.require_unused_bytes(attempt.interpreter.modules)


def queue_call(attempt: Attempt, exchange: ExchangeDir) -> float:
    """Make the target run the payload in its exchange directory, on a thread that then ends.

    Returns:
        Seconds for which the target's main thread was stopped.

    Raises:
        Refused: The attempt failed; the target is unchanged.
    """
    try:
        memory = code_cave.TargetMemory(attempt.target.pid)
    except OSError as error:
        raise Refused(f"its memory cannot be opened: {error.strerror}") from error
    try:
        tracer.require_same(attempt.target.process)
        function, code, block_at = _install(attempt, exchange, memory)
        attempt.block_at = block_at
        attempt.step("text written")
        return _queue(attempt, memory, function, code, block_at)
    except ProcessLookupError:
        raise Refused("the process ended during the attempt") from None
    except OSError as error:
        if error.errno == errno.EIO:
            raise Refused(
                "its memory has changed meanwhile: it is starting, or runs another program now",
                passes=True,
            ) from error
        # The rights were checked before, so another tracer has attached since.
        passes = error.errno == errno.EPERM
        raise Refused(
            f"its main thread could not be controlled by ptrace: {error}", passes=passes
        ) from error
    finally:
        memory.close()


def cancel_call(target: Target, block_at: int | None = None, within_s: float = 0.0) -> bool:
    """Cancel a queued call, or clear the block of a finished one, where possible.

    Args:
        target: The process.
        block_at: Address of the block; `None` to search for it.
        within_s: How long to wait for the end of a call that has begun.

    Returns:
        Whether a call has begun and not ended; `False` if the memory cannot be read.
    """
    deadline_s = time.monotonic() + within_s
    try:
        memory = code_cave.TargetMemory(target.pid)
    except OSError:
        return False
    try:
        while code_cave.cancel_call(target.pid, target.process.start_ticks, memory, block_at):
            if time.monotonic() > deadline_s:
                return True
            time.sleep(_ENDING_S)
        return False
    except OSError:
        return False
    finally:
        memory.close()


def call_is_under_way(target: Target) -> bool:
    """Whether a call has begun and not ended; `False` if the memory cannot be read."""
    try:
        memory = code_cave.TargetMemory(target.pid)
    except OSError:
        return False
    try:
        found = code_cave.find_call(target.pid, memory)
    except OSError:
        return False
    finally:
        memory.close()
    return found is not None and found[1].is_running(target.process.start_ticks)


def call_failure(target: Target, block_at: int | None) -> str:
    """Why a queued call has failed without an answer; empty if it may still answer, or unknown."""
    if block_at is None:
        return ""
    try:
        memory = code_cave.TargetMemory(target.pid)
    except OSError:
        return ""
    try:
        found = native_call.parse(memory.read(block_at, native_call.BLOCK_BYTES))
    except OSError:
        return ""
    finally:
        memory.close()
    return found.failure if found is not None else ""


def _install(
    attempt: Attempt, exchange: ExchangeDir, memory: code_cave.TargetMemory
) -> tuple[int, bytes, int]:
    """Write code and data for a call.

    Returns:
        The address of the code, what of it only a tracer may write, and the address of the data.

    Raises:
        Refused: There is no place, or an earlier call still uses it.
        OSError: It cannot be written.
    """
    pid, found = attempt.target.pid, attempt.interpreter
    ticks = attempt.target.process.start_ticks
    code = native_call.native_code().content
    code_at, missing = code_cave.install_code(pid, found.modules, found.mappings, memory, code)
    block_at = code_cave.find_data(pid, found.modules, memory)
    present = native_call.parse(memory.read(block_at, native_call.BLOCK_BYTES))
    if present is not None and present.is_running(ticks):
        raise NotFinished
    text = compiled_payload.bootstrap_text(exchange.path, attempt.target.pid_inside)
    block = native_call.block(code_at, text, ticks, found.address)
    native_call.store(memory.write, block_at, block)
    return code_at, missing, block_at


def _queue(
    attempt: Attempt,
    memory: code_cave.TargetMemory,
    function: int,
    code: bytes,
    block_at: int,
) -> float:
    """Queue the call as soon as the interpreter has started."""
    deadline_s = time.monotonic() + STARTED_WITHIN_S
    machine = pending_call.machine_here()
    while True:
        try:
            # Each time: what is still starting may execute another program, whose memory is not
            # that of the plan. It takes 26 us once the files were searched.
            plan = pending_call.prepare(
                attempt.interpreter, machine, memory, function, block_at, code
            )
            with _STOPPING:
                return tracer.start().queue(
                    attempt.target.process, tracer.without_mappings(plan), attempt.step
                )
        except pending_call.NotReady:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(_STARTING_S)


def require_not_disabled(target: Target) -> None:
    """Refuse a process that was started with remote code disabled.

    By a variable of `wire.DISABLING`, or by `-X disable-remote-debug` (PEP 768: CPython >= 3.14
    obeys it; mpwatch does on every version and by every method).
    """
    name = wire.disabled_by(target.environment)
    if name is not None:
        raise Refused(f"{name} is set in its environment", f"start it without {name}")
    try:
        cmdline = procfs.read_cmdline("/proc", target.pid)
    except OSError:
        return
    if has_x_option(cmdline, wire.DISABLING_OPTION):
        option = f"-X {wire.DISABLING_OPTION[0]}"
        raise Refused(f"it was started with {option}", f"start it without {option}")


def require_file_size(target: Target) -> None:
    """Refuse a process that writing the answer of the payload could end.

    A write beyond RLIMIT_FSIZE sends SIGXFSZ. Python ignores it; a program may have restored its
    default action or handle it. What the hook writes later, it does not try (`require_size`).
    """
    try:
        limit = fds.limits("/proc", target.pid).others.get("file size")
    except OSError:
        return
    ignored = procfs.read_status("/proc", target.pid).signals_ignored
    if limit is not None and limit < _ANSWER_BYTES and not (ignored or 0) & _SIGXFSZ:
        raise Refused(
            f"it may write no file beyond {limit} bytes (ulimit -f), and what the hook writes"
            " would send it SIGXFSZ"
        )


def require_address_space(target: Target) -> None:
    """Refuse a process that may hardly map more memory.

    Two threads start in it, each with a stack of its own and a part of it for Python frames. A
    thread that gets the first and not the second ends the process, in CPython (3.11: a call in
    Python without a frame, see `Server._thread`; all: `PyGILState_Ensure` without memory).
    """
    try:
        limits = fds.limits("/proc", target.pid).others
        with open(f"/proc/{target.pid}/statm", "rb") as file:
            size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return
    limit, stack = limits.get("address space"), limits.get("stack size") or 0
    if limit is not None and limit - size < 2 * max(stack, _STACK_BYTES) + _LOADED_BYTES:
        left = max(0, limit - size) >> 20
        raise Refused(
            f"it may map only {left} MiB more (ulimit -v), and an injection could end it there"
        )


def require_mappings(found: Interpreter) -> None:
    """Refuse a process that may hardly make more mappings: what the hook adds, it could not add.

    A thread that cannot be started there, or a module that cannot be loaded, fails the injection;
    and of a program that grows to the limit, the hook would take what is left.
    """
    try:
        limit = procfs.number(procfs.read(f"{PROC}/sys/vm/max_map_count", 64))
    except OSError:
        limit = None
    if limit is not None and limit - len(found.mappings) < _LOADED_MAPPINGS:
        left = max(0, limit - len(found.mappings))
        raise Refused(
            f"it may make only {left} mappings more (vm.max_map_count), and an injection could use"
            " them up"
        )


def require_memory(target: Target, count: int = 1) -> None:
    """Refuse a process that would be killed for want of memory, or for which another one would be.

    Args:
        target: The process.
        count: How many processes load the hook at a time, this one included.
    """
    left = memory_left(target.pid, PROC)
    for left_bytes, whose in (
        (left.group_bytes, "its control group"),
        (left.machine_bytes, "the machine"),
    ):
        if left_bytes is not None and left_bytes < count * _LOADED_BYTES:
            what = "an injection" if count == 1 else f"{count} injections at a time"
            words = f"only {left_bytes >> 20} MiB of memory left, and {what} could use it up"
            raise Refused(f"{whose} has {words}", passes=True)


@contextlib.contextmanager
def memory_claimed(target: Target) -> Iterator[None]:
    """Claim the memory that an injection may take, for as long as that is under way.

    Raises:
        Refused: It is not left; see `require_memory`.
    """
    with _CLAIMING:
        require_memory(target, len(_claims) + 1)
        _claims.append(target)
    try:
        yield
    finally:
        with _CLAIMING:
            _claims.remove(target)


def require_same_clocks(target: Target) -> None:
    """Refuse a process of another time namespace than this one (time_namespaces(7)).

    There its start time, by which the hook's files are named, and CLOCK_MONOTONIC, by which events
    are ordered, differ from what mpwatch reads. A link that is hidden, or that the kernel does not
    have, is no obstacle.
    """
    try:
        own = os.readlink("/proc/self/ns/time")
        its = os.readlink(f"/proc/{target.pid}/ns/time")
    except OSError:
        return
    if own != its:
        raise Refused(
            "it lives in another time namespace than mpwatch, where clocks differ",
            f"nsenter --time --target {target.pid} mpwatch attach {target.pid}",
        )


def _require_gil(found: Interpreter) -> None:
    """Refuse a free-threaded build.

    The hook's ring and patches depend on the GIL; and in such a build a stopped thread may hold
    the lock around the pending calls in code that has no symbol.
    """
    if found.is_free_threaded:
        raise Refused(
            "its Python is free-threaded, which the hook does not support",
            "run the job with a Python that has the GIL (python3.N, not python3.Nt)",
        )


def _require_rights(target: Target) -> None:
    """Refuse a target that this process may not attach to, naming every missing right."""
    if ptrace_access.may_attach(target.pid, PROC):
        return
    found = ptrace_access.check(target.pid, PROC)
    if not found.is_allowed:
        raise Refused(found.reason, found.fix, passes=found.passes)


def require_stoppable(target: Target) -> None:
    """Refuse a target in a state that ptrace would wait for, or could change."""
    if target.state == "T":
        raise Refused("it is stopped", f"kill -CONT {target.pid}")
    if target.state == "t":
        raise Refused(
            f"process {target.tracer_pid} has stopped it for debugging",
            "end that debugger first",
            passes=True,
        )
    if target.state == "D":
        raise Refused("its main thread is in uninterruptible sleep (state D)", passes=True)
