"""The default start method, and where it was fixed before a call tries to change it."""

from __future__ import annotations

import functools
import sys

from ..safe import foreign_exceptions
from ..safe.exact import is_a, text
from ..state.call_sites import place_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

METHODS = ("set_start_method", "get_start_method", "get_context")
"""The methods that fix it; reading it or making a queue fixes it as well."""
HOLDERS = ("multiprocessing", "multiprocessing.spawn", "torch.multiprocessing")
"""Modules that hold methods bound to the default context."""


def start_method() -> str | None:
    """The start method in force, or `None` while none was chosen or needed.

    The attribute is read directly: asking `get_start_method` would fix the default.
    """
    context = sys.modules.get("multiprocessing.context")
    actual = getattr(getattr(context, "_default_context", None), "_actual_context", None)
    return getattr(actual, "_name", None)


class Choice:
    """Where the start method was fixed."""

    __slots__ = ("site",)

    def __init__(self) -> None:
        self.site: str | None = None


def _wrap(original: Callable[..., Any], session: Context, choice: Choice) -> Callable[..., Any]:
    def choose(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self._actual_context
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            if before is not None and is_a(error, RuntimeError):
                asked = args[0] if args else kwargs.get("method")
                _too_late(session, choice, before, text(asked), error)
            foreign_exceptions.unframe(error)
            raise
        if self._actual_context is not before:
            choice.site = place_here()
        return result

    return choose


def _too_late(
    session: Context, choice: Choice, fixed: Any, asked: str, error: BaseException
) -> None:
    """Note a call that asked for another start method than the one in force."""
    method = getattr(fixed, "_name", None)
    if method == asked:
        return
    where = f" at {choice.site}" if choice.site else ""
    session.note(
        "exception",
        where="set_start_method",
        type=type(error).__name__,
        text=foreign_exceptions.text_of(error),
        frames=foreign_exceptions.frames_here(2),
        tid=session.system.get_native_id(),
        method=asked[:32],
        detail=f"{method} was chosen before{where}",
    )


def install(module: ModuleType, session: Context) -> Undo:
    """Wrap the methods that fix the start method, also where modules hold them."""
    kind, default = module.DefaultContext, module._default_context
    choice = Choice()
    theirs = {name: vars(kind)[name] for name in METHODS}
    ours = {name: _wrap(function, session, choice) for name, function in theirs.items()}
    # Modules hold methods that were bound when the modules were imported.
    bound = vars(sys.modules["multiprocessing"])
    before = {name: bound[name] for name in METHODS if name in bound}
    for name in METHODS:
        setattr(kind, name, functools.update_wrapper(ours[name], theirs[name]))
    _rebind(theirs, {name: getattr(default, name) for name in METHODS})

    def undo() -> None:
        for name in METHODS:
            if vars(kind).get(name) is ours[name]:
                setattr(kind, name, theirs[name])
        _rebind(ours, {name: getattr(default, name) for name in METHODS} | before)

    return undo


def _rebind(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Replace the methods bound to old functions, wherever modules hold them."""
    for holder in HOLDERS:
        module = sys.modules.get(holder)
        for name, function in old.items():
            if getattr(getattr(module, name, None), "__func__", None) is function:
                setattr(module, name, new[name])
