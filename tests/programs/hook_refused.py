"""Forks that the system refuses, with the hook attached: `hook_refused.py MODE`.

Prints whether an observer is answered before, directly after, and after some records once forks are
possible again.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_PID_NAMESPACE = 0x20000000
NO_NEW_PRIVS, SECCOMP = 38, 22
CLONE = {"x86_64": 56, "aarch64": 220}
"""The system call of `fork`; threads are made by clone3 (glibc since 2.34)."""


def answers(patience_s: float) -> bool:
    """Whether the hook sends its hello."""
    from mpwatch.hook import current

    session = current()
    assert session is not None
    with socket.socket(socket.AF_UNIX) as observer:
        observer.settimeout(patience_s)
        try:
            observer.connect(str(session.server.path))
            return bool(observer.recv(5))
        except OSError:
            return False


def work() -> bool:
    """Record until an observer is answered, or for ten seconds."""
    from mpwatch.hook import current, wire

    session = current()
    assert session is not None
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:
        for _ in range(20):
            session.record(wire.QUEUE_PUT, session.system.monotonic_ns())
            time.sleep(0.001)
        if answers(0.2):
            return True
    return False


def enter() -> None:
    import mpwatch

    assert mpwatch.instrument()
    print("answers before", answers(10), flush=True)


def refused() -> None:
    try:
        pid = os.fork()
    except OSError as error:
        print("refused", error.errno, flush=True)
        return
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    print("not refused", flush=True)


def processes() -> None:
    """EAGAIN: as many processes and threads as RLIMIT_NPROC allows; root has no such limit."""

    # That user may not be allowed to read the installation.
    import mpwatch.hook.session  # noqa: F401

    user = 61_000 + os.getpid() % 4000
    folder = tempfile.mkdtemp()
    os.chown(folder, user, user)
    os.environ["XDG_RUNTIME_DIR"] = folder
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    enter()
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    refused()
    resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))


def memory() -> None:
    """ENOMEM: the error of fork in a pid namespace whose first process has exited."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    enter()
    assert LIBC.unshare(NEW_PID_NAMESPACE) == 0
    refused()
    refused()
    assert LIBC.setns(own, NEW_PID_NAMESPACE) == 0


def filtered() -> None:
    """EAGAIN for `fork` alone: threads may be started."""
    enter()
    number = CLONE[platform.machine()]
    # Load the number; if it is fork's, answer EAGAIN (11); else allow (linux/seccomp.h).
    rows = (
        (0x20, 0, 0, 0),
        (0x15, 0, 1, number),
        (0x06, 0, 0, 0x50000 | 11),
        (0x06, 0, 0, 0x7FFF0000),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    program = struct.pack("HxxxxxxP", len(rows), ctypes.addressof(code))
    assert LIBC.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert LIBC.prctl(SECCOMP, 2, program, 0, 0) == 0
    refused()


def main() -> None:
    modes: dict[str, Callable[[], None]] = {
        "processes": processes,
        "memory": memory,
        "filtered": filtered,
    }
    modes[sys.argv[1]]()
    print("answers at once", answers(2), flush=True)
    print("answers", work(), flush=True)
    import mpwatch

    assert mpwatch.uninstrument()
    print("tasks", len(os.listdir("/proc/self/task")), flush=True)


if __name__ == "__main__":
    main()
