"""The directory by which an observer passes the payload to a target and receives the answer.

The directory is in the target's own runtime directory, opened through the target's root, and
belongs to the target's user. Every step of the path is opened without following symbolic links,
because the observer may be root there and the target's user may be hostile. Owner and mode of the
runtime directory are checked on the open descriptor, and everything else is done relative to that
descriptor, so names cannot be swapped between check and use. A rename creates the directory with
all of its files, once: a second observer finds it and waits for the answer. Nothing is written to a
disk that is frozen, see `frozen_disk`.

An injection is wanted for as long as its payload is there. Whoever removes it calls the injection
off, also one that has begun: see `program.is_called_off`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from mpwatch.attach.outcomes import DONE, PayloadAnswer, Refused
from mpwatch.attach.payload import compiled_payload
from mpwatch.attach.target import Target
from mpwatch.collect.host import frozen_disk
from mpwatch.collect.process.foreign_files import acting_as
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MARK_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ANSWER_BYTES = 1 << 16
_POLL_S = 0.001
_LONGEST_POLL_S = 0.03
_SWEEP_EVERY_S = 10.0
_REMEMBERED = 64
PREFIX = "attach-"
_UNLOAD = "unload"
"""An empty file that says that the payload unloads the hook."""
COPY_PREFIX = "hook-"
"""Of copies of the hook's package in the same runtime directory, see `install`."""
HIDDEN_STALE_S = 60.0
"""Age from which a directory that is not published yet counts as left by a killed observer."""
_DEPTH = 4
_swept: dict[tuple[int, int], float] = {}
"""Time of the last sweep, by device and inode of the runtime directory."""
STALE_S = 5.0
"""Age from which a directory without a queued call counts as left by a killed observer."""


@dataclass(frozen=True, slots=True)
class ExchangeDir:
    """The exchange directory of one target."""

    runtime: str
    """The runtime directory as the target names it."""
    name: str
    target: Target
    is_ours: bool
    """Whether this observer created the directory."""
    proc: str = "/proc"

    @property
    def path(self) -> str:
        """The path as the target names it."""
        return f"{self.runtime}/{self.name}"

    @property
    def unloads(self) -> bool:
        """Whether its payload unloads the hook; not if the directory is gone."""
        with contextlib.suppress(OSError, Refused), self._opened() as folder:
            return _UNLOAD in os.listdir(folder)
        return False

    def answer(self) -> PayloadAnswer | None:
        """The target's answer; `None` if there is none yet.

        That of a directory that was removed is `done`: the target removes it after a success, and
        an observer that calls the action off.
        """
        try:
            with self._opened() as folder:
                raw = _read(folder, "result")
        except FileNotFoundError:
            return PayloadAnswer(DONE)
        except (OSError, Refused):
            return None
        return None if raw is None else PayloadAnswer.parse(raw)

    def answer_within(self, timeout_s: float) -> PayloadAnswer | None:
        """Wait for the answer; the directory is opened once and not for each poll."""
        deadline_s = time.monotonic() + timeout_s
        pause_s = _POLL_S
        with contextlib.suppress(OSError, Refused), self._opened() as folder:
            while _read(folder, "result") is None and os.fstat(folder).st_nlink:
                if time.monotonic() > deadline_s:
                    break
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.3, _LONGEST_POLL_S)
        return self.answer()

    def handed_over_at(self) -> int | None:
        """The number in the mark `handed-over`; `None` if the call was not queued yet."""
        try:
            with self._opened() as folder:
                raw = _read(folder, "handed-over")
        except (OSError, Refused):
            return None
        return int(raw) if raw is not None and raw.isdigit() else None

    def is_unattended(self) -> bool:
        """Whether its observer has given up waiting for the answer, or was probably killed."""
        with contextlib.suppress(OSError, Refused), self._opened() as folder:
            return "unattended" in os.listdir(folder) or self.is_stale()
        return True

    def is_stale(self) -> bool:
        """Whether its observer was probably killed before it queued the call."""
        try:
            with self._opened() as folder:
                return time.time() - os.fstat(folder).st_mtime > STALE_S
        except OSError:
            return True

    def mark(self, what: str, number: int = 0) -> None:
        """Write the mark `handed-over` or `unattended`, unless the directory is gone."""
        if not takes_writes(self.target, self.runtime, self.proc):
            return
        with contextlib.suppress(OSError, Refused), self._opened() as folder:
            fd = os.open(what, _MARK_FILE, 0o600, dir_fd=folder)
            try:
                os.write(fd, b"%d" % number)
            finally:
                os.close(fd)

    def renew(self) -> bool:
        """Remove the answer, so that the call can be repeated; `False` if it was called off.

        Raises:
            Refused: The directory is on a frozen disk.
        """
        _require_writes(self.target, self.runtime, self.proc)
        with contextlib.suppress(OSError, Refused), self._opened() as folder:
            os.unlink("result", dir_fd=folder)
            return compiled_payload.PAYLOAD_NAME in os.listdir(folder)
        return False

    def remove(self) -> None:
        """Remove the directory, unless it is gone or on a frozen disk.

        A target may end right after its answer. The directory is then removed as this process sees
        it, if both see the same files and processes and are of the same user.
        """
        target = self.target
        if not takes_writes(target, self.runtime, self.proc):
            return
        with contextlib.suppress(OSError, Refused):
            self._remove_seen_by(target.pid)
            return
        if target.shares_files and target.shares_pids and target.uid == os.geteuid():
            with contextlib.suppress(OSError, Refused):
                self._remove_seen_by(os.getpid())

    def _remove_seen_by(self, pid: int) -> None:
        with self._opened(pid) as folder:
            for name in os.listdir(folder):
                os.unlink(name, dir_fd=folder)
        with opened_runtime(self.target, self.runtime, self.proc, pid) as parent:
            os.rmdir(self.name, dir_fd=parent)

    @contextlib.contextmanager
    def _opened(self, pid: int | None = None) -> Iterator[int]:
        with opened_runtime(self.target, self.runtime, self.proc, pid) as parent:
            folder = os.open(self.name, _DIRECTORY, dir_fd=parent)
            try:
                yield folder
            finally:
                os.close(folder)


