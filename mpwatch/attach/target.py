"""The facts about a process that an injection needs, read from procfs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mpwatch.attach.outcomes import Refused
from mpwatch.collect.host import ptrace_access
from mpwatch.collect.process.identify import uid_inside
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample

_ENVIRONMENT_BYTES = 8 << 20
"""More than the kernel takes of arguments and environment: 6 MiB (bprm_stack_limits, Linux 6)."""
_KINDS = ("real", "effective", "saved", "for files")
"""The ids in a line of `/proc/PID/status`, see proc(5)."""
_WANTED = (b"XDG_RUNTIME_DIR", b"LD_LIBRARY_PATH", *map(os.fsencode, wire.DISABLING))


@dataclass(frozen=True, slots=True)
class Target:
    """One process, as procfs shows it."""

    process: ProcessId
    name: str
    state: str
    """One letter, as in `/proc/PID/stat`."""
    tracer_pid: int
    uid: int
    """Real user id, as seen from here. Nothing is injected where the effective one differs."""
    gid: int
    """Real group id."""
    groups: frozenset[int]
    """The group and the supplementary groups, which decide the files it may read."""
    uid_inside: int
    """The real user id as the process itself sees it."""
    pid_inside: int
    exe: str
    environment: dict[str, str]
    shares_files: bool
    """Root directory and mounts are those of this process, so paths are the same in both."""
    shares_pids: bool
    has_shadow_stack: bool
    sees_itself: bool = True
    """A procfs is mounted for it at /proc, of a pid namespace that it is in."""
    turns: int = 0
    """Context switches of the main thread, voluntary and not."""
    privileges: str = ""
    """Which rights it has that other processes of its user do not have; see `_privileges`."""

    @property
    def pid(self) -> int:
        """The pid as seen from here."""
        return self.process.pid

    def sample(self) -> ProcSample:
        """A sample with the fields that `discovery` needs to find the hook's socket."""
        return ProcSample(
            process=self.process,
            at_s=0.0,
            parent_pid=0,
            name=self.name,
            cmdline=(),
            state=self.state,
            uid=self.uid,
            ns_pid=self.pid_inside,
            ns_uid=self.uid_inside,
            environment=self.environment,
            is_python=True,
        )


def has_ended(process: ProcessId) -> bool:
    """Whether a process has exited, or its pid is another's now."""
    try:
        found = stat_of(process.pid)
    except OSError:
        return True
    return found.process != process or found.has_ended


def read_target(process: ProcessId, proc: str = "/proc") -> Target:
    """Read the facts about a process.

    Raises:
        Refused: The process is gone, its pid was reused, or procfs hides a needed file.
    """
    pid = process.pid
    try:
        stat = stat_of(pid, proc)
        if stat.process != process or stat.has_ended:
            raise Refused("the process has ended")
        status = _status(pid, proc)
        uid, gid = int(status["Uid"].split()[0]), int(status["Gid"].split()[0])
        inside = uid_inside(uid, pid, proc)
        exe = os.readlink(f"{proc}/{pid}/exe")
        environment = _environment(pid, proc)
        shares_files = _same(f"{proc}/self/root", f"{proc}/{pid}/root") and _same_link(
            f"{proc}/self/ns/mnt", f"{proc}/{pid}/ns/mnt"
        )
        shares_pids = _same_link(f"{proc}/self/ns/pid", f"{proc}/{pid}/ns/pid")
    except (FileNotFoundError, ProcessLookupError):
        if os.path.exists(f"{proc}/{pid}"):
            raise Refused("it is a kernel thread") from None
        raise Refused("the process has ended") from None
    except PermissionError:
        found = ptrace_access.check(pid, proc)
        raise Refused(found.reason or "the kernel hides it from mpwatch", found.fix) from None
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise Refused(f"it could not be examined: {error}") from error
    return Target(
        process=process,
        name=stat.name,
        state=stat.state,
        tracer_pid=int(status.get("TracerPid", "0")),
        uid=uid,
        gid=gid,
        groups=frozenset((gid, *map(int, status.get("Groups", "").split()))),
        uid_inside=inside,
        pid_inside=int(status.get("NSpid", str(pid)).split()[-1]),
        exe=exe,
        environment=environment,
        shares_files=shares_files,
        shares_pids=shares_pids,
        turns=int(status.get("voluntary_ctxt_switches", "0"))
        + int(status.get("nonvoluntary_ctxt_switches", "0")),
        sees_itself=_sees_itself(process, status.get("NSpid", str(pid)).split(), proc),
        has_shadow_stack="shstk" in status.get("x86_Thread_features", "").split(),
        privileges=_privileges(status, pid, inside, proc),
    )


def _sees_itself(process: ProcessId, pids: list[str], proc: str) -> bool:
    """Whether the procfs in the root directory of a process shows that process; see `Target`.

    Args:
        process: The process.
        pids: Its ids in all pid namespaces that it is in: that of the procfs may be any of them.
        proc: Path of procfs.
    """
    for pid in pids:
        try:
            found = stat_of(int(pid), f"{proc}/{process.pid}/root/proc")
        except PermissionError:
            return True  # not known
        except (OSError, ValueError):
            continue
        if found.start_ticks == process.start_ticks:
            return True
    return False


def _privileges(status: dict[str, str], pid: int, inside: int, proc: str) -> str:
    """Which rights a process has that other processes of its user do not have; empty if none.

    What it loads lies in a directory of its user, so by an injection these processes would gain
    those rights. The conditions are those under which the kernel lets them trace it
    (`__ptrace_may_access`, Linux's kernel/ptrace.c). Where this process is of the same user, the
    kernel decides by itself whether its capabilities are enough.

    Args:
        status: Fields of its status file.
        pid: The process.
        inside: Its user id in its own user namespace; root's capabilities are those of all
            processes of root there.
        proc: Path of procfs.
    """
    for key, whose in (("Uid", "user"), ("Gid", "group")):
        ids = status[key].split()
        if len(set(ids)) > 1:
            named = ", ".join(map(" ".join, zip(_KINDS, ids, strict=True)))
            return f"it has the rights of several {whose}s: its {whose} ids differ ({named})"
    uid = int(status["Uid"].split()[0])
    if uid == os.geteuid():
        return ""
    if inside and int(status.get("CapPrm", "0"), 16):
        return "it has capabilities, which other processes of its user would gain by an injection"
    if not ptrace_access.is_dumpable(f"{proc}/{pid}", (uid, uid)):
        return (
            "it is closed to other processes of its user (undumpable, as after giving up root's"
            " rights, or by PR_SET_DUMPABLE)"
        )
    return ""


def _status(pid: int, proc: str) -> dict[str, str]:
    fields = {}
    for line in _lines(f"{proc}/{pid}/status"):
        key, _, value = line.partition(":")
        fields[key] = value.strip()
    return fields


def _environment(pid: int, proc: str) -> dict[str, str]:
    with open(f"{proc}/{pid}/environ", "rb") as file:
        pairs = (entry.partition(b"=") for entry in file.read(_ENVIRONMENT_BYTES).split(b"\0"))
        return {os.fsdecode(k): os.fsdecode(v) for k, _, v in pairs if k in _WANTED}


def _same(one: str, other: str) -> bool:
    a, b = os.stat(one), os.stat(other)
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def _same_link(one: str, other: str) -> bool:
    return os.readlink(one) == os.readlink(other)


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()
