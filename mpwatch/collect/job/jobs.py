"""Which torch jobs run on this machine: for `mpwatch ps` and the picker."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from mpwatch.collect.hook.discovery import NoHook, has_socket
from mpwatch.collect.hook.left_files import folders_of_user
from mpwatch.collect.job import roles
from mpwatch.collect.job.roles import RoleAssignment, RoleFacts
from mpwatch.collect.process import identify, procfs
from mpwatch.collect.process.identify import is_python_exe
from mpwatch.collect.process.procfs import Stat
from mpwatch.describe.processes import role_name
from mpwatch.hook import wire
from mpwatch.model.cmdline import is_launcher, job_program
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import PartOfJob

MAPS_BYTES_LIMIT = 4 << 20
_TORCH = re.compile(rb"/libtorch(?:_cpu|_python)?\.so")


class JobProcess(Struct, frozen=True):
    """One process of a job, in outline."""

    process: ProcessId
    parent_pid: int
    role: Role
    name: str
    cmdline: tuple[str, ...]
    state: str
    uid: int | None
    rss_bytes: int
    born_wall_s: float | None
    worker_id: int | None = None
    rank: int | None = None
    has_torch: bool = False
    has_hook: bool = False
    """It has a socket in the runtime directory of its user; it may still not answer."""


class Job(Struct, frozen=True):
    """A root with its descendants."""

    root: JobProcess
    processes: tuple[JobProcess, ...]
    """The root first, parents before children."""


def find_jobs(proc: str = "/proc") -> list[Job]:
    """All jobs, oldest first: trees whose top runs torch, launches ranks or has a hook.

    Costs two `stat` and a look-up or two a process of the machine, and one reading of mappings a
    Python process.
    """
    stats = _all_stats(proc)
    hooked = _hooked(stats, proc)
    torch = {pid for pid in stats if _runs_torch(proc, pid)}
    marked = torch | hooked
    roots = _roots(stats, marked, proc)
    below: dict[int, list[Stat]] = {}
    for stat in stats.values():
        below.setdefault(stat.parent_pid, []).append(stat)
    boot_wall_s = procfs.boot_wall_s(proc)
    jobs = [_job(proc, stats[pid], below, torch, hooked, boot_wall_s) for pid in roots]
    return sorted(jobs, key=lambda job: job.root.process.start_ticks)


def _all_stats(proc: str) -> dict[int, Stat]:
    """All processes of the machine that have not ended, but not this one."""
    found = {}
    for pid in procfs.pids(proc):
        stat = procfs.read_stat(proc, pid)
        if stat is not None and not stat.has_ended and pid != os.getpid():
            found[pid] = stat
    return found


def _runs_torch(proc: str, pid: int) -> bool:
    """Whether a Python process has torch's library loaded; `False` for the processes of others."""
    try:
        if not is_python_exe(os.readlink(f"{proc}/{pid}/exe")):
            return False
        return _TORCH.search(procfs.read(f"{proc}/{pid}/maps", MAPS_BYTES_LIMIT)) is not None
    except OSError:
        return False


def _hooked(stats: dict[int, Stat], proc: str) -> set[int]:
    """Processes with a hook's socket in the runtime directory of their user, or of root.

    Of directories that belong to another user, or are open to one, nothing is believed. None is
    listed: only the names that these processes would have are looked up.
    """
    owners: dict[int, int] = {}
    for pid in stats:
        with suppress(OSError):
            owners[pid] = os.stat(f"{proc}/{pid}").st_uid
    own = os.environ.get("XDG_RUNTIME_DIR")
    found: set[int] = set()
    for uid in {os.geteuid(), *owners.values()}:
        # A process that has given up root's rights since still listens in root's directory.
        pids = [pid for pid, owner in owners.items() if uid in (0, owner)]
        for folder in folders_of_user(uid, own if uid == os.geteuid() else None):
            found |= _with_socket(folder, uid, [stats[pid] for pid in pids])
    return found


def _with_socket(folder: str, uid: int, stats: Iterable[Stat]) -> set[int]:
    """The processes with a socket of this user in a folder of this user; none if it is not."""
    found: set[int] = set()
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return found
    try:
        for stat in stats:
            name = wire.stem(stat.pid, stat.start_ticks) + wire.SOCKET_SUFFIX
            with suppress(NoHook):
                if has_socket(fd, name, (uid,), folder):
                    found.add(stat.pid)
    finally:
        os.close(fd)
    return found


def _roots(stats: dict[int, Stat], marked: set[int], proc: str) -> list[int]:
    """The topmost marked process above each marked one, or the root of the job above that."""
    roots: set[int] = set()
    for pid in marked:
        top, current = pid, stats[pid].parent_pid
        while current in stats:  # process 1 of a container may be the launcher
            if current in marked or is_launcher(_cmdline(proc, current)):
                top = current
            current = stats[current].parent_pid
        roots.add(top)
    for pid in [*roots]:
        # One that neither has torch loaded nor launches ranks may still have forked this one.
        above = ancestors_in_job(stats[pid].process, proc)
        if above and above[0].process.pid in stats:
            roots.remove(pid)
            roots.add(above[0].process.pid)
    return sorted(roots)


