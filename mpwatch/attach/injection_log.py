"""The user's own log of injections and detaches: `$XDG_STATE_HOME/mpwatch/attach.log`.

One line each: time, user, process, method, version of the hook, how long the process was
stopped, and the result. The file is private to the user, holds at most `LIMIT_BYTES` and has one
predecessor (`attach.log.1`). A log that cannot be written does not prevent an injection.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property

from mpwatch import __version__
from mpwatch.attach.outcomes import Attached, Detached
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
_UNTRIED = ("", "already there")


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

    @property
    def path(self) -> str:
        """Path of the log."""
        return os.path.join(self._folder, NAME)

    def injected(self, attached: Attached, command: Iterable[str]) -> None:
        """Log an injection that was tried; without any method tried, nothing is logged."""
        if attached.method in _UNTRIED:
            return
        result = attached.state + (f": {attached.reason}" if attached.reason else "")
        self._note("inject", attached.process, command, attached.method, attached.stopped_s, result)

    def detached(self, detached: Detached, command: Iterable[str]) -> None:
        """Log a detach; a process in which there was nothing to detach is not logged."""
        if not detached.method and detached.state == "absent":
            return
        state = "detached" if detached.state == "absent" else detached.state
        result = state + (f": {detached.reason}" if detached.reason else "")
        self._note("detach", detached.process, command, detached.method, detached.stopped_s, result)

    def lines_about(self, process: ProcessId, count: int) -> list[str]:
        """The last lines about a process, oldest first; none where the log cannot be read."""
        mark = f" pid={process.pid} start_ticks={process.start_ticks} method="
        found: list[str] = []
        with suppress(OSError), self._opened(make=False) as folder:
            for name in (f"{NAME}.1", NAME):
                with suppress(OSError):
                    text = _read(folder, name)
                    # mpwatch writes the fields before `hook`; a hostile command line follows.
                    found += [line for line in text.splitlines() if _is_about(line, mark)]
        return [clean(line, 2000) for line in found[-count:]]

    def _note(
        self,
        action: str,
        process: ProcessId,
        command: Iterable[str],
        method: str,
        stopped_s: float | None,
        result: str,
    ) -> None:
        """Write one line; a failure is stored in `problem`."""
        uid = os.getuid()
        fields = {
            "uid": str(uid),
            "user": _user(uid),
            "mpwatch": str(os.getpid()),
            "pid": str(process.pid),
            "start_ticks": str(process.start_ticks),
            "method": method or "none",
            "hook": f"{__version__}/{self._hook_hash}",
            "stopped_ms": "none" if stopped_s is None else f"{stopped_s * 1000:.3f}",
            "result": clean(result, _RESULT_LIMIT),
            "command": clean(" ".join(command), _COMMAND_LIMIT),
        }
        when = datetime.now().astimezone().isoformat(timespec="milliseconds")
        words = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
        try:
            self._append(f"{when} {action} {words}\n".encode("ascii"))
        except OSError as error:
            self.problem = f"{clean(self.path)} cannot be written: {error.strerror or error}"

    def _append(self, line: bytes) -> None:
        """Add a line to the file.

        Raises:
            OSError: It is not a file of this user, or cannot be written.
        """
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
    def _hook_hash(self) -> str:
        """The first twelve digits of a SHA-256 over the hook's files: their names and contents."""
        hook = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hook")
        digest = hashlib.sha256()
        try:
            for folder, folders, names in os.walk(hook):
                folders.sort()
                for name in sorted(name for name in names if name.endswith(".py")):
                    path = os.path.join(folder, name)
                    digest.update(os.path.relpath(path, hook).encode() + b"\0")
                    with open(path, "rb") as file:
                        digest.update(file.read())
        except OSError:
            return "unknown"
        return digest.hexdigest()[:12]


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


def _user(uid: int) -> str:
    try:
        return clean(pwd.getpwuid(uid).pw_name, 64)
    except KeyError:
        return "unknown"


def _value(text: str) -> str:
    """A value as one word, or else as a JSON string of ASCII."""
    is_word = text.isascii() and text.replace("/", "").replace(".", "").replace("_", "").isalnum()
    return text if is_word else json.dumps(text)
