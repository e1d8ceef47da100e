"""Whose exception is it: what the hook may swallow, and what it must let through or deliver again.

A signal handler runs between any two bytecodes of the main thread, also those of the hook, and may
raise: Ctrl-C does, and so does the SIGCHLD handler of torch's DataLoader when a worker died. Such
an exception belongs to the program.

What passes a wrapper is as it would be without: its type, text, cause, and the lines of its
traceback, from which `unframe` takes the wrapper's own.

On Python 3.10 one line of the wrapper may stay: there a bare `raise` puts back the traceback that
was the exception's as the `except` began (`do_raise` of its ceval.c).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys

from . import exact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, TracebackType
    from typing import Any


traceback_of: Callable[[BaseException], TracebackType | None] = BaseException.__dict__[
    "__traceback__"
].__get__
"""The traceback of an exception, also of one whose class overrides `__getattribute__`."""
context_of: Callable[[BaseException], BaseException | None] = BaseException.__dict__[
    "__context__"
].__get__
_arguments: Callable[[BaseException], tuple[Any, ...]] = BaseException.__dict__["args"].__get__
_set_traceback: Callable[[BaseException, TracebackType | None], None] = BaseException.__dict__[
    "__traceback__"
].__set__
_file_name: Callable[[BaseException], Any] = OSError.__dict__["filename"].__get__
_WRITTEN_IN_C = type(BaseException.__str__)
_OWN = __file__.rpartition("/safe/")[0] + "/"


def is_ours(error: BaseException) -> bool:
    """Whether the hook's own bookkeeping raised this, so that swallowing it hides nothing.

    Bookkeeping raises built-in exceptions and those of `struct`; whatever else surfaces in it was
    put there from outside (a signal handler, `PyThreadState_SetAsyncExc`).
    """
    if not exact.is_a(error, Exception):
        return False
    if exact.module_of_class(type(error)) not in ("builtins", "struct"):
        return False
    return signal_behind(error) is None


def signal_behind(error: BaseException) -> int | None:
    """Number of the signal whose handler raised, or `None` if no handler was involved.

    A `KeyboardInterrupt` that shows no handler is taken for SIGINT's: the usual one of that is
    written in C and leaves no frame behind.
    """
    codes: dict[CodeType, list[int]] = {}
    for number in range(1, _signal.NSIG):
        code = _code_of(_signal.getsignal(number))
        if code is not None:
            codes.setdefault(code, []).append(number)
    step: TracebackType | None = traceback_of(error)
    while step is not None:
        numbers = codes.get(step.tb_frame.f_code)
        if numbers is not None:
            return _number_in(step.tb_frame, numbers)
        step = step.tb_next
    return int(_signal.SIGINT) if exact.is_a(error, KeyboardInterrupt) else None


def _number_in(frame: FrameType, numbers: list[int]) -> int:
    """Which of the signals of one handler it was called for, by its arguments."""
    code = frame.f_code
    named = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[: named + 1]:  # `*args` come after those with a name
        value = frame.f_locals.get(name)
        for each in value if type(value) is tuple else (value,):
            if type(each) is int and each in numbers:
                return each
    return numbers[0]


def unframe(error: BaseException) -> None:
    """Take the wrapper's own line off a traceback that passes through it.

    Call it in the wrapper's `except` clause, right before a bare `raise`.
    """
    step = traceback_of(error)
    if step is not None:
        # Nothing remains of a call that did not even begin, with arguments that do not fit.
        _set_traceback(error, step.tb_next)


def frames_of(error: BaseException, limit: int = 12) -> list[list[Any]]:
    """Function, file and line of the innermost frames an exception passed, innermost first.

    Those of wrappers are left out: nobody wrote them into the program.
    """
    frames = []
    step = traceback_of(error)
    while step is not None:
        code = step.tb_frame.f_code
        if not code.co_filename.startswith(_OWN):
            frames.append([code.co_name, code.co_filename, step.tb_lineno])
        step = step.tb_next
    return frames[-limit:][::-1]


def frames_here(skip: int, limit: int = 16) -> list[list[Any]]:
    """Function, file and line of the calling thread's frames, innermost first.

    Args:
        skip: Frames to leave out, counted from the caller of this function.
        limit: Frames kept at most.
    """
    frames: list[list[Any]] = []
    step: Any = sys._getframe()
    while step is not None and skip >= 0:
        step, skip = step.f_back, skip - 1
    while step is not None and len(frames) < limit:
        code = step.f_code
        if not code.co_filename.startswith(_OWN):
            frames.append([code.co_name, code.co_filename, step.f_lineno])
        step = step.f_back
    return frames


def text_of(error: BaseException, limit: int = 1000) -> str:
    """The message of an exception, bounded, without running the program's code.

    A `__str__` that is written in Python is the program's or a library's, and what an exception was
    made with may be any object. So only the built-in exceptions' own `__str__` is called, and only
    where all arguments are plain values. Otherwise the arguments are joined.
    """
    arguments = _arguments(error)
    show = exact.in_class(error, "__str__")
    shown = arguments
    if exact.is_a(error, OSError):
        shown += (_file_name(error),)  # any object that was given for a path
    if type(show) is _WRITTEN_IN_C and all(exact.is_atom(each) for each in shown):
        try:
            return str(show(error))[:limit]
        except Exception as failure:
            # Some show attributes as well, to which the program may have given any value.
            if signal_behind(failure) is not None:
                raise
    return ", ".join(exact.text(each) for each in arguments)[:limit]


def _code_of(handler: Any) -> CodeType | None:
    """The code that a signal handler runs: a function's, a method's, or a callable object's."""
    code: CodeType | None = exact.code_of(handler)
    return code
