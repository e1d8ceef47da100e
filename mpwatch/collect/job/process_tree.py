"""Which processes belong to a job: descendants of the root, orphans included."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from mpwatch.collect.job import roles
from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import (
    DescriptorBudget,
    OpenFiles,
    Stat,
    is_stopped_for_its_stack,
)
from mpwatch.model.ids import ProcessId

SCAN_INTERVAL_S = 10.0
"""How often the children of every process, and orphans on the machine, are looked up. In between
only the pids that the kernel has given out since are read."""
PROCESSES_LIMIT = 10_000
NEW_PIDS_LIMIT = 64
"""With more new pids than this, the processes of the machine are listed, of which most of the new
ones are none any more: 0.17 ms for 230 processes, and 3.6 us to ask for each pid. To read the
children of 65 processes takes 2.2 ms."""


class TreeEntry(Struct, frozen=True):
    """One process of the job as it is now."""

    stat: Stat
    parent: ProcessId | None
    """The parent when the process was first seen; `None` of the root and of adopted orphans."""


class ProcessTree:
    """The processes of a job; one that was seen as a descendant stays in the tree as an orphan.

    A process whose parent started it and exited between two readings was never seen below the root.
    Such an orphan is recognised by a slow scan: its parent is init or a subreaper above the root,
    it has the root's process group or session, and it is a multiprocessing helper or has the
    command line of a process of the job; or it is a `torch_shm_manager` in the root's working
    directory.

    Where this process is itself below the root, as an agent on a Ray node is, it is left out with
    all between it and the root: an observer is no part of the job.
    """

    def __init__(
        self,
        root: ProcessId,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        budget: DescriptorBudget | None = None,
        above: Collection[int] = (),
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            root: The root process.
            proc: Path of procfs.
            clock: Monotonic seconds.
            budget: Of descriptors that stay open.
            above: The pids of the root's own job above it: their other children are no orphans.
        """
        self._root = root
        self._above = frozenset(above)
        self._proc = proc
        self._loadavg = f"{proc}/loadavg"
        self._clock = clock
        self._parents: dict[ProcessId, ProcessId | None] = {}
        self._by_pid: dict[int, ProcessId] = {}
        self._own = _own_branch(root, proc)
        self._add(root, None)
        self._seen: dict[ProcessId, tuple[bytes, Stat]] = {}
        """The last `stat` line of each process: the same line need not be parsed again."""
        self._sorted: tuple[Mapping[ProcessId, ProcessId | None], tuple[ProcessId, ...]] = {}, ()
        """The parents, and the order that follows from them."""
        self._files = OpenFiles(budget or DescriptorBudget(0))
        self._has_children_files = procfs.has_children_files(proc)
        self._last_pid: int | None = None
        self._descended_at_s = -SCAN_INTERVAL_S
        self._scanned: tuple[float, frozenset[int]] = (-SCAN_INTERVAL_S, frozenset())

    def update(self) -> list[TreeEntry]:
        """Read the tree; parents before children, empty once all processes have exited."""
        living: dict[int, Stat] = {}
        for process in list(self._parents):
            stat = self._read_stat(process)
            if stat is not None:
                living[process.pid] = stat
            else:
                self._remove(process)
        given = self._new_pids()
        if given is None or self._clock() - self._descended_at_s >= SCAN_INTERVAL_S:
            self._descend_all(living)
        else:
            self._add_new(given, living)
        self._find_orphans(living)
        return self._ordered(living)

    def started(self) -> list[ProcessId]:
        """Processes of the job that were started since the last call, exited ones included.

        One read (10 us) shows whether the machine started any process at all; only then are their
        `stat` files read. So this can be called ten times a second.
        """
        given = self._new_pids()
        if given is not None and not given:
            return []
        if given is not None:
            return self._add_new(given, {})
        before = set(self._parents)
        living: dict[int, Stat] = {}
        for process in before:
            stat = procfs.read_stat(self._proc, process.pid)
            if stat is not None and stat.process == process:
                living[process.pid] = stat
        self._descend_all(living)
        return [process for process in self._parents if process not in before]

    def _read_stat(self, process: ProcessId) -> Stat | None:
        """The stat of a process, parsed only where its line has changed; `None` once it is gone.

        While this observer takes the stack of a process, the process keeps the state it had.
        """
        folder = f"{self._proc}/{process.pid}"
        try:
            line = self._files.read(f"{folder}/stat")
            line_before, before = self._seen.get(process, (b"", None))
            if before is not None and line == line_before:
                return before
            stat = procfs.parse_stat(line)
        except (*procfs.GONE, ValueError):
            return None
        if stat.process != process:
            return None
        if (
            stat.state == "t"
            and before is not None
            and is_stopped_for_its_stack(self._proc, folder)
        ):
            return stat._replace(state=before.state)
        self._seen[process] = line, stat
        return stat

    def _remove(self, process: ProcessId) -> None:
        """Remove a process that has exited."""
        del self._parents[process]
        if self._by_pid.get(process.pid) == process:
            del self._by_pid[process.pid]
        self._seen.pop(process, None)
        self._files.forget(f"{self._proc}/{process.pid}/stat")

    def _new_pids(self) -> Sequence[int] | None:
        """The pids that the kernel has given out since the last call; `None` if that is unknown.

        `loadavg` shows the last one; the kernel counts upwards until it wraps around, threads
        included. One read instead of one for each thread of the job.
        """
        before = self._last_pid
        try:
            line = self._files.read(self._loadavg)
            last = self._last_pid = int(line[line.rindex(b" ") :])
            if before is None:
                return None
            if 0 <= last - before <= NEW_PIDS_LIMIT:
                return range(before + 1, last + 1)
            return _given_since(before, last, procfs.pids(self._proc))
        except (OSError, ValueError):
            return None

    def _add_new(self, given: Sequence[int], living: dict[int, Stat]) -> list[ProcessId]:
        """Add the new pids whose parent belongs to the job, parents before children.

        A pid of another program costs one read.
        """
        started: list[ProcessId] = []
        for pid in given:
            line = procfs.read_stat_line(self._proc, pid) if pid not in living else b""
            parent = self._by_pid.get(procfs.parent_in(line))
            stat = procfs.stat_or_none(line) if parent is not None else None
            if stat is None or parent is None or not self._is_process(pid):
                continue
            if pid in self._own:
                continue
            # The parent's pid may belong to a process of another program by now.
            above = living.get(parent.pid) or procfs.read_stat(self._proc, parent.pid)
            if above is not None and above.process == parent:
                living[pid] = stat
                if stat.process not in self._parents:
                    started.append(stat.process)
                self._add(stat.process, parent)
        return started

    def _add(self, process: ProcessId, parent: ProcessId | None) -> None:
        """Add a process to the job."""
        self._parents[process] = parent
        self._by_pid[process.pid] = process

    def _is_process(self, pid: int) -> bool:
        """Whether this is a process: `/proc/TID` leads to a thread as well."""
        try:
            status = procfs.parse_status(procfs.read(f"{self._proc}/{pid}/status"))
        except OSError:
            return False
        return status.get(b"Tgid") == str(pid).encode()

    def _descend_all(self, living: dict[int, Stat]) -> None:
        """Read the children of every process."""
        self._descended_at_s = self._clock()
        self._descend(list(living.values()), living)

    def _descend(self, parents: list[Stat], living: dict[int, Stat]) -> None:
        """Find children, their children, and so on."""
        by_parent = None if self._has_children_files else self._children_by_scan()
        queue = list(parents)
        while queue and len(living) < PROCESSES_LIMIT:
            parent = queue.pop()
            if by_parent is not None:
                found = by_parent.get(parent.pid, [])
            else:
                tids = procfs.task_ids(self._proc, parent.pid)
                found = procfs.children(self._proc, parent.pid, tids)
            for pid in found:
                is_known = pid in living or pid in self._own
                stat = procfs.read_stat(self._proc, pid) if not is_known else None
                if stat is not None:
                    living[pid] = stat
                    self._add(stat.process, parent.process)
                    queue.append(stat)

    def _children_by_scan(self) -> dict[int, list[int]]:
        """Children by parent of the whole machine, where the kernel does not list them."""
        found: dict[int, list[int]] = {}
        for pid in procfs.pids(self._proc):
            stat = procfs.read_stat(self._proc, pid)
            if stat is not None:
                found.setdefault(stat.parent_pid, []).append(pid)
        return found

    def _find_orphans(self, living: dict[int, Stat]) -> None:
        """Find processes of the job that were orphaned before they were ever seen."""
        now_s = self._clock()
        scanned_at_s, before = self._scanned
        root = living.get(self._root.pid)
        if now_s - scanned_at_s < SCAN_INTERVAL_S or root is None:
            return
        current = frozenset(procfs.pids(self._proc))
        self._scanned = (now_s, current)
        adopting = self._adopting_pids(root)
        commands: set[tuple[str, ...]] | None = None
        for pid in current - before - living.keys():
            stat = procfs.read_stat(self._proc, pid)
            if stat is None or stat.parent_pid not in adopting:
                continue
            if stat.start_ticks < root.start_ticks:
                continue
            if commands is None:
                commands = {self._cmdline(pid) for pid in living}
            if self._belongs_to_job(stat, root, commands):
                living[pid] = stat
                self._add(stat.process, None)
                self._descend([stat], living)

    def _belongs_to_job(self, orphan: Stat, root: Stat, commands: set[tuple[str, ...]]) -> bool:
        """Whether an orphan that was never seen below the root was started by the job."""
        cmdline = self._cmdline(orphan.pid)
        if orphan.name == roles.SHM_MANAGER[:15]:
            # It has a session of its own; with the job it shares the working directory.
            folder = self._folder(orphan.pid)
            return folder is not None and folder == self._folder(root.pid)
        # Nobody enters a session from outside.
        is_member = orphan.group == root.group or orphan.session == root.pid
        if not is_member or not cmdline:
            return False
        # The same command below the root's own parent is more likely a second job than a fork.
        is_fork = cmdline in commands and orphan.parent_pid != root.parent_pid
        return is_fork or roles.is_helper(orphan.name, cmdline)

    def _folder(self, pid: int) -> str | None:
        """The working directory, `None` if it is hidden."""
        try:
            return os.readlink(f"{self._proc}/{pid}/cwd")
        except OSError:
            return None

    def _adopting_pids(self, root: Stat) -> set[int]:
        """The pids that may become the parent of the root's orphans: its ancestors and init."""
        ancestors: set[int] = set()
        pid = root.parent_pid
        while pid > 1 and pid not in ancestors:
            ancestors.add(pid)
            stat = procfs.read_stat(self._proc, pid)
            pid = stat.parent_pid if stat is not None else 0
        return (ancestors | {1}) - self._above

    def _cmdline(self, pid: int) -> tuple[str, ...]:
        """A command line, empty if it cannot be read."""
        try:
            return procfs.read_cmdline(self._proc, pid)
        except OSError:
            return ()

    def _ordered(self, living: dict[int, Stat]) -> list[TreeEntry]:
        """The root first, parents before children, siblings by start, strays last."""
        by_process = {stat.process: stat for stat in living.values()}
        parents = {process: self._parents.get(process) for process in by_process}
        if parents != self._sorted[0]:
            self._sorted = parents, _sorted(parents, self._root)
        return [TreeEntry(by_process[process], parents[process]) for process in self._sorted[1]]


