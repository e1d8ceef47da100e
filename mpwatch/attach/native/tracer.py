"""The tracer: a separate process that stops targets, so that a stopped observer stops none.

An observer that is stopped itself (Ctrl-Z, SIGSTOP, a paused terminal) while a target is stopped
would keep it stopped. So one small process in a session of its own, without a terminal, makes
all ptrace requests. It is started with the first attach, serves one request at a time over a socket
pair and exits when the observer's end is closed for any reason. After `WITHIN_S` of one request a
timer kills the process, also while it is stopped or frozen itself, and the kernel releases the
target ("the tracer dies", ptrace(2)). The freezer of control groups version 1 is the exception.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from mpwatch.attach.native import gil_syscalls, pending_call
from mpwatch.attach.native.code_cave import TargetMemory
from mpwatch.attach.native.pending_call import CallPlan, NotReady
from mpwatch.attach.outcomes import Refused
from mpwatch.collect.host import isolated
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId

NAME = "mpwatch-tracer"
"""Name of the process: the last argument of its command line, and its `comm`."""
WITHIN_S = 10
"""Whole seconds after which a request kills the tracer."""
_ANSWER_MARGIN_S = 2.0
_END_WITHIN_S = 1.0
"""How long a tracer may take to exit before it is killed, and then to be reaped."""
_STEP_WITHIN_S = 0.25
"""How long the observer's step callback (used in tests) may delay a stopped target."""
_GO_ON = ("go on",)
_LENGTH = struct.Struct("<I")
_IGNORED = (signal.SIGINT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGHUP)

Step = Callable[[str], None]
Message = tuple[Any, ...]


def no_step(_name: str) -> None:
    """The default step callback: does nothing."""


class Tracer:
    """The observer's end of its tracer.

    Args:
        sock: Connected to it.
        pid: Its process id.
    """

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.pid = pid
        self._sock = sock

    def queue(self, process: ProcessId, plan: CallPlan, step: Step) -> float:
        """As `pending_call.queue`, in the tracer.

        Raises:
            Refused: As `pending_call.queue`; or the tracer has ended.
            OSError: As `pending_call.queue`.
        """
        self._sock.settimeout(WITHIN_S + _ANSWER_MARGIN_S)
        has_steps = step is not no_step
        try:
            send(self._sock, (process, plan, has_steps))
            while True:
                kind, *said = receive(self._sock)
                if kind == "step":
                    step(said[0])
                    send(self._sock, _GO_ON)
                else:
                    break
        except (OSError, EOFError) as error:
            forget()
            raise Refused(f"the tracer process ended during the attempt: {error!r}") from None
        if kind == "stopped for":
            return float(said[0])
        if kind == "not ready":
            raise NotReady
        if kind == "os error":
            raise OSError(*said)
        raise Refused(said[0], said[1], passes=said[2])

    def has_ended(self) -> bool:
        """Whether the tracer process has exited."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def disconnect(self) -> None:
        """Close this process's end; the tracer exits when all copies of it are closed."""
        self._sock.close()

    def close(self) -> None:
        """End the tracer, and reap it; it stays if a freezer of version 1 holds it."""
        self.disconnect()
        if not self._ends():
            os.kill(self.pid, signal.SIGKILL)  # it is stopped: not reaped, so the pid is still its
            self._ends()

    def _ends(self) -> bool:
        deadline_s = time.monotonic() + _END_WITHIN_S
        while not self.has_ended():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.005)
        return True


_lock = threading.Lock()
_tracer: tuple[int, Tracer] | None = None
"""Pid of the process that started the tracer, and the tracer: a forked child has none."""


def start() -> Tracer:
    """The tracer of this process, started if needed; does not wait until it is ready.

    Raises:
        Refused: The tracer cannot be started.
    """
    global _tracer
    with _lock:
        if _tracer is None or _tracer[0] != os.getpid() or _tracer[1].has_ended():
            if _tracer is not None:
                _tracer[1].disconnect()  # in a forked child: its parent's stays
            try:
                _tracer = os.getpid(), spawn()
            except OSError as error:
                raise Refused(
                    f"the tracer process could not be started: {error}", passes=True
                ) from error
        return _tracer[1]


def forget() -> None:
    """End the tracer of this process, if it has one; the next attach starts another."""
    global _tracer
    with _lock:
        if _tracer is not None and _tracer[0] == os.getpid():
            _tracer[1].close()
        _tracer = None


def spawn() -> Tracer:
    """Start a tracer that its caller closes; `start` has the one that this process shares.

    A new interpreter and not a fork: an observer has threads, whose locks a fork would copy.

    Raises:
        OSError: It cannot be started.
    """
    if not sys.executable:
        raise OSError("no interpreter is known")
    ours, its = socket.socketpair()
    # Where mpwatch and msgspec, of which its values are made, lie. After the standard library, and
    # without .pth files and sitecustomize of that environment, which would run other code.
    root = os.path.abspath(__file__).rpartition("/mpwatch/")[0]
    packages = os.path.abspath(msgspec.__file__).rpartition("/msgspec/")[0]
    code = (
        "import sys; sys.path += sys.argv[1:3];"
        " from mpwatch.attach.native import tracer; tracer.serve()"
    )
    try:
        command = [sys.executable, "-I", "-S", "-c", code, root, packages, str(WITHIN_S), NAME]
        pid = isolated.start(command, stdin=its.fileno())
    except OSError:
        ours.close()
        raise
    finally:
        its.close()
    return Tracer(ours, pid)


