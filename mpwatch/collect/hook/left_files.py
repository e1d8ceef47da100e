"""Ring and notes files of processes that have exited; nothing in them is trusted.

A hook removes its files when its process ends normally, so what is found belongs to processes that
crashed, were killed, or still run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from mpwatch.collect.hook import decode
from mpwatch.collect.hook.decode import read_ring
from mpwatch.collect.process import procfs
from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookNote
from mpwatch.model.ids import ProcessId

NAMES_LIMIT = 10_000
"""Names that are read of a folder: a process says which one it is."""
NOTES_BYTES_LIMIT = 1 << 20
"""A hook stops at a quarter of this."""


class HookFiles(Struct, frozen=True):
    """The files of one process."""

    process: ProcessId
    """The pid in the namespace of the process."""
    folder: str
    parent: ProcessId | None = None
    """The parent, from the ring's header; start ticks of 0 are unknown."""
    name: str = ""
    """Its name in `multiprocessing`."""
    events: tuple[HookEvent, ...] = ()
    """The last records, oldest first."""
    lost: int = 0
    notes: tuple[HookNote, ...] = ()
    wall_ns: int = 0
    """When the ring was made, CLOCK_REALTIME."""
    monotonic_ns: int = 0
    """The same moment, CLOCK_MONOTONIC of that boot."""
    copied_ns: int = 0
    """When its ring was copied into the file (CLOCK_MONOTONIC), which then holds nothing newer; 0
    if the process recorded into the file itself."""
    is_alive: bool = False
    problems: tuple[str, ...] = ()

    @property
    def last_ns(self) -> int:
        """The time of the last record or note, CLOCK_MONOTONIC."""
        moments = [self.monotonic_ns, self.copied_ns]
        moments += [event.at_ns for event in self.events[-1:]]
        moments += [note.at_ns for note in self.notes[-1:]]
        return max(moments)

    def wall_s(self, at_ns: int) -> float:
        """A time of its clock as seconds since 1970."""
        return (self.wall_ns + at_ns - self.monotonic_ns) / 1e9


def folders_of_user(uid: int, xdg_runtime_dir: str | None) -> tuple[str, ...]:
    """Directories in which hooks of a user have their files, with and without XDG_RUNTIME_DIR."""
    known = wire.runtime_candidates(uid, xdg_runtime_dir)
    usual = wire.runtime_candidates(uid, f"/run/user/{uid}")
    return tuple(dict.fromkeys((*known, *usual)))


def own_folders() -> tuple[str, ...]:
    """Those of `folders_of_user` for this user whose files nobody else can have put there.

    In /tmp, or in a shared XDG_RUNTIME_DIR, another user may have made a folder of that name.
    """
    found = []
    for folder in folders_of_user(os.geteuid(), os.environ.get("XDG_RUNTIME_DIR")):
        with suppress(OSError):
            status = os.lstat(folder)
            is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
            if is_private and status.st_uid == os.geteuid():
                found.append(folder)
    return tuple(found)


def read_hook_files(folders: Iterable[str], proc: str = "/proc") -> tuple[HookFiles, ...]:
    """The hook files in some folders, oldest process first; folders that are missing are empty."""
    all_files = []
    for folder in folders:
        try:
            processes = {_process_of(name) for name in os.listdir(folder)}
        except OSError:
            continue
        all_files += [read_files_of(folder, process, proc) for process in processes if process]
    return tuple(sorted(all_files, key=lambda files: files.process.start_ticks))


def last_hook_files(
    folders: Iterable[str], without: Collection[ProcessId], limit: int, proc: str = "/proc"
) -> Iterator[HookFiles]:
    """The hook files that were written last, newest first.

    Args:
        folders: Where they are; folders that are missing are empty.
        without: Processes whose files are not read.
        limit: How many are read at most.
        proc: Where procfs is mounted.
    """
    found: list[tuple[float, str, ProcessId]] = []
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, NAMES_LIMIT):
                process = _process_of(entry.name)
                is_ring = entry.name.endswith(wire.RING_SUFFIX)
                if is_ring and process is not None and process not in without:
                    with suppress(FileNotFoundError):
                        found.append((entry.stat().st_mtime, folder, process))
    for _, folder, process in sorted(found, reverse=True)[:limit]:
        yield read_files_of(folder, process, proc)


def _process_of(name: str) -> ProcessId | None:
    """The process that a ring or notes file belongs to, by its name."""
    stem, dot, suffix = name.partition(".")
    pid, dash, ticks = stem.partition("-")
    if dot + suffix not in (wire.RING_SUFFIX, wire.NOTES_SUFFIX) or not dash:
        return None
    if not (pid.isdecimal() and ticks.isdecimal()):
        return None
    return ProcessId(int(pid), int(ticks))


def has_ring(folder: str, process: ProcessId) -> bool:
    """Whether a folder has a ring of a process; its pid is that of its own namespace."""
    return os.path.exists(f"{folder}/{wire.stem(*process)}{wire.RING_SUFFIX}")


def read_files_of(folder: str, process: ProcessId, proc: str = "/proc") -> HookFiles:
    """The files of one process in one folder, as far as they exist and are valid."""
    stem = f"{folder}/{wire.stem(*process)}"
    ring = read_ring(stem + wire.RING_SUFFIX)
    notes, written_ns, problems = _read_notes(stem + wire.NOTES_SUFFIX, process)
    alive = procfs.read_stat(proc, process.pid)
    is_alive = alive is not None and alive.process == process and alive.state not in ("Z", "X")
    header = ring.header
    if header is not None and (header.pid_inside, header.start_ticks) != process:
        problems.append(f"{stem}{wire.RING_SUFFIX} is named after another process than it is of")
    return HookFiles(
        process=process,
        folder=folder,
        parent=header.parent if header else None,
        name=header.name if header else "",
        events=ring.events,
        lost=ring.lost,
        notes=notes,
        # Without a ring the file's own time is that of the last note.
        wall_ns=header.wall_ns if header else written_ns,
        monotonic_ns=header.monotonic_ns if header else max((n.at_ns for n in notes), default=0),
        copied_ns=header.copied_ns if header else 0,
        is_alive=is_alive,
        problems=(*ring.problems, *problems),
    )


def _read_notes(path: str, process: ProcessId) -> tuple[tuple[HookNote, ...], int, list[str]]:
    """The notes of one process, when the last was written, and what could not be read.

    A line that the process did not complete is left out.
    """
    try:
        data, written_ns = _read(path)
    except FileNotFoundError:
        return (), 0, []
    except OSError as error:
        return (), 0, [f"{path}: {error.strerror}"]
    notes, bad = [], 0
    for line in data.splitlines():
        try:
            notes.append(decode.note(process, decode.parse_object(line)))
        except ValueError:
            bad += 1
    # The last line may be incomplete if the process was killed.
    problems = [f"{path}: {bad} lines make no sense"] if bad > 1 else []
    return tuple(notes), written_ns, problems


def _read(path: str) -> tuple[bytes, int]:
    """A regular file, never through a link, and when it was changed (CLOCK_REALTIME, ns).

    Raises:
        OSError: It cannot be read, or is something else.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "not a regular file")
        return os.read(fd, NOTES_BYTES_LIMIT), found.st_mtime_ns
    finally:
        os.close(fd)
