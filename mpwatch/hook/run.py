"""Runs a program with the hook in, the way `python PROGRAM` and `python -m MODULE` would.

Executed by path, so that neither the program nor its children need to find mpwatch:
`python .../mpwatch/hook/run.py [-m] TARGET ARGS...`.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import runpy
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "_mpwatch_run"

_hook = None
"""The hook's package, once it is in. Without an annotation: those would become the program's."""


def command(arguments: list[str]) -> list[str]:
    """The command line that runs `[-m] TARGET ARGS...` with the hook, in this interpreter."""
    return [sys.executable, os.path.abspath(__file__), *arguments]


def main(arguments: list[str]) -> None:
    """Bring the hook in, then become the target; its exit code is this process's.

    Args:
        arguments: `[-m] TARGET ARGS...`, as after `mpwatch run`.
    """
    is_module = arguments[:1] == ["-m"]
    if is_module:
        arguments = arguments[1:]
    if not arguments:
        sys.exit("usage: run.py [-m] TARGET ARGS...")
    _enter()
    _clear(sys.modules["__main__"].__dict__)
    become = _run_module if is_module else _run_file
    become(arguments)


def _enter() -> None:
    """Load the hook by path, to be passed on to programs that this one starts.

    The program runs also where loading fails.
    """
    global _hook
    directory = os.path.dirname(os.path.abspath(__file__))
    startup = _module("_mpwatch_startup", f"{directory}/startup/sitecustomize.py")
    sys.modules[startup.__name__] = startup
    namespace: dict[str, Any] = {"__name__": "mpwatch_run"}
    with open(f"{directory}/lifecycle/path_loader.py", encoding="utf-8") as file:
        exec(compile(file.read(), f"{directory}/lifecycle/path_loader.py", "exec"), namespace)
    _hook = namespace["load"](directory, "run")
    if _hook is None:
        del sys.modules[startup.__name__]


def _run_module(arguments: list[str]) -> None:
    """Be `python -m MODULE ARGS...`, whose `sys.path` starts with the current directory."""
    sys.argv[:] = arguments
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd()
    elif sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    # The private function behind `python -m`: unlike `run_module` it uses the real `__main__`, so
    # that spawned children find it, and it sets `sys.argv[0]` to the module's file.
    runpy._run_module_as_main(arguments[0])  # type: ignore[attr-defined]


def _run_file(arguments: list[str]) -> None:
    """Be `python FILE ARGS...`, in the real `__main__` module."""
    # As the interpreter makes it absolute since 3.9: `.` and `..` stay in it, and where the working
    # directory has been removed it remains as it is.
    path = arguments[0]
    with contextlib.suppress(OSError):
        path = os.path.join(os.getcwd(), path)
    sys.argv[:] = arguments
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path[0] = path
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        sys.stderr.write(
            f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n"
        )
        sys.exit(2)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    else:
        del sys.path[0]
    module = sys.modules["__main__"]
    namespace = module.__dict__
    code = compile(text, path, "exec", dont_inherit=True)
    namespace.update(
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __file__=path,
    )
    exec(code, namespace)


def _clear(namespace: dict[str, object]) -> None:
    """Leave of this file's names in `__main__` only those that every module has."""
    for name in tuple(namespace):
        if not (name.startswith("__") and name.endswith("__")):
            del namespace[name]


def _unframe(error: BaseException) -> None:
    """Take the lines of this file off a traceback that passes: see `foreign_exceptions.unframe`."""
    step = error.__traceback__ and error.__traceback__.tb_next
    while step is not None and step.tb_frame.f_code.co_filename == __file__:
        step = step.tb_next
    if step is None and not isinstance(error, SyntaxError):
        return  # something in here; but what is wrong in the program's text has no lines
    error.__traceback__ = step


def _module(name: str, path: str) -> Any:
    """A file as a module that is not entered in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    # Takes this file's lines off tracebacks: the program's should be the first. By then the names
    # here are the program's own, so the function is found where `main` ran.
    try:
        # A module of its own, because `__main__` is about to become the program's.
        _module(NAME, os.path.abspath(__file__)).main(sys.argv[1:])
    except BaseException as error:
        if error.__traceback__ and error.__traceback__.tb_next:
            error.__traceback__.tb_next.tb_frame.f_globals["_unframe"](error)
        raise
