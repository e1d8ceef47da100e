"""What stands between an observer and one process, and the command or setting that removes it.

ptrace(2), "Ptrace access mode checking", is the order of the kernel's questions; Yama is described
in the kernel's Documentation/admin-guide/LSM/Yama.rst. The kernel's own verdict is asked for by
opening `/proc/PID/mem`, which passes the same checks as attaching and does nothing to the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

_CAP_SYS_PTRACE = 1 << 19
_PTRACE_DETACH = 17  # linux/ptrace.h, the same everywhere
_CONTAINER = re.compile(r"(kubepods|docker|containerd|libpod|crio|lxc)")
_CAPABILITY_FIX = (
    "docker run --cap-add=SYS_PTRACE ..., or in Kubernetes"
    ' securityContext: {capabilities: {add: ["SYS_PTRACE"]}}'
)
_SECCOMP_FIX = (
    "docker run --security-opt seccomp=unconfined ..., or in Kubernetes"
    " securityContext: {seccompProfile: {type: Unconfined}}"
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that is missing."""

    reason: str
    """One sentence."""
    fix: str
    """A command or a setting; empty if nothing helps."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Whether a process may be attached to, and if not, everything that is in the way."""

    is_allowed: bool
    obstacles: tuple[Obstacle, ...] = ()
    facts: tuple[str, ...] = ()
    """What was looked at, in words, for people who want to check the conclusion."""

    @property
    def reason(self) -> str:
        """The first obstacle in one sentence; empty if allowed."""
        return self.obstacles[0].reason if self.obstacles else ""

    @property
    def fix(self) -> str:
        """What removes the first obstacle."""
        return self.obstacles[0].fix if self.obstacles else ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the verdict rests on, as read."""

    pid: int
    uid: int
    """Our effective user id."""
    capabilities: int
    """Our effective capabilities."""
    uids: tuple[int, ...] = ()
    """The target's real, effective, saved and file-system uid; empty if unknown."""
    gids: tuple[int, ...] = ()
    tracer_pid: int = 0
    tracer_name: str = ""
    yama_scope: int | None = None
    """`None` where Yama is not built in."""
    own_seccomp: int = 0
    is_ptrace_filtered: bool = False
    """The system call itself is refused to us."""
    is_same_user_namespace: bool | None = None
    is_dumpable: bool = True
    """Files of a process that is not dumpable belong to root (proc(5))."""
    may_open: bool | None = None
    """The kernel's verdict; `None` if the process is gone."""
    in_container: bool = False
    security_label: str = ""
    problems: tuple[str, ...] = field(default=())


def check(pid: int, proc: str = "/proc") -> Rights:
    """Whether we may attach to a process, and exactly what is missing otherwise."""
    return judge(read_facts(pid, proc))


def judge(facts: Facts) -> Rights:
    """The verdict over facts, most specific obstacle first."""
    if facts.may_open is None:
        return Rights(False, (Obstacle("the process has gone", ""),))
    obstacles = tuple(_obstacles(facts))
    allowed = facts.may_open and not facts.tracer_pid and not facts.is_ptrace_filtered
    return Rights(allowed, () if allowed else obstacles, _in_words(facts))


def judge_in_general(facts: Facts) -> Rights:
    """The verdict over any other process of the same user, from facts about ourselves."""
    is_able = bool(facts.capabilities & _CAP_SYS_PTRACE)
    someone = replace(
        facts,
        may_open=facts.yama_scope in (None, 0) or (is_able and facts.yama_scope != 3),
        uids=(facts.uid,),
        tracer_pid=0,
        is_dumpable=True,
        is_same_user_namespace=True,
    )
    return judge(someone)


def _obstacles(facts: Facts) -> list[Obstacle]:
    """Everything that is in the way, in the order in which it should be removed."""
    found = []
    if facts.tracer_pid:
        name = f" ({facts.tracer_name})" if facts.tracer_name else ""
        found.append(
            Obstacle(
                f"process {facts.tracer_pid}{name} traces it already, and the kernel allows one",
                f"end that debugger, or kill {facts.tracer_pid}",
            )
        )
    if facts.is_ptrace_filtered:
        found.append(Obstacle("a seccomp filter forbids the ptrace system call here", _SECCOMP_FIX))
    if facts.yama_scope == 3:
        found.append(
            Obstacle(
                "kernel.yama.ptrace_scope is 3, which forbids all tracing until the next boot",
                "remove ptrace_scope=3 from /etc/sysctl.d and reboot",
            )
        )
    if facts.may_open or (facts.capabilities & _CAP_SYS_PTRACE and not found):
        if not facts.may_open:
            found.append(_despite_capability(facts))
        return found
    if not facts.capabilities & _CAP_SYS_PTRACE:
        found.extend(_without_capability(facts))
    return found


