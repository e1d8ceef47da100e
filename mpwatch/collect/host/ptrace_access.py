"""Whether an observer may trace a process, what forbids it, and which processes are stopped."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import CAP_SYS_PTRACE
from mpwatch.model.ids import ProcessId

__all__ = [
    "AccessFacts",
    "Obstacle",
    "Rights",
    "check",
    "judge",
    "judge_in_general",
    "may_attach",
    "read_facts",
]

_DOCKER_CAPABILITY = (
    "docker exec --privileged --user 0 CONTAINER mpwatch attach {pid},"
    " or docker run --cap-add=SYS_PTRACE ..."
)
_KUBERNETES_CAPABILITY = (
    'securityContext: {runAsUser: 0, capabilities: {add: ["SYS_PTRACE"]}},'
    " or kubectl debug POD --target=CONTAINER --profile=sysadmin --image=IMAGE"
)
_DOCKER_PROCESSES = "from another container: docker run --pid=container:NAME, or --pid=host, ..."
_KUBERNETES_PROCESSES = (
    "from another container: shareProcessNamespace: true in the pod, or kubectl debug POD"
    " --target=CONTAINER"
)
_DOCKER_SECCOMP = "docker run --cap-add=SYS_PTRACE, or --security-opt seccomp=unconfined, ..."
_KUBERNETES_SECCOMP = "securityContext: {seccompProfile: {type: Unconfined}}"


class Obstacle(Struct, frozen=True):
    """One missing permission."""

    reason: str
    """One sentence."""
    fix: str
    """A command or a setting; empty if nothing helps."""
    passes: bool = False
    """It may soon disappear by itself."""


class Rights(Struct, frozen=True):
    """Whether a process may be traced, and if not, all obstacles."""

    is_allowed: bool
    obstacles: tuple[Obstacle, ...] = ()
    facts: tuple[str, ...] = ()
    """The facts in words, to check the conclusion."""

    @property
    def reason(self) -> str:
        """The first obstacle in one sentence; empty if allowed."""
        return self.obstacles[0].reason if self.obstacles else ""

    @property
    def fix(self) -> str:
        """What removes the first obstacle."""
        return self.obstacles[0].fix if self.obstacles else ""

    @property
    def passes(self) -> bool:
        """Whether all obstacles may soon disappear by themselves."""
        return bool(self.obstacles) and all(each.passes for each in self.obstacles)


def check(pid: int, proc: str = "/proc") -> Rights:
    """Whether this process may trace another one, and if not, what is missing."""
    return judge(read_facts(pid, proc))


def judge(facts: AccessFacts) -> Rights:
    """The result for these facts, most specific obstacle first."""
    if facts.may_open is None:
        return Rights(False, (Obstacle("the process has exited", ""),))
    obstacles = tuple(_obstacles(facts))
    allowed = facts.may_open and not facts.tracer_pid and not facts.is_ptrace_filtered
    return Rights(allowed, () if allowed else obstacles, _in_words(facts))


def judge_in_general(facts: AccessFacts) -> Rights:
    """The result for any other process of the same user, from facts about this process."""
    is_able = bool(facts.capabilities & CAP_SYS_PTRACE)
    someone = replace(
        facts,
        may_open=facts.yama_scope in (None, 0) or (is_able and facts.yama_scope != 3),
        uids=(facts.uid,),
        gids=(),
        its_capabilities=0,
        tracer_pid=0,
        is_dumpable=True,
        is_same_user_namespace=True,
    )
    return judge(someone)


def why_hidden(pid: int, proc: str = "/proc") -> Obstacle:
    """Why the kernel hides the executable and descriptors of a process.

    Yama, tracers and filters forbid tracing only, so they are not examined.
    """
    facts = replace(
        read_facts(pid, proc, is_filtered=lambda: False),
        may_open=False, tracer_pid=0, yama_scope=None,
    )  # fmt: skip
    return _obstacles(facts)[0]


def elsewhere(proc: str = "/proc") -> str:
    """How to see the processes of other containers; empty outside of containers."""
    facts = read_facts(os.getpid(), proc, is_filtered=lambda: False)
    if facts.in_kubernetes:
        return _KUBERNETES_PROCESSES
    return _DOCKER_PROCESSES if facts.in_container else ""


def _obstacles(facts: AccessFacts) -> list[Obstacle]:
    """All obstacles, in the order in which they should be removed."""
    found = []
    if facts.tracer_pid:
        name = f" ({facts.tracer_name})" if facts.tracer_name else ""
        found.append(
            Obstacle(
                f"process {facts.tracer_pid}{name} traces it already, and the kernel allows one",
                f"end that debugger, or kill {facts.tracer_pid}",
                passes=True,
            )
        )
    if facts.is_ptrace_filtered:
        fix = _KUBERNETES_SECCOMP if facts.in_kubernetes else _DOCKER_SECCOMP
        found.append(Obstacle("a seccomp filter forbids the ptrace system call here", fix))
    if facts.yama_scope == 3:
        found.append(
            Obstacle(
                "kernel.yama.ptrace_scope is 3, which forbids all tracing until the next boot",
                "remove ptrace_scope=3 from /etc/sysctl.d and reboot; or start the job with"
                " mpwatch run",
            )
        )
    if facts.may_open:
        return found
    if not facts.capabilities & CAP_SYS_PTRACE:
        found.extend(_without_capability(facts))
    elif not found:
        found.append(_despite_capability(facts))
    return found


def _despite_capability(facts: AccessFacts) -> Obstacle:
    """Refused with CAP_SYS_PTRACE."""
    if facts.is_same_user_namespace is False:
        return _other_namespace(
            facts, "it is in a user namespace in which mpwatch has no capabilities"
        )
    return _by_module(facts)


def _without_capability(facts: AccessFacts) -> list[Obstacle]:
    """Refused without CAP_SYS_PTRACE: the conditions of the kernel that fail."""
    if facts.is_only_ours:
        return [_by_yama(facts)]
    if facts.is_same_user_namespace is False:
        return [_other_namespace(facts, "it is in another user namespace")]
    found = [
        obstacle
        for obstacle in (_by_user(facts), _by_group(facts), _by_dumpable(facts))
        if obstacle is not None
    ][:1] or [o for o in (_by_capabilities(facts),) if o is not None]
    if facts.yama_scope in (1, 2):
        found.append(_by_yama(facts))
    return found or [_by_module(facts)]


def _by_user(facts: AccessFacts) -> Obstacle | None:
    """Another user's process, or one that runs partly as another user."""
    others = sorted({uid for uid in facts.uids[:3] if uid != facts.uid})
    if not others:
        return None
    owner = facts.uids[0]
    if owner == facts.uid:
        reason = f"it has changed its user id (also uids {others})"
        return Obstacle(reason, _as_root(facts))
    reason = (
        f"it belongs to uid {owner}, and mpwatch runs as uid {facts.uid} without CAP_SYS_PTRACE"
    )
    if facts.uid == 0 and facts.capabilities & CAP_SETUID and not facts.yama_scope:
        ids = f"--reuid={owner} --regid={facts.gids[0] if facts.gids else owner} --clear-groups"
        fix = f"setpriv {ids} mpwatch attach {facts.pid}, or {_as_root(facts)}"
        return Obstacle(reason, fix)
    if facts.uid == 0 or not facts.can_gain or not facts.has_sudo or facts.yama_scope:
        return Obstacle(reason, _as_root(facts))
    # As its user is the smaller right of the two, where that is enough.
    return Obstacle(reason, f"sudo -u '#{owner}' mpwatch attach {facts.pid}, or {_as_root(facts)}")