def create(
    target: Target, runtime: str, payload: bytes, proc: str = "/proc", *, unloads: bool = False
) -> ExchangeDir:
    """Create the exchange directory of a target, or find the existing one.

    Args:
        target: The process.
        runtime: The runtime directory as the target names it.
        payload: See `compiled_payload`.
        proc: Path of procfs.
        unloads: Whether the payload unloads the hook.

    Raises:
        Refused: The directory is not safe or not writable.
    """
    name = name_for(target)
    contents = {compiled_payload.PAYLOAD_NAME: payload, **({_UNLOAD: b""} if unloads else {})}
    try:
        with opened_runtime(target, runtime, proc) as parent:
            if _is_time_to_sweep(parent):
                _sweep(parent, proc if target.shares_pids else None)
            if not _has_room(parent, len(payload)):
                raise Refused(f"the file system of {runtime} is nearly full")
            is_ours = publish(parent, name, contents, target)
    except OSError as error:
        raise Refused(f"nothing can be written to {runtime}: {error.strerror}") from error
    return ExchangeDir(runtime, name, target, is_ours, proc)


def find(target: Target, proc: str = "/proc") -> ExchangeDir | None:
    """The existing exchange directory of a target, or `None`."""
    for runtime in _candidates(target):
        found = ExchangeDir(runtime, name_for(target), target, False, proc)
        with contextlib.suppress(OSError, Refused), found._opened():
            return found
    return None


def runtime_directory(target: Target, proc: str = "/proc", *, make: bool = True) -> str:
    """The first safe runtime directory of the target's user.

    Args:
        target: The process.
        proc: Path of procfs.
        make: Create it if it is missing; otherwise nothing is written, so that a frozen disk is
            not noticed.

    Raises:
        Refused: No directory is safe, or the first one is on a frozen disk; the message says why.
    """
    reasons = []
    for path in _candidates(target):
        if make:
            _require_writes(target, path, proc)
        try:
            (_make_runtime if make else _examine_runtime)(target, path, proc)
            return path
        except Refused as refusal:
            reasons.append(refusal.reason)
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
    raise Refused("it has no usable runtime directory: " + "; ".join(reasons))