ANCESTORS_LIMIT = 64


def ancestors_in_job(process: ProcessId, proc: str = "/proc") -> tuple[RoleFacts, ...]:
    """The processes of its job above a process, its root first; empty if it is the root itself.

    A shell, a terminal multiplexer, a scheduler or a notebook is not part of the jobs that it
    starts. For each ancestor it reads what `identify.read_static_facts` does (0.1 ms).
    """
    found: list[RoleFacts] = []
    count, below = 0, procfs.read_stat(proc, process.pid)
    if below is None or below.process != process:
        return ()
    child = _role_facts(proc, below)
    while below.parent_pid > 0 and len(found) < ANCESTORS_LIMIT:
        above = procfs.read_stat(proc, below.parent_pid)
        if above is None or above.pid == os.getpid():
            break
        below, parent = above, _role_facts(proc, above)
        found.append(parent)
        if roles.is_started_within_job(child, parent):
            count = len(found)
        elif not roles.is_wrapper_of_rank(child, parent):
            break
        child = parent
    job = [*reversed(found[:count])]
    parents = [None, *(fact.process for fact in job)]
    return tuple(fact._replace(parent=up) for fact, up in zip(job, parents, strict=False))


def part_of_job(
    process: ProcessId, above: Sequence[RoleFacts] | None = None, proc: str = "/proc"
) -> PartOfJob | None:
    """The job of which a process is only a part; `None` if it is the root of its job.

    Args:
        process: The process.
        above: Its `ancestors_in_job`, where they are known.
        proc: Path of procfs.
    """
    above = ancestors_in_job(process, proc) if above is None else above
    stat = procfs.read_stat(proc, process.pid)
    if not above or stat is None:
        return None
    own = _role_facts(proc, stat)._replace(parent=above[-1].process)
    part = roles.assign((*above, own))[process]
    return PartOfJob(
        above[0].process,
        job_program(above[0].cmdline).name or above[0].name,
        role_name(part.role, part.worker_id, part.rank),
    )


def _role_facts(proc: str, stat: Stat) -> RoleFacts:
    """What the role of a process is derived from, without its parent."""
    known = identify.read_static_facts(proc, stat, None, None, procfs.TICKS_PER_S, 0.0)
    return RoleFacts(
        stat.process,
        None,
        stat.name,
        known.cmdline,
        known.is_python,
        known.environment,
        stat.is_fork,
    )


def _cmdline(proc: str, pid: int) -> tuple[str, ...]:
    try:
        return procfs.read_cmdline(proc, pid)
    except OSError:
        return ()


def _job(
    proc: str,
    root: Stat,
    below: dict[int, list[Stat]],
    torch: set[int],
    hooked: set[int],
    boot_wall_s: float | None,
) -> Job:
    """One root with its descendants and their parts."""
    in_job: list[tuple[Stat, ProcessId | None]] = []
    stack: list[tuple[Stat, ProcessId | None]] = [(root, None)]
    while stack:
        stat, parent = stack.pop()
        in_job.append((stat, parent))
        children = sorted(below.get(stat.pid, ()), key=lambda s: s.start_ticks, reverse=True)
        stack.extend((child, stat.process) for child in children)
    identities = {
        stat.process: identify.read_static_facts(
            proc, stat, None, boot_wall_s, procfs.TICKS_PER_S, 0.0
        )
        for stat, _ in in_job
    }
    facts = []
    for stat, parent in in_job:
        known = identities[stat.process]
        facts.append(
            RoleFacts(
                stat.process,
                parent,
                stat.name,
                known.cmdline,
                known.is_python,
                known.environment,
                stat.is_fork,
                has_torch=stat.pid in torch or stat.pid in hooked,
            )
        )
    parts = roles.assign(facts)
    processes = tuple(
        _outline(stat, identities[stat.process], parts[stat.process], torch, hooked)
        for stat, _ in in_job
    )
    return Job(processes[0], processes)


def _outline(
    stat: Stat,
    known: identify.StaticFacts,
    part: RoleAssignment,
    torch: set[int],
    hooked: set[int],
) -> JobProcess:
    """One process in outline."""
    return JobProcess(
        process=stat.process,
        parent_pid=stat.parent_pid,
        role=part.role,
        name=stat.name,
        cmdline=known.cmdline,
        state=stat.state,
        uid=known.uid,
        rss_bytes=stat.rss_pages * procfs.PAGE_BYTES,
        born_wall_s=known.born_wall_s,
        worker_id=part.worker_id,
        rank=part.rank,
        has_torch=stat.pid in torch,
        has_hook=stat.pid in hooked,
    )