def _by_group(facts: AccessFacts) -> Obstacle | None:
    others = sorted({gid for gid in facts.gids[:3] if facts.gid is not None and gid != facts.gid})
    if not others:
        return None
    reason = f"its group is {others[0]} and that of mpwatch {facts.gid}; they have to be equal"
    fix = f"sudo -u '#{facts.uid}' -g '#{others[0]}' mpwatch attach {facts.pid}"
    is_simple = len(others) == 1 and facts.can_gain and facts.has_sudo and not facts.yama_scope
    return Obstacle(reason, f"{fix}, or {_as_root(facts)}" if is_simple else _as_root(facts))


def _by_dumpable(facts: AccessFacts) -> Obstacle | None:
    if facts.is_dumpable:
        return None
    reason = (
        "it made itself undumpable (set-uid, capabilities on its file, or PR_SET_DUMPABLE), so only"
        " CAP_SYS_PTRACE allows to read it"
    )
    return Obstacle(reason, _as_root(facts))


def _by_capabilities(facts: AccessFacts) -> Obstacle | None:
    missing = facts.its_capabilities & ~facts.capabilities
    if not missing:
        return None
    names = [_NAMES.get(bit, f"capability {bit}") for bit in range(64) if missing >> bit & 1]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Obstacle(f"it has capabilities that mpwatch lacks ({shown})", _as_root(facts))


