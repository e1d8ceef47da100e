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
_PTRACE, *_OTHERS = (101, 310, 2) if platform.machine() == "x86_64" else (117, 270)
_BEGINS = 16, 0x4206  # PTRACE_ATTACH and PTRACE_SEIZE of linux/ptrace.h
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_RETURN_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000
_LOAD, _JUMP_EQUAL, _GIVE = 0x20, 0x15, 0x06
_CALL_AT, _FIRST_ARGUMENT_AT = 0, 16  # in `struct seccomp_data` of linux/seccomp.h
_REFUSE = -1
"""The place of a jump: the last instruction."""
_Instruction = tuple[int, int, int, int]
"""What it does, where it jumps to if that is so, where if not, and its operand."""


def refuse_tracing() -> None:
    """Refuse tracing to this process from now on, and the calls also to its programs."""
    _filter_calls((_LOAD, 0, 0, _CALL_AT), *_refused_if(_PTRACE, *_OTHERS))
    sys.addaudithook(_refuse_files)


def refuse_attaching(*, files: bool) -> None:
    """Refuse it as Yama does, which no question about filters tells: only what begins it.

    Args:
        files: Whether this process may not read the files either. It may where it is an ancestor of
            the target, and then only its programs may not.
    """
    requests = _refused_if(*_BEGINS)
    _filter_calls(
        (_LOAD, 0, 0, _CALL_AT),
        (_JUMP_EQUAL, 0, 1 + len(requests), _PTRACE),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        *requests,
        *_refused_if(*_OTHERS),
    )
    if files:
        sys.addaudithook(_refuse_files)


def _refuse_files(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open":
        return
    path = arguments[0]
    if isinstance(path, str) and path.startswith("/proc/") and path.endswith(FILES):
        raise PermissionError(errno.EPERM, "Operation not permitted", path)


def _refused_if(*values: int) -> list[_Instruction]:
    """Refuse the call if one of these was loaded, else allow it."""
    return [*((_JUMP_EQUAL, _REFUSE, 0, value) for value in values), (_GIVE, 0, 0, _ALLOW)]


def _filter_calls(*instructions: _Instruction) -> None:
    """Install a filter that answers EPERM (seccomp(2), mode filter)."""
    last = len(instructions)
    code = b"".join(
        struct.pack("<HBBI", what, last - place - 1 if yes == _REFUSE else yes, no, operand)
        for place, (what, yes, no, operand) in enumerate(
            (*instructions, (_GIVE, 0, 0, _RETURN_ERRNO | errno.EPERM))
        )
    )
    content = ctypes.create_string_buffer(code)
    program = struct.pack("<HxxxxxxQ", last + 1, ctypes.addressof(content))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel has no system-call filters")
