"""The user's own log of injections and detaches: `$XDG_STATE_HOME/mpwatch/attach.log`.

One line for each, written once its result is known: when it began, user, process, method, release
and checksum of the hook, how long the process was stopped, result, command. Before the process is
changed, the line is written to a file of its own beside the log, `attach.log.begun-*`, with a
result that says that there is none. The mpwatch that has made such a file holds a lock on it. If
nobody does, that mpwatch was killed, and the next one moves the lines to the log. The files are
private to the user; the log holds at most `LIMIT_BYTES` and has one predecessor (`attach.log.1`). A
log that cannot be written does not prevent an injection.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from mpwatch.attach.outcomes import Attached, Detached, hook_words
from mpwatch.collect.host import frozen_disk
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean

NAME = "attach.log"
LIMIT_BYTES = 1 << 20
_COMMAND_LIMIT = 300
_RESULT_LIMIT = 300
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO of that name is refused by the kernel instead of waited for.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BEGUN = f"{NAME}.begun-"
_BEGUN_BYTES = 64 << 20
"""Most of such a file that is read; 1,000 injections at a time make 1 MiB."""
_CUT = "only a part of a line could be written: the disk is full"
NO_RESULT = "no result: mpwatch was killed, or ended without writing it"


def default_folder() -> str:
    """The directory of the log: `mpwatch` in `$XDG_STATE_HOME`, which must be an absolute path.

    Root may have the variables of a user (`sudo -E`), and follows them nowhere.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.expanduser("~/.local/state")
    if os.geteuid() == 0 and not _is_of_root(state):
        state = os.path.join(pwd.getpwuid(0).pw_dir, ".local/state")
    return os.path.join(state, "mpwatch")


def _is_of_root(path: str) -> bool:
    """Whether what exists of a path, links included, belongs to root."""
    while True:
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.lstat(path).st_uid != 0:
                return False
        if path in ("/", ""):
            return True
        path = os.path.dirname(path)


@dataclass(frozen=True, slots=True)
class Entry:
    """An injection or a detach."""

    line: str
    """The line of the log, cleaned."""
    is_over: bool = True
    """Otherwise another mpwatch is just doing it."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the log in two parts."""

    head: str
    """Time, action, user and process: no other line has the same."""
    rest: str

    def __str__(self) -> str:
        return f"{self.head} {self.rest}\n"


