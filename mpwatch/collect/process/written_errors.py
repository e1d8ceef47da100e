"""Tracebacks in the files to which a job writes standard output and error.

An exception of a process that had ended before mpwatch came stands nowhere else. Of each such file
the last part is read, each time that it has changed, and of that only tracebacks of exceptions that
nothing has caught: those below `Process NAME:` or `Exception in thread NAME:`, those before each of
whose lines torch has written a rank, and those that begin with the code of a module.

Programs also log exceptions that they handle. Such a traceback is kept if the pid of a process of
the job stands in the line above it, because it may be the last that a process has said.

The text is hostile like all text of a job, and is cleaned here. Files are opened through
`/proc/PID/fd`, so that names and mounts are those of the process. They may be on a file system that
hangs, so they are read on a thread of their own, for which nobody waits.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from mpwatch.collect.own_threads import OwnThreads
from mpwatch.collect.process import procfs
from mpwatch.collect.process.fds import POSITION
from mpwatch.collect.process.foreign_files import open_as_owner
from mpwatch.model.events import Raised, WrittenError, WrittenErrors
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.sanitize import MESSAGE_LIMIT, clean
from mpwatch.model.snapshot import Process, Snapshot

TAIL_BYTES: Final = 64 << 10
"""Read of a file, from its end."""
FILES: Final = 16
"""Files that are read of one job; ranks of a launcher have one each."""
LOGGED: Final = 256
"""Logged exceptions kept of one job; the same one again of the same process is not."""
WRITERS: Final = 64
FRAMES: Final = 12
LINE_LIMIT: Final = 2000
"""Characters of a line that are looked at."""
PERIOD_S: Final = 3.0
"""Shortest interval of looks at the files."""
STARTED_S: Final = 2.0
"""A shell opens the file of a job a moment before the job starts."""
_NEAR: Final = 3
"""Lines between `Process NAME:` and its traceback: two, of the text of a remote one."""

_BEGIN = "Traceback (most recent call last):"
_ORIGINAL = "Original Traceback (most recent call last):"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_PROCESS = re.compile(r"Process (.{1,200}):")
_THREAD = re.compile(r"Exception in thread (.{1,200}):")
_FRAME = re.compile(r'  File "([^"]{1,1000})", line (\d{1,9})(?:, in (.{1,200}))?')
_ERROR = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: ?(.*))?")
_PREFIX = re.compile(r"\[([a-z_]{0,16})(\d{1,6})\]: ?")
"""`[rank1]: ` is torch's, before an exception that ends the program of a rank; `[default1]:` is
what torchrun writes before all lines of a rank (torch 2.1 to 2.13)."""
_PID = re.compile(r"(?<![\d.,:])\d{1,7}(?![\d.,:]*\d)")
"""A number that is no part of a time or date with colons, points or commas."""
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,16}m")
_FLAGS = re.compile(rb"^flags:\s+([0-7]+)", re.M)
_BELOW_MODULES = ("<frozen runpy>", "runpy.py")


class _Line(NamedTuple):
    offset: int
    text: str


def tracebacks(
    raw: bytes, start: int, pids: Mapping[int, ProcessId] = MappingProxyType({})
) -> list[WrittenError]:
    """The exceptions in a part of a file, without those that are cut off at its end.

    Args:
        raw: The part.
        start: Its offset in the file.
        pids: The processes of the job, by the pid that they have for themselves.
    """
    streams: defaultdict[tuple[str, str], list[_Line]] = defaultdict(list)
    offset = start
    for row in raw.split(b"\n")[:-1]:
        text = _COLOURS.sub("", row[: 4 * LINE_LIMIT].decode("utf-8", "replace"))
        text = text[:LINE_LIMIT].rstrip("\r")
        prefix = _PREFIX.match(text)
        if prefix is not None:
            streams[prefix[1], prefix[2]].append(_Line(offset, text[prefix.end() :]))
        else:
            streams["", ""].append(_Line(offset, text))
        offset += len(row) + 1
    found = [
        replace(error, rank=int(number) if number else None)
        for (name, number), lines in streams.items()
        for error in _in_stream(lines, pids)
        if name == "rank"
        or error.process_name
        or error.thread_name
        or error.script
        or error.process
    ]
    return sorted(found, key=lambda error: error.offset)


def _in_stream(lines: Sequence[_Line], pids: Mapping[int, ProcessId]) -> Iterator[WrittenError]:
    """All tracebacks of one stream of lines."""
    place, process, thread = 0, (-_NEAR - 1, ""), (-_NEAR - 1, "")
    while place < len(lines):
        offset, text = lines[place]
        if text != _BEGIN:
            if (named := _PROCESS.fullmatch(text)) is not None:
                process = place, clean(named[1])
            elif (named := _THREAD.fullmatch(text)) is not None:
                thread = place, clean(named[1])
            place += 1
            continue
        begun = place
        chain, is_from, script, place = _chain(lines, place)
        if chain:
            above = lines[begun - 1].text if begun else ""
            numbers = (int(each) for each in _PID.findall(above))
            yield WrittenError(
                "",
                offset,
                chain[-1],
                chain[0] if len(chain) > 1 else None,
                is_from,
                process[1] if begun - process[0] <= _NEAR else "",
                thread[1] if begun - thread[0] <= _NEAR else "",
                script=script,
                process=next((pids[each] for each in numbers if each in pids), None),
            )


def _chain(lines: Sequence[_Line], place: int) -> tuple[list[Raised], bool, str, int]:
    """The exceptions of one traceback, the first one first, and what follows them.

    Returns:
        The exceptions, none if the text is no traceback of Python; whether each was raised `from`
        the one before; the file of the module that the last one begins with; the next line.
    """
    chain: list[Raised] = []
    is_from = True
    while True:
        one, script, place = _one(lines, place)
        if one is None:
            return [], True, "", place
        chain.append(one)
        if place < len(lines) and lines[place].text == _ORIGINAL:
            # A DataLoader writes the traceback of its worker into the message of the exception.
            original, _, place = _one(lines, place)
            chain[-1:] = [original, one] if original is not None else [one]
        after = [place + ahead for ahead in range(_NEAR) if place + ahead < len(lines)]
        link = next((at for at in after if lines[at].text in (_CAUSE, _CONTEXT)), None)
        if link is None or any(lines[at].text not in ("", '"""') for at in range(place, link)):
            return chain, is_from, script, place
        is_from = is_from and lines[link].text == _CAUSE
        next_ = next((at for at in (link + 1, link + 2) if _is_begin(lines, at)), None)
        if next_ is None:
            return [], True, "", link + 1
        place = next_


