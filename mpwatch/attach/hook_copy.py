"""Where a target finds the hook's package: in this installation, or in a copy made for it.

A target of another user may not be allowed into this installation, and one with other mounts does
not even see it. The copy stays for as long as hooks may import from it and pass it on to children;
`mpwatch detach` removes it with the last hook.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator

from mpwatch.attach import packing, parcel, stub
from mpwatch.attach.outcome import Refused
from mpwatch.attach.target import Target
from mpwatch.hook import wire

COPY_PREFIX = "hook-"


def installed() -> str:
    """The hook's package in this installation."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hook")


def directory_for(target: Target, proc: str = "/proc") -> str:
    """A directory from which this target can load the hook, as it calls it.

    Raises:
        Refused: No copy could be made.
    """
    here = installed()
    if target.shares_files and _is_readable(here, target):
        return here
    contents = _sources(here)
    digest = hashlib.sha256(repr(sorted(contents.items())).encode()).hexdigest()[:12]
    runtime = parcel.runtime_directory(target, proc)
    name = COPY_PREFIX + digest
    try:
        with parcel.opened(target.pid, runtime, proc) as parent:
            _write(parent, name, contents, target)
    except OSError as error:
        raise Refused(f"the hook could not be copied to {runtime}: {error.strerror}") from error
    return f"{runtime}/{name}"


def remove_unused(target: Target, proc: str = "/proc") -> None:
    """Remove copies from a runtime directory in which no hook is left and none is on its way."""
    for runtime in wire.runtime_candidates(
        target.uid_inside, target.environment.get("XDG_RUNTIME_DIR")
    ):
        with (
            contextlib.suppress(OSError, Refused),
            parcel.opened(target.pid, runtime, proc) as folder,
        ):
            names = os.listdir(f"/proc/self/fd/{folder}")
            if any(
                name.endswith(wire.SOCKET_SUFFIX) or name.startswith(stub.PARCEL_PREFIX)
                for name in names
            ):
                continue
            for name in names:
                if name.startswith(COPY_PREFIX):
                    _remove_tree(folder, name)


def _write(parent: int, name: str, contents: dict[str, bytes], target: Target) -> None:
    """Write the copy under a hidden name and rename it; one that is there is the same."""
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=parent, follow_symlinks=False)
        return
    hidden = f".{name}.{os.getpid()}"
    by_folder: dict[str, dict[str, bytes]] = {}
    for path, content in contents.items():
        folder, _, file_name = path.rpartition("/")
        by_folder.setdefault(folder, {})[file_name] = content
    parcel.write_folder(parent, hidden, by_folder.pop("", {}), target)
    copy = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        for folder, files in by_folder.items():
            parcel.write_folder(copy, folder, files, target)
    finally:
        os.close(copy)
    os.rename(hidden, name, src_dir_fd=parent, dst_dir_fd=parent)


def _sources(directory: str) -> dict[str, bytes]:
    """The package's modules by their path within it."""
    contents = {}
    for path in packing.modules(directory):
        with open(os.path.join(directory, path), "rb") as file:
            contents[path] = file.read()
    return contents


def _is_readable(directory: str, target: Target) -> bool:
    """Whether the target's user may read the package, by the modes on the way there."""
    if target.uid == 0 and target.uid_inside == 0:
        return True
    needs = [(path, stat.S_IXOTH) for path in _ways(directory)]
    needs += [(os.path.join(directory, n), stat.S_IROTH) for n in os.listdir(directory)]
    return all(_allows(os.stat(path), need, target) for path, need in needs)


def _ways(path: str) -> Iterator[str]:
    while True:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)


def _allows(found: os.stat_result, need: int, target: Target) -> bool:
    """Whether the mode grants what `need` says in terms of the bits for others."""
    if found.st_uid == target.uid:
        return bool(found.st_mode & need << 6)
    if found.st_gid in target.groups:
        return bool(found.st_mode & need << 3)
    return bool(found.st_mode & need)


def _remove_tree(parent: int, name: str) -> None:
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        for entry in os.listdir(folder):
            if stat.S_ISDIR(os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode):
                _remove_tree(folder, entry)
            else:
                os.unlink(entry, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)