def _despite_capability(facts: Facts) -> Obstacle:
    """Refused although we have CAP_SYS_PTRACE."""
    if facts.is_same_user_namespace is False:
        return Obstacle(
            "it lives in a user namespace in which we have no CAP_SYS_PTRACE",
            "run mpwatch as root on the host, or inside that container",
        )
    label = f" ({facts.security_label})" if facts.security_label else ""
    return Obstacle(
        f"a security module forbids tracing it{label}",
        "ausearch -m avc -ts recent; setsebool deny_ptrace off, or"
        " docker run --security-opt apparmor=unconfined ...",
    )


def _without_capability(facts: Facts) -> list[Obstacle]:
    """Refused, and we have no CAP_SYS_PTRACE: which of the kernel's conditions fails."""
    found = []
    sudo = f"sudo mpwatch attach {facts.pid}"
    others = sorted({uid for uid in facts.uids[:3] if uid != facts.uid})
    if others:
        owner = facts.uids[0]
        found.append(
            Obstacle(
                f"it belongs to uid {owner} and we are uid {facts.uid} without CAP_SYS_PTRACE"
                if owner != facts.uid
                else f"it has changed its user id (uids {others} besides ours)",
                f"sudo -u '#{owner}' mpwatch attach {facts.pid}, or {sudo}"
                if owner != facts.uid
                else sudo,
            )
        )
    elif facts.yama_scope in (1, 2):
        whom = "its own children" if facts.yama_scope == 1 else "nothing without CAP_SYS_PTRACE"
        fix = "sudo sysctl kernel.yama.ptrace_scope=0, or " + sudo
        if facts.in_container:
            fix = f"on the host: {fix}; or {_CAPABILITY_FIX}"
        found.append(
            Obstacle(
                f"Yama lets a process trace {whom} (kernel.yama.ptrace_scope = {facts.yama_scope})",
                fix,
            )
        )
    elif not facts.is_dumpable:
        found.append(
            Obstacle(
                "it made itself undumpable (set-uid, capabilities on its file, or PR_SET_DUMPABLE),"
                " so only CAP_SYS_PTRACE may look",
                sudo,
            )
        )
    elif facts.is_same_user_namespace is False:
        found.append(
            Obstacle(
                "it lives in another user namespace",
                f"run mpwatch inside it, or {sudo} on the host",
            )
        )
    if not found:
        found.append(
            Obstacle(
                "the kernel refuses tracing: another gid or more capabilities than ours, or a"
                " security module",
                _CAPABILITY_FIX if facts.in_container else sudo,
            )
        )
    return found


def _in_words(facts: Facts) -> tuple[str, ...]:
    """The facts as one line each."""
    yama = "absent" if facts.yama_scope is None else f"ptrace_scope {facts.yama_scope}"
    owned = "unknown" if not facts.uids else f"uid {facts.uids[0]}"
    return (
        f"we are uid {facts.uid}, the process is {owned}",
        f"CAP_SYS_PTRACE {'yes' if facts.capabilities & _CAP_SYS_PTRACE else 'no'}",
        f"Yama {yama}",
        f"seccomp mode {facts.own_seccomp}, ptrace"
        f" {'refused' if facts.is_ptrace_filtered else 'allowed'} by it",
        f"the kernel {'lets' if facts.may_open else 'does not let'} us open its memory",
    )


def read_facts(
    pid: int, proc: str = "/proc", is_filtered: Callable[[], bool] | None = None
) -> Facts:
    """Read everything the verdict rests on.

    Args:
        pid: The process.
        proc: Where procfs is.
        is_filtered: Says whether the ptrace system call is refused to us; asked of the kernel if
            not given.
    """
    own, theirs = _status(f"{proc}/self/status"), _status(f"{proc}/{pid}/status")
    tracer = int(theirs.get("TracerPid", "0"))
    uids = tuple(map(int, theirs.get("Uid", "").split()))
    return Facts(
        pid=pid,
        uid=os.geteuid(),
        capabilities=int(own.get("CapEff", "0"), 16),
        uids=uids,
        gids=tuple(map(int, theirs.get("Gid", "").split())),
        tracer_pid=tracer,
        tracer_name=_text(f"{proc}/{tracer}/comm") if tracer else "",
        yama_scope=_number(f"{proc}/sys/kernel/yama/ptrace_scope"),
        own_seccomp=int(own.get("Seccomp", "0")),
        is_ptrace_filtered=(is_filtered or _is_ptrace_filtered)(),
        is_same_user_namespace=_same(f"{proc}/self/ns/user", f"{proc}/{pid}/ns/user"),
        is_dumpable=_is_dumpable(f"{proc}/{pid}", uids),
        may_open=_may_open(f"{proc}/{pid}/mem"),
        in_container=_is_container(proc),
        security_label=_text(f"{proc}/{pid}/attr/current"),
    )


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


def _is_dumpable(folder: str, uids: tuple[int, ...]) -> bool:
    """Whether the files of a process belong to its user; where that is not known, yes."""
    try:
        return len(uids) < 2 or os.stat(folder).st_uid == uids[1] or uids[1] == 0
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


def _same(one: str, other: str) -> bool | None:
    """Whether two namespace links agree; `None` if one cannot be read."""
    try:
        return os.readlink(one) == os.readlink(other)
    except OSError:
        return None


def _is_container(proc: str) -> bool:
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
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
