"""Forks a child by `os.fork` for each line `fork`, and prints its pid.

The child sleeps until it gets SIGUSR1; then it puts an item into a queue, and prints whether it has
the hook's thread. For a line `fork twice` it is the child of a child that exits at once. With
`confined` as an argument it has a system-call filter; with `orphaned` it outlives the program; with
`group` or `session` it leads one. With `instrumented` the program loads the hook itself.
"""

import ctypes
import multiprocessing
import os
import signal
import struct
import sys
import time

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER, ALLOW = 2, 0x7FFF0000


def confine() -> None:
    """Add a filter that allows all calls."""
    libc = ctypes.CDLL(None)
    code = ctypes.create_string_buffer(struct.pack("<HBBI", 0x06, 0, 0, ALLOW))
    program = struct.pack("<HxxxxxxQ", 1, ctypes.addressof(code))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) == 0


def put_and_tell(*_: object) -> None:
    queue.put(1)
    time.sleep(0.5)
    names = []
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/comm") as file:
            names.append(file.read().strip())
    print("mpwatch-hook" in names, flush=True)


if "instrumented" in sys.argv:
    import mpwatch

    mpwatch.instrument()
queue = multiprocessing.get_context("fork").SimpleQueue()
print("ready", flush=True)
while line := sys.stdin.readline():
    between = os.fork() if line == "fork twice\n" else -1
    if between > 0:
        os.waitpid(between, 0)  # it has printed
        continue
    pid = os.fork() if line.startswith("fork") else -1
    if pid == 0:
        if "group" in sys.argv:
            os.setpgid(0, 0)
        if "session" in sys.argv:
            os.setsid()
        if "orphaned" not in sys.argv:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGUSR1, put_and_tell)
        if "confined" in sys.argv:
            confine()
        while True:
            time.sleep(0.02)
    print(pid, flush=True)
    if between == 0:
        os._exit(0)