def _by_yama(facts: AccessFacts) -> Obstacle:
    scope = facts.yama_scope
    whom = "only its own children" if scope == 1 else "nothing without CAP_SYS_PTRACE"
    reason = f"Yama allows a process to trace {whom} (kernel.yama.ptrace_scope = {scope})"
    if facts.is_only_ours:
        reason = (
            f"Yama allows only its ancestors to trace it (kernel.yama.ptrace_scope = {scope}), and"
            " mpwatch traces from another process"
        )
    ways = ["sudo sysctl kernel.yama.ptrace_scope=0", _as_root(facts)]
    if facts.in_container:
        ways[0] = f"on the host: {ways[0]}"
        ways.reverse()
    else:
        ways.append("sudo setcap cap_sys_ptrace+ep on a Python that only mpwatch uses")
    if scope == 1 and not facts.is_only_ours:
        ways.append(
            "from within the job: prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY), or start it with"
            " mpwatch run"
        )
    return Obstacle(reason, "; or ".join(ways))


def _by_module(facts: AccessFacts) -> Obstacle:
    """A security module, if no other obstacle was found."""
    label = f" ({facts.security_label})" if facts.security_label else ""
    reason = f"a security module forbids tracing it{label}"
    if facts.security_label.count(":") >= 2:  # SELinux: user:role:type:level
        return Obstacle(reason, "ausearch -m avc -ts recent; setsebool deny_ptrace off")
    fix = "journalctl -k -g apparmor, then docker run --security-opt apparmor=unconfined ..."
    return Obstacle(reason, fix)


def _other_namespace(facts: AccessFacts, reason: str) -> Obstacle:
    if facts.is_confined:
        return Obstacle(reason, "run mpwatch outside this container, or inside that of the process")
    return Obstacle(reason, f"{_as_root(facts)}, or run mpwatch inside that container")


def _as_root(facts: AccessFacts) -> str:
    """How to get CAP_SYS_PTRACE."""
    command = f"mpwatch attach {facts.pid}"
    if facts.uid and facts.can_gain and facts.has_sudo:
        return f"sudo {command}"
    if facts.in_kubernetes:
        return _KUBERNETES_CAPABILITY
    if facts.in_container:
        return _DOCKER_CAPABILITY.format(pid=facts.pid)
    if facts.uid == 0:
        return (
            f"start {command} with CAP_SYS_PTRACE, which root lacks here: docker run"
            " --cap-add=SYS_PTRACE, or CapabilityBoundingSet= of systemd"
        )
    if not facts.can_gain:
        return f"from another login: sudo {command} (here no_new_privs, or a bounding set, is set)"
    return f"as root: {command}"


def _in_words(facts: AccessFacts) -> tuple[str, ...]:
    """The facts as one line each."""
    yama = "absent" if facts.yama_scope is None else f"ptrace_scope {facts.yama_scope}"
    owned = "unknown" if not facts.uids else f"uid {facts.uids[0]}"
    return (
        f"mpwatch runs as uid {facts.uid}, the process as {owned}",
        f"CAP_SYS_PTRACE {'yes' if facts.capabilities & CAP_SYS_PTRACE else 'no'}",
        f"Yama {yama}",
        f"seccomp mode {facts.own_seccomp}, ptrace"
        f" {'refused' if facts.is_ptrace_filtered else 'allowed'} by it",
        f"the kernel {'allows' if facts.may_open else 'forbids'} opening its memory",
    )