def _is_begin(lines: Sequence[_Line], place: int) -> bool:
    return place < len(lines) and lines[place].text == _BEGIN


def _one(lines: Sequence[_Line], place: int) -> tuple[Raised | None, str, int]:
    """One exception with its frames, the module that it begins with, and the next line."""
    frames: list[Frame] = []
    place += 1
    while place < len(lines):
        text = lines[place].text
        frame = _FRAME.fullmatch(text)
        if frame is not None:
            frames.append(Frame(clean(frame[3] or ""), clean(frame[1], 1000), int(frame[2])))
        elif not text.startswith(("    ", "  [Previous line repeated ")):
            break
        place += 1
    error = _ERROR.fullmatch(lines[place].text) if place < len(lines) else None
    if error is None or not frames:
        return None, "", place
    own = [frame for frame in frames if not frame.file.endswith(_BELOW_MODULES)]
    outer = own[0] if own else frames[0]
    kind = clean(error[1].rpartition(".")[2] or error[1])
    raised = Raised(kind, clean(error[2] or "", MESSAGE_LIMIT), tuple(frames[-FRAMES:][::-1]))
    return raised, outer.file if outer.function == "<module>" else "", place + 1


class _File(Struct):
    """What is known of one file."""

    writers: dict[ProcessId, int] = field(default_factory=dict)
    """The processes that have had it as standard output or error, with the descriptor."""
    identity: tuple[int, int] | None = None
    """Device and inode; `None` before it was opened."""
    state: tuple[int, int] | None = None
    """Size and time of the last change when it was last read."""
    first_size: int = 0
    """Its size when it was first read: what follows was written since."""
    is_of_job: bool = False
    """Whether all of it was."""
    uncaught: set[int] = field(default_factory=set)
    """Offsets of the uncaught exceptions that were reported."""
    logged_to: int = -1
    """Offset of the last other one."""


