"""The environment of programs that a process starts: under `mpwatch run` it passes the hook on.

`startup/sitecustomize.py` says how. What inherits the environment of the C library gets the hook
with it, so that keeps the folder also where the program sets or deletes PYTHONPATH. A program that
is started with an environment of its own, usually a changed copy of `os.environ`, gets the hook
with a copy of that. What has less than half of its names in common with `os.environ`, such as
`env={}`, is left alone.

Loaded only in jobs of `mpwatch run`.
"""

from __future__ import annotations

import functools
import os
import sys

from .. import checks
from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo, Wrap

    Change = Callable[..., tuple[Any, ...]]

_NAME = b"PYTHONPATH"


def _startup() -> Any:
    """`startup/sitecustomize.py` as a module."""
    return sys.modules["_mpwatch_startup"]


def _changing(change: Change) -> Wrap:
    """Make wrappers that change positional arguments, if they can."""
    # Closures would keep a second copy of their code, see `strip_docs`.
    return functools.partial(_wrap_changing, change)


def _wrap_changing(
    change: Change, original: Callable[..., Any], session: Context
) -> Callable[..., Any]:
    def changed(*args: Any, **kwargs: Any) -> Any:
        try:
            args = change(args, kwargs)
        except BaseException as error:
            # Arguments that do not fit: the original says so.
            if not foreign_exceptions.is_ours(error):
                raise
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise

    return changed


def _environment_at(position: int) -> Change:
    """Put the hook into the environment among the arguments, in a copy."""
    return functools.partial(_change_environment, position)


def _change_environment(
    position: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    if "env" in kwargs:
        kwargs["env"] = _with_hook(kwargs["env"])
        return args
    return (*args[:position], _with_hook(args[position]), *args[position + 1 :])


def _with_hook(environment: Any) -> Any:
    """A copy of an environment with the hook, or the same one where it does not belong there.

    Other types are left alone: to read them would run the program's code.
    """
    kind = type(environment)
    if kind is list:  # of b"name=value"
        copy = dict(each.partition(b"=")[::2] for each in environment)
    elif kind is dict or kind is os._Environ:
        copy = {os.fsencode(name): value for name, value in environment.items()}
    else:
        return environment
    if 2 * len(copy.keys() & os.environb.keys()) < len(os.environb):
        return environment
    copy[_NAME] = _added(copy.get(_NAME))
    return [b"=".join(each) for each in copy.items()] if kind is list else copy


def _added(value: str | bytes | None) -> bytes:
    return os.fsencode(_startup().added(None if value is None else os.fsdecode(value)))


def _set(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Keep the folder in PYTHONPATH as the C library has it."""
    name, value = args
    return (name, _added(value)) if os.fsencode(name) == _NAME else args


def _delete(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    def delete(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        if args[:1] in ((_NAME,), (_NAME.decode(),)):
            _startup().pass_on(None)
        return result

    return delete


def _begin(module: ModuleType, session: Context) -> Undo:
    startup = _startup()
    for name in startup.ONCE:
        vars(startup).pop(name, None)
    checks.strip(startup)
    startup.pass_on(os.environ.get(_NAME.decode()))
    replaced = module.execve
    module.supports_fd.add(replaced)

    def undo() -> None:
        module.supports_fd.discard(replaced)
        startup.stop()

    return undo


POINTS = (
    Point("os.putenv", "os", attribute("putenv", _changing(_set))),
    Point("os.unsetenv", "os", attribute("unsetenv", _delete)),
    Point("os.execve", "os", attribute("execve", _changing(_environment_at(2)))),
    Point("os.posix_spawn", "os", attribute("posix_spawn", _changing(_environment_at(2)))),
    # `self` is the first argument; the same from Python 3.3 to 3.15.
    Point(
        "Popen",
        "subprocess",
        attribute("Popen._execute_child", _changing(_environment_at(7))),
    ),
    # For libraries that call it themselves, as loky does. From 3.11 on `subprocess` holds the
    # original, whose warnings then name the same line as without the hook.
    Point("fork_exec", "_posixsubprocess", attribute("fork_exec", _changing(_environment_at(5)))),
    Point("environment", "os", _begin),
)
