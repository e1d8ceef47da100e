"""What is laid down for a target: the program it will run, its errand, and later its answer.

A parcel is a directory of its own in the target's runtime directory, reached through the target's
own root and owned by its user. Every step on the way is opened without following symbolic links,
because we may be root there and the target's user may not be our friend. It appears whole, by a
rename, and only once: whoever comes second finds the first one's and waits for its answer.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass

from mpwatch.attach import stub
from mpwatch.attach.acting import acting_as
from mpwatch.attach.outcome import Refused
from mpwatch.attach.target import Target, read_stat
from mpwatch.hook import wire

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MARK_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_ANSWER_BYTES = 4096
_LOOK_S = 0.001
_LOOK_AT_MOST_S = 0.03
_SWEEP_EVERY_S = 10.0
_REMEMBERED = 64
_swept: dict[tuple[str, int], float] = {}
"""When a runtime directory of a user was looked through last."""
STALE_S = 5.0
"""A parcel that nobody handed over for so long belongs to an observer that died."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A parcel that lies where its target will look for it."""

    runtime: str
    """The runtime directory as the target calls it."""
    name: str
    pid: int
    is_ours: bool
    """We laid it down; otherwise it was there already."""
    proc: str = "/proc"

    @property
    def path(self) -> str:
        """The parcel as the target calls it."""
        return f"{self.runtime}/{self.name}"

    def answer(self) -> str | None:
        """What the target said: `done`, a sentence, or `None` so far.

        A parcel that the target has removed itself was delivered.
        """
        try:
            with self._opened() as folder:
                raw = _read(folder, "result")
        except FileNotFoundError:
            return "done"
        except (OSError, Refused):
            return None
        return None if raw is None else raw.decode("utf-8", "replace").strip()

    def answer_within(self, timeout_s: float) -> str | None:
        """The same, waited for; its directory is opened once and not for each look."""
        deadline_s = time.monotonic() + timeout_s
        pause_s = _LOOK_S
        with contextlib.suppress(OSError, Refused), self._opened() as folder:
            while _read(folder, "result") is None and os.fstat(folder).st_nlink:
                if time.monotonic() > deadline_s:
                    break
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.3, _LOOK_AT_MOST_S)
        return self.answer()

    def handed_over_at(self) -> int | None:
        """What `mark` noted when the target was told to look; `None` if it was not told yet."""
        try:
            with self._opened() as folder:
                raw = _read(folder, "handed-over")
        except (OSError, Refused):
            return None
        return int(raw) if raw is not None and raw.isdigit() else None

    def is_stale(self) -> bool:
        """Whether whoever laid it down died before handing it over."""
        try:
            with self._opened() as folder:
                return time.time() - os.fstat(folder).st_mtime > STALE_S
        except OSError:
            return True

    def mark(self, what: str, number: int = 0) -> None:
        """Note `handed-over` or `unattended` in the parcel; one that is gone needs no note."""
        with contextlib.suppress(OSError, Refused), self._opened() as folder:
            fd = os.open(what, _MARK_FILE, 0o600, dir_fd=folder)
            try:
                os.write(fd, b"%d" % number)
            finally:
                os.close(fd)

    def remove(self) -> None:
        """Take it away; one that is gone is fine."""
        with contextlib.suppress(OSError, Refused):
            with self._opened() as folder:
                for name in os.listdir(folder):
                    os.unlink(name, dir_fd=folder)
            with opened(self.pid, self.runtime, self.proc) as parent:
                os.rmdir(self.name, dir_fd=parent)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        with opened(self.pid, self.runtime, self.proc) as parent:
            folder = os.open(self.name, _DIRECTORY, dir_fd=parent)
            try:
                yield folder
            finally:
                os.close(folder)


def lay_down(
    target: Target,
    errand: str,
    hook_directory: str,
    proc: str = "/proc",
    *,
    compiled: bytes | None = None,
) -> Parcel:
    """Lay down a parcel, or find the one that lies there.

    Args:
        target: For whom.
        errand: `load` or `unload`.
        hook_directory: The hook's package as the target calls it.
        proc: Where procfs is.
        compiled: The modules of that package, see `bundle`; without them the target reads each.

    Raises:
        Refused: There is no directory that is safe and writable.
    """
    runtime = runtime_directory(target, proc)
    name = _name(target)
    contents = {
        stub.PROGRAM_NAME: _program(),
        stub.SCRIPT_NAME: stub.SCRIPT,
        "argument": f"{errand}\n{hook_directory}\n".encode("utf-8", "surrogateescape"),
    }
    hidden = f".{name}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        with opened(target.pid, runtime, proc) as parent:
            if target.shares_pids and _is_time_to_sweep(runtime, target.uid):
                _sweep(parent, proc)
            if compiled is not None and _has_room(parent, len(compiled)):
                contents[stub.BUNDLE_NAME] = compiled
            write_folder(parent, hidden, contents, target)
            try:
                os.rename(hidden, name, src_dir_fd=parent, dst_dir_fd=parent)
            except OSError:  # not empty: somebody was first
                _remove_folder(parent, hidden)
                return Parcel(runtime, name, target.pid, False, proc)
    except OSError as error:
        raise Refused(f"nothing can be written to {runtime}: {error.strerror}") from error
    return Parcel(runtime, name, target.pid, True, proc)


