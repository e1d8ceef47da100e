"""Starts and joins of processes by multiprocessing: the start method, and what children are given.

A spawned child is given the hook. What is pickled for it is examined: why an object does not
pickle, and which part of it holds many storages.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys

from .. import checks, wire
from ..safe import foreign_exceptions
from ..safe.exact import attributes, class_name, full_name, in_class, is_a, text
from ..state.call_sites import place_here

try:
    from zlib import compress, decompress
except ImportError:  # this Python was built without zlib
    compress = decompress = bytes  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

CHOOSING = ("set_start_method", "get_start_method", "get_context")
"""The methods that fix the start method; reading it or making a queue fixes it as well."""
HOLDERS = ("multiprocessing", "multiprocessing.spawn", "torch.multiprocessing")
"""Modules that hold methods bound to the default context."""
METHODS = {"fork": 1, "spawn": 2, "forkserver": 3}
"""`aux` of PROCESS_START."""
_LOADER_WORKER = ("torch.utils.data._utils.worker", "_worker_loop")
_WORKER_ID, _RESULT_QUEUE = 10, 3
"""Positions in the arguments of `_worker_loop`, torch 2.1 to 2.15."""
MANY = 200
"""Storages in one object that are searched for: forkserver fails at 252, each is a mapping."""


def start_method() -> str | None:
    """The start method in force, or `None` while none was chosen or needed.

    The attribute is read directly: asking `get_start_method` would fix the default.
    """
    context = sys.modules.get("multiprocessing.context")
    actual = getattr(getattr(context, "_default_context", None), "_actual_context", None)
    name = getattr(actual, "_name", None)
    return name if type(name) is str else None


class Choice:
    """Where the start method was fixed."""

    __slots__ = ("site",)

    def __init__(self) -> None:
        self.site: str | None = None


def _wrap_choosing(
    original: Callable[..., Any], session: Context, choice: Choice
) -> Callable[..., Any]:
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
        type=foreign_exceptions.type_of(error),
        text=foreign_exceptions.text_of(error),
        frames=foreign_exceptions.frames_here(2),
        tid=session.system.get_native_id(),
        method=asked[:32],
        detail=f"{method} was chosen before{where}",
    )


def watch_start_method(module: ModuleType, session: Context) -> Undo:
    """Wrap the methods that fix the start method, also where modules hold them."""
    kind, default = module.DefaultContext, module._default_context
    choice = Choice()
    theirs = {name: vars(kind)[name] for name in CHOOSING}
    ours = {name: _wrap_choosing(function, session, choice) for name, function in theirs.items()}
    # Modules hold methods that were bound when the modules were imported.
    bound = vars(sys.modules["multiprocessing"])
    before = {name: bound[name] for name in CHOOSING if name in bound}
    for name in CHOOSING:
        setattr(kind, name, functools.update_wrapper(ours[name], theirs[name]))
    _rebind(theirs, {name: getattr(default, name) for name in CHOOSING})

    def undo() -> None:
        for name in CHOOSING:
            if vars(kind).get(name) is ours[name]:
                setattr(kind, name, theirs[name])
        _rebind(ours, {name: getattr(default, name) for name in CHOOSING} | before)

    return undo


def _rebind(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Replace the methods bound to old functions, wherever modules hold them."""
    for holder in HOLDERS:
        module = sys.modules.get(holder)
        for name, function in old.items():
            if getattr(getattr(module, name, None), "__func__", None) is function:
                setattr(module, name, new[name])


