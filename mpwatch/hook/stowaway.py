"""Loads the hook by path, in a process that may know nothing of mpwatch.

This file is self-contained: its text travels to spawn and forkserver children inside
multiprocessing's preparation data, and into running processes when mpwatch attaches; there it is
executed in a fresh namespace. It needs the standard library only, leaves `sys.path` alone, and may
run at any bytecode boundary of the main thread.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType
    from typing import Any

RENDEZVOUS = "_mpwatch_hook"
ARRIVAL = "mpwatch_stowaway"
"""The `__name__` under which executing this text brings the hook in at once."""

reason = ""
"""Why the last `load` did not bring the hook in."""


def load(
    hook_directory: str,
    started_by: str,
    birth: dict[str, Any] | None = None,
    compiled: dict[str, Any] | None = None,
) -> ModuleType | None:
    """Bring the hook in, once per process; raises nothing of its own.

    What a signal handler of the program raises meanwhile belongs to the program and passes.

    Args:
        hook_directory: Path of the package `mpwatch/hook`, readable for this process.
        started_by: `spawn`, `forkserver` or `attach`.
        birth: What the parent knew about this process, or `None`.
        compiled: The package's modules: path, whether it is a package, and code, by name within it.

    Returns:
        The hook's package, or `None` with the explanation in `reason`.
    """
    global reason
    unpacked = _Unpacked(compiled) if compiled else None
    try:
        package = sys.modules.get(RENDEZVOUS) or sys.modules.get("mpwatch.hook")
        if package is None:
            package = _import(hook_directory, unpacked)
        if not package.enter(started_by, birth):
            reason = "the hook refused"
            return None
    except Exception as error:
        if not _is_ours(error, hook_directory):
            raise
        reason = f"{type(error).__name__}: {error}"
        return None
    finally:
        if unpacked in sys.meta_path:
            sys.meta_path.remove(unpacked)
    return package


class _Unpacked:
    """Finds the hook's modules among those that came compiled, while it is being brought in."""

    def __init__(self, compiled: dict[str, Any]) -> None:
        self._modules = {f"{RENDEZVOUS}.{name}".rstrip("."): compiled[name] for name in compiled}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._modules:
            return None
        file, is_package, code = self._modules[name]
        return importlib.util.spec_from_file_location(
            name,
            file,
            loader=_Loader(name, file, code),
            submodule_search_locations=[file.rpartition("/")[0]] if is_package else None,
        )


class _Loader(importlib.machinery.SourceFileLoader):
    """Knows a module's code before its file is read."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code: CodeType | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        code, self._code = self._code, None
        return code or super().get_code(fullname)


def _is_ours(error: Exception, directory: str) -> bool:
    """What `errors.is_ours` says; that file is read apart, for the package may be what failed."""
    try:
        # As a package, for it imports `exact` from the same directory.
        errors = _execute("_mpwatch_errors", directory + "/errors.py", directory)
    except (OSError, ImportError, SyntaxError):
        # Not even this can be read, so reading is what failed.
        return True
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
