"""Counts the files that the user of a job has made since the job began, by folder and name.

Folders: /dev/shm, the directory for temporary files, the working directories of the job, folders in
which a process has a file open for writing, and below these what has changed since the job began.
Network file systems are not touched: a server that does not answer would block the reader. A folder
in which nothing was added or removed is not listed: its modification time shows that.
"""

from __future__ import annotations

import heapq
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice

from msgspec import Struct, field

from mpwatch.collect.process import procfs
from mpwatch.model.host import FilesKey, FilesKind, FileSystemSample, NewFiles
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdLink, ProcSample
from mpwatch.model.sanitize import clean

LISTING_S = 4.0
"""Folders are examined at most this often."""
COST_LIMIT = 1000
PAUSE_S = 30.0
"""A listing that took t seconds of cpu is not repeated for `COST_LIMIT` times t, which is 0.1 % of
a cpu, nor for more than `PAUSE_S`. 5,000 names take 3 ms on an idle machine, 140 of which 47 are
new took 2.4 ms on a busy one. The first listing does not count: it examines every name."""
IDLE_FACTOR = 4.0
"""A folder is listed so many times less often once a listing has found no other files of the job
than the one before: names of other programs come and go in /tmp and /dev/shm all the time."""
NAMES_LIMIT = 20_000
"""A folder with more names is not listed. In a tmpfs its size still shows how many there are."""
ENTRY_BYTES, OWN_ENTRIES = 20, 2
"""The size of a folder in a tmpfs: so much for each name, `.` and `..` as well (BOGO_DIRENT_SIZE of
mm/shmem.c of Linux; seen on 6.18)."""
TRIED = 64
"""Names of a long folder that are examined: what most of them are, all are taken for."""
MOST = 0.9
EXAMINED_LIMIT = 1000
"""So many names are examined in one listing; the others in the next one, or, if they were there
before the first one, never: what is added counts."""
FOLDERS_LIMIT = 32
SUBFOLDERS_LIMIT = 64
"""Of one folder, those changed last."""
DEPTH_LIMIT = 3
"""Levels below a folder at which the search begins."""
GROUPS_LIMIT = 32
"""Of one folder; what else there is counts together."""
SHOWN_LIMIT = 8
"""Groups in a sample, those with most files."""
SHOWN_LEAST = 4
"""Fewer files of a group are none that pile up."""
SOME = 16
"""Names of a group of which the numbers are compared."""
LINKS_LIMIT = 256
"""Descriptors of a process, the newest, whose folders are noted."""
NOTED_LIMIT = 256
"""Folders in which files were open for writing."""
MAKERS_LIMIT = 256
"""Processes that were seen to write files of one kind; beyond that, half of them are kept."""
WRITTEN_LIMIT = 16
"""Of these, the last ones are listed."""
PLACES_S = 30.0
"""Working directories hardly ever change."""
PLACES_LIMIT = 8
"""Processes whose working directories count."""

SHM = "/dev/shm"
PUBLIC = ("/tmp", "/var/tmp", SHM)
MEMORY_TYPES = frozenset(("tmpfs", "ramfs"))
_NOT_OURS = ("mpwatch-", "torch_", "pymp-")
"""Files of hooks, of torch's shared tensors, which are segments and counted as such, and
directories of multiprocessing's sockets."""
_LEAD = re.compile(r"sem\.|psm_|tmp(?=[a-z0-9_]{8}(?:\.|$))|[A-Za-z]{2,}[-_.]|[A-Za-z]{2,}(?=\d)|")
"""`tempfile` of CPython 3.10 to 3.15 names a file by a prefix, `tmp` where none is given, and eight
characters of a to z, 0 to 9 and _."""
_NUMBERS = re.compile(r"(?<![0-9])[1-9][0-9]{2,9}(?![0-9])")
_SUFFIX = re.compile(r"(?:\.[A-Za-z][A-Za-z0-9]{0,7}){1,2}$")


class _Known(Struct, frozen=True):
    """A file of the job's user that was made since the job began."""

    group: str
    size_bytes: int


class _Group(Struct):
    """Files with similar names."""

    total: int = 0
    size_bytes: int = 0
    last: str = ""
    lead: str | None = None
    """What all names begin with."""
    some: list[str] = field(default_factory=list)

    def add(self, name: str, size_bytes: int) -> None:
        self.total += 1
        self.size_bytes += size_bytes
        self.last = name
        lead = name if self.lead is None else self.lead
        while not name.startswith(lead):
            lead = lead[:-1]
        self.lead = lead
        if len(self.some) < SOME:
            self.some.append(name)

    def numbers(self) -> tuple[int, ...]:
        """The numbers that at least two of some names hold."""
        counts = Counter(number for name in self.some for number in set(_NUMBERS.findall(name)))
        return tuple(int(number) for number, count in counts.most_common() if count > 1)


