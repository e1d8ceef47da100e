"""What has to be known of two processes to say whether one may look into the other.

ptrace(2), "Ptrace access mode checking", is the order of the kernel's questions; Yama is described
in the kernel's Documentation/admin-guide/LSM/Yama.rst. The kernel's own verdict is asked for by
opening `/proc/PID/mem`, which passes the same checks as attaching and does nothing to the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

CAP_SETUID, CAP_SYS_PTRACE = 1 << 7, 1 << 19
_ALL = (1 << 64) - 1
_PTRACE_DETACH = 17  # linux/ptrace.h, the same everywhere
_CONTAINER = re.compile(r"(kubepods|docker|containerd|libpod|crio|lxc)")
_OVERLAY_ROOT = re.compile(r"^\d+ \d+ \S+ \S+ / .* - (?:fuse\.fuse-)?overlay", re.M)
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
_KUBERNETES = "KUBERNETES_SERVICE_HOST"


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the verdict rests on, as read."""

    pid: int
    uid: int
    """Our effective user id."""
    capabilities: int
    """Our effective capabilities."""
    gid: int | None = None
    uids: tuple[int, ...] = ()
    """The target's real, effective, saved and file-system uid; empty if unknown."""
    gids: tuple[int, ...] = ()
    its_capabilities: int = 0
    """The target's permitted ones: who has fewer may not look, in one user namespace."""
    tracer_pid: int = 0
    tracer_name: str = ""
    yama_scope: int | None = None
    """`None` where Yama is not built in."""
    own_seccomp: int = 0
    is_ptrace_filtered: bool = False
    """The system call itself is refused to us."""
    is_same_user_namespace: bool | None = None
    is_confined: bool = False
    """We are in a user namespace that does not know all users."""
    is_dumpable: bool = True
    """Files of a process that is not dumpable belong to root (proc(5))."""
    may_open: bool | None = None
    """The kernel's verdict; `None` if the process is gone."""
    in_container: bool = False
    in_kubernetes: bool = False
    can_gain: bool = True
    """sudo and file capabilities can give us CAP_SYS_PTRACE: it is in our bounding set and
    no_new_privs is not set."""
    has_sudo: bool = True
    security_label: str = ""


def read_facts(
    pid: int,
    proc: str = "/proc",
    is_filtered: Callable[[], bool] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Facts:
    """Read everything the verdict rests on.

    Args:
        pid: The process.
        proc: Where procfs is.
        is_filtered: Says whether the ptrace system call is refused to us; asked of the kernel if
            not given.
        environ: Our environment, if not that of this process.
    """
    own, theirs = _status(f"{proc}/self/status"), _status(f"{proc}/{pid}/status")
    tracer = int(theirs.get("TracerPid", "0"))
    uids = tuple(map(int, theirs.get("Uid", "").split()))
    own_map, its_map = _text(f"{proc}/self/uid_map"), _text(f"{proc}/{pid}/uid_map")
    can_gain = own.get("NoNewPrivs", "0") == "0" and _mask(own, "CapBnd", _ALL) & CAP_SYS_PTRACE
    return Facts(
        pid=pid,
        uid=os.geteuid(),
        capabilities=_mask(own, "CapEff"),
        gid=os.getegid(),
        uids=uids,
        gids=tuple(map(int, theirs.get("Gid", "").split())),
        its_capabilities=_mask(theirs, "CapPrm"),
        tracer_pid=tracer,
        tracer_name=_text(f"{proc}/{tracer}/comm") if tracer else "",
        yama_scope=_number(f"{proc}/sys/kernel/yama/ptrace_scope"),
        own_seccomp=int(own.get("Seccomp", "0")),
        is_ptrace_filtered=(is_filtered or _is_ptrace_filtered)(),
        is_same_user_namespace=_is_same_namespace(proc, pid, own_map, its_map),
        is_confined=bool(own_map) and own_map.split() != ["0", "0", "4294967295"],
        is_dumpable=_is_dumpable(f"{proc}/{pid}", uids),
        may_open=_may_open(f"{proc}/{pid}/mem"),
        in_container=_is_container(proc),
        in_kubernetes=_KUBERNETES in (os.environ if environ is None else environ),
        can_gain=bool(can_gain),
        has_sudo=shutil.which("sudo") is not None,
        security_label=_text(f"{proc}/{pid}/attr/current"),
    )


def may_attach(pid: int, proc: str = "/proc") -> bool:
    """What all the facts come to, from the three that decide; the others explain a refusal."""
    if not _may_open(f"{proc}/{pid}/mem") or _is_ptrace_filtered():
        return False
    return _status(f"{proc}/{pid}/status").get("TracerPid") == "0"


def _is_ptrace_filtered() -> bool:
    """Whether a filter refuses the call itself: for pid 0 the kernel would say ESRCH."""
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    libc.ptrace(_PTRACE_DETACH, 0, None, None)
    return ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS)


def _status(path: str) -> dict[str, str]:
    fields = {}
    for line in _text(path, 65536).splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.strip()
    return fields


def _mask(status: dict[str, str], name: str, default: int = 0) -> int:
    text = status.get(name)
    return default if text is None else int(text, 16)


def _is_dumpable(folder: str, uids: tuple[int, ...]) -> bool:
    """Whether the files of a process belong to its user; where that is not known, yes.

    Its directory is exempt (fs/proc/base.c, task_dump_owner).
    """
    try:
        return len(uids) < 2 or os.stat(f"{folder}/status").st_uid == uids[1] or uids[1] == 0
    except OSError:
        return True


def _may_open(path: str) -> bool | None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return False
    return True


def _is_same_namespace(proc: str, pid: int, own_map: str, its_map: str) -> bool | None:
    """Whether two processes share their user namespace; `None` if that cannot be told.

    The link may be read only by those who may look into the process, its map of users by all.
    """
    try:
        return os.readlink(f"{proc}/self/ns/user") == os.readlink(f"{proc}/{pid}/ns/user")
    except OSError:
        return False if own_map and its_map and own_map != its_map else None


def _is_container(proc: str) -> bool:
    if any(os.path.exists(path) for path in _CONTAINER_FILES):
        return True
    if _OVERLAY_ROOT.search(_text(f"{proc}/self/mountinfo", 65536)):
        return True
    return bool(_CONTAINER.search(_text(f"{proc}/1/cgroup") + _text(f"{proc}/self/cgroup")))


def _text(path: str, limit: int = 4096) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").strip(" \n\0")
    except OSError:
        return ""


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None
