"""How processes exit, and exceptions that end threads, services and children.

Processes exit by an exception, `sys.exit`, `os._exit` or Ctrl-C. An exception in a thread, in a
service of multiprocessing or in a child of its server does not reach the program.
"""

from __future__ import annotations

import functools
import sys

from .. import wire
from ..safe import foreign_exceptions
from ..safe.exact import attributes, is_a, is_atom, text
from ..state.call_sites import place_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType, TracebackType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Install, Undo

_USUAL_ENDS = ("multiprocessing.popen_fork", "multiprocessing.forkserver")
_ENDING = frozenset((1, 2, 3, 6, 9, 15))
"""SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGKILL, SIGTERM: what processes are stopped by."""
_exit_code = SystemExit.__dict__["code"].__get__


def wrap_run(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Remember and note the exception that ends `Process.run`."""
    now = session.system.monotonic_ns

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            _failed(session, began_ns, error)
            foreign_exceptions.unframe(error)
            raise

    return run


def wrap_exit_function(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Remember and note the exception that ends the `run` of a class derived from `Process`.

    `Process._bootstrap` calls this function while the exception is on its way, in a `finally`
    (CPython 3.10 to 3.15); afterwards nothing but an exit code is left.
    """

    def _exit_function(*args: Any, **kwargs: Any) -> Any:
        error = sys.exc_info()[1]
        if error is not None and not session.here.own.exception[0]:
            caller = foreign_exceptions.caller()
            is_its_own, _ = foreign_exceptions.asked(_has_passed_bootstrap, error, caller)
            if is_its_own:
                _failed(session, session.system.monotonic_ns(), error)
        del error
        return original(*args, **kwargs)

    return _exit_function


def _has_passed_bootstrap(error: BaseException, caller: FrameType | None) -> bool:
    """Whether an exception has just passed the frame of `Process._bootstrap`, the caller.

    A process that was forked in an `except` block still has the exception of its parent.
    """
    passed = foreign_exceptions.traceback_of(error)
    if caller is None or passed is None or passed.tb_frame is not caller:
        return False
    is_own = caller.f_globals.get("__name__") == "multiprocessing.process"
    return is_own and caller.f_code.co_name == "_bootstrap"


def _failed(session: Context, began_ns: int, error: BaseException) -> None:
    """Remember and note what ends a child: `multiprocessing` makes an exit code of it."""
    frames = foreign_exceptions.frames_of(error, 8)
    session.here.own.exception = foreign_exceptions.type_of(error), frames
    cause = foreign_exceptions.context_of(error) if _exits_with_failure(error) else error
    # `torch.multiprocessing.spawn` writes an exception to a file and calls `sys.exit`.
    if cause is not None and is_a(cause, Exception):
        session.is_crashed = True
        session.failed(wire.PROCESS_START, began_ns, cause, where_in="run")


def _exits_with_failure(error: BaseException) -> bool:
    """Whether this is `SystemExit` with a code that is not empty and not 0.

    The truth of a code that is not a plain value is not tested: it counts as a failure.
    """
    if not is_a(error, SystemExit):
        return False
    code = _exit_code(error)
    return bool(code) if is_atom(code) else True


def wrap_bootstrap(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Start and close the session of a child of `multiprocessing`, and note its exit."""

    def bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        session.wake()
        known = attributes(self)
        session.worker.recognise_pool(known.get("_target"), known.get("_args"))
        session.start_checks.arrive(self)
        code = original(self, *args, **kwargs)
        # All threads have ended here, feeder threads included. What follows is `os._exit`, or in a
        # spawned child the end of the interpreter.
        how, frames = session.here.own.exception
        if code or how:
            session.note("exit", code=code, how=how, frames=frames)
            # The last events are kept for the autopsy, unless Ctrl-C ended all processes.
            session.is_crashed |= bool(code) and how != "KeyboardInterrupt"
        session.close("exit")
        return code

    return bootstrap


def wrap_os_exit(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note the exit code of `os._exit`: no traceback shows it."""

    def _exit(*args: Any, **kwargs: Any) -> Any:
        # A forked child without a record has no files and writes none.
        if session.state == "on":
            code = args[0] if args else kwargs.get("status")
            code = code if type(code) is int else None
            if _is_usual_end(foreign_exceptions.caller()):
                if code:
                    session.note("exit", code=code, how="", frames=[])
                    session.is_crashed = True
                session.close("exit")
            else:
                session.note(
                    "exit", code=code, how="os._exit", frames=foreign_exceptions.frames_here(1, 8)
                )
                session.save_now()
                try:
                    return original(*args, **kwargs)
                finally:
                    session.server.start()  # the program has replaced `os._exit`
        return original(*args, **kwargs)

    return _exit


def wrap_send_signal(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note each signal that ends a child unless it is caught, for an exit status has no sender.

    `Process.kill` and `terminate` send by this method. `os.kill` is left alone: a signal to the
    process itself would show the wrapper in the stack that `faulthandler` or a handler sees.
    """

    def send_signal(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = attributes(self)
        is_running = known.get("returncode") is None
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        pid: Any = known.get("pid")
        signal: Any = args[0] if args else kwargs.get("sig")
        if is_running and is_a(pid, int) and is_a(signal, int):
            number = int.__add__(signal, 0)
            if number in _ENDING:
                session.note("kill", pid=pid, signal=number, site=place_here())
        return result

    return send_signal


def _is_usual_end(caller: FrameType | None) -> bool:
    """Whether `multiprocessing` ends a child here whose `_bootstrap` has returned.

    The wrapper of `_bootstrap` has closed the session by then, unless the hook was attached while
    that function ran. `multiprocessing.popen_fork` and `forkserver` call `os._exit` for nothing
    else (Python 3.10 to 3.14).
    """
    return caller is not None and caller.f_globals.get("__name__") in _USUAL_ENDS


def call_when_main_ends(module: ModuleType, session: Context) -> Undo:
    """Note the exception that ended the main thread before the interpreter waits for other threads.

    That wait may never end. The list of calls exists in Python 3.9 to 3.15
    (`threading._register_atexit`).
    """
    calls: list[Any] = module._threading_atexits
    note_end = session.note_end
    calls.append(note_end)

    def undo() -> None:
        if note_end in calls:
            calls.remove(note_end)

    return undo


def wrap_excepthook(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note each exception that ends a thread."""

    def excepthook(args: Any, /) -> Any:
        error = args.exc_value
        if is_a(error, BaseException):
            session.note(
                "thread-died",
                thread=text(attributes(args.thread).get("_name", ""))[:128],
                tid=session.system.get_native_id(),
                **foreign_exceptions.described(error),
            )
        return original(args)

    return excepthook


class SysProxy:
    """Replaces `sys` in one module, and notes the exceptions that it passes to `sys.excepthook`.

    `sys.excepthook` itself is not replaced: programs compare it with `sys.__excepthook__` (the
    standard library's `code` does), and a replacement by the program is called as before.
    """

    def __init__(self, session: Context, where: str) -> None:
        self.__dict__["_session"] = session
        self.__dict__["_where"] = where

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(sys, name, value)

    def excepthook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Note an exception and pass it on."""
        session, where = self.__dict__["_session"], self.__dict__["_where"]
        session.note(
            "exception",
            where=where,
            tid=session.system.get_native_id(),
            **foreign_exceptions.described(error),
        )
        if where == "main":
            session.is_crashed = True
        sys.excepthook(kind, error, trace)


def note_uncaught_in(where: str, started_by: str | None = None) -> Install:
    """Note the exceptions that a module passes to `sys.excepthook`.

    Args:
        where: Name of the module in notes.
        started_by: Only in processes that were started by this method.
    """
    # A closure would keep a second copy of its code, see `strip_docs`.
    return functools.partial(_note_uncaught_in, where, started_by)


def _note_uncaught_in(
    where: str, started_by: str | None, module: ModuleType, session: Context
) -> Undo:
    if module.sys is not sys:
        raise LookupError(f"{module.__name__} has another sys")
    if started_by is not None and session.identity.started_by != started_by:
        return nothing_to_undo
    ours = SysProxy(session, where)
    module.sys = ours  # type: ignore[attr-defined]

    def undo() -> None:
        if module.sys is ours:
            module.sys = sys  # type: ignore[attr-defined]

    return undo


def nothing_to_undo() -> None:
    """Undo a point that changed nothing in this process."""