class _Job(Struct, frozen=True):
    """What a reading is about."""

    living: tuple[ProcessId, ...]
    """Root first, without zombies."""
    since_s: float
    """Start of the root, seconds of the wall clock."""
    parent: int
    """Pid of the process that started the root; 0 if it is not known."""
    pids: Mapping[int, ProcessId]
    """All its processes, by the pid that they have for themselves."""


class ErrorReads:
    """Reads the files of one job; used by one thread, but for the reading itself."""

    def __init__(
        self, report: Callable[[WrittenErrors], None], threads: OwnThreads | None = None
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            report: Called on a thread of its own with the tracebacks that are new.
            threads: Starts that thread.
        """
        self._threads = threads or OwnThreads()
        self._report = report
        self._files: dict[str, _File] = {}
        self._last: dict[ProcessId, object] = {}
        """The last exception that each process has logged."""
        self._logged = 0
        self._thread: threading.Thread | None = None
        self._due_s = float("-inf")

    def start_due(self, snapshot: Snapshot, *, now: bool = False) -> None:
        """Begin to look at the files, if that is due or asked for, and none is under way."""
        at_s = time.monotonic()
        if (at_s < self._due_s and not now) or self._is_reading:
            return
        self._due_s = at_s + PERIOD_S
        root = snapshot.get(snapshot.root)
        since_s = root.sample.born_wall_s if root is not None else None
        self._note(snapshot.living())
        if not self._files or since_s is None:
            return
        living = tuple(each.process for each in snapshot.living() if each.sample.state != "Z")
        job = _Job(
            living,
            since_s,
            root.sample.parent_pid if root is not None else 0,
            {each.sample.ns_pid or each.pid: each.process for each in snapshot.processes},
        )
        self._thread = self._threads.start(self._read, "mpwatch-errors", job)

    def wait(self, limit_s: float) -> None:
        """Wait until the files were read, at most this long."""
        if self._thread is not None:
            self._thread.join(limit_s)

    @property
    def _is_reading(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _note(self, living: Sequence[Process]) -> None:
        """Note which files processes have as standard output and error."""
        for process in living:
            links = process.sample.fds.links if process.sample.fds is not None else None
            for link in (links or ())[:3]:
                is_output = link.fd in (1, 2) and link.kind == "file" and link.is_writable
                if not is_output or (link.target not in self._files and len(self._files) >= FILES):
                    continue
                writers = self._files.setdefault(link.target, _File()).writers
                if len(writers) < WRITERS:
                    writers[process.process] = link.fd

    def _read(self, job: _Job) -> None:
        found: list[WrittenError] = []
        for path, file in self._files.items():
            found += [error for error in _new_part(path, file, job) if self._is_new(file, error)]
        if found:
            self._report(WrittenErrors(time.monotonic(), tuple(found)))

    def _is_new(self, file: _File, error: WrittenError) -> bool:
        """Whether a traceback is to be reported: once, and within the limits."""
        if is_uncaught(error):
            if error.offset in file.uncaught:
                return False
            file.uncaught.add(error.offset)
            return True
        if error.offset <= file.logged_to or error.process is None:
            return False
        file.logged_to = error.offset
        same = error.raised.type, error.raised.frames[:1]
        if self._logged >= LOGGED or self._last.get(error.process) == same:
            return False
        self._last[error.process] = same
        self._logged += 1
        return True


def is_uncaught(error: WrittenError) -> bool:
    """Whether a traceback says by itself that nothing has caught the exception."""
    is_named = error.process_name or error.thread_name or error.script
    return bool(is_named) or error.rank is not None


def _new_part(path: str, file: _File, job: _Job) -> Iterator[WrittenError]:
    """The tracebacks in the last part of a file, if it has changed since it was last read."""
    present = [each for each in file.writers if each in job.living]
    ways = [(each.pid, f"/proc/{each.pid}/fd/{file.writers[each]}", "") for each in present[:1]]
    if file.identity is not None:  # those that had it open may have ended
        ways += [(each.pid, path, f"/proc/{each.pid}/root") for each in job.living[:1]]
    for pid, way, root in ways:
        try:
            raw, start = _tail(pid, way, root, file, job)
        except OSError:
            continue
        for error in tracebacks(raw, start, job.pids):
            yield replace(
                error,
                file=clean(path, 1000),
                writers=tuple(file.writers),
                is_of_job=file.is_of_job or error.offset >= file.first_size,
            )
        return


def _tail(pid: int, way: str, root: str, file: _File, job: _Job) -> tuple[bytes, int]:
    """The last part of a file and its offset; empty if nothing in it is new.

    Raises:
        OSError: It cannot be read, is no regular file, or another one than before.
    """
    descriptor, status = open_as_owner(pid, way, root)
    try:
        identity = status.st_dev, status.st_ino
        if file.identity not in (None, identity):
            raise OSError(f"{way} is another file")
        state = status.st_size, status.st_mtime_ns
        if file.state == state or status.st_mtime < job.since_s - STARTED_S:
            return b"", 0
        if file.identity is None:
            made_s = _made_wall_s(descriptor)
            file.is_of_job = made_s is not None and made_s >= job.since_s - STARTED_S
            file.is_of_job |= _was_emptied_for(way, status, job.parent)
            file.first_size = status.st_size
        elif file.state is not None and status.st_size < file.state[0]:
            file.first_size, file.logged_to = 0, -1  # it was emptied, and is written anew
            file.uncaught.clear()
        file.identity, file.state = identity, state
        start = max(0, status.st_size - TAIL_BYTES)
        file.uncaught = {offset for offset in file.uncaught if offset >= start}
        return os.pread(descriptor, status.st_size - start, start), start
    finally:
        os.close(descriptor)


def _was_emptied_for(way: str, status: os.stat_result, parent: int) -> bool:
    """Whether a file was opened for this job alone, and all of it written since, as by `> log`.

    Not if it is appended to, or if the parent of the job writes there, too: a script that runs
    several programs one after the other.
    """
    info = procfs.read(way.replace("/fd/", "/fdinfo/"), 256)
    position, flags = POSITION.search(info), _FLAGS.search(info)
    if position is None or flags is None or int(flags[1], 8) & os.O_APPEND:
        return False
    for fd in (1, 2):
        try:
            theirs = os.stat(f"/proc/{parent}/fd/{fd}")
        except OSError:
            continue
        if (theirs.st_dev, theirs.st_ino) == (status.st_dev, status.st_ino):
            return False
    return int(position[1]) >= status.st_size


_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800


def _made_wall_s(descriptor: int) -> float | None:
    """When a file was made (statx(2), stx_btime); `None` where its file system does not say it."""
    found = ctypes.create_string_buffer(256)
    try:
        failed = ctypes.CDLL(None).statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, found)
    except AttributeError:  # a C library without it
        return None
    (mask,) = struct.unpack_from("=I", found, 0)
    if failed or not mask & _STATX_BTIME:
        return None
    seconds: int
    nanoseconds: int
    seconds, nanoseconds = struct.unpack_from("=qI", found, 80)
    return seconds + nanoseconds / 1e9
