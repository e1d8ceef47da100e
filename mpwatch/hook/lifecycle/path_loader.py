"""Loads the hook by path, in a process that may know nothing of mpwatch.

This file is self-contained: its text travels to spawn and forkserver children inside
multiprocessing's preparation data, and into running processes when mpwatch attaches; there it is
executed in a fresh namespace. It needs the standard library only and leaves `sys.path` alone.
"""

from __future__ import annotations

import _thread
import importlib
import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType
    from typing import Any

RENDEZVOUS = "_mpwatch_hook"
ARRIVAL = "mpwatch_path_loader"
"""The `__name__` under which executing this text attaches the hook at once."""

reason = ""
"""Why the last `load` did not bring the hook in."""


def load(
    hook_directory: str,
    started_by: str,
    birth: dict[str, Any] | None = None,
    compiled: dict[str, Any] | None = None,
    version: str | None = None,
) -> ModuleType | None:
    """Bring the hook in, once per process; raises nothing of its own.

    What a signal handler of the program raises meanwhile belongs to the program and passes.

    Args:
        hook_directory: Path of the package `mpwatch/hook`, readable for this process.
        started_by: `spawn`, `forkserver` or `attach`.
        birth: What the parent knew about this process, or `None`.
        compiled: The package's modules: path, whether it is a package, and code, by name within it.
        version: Of these modules, see `wire.sources_version`; read from the files if not given.

    Returns:
        The hook's package, or `None` with the explanation in `reason`.
    """
    global reason
    unpacked = _Unpacked(compiled) if compiled else None
    try:
        if unpacked is None and (problem := untrusted(hook_directory)):
            reason = problem
            return None
        _drop_other_version(version or _version_of(hook_directory))
        package = sys.modules.get(RENDEZVOUS) or sys.modules.get("mpwatch.hook")
        if package is None:
            package = _import(hook_directory, unpacked)
            if version is not None:
                vars(package)["known_version"] = version
        if not package.enter(started_by, birth):
            reason = getattr(package, "refusal", "") or "the hook refused"
            return None
    except BaseException as error:
        if not _is_ours(error, hook_directory):
            raise
        reason = f"{type(error).__name__}: {error}"
        return None
    finally:
        if unpacked is not None:
            unpacked.forget()
        if unpacked in sys.meta_path:
            # Another list, as in `ImportWatch.stop`: a thread may be between two finders of this.
            sys.meta_path = [finder for finder in sys.meta_path if finder is not unpacked]
    return package


