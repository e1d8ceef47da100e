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
    from types import ModuleType
    from typing import Any

RENDEZVOUS = "_mpwatch_hook"
ARRIVAL = "mpwatch_stowaway"
"""The `__name__` under which executing this text brings the hook in at once."""

reason = ""
"""Why the last `load` did not bring the hook in."""


def load(
    hook_directory: str, started_by: str, birth: dict[str, Any] | None = None
) -> ModuleType | None:
    """Bring the hook in, once per process; raises nothing of its own.

    What a signal handler of the program raises meanwhile belongs to the program and passes.

    Args:
        hook_directory: Path of the package `mpwatch/hook`, readable for this process.
        started_by: `spawn`, `forkserver` or `attach`.
        birth: What the parent knew about this process, or `None`.

    Returns:
        The hook's package, or `None` with the explanation in `reason`.
    """
    global reason
    try:
        package = sys.modules.get(RENDEZVOUS) or sys.modules.get("mpwatch.hook")
        if package is None:
            package = _import(hook_directory)
        if not package.enter(started_by, birth):
            reason = "the hook refused"
            return None
    except Exception as error:
        if not _is_ours(error, hook_directory):
            raise
        reason = f"{type(error).__name__}: {error}"
        return None
    return package


def _is_ours(error: Exception, directory: str) -> bool:
    """What `errors.is_ours` says; that file is read apart, for the package may be what failed."""
    try:
        errors = _execute("_mpwatch_errors", directory + "/errors.py")
    except (OSError, ImportError, SyntaxError):
        # Not even this can be read, so reading is what failed.
        return True
    return bool(errors.is_ours(error))


def _import(directory: str) -> ModuleType:
    """Import the package under a private name, from its directory."""
    try:
        return _execute(RENDEZVOUS, directory + "/__init__.py", directory)
    except BaseException:
        sys.modules.pop(RENDEZVOUS, None)
        raise


def _execute(name: str, path: str, package_directory: str | None = None) -> ModuleType:
    """Make a module out of a file; a package is entered in `sys.modules`."""
    folders = None if package_directory is None else [package_directory]
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    if package_directory is not None:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == ARRIVAL:
    load(*arrival)  # type: ignore[name-defined]  # noqa: F821
