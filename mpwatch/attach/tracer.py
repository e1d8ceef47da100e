"""The process that stops targets: apart from the observer, so that nobody stops it with that.

An observer that is stopped itself (Ctrl-Z, SIGSTOP, a paused terminal) while it holds a target
would hold it for as long. So one small process in a session of its own, without a terminal, makes
all ptrace requests. It is started with the first attach, serves one request at a time over a socket
pair and ends when the observer closes its end, however that comes. A request that takes longer than
`WITHIN_S` ends the process, and the kernel lets the target go ("the tracer dies", ptrace(2)).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpwatch.attach import held, pending_call
from mpwatch.attach.code_cave import TargetMemory
from mpwatch.attach.outcome import Refused
from mpwatch.attach.pending_call import NotReady, Plan
from mpwatch.attach.procstat import read_stat
from mpwatch.attach.this_machine import this_machine
from mpwatch.model.ids import ProcessId

NAME = "mpwatch-tracer"
"""What the process is called: last argument of its command line, and its name for the kernel."""
WITHIN_S = 10
"""Whole seconds after which the tracer ends itself, whatever it waits for."""
_ANSWER_WITHIN_S = WITHIN_S + 2.0
_STEP_WITHIN_S = 0.25
"""How long the observer's step callback, which only tests have, may hold a target."""
_GO_ON = ("go on",)
_LENGTH = struct.Struct("<I")
_IGNORED = (signal.SIGINT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGHUP)

Step = Callable[[str], None]
Message = tuple[Any, ...]


def no_step(_name: str) -> None:
    """What a step does where nobody follows: nothing."""


class Unavailable(Exception):
    """There is no tracer, or it may not trace this target: the observer has to do it itself."""


class Tracer:
    """The observer's end of its tracer.

    Args:
        sock: Connected to it.
        pid: Its process id.
    """

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.pid = pid
        self._sock = sock

    def queue(self, process: ProcessId, plan: Plan, step: Step) -> float:
        """As `pending_call.queue`, in the tracer.

        Raises:
            Refused: As `pending_call.queue`; or the tracer has ended.
            OSError: As `pending_call.queue`.
        """
        self._sock.settimeout(_ANSWER_WITHIN_S)
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

    def close(self) -> None:
        """End it, and wait for that if it is our child."""
        self._sock.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


_lock = threading.Lock()
_tracer: tuple[int, Tracer] | None = None
"""The tracer of this process, and which process that is: a forked child has none."""


def start() -> Tracer:
    """The tracer of this process, started unless it runs; does not wait until it is ready.

    Raises:
        Unavailable: It cannot be started.
    """
    global _tracer
    with _lock:
        if _tracer is None or _tracer[0] != os.getpid():
            try:
                _tracer = os.getpid(), _spawn()
            except OSError as error:
                raise Unavailable(str(error)) from error
        return _tracer[1]


def forget() -> None:
    """End the tracer of this process, if it has one; the next attach starts another."""
    global _tracer
    with _lock:
        if _tracer is not None and _tracer[0] == os.getpid():
            _tracer[1].close()
        _tracer = None


def _spawn() -> Tracer:
    """Start the process.

    A new interpreter and not a fork: an observer has threads, whose locks a fork would copy.

    Raises:
        OSError: It cannot be started.
    """
    if not sys.executable:
        raise OSError("no interpreter is known")
    ours, its = socket.socketpair()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        " from mpwatch.attach import tracer; tracer.serve()"
    )
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", code, root, NAME],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, its.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsigmask=(),
        )
    except OSError:
        ours.close()
        raise
    finally:
        its.close()
    return Tracer(ours, pid)


def serve() -> None:
    """Be the tracer, on descriptor 0."""
    os.setsid()
    os.chdir("/")
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(NAME)
    this_machine()  # what it has to find out takes a moment, in which no target should stand still
    held.libc()
    sock = socket.socket(fileno=0)
    while True:
        try:
            message = receive(sock)
        except (OSError, EOFError):
            return
        if message == _GO_ON:
            continue  # it came too late to be waited for
        process, plan, has_steps = message
        step = Relay(sock).step if has_steps else no_step
        signal.alarm(WITHIN_S)
        answer = _answer(process, plan, step)
        signal.alarm(0)
        sock.settimeout(None)
        with contextlib.suppress(OSError):  # the observer has ended: the next receive says so
            send(sock, answer)


def _answer(process: ProcessId, plan: Plan, step: Step) -> Message:
    """Serve one request."""
    try:
        return "stopped for", queue_here(process, plan, step)
    except NotReady:
        return ("not ready",)
    except Refused as refusal:
        return "refused", refusal.reason, refusal.fix, refusal.passes
    except OSError as error:
        return "os error", error.errno, error.strerror
    except Exception as error:  # noqa: BLE001 - the observer is told, and the tracer serves on
        return "refused", f"the tracer failed: {error!r}", "", False


def queue_here(process: ProcessId, plan: Plan, step: Step) -> float:
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
    """Refuse if the pid means another process by now; its memory has been opened before this.

    Raises:
        Refused: It does.
    """
    try:
        _, state, start_ticks = read_stat(process.pid)
    except OSError:
        raise Refused("the process ended during the attempt") from None
    if start_ticks != process.start_ticks or state in ("Z", "X"):
        raise Refused("the process ended during the attempt")


def travelling(plan: Plan) -> Plan:
    """A plan without what only its preparation needed: thousands of mappings."""
    found = plan.interpreter
    writable = tuple(m for m in found.mappings if "w" in m.permissions and not m.inode)
    return replace(plan, interpreter=replace(found, mappings=writable, modules=()))


class Relay:
    """Has the observer follow the steps, for as long as it answers: it may be stopped or killed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._is_followed = True

    def step(self, name: str) -> None:
        """Tell the observer of a step and wait for a moment until it has followed."""
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
    """Receive one message of the other half of this program.

    Raises:
        EOFError: The other end is gone.
        OSError: Nothing came in time.
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
    """Run a session on a thread of its own: when it ends, the kernel lets go whatever it holds."""
    results: list[float] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below, on the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="mpwatch-attach", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


atexit.register(forget)