class InjectionLog:
    """Writes lines to the log, and reads them back. All methods may be called from any thread.

    Attributes:
        problem: Why the last line could not be written, one sentence, or `None`.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder or default_folder()
        self.problem: str | None = None
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, ProcessId], _Line] = {}
        """The line of each action that has begun, for the case that it never has a result."""
        self._begun: _BegunFile | None = None
        self._is_complete = True
        """Whether all results since `_begun` was made are in the log."""

    @property
    def path(self) -> str:
        """Path of the log."""
        return os.path.join(self._folder, NAME)

    def injecting(self, process: ProcessId, method: str, _hook: str = "") -> None:
        """Log an injection that is about to change its target; the first time that it is."""
        self._begin("inject", process, method, self._own_hook)

    def injected(self, attached: Attached, command: Iterable[str] | None) -> None:
        """Log the result of an injection that was begun.

        One that never changed its target has no line, nor has one that only waited for a call that
        an earlier injection queued.

        Args:
            attached: The result.
            command: The command line; `None` to read it.
        """
        if ("inject", attached.process) in self._under_way:
            result = attached.state + (f": {attached.reason}" if attached.reason else "")
            stopped = _milliseconds(attached.stopped_s)
            rest = _rest(
                attached.process, attached.method, self._own_hook, stopped, result, command
            )
            self._end("inject", attached.process, rest)

    def detaching(self, process: ProcessId, method: str, hook: str = "") -> None:
        """Log a detach that is about to change its target; the first time that it is."""
        self._begin("detach", process, method, hook)

    def detached(self, detached: Detached, command: Iterable[str] | None) -> None:
        """Log the result of a detach; a process in which there was nothing to detach has no line.

        Args:
            detached: The result.
            command: The command line; `None` to read it.
        """
        has_begun = ("detach", detached.process) in self._under_way
        if not has_begun and not detached.method and detached.state == "absent":
            return
        state = "detached" if detached.state == "absent" else detached.state
        result = state + (f": {detached.reason}" if detached.reason else "")
        stopped = _milliseconds(detached.stopped_s)
        rest = _rest(detached.process, detached.method, detached.hook, stopped, result, command)
        self._end("detach", detached.process, rest)

    def close(self) -> None:
        """Write the lines of what was begun here and will have no result."""
        for action, process in tuple(self._under_way):
            self._end(action, process, None)

    def recover(self) -> None:
        """Write the lines that an mpwatch has left which was killed; a failure is in `problem`."""
        if not os.path.isdir(self._folder):
            return
        with self._lock, self._noting_problems(), self._opened(make=False) as folder:
            if any(not is_held for _, is_held in _begun_files(folder)):
                self._require_writes()
                self._recover(folder)

    def entries_about(self, process: ProcessId, count: int) -> list[Entry]:
        """The last entries about a process, oldest first; none where the log cannot be read."""
        # mpwatch writes the fields before `hook`; a hostile command line follows.
        mark = f" pid={process.pid} start_ticks={process.start_ticks} method="
        found: list[Entry] = []
        with suppress(OSError), self._opened(make=False) as folder:
            found = [Entry(line) for line in _logged(folder)]
            heads = {_head_of(each.line) for each in found}
            for text, is_held in _begun_files(folder):
                for line in _complete_lines(text):
                    if _head_of(line) not in heads:
                        shown = line.replace(json.dumps(NO_RESULT), "begun", 1)
                        found.append(Entry(shown if is_held else line, not is_held))
        found = [each for each in found if mark in each.line.partition(" hook=")[0] + " "]
        return [Entry(clean(each.line, 2000), each.is_over) for each in found[-count:]]

    def _begin(self, action: str, process: ProcessId, method: str, hook: str) -> None:
        """Keep the line of an action that begins, unless it has begun already."""
        with self._lock:
            if (action, process) in self._under_way:
                return
            rest = _rest(process, method, hook, "unknown", NO_RESULT, None)
            line = _Line(_head(action, process), rest)
            self._under_way[action, process] = line
            with self._noting_problems():
                self._require_writes()
                with self._opened(make=True) as folder:
                    if self._begun is None:
                        self._recover(folder)
                        self._begun, self._is_complete = _BegunFile(folder), True
                    self._begun.add(str(line).encode("ascii"))

    def _end(self, action: str, process: ProcessId, rest: str | None) -> None:
        """Write the line of an action that is over, with its result if it has one."""
        with self._lock:
            line = self._under_way.pop((action, process), None)
            if rest is not None:
                line = _Line(line.head if line else _head(action, process), rest)
            begun, is_last = self._begun, not self._under_way
            is_written = line is None
            with self._noting_problems():
                self._require_writes()
                with self._opened(make=True) as folder:
                    if line is not None:
                        self._append(folder, str(line).encode("ascii"))
                        is_written = True
                    if begun is not None and is_last and self._is_complete:
                        begun.remove(folder)
            self._is_complete = self._is_complete and is_written
            if begun is not None and is_last:
                begun.close()
                self._begun = None

    @contextmanager
    def _noting_problems(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.problem = f"{clean(self.path)} cannot be written: {error.strerror or error}"

    def _recover(self, folder: int) -> None:
        """Move the lines of those that were killed to the log."""
        for name in _begun_names(folder):
            with suppress(OSError), _opened_begun(folder, name) as file:
                # The lock of another mpwatch that does the same, or of the one that writes it.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file).st_nlink == 0:
                    continue
                heads = set(map(_head_of, _logged(folder)))
                for line in _complete_lines(_text(file, _BEGUN_BYTES)):
                    # It may have been killed after it had written the result.
                    if _head_of(line) not in heads:
                        self._append(folder, f"{line}\n".encode("ascii", "replace"))
                os.unlink(name, dir_fd=folder)

    def _append(self, folder: int, line: bytes) -> None:
        """Add a line to the log.

        Raises:
            OSError: It is not a file of this user, or cannot be written.
        """
        file = _own_file(folder)
        try:
            if os.fstat(file).st_size + len(line) > LIMIT_BYTES and _rotate(folder, file):
                os.close(file)
                file = _own_file(folder)
            if os.write(file, line) != len(line):
                raise OSError(_CUT)
        finally:
            os.close(file)

    def _require_writes(self) -> None:
        """Require that a write to the directory, or to that in which it is to be made, returns.

        Raises:
            OSError: It does not, or there is no such directory.
        """
        folder = self._folder
        while not os.path.isdir(folder) and folder != "/":
            folder = os.path.dirname(folder)
        asked = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if frozen_disk.blocks_writes(asked):
                raise OSError(frozen_disk.SENTENCE)
        finally:
            os.close(asked)

    @contextmanager
    def _opened(self, *, make: bool) -> Iterator[int]:
        """The descriptor of the directory, after checks.

        Raises:
            OSError: It is a link, belongs to another user, or cannot be created.
        """
        if make:
            os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
        folder = os.open(self._folder, _FOLDER)
        try:
            found = os.fstat(folder)
            if found.st_uid != os.geteuid():
                raise PermissionError(0, f"its directory belongs to uid {found.st_uid}")
            if stat.S_IMODE(found.st_mode) & 0o077:
                os.fchmod(folder, 0o700)
            yield folder
        finally:
            os.close(folder)

    @cached_property
    def _own_hook(self) -> str:
        """The hook that this installation injects."""
        try:
            return hook_words(wire.RELEASE, wire.sources_version(os.path.dirname(wire.__file__)))
        except OSError:
            return hook_words(wire.RELEASE, "")


def _own_file(folder: int) -> int:
    """Open the log for appending.

    Raises:
        OSError: It is no regular file of this user, or has a second name.
    """
    file = os.open(NAME, _APPEND, 0o600, dir_fd=folder)
    found = os.fstat(file)
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
    if not is_ours:
        os.close(file)
        raise PermissionError(0, "it is not a regular file of this user with one name")
    if stat.S_IMODE(found.st_mode) != 0o600:
        os.fchmod(file, 0o600)
    return file


def _rotate(folder: int, file: int) -> bool:
    """Rename the full log to `attach.log.1`; `False` if another mpwatch is doing so."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    try:
        if os.stat(NAME, dir_fd=folder, follow_symlinks=False).st_ino == os.fstat(file).st_ino:
            os.rename(NAME, f"{NAME}.1", src_dir_fd=folder, dst_dir_fd=folder)
        return True
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


