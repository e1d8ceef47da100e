"""A program with a forked child that is confined in one way; the child prints `alive` again and
again."""

import ctypes
import os
import struct
import sys
import time

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
CLONE_NEWNS = 0x20000
libc = ctypes.CDLL(None, use_errno=True)


def kill_for(number: int) -> None:
    """From now on, a system call of this number ends the process."""
    instructions = (
        (0x20, 0, 0, 0),  # load the number
        (0x15, 0, 1, number),
        (0x06, 0, 0, KILL_PROCESS),
        (0x06, 0, 0, ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *i) for i in instructions))
    program = struct.pack("<HxxxxxxQ", len(instructions), ctypes.addressof(code))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) == 0


def confine() -> None:
    if sys.argv[1] == "filter":
        kill_for(int(sys.argv[2]))
    elif sys.argv[1] == "user":
        os.setgid(1001)
        os.setuid(1001)
    else:
        assert libc.unshare(CLONE_NEWNS) == 0


reader, writer = os.pipe()
if os.fork() == 0:
    confine()
    while os.getppid() != 1:
        os.write(writer, b"alive\n")
        time.sleep(0.05)
    os._exit(0)
os.close(writer)
first = os.read(reader, 6)
print("ready", flush=True)
while os.read(reader, 6):
    print("alive", flush=True)
    time.sleep(0.01)
print("the child has ended", flush=True)
while True:
    time.sleep(1)