def serve() -> None:
    """Main loop of the tracer, with its socket on descriptor 0."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # of the thread that started it
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(NAME)
    pending_call.machine_here()  # initialise before any target is stopped
    gil_syscalls.libc()
    within_s, timer = int(sys.argv[3]), KillTimer()
    sock = socket.socket(fileno=0)
    while True:
        try:
            message = receive(sock)
        except (OSError, EOFError):
            return
        if message == _GO_ON:
            continue  # a step reply that came after its timeout
        process, plan, has_steps = message
        step = Relay(sock).step if has_steps else no_step
        timer.start(within_s)
        answer = _answer(process, plan, step)
        timer.stop()
        sock.settimeout(None)
        with contextlib.suppress(OSError):  # the observer has ended: the next receive says so
            send(sock, answer)


def _answer(process: ProcessId, plan: CallPlan, step: Step) -> Message:
    """Serve one request."""
    try:
        return "stopped for", queue_here(process, plan, step)
    except NotReady:
        return ("not ready",)
    except Refused as refusal:
        return "refused", refusal.reason, refusal.fix, refusal.passes
    except OSError as error:
        return "os error", error.errno, error.strerror
    except Exception as error:  # noqa: BLE001 - reported to the observer; the tracer continues
        return "refused", f"the tracer failed: {error!r}", "", False


def queue_here(process: ProcessId, plan: CallPlan, step: Step) -> float:
    """As `pending_call.queue`, in this process, on a thread that ends with it.

    Raises:
        Refused: As `pending_call.queue`.
        OSError: As `pending_call.queue`.
    """
    memory = TargetMemory(process.pid)
    try:
        require_same(process)
        return _on_own_thread(lambda: pending_call.queue(plan, memory, step))
    finally:
        memory.close()


def require_same(process: ProcessId) -> None:
    """Refuse if the pid was reused; to be called after the memory has been opened.

    Raises:
        Refused: The process has exited.
    """
    try:
        stat = stat_of(process.pid)
    except OSError:
        raise Refused("the process ended during the attempt") from None
    if stat.process != process or stat.has_ended:
        raise Refused("the process ended during the attempt")


def without_mappings(plan: CallPlan) -> CallPlan:
    """A plan without the thousands of mappings that only its preparation needs, for pickling."""
    found = plan.interpreter
    writable = tuple(m for m in found.mappings if "w" in m.permissions and not m.inode)
    return replace(plan, interpreter=replace(found, mappings=writable, modules=()))


class Relay:
    """Reports steps to the observer, until one is not answered in time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._is_followed = True

    def step(self, name: str) -> None:
        """Report a step to the observer and wait at most `_STEP_WITHIN_S` for its reply."""
        if not self._is_followed:
            return
        self._sock.settimeout(_STEP_WITHIN_S)
        try:
            send(self._sock, ("step", name))
            receive(self._sock)
        except (OSError, EOFError):
            self._is_followed = False


def send(sock: socket.socket, message: Message) -> None:
    """Send one message.

    Raises:
        OSError: The other end is gone, or does not read.
    """
    content = pickle.dumps(message)
    sock.sendall(_LENGTH.pack(len(content)) + content)


def receive(sock: socket.socket) -> Message:
    """Receive one message.

    Raises:
        EOFError: The other end is closed.
        OSError: No message before the timeout.
    """
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    message: Message = pickle.loads(_exactly(sock, length))
    return message


def _exactly(sock: socket.socket, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        chunk = sock.recv(count - len(content))
        if not chunk:
            raise EOFError
        content += chunk
    return bytes(content)


def _on_own_thread(work: Callable[[], float]) -> float:
    """Run a session on a new thread: when that ends, the kernel releases its tracees."""
    results: list[float] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below, on the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="mpwatch-attach", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, "no thread can be started: a limit of processes") from None
    thread.join()
    if errors:
        raise errors[0]
    if not results:  # it ended between two of these statements
        raise OSError(errno.ENOMEM, "a thread of mpwatch ended: no memory was left")
    return results[0]


class _SignalEvent(ctypes.Structure):
    """`struct sigevent`, 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("_", ctypes.c_char * 48),
    )


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")
    )


class KillTimer:
    """A timer that kills its own process, also a stopped one or one in a frozen control group.

    SIGALRM would wait until the process is continued; SIGKILL does not. Only the freezer of control
    groups version 1 also holds back SIGKILL until it thaws the group
    (cgroup-v1/freezer-subsystem.rst).
    """

    def __init__(self) -> None:
        """Create it, not running.

        Raises:
            OSError: The kernel has no more timers for this user.
        """
        self._library = timer_library()
        self._id = ctypes.c_void_p()
        event = _SignalEvent(signo=signal.SIGKILL, notify=0)
        created = self._library.timer_create(
            time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._id)
        )
        _require(created)

    def start(self, seconds: int) -> None:
        """Kill this process in so many seconds.

        Raises:
            OSError: As errno says.
        """
        times = _TimerSpec(first_s=seconds)
        _require(self._library.timer_settime(self._id, 0, ctypes.byref(times), None))

    def stop(self) -> None:
        """Do not kill it; a time of 0 disarms a timer.

        Raises:
            OSError: As errno says.
        """
        self.start(0)


def timer_library() -> Any:
    """The library that has the functions of timers."""
    library = ctypes.CDLL(None, use_errno=True)
    # Before glibc 2.34 these functions are in a library of their own.
    return (
        library if hasattr(library, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)
    )


def _require(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


atexit.register(forget)