# linux/capability.h: those that programs are often started with.
_NAMES = {
    0: "CAP_CHOWN", 1: "CAP_DAC_OVERRIDE", 2: "CAP_DAC_READ_SEARCH", 5: "CAP_KILL", 6: "CAP_SETGID",
    7: "CAP_SETUID", 10: "CAP_NET_BIND_SERVICE", 12: "CAP_NET_ADMIN", 13: "CAP_NET_RAW",
    14: "CAP_IPC_LOCK", 18: "CAP_SYS_CHROOT", 19: "CAP_SYS_PTRACE", 21: "CAP_SYS_ADMIN",
    23: "CAP_SYS_NICE", 24: "CAP_SYS_RESOURCE", 38: "CAP_PERFMON", 39: "CAP_BPF",
}  # fmt: skip


CAP_SETUID = 1 << 7
_ALL = (1 << 64) - 1
_PTRACE_DETACH = 17  # linux/ptrace.h, the same everywhere
_CONTAINER = re.compile(r"(kubepods|docker|containerd|libpod|crio|lxc)")
_OVERLAY_ROOT = re.compile(r"^\d+ \d+ \S+ \S+ / .* - (?:fuse\.fuse-)?overlay", re.M)
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
_KUBERNETES = "KUBERNETES_SERVICE_HOST"


class AccessFacts(Struct, frozen=True):
    """The facts that decide."""

    pid: int
    uid: int
    """Effective user id of this process."""
    capabilities: int
    """Effective capabilities of this process."""
    gid: int | None = None
    uids: tuple[int, ...] = ()
    """The target's real, effective, saved and file-system uid; empty if unknown."""
    gids: tuple[int, ...] = ()
    its_capabilities: int = 0
    """The target's permitted ones: in one user namespace the observer needs all of them."""
    tracer_pid: int = 0
    tracer_name: str = ""
    yama_scope: int | None = None
    """`None` where Yama is not built in."""
    own_seccomp: int = 0
    is_ptrace_filtered: bool = False
    """A filter refuses the system call itself."""
    is_same_user_namespace: bool | None = None
    is_confined: bool = False
    """This process is in a user namespace that does not map all users."""
    is_dumpable: bool = True
    """Files of a process that is not dumpable belong to root (proc(5))."""
    may_open: bool | None = None
    """The kernel's answer, for a program that this process starts; `None` if it has exited."""
    is_only_ours: bool = False
    """Yama allows only this process to trace it, see `_is_only_ours`."""
    in_container: bool = False
    in_kubernetes: bool = False
    can_gain: bool = True
    """sudo and file capabilities can give CAP_SYS_PTRACE: it is in the bounding set, and
    no_new_privs is not set."""
    has_sudo: bool = True
    security_label: str = ""


def read_facts(
    pid: int,
    proc: str = "/proc",
    is_filtered: Callable[[], bool] | None = None,
    environ: Mapping[str, str] | None = None,
) -> AccessFacts:
    """Read the facts that decide.

    Args:
        pid: The process.
        proc: Path of procfs.
        is_filtered: Tells whether a filter refuses the ptrace system call; by default, a call is
            tried.
        environ: Replaces the environment of this process in tests.
    """
    own, theirs = _status(f"{proc}/self/status"), _status(f"{proc}/{pid}/status")
    tracer = int(theirs.get("TracerPid", "0"))
    uids = tuple(map(int, theirs.get("Uid", "").split()))
    own_map, its_map = _text(f"{proc}/self/uid_map"), _text(f"{proc}/{pid}/uid_map")
    can_gain = own.get("NoNewPrivs", "0") == "0" and _mask(own, "CapBnd", _ALL) & CAP_SYS_PTRACE
    is_only_ours = _is_only_ours(pid, proc)
    may_open = _may_open(f"{proc}/{pid}/mem")
    return AccessFacts(
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
        is_ptrace_filtered=(is_filtered or is_ptrace_filtered)(),
        is_same_user_namespace=_is_same_namespace(proc, pid, own_map, its_map),
        is_confined=bool(own_map) and own_map.split() != ["0", "0", "4294967295"],
        is_dumpable=is_dumpable(f"{proc}/{pid}", uids),
        may_open=False if may_open and is_only_ours else may_open,
        is_only_ours=is_only_ours,
        in_container=_is_container(proc),
        in_kubernetes=_KUBERNETES in (os.environ if environ is None else environ),
        can_gain=bool(can_gain),
        has_sudo=shutil.which("sudo") is not None,
        security_label=_text(f"{proc}/{pid}/attr/current"),
    )