def untrusted(directory: str) -> str:
    """Why files of a package must not be loaded by their path; empty if they may.

    Every directory on the way, every link, and every file is checked: if none can be changed by
    another user, then none can be replaced after the check either. Trusted are root, this user, and
    whoever owns the standard library or the environment (`sys.prefix`): they provide this process
    with code anyway. So is write access of this process's own group, which many systems use as the
    user's private one.

    Raises:
        OSError: Something is missing or cannot be read.
    """
    trusted = {0, os.geteuid(), os.stat(sys.prefix).st_uid, os.stat(os.__file__).st_uid}
    if not os.path.isabs(directory):
        return f"{directory} is not an absolute path"
    paths = [directory]
    for start in {directory, os.path.realpath(directory)}:
        while start != "/":
            start = os.path.dirname(start)
            paths.append(start)
    folders = [os.path.realpath(directory)]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                paths.append(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    for path in (*paths, *folders):
        found = os.lstat(path)
        if found.st_uid not in trusted:
            return f"{path} belongs to user {found.st_uid}"
        if _others_may_write(found):
            return f"{path} can be changed by other users"
    return ""


def _others_may_write(found: os.stat_result) -> bool:
    kind, mode = found.st_mode & 0o170000, found.st_mode
    is_sticky_directory = kind == 0o040000 and bool(mode & 0o1000)  # only owners rename in there
    if kind == 0o120000 or is_sticky_directory:
        return False
    return bool(mode & 0o002) or bool(mode & 0o020 and found.st_gid != os.getegid())


def _drop_other_version(version: str | None) -> None:
    """Forget the modules of a hook that was detached and is of another version than this one.

    Modules of the same version are used again: what they registered with the interpreter (at fork,
    at exit) cannot be taken back, so new ones would add to it with each attach.
    """
    package = sys.modules.get(RENDEZVOUS)
    if package is None or package.__name__ != RENDEZVOUS or package.current() is not None:
        return
    known = getattr(package, "version", None)
    if version is not None and (known is None or known() != version):
        for name in [*sys.modules]:
            if name == RENDEZVOUS or name.startswith(RENDEZVOUS + "."):
                sys.modules.pop(name, None)


def _version_of(directory: str) -> str | None:
    """The version of the hook in a directory; `None` if it cannot be read."""
    try:
        found: str = _execute("_mpwatch_wire", directory + "/wire.py").sources_version(directory)
    except OSError:
        return None  # what cannot be read cannot be loaded either
    return found


class _Unpacked:
    """Finds what the hook imports while it is loaded under the import lock.

    Its own modules are those that the observer sent. Modules of the standard library are found here
    too: a finder of the program in `sys.meta_path` may wait for a lock that is held by a thread
    that waits for the import lock. Other threads get nothing from it.
    """

    def __init__(self, compiled: dict[str, Any]) -> None:
        self._modules = {f"{RENDEZVOUS}.{name}".rstrip("."): compiled[name] for name in compiled}
        self._thread = _thread.get_ident()
        here = getattr(sys.modules.get("os"), "__file__", None) or ""
        folder = here.rpartition("/")[0]
        self._library = [folder, *(p for p in sys.path if p == folder + "/lib-dynload")]

    def forget(self) -> None:
        """Free the modules' code, 0.7 MB.

        The interpreter keeps the list that was `sys.meta_path` at its start, with this finder in
        it: in a copy of the dictionary of `sys` (`m_copy` in CPython's import.c).
        """
        self._modules = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if _thread.get_ident() != self._thread:
            return None
        if name not in self._modules:
            return self._find_standard(name, path)
        file, is_package, code = self._modules[name]
        return importlib.util.spec_from_file_location(
            name,
            file,
            loader=_Loader(name, file, code),
            submodule_search_locations=[file.rpartition("/")[0]] if is_package else None,
        )

    def _find_standard(
        self, name: str, path: Sequence[str] | None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module of the standard library; `None` leaves it to the finders after this one."""
        if name.partition(".")[0] not in sys.stdlib_module_names or not self._library[0]:
            return None
        machinery = importlib.machinery
        return (
            (machinery.BuiltinImporter.find_spec(name) if path is None else None)
            or machinery.FrozenImporter.find_spec(name, path)
            or machinery.PathFinder.find_spec(name, self._library if path is None else path)
        )


class _Loader(importlib.machinery.SourceFileLoader):
    """Has a module's code or its source without reading the file."""

    def __init__(self, name: str, path: str, code: CodeType | bytes) -> None:
        super().__init__(name, path)
        self._content: CodeType | bytes | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        content, self._content = self._content, None
        if isinstance(content, bytes):
            code: CodeType = compile(content, self.path, "exec", dont_inherit=True)
            return code
        return content or super().get_code(fullname)


def _is_ours(error: BaseException, directory: str) -> bool:
    """The answer of `foreign_exceptions.is_ours`, loaded apart: the package may have failed."""
    try:
        # As a package, for it imports `exact` from the same directory.
        errors = _execute(
            "_mpwatch_errors", directory + "/safe/foreign_exceptions.py", directory + "/safe"
        )
    except BaseException as failure:
        # Not even this can be read, so reading is what failed, or what an audit hook refuses.
        if issubclass(type(failure), (type(error), OSError, ImportError, SyntaxError)):
            return True
        raise
    finally:
        for name in ("_mpwatch_errors", "_mpwatch_errors.exact"):
            sys.modules.pop(name, None)
    return bool(errors.is_ours(error))


def _import(directory: str, unpacked: _Unpacked | None) -> ModuleType:
    """Import the package under a private name, from its directory or as it came."""
    spec = None
    if unpacked is not None:
        sys.meta_path.insert(0, unpacked)
        spec = unpacked.find_spec(RENDEZVOUS)
    try:
        return _execute(RENDEZVOUS, directory + "/__init__.py", directory, spec)
    except BaseException:
        sys.modules.pop(RENDEZVOUS, None)
        raise


def _execute(
    name: str,
    path: str,
    package_directory: str | None = None,
    spec: importlib.machinery.ModuleSpec | None = None,
) -> ModuleType:
    """Make a module out of a file or its spec; a package is entered in `sys.modules`."""
    if spec is None:
        folders = None if package_directory is None else [package_directory]
        spec = importlib.util.spec_from_file_location(
            name, path, submodule_search_locations=folders
        )
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    if package_directory is not None:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == ARRIVAL:
    load(*arrival)  # type: ignore[name-defined]  # noqa: F821
