"""Where a target finds the hook's package: in this installation, or in a copy made for it.

The injection itself reads no file of the package (`compiled_payload`), but children that the target
spawns later load the hook from this path. So it must be a place that the target's user can read
and that only this user and root can change. Where this installation is not, or where a target
with other mounts does not see it, a copy is made in its runtime directory. The copy stays for as
long as hooks may load from it; `mpwatch detach` removes it with the last hook.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator

from mpwatch.attach.outcomes import Refused
from mpwatch.attach.payload import compiled_payload, exchange_dir
from mpwatch.attach.payload.compiled_payload import installed
from mpwatch.attach.payload.exchange_dir import COPY_PREFIX
from mpwatch.attach.target import Target
from mpwatch.hook import wire


def directory_for(target: Target, proc: str = "/proc") -> str:
    """A directory from which this target can load the hook, as the target names it.

    Raises:
        Refused: No copy could be made.
    """
    here = installed()
    if not needs_copy(target):
        return here
    contents = _sources(here)
    digest = hashlib.sha256(repr(sorted(contents.items())).encode()).hexdigest()[:12]
    runtime = exchange_dir.runtime_directory(target, proc)
    name = COPY_PREFIX + digest
    try:
        with exchange_dir.opened_runtime(target, runtime, proc) as parent:
            if not _is_there(parent, name):
                exchange_dir.publish(parent, name, contents, target)
    except OSError as error:
        raise Refused(f"the hook could not be copied to {runtime}: {error.strerror}") from error
    return f"{runtime}/{name}"


def needs_copy(target: Target) -> bool:
    """Whether this target cannot load the hook from this installation, or must not."""
    return not (target.shares_files and _is_safe_for(installed(), target))


def remove_unused(target: Target, proc: str = "/proc") -> None:
    """Remove copies from a runtime directory in which no hook is left and none is on its way."""
    for runtime in wire.runtime_candidates(
        target.uid_inside, target.environment.get("XDG_RUNTIME_DIR")
    ):
        if not exchange_dir.takes_writes(target, runtime, proc):
            continue
        with (
            contextlib.suppress(OSError, Refused),
            exchange_dir.opened_runtime(target, runtime, proc) as folder,
        ):
            exchange_dir.remove_hidden(folder)
            names = os.listdir(f"/proc/self/fd/{folder}")
            if any(
                name.endswith(wire.SOCKET_SUFFIX) or name.startswith(exchange_dir.PREFIX)
                for name in names
            ):
                continue
            for name in names:
                if name.startswith(COPY_PREFIX):
                    exchange_dir.remove_tree(folder, name)


def _is_there(parent: int, name: str) -> bool:
    """Whether a copy of this content was made before."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _sources(directory: str) -> dict[str, bytes]:
    """The package's modules by their path within it."""
    contents = {}
    for path in compiled_payload.modules(directory):
        with open(os.path.join(directory, path), "rb") as file:
            contents[path] = file.read()
    return contents


def _is_safe_for(directory: str, target: Target) -> bool:
    """Whether the target's user may read the package, and only that user and root may change it."""
    needs = [(path, stat.S_IXOTH) for path in _ways(directory)]
    for folder, _, names in os.walk(directory):
        needs += [(folder, stat.S_IXOTH)]
        needs += [(os.path.join(folder, n), stat.S_IROTH) for n in names if n.endswith(".py")]
    for path, need in needs:
        found = os.lstat(path)
        if not _is_trusted(found, target):
            return False
        if target.uid != 0 and not _allows(found, need, target):
            return False
    return True


def _is_trusted(found: os.stat_result, target: Target) -> bool:
    """Whether only the target's user and root can change a file, or names in a directory."""
    if stat.S_ISLNK(found.st_mode) or found.st_uid not in (0, target.uid):
        return False
    # In a directory with the sticky bit others cannot rename what is not theirs.
    is_sticky = stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)
    return is_sticky or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


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