class _Folder(Struct):
    """One folder, as it was when it was listed last."""

    depth: int
    is_shared: bool
    type: str
    """Of its file system."""
    names: dict[str, _Known | None] = field(default_factory=dict)
    subfolders: dict[str, float] = field(default_factory=dict)
    """With the time of their last change when each was first seen; -1 of other users' folders."""
    groups: dict[str, _Group] = field(default_factory=dict)
    mtime_ns: int = -1
    due_s: float = -math.inf
    is_listed: bool = False
    mounted: frozenset[str] = frozenset()
    """Names in it at which a file system is mounted that a stat might wait for."""

    @property
    def totals(self) -> dict[str, int]:
        """How many files of each group it has."""
        return {name: group.total for name, group in self.groups.items()}


class NewFilesReader:
    """Finds the folders of a job and counts the new files in them."""

    def __init__(self, proc: str, clock: Callable[[], float] = time.thread_time) -> None:
        """Prepare; nothing is read yet.

        Args:
            proc: Path of procfs.
            clock: CPU time in seconds.
        """
        self._proc = proc
        self._clock = clock
        self._folders: dict[str, _Folder] = {}
        self._written: dict[str, None] = {}
        """Folders with a file that was open for writing, the last one noted last."""
        self._makers: dict[FilesKey, Counter[int]] = {}
        self._links: dict[ProcessId, tuple[FdLink, ...] | None] = {}
        self._places: tuple[str, ...] = ()
        self._mounts = procfs.MountTable()
        self._places_at_s = -math.inf
        self._looked_at_s = -math.inf
        self._found: tuple[NewFiles, ...] | None = None

    def note(self, samples: Iterable[ProcSample]) -> None:
        """Note which files processes have open for writing; lists that were not read anew are not.

        Takes 12 us for 65 processes, and 10 us more for each list of 40 descriptors that is new.
        """
        noted: dict[ProcessId, tuple[FdLink, ...] | None] = {}
        for sample in samples:
            links = noted[sample.process] = None if sample.fds is None else sample.fds.links
            if links is not None and links is not self._links.get(sample.process):
                self._note_links(sample.process.pid, links)
        self._links = noted

    def _note_links(self, pid: int, links: tuple[FdLink, ...]) -> None:
        """Note the folders of the newest descriptors of one process."""
        for link in links[-LINKS_LIMIT:]:
            if link.kind not in ("file", "shm") or link.is_writable is False:
                continue
            key = _key_of(link.target)
            if key is not None:
                self._written.pop(key.folder, None)
                self._written[key.folder] = None
                makers = self._makers.setdefault(key, Counter())
                makers[pid] += 1
                if len(makers) > MAKERS_LIMIT:
                    self._makers[key] = Counter(dict(makers.most_common(MAKERS_LIMIT // 2)))
        while len(self._written) > NOTED_LIMIT:
            del self._written[next(iter(self._written))]
        while len(self._makers) > NOTED_LIMIT:
            del self._makers[next(iter(self._makers))]

    def read(
        self,
        pid: int,
        others: Iterable[int],
        tmp: str | None,
        uid: int,
        since_wall_s: float,
        at_s: float,
    ) -> tuple[NewFiles, ...] | None:
        """The new files, those with most first.

        Args:
            pid: The process whose namespaces count.
            others: Further processes whose working directories count.
            tmp: Its TMPDIR, if it has one.
            uid: The owner whose files count.
            since_wall_s: When the job began, seconds since 1970.
            at_s: CLOCK_MONOTONIC.

        Returns:
            The files; `None` if no folder can be read.
        """
        if at_s - self._looked_at_s < LISTING_S:
            return self._found
        self._looked_at_s = at_s
        self._mounts = procfs.read_mounts(self._proc, pid)
        if at_s - self._places_at_s >= PLACES_S:
            self._places_at_s = at_s
            self._places = _working_directories(self._proc, (pid, *islice(others, PLACES_LIMIT)))
        tmp = (tmp or "/tmp").rstrip("/") or "/"
        roots = (SHM, tmp, *self._places, *islice(reversed(self._written), WRITTEN_LIMIT))
        self._list_folders(f"{self._proc}/{pid}/root", roots, uid, since_wall_s, at_s)
        listed = [(path, each) for path, each in self._folders.items() if each.is_listed]
        self._found = tuple(self._shown(pid, listed)) if listed else None
        return self._found

    def _list_folders(
        self, root: str, roots: Iterable[str], uid: int, since_wall_s: float, at_s: float
    ) -> None:
        """Look at the folders and at what is below them, as far as the limits allow."""
        before, self._folders = self._folders, {}
        waiting = [(path, 0, path in PUBLIC) for path in dict.fromkeys(roots)]
        for path, depth, is_shared in waiting:
            if len(self._folders) >= FOLDERS_LIMIT:
                return
            if path in self._folders or not self._mounts.is_local(path):
                continue
            folder = before.get(path) or _Folder(depth, is_shared, self._mounts.type_of(path))
            folder.mounted = self._mounts.not_local_in(path)
            if not self._list_folder(f"{root}{path}", folder, depth, uid, since_wall_s, at_s):
                continue
            self._folders[path] = folder
            if folder.depth < DEPTH_LIMIT:
                names = _newest(folder, since_wall_s)
                waiting.extend((f"{path}/{name}", depth + 1, is_shared) for name in names)

    def _list_folder(
        self,
        path: str,
        folder: _Folder,
        depth: int,
        uid: int,
        since_wall_s: float,
        at_s: float,
    ) -> bool:
        """List a folder if it has changed; `False` of one that does not count."""
        if at_s < folder.due_s:
            return True
        try:
            stat = os.stat(path, follow_symlinks=False)
            if depth and (stat.st_uid != uid or stat.st_mtime < since_wall_s):
                return False
            if stat.st_mtime_ns != folder.mtime_ns:
                before_s, is_first = self._clock(), folder.due_s == -math.inf
                before = folder.totals
                folder.mtime_ns = stat.st_mtime_ns
                is_memory = folder.type in MEMORY_TYPES
                count = stat.st_size // ENTRY_BYTES - OWN_ENTRIES if is_memory else None
                list_folder(path, folder, uid, since_wall_s, count)
                cost_s = 0.0 if is_first else self._clock() - before_s
                is_idle = not is_first and folder.totals == before
                idle_s = IDLE_FACTOR * LISTING_S if is_idle else 0.0
                folder.due_s = at_s + min(PAUSE_S, max(idle_s, COST_LIMIT * cost_s))
        except OSError:
            return False
        return True

    def _shown(self, pid: int, listed: list[tuple[str, _Folder]]) -> Iterator[NewFiles]:
        """The largest groups of all folders."""
        groups = [
            (group, key, path, folder)
            for path, folder in listed
            for key, group in folder.groups.items()
            if group.total >= SHOWN_LEAST
        ]
        groups.sort(key=lambda each: -each[0].total)
        for group, name, path, folder in groups[:SHOWN_LIMIT]:
            suffix = _suffix_of(group.last)
            key = FilesKey(clean(path), clean(name))
            yield NewFiles(
                total=group.total,
                size_bytes=group.size_bytes,
                example=clean(f"{path}/{group.last}"),
                key=key,
                kind=_kind_of(group.last) if path == SHM else "file",
                pattern=clean(f"{(group.lead or '').removesuffix(suffix)}*{suffix}"),
                file_system=_file_system(f"{self._proc}/{pid}/root{path}", clean(path)),
                is_memory=folder.type in MEMORY_TYPES,
                is_shared=folder.is_shared,
                makers=tuple(self._makers.get(key, Counter()).most_common(4)),
                numbers=group.numbers(),
            )


def list_folder(
    path: str, folder: _Folder, uid: int, since_wall_s: float, count: int | None
) -> None:
    """List a folder and examine the names that were not there before.

    Args:
        path: The folder.
        folder: What is known of it.
        uid: The owner whose files count.
        since_wall_s: The time from which they count.
        count: How many names it has, where its size shows that.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags)
    try:
        is_long = count is not None and count > NAMES_LIMIT
        with os.scandir(descriptor) as listing:
            entries = list(islice(listing, TRIED if is_long else NAMES_LIMIT + 1))
        if is_long or len(entries) > NAMES_LIMIT:
            folder.names, folder.subfolders = {}, {}
            entries = [each for each in entries[:TRIED] if each.name not in folder.mounted]
            tried = [_examined(each, uid, since_wall_s) for each in entries]
            names = [entry.name for entry in entries]
            folder.groups = _estimated(dict(zip(names, tried, strict=True)), count)
            folder.is_listed = bool(folder.groups)
            return
        _examine(entries, folder, uid, since_wall_s)
    finally:
        os.close(descriptor)
    folder.groups, folder.is_listed = _grouped(folder.names), True


def _grouped(names: dict[str, _Known | None]) -> dict[str, _Group]:
    """The files that count, by group."""
    groups: dict[str, _Group] = {}
    for name, known in names.items():
        if known is not None:
            group = known.group if known.group in groups or len(groups) < GROUPS_LIMIT else ""
            groups.setdefault(group, _Group()).add(name, known.size_bytes)
    return groups


def _estimated(tried: dict[str, _Known | None], count: int | None) -> dict[str, _Group]:
    """The group that nearly all names of a long folder belong to; nothing if there is none."""
    for name, group in _grouped(tried).items():
        if count is not None and group.total >= MOST * len(tried):
            group.size_bytes = group.size_bytes * count // group.total
            group.total = count
            return {name: group}
    return {}


def _examine(
    entries: list[os.DirEntry[str]], folder: _Folder, uid: int, since_wall_s: float
) -> None:
    """Examine new names while their folder is open; the last known state of the others counts."""
    names: dict[str, _Known | None] = {}
    subfolders: dict[str, float] = {}
    left = EXAMINED_LIMIT
    for entry in entries:
        name = entry.name
        if name in folder.names:
            names[name] = folder.names[name]
        elif name in folder.subfolders:
            subfolders[name] = folder.subfolders[name]
        elif name.startswith(_NOT_OURS) or name in folder.mounted:
            names[name] = None
        elif left > 0:
            left -= 1
            if entry.is_dir(follow_symlinks=False):
                is_hidden = name.startswith((".", "__"))
                subfolders[name] = -1.0 if is_hidden else _changed_wall_s(entry, uid)
            else:
                names[name] = _examined(entry, uid, since_wall_s)
        elif folder.is_listed:
            folder.mtime_ns = -1  # the next listing examines it
        else:
            names[name] = None
    folder.names, folder.subfolders = names, subfolders


def _newest(folder: _Folder, since_wall_s: float) -> list[str]:
    """The subfolders changed last; of a folder that others use as well, only new ones."""
    from_s = since_wall_s if folder.is_shared else 0.0
    found = {name: changed_s for name, changed_s in folder.subfolders.items() if changed_s > from_s}
    return heapq.nlargest(SUBFOLDERS_LIMIT, found, key=found.__getitem__)


def _changed_wall_s(entry: os.DirEntry[str], uid: int) -> float:
    """When a subfolder was changed last, as its parent is listed; -1 of other users' folders."""
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return -1.0
    return stat.st_mtime if stat.st_uid == uid else -1.0


def _examined(entry: os.DirEntry[str], uid: int, since_wall_s: float) -> _Known | None:
    """What a file is; `None` if it is not counted."""
    group = _group_of(entry.name)
    if group is None:
        return None
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if stat.st_uid != uid or stat.st_ctime < since_wall_s:
        return None
    return _Known(group, stat.st_blocks * 512)


@lru_cache(maxsize=2048)
def _key_of(target: str) -> FilesKey | None:
    """The folder and group of an open file; `None` of one that is not counted or has no name."""
    folder, _, name = target.rpartition("/")
    group = _group_of(name)
    if not folder or group is None or name.endswith(" (deleted)"):
        return None
    return FilesKey(folder, group)


def _group_of(name: str) -> str | None:
    """What a name has in common with similar ones; `None` of files that are not counted."""
    if name.startswith(_NOT_OURS):
        return None
    suffix = _suffix_of(name)
    lead = _LEAD.match(name.removesuffix(suffix))
    return f"{lead[0] if lead is not None else ''}*{suffix}"


def _suffix_of(name: str) -> str:
    """The suffix of a name, `.npy` or `.tar.gz`; empty if it has none."""
    found = _SUFFIX.search(name, 1)
    return found[0] if found is not None else ""


def _kind_of(name: str) -> FilesKind:
    """What a file in /dev/shm is by its name, as CPython 3.10 to 3.15 names them."""
    if name.startswith("psm_"):
        return "psm"
    return "semaphore" if name.startswith("sem.") else "file"


def _file_system(path: str, shown: str) -> FileSystemSample | None:
    """The file system of a folder; `None` if the folder is gone."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return file_system_of(found, shown)


def file_system_of(found: os.statvfs_result, shown: str) -> FileSystemSample:
    """Size and free space of a file system."""
    counts_inodes = found.f_files > 0
    return FileSystemSample(
        path=shown,
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        total_inodes=found.f_files if counts_inodes else None,
        free_inodes=found.f_ffree if counts_inodes else None,
    )


def _working_directories(proc: str, pids: Iterable[int]) -> tuple[str, ...]:
    """The working directories of processes, each once, without the root directory."""
    found: dict[str, None] = {}
    for pid in pids:
        try:
            found[os.readlink(f"{proc}/{pid}/cwd")] = None
        except OSError:
            continue  # it has ended, or is of another user
    return tuple(path for path in found if path != "/" and not path.endswith(" (deleted)"))


def type_of(proc: str, pid: int | str, path: str) -> str:
    """The type of the file system that a process has a path in; empty if it is not known.

    Args:
        proc: Path of procfs.
        pid: The process, or `self`.
        path: An absolute path without symbolic links.
    """
    return procfs.read_mounts(proc, pid).type_of(path)