def _require_writes(target: Target, path: str, proc: str) -> None:
    """Refuse a runtime directory on a frozen disk."""
    if not takes_writes(target, path, proc):
        raise Refused(
            f"nothing can be written to {path}: {frozen_disk.SENTENCE}",
            "try again after the thaw, or start the job with XDG_RUNTIME_DIR on tmpfs",
            passes=True,
        )


def takes_writes(target: Target, path: str, proc: str = "/proc") -> bool:
    """Whether a write to a runtime directory of the target returns; `True` if it is not known.

    If the directory is missing, the one above is asked, in which it would be made.
    """
    for folder in (path, path.rpartition("/")[0]):
        try:
            with opened(target, folder, proc) as found:
                asked = os.dup(found)
        except OSError:
            continue
        try:
            return not frozen_disk.blocks_writes(asked, target.uid, target.gid)
        finally:
            os.close(asked)
    return True


@contextlib.contextmanager
def opened_runtime(
    target: Target, path: str, proc: str = "/proc", pid: int | None = None
) -> Iterator[int]:
    """A descriptor of a runtime directory that only the target's user can enter.

    Args:
        target: The process.
        path: Of the directory.
        proc: Path of procfs.
        pid: The process in whose view the path is; the target if not given.

    Raises:
        Refused: It belongs to another user, or is open to others.
        OSError: It cannot be opened without following links.
    """
    with opened(target, path, proc, pid) as folder:
        found = os.fstat(folder)
        if found.st_uid != target.uid:
            raise Refused(f"{path} belongs to uid {found.st_uid}", f"rm -r {shlex.quote(path)}")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise Refused(f"{path} is open to other users", f"chmod 700 {shlex.quote(path)}")
        yield folder


def publish(parent: int, name: str, contents: dict[str, bytes], target: Target) -> bool:
    """Create a directory with all of its files at once, private to the target's user.

    Args:
        parent: Descriptor of the runtime directory.
        name: The directory's name in there.
        contents: Of the files, by their path within the directory.
        target: The process.

    Returns:
        `False` if another observer has created it.

    Raises:
        OSError: It could not be written; nothing of it is left.
    """
    hidden = f".{name}.{os.getpid()}.{threading.get_native_id()}.{time.monotonic_ns()}"
    is_published = False
    try:
        _write_folder(parent, hidden, contents, target)
        os.rename(hidden, name, src_dir_fd=parent, dst_dir_fd=parent)
        is_published = True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        if not is_published:
            with contextlib.suppress(OSError):
                remove_tree(parent, hidden)
    return is_published


def _write_folder(parent: int, name: str, contents: dict[str, bytes], target: Target) -> None:
    os.mkdir(name, 0o700, dir_fd=parent)
    folder = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for inner in sorted({path.rpartition("/")[0] for path in contents} - {""}):
            of_it = {
                path.rpartition("/")[2]: content
                for path, content in contents.items()
                if path.rpartition("/")[0] == inner
            }
            _write_folder(folder, inner, of_it, target)
        for path, content in contents.items():
            if "/" in path:
                continue
            fd = os.open(path, _NEW_FILE, 0o600, dir_fd=folder)
            try:
                _write_all(fd, content)
                _give(fd, target)
            finally:
                os.close(fd)
        _give(folder, target)
    finally:
        os.close(folder)


def _make_runtime(target: Target, path: str, proc: str) -> None:
    above, _, name = path.rpartition("/")
    with opened(target, above, proc) as parent, contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        made = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            _give(made, target)
        finally:
            os.close(made)
    try:
        with opened_runtime(target, path, proc):
            pass
    except NotADirectoryError:
        raise Refused(f"{path} is not a directory") from None


def _examine_runtime(target: Target, path: str, proc: str) -> None:
    """Require that files can be made in a runtime directory, or that it can be made.

    Raises:
        Refused: The target's user may not write there, or the file system is read-only.
        OSError: Neither it nor the directory above it can be opened without following links.
    """
    try:
        with opened_runtime(target, path, proc) as folder:
            is_writable = _is_writable(folder)
    except FileNotFoundError:
        with opened(target, path.rpartition("/")[0], proc) as above:
            is_writable = _is_writable(above)
    if not is_writable:
        raise Refused(f"{path} cannot be written")