def wrap_start(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record and note the start of a process, with what was shared for it."""
    record, now = session.record, session.system.monotonic_ns
    births, get_ident, here = session.births, session.system.get_ident, session.here
    start_checks = session.start_checks

    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        birth = _describe(self, session)
        ident = get_ident()
        births[ident] = birth
        own = here.own
        own.shares, own.storages_path = 0, None
        start_checks.start(self, birth)
        attributes_before = dict(attributes(self))
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            session.failed(
                wire.PROCESS_START,
                began_ns,
                error,
                target=birth["target"],
                storages=own.shares,
                path=own.storages_path,
                site=place_here(),
            )
            foreign_exceptions.unframe(error)
            raise
        finally:
            births.pop(ident, None)
        popen = attributes(self).get("_popen")
        method = getattr(popen, "method", "")
        if type(method) is not str:
            method = ""
        pid = getattr(popen, "pid", 0)
        record(wire.PROCESS_START, began_ns, 0, 0, pid, 0, METHODS.get(method, 0))
        fds = getattr(popen, "_fds", None)
        count = len(fds) if type(fds) is list else None
        session.note(
            "start", pid=pid, fds=count, storages=own.shares, **{**birth, "method": method}
        )
        start_checks.find_left_behind(attributes_before)
        return result

    return start


def wrap_join(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record each join, with the exit code."""
    record, now = session.record, session.system.monotonic_ns

    def join(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        popen = attributes(self).get("_popen")
        code = getattr(popen, "returncode", None)
        aux = wire.EXIT_BASE + code if type(code) is int else 0
        record(wire.PROCESS_JOIN, began_ns, 0, 0, getattr(popen, "pid", 0), 0, aux)
        return result

    return join


class HookLoader:
    """An entry of the preparation data that loads the hook in the child that reads it.

    Its pickle is a call of `exec` with the text of `path_loader.py`, so the child has to import
    neither mpwatch nor this class.
    """

    __slots__ = ("_birth", "_method", "_text")

    def __init__(self, text: str, method: str, birth: dict[str, Any]) -> None:
        self._text = text
        self._method = method
        self._birth = birth

    def __reduce__(self) -> tuple[Any, ...]:
        arrival = (_directory(), self._method, self._birth)
        return exec, (self._text, {"__name__": "mpwatch_path_loader", "arrival": arrival})


def wrap_get_preparation_data(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Add to the preparation data of a child an entry that loads the hook there."""
    with open(f"{_directory()}/lifecycle/path_loader.py", encoding="utf-8") as file:
        text = compress(file.read().encode())

    def get_preparation_data(*args: Any, **kwargs: Any) -> Any:
        data = original(*args, **kwargs)
        birth = session.births.get(session.system.get_ident())
        # Without an entry in `births`, the forkserver itself is being started. Its children have
        # its environment and not their parent's, so the parent's is tested here.
        is_wanted = wire.disabled_by(os.environ) is None
        if birth is not None and session.state == "on" and is_wanted:
            data["mpwatch"] = HookLoader(decompress(text).decode(), birth["method"], birth)
        return data

    return get_preparation_data


def _describe(process: Any, session: Context) -> dict[str, Any]:
    """The `birth` of a process that is about to start; see `wire.HELLO`.

    A spawned child unpickles it before it has loaded the program's modules, so it consists of exact
    strings, numbers and None: an object of the program could not be loaded there, and would be the
    end of the child.
    """
    known = attributes(process)
    target = known.get("_target")
    module, function = full_name(process if target is None else target)
    config, name = known.get("_config"), known.get("_name")
    method = in_class(process, "_start_method")
    birth = {
        "parent": session.identity.pid,
        "parent_start_ticks": session.identity.start_ticks,
        "name": name[:128] if type(name) is str else "",
        "target": f"{module}.{function}"[:256],
        # A process without a method of its own uses the default, forkserver since Python 3.14.
        "method": method if type(method) is str else start_method() or _default(),
        "daemon": type(config) is dict and config.get("daemon") is True,
        "worker_id": None,
        "loader": None,
    }
    arguments = known.get("_args")
    if (module, function) != _LOADER_WORKER or type(arguments) is not tuple:
        return birth
    # A torch to come may pass other arguments.
    if len(arguments) > _WORKER_ID and type(arguments[_WORKER_ID]) is int:
        birth["worker_id"] = arguments[_WORKER_ID]
        birth["loader"] = session.loaders.of_queue(arguments[_RESULT_QUEUE]).key
    return birth


def _default() -> str:
    return "fork" if sys.version_info < (3, 14) else "forkserver"


def _directory() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def wrap_dump(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note an object that does not pickle, and one that holds many storages."""
    here, many = session.here, ManyStorages(session)

    def dump(thing: Any, *args: Any, **kwargs: Any) -> Any:
        own = here.own
        own.shares, own.storages_path = 0, None
        try:
            result = original(thing, *args, **kwargs)
        except BaseException as error:
            _note_unpicklable(session, thing, error)
            many.find(thing)
            foreign_exceptions.unframe(error)
            raise
        many.find(thing)
        return result

    return dump


def _note_unpicklable(session: Context, thing: Any, error: BaseException) -> None:
    """Note which part of an object could not be pickled; never raises."""
    if not any(is_a(error, kind) for kind in (pickle.PicklingError, TypeError, AttributeError)):
        return
    try:
        text = foreign_exceptions.text_of(error)
        session.note(
            "unpicklable",
            path=checks.load("unpicklable").path_to_unpicklable(thing, text),
            object=class_name(type(thing)),
            type=class_name(type(error)),
            text=text,
        )
    except BaseException as failure:
        if not foreign_exceptions.is_ours(failure):
            raise


class ManyStorages:
    """Notes which part of an object holds many storages that were shared for a new process."""

    __slots__ = ("_known", "_session")

    def __init__(self, session: Context) -> None:
        self._session = session
        self._known: tuple[str, int, str] | None = None

    def find(self, thing: Any) -> None:
        """Find the part that holds them if they are many; equal objects are noted once."""
        own = self._session.here.own
        if own.shares < MANY:
            return
        kind, shared = class_name(type(thing)), own.shares
        try:
            if self._known is None or self._known[:2] != (kind, shared):
                self._known = kind, shared, checks.load("object_walk").heaviest(thing)[0]
                self._session.note(
                    "many-storages", path=self._known[2], object=kind, storages=shared
                )
            own.storages_path = self._known[2]
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise


def stop_model_checks(module: ModuleType, session: Context) -> Undo:
    """Remove the hook of optimizers that `checks.shared_parameters` adds."""
    return session.start_checks.leave