def _given_since(before: int, last: int, pids: Sequence[int]) -> list[int]:
    """Those of some pids that were given out after one and up to another one, in that order."""
    pids = sorted(pids)
    if before <= last:
        return [pid for pid in pids if before < pid <= last]
    return [pid for pid in pids if pid > before] + [pid for pid in pids if pid <= last]


def _own_branch(root: ProcessId, proc: str) -> frozenset[int]:
    """This process and its ancestors up to the root, without the root; empty if it is not below."""
    branch: list[int] = []
    pid = os.getpid()
    while pid > 1 and pid != root.pid and pid not in branch:
        branch.append(pid)
        stat = procfs.read_stat(proc, pid)
        pid = stat.parent_pid if stat is not None else 0
    return frozenset(branch) if pid == root.pid else frozenset()


def _sorted(
    parents: Mapping[ProcessId, ProcessId | None], root: ProcessId
) -> tuple[ProcessId, ...]:
    """Parents before children, siblings by start."""
    below: dict[ProcessId | None, list[ProcessId]] = {}
    for process, parent in parents.items():
        below.setdefault(parent if parent in parents else None, []).append(process)
    for siblings in below.values():
        siblings.sort(key=lambda each: (each != root, each.start_ticks, each.pid), reverse=True)
    ordered: list[ProcessId] = []
    stack = below.pop(None, [])
    while stack:
        ordered.append(stack.pop())
        stack.extend(below.pop(ordered[-1], ()))
    return tuple(ordered)