class _BegunFile:
    """The file of this mpwatch for the lines of what has begun and has no result yet."""

    def __init__(self, folder: int) -> None:
        """Create and lock it.

        Raises:
            OSError: It cannot be created.
        """
        while True:
            self._name = f"{_BEGUN}{os.getpid()}-{secrets.token_hex(4)}"
            self._file = os.open(self._name, _CREATE, 0o600, dir_fd=folder)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX)
            except OSError:
                self.remove(folder)
                self.close()
                raise
            if os.fstat(self._file).st_nlink:
                return
            self.close()  # another mpwatch had the lock first, and has removed the empty file

    def add(self, line: bytes) -> None:
        """Add a line.

        Raises:
            OSError: It cannot be written.
        """
        size = os.fstat(self._file).st_size
        if os.write(self._file, line) != len(line):
            os.ftruncate(self._file, size)
            raise OSError(_CUT)

    def remove(self, folder: int) -> None:
        """Remove the file; `close` is still to be called.

        Raises:
            OSError: It cannot be removed.
        """
        os.unlink(self._name, dir_fd=folder)

    def close(self) -> None:
        """Release the lock: lines that are still in the file are written by the next mpwatch."""
        os.close(self._file)


def _begun_names(folder: int) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith(_BEGUN))


@contextmanager
def _opened_begun(folder: int, name: str) -> Iterator[int]:
    """The descriptor of such a file.

    Raises:
        OSError: It is gone, or no regular file of this user with one name.
    """
    file = os.open(name, _READ, dir_fd=folder)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
            raise PermissionError(0, "it is not a regular file of this user with one name")
        yield file
    finally:
        os.close(file)