def may_attach(pid: int, proc: str = "/proc") -> bool:
    """Whether tracing is allowed, by three facts; the others explain a refusal."""
    if not _may_open(f"{proc}/{pid}/mem") or is_ptrace_filtered() or _is_only_ours(pid, proc):
        return False
    return _status(f"{proc}/{pid}/status").get("TracerPid") == "0"


def _is_only_ours(pid: int, proc: str) -> bool:
    """Whether Yama allows this process to trace another one, and not the programs that trace.

    Its scope 1 without CAP_SYS_PTRACE allows it to ancestors of that process (Yama.rst in Linux's
    admin-guide/LSM). This process never traces, because a user may stop it: py-spy and
    `mpwatch-tracer` do, and these are no ancestors of a job of `mpwatch run`.
    """
    able = _mask(_status(f"{proc}/self/status"), "CapEff") & CAP_SYS_PTRACE
    if able or _number(f"{proc}/sys/kernel/yama/ptrace_scope") != 1:
        return False
    own = os.getpid()
    while pid := procfs.parent_in(procfs.read_stat_line(proc, pid)):
        if pid == own:
            return True
    return False


def is_ptrace_filtered() -> bool:
    """Whether a filter refuses the call: without one, the result for pid 0 is ESRCH."""
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


def is_dumpable(folder: str, uids: tuple[int, ...]) -> bool:
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
    """Whether two processes share their user namespace; `None` if unknown.

    Reading the link needs rights to the process, reading its map of users does not.
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


_SIGSTOP_BIT = 1 << (signal.SIGSTOP - 1)
_SETTLE_S = 0.05
"""Time that a thread needs to act on a pending stop after its tracer was killed."""
_PAUSE_S = 0.005


class Stops(Struct, frozen=True):
    """Whether a process was stopped by a signal or a tracer."""

    state: str
    """Of its main thread, or `D` if any thread is in uninterruptible sleep."""
    tracer_pid: int
    is_stopping: bool
    """A thread is stopped, or a stop signal is pending."""


def stops_of(proc: str, pid: int) -> Stops:
    """Read all threads of a process; one that has exited is in state `X`."""
    states, tracer, is_stopping = [], 0, False
    for tid in procfs.task_ids(proc, pid):
        try:
            folder = f"{proc}/{pid}/task/{tid}"
            state = procfs.parse_stat(procfs.read(f"{folder}/stat", 4096)).state
            status = procfs.parse_status(procfs.read(f"{folder}/status"))
        except (OSError, ValueError):
            continue
        states.append(state)
        tracer = tracer or int(status.get(b"TracerPid", b"0"))
        pending = int(status.get(b"SigPnd", b"0"), 16)
        is_stopping = is_stopping or state == "T" or bool(pending & _SIGSTOP_BIT)
    if "D" in states:
        return Stops("D", tracer, is_stopping)
    return Stops(states[0] if states else "X", tracer, is_stopping)


def resume_if_stopped(proc: str, process: ProcessId, before: Stops) -> bool:
    """Resume a process that was stopped by a tracer killed while it attached.

    Attaching sends SIGSTOP, and the exit of the tracer detaches: a SIGSTOP that is still pending
    then stops the process. SIGCONT resumes it and cancels a pending stop. It is
    sent only if there is such a stop that was not there before.

    Returns:
        Whether SIGCONT was sent.
    """
    if before.is_stopping or before.tracer_pid:
        return False
    until_s = time.monotonic() + _SETTLE_S
    while True:
        stat = procfs.read_stat(proc, process.pid)
        if stat is None or stat.process != process:
            return False
        if stops_of(proc, process.pid).is_stopping:
            try:
                os.kill(process.pid, signal.SIGCONT)
            except OSError:
                return False
            return True
        if time.monotonic() > until_s:
            return False
        time.sleep(_PAUSE_S)
