"""Takes from the calling process what Yama's `ptrace_scope` 1 takes from an observer.

Yama refuses PTRACE_MODE_ATTACH to all but ancestors (Documentation/admin-guide/LSM/Yama.rst). Such
an observer may read what takes PTRACE_MODE_READ (fd, maps, environ), but not `mem`, `syscall` and
`stack` (fs/proc/base.c), and may neither trace nor call process_vm_readv(2).
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys

FILES = ("/mem", "/syscall", "/stack")
# ptrace, process_vm_readv and open, from asm/unistd_64.h, and the first two from
# asm-generic/unistd.h. py-spy reads `/proc/PID/mem` where it may not call process_vm_readv, which
# Yama would refuse as well. It is linked with musl, which calls open, where glibc calls openat.
_CALLS = (101, 310, 2) if platform.machine() == "x86_64" else (117, 270)
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_RETURN_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000


def refuse_tracing() -> None:
    """Refuse tracing to this process from now on, and the calls also to its programs."""
    _filter_calls()
    sys.addaudithook(_refuse_files)


def _refuse_files(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open":
        return
    path = arguments[0]
    if isinstance(path, str) and path.startswith("/proc/") and path.endswith(FILES):
        raise PermissionError(errno.EPERM, "Operation not permitted", path)


def _filter_calls() -> None:
    """Install a filter that answers EPERM (seccomp(2), mode filter)."""
    load, jump_equal, give = 0x20, 0x15, 0x06
    *others, last = _CALLS
    instructions = (
        (load, 0, 0, 0),
        *((jump_equal, len(_CALLS) - place, 0, call) for place, call in enumerate(others, 1)),
        (jump_equal, 0, 1, last),
        (give, 0, 0, _RETURN_ERRNO | errno.EPERM),
        (give, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *i) for i in instructions))
    program = struct.pack("<HxxxxxxQ", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel has no system-call filters")
