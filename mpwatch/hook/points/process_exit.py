"""How processes end: the exception that ended one, `sys.exit`, `os._exit`, Ctrl-C."""

from __future__ import annotations

import sys

from .. import wire
from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions
from ..safe.exact import attributes, is_a, is_atom

_USUAL_ENDS = ("multiprocessing.popen_fork", "multiprocessing.forkserver")
_exit_code = SystemExit.__dict__["code"].__get__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType
    from typing import Any

    from ..lifecycle.patcher import Undo
    from ..session import Session


def _run(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    now = session.system.monotonic_ns

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            # `multiprocessing` makes an exit code out of all of them, and says no more.
            session.here.own.way_out = type(error).__name__, foreign_exceptions.frames_of(error, 8)
            cause = foreign_exceptions.context_of(error) if _exits_with_failure(error) else error
            # `torch.multiprocessing.spawn` hands an exception to the parent by a file, and exits.
            if cause is not None and is_a(cause, Exception):
                session.is_crashed = True
                session.failed(wire.PROCESS_START, began_ns, cause, where_in="run")
            foreign_exceptions.unframe(error)
            raise

    return run


def _exits_with_failure(error: BaseException) -> bool:
    """Whether this is `SystemExit` with a code that is not empty and not 0.

    A code that is no plain value is not asked for its truth: it counts as a failure.
    """
    if not is_a(error, SystemExit):
        return False
    code = _exit_code(error)
    return bool(code) if is_atom(code) else True


def _bootstrap(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        session.wake()
        known = attributes(self)
        session.worker.recognise_pool(known.get("_target"), known.get("_args"))
        session.items.handed.arrive(self)
        code = original(self, *args, **kwargs)
        # Everything has ended here, feeder threads included; what follows is `os._exit`, or in a
        # spawned child the end of the interpreter.
        how, frames = session.here.own.way_out
        if code or how:
            session.note("exit", code=code, how=how, frames=frames)
            # What was done last is of interest then, unless everybody was asked to leave.
            session.is_crashed |= bool(code) and how != "KeyboardInterrupt"
        session.close("exit")
        return code

    return bootstrap


def _exit_at_once(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    """Note which code ends a process by `os._exit`: no traceback will show it."""

    def _exit(*args: Any, **kwargs: Any) -> Any:
        # A forked child that has done nothing yet stays as it is.
        if session.state == "on":
            code = args[0] if args else kwargs.get("status")
            code = code if type(code) is int else None
            if _is_usual_end(sys._getframe(1)):
                if code:
                    session.note("exit", code=code, how="", frames=[])
                    session.is_crashed = True
                session.close("exit")
            else:
                session.note(
                    "exit", code=code, how="os._exit", frames=foreign_exceptions.frames_here(1, 8)
                )
                session.save_now()
        return original(*args, **kwargs)

    return _exit


def _is_usual_end(caller: FrameType) -> bool:
    """Whether `multiprocessing` ends a child here whose `_bootstrap` has returned.

    The wrapper of `_bootstrap` has closed the session by then, unless the hook was attached while
    that function ran. `multiprocessing.popen_fork` and `forkserver` call `os._exit` for nothing
    else (Python 3.10 to 3.14).
    """
    return caller.f_globals.get("__name__") in _USUAL_ENDS


def _main_ended(module: ModuleType, session: Session) -> Undo:
    """Be called as the main thread has ended, before the interpreter waits for other threads.

    It may wait for ever, and the exception that ended the main thread should be known by then.
    The list is there since Python 3.9 and was in 3.15 (`threading._register_atexit`).
    """
    calls: list[Any] = module._threading_atexits
    note_end = session.note_end
    calls.append(note_end)

    def undo() -> None:
        if note_end in calls:
            calls.remove(note_end)

    return undo


POINTS = (
    Point("Process.run", "multiprocessing.process", attribute("BaseProcess.run", _run)),
    Point(
        "Process._bootstrap",
        "multiprocessing.process",
        attribute("BaseProcess._bootstrap", _bootstrap),
    ),
    Point("os._exit", "os", attribute("_exit", _exit_at_once)),
    Point("end of main", "threading", _main_ended),
)