def _is_writable(folder: int) -> bool:
    """Whether the user as whom files are accessed just now may make files in a directory."""
    return os.access(f"/proc/self/fd/{folder}", os.W_OK | os.X_OK, effective_ids=True)


@contextlib.contextmanager
def opened(target: Target, path: str, proc: str, pid: int | None = None) -> Iterator[int]:
    """Open a directory in the target's view, step by step and without following links.

    The context runs with the file rights that the target had when its facts were read.

    Args:
        target: The process.
        path: Of the directory.
        proc: Path of procfs.
        pid: The process in whose view the path is; the target if not given.

    Raises:
        OSError: It cannot be opened so.
    """
    root = f"{proc}/{target.pid if pid is None else pid}/root"
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Not as it is now: a program that the target has started in its place since may have the
        # rights of another user (set-uid), and the directory would still be that of its first one.
        with acting_as(target.uid, target.gid, target.groups):
            for part in filter(None, path.split("/")):
                if part == "..":  # from the root directory of a chroot it leads out of that
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
    finally:
        os.close(fd)


def _candidates(target: Target) -> tuple[str, ...]:
    runtime = target.environment.get("XDG_RUNTIME_DIR")
    return wire.runtime_candidates(target.uid_inside, runtime)


def name_for(target: Target) -> str:
    """Name of the exchange directory in the runtime directory."""
    return PREFIX + wire.stem(target.pid_inside, target.process.start_ticks)


def _give(fd: int, target: Target) -> None:
    """Change the owner of a file to the target's user, if needed."""
    if os.fstat(fd).st_uid != target.uid:
        os.fchown(fd, target.uid, target.gid)


def _write_all(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def _read(folder: int, name: str) -> bytes | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        return os.read(fd, _ANSWER_BYTES)
    finally:
        os.close(fd)


def _has_room(folder: int, size: int) -> bool:
    """Whether the file system has space for the payload, the answer and the hook's files."""
    disk = os.fstatvfs(folder)
    return disk.f_bavail * disk.f_frsize > 4 * size


def _is_time_to_sweep(parent: int) -> bool:
    """Whether the last sweep of this runtime directory is more than `_SWEEP_EVERY_S` ago."""
    found, now_s = os.fstat(parent), time.monotonic()
    key = found.st_dev, found.st_ino
    last_s = _swept.get(key)
    if last_s is not None and now_s - last_s < _SWEEP_EVERY_S:
        return False
    if len(_swept) >= _REMEMBERED:
        _swept.clear()
    _swept[key] = now_s
    return True


def _sweep(parent: int, proc: str | None) -> None:
    """Remove exchange directories whose process has exited, and what killed observers left.

    Args:
        parent: Descriptor of the runtime directory.
        proc: Path of procfs; `None` if the target's pids are not those of this process.
    """
    remove_hidden(parent)
    for name in os.listdir(f"/proc/self/fd/{parent}"):
        pid, _, ticks = name.removeprefix(PREFIX).partition("-")
        if proc is None or not name.startswith(PREFIX) or not (pid.isdigit() and ticks.isdigit()):
            continue
        try:
            start_ticks = stat_of(int(pid), proc).start_ticks
        except OSError:
            start_ticks = -1
        if start_ticks != int(ticks):
            with contextlib.suppress(OSError):
                remove_tree(parent, name)


def remove_hidden(parent: int) -> None:
    """Remove directories whose observer was killed before it had published them."""
    for name in os.listdir(f"/proc/self/fd/{parent}"):
        if not name.startswith(f".{PREFIX}") and not name.startswith(f".{COPY_PREFIX}"):
            continue
        with contextlib.suppress(OSError):
            changed_s = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mtime
            if time.time() - changed_s > HIDDEN_STALE_S:
                remove_tree(parent, name)


def remove_tree(parent: int, name: str, depth: int = _DEPTH) -> None:
    """Remove a directory with its files, following no link.

    Raises:
        OSError: It could not be removed, or has more levels than anything that mpwatch writes.
    """
    if not depth:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    folder = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for entry in os.listdir(folder):
            if stat.S_ISDIR(os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode):
                remove_tree(folder, entry, depth - 1)
            else:
                os.unlink(entry, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)