def find(target: Target, proc: str = "/proc") -> Parcel | None:
    """The parcel that lies there for a target, if there is one."""
    for runtime in _candidates(target):
        found = Parcel(runtime, _name(target), target.pid, False, proc)
        with contextlib.suppress(OSError, Refused), found._opened():
            return found
    return None


def runtime_directory(target: Target, proc: str = "/proc") -> str:
    """The first directory of the target's user that is safe, made if it is missing.

    Raises:
        Refused: There is none; the message says why.
    """
    reasons = []
    for path in _candidates(target):
        try:
            _make_runtime(target, path, proc)
            return path
        except Refused as refusal:
            reasons.append(refusal.reason)
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
    raise Refused("it has no usable runtime directory: " + "; ".join(reasons))


def write_folder(parent: int, name: str, contents: dict[str, bytes], target: Target) -> None:
    """Make a directory with files in it that belong to the target's user and nobody else.

    Raises:
        OSError: It could not be written.
    """
    os.mkdir(name, 0o700, dir_fd=parent)
    folder = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for file_name, content in contents.items():
            fd = os.open(file_name, _NEW_FILE, 0o600, dir_fd=folder)
            try:
                os.write(fd, content)
                _give(fd, target)
            finally:
                os.close(fd)
        _give(folder, target)
    finally:
        os.close(folder)


def _make_runtime(target: Target, path: str, proc: str) -> None:
    above, _, name = path.rpartition("/")
    with opened(target.pid, above, proc) as parent:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
            made = os.open(name, _DIRECTORY, dir_fd=parent)
            try:
                _give(made, target)
            finally:
                os.close(made)
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{path} is not a directory")
    if found.st_uid != target.uid:
        raise Refused(f"{path} belongs to uid {found.st_uid}", f"rm -r {path}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise Refused(f"{path} is open to other users", f"chmod 700 {path}")


@contextlib.contextmanager
def opened(pid: int, path: str, proc: str) -> Iterator[int]:
    """Open a directory in the target's view, step by step and without following links.

    What is done with it is done as the target's user, see `acting`.
    """
    fd = os.open(f"{proc}/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with acting_as(pid, proc):
            for part in filter(None, path.split("/")):
                inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
    finally:
        os.close(fd)


def _candidates(target: Target) -> tuple[str, ...]:
    runtime = target.environment.get("XDG_RUNTIME_DIR")
    return wire.runtime_candidates(target.uid_inside, runtime)


def _name(target: Target) -> str:
    return stub.PARCEL_PREFIX + wire.stem(target.pid_inside, target.process.start_ticks)


def _give(fd: int, target: Target) -> None:
    """Give a file to the target's user, where we are somebody else."""
    if os.fstat(fd).st_uid != target.uid:
        os.fchown(fd, target.uid, target.gid)


def _program() -> bytes:
    with open(os.path.join(os.path.dirname(__file__), "payload.py"), "rb") as file:
        return file.read()


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
    """Whether so many bytes leave enough for the target's answer and for its hook's own files."""
    disk = os.fstatvfs(folder)
    return disk.f_bavail * disk.f_frsize > 4 * size


def _is_time_to_sweep(runtime: str, uid: int) -> bool:
    """Whether this was not just done: the parcels of a job lie there side by side."""
    now_s = time.monotonic()
    last_s = _swept.get((runtime, uid))
    if last_s is not None and now_s - last_s < _SWEEP_EVERY_S:
        return False
    if len(_swept) >= _REMEMBERED:
        _swept.clear()
    _swept[runtime, uid] = now_s
    return True


def _sweep(parent: int, proc: str) -> None:
    """Remove parcels of processes that have ended without looking for them."""
    for name in os.listdir(f"/proc/self/fd/{parent}"):
        pid, _, ticks = name.removeprefix(stub.PARCEL_PREFIX).partition("-")
        if not name.startswith(stub.PARCEL_PREFIX) or not (pid.isdigit() and ticks.isdigit()):
            continue
        try:
            _, _, start_ticks = read_stat(int(pid), proc)
        except OSError:
            start_ticks = -1
        if start_ticks != int(ticks):
            with contextlib.suppress(OSError):
                _remove_folder(parent, name)


def _remove_folder(parent: int, name: str) -> None:
    folder = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for file_name in os.listdir(folder):
            os.unlink(file_name, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)
