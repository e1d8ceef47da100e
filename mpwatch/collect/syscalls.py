"""Numbers of the system calls a thread can be blocked in.

From arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (which aarch64
uses), Linux 6.18; numbers of a released kernel never change.
"""

from __future__ import annotations

_X86_64: dict[int, str] = {
    0: "read", 1: "write", 2: "open", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64",
    19: "readv", 20: "writev", 23: "select", 34: "pause", 35: "nanosleep", 40: "sendfile",
    42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg",
    56: "clone", 57: "fork", 58: "vfork", 59: "execve", 61: "wait4", 65: "semop", 69: "msgsnd",
    70: "msgrcv", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait",
    130: "rt_sigsuspend", 202: "futex", 208: "io_getevents", 219: "restart_syscall",
    220: "semtimedop", 230: "clock_nanosleep", 231: "exit_group", 232: "epoll_wait",
    243: "mq_timedreceive", 247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll",
    275: "splice", 276: "tee", 278: "vmsplice", 281: "epoll_pwait", 288: "accept4", 299: "recvmmsg",
    307: "sendmmsg", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
    455: "futex_wait",
}  # fmt: skip

_AARCH64: dict[int, str] = {
    4: "io_getevents", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat",
    63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64",
    71: "sendfile", 72: "pselect6", 73: "ppoll", 75: "vmsplice", 76: "splice", 77: "tee",
    82: "fsync", 83: "fdatasync", 94: "exit_group", 95: "waitid", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 128: "restart_syscall", 133: "rt_sigsuspend", 137: "rt_sigtimedwait",
    183: "mq_timedreceive", 188: "msgrcv", 189: "msgsnd", 192: "semtimedop", 193: "semop",
    202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg",
    220: "clone", 221: "execve", 242: "accept4", 243: "recvmmsg", 260: "wait4", 269: "sendmmsg",
    426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip


def names(machine: str) -> dict[int, str]:
    """System calls by number for a machine as uname(2) calls it; empty for an unknown one."""
    return {"x86_64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}.get(machine, {})
