"""The user's own log of injections and detaches: `$XDG_STATE_HOME/mpwatch/attach.log`.

A line `injecting` or `detaching`, written before the process is changed: time, user, process,
method, release and checksum of the hook, and `result=begun`. Then a line `inject` or `detach` with
the result and how long the process was stopped. If the second is missing, mpwatch was killed, or
is still doing it: the process may have been changed. The file is private to the user, holds at most
`LIMIT_BYTES` and has one predecessor (`attach.log.1`). A log that cannot be written does not
prevent an injection.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
_BEGUN = {"injecting": "inject", "detaching": "detach"}


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


class InjectionLog:
    """Writes lines to the log, and reads them back.

    Attributes:
        problem: Why the last line could not be written, one sentence, or `None`.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder or default_folder()
        self.problem: str | None = None
        self._begun: set[tuple[str, ProcessId]] = set()
        """Actions whose first line has been written, and whose second has not."""

    @property
    def path(self) -> str:
        """Path of the log."""
        return os.path.join(self._folder, NAME)

    def injecting(self, process: ProcessId, method: str, _hook: str = "") -> None:
        """Log an injection that is about to change its target; the first time that it is."""
        if self._begins("inject", process):
            self._note("injecting", process, None, method, self._own_hook)

    def injected(self, attached: Attached, command: Iterable[str] | None) -> None:
        """Log the result of an injection that was begun.

        One that never changed its target has no line, nor has one that only waited for a call that
        an earlier injection queued.

        Args:
            attached: The result.
            command: The command line; `None` to read it.
        """
        if not self._has_ended("inject", attached.process):
            return
        result = attached.state + (f": {attached.reason}" if attached.reason else "")
        self._note(
            "inject",
            attached.process,
            command,
            attached.method,
            self._own_hook,
            {"stopped_ms": _milliseconds(attached.stopped_s)},
            result,
        )

    def detaching(self, process: ProcessId, method: str, hook: str = "") -> None:
        """Log a detach that is about to change its target; the first time that it is."""
        if self._begins("detach", process):
            self._note("detaching", process, None, method, hook)

    def detached(self, detached: Detached, command: Iterable[str] | None) -> None:
        """Log the result of a detach; a process in which there was nothing to detach has no line.

        Args:
            detached: The result.
            command: The command line; `None` to read it.
        """
        has_begun = self._has_ended("detach", detached.process)
        if not has_begun and not detached.method and detached.state == "absent":
            return
        state = "detached" if detached.state == "absent" else detached.state
        result = state + (f": {detached.reason}" if detached.reason else "")
        self._note(
            "detach",
            detached.process,
            command,
            detached.method,
            detached.hook,
            {"stopped_ms": _milliseconds(detached.stopped_s)},
            result,
        )

    def _begins(self, action: str, process: ProcessId) -> bool:
        """Whether the first line of an action is not written yet."""
        has_begun = (action, process) in self._begun
        self._begun.add((action, process))
        return not has_begun

    def _has_ended(self, action: str, process: ProcessId) -> bool:
        """Whether the first line of an action was written; the action is over now."""
        has_begun = (action, process) in self._begun
        self._begun.discard((action, process))
        return has_begun

    def lines_about(self, process: ProcessId, count: int) -> list[str]:
        """The last lines about a process, oldest first; none where the log cannot be read.

        A line `injecting` or `detaching` is among them only if its result is missing.
        """
        mark = f" pid={process.pid} start_ticks={process.start_ticks} method="
        found: list[str] = []
        with suppress(OSError), self._opened(make=False) as folder:
            for name in (f"{NAME}.1", NAME):
                with suppress(OSError):
                    text = _read(folder, name)
                    # mpwatch writes the fields before `hook`; a hostile command line follows.
                    found += [line for line in text.splitlines() if _is_about(line, mark)]
        return [clean(line, 2000) for line in _without_completed(found)[-count:]]

    def _note(
        self,
        action: str,
        process: ProcessId,
        command: Iterable[str] | None,
        method: str,
        hook: str,
        more: Mapping[str, str] | None = None,
        result: str = "begun",
    ) -> None:
        """Write one line; a failure is stored in `problem`."""
        uid = os.getuid()
        words = _command(process.pid) if command is None else command
        fields = {
            "uid": str(uid),
            "user": _user(uid),
            "mpwatch": str(os.getpid()),
            "pid": str(process.pid),
            "start_ticks": str(process.start_ticks),
            "method": method or "none",
            "hook": hook or "unknown",
            **(more or {}),
            "result": clean(result, _RESULT_LIMIT),
            "command": clean(" ".join(words), _COMMAND_LIMIT),
        }
        when = datetime.now().astimezone().isoformat(timespec="milliseconds")
        text = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
        try:
            self._append(f"{when} {action} {text}\n".encode("ascii"))
        except OSError as error:
            self.problem = f"{clean(self.path)} cannot be written: {error.strerror or error}"

    def _append(self, line: bytes) -> None:
        """Add a line to the file.

        Raises:
            OSError: It is not a file of this user, or cannot be written, or its disk is frozen.
        """
        self._require_writes()
        with self._opened(make=True) as folder:
            file = _own_file(folder)
            try:
                if os.fstat(file).st_size + len(line) > LIMIT_BYTES and _rotate(folder, file):
                    os.close(file)
                    file = _own_file(folder)
                if os.write(file, line) != len(line):
                    raise OSError("only a part of a line could be written: the disk is full")
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


def _read(folder: int, name: str) -> str:
    file = os.open(name, _READ, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        return os.read(file, LIMIT_BYTES + 65536).decode("ascii", "replace")
    finally:
        os.close(file)


def _is_about(line: str, mark: str) -> bool:
    return mark in line.partition(" hook=")[0] + " "


def _without_completed(lines: Iterable[str]) -> list[str]:
    """The lines but those whose action has a result in a later line of the same mpwatch."""
    kept: list[str] = []
    begun: dict[tuple[str, str], int] = {}
    for line in lines:
        action, by = line.split()[1], line.partition(" mpwatch=")[2].partition(" ")[0]
        done = _BEGUN.get(action, action)
        earlier = begun.pop((done, by), None)
        if earlier is not None:
            kept[earlier] = ""
        if action in _BEGUN:
            begun[done, by] = len(kept)
        kept.append(line)
    return [line for line in kept if line]


def is_completed(line: str) -> bool:
    """Whether a line of `lines_about` has a result."""
    return line.split()[1] not in _BEGUN


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
