"""What the doctor says about rights: tracing, and the directory of the hooks."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from dataclasses import dataclass

from mpwatch.collect import procfs
from mpwatch.hook import wire
from mpwatch.model.checks import Check

_CAP_SYS_PTRACE = 1 << 19
_PTRACE_DETACH = 17
"""As in <sys/ptrace.h>, the same on all architectures."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """What decides whether a process may be traced; see ptrace(2), "access mode checking"."""

    uid: int
    has_capability: bool
    """CAP_SYS_PTRACE is among the effective capabilities."""
    yama_scope: int | None
    """`None` where Yama is not there."""
    is_call_blocked: bool
    """A seccomp filter refuses the system call itself."""
    owner: int | None = None
    """Uid of the process asked about."""
    tracer_pid: int = 0
    may_open_memory: bool | None = None
    """The kernel's own answer: opening `/proc/PID/mem` needs the same right as attaching."""


def read_tracing(pid: int | None, proc: str = "/proc") -> Tracing:
    """Read what decides about tracing a process, or any process of this user."""
    own = procfs.parse_status(_read(f"{proc}/self/status"))
    theirs = procfs.parse_status(_read(f"{proc}/{pid}/status")) if pid is not None else {}
    uids = theirs.get(b"Uid", b"").split()
    return Tracing(
        uid=os.geteuid(),
        has_capability=bool(int(own.get(b"CapEff", b"0"), 16) & _CAP_SYS_PTRACE),
        yama_scope=_number(f"{proc}/sys/kernel/yama/ptrace_scope"),
        is_call_blocked=_is_call_blocked(),
        owner=int(uids[0]) if uids else None,
        tracer_pid=int(theirs.get(b"TracerPid", b"0")),
        may_open_memory=None if pid is None else _opens(f"{proc}/{pid}/mem"),
    )


def tracing(found: Tracing) -> Check:
    """Whether stacks can be taken and the hook brought in from outside."""
    value = f"uid {found.uid}, CAP_SYS_PTRACE {'yes' if found.has_capability else 'no'}, Yama "
    value += "absent" if found.yama_scope is None else f"scope {found.yama_scope}"
    value += f", seccomp {'forbids' if found.is_call_blocked else 'allows'} ptrace"
    obstacle, fix = _obstacle(found)
    if not obstacle:
        whose = "of every user" if found.has_capability else "of this user"
        what = "This process" if found.owner is not None else f"Processes {whose}"
        return Check("tracing rights", "ok", value, f"{what} can be traced: stacks, attach.")
    meaning = f"{obstacle} Everything from /proc is shown all the same."
    return Check("tracing rights", "warning", value, meaning, fix)


def hook_folder(uid: int, xdg_runtime_dir: str | None, root: str = "") -> Check:
    """Whether a hook finds a directory for its socket and its ring.

    Args:
        uid: Owner of the process that would carry the hook.
        xdg_runtime_dir: As its environment says.
        root: Prefix that leads to its own root directory.
    """
    reasons = []
    for folder in wire.runtime_candidates(uid, xdg_runtime_dir):
        reason = _refused(root + folder, uid)
        if reason is None:
            meaning = "Hooks put their sockets and rings there."
            return Check("hook directory", "ok", folder, meaning)
        reasons.append(f"{folder} {reason}")
    meaning = "The hook works without its ring file but nothing can connect to it."
    fix = f"remove or repair {wire.runtime_candidates(uid, xdg_runtime_dir)[-1]}"
    return Check("hook directory", "warning", "; ".join(reasons), meaning, fix)


def _obstacle(found: Tracing) -> tuple[str, str]:
    """What stands in the way of tracing, and the command that removes it."""
    if found.tracer_pid:
        return f"Process {found.tracer_pid} traces it already.", "end that debugger first"
    if found.is_call_blocked:
        return (
            "A seccomp filter forbids ptrace.",
            "docker run --cap-add SYS_PTRACE, or --security-opt seccomp=unconfined",
        )
    if found.yama_scope == 3:
        return "Yama forbids all tracing until the next boot.", "kernel.yama.ptrace_scope below 3"
    if found.owner is not None and found.owner != found.uid and not found.has_capability:
        return f"It belongs to uid {found.owner}.", "sudo mpwatch, or run as that user"
    if found.yama_scope and not found.has_capability:
        return (
            "Yama lets a process trace only its own children.",
            "sysctl kernel.yama.ptrace_scope=0 as root, or sudo mpwatch",
        )
    if found.may_open_memory is False:
        return (
            "The kernel refuses: it is not dumpable, in another user namespace, or a security"
            " module forbids it.",
            "sudo mpwatch, or observe from the host",
        )
    return "", ""


def _is_call_blocked() -> bool:
    """Whether ptrace(2) itself is refused: asked about a process that cannot exist.

    The kernel answers ESRCH for pid 0; a filter answers before it looks.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    libc.ptrace(_PTRACE_DETACH, 0, None, None)
    return ctypes.get_errno() in (errno.EPERM, errno.ENOSYS, errno.EACCES)


def _opens(path: str) -> bool | None:
    """Whether a file can be opened; `None` if it is not there."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except procfs.GONE:
        return None
    except OSError:
        return False
    return True


def _refused(path: str, uid: int) -> str | None:
    """Why a hook of this user could not use a directory; the same rules as the hook's own."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None if _can_be_made(os.path.dirname(path), uid) else "cannot be made"
    except OSError as error:
        return error.strerror or "cannot be examined"
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a directory"
    return None if found.st_uid == uid else f"belongs to uid {found.st_uid}"


def _can_be_made(parent: str, uid: int) -> bool:
    try:
        found = os.stat(parent)
    except OSError:
        return False
    own = found.st_uid == uid and bool(found.st_mode & stat.S_IWUSR)
    return uid == 0 or own or bool(found.st_mode & stat.S_IWOTH)


def _read(path: str) -> bytes:
    try:
        return procfs.read(path)
    except OSError:
        return b""


def _number(path: str) -> int | None:
    try:
        return int(procfs.read(path, 16))
    except (OSError, ValueError):
        return None