def _begun_files(folder: int) -> Iterator[tuple[str, bool]]:
    """The text of each of these files, and whether an mpwatch holds it that is not this one."""
    for name in _begun_names(folder):
        with suppress(OSError), _opened_begun(folder, name) as file:
            is_held = True
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                is_held = False
            yield _text(file, _BEGUN_BYTES), is_held


def _logged(folder: int) -> list[str]:
    """The lines of the log and of its predecessor; none of what cannot be read."""
    lines: list[str] = []
    for name in (f"{NAME}.1", NAME):
        with suppress(OSError):
            file = os.open(name, _READ, dir_fd=folder)
            try:
                if stat.S_ISREG(os.fstat(file).st_mode):
                    lines += _text(file, LIMIT_BYTES + 65536).splitlines()
            finally:
                os.close(file)
    return lines


def _text(file: int, limit: int) -> str:
    parts: list[bytes] = []
    while limit > 0 and (part := os.read(file, min(limit, 1 << 20))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts).decode("ascii", "replace")


def _complete_lines(text: str) -> list[str]:
    """The lines; not the last one if its writer was killed in it, before it changed anything."""
    return text[: text.rfind("\n") + 1].splitlines()


def _head_of(line: str) -> str:
    """What is the same in a line and in one that was kept for the case that it is never written."""
    return line.partition(" method=")[0]


def _head(action: str, process: ProcessId) -> str:
    uid = os.getuid()
    when = datetime.now().astimezone().isoformat(timespec="milliseconds")
    fields = {
        "uid": str(uid),
        "user": _user(uid),
        "mpwatch": str(os.getpid()),
        "pid": str(process.pid),
        "start_ticks": str(process.start_ticks),
    }
    return f"{when} {action} {_joined(fields)}"


def _rest(
    process: ProcessId,
    method: str,
    hook: str,
    stopped_ms: str,
    result: str,
    command: Iterable[str] | None,
) -> str:
    words = _command(process.pid) if command is None else command
    return _joined(
        {
            "method": method or "none",
            "hook": hook or "unknown",
            "stopped_ms": stopped_ms,
            "result": clean(result, _RESULT_LIMIT),
            "command": clean(" ".join(words), _COMMAND_LIMIT),
        }
    )


def _joined(fields: dict[str, str]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _command(pid: int) -> tuple[str, ...]:
    """The command line of a process; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            raw = file.read(4096)
    except OSError:
        return ()
    return tuple(part.decode("utf-8", "replace") for part in raw.rstrip(b"\0").split(b"\0"))


def _milliseconds(seconds: float | None) -> str:
    return "none" if seconds is None else f"{seconds * 1000:.3f}"


def _user(uid: int) -> str:
    try:
        return clean(pwd.getpwuid(uid).pw_name, 64)
    except KeyError:
        return "unknown"


def _value(text: str) -> str:
    """A value as one word, or else as a JSON string of ASCII."""
    is_word = text.isascii() and text.replace("/", "").replace(".", "").replace("_", "").isalnum()
    return text if is_word else json.dumps(text)
