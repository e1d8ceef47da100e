"""Which processes belong to a job: the root's descendants, also those whose parents have died."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mpwatch.collect.job import roles
from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import DescriptorBudget, OpenFiles, Stat
from mpwatch.model.ids import ProcessId

SCAN_INTERVAL_S = 10.0
"""How often everybody is asked for children, and the machine for strays; those of whom the kernel
says that it gave them a number are looked at each time."""
MEMBERS_LIMIT = 10_000
NEWBORN_LIMIT = 256
"""More new pids than this, and asking all members for their children is cheaper."""


class TreeEntry(NamedTuple):
    """One process of the job as it is now."""

    stat: Stat
    parent: ProcessId | None
    """The parent it had when it was first seen; `None` for the root and for strays."""


class ProcessTree:
    """Remembers who was seen as a descendant, so that an orphan stays in the tree.

    Whoever was never seen below the root (its parent started it and died between two looks) is
    recognised by a slow scan: it hangs on init or on a subreaper above the root, has the root's
    process group, and is a multiprocessing helper or runs a member's command line; or it is a
    `torch_shm_manager` in the root's working directory.
    """

    def __init__(
        self,
        root: ProcessId,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        budget: DescriptorBudget | None = None,
    ) -> None:
        self._root = root
        self._proc = proc
        self._loadavg = f"{proc}/loadavg"
        self._clock = clock
        self._parents: dict[ProcessId, ProcessId | None] = {}
        self._by_pid: dict[int, ProcessId] = {}
        self._adopt(root, None)
        self._seen: dict[ProcessId, tuple[bytes, Stat]] = {}
        """The last line of each member: who has not moved since need not be taken apart again."""
        self._sorted: tuple[Mapping[ProcessId, ProcessId | None], tuple[ProcessId, ...]] = {}, ()
        """The parents, and the order that follows from them."""
        self._files = OpenFiles(budget or DescriptorBudget(0))
        self._has_children_files = procfs.has_children_files(proc)
        self._last_pid: int | None = None
        self._descended_at_s = -SCAN_INTERVAL_S
        self._scanned: tuple[float, frozenset[int]] = (-SCAN_INTERVAL_S, frozenset())

    def update(self) -> list[TreeEntry]:
        """Look again; parents before children, empty once nobody is left."""
        living: dict[int, Stat] = {}
        for process in list(self._parents):
            stat = self._look_again(process)
            if stat is not None:
                living[process.pid] = stat
            else:
                self._lose(process)
        given = self._pids_given_out()
        if given is None or self._clock() - self._descended_at_s >= SCAN_INTERVAL_S:
            self._descend_all(living)
        else:
            self._take_newborn(given, living)
        self._find_strays(living)
        return self._ordered(living)

    def births(self) -> list[ProcessId]:
        """TreeEntrys born since the last look, found cheaply enough to ask ten times a second.

        One read tells whether the machine made any process at all; only then is anybody looked at.
        """
        given = self._pids_given_out()
        if given is not None and not given:
            return []
        if given is not None:
            return self._take_newborn(given, {})
        before = set(self._parents)
        living: dict[int, Stat] = {}
        for process in before:
            stat = procfs.read_stat(self._proc, process.pid)
            if stat is not None and stat.process == process:
                living[process.pid] = stat
        self._descend_all(living)
        return [process for process in self._parents if process not in before]

    def _look_again(self, process: ProcessId) -> Stat | None:
        """The stat of a process, parsed only where its line has changed; `None` once it is gone."""
        try:
            line = self._files.read(f"{self._proc}/{process.pid}/stat")
            line_before, before = self._seen.get(process, (b"", None))
            if before is not None and line == line_before:
                return before
            stat = procfs.parse_stat(line)
        except (*procfs.GONE, ValueError):
            return None
        if stat.process != process:
            return None
        self._seen[process] = line, stat
        return stat

    def _lose(self, process: ProcessId) -> None:
        """Forget one that has ended."""
        del self._parents[process]
        if self._by_pid.get(process.pid) == process:
            del self._by_pid[process.pid]
        self._seen.pop(process, None)
        self._files.forget(f"{self._proc}/{process.pid}/stat")

    def _pids_given_out(self) -> range | None:
        """The pids that the machine gave out since the last look; `None` if that cannot be told.

        The kernel shows the last one in `loadavg` and counts upwards until it wraps around; threads
        get theirs from the same numbers. One read instead of one for each thread of the job.
        """
        before = self._last_pid
        try:
            line = self._files.read(self._loadavg)
            last = int(line[line.rindex(b" ") :])
        except (OSError, ValueError):
            return None
        self._last_pid = last
        if before is None or not 0 <= last - before <= NEWBORN_LIMIT:
            return None
        return range(before + 1, last + 1)

    def _take_newborn(self, given: range, living: dict[int, Stat]) -> list[ProcessId]:
        """Take in the new pids whose parent belongs to the job, parents before children.

        Most are of other programs, which costs one read each.
        """
        born: list[ProcessId] = []
        for pid in given:
            line = procfs.read_stat_line(self._proc, pid) if pid not in living else b""
            parent = self._by_pid.get(procfs.parent_in(line))
            stat = procfs.stat_or_none(line) if parent is not None else None
            if stat is None or parent is None or not self._is_process(pid):
                continue
            # The parent's pid may have been given to a stranger since.
            elder = living.get(parent.pid) or procfs.read_stat(self._proc, parent.pid)
            if elder is not None and elder.process == parent:
                living[pid] = stat
                if stat.process not in self._parents:
                    born.append(stat.process)
                self._adopt(stat.process, parent)
        return born

    def _adopt(self, process: ProcessId, parent: ProcessId | None) -> None:
        """Take in a member."""
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
        """Ask every member for its children."""
        self._descended_at_s = self._clock()
        self._descend(list(living.values()), living)

    def _descend(self, parents: list[Stat], living: dict[int, Stat]) -> None:
        """Find children, their children, and so on."""
        by_parent = None if self._has_children_files else self._children_by_scan()
        queue = list(parents)
        while queue and len(living) < MEMBERS_LIMIT:
            parent = queue.pop()
            if by_parent is not None:
                found = by_parent.get(parent.pid, [])
            else:
                tids = procfs.task_ids(self._proc, parent.pid)
                found = procfs.children(self._proc, parent.pid, tids)
            for pid in found:
                stat = procfs.read_stat(self._proc, pid) if pid not in living else None
                if stat is not None:
                    living[pid] = stat
                    self._adopt(stat.process, parent.process)
                    queue.append(stat)

    def _children_by_scan(self) -> dict[int, list[int]]:
        """Children by parent of the whole machine, where the kernel does not list them."""
        found: dict[int, list[int]] = {}
        for pid in procfs.pids(self._proc):
            stat = procfs.read_stat(self._proc, pid)
            if stat is not None:
                found.setdefault(stat.parent_pid, []).append(pid)
        return found

    def _find_strays(self, living: dict[int, Stat]) -> None:
        """Look for pieces of the job that were orphaned before they were ever seen."""
        now_s = self._clock()
        scanned_at_s, before = self._scanned
        root = living.get(self._root.pid)
        if now_s - scanned_at_s < SCAN_INTERVAL_S or root is None:
            return
        current = frozenset(procfs.pids(self._proc))
        self._scanned = (now_s, current)
        elders = self._elders(root)
        commands: set[tuple[str, ...]] | None = None
        for pid in current - before - living.keys():
            stat = procfs.read_stat(self._proc, pid)
            if stat is None or stat.parent_pid not in elders:
                continue
            if stat.start_ticks < root.start_ticks:
                continue
            if commands is None:
                commands = {self._cmdline(member) for member in living}
            if self._is_piece(stat, root, commands):
                living[pid] = stat
                self._adopt(stat.process, None)
                self._descend([stat], living)

    def _is_piece(self, stray: Stat, root: Stat, commands: set[tuple[str, ...]]) -> bool:
        """Whether an orphan that was never seen below the root came from there all the same."""
        cmdline = self._cmdline(stray.pid)
        if stray.name == roles.SHM_MANAGER[:15]:
            # It makes a session of its own; what it shares with the job is where it was started.
            folder = self._folder(stray.pid)
            return folder is not None and folder == self._folder(root.pid)
        if stray.group != root.group or not cmdline:
            return False
        # The same command below the root's own parent is rather a second job than a fork.
        is_fork = cmdline in commands and stray.parent_pid != root.parent_pid
        return is_fork or roles.is_helper(stray.name, cmdline)

    def _folder(self, pid: int) -> str | None:
        """The working directory, `None` if it is hidden."""
        try:
            return os.readlink(f"{self._proc}/{pid}/cwd")
        except OSError:
            return None

    def _elders(self, root: Stat) -> set[int]:
        """Who adopts the root's orphans: its ancestors, as far as they are subreapers, and init."""
        elders = {1}
        pid = root.parent_pid
        while pid > 1 and pid not in elders:
            elders.add(pid)
            stat = procfs.read_stat(self._proc, pid)
            pid = stat.parent_pid if stat is not None else 0
        return elders

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
